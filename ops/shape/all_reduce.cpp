// all_reduce: the sum of each tensor of a list over all ranks, in place, by the thread's
// communicator (core/communicator.h). It only starts the sum; all_reduce_wait, with the same list,
// waits for it. Both write the list, so whoever reads a gradient stands behind both, here and in
// every rewritten graph, and nobody else gets the memory in between. No gradient.
#include "core/communicator.h"
#include "core/device/memory.h"
#include "ops/ops.h"

namespace sinter {
namespace {

// Of this rank's own part: one addition an element.
Cost sum_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(numel_of(in), in, out, &kAllReduceOp);
}
// The bytes are the sum's, which it counts.
Cost wait_cost(Operands, Operands, const Attrs&) { return {}; }

// A piece for each tensor, even for those that lie side by side: where they lie differs from rank
// to rank, and all ranks must sum the same pieces.
std::vector<SumPiece> pieces_of(Operands in) {
  std::vector<SumPiece> pieces;
  for (const Tensor& t : in) {
    if (t.numel() > 0) pieces.push_back({t.raw(), t.numel(), t.storage()});
  }
  return pieces;
}

void start(const Call& call) {
  Communicator* const ranks = Communicator::current();
  if (!ranks) return;
  const Device device = call.in[0].device();
  // Its memory is the host's, once its kernels have run.
  if (device.type == Device::Type::simt) synchronize(device);
  ranks->start_sum(
      call.as<AllReduceAttrs>().bucket, pieces_of(call.in), call.in[0].dtype(), device);
}

void wait(const Call& call) {
  if (Communicator* const ranks = Communicator::current())
    ranks->finish_sum(call.as<AllReduceAttrs>().bucket);
}

bool writes_all(size_t, size_t) { return true; }

// One function for all devices: what differs is the communicator.
constexpr OpDef sum_op(profiler::StaticName name, Formula formula, Signature signature,
    Cost (*cost)(Operands, Operands, const Attrs&), Kernel kernel) {
  return {.name = name,
      .formula = formula,
      .signature = signature,
      .max_inputs = 1 << 17,
      .attrs = attr_type<AllReduceAttrs>(),
      .cost = cost,
      .cpu = kernel,
      .cuda = kernel,
      .simt = kernel,
      .writes_of = writes_all};
}

}  // namespace

const OpDef kAllReduceOp = sum_op(
    "all_reduce", "x = sum of x over all ranks, begun", kSignature<kAllReduceOp>, sum_cost, start);
const OpDef kAllReduceWaitOp = sum_op("all_reduce_wait", "x, once its sum over all ranks is there",
    kSignature<kAllReduceWaitOp>, wait_cost, wait);

void all_reduce(const Tensors& tensors, int64_t bucket) {
  apply(kAllReduceOp, tensors, AllReduceAttrs{bucket}, Role::comm);
}
void all_reduce_wait(const Tensors& tensors, int64_t bucket) {
  apply(kAllReduceWaitOp, tensors, AllReduceAttrs{bucket}, Role::comm);
}

}  // namespace sinter
