// Moving bytes between the host and a device, waiting for a device, and what its kernels may use;
// a switch over the three kinds of device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device/device.h"
#include "core/dtype.h"

namespace sinter {

// In order with the kernels launched before. The host's buffer may be used again on return; only
// copy_to_host waits for the device.
void copy_to_device(void* to, Device device, const void* from_host, size_t bytes);
// n elements. The emulator, to which set bits are memory never written, gets another NaN for that.
void copy_to_device(void* to, Device device, const void* from_host, DType dtype, int64_t n);
void copy_to_host(void* to_host, const void* from, Device device, size_t bytes);
void copy_on_device(void* to, const void* from, Device device, size_t bytes);
// From any device to any other, or the same.
void copy_between(void* to, Device to_device, const void* from, Device from_device, size_t bytes);
void fill_bytes(void* to, Device device, uint8_t byte, size_t bytes);
// Waits until all that was launched has run, and throws what it reported. Nothing to do on the CPU.
void synchronize(Device device);

// Memory that kernels of one stream share from launch to launch: the counter of a ticket(), which
// is 0 between launches, and `bytes` that hold whatever the last kernel left there, on 256 bytes.
// Every thread, and every branch of a captured graph, is a stream with memory of its own, which
// stays where it is; two kernels of one stream never run side by side.
struct Scratch {
  uint32_t* ticket;  // the first of 256
  void* memory;
};
Scratch scratch(Device device, size_t bytes);
// The shared memory that a block of a kernel may have there.
size_t shared_memory_limit(Device device);

}  // namespace sinter
