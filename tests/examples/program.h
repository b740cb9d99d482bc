// Runs a program (`mnist`, unless another is named) as a user would: in a folder of its own, stdout
// and stderr apart, off a terminal.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/test_util.h"

namespace sinter::test {

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
inline Words with(const Words& words, const Words& more) { return words + more; }

struct Result {
  int status = -1;  // exit status, or 128 + signal
  std::string out, err;
};

class Program {
 public:
  std::filesystem::path folder() const { return dir_.path(); }
  std::string name = "mnist";            // of the program
  Words launcher;                        // words before it: "mpirun", "-np", "2"
  std::vector<std::string> environment;  // "NAME=value", added
  bool close_stdout = false;             // nobody reads it
  bool without_stdout = false;           // the file descriptor is closed
  bool terminal = false;                 // stderr is one
  bool all_on_terminal = false;          // and stdout is the same
  unsigned short columns = 100;          // of the terminal
  std::string call_at;  // on a terminal: while_running is called when this text is on it

  // `while_running` gets the child's process id.
  Result run(const std::vector<std::string>& args,
      const std::function<void(pid_t)>& while_running = {}) const {
    const std::string number = std::to_string(runs_++);  // a run may begin while another goes on
    const std::string out = dir_.file(".out" + number), err = dir_.file(".err" + number);
    int closed[2] = {-1, -1};
    if (close_stdout && (pipe(closed) != 0 || ::close(closed[0]) != 0)) std::abort();
    const int master = terminal ? posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    if (terminal && (grantpt(master) != 0 || unlockpt(master) != 0)) std::abort();
    const winsize size{24, columns, 0, 0};
    if (terminal && ioctl(master, TIOCSWINSZ, &size) != 0) std::abort();
    const std::string slave = terminal ? ptsname(master) : err;
    std::vector<std::string> words = launcher;
    words.push_back(SINTER_BIN_DIR "/" + name);
    words.insert(words.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string folder = dir_.path();
    const pid_t child = fork();
    if (child == 0) {
      if (chdir(folder.c_str()) != 0) _exit(99);
      unsetenv("SINTER_DATA");
      setenv("XDG_CACHE_HOME", SINTER_BIN_DIR "/../cache", 1);  // see keep_roofs.py
      // It starts Open MPI, which never frees some of its memory.
      if (!args.empty() && args[0] == "doctor") setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
      for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
      dup2(close_stdout ? closed[1] : open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
          STDOUT_FILENO);
      dup2(open(slave.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOCTTY, 0600), STDERR_FILENO);
      if (all_on_terminal) dup2(STDERR_FILENO, STDOUT_FILENO);
      if (without_stdout) ::close(STDOUT_FILENO);
      execvp(argv[0], argv.data());
      _exit(99);
    }
    if (close_stdout) ::close(closed[1]);
    if (while_running && !terminal) while_running(child);
    std::string screen;
    char buffer[4096];
    bool called = false;
    for (ssize_t n; terminal && (n = read(master, buffer, sizeof buffer)) > 0;) {
      screen.append(buffer, size_t(n));
      if (!while_running || called || screen.find(call_at) == std::string::npos) continue;
      while_running(child);
      called = true;
    }
    if (terminal) ::close(master);
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
        close_stdout ? "" : text_of(out), terminal ? screen : text_of(err)};
  }

  // As run(), and the exit status must be `status`.
  Result run(int status, const Words& args, const std::function<void(pid_t)>& while_running = {},
      std::source_location where = std::source_location::current()) const {
    const Result r = run(args, while_running);
    if (r.status != status)
      ADD_FAILURE_AT(where.file_name(), int(where.line()))
          << testing::PrintToString(args) << ": status " << r.status << ", not " << status << "\n"
          << r.err << r.out;
    return r;
  }

  // Can there be a terminal? Not in a root file system without /dev/pts.
  static bool has_terminals() {
    const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0) return false;
    const bool has =
        grantpt(master) == 0 && unlockpt(master) == 0 && access(ptsname(master), R_OK | W_OK) == 0;
    ::close(master);
    return has;
  }
  void write(const std::string& name, const std::string& content) const {
    dir_.write(name, content);
  }

 private:
  TempDir dir_;
  mutable int runs_ = 0;
};

// mnist whose train has --stop-after N, as if a signal came in step N (stopping_mnist.cpp).
struct StoppingProgram : Program {
  StoppingProgram() { name = "mnist_stops"; }
};

inline int times_in(const std::string& text, const std::string& part) {
  int times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

// The one object that a command prints with --json.
inline nlohmann::json json_of(const Program& program, const Words& words, int status = 0) {
  const Result r = program.run(status, words + Words{"--json"});
  return r.out.empty() ? nlohmann::json() : nlohmann::json::parse(r.out);
}

}  // namespace sinter::test
