#include "capture/executor.h"

#include <algorithm>

#include "capture/listener.h"
#include "capture/recording.h"
#include "core/allocator.h"
#include "core/context.h"
#include "core/device/chooser.h"
#include "core/device/memory.h"
#include "core/device/timing.h"
#include "ops/ops.h"

namespace sinter::capture {
namespace {

// A piece of the arena, or of a caller's tensor. Whoever holds a tensor on it, a result or a
// .grad(), keeps the whole.
struct Slot : Storage {
  Slot(void* data, size_t bytes, std::shared_ptr<Storage> owner)
      : Storage(data, bytes, owner->device()), whole(std::move(owner)) {}
  std::shared_ptr<Storage> whole;
};

// The memory of input buffer b of a CUDA graph: the caller's own if its tensor is adopted, else
// some to which each run copies what it is given, since a CUDA graph has its addresses built in.
std::shared_ptr<Storage> storage_of_input(const Graph& graph, int b, const Tensors& adopted) {
  const Buffer& buffer = graph.buffers[b];
  for (size_t i = 0; i < adopted.size(); ++i) {
    const Value& v = graph.values[graph.inputs[i]];
    if (v.buffer != b) continue;
    return std::make_shared<Slot>(static_cast<char*>(adopted[i].raw()) - extent_of(v).begin,
        buffer.bytes, adopted[i].storage());
  }
  return std::make_shared<Storage>(buffer.bytes, buffer.device);
}

}  // namespace

Executor::Executor(const Graph& graph, const Tensors& adopted)
    : launches_(graph.launches()), cuda_graph_(graph.device().type == Device::Type::cuda) {
  const Device device = graph.device();
  if (cuda_graph_) branches_ = split_branches(graph);
  plan_ = plan_memory(graph, cuda_graph_ ? &branches_ : nullptr);
  memory_ = memory_of_nodes(graph, plan_);
  if (device == kCpu) allocator(device).trim();  // what eager steps used and no replay will
  arena_ = std::make_shared<Storage>(size_t(plan_.bytes), device);
  // A storage for each buffer. Without a CUDA graph that of an input has no memory yet: place()
  // binds it to what each run is given, and all tensors that the instructions hold on it follow.
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const Buffer& buffer = graph.buffers[b];
    if (buffer.kind == Buffer::Kind::local) {
      char* at =
          plan_.offset[b] < 0 ? nullptr : static_cast<char*>(arena_->data()) + plan_.offset[b];
      storages_.push_back(std::make_shared<Slot>(at, buffer.bytes, arena_));
    } else if (buffer.kind == Buffer::Kind::input) {
      storages_.push_back(cuda_graph_
                              ? storage_of_input(graph, int(b), adopted)
                              : std::make_shared<Storage>(nullptr, buffer.bytes, buffer.device));
    } else {
      SINTER_ASSERT(buffer.storage, "buffer ", b, " is not bound");
      storages_.push_back(buffer.storage);
    }
  }
  for (const Value& v : graph.values)
    tensors_.push_back(Tensor::view_of(storages_[v.buffer], v.dtype, v.shape, v.strides, v.offset));
  copies_.resize(storages_.size());
  for (const int in : graph.inputs) {
    const Value& v = graph.values[in];
    const Extent extent = extent_of(tensors_[in]);
    inputs_.push_back({.tensor = tensors_[in],
        .offset = extent.begin,
        .bytes = extent.end - extent.begin,
        .buffer = v.buffer});
  }
  // A result in the arena stays where it is, and the next run changes what the caller holds of it.
  const auto kind_of = [&](int value) { return graph.buffers[graph.values[value].buffer].kind; };
  std::vector<int> given = graph.outputs;
  for (const int out : graph.outputs) {
    SINTER_CHECK(kind_of(out) != Buffer::Kind::input, state,
        str("graph: a result is memory of an input, which lies elsewhere at each run: ",
            graph.meta(out).describe()),
        "give a copy(..) of it");
    outputs_.push_back(tensors_[out]);
  }
  for (const Graph::Gradient& g : graph.gradients) given.push_back(g.grad);
  for (const int value : given) {
    if (kind_of(value) == Buffer::Kind::local)
      overwritten_.push_back(storages_[graph.values[value].buffer].get());
  }
  // The calls, with all that can be known before. `written` are the storages whose version each run
  // counts up, as an eager op does, so that backward() refuses what a tape has saved of them.
  for (const Node& node : graph.nodes) {
    const std::string phase = text_of_phases(node);
    Instruction i{.op = node.op,
        .attrs = node.attrs,
        .role = node.role,
        .module = profiler::intern(node.module).c_str(),
        .phase = profiler::intern(phase.empty() ? "replay" : phase)};
    for (size_t n = 0; n < node.in.size(); ++n) {
      i.in.push_back(node.in[n] < 0 ? Tensor{} : tensors_[node.in[n]]);
      if (node.in[n] < 0 || !node.op->writes_input(n, node.in.size())) continue;
      const int buffer = graph.values[node.in[n]].buffer;
      i.written.push_back(storages_[buffer].get());
      for (Input& in : inputs_) {
        if (in.buffer == buffer) in.writer = node.op->name.c_str();
      }
    }
    for (const int out : node.out) i.out.push_back(tensors_[out]);
    instructions_.push_back(std::move(i));
  }
  if (cuda_graph_ && !instructions_.empty()) {
    replay_ = std::make_unique<CudaReplay>(branches_, [this](size_t n) {
      take_choice_text();  // what measuring has left behind is none of this op's
      run(instructions_[n]);
      if (std::string made_by = take_choice_text(); !made_by.empty())
        instructions_[n].made_by = std::move(made_by);
    });
  }
}

