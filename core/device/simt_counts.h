// What kernels did, counted per worker and added up per kernel; behind simt::take_counters().
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "core/device/simt.h"

namespace sinter::simt {

enum class Space : uint8_t { device_read, device_write, shared };

class WorkerCounts {
 public:
  Counters sum;  // not merged yet

  void access(
      Space space, const Thread& thread, const void* address, size_t bytes, const Where& where);
  // The counter of a warp-wide operation.
  int64_t& warp_wide(Operation operation);
  // Turns the block's accesses into requests.
  void block_ended(int threads);
  // Adds all to the totals and begins anew. Not per block: its lock would give TSan an order
  // between blocks that is none.
  void merge();

 private:
  // One lane's. Those of a warp's lanes at one place in their n-th visit are one warp-wide access.
  struct Access {
    int warp, place;
    uint32_t visit;
    int lane;
    uintptr_t address;
    uint32_t bytes;
    Space space;
    auto request() const { return std::tuple(warp, place, visit); }
    auto key() const { return std::tuple(warp, place, visit, lane); }
  };
  static int64_t conflicts(const Access* begin, const Access* end);
  std::map<std::tuple<Space, const char*, uint32_t, uint32_t>, int> places_;  // file, line, column
  std::vector<std::vector<uint32_t>> visits_;                                 // by place and thread
  std::vector<Access> accesses_;       // of the running block
  std::vector<uintptr_t> sectors_[2];  // read, written
  int64_t uncounted_ = 0;
};

// A kernel has ended: its distinct sectors go to the totals.
void finish_kernel_counts();

}  // namespace sinter::simt
