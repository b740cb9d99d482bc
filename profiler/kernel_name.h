// A kernel's name read aloud: whose it is, and what each part of it says. The readings are a table
// of tokens (kernel_names.txt), with where each was taken from; a part that no row knows is said to
// be unknown, never guessed. Used by `mnist explain KERNEL_NAME`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sinter::profiler {

struct NamePart {
  std::string text, meaning;  // meaning: "" where it is unknown
};

struct KernelName {
  std::string maker;   // "cuBLAS (xmma)"
  std::string source;  // where the readings are from
  std::vector<NamePart> parts;

  bool whole() const;        // is every part known?
  std::string text() const;  // the maker, a line a part, the source
};

// Nothing for a text that begins as no kernel that the table knows.
std::optional<KernelName> read_kernel_name(std::string_view name);

}  // namespace sinter::profiler
