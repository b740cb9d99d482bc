// What many tests need: a temporary folder, an environment variable for a scope, and checks of an
// Error's kind and facts.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <source_location>
#include <sstream>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/error.h"

namespace sinter::test {

// The sanitizers make a test five to twenty times as slow: loops over random cases run fewer of
// them there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sinter-XXXXXX").string();
    if (!mkdtemp(pattern.data())) std::abort();
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  // `content`: text or bytes. Returns the path.
  template <class Content = std::vector<uint8_t>>
  std::string write(const std::string& name, const Content& content) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()), std::streamsize(content.size()));
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

// All of a file; "" if it is not there.
// Those whose kernels every machine runs: the CPU, and the emulator, if the build has it.
inline std::vector<Device> devices_of_tests() {
  std::vector<Device> devices{kCpu};
  if (SINTER_HAS_EMULATOR) devices.push_back({Device::Type::simt, 0});
  return devices;
}

inline std::string text_of(const std::filesystem::path& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  return all.str();
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(line);
  return out;
}

// The JSON in a page of the profiler's.
inline std::string data_of(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find("</script>", from) - from);
}

// Sets or (value nullptr) removes an environment variable for a scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~ScopedEnv() { set(old_ ? old_->c_str() : nullptr); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  void set(const char* value) {
    if (value) {
      setenv(name_, value, 1);
    } else {
      unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

// Sets what is the process's for a scope, whatever ends it:
//   const test::Scoped threads(num_threads, set_num_threads, 3);
template <class Get, class Set> class Scoped {
 public:
  Scoped(Get get, Set set, std::type_identity_t<std::invoke_result_t<Get>> value)
      : set_(set), before_(get()) {
    set(value);
  }
  ~Scoped() { set_(before_); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  Set set_;
  std::invoke_result_t<Get> before_;
};

// The exit status of a child process that does no more than f; -1 if it dies.
inline int status_of_child(const std::function<int()>& f) {
  const pid_t child = fork();
  if (child == 0) [&]() noexcept { _exit(f()); }();
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// what() of the Error that f throws, which must be of this kind if one is given; "" without one.
inline std::string message_of(
    const std::function<void()>& f, std::optional<Error::Kind> kind = {}) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(int(error.kind()), int(kind.value_or(error.kind()))) << error.what();
    return error.what();
  }
  return "";
}

// `text` must hold every fact; a failure is reported where the caller stands.
inline void expect_facts(const std::string& text, const std::vector<std::string>& facts,
    std::source_location where = std::source_location::current()) {
  for (const std::string& fact : facts)
    if (text.find(fact) == text.npos)
      ADD_FAILURE_AT(where.file_name(), int(where.line())) << "no \"" << fact << "\" in\n" << text;
}

// f must throw an Error of this kind whose what() holds every fact.
inline void expect_error(Error::Kind kind, const std::vector<std::string>& facts,
    const std::function<void()>& f, std::source_location where = std::source_location::current()) {
  const std::string message = message_of(f, kind);
  EXPECT_NE(message, "") << "no error";
  expect_facts(message, facts, where);
}

// Where the real MNIST is, for tests that want it.
inline std::string mnist_folder() {
  const char* named = std::getenv("SINTER_TEST_MNIST");
  return named ? named : SINTER_SOURCE_DIR "/../shared/data/mnist";
}

}  // namespace sinter::test

#define SKIP_WITHOUT_MNIST()                             \
  if (!std::filesystem::exists(test::mnist_folder()))    \
  GTEST_SKIP() << "no MNIST in " << test::mnist_folder() \
               << " (SINTER_TEST_MNIST names another place)"
