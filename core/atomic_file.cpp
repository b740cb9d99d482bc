#include "core/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "core/classic.h"
#include "core/error.h"

namespace sinter {
namespace fs = std::filesystem;
namespace {
constexpr std::string_view kMark = ".tmp-";
}

const FileCalls& FileCalls::system() {
  static constexpr FileCalls calls{
      [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }, ::write,
      ::fsync, ::close, std::rename};
  return calls;
}

AtomicFile::AtomicFile(const std::string& path, const char* subject, const FileCalls& calls)
    : calls_(calls), subject_(subject) {
  std::error_code error;
  const fs::path target = fs::absolute(path, error).lexically_normal();
  path_ = error ? path : target.string();
  if (error) fail(error.value());
  SINTER_CHECK(!fs::is_other(fs::status(path_, error)), checkpoint,
      str(subject, ": cannot write: ", escaped(path_),
          "; it is a device or a pipe, and a file would take its place"));
  folder_ = target.parent_path().string();
  temporary_ = str(folder_, "/.", target.filename().string(), kMark, ::getpid());
  fd_ = calls_.open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(errno);
}

AtomicFile::~AtomicFile() { abandon(); }

void AtomicFile::abandon() noexcept {
  if (fd_ >= 0) calls_.close(fd_);
  fd_ = -1;
  if (!settled_) ::unlink(temporary_.c_str());
  settled_ = true;
}

void AtomicFile::fail(int error) {
  const bool replaced = settled_;
  abandon();
  std::error_code ignored;
  const char* state = replaced ? "the new file is in place, but may not survive a power cut"
                      : fs::exists(path_, ignored) ? "the file that was there is intact"
                                                   : "no part of this file is left";
  const bool full = error == ENOSPC || error == EDQUOT;
  const std::string room =
      full ? str(" after ", written_, " bytes of it, now ",
                 int64_t(fs::space(folder_, ignored).available), " bytes are free")
           : "";
  throw Error(Error::Kind::checkpoint,
      str(subject_, ": cannot write: ", escaped(path_), "; ", error_text(error), room, "; ", state),
      full ? "make room there, or write to another folder" : "");
}

void AtomicFile::write(const void* bytes, size_t n) {
  for (const char* at = static_cast<const char*>(bytes); n > 0;) {
    const ssize_t done = calls_.write(fd_, at, n);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail(done < 0 ? errno : EIO);
    at += done;
    n -= size_t(done);
    written_ += done;
  }
}

void AtomicFile::commit() {
  if (calls_.fsync(fd_) != 0) fail(errno);
  const int fd = std::exchange(fd_, -1);  // closed even when close reports an error
  if (calls_.close(fd) != 0) fail(errno);
  if (calls_.rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  settled_ = true;
  // The name is data of the folder: without this a power cut may bring the old file back.
  fd_ = calls_.open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (fd_ < 0 || calls_.fsync(fd_) != 0) fail(errno);
  abandon();
}

std::string shown(const std::string& path) {
  std::error_code error;
  const fs::path full = fs::absolute(path, error);
  return escaped(error ? path : full.lexically_normal().string());
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

int remove_stale_temporaries(const std::string& folder) {
  int removed = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const size_t mark = name.rfind(kMark);
    if (name[0] != '.' || mark == std::string::npos) continue;
    pid_t pid = 0;
    const char* last = name.data() + name.size();
    const auto [rest, bad] = std::from_chars(name.data() + mark + kMark.size(), last, pid);
    if (bad != std::errc() || rest != last || pid <= 0 || ::kill(pid, 0) == 0 || errno != ESRCH)
      continue;
    std::error_code ignored;
    removed += fs::remove(it->path(), ignored);
  }
  return removed;
}

}  // namespace sinter
