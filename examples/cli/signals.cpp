#include "examples/cli/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

namespace sinter::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    set_handler(signal, [](int) {
      if (g_interrupted.exchange(true)) _exit(130);
    });
  }
}

void guard_streams() {
  set_handler(SIGPIPE, SIG_IGN);
  while (true) {  // open() takes the lowest number that is free
    const int fd = open("/dev/null", O_RDWR);
    if (fd > STDERR_FILENO) close(fd);
    if (fd < 0 || fd > STDERR_FILENO) return;
  }
}

void interrupt() noexcept { g_interrupted.store(true, std::memory_order_relaxed); }
bool interrupted() noexcept { return g_interrupted.load(std::memory_order_relaxed); }

}  // namespace sinter::cli