void Executor::run(Instruction& i) {
  const ModulePath module(i.module);
  launch_op({*i.op, i.in, i.out, i.attrs, i.role});
}

void Executor::count_writes(const Instruction& i) {
  for (Storage* storage : i.written) storage->bump_version(i.op->name.c_str());
}

// Neighbours of one phase are a span of it.
void Executor::run_list() {
  const bool recording = profiler::recording();
  Listener* const listener = Listener::current;
  if (listener) {  // what it has heard of an input at the last run says nothing of this one
    for (const Input& in : inputs_) in.tensor.storage()->bump_version("a caller");
  }
  for (size_t n = 0; n < instructions_.size();) {
    const char* const phase = instructions_[n].phase.c_str();
    const profiler::Scope span(instructions_[n].phase);
    for (; n < instructions_.size() && instructions_[n].phase.c_str() == phase; ++n) {
      if (recording) profiler::record_planned(memory_[n]);
      run(instructions_[n]);
      count_writes(instructions_[n]);
      if (listener) tell(*listener, instructions_[n]);
    }
  }
}

void Executor::tell(Listener& listener, Instruction& i) {
  const ModulePath module(i.module);
  if (!i.made_by.empty()) set_choice_text(i.made_by);
  listener.record({*i.op, i.in, i.out, i.attrs, i.role});
}

bool Executor::in_arena(const Tensor& t) const {
  const char* begin = static_cast<const char*>(arena_->data());
  const char* at = static_cast<const char*>(t.raw());
  return begin <= at && at < begin + arena_->bytes();
}

// Brings an input to where the instructions read it: by a copy for a CUDA graph, else by binding
// the buffer to the caller's memory. That must not be the arena. A result of the last run lies
// there, and nodes of this run may write their values over it before the input is read: so it is
// copied first. If the step writes such an input, a copy is no help, since the caller would look
// for the change in the result; but a gradient of the last run is replaced by this one's.
void Executor::place(Input& input, const Tensor& given, bool gradient) {
  Storage& storage = *input.tensor.storage();
  char* const from = static_cast<char*>(given.raw());
  if (!gradient && in_arena(given) && input.writer) {
    throw Error(Error::Kind::state,
        str("capture: input ", &input - inputs_.data(), " is a result of this step, which ",
            input.writer, " changes in it: ", given.describe(),
            "; the next results lie in the same memory"),
        "give a copy(..) of it");
  }
  if (cuda_graph_) {
    void* const to = input.tensor.raw();
    if (to != from) copy_on_device(to, from, storage.device(), size_t(input.bytes));
  } else if (in_arena(given)) {
    std::shared_ptr<Storage>& copied = copies_[input.buffer];
    if (!copied) copied = std::make_shared<Storage>(storage.bytes(), storage.device());
    storage.rebind(copied->data());
    copy_on_device(input.tensor.raw(), from, storage.device(), size_t(input.bytes));
  } else {
    storage.rebind(from - input.offset);
  }
}

// The strides of dense tensors need not be equal: a dim of one element may have any.
void Executor::check_inputs(const Tensors& inputs) const {
  SINTER_CHECK(inputs.size() == inputs_.size(), shape,
      str("graph: ", inputs.size(), " inputs given; it has ", inputs_.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor &given = inputs[i], &wanted = inputs_[i].tensor;
    const bool dense = given.defined() && given.is_contiguous() && wanted.is_contiguous();
    const bool same = given.defined() && given.dtype() == wanted.dtype() &&
                      given.shape() == wanted.shape() && given.device() == wanted.device() &&
                      (dense || given.strides() == wanted.strides());
    SINTER_CHECK(same, shape,
        str("graph: input ", i, " does not fit: found ", given.describe(),
            given.defined() ? " strides " + given.strides().str() : "", "; it must be ",
            wanted.describe(), " strides ", wanted.strides().str()));
  }
}

void Executor::run(const Tensors& inputs) {
  check_inputs(inputs);
  replay(inputs);
}

void Executor::replay(const Tensors& inputs, size_t gradients) {
  for (size_t i = 0; i < inputs.size(); ++i) place(inputs_[i], inputs[i], i >= gradients);
  // Only the device's own records tell the nodes of a graph apart: a profile without them is of
  // single launches, and so is what a listener hears.
  const bool as_list = Listener::current || (profiler::recording() && cuda::records_turn() == 0);
  if (replay_ && !as_list) {
    replay_->run();
    for (const Instruction& i : instructions_) count_writes(i);
  } else {
    run_list();
  }
  // What the caller holds of the last run has changed, and so have inputs that the graph writes:
  // backward() must not take them for what they were. A CUDA graph has changed its own copy of an
  // input, which goes back to the caller's memory.
  for (Storage* storage : overwritten_) storage->bump_version("a replay of the captured step");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& in = inputs_[i];
    if (!in.writer) continue;
    if (cuda_graph_ && in.tensor.raw() != inputs[i].raw() && !in_arena(inputs[i])) {
      copy_on_device(inputs[i].raw(), in.tensor.raw(), inputs[i].device(), size_t(in.bytes));
    }
    inputs[i].storage()->bump_version(in.writer);
  }
  // If the caller made a result part of a graph of his own (requires_grad, say), the next run's
  // result must not be part of it: it becomes another tensor on the same memory.
  for (Tensor& out : outputs_) {
    if (out.has_autograd()) out = off_tape(out);
  }
}

}  // namespace sinter::capture
