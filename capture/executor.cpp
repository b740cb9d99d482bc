#include "capture/executor.h"

#include "ops/structured.h"

namespace sinter::capture {

Executor::Executor(const Graph& graph) : plan_(plan_memory(graph)) {
  const Device device = graph.nodes.empty() || graph.values.empty() ? kCpu : graph.device_of(0);
  arena_ = std::make_shared<Storage>(static_cast<size_t>(plan_.bytes), device);
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const Buffer& buffer = graph.buffers[b];
    if (buffer.kind == Buffer::Kind::local) {
      char* at = plan_.offset[b] < 0 ? nullptr : static_cast<char*>(arena_->data()) + plan_.offset[b];
      storages_.push_back(std::make_shared<Storage>(at, buffer.bytes, buffer.device));
    } else if (buffer.kind == Buffer::Kind::input) {
      storages_.push_back(std::make_shared<Storage>(nullptr, buffer.bytes, buffer.device));
    } else {
      SINTER_ASSERT(buffer.storage, "buffer ", b, " is not bound");
      storages_.push_back(buffer.storage);
    }
  }
  for (const Value& v : graph.values) tensors_.push_back(Tensor::view_of(storages_[v.buffer], v.dtype, v.shape, v.strides, v.offset));
  for (const int in : graph.inputs) {
    SINTER_ASSERT(graph.values[in].offset == 0, "input %", in, " does not begin its buffer");
    input_storages_.push_back(storages_[graph.values[in].buffer].get());
  }
  for (const int out : graph.outputs) outputs_.push_back(tensors_[out]);
  for (const Node& node : graph.nodes) {
    Instruction i{.op = node.op, .attrs = node.attrs, .in = {}, .out = {}, .role = node.role, .written = {}};
    for (size_t n = 0; n < node.in.size(); ++n) {
      i.in.push_back(node.in[n] < 0 ? Tensor{} : tensors_[node.in[n]]);
      if (node.in[n] >= 0 && node.op->writes_input(n, node.in.size())) i.written.push_back(storages_[graph.values[node.in[n]].buffer].get());
    }
    for (const int out : node.out) i.out.push_back(tensors_[out]);
    instructions_.push_back(std::move(i));
  }
}

void Executor::run(const Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) input_storages_[i]->rebind(inputs[i].raw());
  for (Instruction& i : instructions_) {
    launch_op({*i.op, i.in, i.out, i.attrs, i.role});
    for (Storage* storage : i.written) storage->bump_version(i.op->name.c_str());
  }
}

}  // namespace sinter::capture
