// A buffer of pinned host memory from which the card copies by itself, beside what the thread's
// stream runs: the stream waits for the copy by an event, the host does not wait. For batches of
// a set that the card cannot hold (data/batches.cpp). No header of the toolkit is needed; in a
// build without it every function throws not_built.
//
//   upload.wait_on_host();              // before its memory is written again
//   write(upload.memory());
//   upload.start({{to, from, bytes}});  // once the stream has run what was launched so far
//   upload.wait();                      // before the first launch that reads `to`
#pragma once

#include <cstddef>
#include <initializer_list>

#include "core/device/cuda_graph.h"

namespace sinter::cuda {

class Upload {
 public:
  explicit Upload(size_t bytes);
  ~Upload();  // waits for a copy that still reads the memory
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  void* memory() const { return memory_; }
  struct Part {
    void* to;
    const void* from;  // in the memory
    size_t bytes;
  };
  // What was launched before may have used memory of the card that is now copied to, so the copies
  // come after that.
  void start(std::initializer_list<Part> parts);
  // What the thread launches from here on comes after the copies.
  void wait();
  // By any thread that has been told of the start.
  void wait_on_host();

 private:
  void* memory_ = nullptr;
  Event launched_, copied_;
  CUstream_st* stream_ = nullptr;  // on which copies may be under way, if set
};

}  // namespace sinter::cuda
