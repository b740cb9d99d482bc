// AtomicFile: a file that is replaced whole or not at all. The bytes go to .NAME.tmp-PID in the
// same folder; commit() does fsync, close, rename and fsync of the folder. Whatever fails before
// the rename removes the temporary and leaves the old file as it was. Used by whoever saves a
// checkpoint or a report. Errors are of kind checkpoint and name the file and the system's reason.
// One AtomicFile belongs to one thread; two processes may write the same name, the last rename
// wins.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace sinter {

// The system calls a save makes, so that a test can let the k-th fail and see their order.
struct FileCalls {
  int (*open)(const char* path, int flags, mode_t mode);
  ssize_t (*write)(int fd, const void* bytes, size_t n);
  int (*fsync)(int fd);
  int (*close)(int fd);
  int (*rename)(const char* from, const char* to);
  static const FileCalls& system();
};

class AtomicFile {
 public:
  // Opens the temporary. `subject` begins the messages: "checkpoint: cannot write: ..".
  explicit AtomicFile(const std::string& path, const char* subject = "file",
      const FileCalls& calls = FileCalls::system());
  // Without commit() before it, nothing stays behind.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* bytes, size_t n);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Puts the file in its place. REQUIRES: called once, last.
  void commit();

 private:
  [[noreturn]] void fail(int error);
  void abandon() noexcept;
  const FileCalls& calls_;
  const char* subject_;
  std::string path_, folder_, temporary_;
  int64_t written_ = 0;  // bytes
  int fd_ = -1;
  bool settled_ = false;  // the temporary is gone: renamed or removed
};

// A file's name for messages: absolute and normal as far as there is such a thing, control bytes
// escaped.
std::string shown(const std::string& path);
// All of `text` as the file `path`.
void write_file(const std::string& path, std::string_view text);
// Removes temporaries that dead processes left in `folder`; returns how many.
int remove_stale_temporaries(const std::string& folder);

}  // namespace sinter
