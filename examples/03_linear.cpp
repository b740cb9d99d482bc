// 03_linear: the layer that all others build on: y = x W^T + b. One matrix product, its bias
// inside, and what backward makes of it.
//
// This program fits a layer of 2 inputs and 1 output to points of the plane y = 3 a - 2 b + 0.5, by
// plain gradient descent.
#include <cstdio>

#include "autograd/autograd.h"
#include "nn/linear.h"
#include "nn/optim.h"
#include "profiler/session.h"

using namespace sinter;

// Runs f() as one profiled step and prints which ops ran, in order, with the work that they did.
template <class F> void show_ops(const char* title, F&& f) {
  profiler::Session session({.schedule = {.wait = 0, .warmup = 0, .active = 1}});
  f();
  session.step();
  std::printf("%s\n", title);
  for (const profiler::Row& row : session.finish().rows().rows) {
    if (row.kind == profiler::ScopeKind::op && row.launches > 0)
      std::printf("  %-16s%3ld launch  %6ld FLOP  %6ld bytes\n", row.name.c_str(),
          long(row.launches), long(row.cost.flops), long(row.cost.bytes()));
  }
}

int main() {
  // ---- 1. The points: 64 rows of (a, b) between -2 and 2, and the y that belongs to each.
  constexpr int64_t kPoints = 64;
  const Tensor x = cast(sample_tensor({kPoints, 2}, 1), DType::f32);
  const Tensor y = add(matmul(x, Tensor::from({3, -2}, {2, 1})), Tensor::from({0.5}, {1}));

  // ---- 2. The layer: weight [out, in] and bias [out], as in PyTorch. Its numbers are drawn from a
  // seed, so every run is the same.
  nn::init::manual_seed(1);
  nn::Linear layer(2, 1);
  std::printf("%s: weight %s, bias %s\n\n", layer.describe().c_str(),
      layer.weight().describe().c_str(), layer.bias().describe().c_str());

  // ---- 3. Forward is ONE launch: the bias is added inside the product, not by an op of its own.
  show_ops("forward:", [&] {
    const NoGrad no_grad;
    layer(x);
  });

  // ---- 4. Backward from the mean squared error: the gradient of the layer's result, then that of
  // the weight (a product too: dy^T x) and of the bias (the column sums of dy). The gradient of x
  // is not computed: nobody asked for it.
  const Tensor losses = mse(layer(x), y);            // one per row
  show_ops("backward:", [&] { backward(losses); });  // of their mean

  // ---- 5. Gradient descent: step against the gradient, again and again.
  nn::Sgd optimizer(layer.named_parameters(), {.lr = 0.02, .momentum = 0});
  std::printf("\nstep   mean squared error\n");
  for (int step = 0; step <= 200; ++step) {
    optimizer.zero_grad();
    const Tensor error = mse(layer(x), y);
    backward(error);
    if (step % 40 == 0) std::printf("%4d   %.4f\n", step, mean(error).item());
    optimizer.step();
  }

  // ---- 6. It has found the plane.
  const auto w = layer.weight().to_vector<double>();
  std::printf("\nfound    y = %.2f a + %.2f b + %.2f\n", w[0], w[1], layer.bias().item());
  std::printf("wanted   y = 3.00 a + -2.00 b + 0.50\n");
}
