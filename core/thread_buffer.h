// Memory that a thread keeps for its kernels, so that nothing is allocated once it has grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sinter {

// What a buffer is for: the register of those that one thread may hold at the same time. A kernel
// that hands work to another (a product to its end, a convolution to its finish) holds its own
// meanwhile, so each of the two has a row here. Elements of different types never meet.
enum class BufferFor : uint8_t {
  kernel,  // what a kernel needs while it calls nothing that needs any
  second,  // a second one of those
  sums,    // of a product, until its end has run over them
  panel,   // of a product's operand
  left,    // of a product of bf16, in f32: its operands, bias and result
  right,
  bias,
  result,
  gate_row,      // gated_linear: results before they are rounded
  chain_values,  // between the steps of a chain
  spread,        // a chain's operands that are broadcast
  end_operands,  // a convolution's end: operands and further results, as tiles
  weights,       // of a convolution, as its lanes or tiles want them
  start,         // what its sums begin with
  x_tile,        // some rows of some images
  y_tile,
  packed_x,  // those for AMX
  packed_dy,
  dense,   // taps of one window, made dense
  places,  // of maxima
  values,  // of a pooled gradient
  scale,   // of channels
};

// n elements that live until the thread's next call for the same use and type. They begin with a
// line of the cache: a register of 64 bytes that lies across two lines takes twice the time to
// store, and a bf16 weight gradient by AMX took 1.8 times.
template <class V, BufferFor Use> V* thread_buffer(int64_t n) {
  constexpr size_t kLine = 64;
  static thread_local std::vector<V> memory;
  const size_t needed = size_t(n) + kLine / sizeof(V);
  if (memory.size() < needed) memory.resize(needed);
  const size_t past_line = reinterpret_cast<uintptr_t>(memory.data()) % kLine;
  return memory.data() + (kLine - past_line) % kLine / sizeof(V);
}

}  // namespace sinter
