// Recorded steps for the tests of graph files: a forward pass and a training step of a 6-5-3 MLP
// with Adam, batch 4.
#pragma once

#include "autograd/autograd.h"
#include "capture/recording.h"
#include "ops/ops.h"

namespace sinter::capture {

struct SmallMlp {
  Tensors params, moments, squares;
  Tensor state = make_step_state();
  Tensor x = cast(sample_tensor({4, 6}, 9), DType::f32), labels = sample_labels(4, 3, 5);

  explicit SmallMlp(bool bias = true) {
    const auto add = [&](const char* name, const Shape& shape) {
      Tensor t = cast(sample_tensor(shape, params.size() + 1, -0.5, 0.5), DType::f32);
      t.set_requires_grad(true).autograd().name = name;
      params.push_back(t);
      moments.push_back(Tensor::zeros(shape));
      moments.back().autograd().name = str("exp_avg/", name);
      squares.push_back(Tensor::zeros(shape));
      squares.back().autograd().name = str("exp_avg_sq/", name);
    };
    add("0.weight", {5, 6});
    if (bias) add("0.bias", {5});
    add("2.weight", {3, 5});
    if (bias) add("2.bias", {3});
    reset_step_state(host_step_state(state), 0.9, 0.999);
    host_step_state(state).lr = 0.01;
  }
  Tensor find(const std::string& name) const {
    for (const Tensors* list : {&params, &moments, &squares}) {
      for (const Tensor& t : *list) {
        if (t.autograd().name == name) return t;
      }
    }
    return name == "step_state" ? state : Tensor();
  }
  Tensor logits(const Tensor& in) const {
    const bool bias = params.size() == 4;
    const Tensor hidden = relu(linear(in, params[0], bias ? params[1] : Tensor()));
    return linear(hidden, params[bias ? 2 : 1], bias ? params[3] : Tensor());
  }
  Tensors train(const Tensors& in) const {
    for (const Tensor& t : params) t.autograd().grad = {};
    Tensor losses = cross_entropy(logits(in[0]), in[1]);
    backward(losses);
    const NoGrad no_grad;
    for (size_t i = 0; i < params.size(); ++i) {
      const bool tail = i + 1 == params.size();
      update_parameter({params[i], params[i].grad(), moments[i], squares[i]}, state, {.tail = tail},
          tail ? losses : Tensor());
    }
    return {losses};
  }
  Graph forward_graph() const {
    const NoGrad no_grad;
    Recording recording({x});
    const Tensor y = logits(x);
    Graph graph = recording.finish({y}, {});
    graph.values[graph.outputs[0]].name = "logits";
    return graph;
  }
  Graph training_graph() const {
    Recording recording({x, labels});
    return recording.finish(train({x, labels}), params);
  }
};

}  // namespace sinter::capture
