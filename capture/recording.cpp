#include "capture/recording.h"

#include <algorithm>

#include "autograd/tape.h"
#include "core/context.h"
#include "core/device/memory.h"
#include "ops/ops.h"

namespace sinter::capture {
namespace {

thread_local bool recording_now = false;

// What tells one value from another: storage, type and layout. The storage by its number, which no
// other ever has: its address may be that of another one that was freed before in the same step.
std::vector<int64_t> key_of(const Tensor& t) {
  std::vector<int64_t> key{int64_t(t.storage()->uid()), int64_t(t.dtype()), t.offset()};
  key.insert(key.end(), t.shape().begin(), t.shape().end());
  key.insert(key.end(), t.strides().begin(), t.strides().end());
  return key;
}

}  // namespace

Recording::Recording(const Tensors& inputs, bool launches)
    : begun_(Storage(Storage::WithoutBytes{}, 0, kCpu).uid()) {
  SINTER_CHECK(!recording_now, state,
      "capture: a recording inside a recording; ops go to one graph only",
      "end the outer one first");
  recording_now = true;
  Context& context = Context::current();
  // A step that is not done must leave no trace: it has a tape of its own, and what it changes on
  // the host is put back by the destructor.
  if (!launches) {
    context.launches = false;
    tape_before_ = std::exchange(Tape::current(), Tape());
  }
  node_of_taped_.assign(Tape::current().size(), -1);
  taken_ = Tape::current().taken();
  TrainingFlag::asked = &flags_;
  random_ops_.emplace();
  reads_forbidden_before_ = context.host_reads_forbidden;
  context.host_reads_forbidden = "a captured step";
  context.recorders.push_back(this);
  // What was on the tape before is not recorded, so a replay could not go back through it.
  Tape::current().keep_out_of(Tape::current().size());
  Tape::current().on_gradient = [this](const Tensor& leaf) {
    const auto same = [&](const Reached& r) { return r.leaf.is_same(leaf); };
    if (std::ranges::any_of(reached_, same)) return;
    const Tensor& before = leaf.autograd().grad;
    reached_.push_back({leaf, own(before) ? Tensor() : before, made_as_leaf(leaf)});
  };

  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    const Extent extent = extent_of(t);
    const int buffer = graph_.add_buffer({.kind = Buffer::Kind::input,
        .device = t.device(),
        .bytes = size_t(extent.end - extent.begin)});
    regions_.push_back({t.storage()->uid(), extent, buffer});
    const int value = value_of(t);
    Value& v = graph_.values[value];
    if (v.name.empty())
      v.name = t.has_autograd() && !t.autograd().name.empty() ? t.autograd().name
               : inputs.size() == 1                           ? "x"
                                                              : str("x", i);
    graph_.inputs.push_back(value);
  }
}

// Also runs when the step has thrown. What a step without launches has changed is put back as far
// as it came.
Recording::~Recording() {
  Context& context = Context::current();
  std::erase(context.recorders, this);
  Tape::current().on_gradient = nullptr;
  Tape::current().keep_out_of(0);
  context.host_reads_forbidden = reads_forbidden_before_;
  recording_now = false;
  TrainingFlag::asked = nullptr;
  if (!tape_before_) return;
  context.launches = true;
  Tape::current() = std::move(*tape_before_);
  for (const Reached& r : reached_) r.leaf.autograd().grad = r.before;
  // From the last to the first: what is written twice gets what was before the first.
  for (auto it = written_before_.rbegin(); it != written_before_.rend(); ++it)
    it->first->restore_written(it->second);
}

// Called just before an op changes operands. Without launches their elements stay, but the op
// counts a version of them all the same: what it was is kept for the destructor.
void Recording::check_in_place(const OpDef& op, Operands in) const {
  for (size_t i = 0; tape_before_ && i < in.size(); ++i) {
    if (op.writes_input(i, in.size()) && in[i].defined())
      written_before_.emplace_back(in[i].storage(), in[i].storage()->written());
  }
}

bool Recording::made_here(const Tensor& t) const {
  if (!t.defined()) return false;
  const auto known = buffers_.find(t.storage()->uid());
  return known != buffers_.end() && graph_.buffers[known->second].kind == Buffer::Kind::local;
}

bool Recording::changed_here(const Tensor& t) const {
  const auto known = buffers_.find(t.storage()->uid());
  return known != buffers_.end() && graph_.changes_in_place(known->second);
}

void Recording::note_bf16_copy(const Tensor& weight, const Tensor& copy) {
  SINTER_CHECK(!region_of(weight), state,
      str("capture: the bf16 copy of an input of the step is asked for: ", weight.describe(),
          "; a replay would read the copy of this call's input"),
      "let the step's parameters list it, or cast(..) it in the step");
  const auto known = [&](const Bf16Copy& c) { return c.copy.is_same(copy); };
  if (!made_here(copy) && std::ranges::none_of(bf16_copies_, known))
    bf16_copies_.push_back({weight, copy});
}

const Recording::Region* Recording::region_of(const Tensor& t) const {
  const auto holds = [&](const Region& region) {
    return region.storage == t.storage()->uid() && region.extent.holds(extent_of(t));
  };
  const auto found = std::ranges::find_if(regions_, holds);
  return found == regions_.end() ? nullptr : &*found;
}

