#include "core/device/compiled_kernels.h"

#include <cxxabi.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <utility>

#include "core/classic.h"
#include "core/error.h"

namespace sinter {

std::string demangled(const char* symbol) {
  int status = 0;
  char* const text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  const std::string out = text ? text : symbol;
  std::free(text);
  return out;
}

std::string kernel_key(std::string name) {
  static const std::pair<std::regex, const char*> kRules[] = {
      {std::regex(R"(\(anonymous namespace\)::)"), ""},
      {std::regex(R"(Layout::along_k\b)"),
          "0"},  // other enumerators as template arguments want a line each
      {std::regex(R"(Layout::along_outer\b)"), "1"}, {std::regex(R"(Layout::either\b)"), "2"},
      {std::regex(R"(Layout::ragged_k\b)"), "3"}, {std::regex(R"(Layout::ragged_outer\b)"), "4"},
      {std::regex(R"(\b(long|short) unsigned int\b)"), "unsigned $1"},
      {std::regex(R"(\b(long|short) int\b)"), "$1"}, {std::regex(R"(\w+::|\bconst\b)"), ""},
      {std::regex(R"(\([\w ]+\)(?=-?\d))"), ""},  // the type of a number
      {std::regex(R"(\b(\d+)[uUlL]+\b)"), "$1"}, {std::regex(" "), ""}};
  for (const auto& [pattern, replacement] : kRules)
    name = std::regex_replace(name, pattern, replacement);
  return name;
}

std::string kernel_key_of_symbol(const std::string& symbol) {
  std::string name = kernel_key(demangled(symbol.c_str()));
  if (name.starts_with("void") && symbol.starts_with("_Z")) name.erase(0, 4);
  size_t end = 0;
  for (int depth = 0; end < name.size() && (depth > 0 || name[end] != '('); ++end)
    depth += name[end] == '<' ? 1 : name[end] == '>' ? -1 : 0;
  return name.substr(0, end);
}

std::string compiled_folder() {
#if SINTER_HAS_CUDA
  const char* const packed = std::getenv("SINTER_PTX");  // of scripts/gpu_report --pack
  return packed ? packed : SINTER_PTX_FOLDER;
#else
  return "";
#endif
}

std::map<std::string, int> compiled_registers(int capability, const std::string& folder) {
  constexpr std::string_view kBegin = "Compiling entry function '", kUsed = "Used ";
  const std::string card = str("' for 'sm_", capability);  // and sm_90a
  std::map<std::string, int> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.path().filename() != "ptxas.log") continue;
    ClassicStream<std::ifstream> log(entry.path());
    std::string kernel;  // that the lines are about; "" of another card
    for (std::string line; std::getline(log, line);) {
      if (const size_t at = line.find(kBegin); at != line.npos) {
        const size_t begin = at + kBegin.size(), end = line.find('\'', begin);
        const bool is_its = line.find(card, begin) == end;
        kernel = is_its ? kernel_key_of_symbol(line.substr(begin, end - begin)) : "";
      } else if (const size_t used = line.find(kUsed); used != line.npos && !kernel.empty()) {
        out[kernel] = std::atoi(line.c_str() + used + kUsed.size());
      }
    }
  }
  return out;
}

}  // namespace sinter
