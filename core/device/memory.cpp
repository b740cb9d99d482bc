#include "core/device/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "core/device/cuda.h"
#include "core/device/launch_hook.h"
#include "core/device/simt.h"
#include "core/storage.h"

namespace sinter {
namespace {

class CpuAllocator final : public Allocator {
 public:
  CpuAllocator() : Allocator("cpu", kCacheHostMemory) {}

 private:
  // Large blocks begin at a page, so that in a loop over several of them no load waits for a store
  // to another whose address ends in the same 12 bits; larger ones in a huge page, of which Linux
  // gives some to those who ask: walking them misses the TLB less. Where memory is in pieces it
  // moves pages for 2 ms until it has one, so the largest do not ask: MNIST's pixels waited 0.1 s.
  void* system_allocate(size_t bytes) override {
    constexpr size_t kPage = 4096, kHugePage = 2 << 20, kMostToAsk = 32 << 20;
    const size_t alignment = bytes >= kHugePage ? kHugePage : bytes >= kPage ? kPage : kAlignment;
    void* block = nullptr;
    if (posix_memalign(&block, alignment, bytes) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
    if (bytes >= kHugePage && bytes <= kMostToAsk)
      madvise(block, bytes, MADV_HUGEPAGE);  // refused where there are none
#endif
    return block;
  }
  void system_free(void* block, size_t) noexcept override { std::free(block); }
};

// The emulator's memory is the host's; what was launched before comes first.
void host_copy(void* to, const void* from, Device device, size_t bytes) {
  const HookedCall hooked(DeviceWork::copy, device.type, "memcpy", bytes,
      device.type == Device::Type::simt && bytes > 0);
  if (device.type == Device::Type::simt) simt::synchronize_to_read(from);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

constexpr size_t kTicketBytes = 1024;  // 256 counters

// The emulator has a stream per thread.
void* scratch_of_thread(Device device, size_t bytes) {
  static thread_local std::map<size_t, std::unique_ptr<Storage>> blocks;
  std::unique_ptr<Storage>& block = blocks[bytes];
  if (!block) {
    block = std::make_unique<Storage>(bytes, device);
    fill_bytes(block->data(), device, 0, kTicketBytes);
  }
  return block->data();
}

}  // namespace

Allocator& allocator(Device device) {
  // Never destroyed: tensors in static storage may outlive any order of destruction.
  static CpuAllocator& cpu = *new CpuAllocator;
  if (device.type == Device::Type::simt) return simt::allocator();
  if (device.type == Device::Type::cuda) return cuda::allocator(device.index);
  return cpu;
}

void copy_to_device(void* to, Device device, const void* from_host, size_t bytes) {
  if (device.type == Device::Type::cuda) return cuda::copy_to_device(to, from_host, bytes);
  host_copy(to, from_host, device, bytes);
}

void copy_to_device(void* to, Device device, const void* from_host, DType dtype, int64_t n) {
  const size_t size = size_of(dtype);
  copy_to_device(to, device, from_host, size_t(n) * size);
  if (device.type != Device::Type::simt || !is_float(dtype)) return;
  auto* at = static_cast<unsigned char*>(to);
  for (const unsigned char* const end = at + size_t(n) * size; at < end; at += size) {
    if (std::all_of(at, at + size, [](unsigned char byte) { return byte == 0xff; }))
      *at = simt::kOtherNan;
  }
}

void copy_to_host(void* to_host, const void* from, Device device, size_t bytes) {
  if (device.type == Device::Type::cuda) return cuda::copy_to_host(to_host, from, bytes);
  host_copy(to_host, from, device, bytes);
}

void copy_on_device(void* to, const void* from, Device device, size_t bytes) {
  if (device.type == Device::Type::cuda) return cuda::copy_on_device(to, from, bytes);
  host_copy(to, from, device, bytes);
}

void copy_between(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  if (to_device == from_device) return copy_on_device(to, from, to_device, bytes);
  if (from_device == kCpu) return copy_to_device(to, to_device, from, bytes);
  if (to_device == kCpu) return copy_to_host(to, from, from_device, bytes);
  std::vector<std::byte> host(bytes);
  copy_to_host(host.data(), from, from_device, bytes);
  copy_to_device(to, to_device, host.data(), bytes);
}

void fill_bytes(void* to, Device device, uint8_t byte, size_t bytes) {
  if (device.type == Device::Type::cuda) return cuda::fill(to, byte, bytes);
  const HookedCall hooked(DeviceWork::fill, device.type, "memset", bytes,
      device.type == Device::Type::simt && bytes > 0);
  if (device.type == Device::Type::simt) simt::synchronize();
  if (bytes > 0) std::memset(to, byte, bytes);
}

void synchronize(Device device) {
  const HookedCall hooked(DeviceWork::wait, device.type, "synchronize", 0, device != kCpu);
  if (device.type == Device::Type::cuda) cuda::synchronize();
  if (device.type == Device::Type::simt) simt::synchronize();
}

Scratch scratch(Device device, size_t bytes) {
  const size_t all = kTicketBytes + bytes;
  void* block = device.type == Device::Type::cuda ? cuda::scratch(all, kTicketBytes)
                                                  : scratch_of_thread(device, all);
  return {static_cast<uint32_t*>(block), static_cast<char*>(block) + kTicketBytes};
}

size_t shared_memory_limit(Device device) {
  return device.type == Device::Type::cuda ? cuda::shared_memory_limit() : kMaxSharedBytes;
}

}  // namespace sinter
