#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "tests/fuzz/fuzz.h"

// Of the sanitizer's runtime, where there is one.
extern "C" {
__attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(
    void (*)(const volatile void*, size_t), void (*)(const volatile void*));
__attribute__((weak)) size_t __sanitizer_get_allocated_size(const volatile void*);
}

namespace sinter::fuzz {
namespace {

constexpr int64_t kMemory = 64 << 20;
constexpr double kSeconds = 1;

std::atomic<int64_t> live{0}, peak{0};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

void watch_memory() {
  static const bool once = [] {
    if (!__sanitizer_install_malloc_and_free_hooks) return false;
    __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void*, size_t n) {
          const int64_t now = live += int64_t(n);
          if (now > peak) peak = now;
        },
        [](const volatile void* p) { live -= p ? int64_t(__sanitizer_get_allocated_size(p)) : 0; });
    return true;
  }();
  static_cast<void>(once);
}

double processor_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

void check_error(const std::exception& exception) {
  const auto* error = dynamic_cast<const Error*>(&exception);
  if (!error) fail(str("not an Error: ", exception.what()));
  using Kind = Error::Kind;
  const Kind kind = error->kind();
  if (kind != Kind::data && kind != Kind::checkpoint && kind != Kind::usage)
    fail(str("an Error of kind ", int(kind), ": ", error->what()));
  for (const char c : std::string_view(error->what())) {
    if ((c >= 0 && c < ' ' && c != '\n') || c == 127)
      fail(str("a control byte in the message: ", escaped(error->what())));
  }
}

std::string as_file(Bytes bytes) {
  static const int fd = memfd_create("input", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 0) != 0 ||
      pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    fail("no memory file");
  return str("/proc/self/fd/", fd);
}

}  // namespace sinter::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sinter::fuzz;
  watch_memory();
  const int64_t before = live;
  peak = before;
  const double begin = processor_seconds();
  guarded([&] { one({data, size}); });
  if (const double seconds = processor_seconds() - begin; seconds > kSeconds)
    fail(sinter::str("took ", seconds, " s of processor time"));
  const int64_t most = kMemory + int64_t(size);
  if (peak - before > most)
    fail(sinter::str("took ", peak - before, " bytes of memory, at most ", most));
  return 0;
}

#if !defined(SINTER_FUZZ)
int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) {
      files.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(argv[i])) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::fprintf(stderr, "%s\n", file.c_str());
    std::ifstream in(file, std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(in), {});
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  std::fprintf(stderr, "%zu inputs\n", files.size());
  return files.empty();
}
#endif
