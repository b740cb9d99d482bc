// multi_tensor_update: one launch for up to kTensors parameters, whose operands travel as an
// argument (ops/update_kernel.cuh).
#include "ops/fused/update.h"
#include "ops/update_kernel.cuh"

namespace sinter::SINTER_KERNEL_NS {

constexpr int kTensors = 48;

template <class V>
struct UpdateTable {
  int count = 0;
  int64_t chunk = 0;  // elements of a block
  int32_t first_block[kTensors] = {};
  UpdateOperands<V> of[kTensors];
};

// A block owns a chunk of one parameter, a thread 16 bytes of each operand in turn.
template <class V, class Step>
SINTER_DEVICE_FN void update_chunk_of_block(const UpdateTable<V>& table, const Step& step) {
  if (table.count == 0) return;
  int i = 0;
  SINTER_NO_UNROLL
  while (i + 1 < table.count && block_x() >= table.first_block[i + 1]) ++i;
  const int64_t n = table.of[i].n, begin = (block_x() - table.first_block[i]) * table.chunk;
  update_elements(step, table.of[i], begin, begin + table.chunk < n ? begin + table.chunk : n);
}
template <class V>
SINTER_KERNEL multi_tensor_update_sgd(UpdateTable<V> table, UpdateStep step, SgdAttrs attrs) {
  update_chunk_of_block(table, SgdStep<V>(step_scalars(step), attrs));
  if (attrs.tail) finish_step(step, 0, 0);
}
template <class V>
SINTER_KERNEL multi_tensor_update_adam(UpdateTable<V> table, UpdateStep step, AdamAttrs attrs) {
  update_chunk_of_block(table, AdamStep<V>(step_scalars(step), attrs));
  if (attrs.tail) finish_step(step, attrs.beta1, attrs.beta2);
}

void multi_tensor_update(const Call& call) {
  const UpdateEnd end(call.in, call.in.size() - 3);
  const auto run = [&]<class V>(V) {
    std::vector<UpdateOperands<V>> parameters;
    int64_t elements = 0;
    for (size_t i = 0; i + 5 < call.in.size(); i += 5) {
      if (call.in[i].numel() == 0) continue;
      parameters.push_back(update_operands<V>(
          call.in[i], call.in[i + 1], call.in[i + 2], call.in[i + 3], call.in[i + 4]));
      elements += parameters.back().n;
    }
    UpdateAttrs attrs = call.as<UpdateAttrs>();
    const bool tail = attrs.tail;
    size_t at = 0;
    do {
      UpdateTable<V> table;
      table.chunk = update_chunk(elements);
      int64_t blocks = 0;
      for (; table.count < kTensors && at < parameters.size(); ++at, ++table.count) {
        table.first_block[table.count] = static_cast<int32_t>(blocks);
        table.of[table.count] = parameters[at];
        blocks += blocks_for(parameters[at].n, table.chunk);
      }
      attrs.tail = tail && at == parameters.size();
      if (blocks == 0 && !attrs.tail) return;
      const Grid grid{std::max<int64_t>(blocks, 1)};
      const size_t bytes = attrs.tail ? sizeof(TailShared) : 0;
      const UpdateStep step = update_step(end.state, end.losses, end.rng);
      attrs.adam ? launch<multi_tensor_update_adam<V>>(
                       grid, kUpdateThreads, bytes, table, step, adam_attrs(attrs))
                 : launch<multi_tensor_update_sgd<V>>(
                       grid, kUpdateThreads, bytes, table, step, sgd_attrs(attrs));
    } while (at < parameters.size());
  };
  call.in[0].dtype() == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace sinter::SINTER_KERNEL_NS
