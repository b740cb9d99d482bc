#include "core/parallel.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/device/cpu_gemm.h"
#include "core/error.h"
#include "core/rng.h"
#include "tests/host_locale.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

class Parallel : public testing::Test {
 protected:
  ~Parallel() override { set_num_threads(before_); }
  const int before_ = num_threads();
};

TEST_F(Parallel, CoversEveryItemOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    for (const int64_t n : {0, 1, 7, 1000}) {
      std::vector<std::atomic<int>> seen(n);
      parallel_for(n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[size_t(i)];
      });
      for (const auto& count : seen) ASSERT_EQ(count, 1);
    }
  }
}

TEST_F(Parallel, SmallWorkStaysOnTheCaller) {
  set_num_threads(4);
  int parts = 0;
  parallel_for(100, 60, [&](int64_t, int64_t) { ++parts; });
  EXPECT_EQ(parts, 1) << "two threads would get 50 items, less than the grain";
}

TEST_F(Parallel, NestedCallsRunSerially) {
  set_num_threads(2);
  std::atomic<int> inner{0};
  parallel_for(2, 1, [&](int64_t, int64_t) {
    parallel_for(10, 1, [&](int64_t begin, int64_t end) { inner += begin == 0 && end == 10; });
  });
  EXPECT_EQ(inner, 2);
}

TEST_F(Parallel, ExceptionsReachTheCaller) {
  set_num_threads(2);
  EXPECT_THROW(parallel_for(2, 1,
                   [](int64_t begin, int64_t) {
                     if (begin == 1) throw std::runtime_error("here");
                   }),
      std::runtime_error);
  int64_t sum = 0;
  parallel_for(1, 1, [&](int64_t, int64_t) { sum = 1; });
  EXPECT_EQ(sum, 1);
}

TEST_F(Parallel, CountsOfThreadsThatNoProcessCanHaveAreRefused) {
  for (const int n : {INT_MIN, -1, 0, kMostThreads + 1, 100000, INT_MAX})
    EXPECT_EQ(test::message_of([&] { set_num_threads(n); }, Error::Kind::usage),
        str("threads: out of range: ", n, "; allowed 1..4096"));
  EXPECT_EQ(num_threads(), before_);
}

// OpenMP would give oneDNN a team of its own, of which our threads know nothing.
TEST_F(Parallel, ALibraryTakesNoThreadsOfItsOwn) {
  if (!has_onednn()) GTEST_SKIP() << "no library with a team of its own";
  const auto threads_of_products = [] {
    set_num_threads(3);
    const int64_t n = 700;
    const std::vector<float> a(size_t(4 * n * n), 1);
    std::vector<float> c(a);
    const Gemm product{.m = n, .n = n, .k = n, .lda = n, .ldb = n, .ldc = n};
    gemm(product, a.data(), a.data(), nullptr, c.data());
    gemm_batch(product, {.count = {1, 4}, .a = {0, n * n}}, a.data(), a.data(), c.data());
    int running = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      running += task.is_directory();
    return running;
  };
  EXPECT_EQ(test::status_of_child(threads_of_products), 3);
}

TEST_F(Parallel, CallersSideBySideGetTheSameParts) {
  set_num_threads(3);
  std::atomic<int> wrong{0};
  const auto call_often = [&] {
    for (int i = 0; i < 2000; ++i) {
      std::atomic<int64_t> sum{0}, parts{0};
      parallel_for(300, 1, [&](int64_t begin, int64_t end) {
        ++parts;
        for (int64_t k = begin; k < end; ++k) sum += k;
      });
      wrong += parts != 3 || sum != 300 * 299 / 2;
    }
  };
  std::thread other(call_often);
  call_often();
  other.join();
  EXPECT_EQ(wrong, 0);
}

// More threads than most machines' cores: offers are taken back.
TEST_F(Parallel, ThreadsThatDoNotRunAreNotWaitedFor) {
  set_num_threads(60);
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> parts{0};
    parallel_for(60, 1, [&](int64_t, int64_t) { ++parts; });
    ASSERT_EQ(parts, 60);
  }
}

