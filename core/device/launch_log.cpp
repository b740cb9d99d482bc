#include "core/device/launch_log.h"

#include <mutex>

#include "core/error.h"

namespace sinter {
namespace {

std::mutex mutex;
std::vector<LaunchShape>* log_of_all = nullptr;

void erase_all(std::string& text, std::string_view part) {
  for (size_t at; (at = text.find(part)) != std::string::npos;) text.erase(at, part.size());
}

}  // namespace

std::string kernel_name_in(std::string_view pretty) {
  constexpr std::string_view kKey = "kernel = ";
  const size_t begin = pretty.find(kKey) + kKey.size();
  int depth = 0;
  size_t end = begin;
  for (; end < pretty.size() && (depth > 0 || (pretty[end] != ';' && pretty[end] != ']')); ++end)
    depth += pretty[end] == '<' ? 1 : pretty[end] == '>' ? -1 : 0;
  std::string name(pretty.substr(begin, end - begin));
  for (const char* space : {"sinter::on_simt_counted::", "sinter::on_simt::", "sinter::on_cuda::",
           "sinter::", "{anonymous}::", "(anonymous namespace)::"})
    erase_all(name, space);
  return name;
}

void log_launch(const LaunchShape& shape) {
  const auto& [kernel, grid, block, shared_bytes, parameters] = shape;
  SINTER_CHECK(block >= 1 && block <= kMaxBlockThreads, state,
      str(kernel, ": threads per block out of range: ", block, "; allowed 1..", kMaxBlockThreads));
  SINTER_CHECK(shared_bytes <= kMaxSharedBytes, state,
      str(kernel, ": too much shared memory: ", shared_bytes, " bytes; a block has at most ",
          kMaxSharedBytes));
  SINTER_CHECK(grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= kMaxGridX &&
                   grid.y <= kMaxGridYZ && grid.z <= kMaxGridYZ,
      state,
      str(kernel, ": grid out of range: (", grid.x, ", ", grid.y, ", ", grid.z, "); allowed 1..",
          kMaxGridX, ", 1..", kMaxGridYZ, ", 1..", kMaxGridYZ));
  const std::lock_guard lock(mutex);
  if (log_of_all) log_of_all->push_back(shape);
}

LaunchLog::LaunchLog() {
  const std::lock_guard lock(mutex);
  SINTER_ASSERT(!log_of_all, "two launch logs at once");
  log_of_all = new std::vector<LaunchShape>;
}
LaunchLog::~LaunchLog() {
  const std::lock_guard lock(mutex);
  delete log_of_all;
  log_of_all = nullptr;
}
std::vector<LaunchShape> LaunchLog::launches() const {
  const std::lock_guard lock(mutex);
  return *log_of_all;
}

}  // namespace sinter
