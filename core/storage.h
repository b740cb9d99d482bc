// A block of device memory that tensors share. Counts its versions: whoever writes in place bumps
// the version and leaves its name, so that autograd can say who changed what between forward and
// backward. A storage without bytes belongs to meta tensors: it has all but the memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/allocator.h"

namespace sinter {

class Storage {
 public:
  // Uninitialised memory from the device's allocator.
  Storage(size_t bytes, Device device)
      : bytes_(bytes), device_(device), data_(allocator(device).allocate(bytes)), owned_(true) {}
  // No memory: for tensors of which only shape, type and identity matter.
  struct WithoutBytes {};
  Storage(WithoutBytes, size_t bytes, Device device)
      : bytes_(bytes), device_(device), data_(nullptr), owned_(false), has_bytes_(false) {}
  // Memory that somebody else owns and keeps alive (a slot of a memory plan).
  Storage(void* data, size_t bytes, Device device)
      : bytes_(bytes), device_(device), data_(data), owned_(false) {}
  ~Storage() {
    if (owned_) allocator(device_).release(data_, bytes_);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // REQUIRES: it has bytes (checked).
  void* data() const {
    if (!has_bytes_) refuse_data();
    return data_;
  }
  bool has_bytes() const { return has_bytes_; }
  // Other memory, of somebody else's. REQUIRES: this storage owns none.
  void rebind(void* data) { data_ = data; }
  // Takes the bytes to memory of its own on another device, under another uid; every tensor on the
  // storage goes with it.
  void move_to(Device device);
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  // Unique in the process, never used again.
  uint64_t uid() const { return uid_; }
  struct Written {
    uint64_t version = 0;
    const char* last_writer = nullptr;
  };
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  // The op that wrote in place last, or nullptr.
  const char* last_writer() const { return last_writer_; }
  void bump_version(const char* writer) {
    last_writer_ = writer;
    version_.store(version() + 1, std::memory_order_release);  // writers are alone
  }
  // To take back what was said of writes that did not happen.
  Written written() const { return {version(), last_writer_}; }
  void restore_written(const Written& before) {
    last_writer_ = before.last_writer;
    version_.store(before.version, std::memory_order_release);
  }
  // For a storage that repeats the elements of another, as the bf16 copy of weights does. Its
  // version is that of the other, with a mark that no version has by counting, so a storage that
  // never followed does not follow by chance. An op that writes both keeps them equal and bumps
  // both. Threads: many may ask; one at a time may renew the elements, bump_version(), then
  // follow().
  bool follows(const Storage& source) const { return version() == (source.version() | kFollower); }
  void follow(const Storage& source) {
    version_.store(source.version() | kFollower, std::memory_order_release);
  }

 private:
  [[noreturn]] static void refuse_data();
  static uint64_t next_uid() {
    static std::atomic<uint64_t> next{1};
    return next++;
  }
  size_t bytes_;
  Device device_;
  void* data_;
  bool owned_, has_bytes_ = true;
  uint64_t uid_ = next_uid();
  static constexpr uint64_t kFollower = uint64_t{1} << 63;
  std::atomic<uint64_t> version_{0};
  const char* last_writer_ = nullptr;
};

}  // namespace sinter
