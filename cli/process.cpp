#include "cli/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <new>
#include <sstream>
#include <thread>

#include "cli/output.h"
#include "core/classic.h"
#include "core/stack.h"
#include "distributed/mpi.h"

namespace sinter::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

// Of an error: lower ranks go first, and end this process if it is theirs, too. Returns false if
// they have.
bool wait_for_turn() {
  using std::chrono::milliseconds;
  const auto turn =
      std::chrono::steady_clock::now() + std::min(launched_rank(), 2) * milliseconds(1500);
  while (launched_rank() > 0 && std::chrono::steady_clock::now() < turn) {
    if (interrupted()) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return !others_told();
}

}  // namespace

// On a stack of its own: oneDNN 2.6's products keep numbers below the stack's end, further down
// than the 128 bytes that a signal leaves alone, and a handler that was called there wrote over
// them; then a product wrote anywhere. The main thread gets the signals of a process.
void catch_signals() {
  static std::byte stack[1 << 16];
  const stack_t own = {.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  sigaltstack(&own, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    set_handler(signal, [](int) {
      if (g_interrupted.exchange(true)) _exit(130);
    });
  }
}

void guard_process() {
  struct sigaction before = {};
  sigaction(SIGINT, nullptr, &before);
  if (before.sa_handler == SIG_DFL && launched_rank() == 0) {
    set_handler(SIGINT, [](int) {
      constexpr std::string_view kSaid = "stop    interrupted\n";
      (void)!write(STDERR_FILENO, kSaid.data(), kSaid.size());
      _exit(130);
    });
  }
  sigset_t told;
  sigemptyset(&told);
  sigaddset(&told, SIGUSR1);
  if (distributed::launched_ranks() > 1) pthread_sigmask(SIG_BLOCK, &told, nullptr);
  set_handler(SIGPIPE, SIG_IGN);
  set_handler(SIGXFSZ, SIG_IGN);  // a write beyond ulimit -f fails as one to a full disk does
  while (true) {                  // open() takes the lowest number that is free
    const int fd = open("/dev/null", O_RDWR);
    if (fd > STDERR_FILENO) close(fd);
    if (fd < 0 || fd > STDERR_FILENO) return;
  }
}

void interrupt() noexcept { g_interrupted.store(true, std::memory_order_relaxed); }
bool interrupted() noexcept { return g_interrupted.load(std::memory_order_relaxed); }

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  }
  return 0;
}

void tell(int pid) { kill(pid, SIGUSR1); }

bool others_told() {
  sigset_t waiting;
  sigpending(&waiting);
  return sigismember(&waiting, SIGUSR1) == 1;
}

int64_t process_start(int pid) {
  ClassicStream<std::ifstream> stat(str("/proc/", pid, "/stat"));
  std::string text, field;
  std::getline(stat, text);
  // "7 (any name) S 1 ..": the state is the third field, the start the 22nd.
  ClassicStream<std::istringstream> fields(
      text.substr(std::min(text.rfind(") ") + 1, text.size())));
  int64_t start = 0;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
    if (i == 3 && (field == "Z" || field == "X")) return 0;
    if (i == 22) parse_all(field, start);
  }
  return start;
}

std::string rank_prefix() {
  return distributed::launched_ranks() > 1 ? str("rank ", launched_rank(), ": ") : "";
}

// No default: under -Werror=switch a new kind does not compile until it has a status.
int exit_code(Error::Kind kind) {
  using Kind = Error::Kind;
  switch (kind) {
    case Kind::internal:
    case Kind::shape:
    case Kind::dtype:
    case Kind::state: return 1;
    case Kind::usage: return 2;
    case Kind::data: return 3;
    case Kind::checkpoint: return 4;
    case Kind::device:
    case Kind::memory:
    case Kind::not_built: return 5;
    case Kind::numeric: return 6;
    case Kind::check: return 7;
    case Kind::untrusted: return 8;
    case Kind::interrupted: return 130;
  }
  return 1;
}

int report_current_exception(std::string_view color, bool stack) {
  const bool speaks = wait_for_turn();
  const auto print = [color, speaks](std::string_view text) {
    const std::string error = paint("error: ", "1;31", wants_color(STDERR_FILENO, color));
    if (speaks) say(fmt::format("{}{}{}\n", error, rank_prefix(), text));
  };
  try {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    const size_t hint = std::min(text.rfind("hint: "), text.size());
    print(text.substr(0, hint) + with_flags(text.substr(hint)));
    if (stack && error.kind() == Error::Kind::internal)
      say("calls, innermost first:\n" + internal_error_stack());
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    print("cpu: out of memory: the system gives no more");
    return exit_code(Error::Kind::memory);
  } catch (const std::exception& error) {
    print(
        fmt::format("internal: {}; this is a bug in sinter, please report it with the command line",
            escaped(error.what())));
    return exit_code(Error::Kind::internal);
  }
}

}  // namespace sinter::cli
