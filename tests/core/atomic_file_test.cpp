// AtomicFile: whichever system call of a save fails, the old or the new file is there and no
// temporary; the order of the calls.
#include "core/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/data/data_test_util.h"

namespace sinter {
namespace {

using test::expect_error;
namespace fs = std::filesystem;

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
size_t entries(const std::string& folder) {
  return size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// The system's calls, of which the k-th fails; their names are noted.
int g_fail_at = 0, g_calls = 0;
std::string g_order;
bool fails(const char* name) {
  g_order += std::string(g_order.empty() ? "" : " ") + name;
  errno = ENOSPC;
  return ++g_calls == g_fail_at;
}
constexpr FileCalls kFaulty{
    [](const char* path, int flags, mode_t mode) {
      return fails(flags & O_DIRECTORY ? "open_folder" : "open") ? -1 : ::open(path, flags, mode);
    },
    [](int fd, const void* bytes, size_t n) {
      return fails("write") ? ssize_t{-1} : ::write(fd, bytes, std::min<size_t>(n, 5));
    },
    [](int fd) { return fails("fsync") ? -1 : ::fsync(fd); },
    [](int fd) { return ::close(fd) != 0 || fails("close") ? -1 : 0; },
    [](const char* from, const char* to) { return fails("rename") ? -1 : ::rename(from, to); }};

void save(const std::string& path, int fail_at) {
  g_fail_at = fail_at;
  g_calls = 0;
  g_order.clear();
  AtomicFile file(path, "checkpoint", kFaulty);
  file.write("new content");
  file.commit();
}

TEST(AtomicFile, WritesThenSyncsThenRenamesThenSyncsTheFolder) {
  const test::TempDir dir;
  save(dir.file("a"), 0);
  EXPECT_EQ(g_order,
      "open write write write fsync close rename open_folder fsync close");  // short writes go on
  EXPECT_EQ(content(dir.file("a")), "new content");
  EXPECT_EQ(entries(dir.path()), 1u);
}

TEST(AtomicFile, AnyFailureLeavesTheOldOrTheNewFile) {
  for (int k = 1; k <= 9; ++k) {  // the tenth call closes the folder, whose result nobody needs
    const test::TempDir dir;
    dir.write("a", test::bytes_of("old"));
    expect_error(Error::Kind::checkpoint,
        {"checkpoint: cannot write: " + dir.file("a"), "No space left on device after ",
            " bytes are free", "hint: make room there", k <= 7 ? "intact" : "in place"},
        [&] { save(dir.file("a"), k); });
    EXPECT_EQ(content(dir.file("a")), k <= 7 ? "old" : "new content") << k;
    EXPECT_EQ(entries(dir.path()), 1u) << k;
  }
}

TEST(AtomicFile, WithoutCommitNothingStays) {
  const test::TempDir dir;
  { AtomicFile(dir.file("a")).write("half"); }
  EXPECT_EQ(entries(dir.path()), 0u);
  expect_error(Error::Kind::checkpoint, {"No such file", dir.file("none/a")},
      [&] { write_file(dir.file("none/a"), "x"); });
}

// A rename would put a file in its place: of /dev/null for all programs, if root saves there.
TEST(AtomicFile, ADeviceOrAPipeStays) {
  const test::TempDir dir;
  ASSERT_EQ(mkfifo(dir.file("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", dir.file("link"));
  for (const char* name : {"pipe", "link"}) {
    expect_error(Error::Kind::checkpoint, {dir.file(name), "it is a device or a pipe"},
        [&] { write_file(dir.file(name), "x"); });
  }
  EXPECT_TRUE(fs::is_fifo(dir.file("pipe")));
  EXPECT_EQ(entries(dir.path()), 2u);
}

TEST(AtomicFile, ANameThatIsNoneIsTold) {
  expect_error(
      Error::Kind::checkpoint, {"cannot write", "Invalid argument"}, [] { write_file("", "x"); });
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("/a/../b\n"), "/b\\x0a");
}

TEST(AtomicFile, RemovesTemporariesOfDeadProcessesOnly) {
  const test::TempDir dir;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  dir.write(".a.tmp-" + std::to_string(child), {});
  dir.write(".a.tmp-" + std::to_string(getpid()), {});
  dir.write(".a.tmp-", {});
  dir.write("b.tmp-" + std::to_string(child), {});
  EXPECT_EQ(remove_stale_temporaries(dir.path()), 1);
  EXPECT_EQ(entries(dir.path()), 3u);
  EXPECT_EQ(remove_stale_temporaries(dir.file("none")), 0);
}

}  // namespace
}  // namespace sinter
