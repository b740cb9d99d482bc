// sgd_update, eager: one parameter's step (ops/update_kernel.cuh).
#include "ops/update_kernel.cuh"

namespace sinter::SINTER_KERNEL_NS {

// A block owns `chunk` elements, a thread 16 bytes of each operand in turn.
template <class V>
SINTER_KERNEL sgd_update_vec(UpdateOperands<V> t, UpdateStep step, SgdAttrs attrs, int64_t chunk) {
  const int64_t begin = block_x() * chunk;
  update_elements(
      SgdStep<V>(step_scalars(step), attrs), t, begin, begin + chunk < t.n ? begin + chunk : t.n);
  if (attrs.tail) finish_step(step, 0, 0);
}

void sgd_update(const Call& call) {
  const auto& attrs = call.as<SgdAttrs>();
  const Tensor& param = call.in[0];
  const auto operand = [&](size_t i) { return i < call.in.size() ? call.in[i] : Tensor(); };
  const int64_t n = param.numel(), chunk = update_chunk(n);
  if (n == 0 && !attrs.tail) return;
  const auto run = [&]<class V>(V) {
    launch<sgd_update_vec<V>>({std::max<int64_t>(blocks_for(n, chunk), 1)}, kUpdateThreads,
        attrs.tail ? sizeof(TailShared) : 0,
        update_operands<V>(param, call.in[1], call.in[2], {}, call.in[3]),
        update_step(call.in[4], operand(5), operand(6)), attrs, chunk);
  };
  param.dtype() == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace sinter::SINTER_KERNEL_NS