// The threads sleep by then.
TEST_F(Parallel, ThreadsWakeFromSleep) {
  set_num_threads(2);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<bool> both_run = false;
    std::atomic<int> running{0};
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    // Part 0 ends once part 1 has begun, so the caller cannot take it back.
    parallel_for(2, 1, [&](int64_t, int64_t) {
      ++running;
      while (running < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
      both_run = running == 2;
    });
    ASSERT_TRUE(both_run);
  }
}

// By turns: a team, a fork, a team in the child and another in the parent.
TEST_F(Parallel, AChildOfForkHasATeamOfItsOwn) {
  set_num_threads(3);
  const auto sum = [] {
    std::atomic<int64_t> sum{0};
    parallel_for(300, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    return sum.load();
  };
  const auto is_right = [&] {
    alarm(30);  // a child that hangs dies
    return sum() == 300 * 299 / 2;
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(is_right());
    EXPECT_EQ(
        test::status_of_child([&] { return test::status_of_child(is_right) + is_right(); }), 2);
  }
  alarm(0);
}

TEST_F(Parallel, ThreadsThatCannotStartLeaveTheirPartsToTheOthers) {
  const auto sum_without_threads = [] {
    set_num_threads(3);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_NPROC, &none);
    if (geteuid() == 0 && setuid(65534) != 0) std::exit(2);  // no limit holds for root
    std::atomic<int64_t> sum{0};
    parallel_for(9, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    _exit(sum == 9 ? 0 : 1);  // a sanitizer's look for leaks takes a thread
  };
  EXPECT_EXIT(sum_without_threads(), testing::ExitedWithCode(0), "");
}

// A file system with what the kernel says of cgroups.
class Quota : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_.file(name)).parent_path());
    root_.write(name, text);
  }
  int cores() const { return detail::quota_cores(root_.path()); }
  const test::TempDir root_;
};

TEST_F(Quota, AUserAllowsNoMoreThreadsThanOmpNumThreads) {
  const int cores = available_cores();
  for (const auto& [text, wanted] :
      {std::pair{"1", 1}, {"1,2", 1}, {"4096", cores}, {"no", cores}}) {
    setenv("OMP_NUM_THREADS", text, 1);
    EXPECT_EQ(available_cores(), wanted) << text;
  }
  unsetenv("OMP_NUM_THREADS");
}

TEST_F(Quota, NoneIsNoLimit) {
  EXPECT_EQ(cores(), INT_MAX);
  write("proc/self/cgroup", "not what the kernel writes\n:\n");
  EXPECT_EQ(cores(), INT_MAX);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(cores(), INT_MAX);
}

TEST_F(Quota, OfVersion2IsTheLeastOnTheWayToTheRoot) {
  write("proc/self/cgroup", "0::/user.slice/job\n");
  write("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  EXPECT_EQ(cores(), 2) << "of 2.5 cores' worth of time: three threads would be stopped";
  write("sys/fs/cgroup/user.slice/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(cores(), 1);
  write("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  EXPECT_EQ(cores(), 2);
}

TEST_F(Quota, OfVersion1IsThatOfTheControllerCpu) {
  write("proc/self/cgroup", "5:cpuset:/job\n3:cpu,cpuacct:/job\n0::/\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpuset/job/cpu.max", "1 100000\n");
  EXPECT_EQ(cores(), INT_MAX);
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(cores(), 4);
}

TEST_F(Quota, OfAContainerLiesOnTop) {
  write("proc/self/cgroup", "3:cpu,cpuacct:/docker/4f1c\n");  // the host's path, which is not there
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(cores(), 1);
}

TEST_F(Quota, IsReadWhateverTheHostProgramsLocale) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  const test::HostLocale locale(' ');  // as France has it, between the digits of a number
  EXPECT_EQ(cores(), 4);
}

// Known answers of Philox4x32-10: counter and key all zero, all ones (the vectors of the Random123
// distribution).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
      (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
      (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, UniformsFillTheUnitInterval) {
  double sum = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const float u = uniform_from_bits(philox_word(1, 2, i));
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
  EXPECT_EQ(uniform_from_bits(~0u), 1 - 0x1p-24f);
}

}  // namespace
}  // namespace sinter
