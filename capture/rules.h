// The fusion rules: one table. Each row names the pattern, the fused op (of the same name) and its
// conditions; the rule is on where the op has a kernel. Rules run in the order of the table; each
// finds all its groups. A rule fuses only where Rewriter::fuse proves the order legal.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capture/rewrite.h"

namespace sinter::capture {

struct Rule {
  const char* name;
  const char* pattern;     // "linear, activation"
  const char* conditions;  // in words, for the documents
  const OpDef* op;
  void (*apply)(Rewriter&);
  bool on(Device::Type device) const { return op->kernel(device) != nullptr; }
};

std::span<const Rule> rules();

// Which rules are on: `all`, `none`, or a list read from left to right: NAME adds, -NAME removes,
// from all if the first item is -NAME.
class RuleSet {
 public:
  RuleSet() : RuleSet("all") {}
  // Throws usage: an unknown name (the nearest is named), an empty item.
  explicit RuleSet(std::string_view text);
  bool has(std::string_view rule) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::vector<std::string> on_;
};

// Rewrites a recorded graph for `device`: dead and duplicate nodes go, then the rules. Verified
// after each pass.
Rewriter rewrite(
    const Graph& recorded, const RuleSet& set, Device::Type device, Refused refused = {});

}  // namespace sinter::capture
