// 02_autograd: derivatives of whatever you compute, by one call.
//
// Every op that touches a tensor with requires_grad is noted on a tape. backward(y) reads the tape
// from its end to its beginning, and each op says how a small change of its result comes from small
// changes of its inputs (the chain rule). The sums land in .grad().
#include <iostream>

#include "autograd/autograd.h"
#include "ops/ops.h"

using namespace sinter;

int main() {
  // ---- 1. One variable. f(x) = x^3 has the derivative 3 x^2: at x = 2 that is 12.
  Tensor x = Tensor::from({2}, {1});
  x.set_requires_grad(true);
  backward(x * x * x);
  std::cout << "f(x) = x^3, x = 2:   df/dx = " << x.grad().item() << "\n\n";

  // ---- 2. Many variables at once. The cost of backward() does not grow with their number: that is
  // why training works.
  Tensor w = Tensor::from({1, -2, 3, 0.5, 1, -1}, {2, 3});
  w.set_requires_grad(true);
  const Tensor input = Tensor::from({1, 1, 2}, {1, 3});
  const Tensor y =
      sum(relu(linear(input, w)));  // both rows of w give a positive sum or are cut to 0
  backward(y);
  std::cout << "y = sum(relu(input w^T)) = " << y.item() << "\nw is\n"
            << w.values() << "\ndy/dw is\n"
            << w.grad().values()
            << "\n(the second row's sum was negative: relu cut it, so it has no influence)\n\n";

  // ---- 3. Gradients add up, over paths within one backward() and over several. zero them before a
  // new step (optimizers do).
  Tensor v = Tensor::from({3}, {1});
  v.set_requires_grad(true);
  backward(v * 2);
  backward(v * 5);
  std::cout << "after backward(v * 2) and backward(v * 5): dv = " << v.grad().item() << "\n\n";

  // ---- 4. A loss is a vector, one value per row of the batch. backward() of a vector
  // differentiates its mean.
  Tensor scores = Tensor::from({2, 0, 0, 0, 2, 0}, {2, 3});
  scores.set_requires_grad(true);
  const Tensor losses = cross_entropy(scores, Tensor::from(std::vector<int32_t>{0, 2}, {2}));
  backward(losses);
  std::cout << "losses per row " << losses.values()
            << "\nd mean / d scores is (softmax - one at the label) / 2:\n"
            << scores.grad().values(3) << "\n\n";

  // ---- 5. no_grad: nothing is noted, so nothing can be differentiated. Evaluation runs like this.
  {
    const NoGrad no_grad;
    const Tensor z = v * 2;
    std::cout << "inside no_grad, v * 2 requires grad: " << (z.requires_grad() ? "yes" : "no")
              << "\n";
  }

  // ---- 6. backward() uses the tape up, and says so when asked again.
  const Tensor once = v * v;
  backward(once);
  try {
    backward(once);
  } catch (const Error& error) {
    std::cout << "a second backward(once): " << error.what() << "\n\n";
  }

  // ---- 7. Do not trust: check. gradcheck compares backward() with differences (f(x + h) - f(x -
  // h)) / 2h, in f64.
  Tensor t = Tensor::from(std::vector<double>{0.3, -1.2, 2.0, 0.7}, {2, 2});
  t.set_requires_grad(true);
  const GradcheckResult result =
      gradcheck([](const Tensors& in) { return Tensors{silu(matmul(in[0], in[0]))}; }, {t});
  std::cout << "gradcheck of silu(t t): " << (result.ok ? "ok" : result.message) << "\n";
}
