// Signals, where a step does not come to its end.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

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

// How many bytes change, from 1 to 8 kB below the end of the stack, until a signal was seen.
// Nothing of a library is called meanwhile, which might be looked up there.
[[gnu::noinline]] int changes_below_the_stack(volatile int& waits) {
  constexpr int kFirst = 1024, kLast = 8192;
  volatile char* const end = static_cast<char*>(__builtin_frame_address(0));
  for (int i = kFirst; i < kLast; ++i) end[-i] = char(i);
  waits = 1;
  while (!cli::interrupted()) {}
  int changed = 0;
  for (int i = kFirst; i < kLast; ++i) changed += end[-i] != char(i);
  return changed;
}

// oneDNN's products keep numbers below the end of the stack. On the program's own a handler's frame
// would take two kilobytes there.
TEST(Signals, WhatLiesBelowTheStackStays) {
  void* const shared =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  volatile int& waits = *static_cast<int*>(shared);
  const pid_t child = fork();
  if (child == 0) {
    cli::catch_signals();
    alarm(20);
    _exit(changes_below_the_stack(waits) == 0 ? 0 : 1);
  }
  int status = 0;
  while (waits == 0 && waitpid(child, &status, WNOHANG) == 0) usleep(1000);
  kill(child, SIGINT);
  waitpid(child, &status, 0);
  munmap(shared, 4096);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Signals, TheSecondEndsAStepThatHangs) {
  for (const auto& signals : {std::vector{SIGINT, SIGINT}, {SIGTERM, SIGTERM}, {SIGHUP, SIGHUP},
           {SIGINT, SIGTERM}, {SIGHUP, SIGINT}})
    EXPECT_EQ(end_of_a_step_that_hangs(signals), 130) << signals[0] << " " << signals[1];
}

// Of a command that waits for a file, in no loop; of a bench between two sizes; of a comparison.
TEST(Signals, CtrlCIsSaidInOneLineAndIsStatus130) {
  const auto interrupt = [](pid_t child) { kill(child, SIGINT); };
  const Program waits;
  ASSERT_EQ(mkfifo((waits.folder() / "pipe.json").c_str(), 0600), 0);
  const Result r = waits.run(130, {"diff", "pipe.json", "pipe.json"}, [&](pid_t child) {
    const int fd = open((waits.folder() / "pipe.json").c_str(), O_WRONLY);  // until it reads
    interrupt(child);
    ::close(fd);
  });
  EXPECT_EQ(r.err, "stop    interrupted\n");
  if (!Program::has_terminals()) return;
  Program program;
  program.terminal = true;
  program.environment = {"NO_COLOR=1"};
  program.call_at = "size    ";
  expect_facts(
      program
          .run(130, {"bench", "--threads", "1", "--batch", "1", "--hidden", "8,1024,1024,1024"},
              interrupt)
          .err,
      {"interrupted after ", " of 4 sizes"});
  program.call_at = "threads ";
  expect_facts(program.run(130, {"compare", "--hidden", "8", "--rounds", "1000"}, interrupt).err,
      {"interrupted"});
  program.call_at = "f32 ";
  expect_facts(program.run(130, {"train", "--dry-run", "--hidden", "2048,2048"}, interrupt).err,
      {"interrupted in a dry run"});
}

// One alone asks: the child is ended by its alarm, or by us.
TEST(Signals, TheFirstOnlyAsks) {
  EXPECT_EQ(end_of_a_step_that_hangs({SIGINT, SIGKILL}), -1);
  EXPECT_EQ(end_of_a_step_that_hangs({SIGTERM, SIGKILL}), -1);
}

}  // namespace
}  // namespace sinter::test
