#include "core/device/compiled_kernels.h"

#include <cxxabi.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/device/launch_log.h"
#include "core/error.h"

namespace sinter {
namespace {

// "sums<float>" of a symbol that reads "void sinter::on_cuda::sums<float>(float*)".
std::string launch_name(const std::string& symbol) {
  std::string name(LaunchedKernel("kernel = " + demangled(symbol.c_str())).name());
  if (name.starts_with("void ")) name.erase(0, 5);
  size_t end = 0;
  for (int depth = 0; end < name.size() && (depth > 0 || name[end] != '('); ++end)
    depth += name[end] == '<' ? 1 : name[end] == '>' ? -1 : 0;
  return name.substr(0, end);
}

}  // namespace

std::string demangled(const char* symbol) {
  int status = 0;
  char* const text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  const std::string out = text ? text : symbol;
  std::free(text);
  return out;
}

std::string compiled_folder() {
#if SINTER_HAS_CUDA
  return SINTER_PTX_FOLDER;
#else
  return "";
#endif
}

std::map<std::string, int, std::less<>> compiled_registers(
    int capability, const std::string& folder) {
  constexpr std::string_view kBegin = "Compiling entry function '", kUsed = "Used ";
  const std::string card = cat("' for 'sm_", capability);  // and sm_90a
  std::map<std::string, int, std::less<>> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.path().filename() != "ptxas.log") continue;
    std::ifstream log(entry.path());
    std::string kernel;  // that the lines are about; "" of another card
    for (std::string line; std::getline(log, line);) {
      if (const size_t at = line.find(kBegin); at != line.npos) {
        const size_t begin = at + kBegin.size(), end = line.find('\'', begin);
        const bool is_its = line.find(card, begin) == end;
        kernel = is_its ? launch_name(line.substr(begin, end - begin)) : "";
      } else if (const size_t used = line.find(kUsed); used != line.npos && !kernel.empty()) {
        out[kernel] = std::atoi(line.c_str() + used + kUsed.size());
      }
    }
  }
  return out;
}

}  // namespace sinter
