// The optimizers' updates: one launch for up to kTensors parameters, whose operands travel as an
// argument (ops/optim/update_kernel.cuh). One parameter has a table of its own size: 4 KB of
// arguments take longer to send than a small kernel to run.
#include "ops/optim/update.h"
#include "ops/optim/update_kernel.cuh"
#include "ops/rows/block_table.cuh"

namespace sinter::SINTER_KERNEL_NS {

constexpr int kTensors = 48;

template <class V, int N> using UpdateTable = BlockTable<UpdateOperands<V>, N>;

// A block owns a chunk of one parameter, a thread 16 bytes of each operand in turn.
template <class Step, class V, int N>
SINTER_DEVICE_FN void update_chunk_of_block(
    const UpdateTable<V, N>& table, const UpdateStep& step, const UpdateAttrs& attrs) {
  if (is_idle(step)) return;
  const auto [operands, begin, end] = table.piece();
  const auto scalars = scalars_of<Step>(operands.skipped, step);
  update_elements(step_of<Step>(scalars, step, attrs), operands, begin, end);
}
template <class O, class V, int N>
SINTER_KERNEL multi_tensor_update(UpdateTable<V, N> table, UpdateStep step, UpdateAttrs attrs) {
  using Step = typename O::template Step<V>;
  if (!makes_next_state(attrs)) update_chunk_of_block<Step>(table, step, attrs);
  finish_step<Step>(step, attrs);
}

namespace {

template <class V, int N> void launch_updates(const Call& call) {
  std::vector<UpdateOperands<V>> parameters;
  int64_t elements = 0;
  for (size_t i = 0; i < update_groups(call.in.size()); ++i) {
    const UpdateGroup group = update_group(call.in, i);
    if (group.param.numel() == 0) continue;
    parameters.push_back(update_operands<V>(group));
    elements += parameters.back().n;
  }
  UpdateAttrs attrs = call.as<UpdateAttrs>();
  const bool tail = attrs.tail;
  const UpdateStep step = update_step(UpdateEnd(call.in));
  size_t at = 0;
  do {
    UpdateTable<V, N> table;
    table.chunk = update_chunk(elements);
    while (table.count < N && at < parameters.size()) table.add(parameters[at++]);
    attrs.tail = tail && at == parameters.size();
    if (table.blocks == 0 && !attrs.tail) return;
    const Grid grid{table.blocks + attrs.tail};
    const size_t bytes = attrs.tail ? sizeof(TailShared) : 0;
    with_optimizer(optimizer_of(call).kind, [&]<class O>(O) {
      launch<multi_tensor_update<O, V, N>>(grid, kUpdateThreads, bytes, table, step, attrs);
    });
  } while (at < parameters.size());
}

template <class V> void launch_typed(const Call& call) {
  if (update_groups(call.in.size()) == 1) {
    launch_updates<V, 1>(call);
  } else {
    launch_updates<V, kTensors>(call);
  }
}

}  // namespace

void update(const Call& call) {
  if (call.in[kParam].dtype() == DType::f64) {
    launch_typed<double>(call);
  } else {
    launch_typed<float>(call);
  }
}

}  // namespace sinter::SINTER_KERNEL_NS
