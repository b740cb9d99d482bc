// Signals, where a step does not come to its end.
#include <gtest/gtest.h>

#include "cli/process.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

// How a child ends that gets the signals one after the other while a step of it goes on and on; -1
// if it goes on even so. The first is seen at the end of a step, which here does not come.
int end_of_a_step_that_hangs(const std::vector<int>& signals) {
  int seen[2];
  if (pipe(seen) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    cli::catch_signals();
    alarm(20);
    char ready = 'r';
    (void)!::write(seen[1], &ready, 1);
    while (!cli::interrupted()) {}
    (void)!::write(seen[1], &ready, 1);
    while (true) {}
  }
  ::close(seen[1]);
  char byte;
  for (const int signal : signals) {
    EXPECT_EQ(read(seen[0], &byte, 1), 1);
    kill(child, signal);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ::close(seen[0]);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Signals, TheSecondEndsAStepThatHangs) {
  for (const auto& signals : {std::vector{SIGINT, SIGINT}, {SIGTERM, SIGTERM}, {SIGHUP, SIGHUP},
           {SIGINT, SIGTERM}, {SIGHUP, SIGINT}})
    EXPECT_EQ(end_of_a_step_that_hangs(signals), 130) << signals[0] << " " << signals[1];
}

// One alone asks: the child is ended by its alarm, or by us.
TEST(Signals, TheFirstOnlyAsks) {
  EXPECT_EQ(end_of_a_step_that_hangs({SIGINT, SIGKILL}), -1);
  EXPECT_EQ(end_of_a_step_that_hangs({SIGTERM, SIGKILL}), -1);
}

}  // namespace
}  // namespace sinter::test
