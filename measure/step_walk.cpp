#include "measure/step_walk.h"

#include <cstring>

#include "capture/text.h"
#include "core/context.h"
#include "core/device/memory.h"
#include "measure/rounding.h"
#include "ops/ops.h"
#include "ops/optim/update.h"

namespace sinter::measure {

using capture::Graph, capture::Node;

StepWalk::StepWalk(const Graph& graph, const Tensors& inputs, Memory memory)
    : graph_(graph), inputs_(inputs), memory_(memory), plan_(capture::plan_memory(graph)) {
  SINTER_CHECK(inputs.size() == graph.inputs.size(), shape,
      str("step walk: ", inputs.size(), " inputs given; the step has ", graph.inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const capture::Value& v = graph.values[graph.inputs[i]];
    const capture::Extent from = capture::extent_of(inputs[i]), to = capture::extent_of(v);
    SINTER_CHECK(inputs[i].dtype() == v.dtype && inputs[i].shape() == v.shape &&
                     from.end - from.begin == to.end - to.begin,
        shape,
        str("step walk: an input of the step is ", capture::print_type(v), "; found ",
            inputs[i].describe()));
  }
  const Device device = memory == Memory::apart ? kCpu : graph.device_of(0);
  if (memory == Memory::planned) arena_ = std::make_shared<Storage>(size_t(plan_.bytes), device);
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const size_t bytes = graph.buffers[b].bytes;
    if (arena_ && plan_.offset[b] >= 0) {
      char* const at = static_cast<char*>(arena_->data()) + plan_.offset[b];
      storages_.push_back(std::make_shared<Storage>(at, bytes, device));
    } else {
      storages_.push_back(std::make_shared<Storage>(bytes, device));
    }
  }
  for (const capture::Value& v : graph.values)
    tensors_.push_back(Tensor::view_of(storages_[v.buffer], v.dtype, v.shape, v.strides, v.offset));
  for (const Node& node : graph.nodes) {
    Operands& operands = nodes_.emplace_back();
    for (const int v : node.in) operands.in.push_back(tensor(v));
    for (const int v : node.out) operands.out.push_back(tensor(v));
  }
  restart();
}

void StepWalk::restart() {
  for (size_t b = 0; b < storages_.size(); ++b) {
    const Storage* const from = graph_.buffers[b].storage.get();
    if (!from) continue;
    copy_between(
        storages_[b]->data(), storages_[b]->device(), from->data(), from->device(), from->bytes());
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Tensor& given = inputs_[i];
    const capture::Value& v = graph_.values[graph_.inputs[i]];
    const Storage& to = *storages_[v.buffer];
    const capture::Extent from = capture::extent_of(given);
    copy_between(static_cast<char*>(to.data()) + capture::extent_of(v).begin, to.device(),
        static_cast<const char*>(given.storage()->data()) + from.begin, given.device(),
        size_t(from.end - from.begin));
  }
  if (memory_ == Memory::planned) return;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Tensors& operands = nodes_[n].in;
    if (graph_.nodes[n].op->attrs == attr_type<UpdateAttrs>())
      host_step_state(operands[operands.size() - kStepOperands]).rates_left = 0;
  }
}

void StepWalk::run(size_t n) {
  const Node& node = graph_.nodes[n];
  const ModulePath module(node.module.c_str());
  launch_op({*node.op, nodes_[n].in, nodes_[n].out, node.attrs, node.role});
}

void StepWalk::put(size_t n, const Tensors& values) {
  Tensors to = nodes_[n].out;
  const Tensors changed = changed_operands(*graph_.nodes[n].op, nodes_[n].in);
  to.insert(to.end(), changed.begin(), changed.end());
  for (size_t i = 0; i < to.size(); ++i) {
    const Tensor rounded = cast(values[i], to[i].dtype());
    std::memcpy(to[i].raw(), rounded.raw(), size_t(rounded.numel()) * size_of(rounded.dtype()));
  }
}

}  // namespace sinter::measure