// Every op tells its results first (record), so what is in no input and was made by no op was there
// before the step: a parameter, state of the optimizer, a table. It is external, and a replay reads
// what it holds then; but a number that the program wrote into an expression stays that number.
std::pair<int, int64_t> Recording::buffer_of(const Tensor& t) {
  if (const Region* region = region_of(t)) return {region->buffer, region->extent.begin};
  const auto [it, fresh] = buffers_.try_emplace(t.storage()->uid(), int(graph_.buffers.size()));
  if (!fresh) return {it->second, 0};
  Buffer buffer{.kind = Buffer::Kind::external,
      .device = t.device(),
      .bytes = t.storage()->bytes(),
      .storage = t.storage()};
  if (t.has_autograd() && t.autograd().constant) {
    buffer.kind = Buffer::Kind::constant;
    buffer.value = *t.autograd().constant;
  }
  return {graph_.add_buffer(std::move(buffer)), 0};
}

int Recording::value_of(const Tensor& t) {
  if (!t.defined()) return -1;
  const auto [it, fresh] = values_.try_emplace(key_of(t), int(graph_.values.size()));
  if (fresh) {
    const auto [buffer, begin] = buffer_of(t);
    graph_.add_value({.buffer = buffer,
        .dtype = t.dtype(),
        .shape = t.shape(),
        .strides = t.strides(),
        .offset = t.offset() - begin / int64_t(size_of(t.dtype())),
        .name = t.has_autograd() ? t.autograd().name : ""});
  }
  return it->second;
}

// A replay has one device: its memory, its kernels, and on CUDA its graph are of that one.
void Recording::check_device(const Call& call) const {
  if (graph_.nodes.empty()) return;
  const Device device = device_of(call.in), before = graph_.device();
  SINTER_CHECK(device == before, state,
      str("capture: a step on two devices: ", call.op.text(), " works on ", device.str(), " and ",
          graph_.nodes.front().op->text(), ", the first op of the step, on ", before.str(),
          "; a captured step has one"),
      str("a Step for each device; or give to(", before.str(), ") of it as an input"));
}

void Recording::record(const Call& call) {
  // node_of_taped_ says which node an op on the tape is, so that a node of backward() can name the
  // forward node whose gradient it makes. The tape is told of an op before the recorder is: if it
  // has taken one since the last call, it is this op, and its last.
  const Tape& tape = Tape::current();
  const bool taped = std::exchange(taken_, tape.taken()) != tape.taken();
  node_of_taped_.resize(tape.size(), -1);
  if (taped) node_of_taped_.back() = -1;  // until it is a node
  if (&call.op == &kLowPrecisionOp) note_bf16_copy(call.in[0], call.in[0].autograd().bf16_copy);
  if (call.op.view) {  // views are values
    views_.insert(call.out[0].id());
    return;
  }
  if (&call.op == &kRenewCopyOp && !changed_here(call.in[0])) return;  // before the step, then
  check_device(call);
  const Context& context = Context::current();
  const bool loss = context.phase == Phase::none && context.grad_enabled;  // outside of modules
  const Phase phase = loss ? Phase::forward : context.phase;
  Node node{.op = &call.op,
      .attrs = call.attrs,
      .role = call.role,
      .module = context.module,
      .phases = uint8_t(1u << int(phase))};
  if (tape.running() >= 0) node.forward = node_of_taped_[tape.running()];
  if (taped) node_of_taped_.back() = int(graph_.nodes.size());
  for (const Tensor& t : call.in) node.in.push_back(value_of(t));
  for (const Tensor& t : call.out) {
    buffers_[t.storage()->uid()] =
        graph_.add_buffer({.device = t.device(), .bytes = t.storage()->bytes()});
    node.out.push_back(value_of(t));
  }
  node.origin.push_back(int(graph_.nodes.size()));
  graph_.nodes.push_back(std::move(node));
}

Graph Recording::finish(const Tensors& outputs, const Tensors& parameters, Tensors* movable) {
  for (const Tensor& t : outputs) graph_.outputs.push_back(value_of(t));
  for (const Tensor& t : parameters) {
    if (t.has_autograd() && t.autograd().grad.defined())
      graph_.gradients.push_back({value_of(t), value_of(t.autograd().grad)});
  }
  // What the step has taken for external memory, and what may lie elsewhere at the next call (the
  // .grad() that a caller has made), becomes an input. Only if the step uses no more of the storage
  // than this tensor: an input has the memory of its own elements and no other.
  for (size_t i = 0; movable && i < movable->size(); ++i) {
    Tensor& t = (*movable)[i];
    if (!t.defined()) continue;
    const auto known = buffers_.find(t.storage()->uid());
    if (known == buffers_.end() || graph_.buffers[known->second].kind != Buffer::Kind::external) {
      t = {};
      continue;
    }
    const int value = value_of(t);
    const bool all = std::ranges::all_of(values_, [&](const auto& v) {
      const Value& used = graph_.values[v.second];
      return used.buffer != known->second || extent_of(t).holds(extent_of(used));
    });
    if (!all) continue;
    graph_.inputs.push_back(value);
    graph_.buffers[known->second].kind = Buffer::Kind::input;
    graph_.buffers[known->second].storage = nullptr;
  }
  for (Buffer& b : graph_.buffers) {
    if (b.kind != Buffer::Kind::external || b.storage->uid() <= begun_ || !b.storage->has_bytes())
      continue;
    b.constant = Tensor::empty({int64_t(b.bytes)}, DType::u8, b.device);
    copy_on_device(b.constant.raw(), b.storage->data(), b.device, b.bytes);
  }
  graph_.verify("recording");
  return std::move(graph_);
}

}  // namespace sinter::capture
