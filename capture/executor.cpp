#include "capture/executor.h"

#include "core/device/memory.h"
#include "ops/gemm_plans.h"
#include "ops/structured.h"

namespace sinter::capture {

Executor::Executor(const Graph& graph, bool cuda_graph) {
  const Device device = graph.nodes.empty() || graph.values.empty() ? kCpu : graph.device_of(0);
  cuda_graph_ = cuda_graph && device.type == Device::Type::cuda;
  if (cuda_graph_) branches_ = split_branches(graph);
  plan_ = plan_memory(graph, cuda_graph_ ? &branches_ : nullptr);
  arena_ = std::make_shared<Storage>(static_cast<size_t>(plan_.bytes), device);
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const Buffer& buffer = graph.buffers[b];
    if (buffer.kind == Buffer::Kind::local) {
      char* at = plan_.offset[b] < 0 ? nullptr : static_cast<char*>(arena_->data()) + plan_.offset[b];
      storages_.push_back(std::make_shared<Storage>(at, buffer.bytes, buffer.device));
    } else if (buffer.kind == Buffer::Kind::input) {
      storages_.push_back(cuda_graph_ ? std::make_shared<Storage>(buffer.bytes, buffer.device) : std::make_shared<Storage>(nullptr, buffer.bytes, buffer.device));
    } else {
      SINTER_ASSERT(buffer.storage, "buffer ", b, " is not bound");
      storages_.push_back(buffer.storage);
    }
  }
  for (const Value& v : graph.values) tensors_.push_back(Tensor::view_of(storages_[v.buffer], v.dtype, v.shape, v.strides, v.offset));
  for (const int in : graph.inputs) {
    SINTER_ASSERT(graph.values[in].offset == 0, "input %", in, " does not begin its buffer");
    inputs_.push_back(tensors_[in]);
  }
  for (const int out : graph.outputs) outputs_.push_back(tensors_[out]);
  for (const Node& node : graph.nodes) {
    Instruction i{.op = node.op, .attrs = node.attrs, .in = {}, .out = {}, .role = node.role, .written = {}, .made_by = {}};
    for (size_t n = 0; n < node.in.size(); ++n) {
      i.in.push_back(node.in[n] < 0 ? Tensor{} : tensors_[node.in[n]]);
      if (node.in[n] >= 0 && node.op->writes_input(n, node.in.size())) i.written.push_back(storages_[graph.values[node.in[n]].buffer].get());
    }
    for (const int out : node.out) i.out.push_back(tensors_[out]);
    instructions_.push_back(std::move(i));
  }
  if (cuda_graph_ && !instructions_.empty()) {
    replay_ = std::make_unique<CudaReplay>(branches_, [this](size_t n) {
      run(instructions_[n]);
      if (std::string made_by = take_gemm_choice(); !made_by.empty()) instructions_[n].made_by = std::move(made_by);
    });
  }
}

void Executor::run(Instruction& i) { launch_op({*i.op, i.in, i.out, i.attrs, i.role}); }

void Executor::run(const Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    Storage& storage = *inputs_[i].storage();
    if (!cuda_graph_) {
      storage.rebind(inputs[i].raw());
    } else if (inputs[i].raw() != storage.data()) {
      copy_on_device(storage.data(), inputs[i].raw(), storage.device(), storage.bytes());
    }
  }
  if (replay_) profiler::recording() ? replay_->run_profiled() : replay_->run();
  for (Instruction& i : instructions_) {
    if (!replay_) run(i);
    for (Storage* storage : i.written) storage->bump_version(i.op->name.c_str());
  }
}

}  // namespace sinter::capture
