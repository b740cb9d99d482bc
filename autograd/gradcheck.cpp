#include <cmath>
#include <numeric>

#include "autograd/autograd.h"
#include "core/device/memory.h"
#include "ops/ops.h"

namespace sinter {
namespace {

// One scalar of everything that f gives: the sum of its outputs, each element with its own fixed
// random weight.
Tensor weighted_sum(const Tensors& outputs) {
  Tensor total;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_float(outputs[i].dtype())) continue;
    const Tensor part = sum(mul(
        outputs[i], sample_tensor(outputs[i].shape(), 9000 + i, 0.5, 1.5).to(outputs[i].device())));
    total = total.defined() ? add(total, part) : part;
  }
  return total;
}

}  // namespace

GradcheckResult gradcheck(const std::function<Tensors(const Tensors&)>& f, const Tensors& inputs,
    const GradcheckOptions& options) {
  SINTER_CHECK(f, usage, "gradcheck: no function: it is null", "give what makes the tensors");
  for (const Tensor& in : inputs) {
    SINTER_CHECK(!in.requires_grad() || in.dtype() == DType::f64, dtype,
        str("gradcheck: inputs that require grad must be f64: found ", in.describe()));
    if (in.requires_grad()) in.autograd().grad = {};
  }
  clear_tape();
  backward(weighted_sum(f(inputs)));

  const NoGrad no_grad;
  GradcheckResult result;
  for (size_t n = 0; n < inputs.size(); ++n) {
    const Tensor& in = inputs[n];
    if (!in.requires_grad()) continue;
    const std::vector<double> analytic = in.grad().defined()
                                             ? in.grad().to_vector<double>()
                                             : std::vector<double>(size_t(in.numel()), 0.0);
    double* base = static_cast<double*>(in.storage()->data());
    const auto set = [&](int64_t at, double value) {
      copy_to_device(base + at, in.device(), &value, sizeof value);
    };
    for (int64_t i = 0; i < in.numel(); ++i) {
      const Dims index = index_of(i, in.shape());
      const int64_t at =
          std::inner_product(index.begin(), index.end(), in.strides().begin(), in.offset());
      double before;
      copy_to_host(&before, base + at, in.device(), sizeof before);
      set(at, before + options.step);
      const double high = weighted_sum(f(inputs)).item();
      set(at, before - options.step);
      const double low = weighted_sum(f(inputs)).item();
      set(at, before);
      const double numeric = (high - low) / (2 * options.step);
      const double error = std::abs(analytic[i] - numeric) / std::max(1.0, std::abs(numeric));
      if (error <= result.worst) continue;
      result.worst = error;
      if (!(error <= options.tolerance)) {
        result.ok = false;
        result.message = str("input ", n, " element ", i, ": backward gives ", analytic[i],
            ", central difference ", numeric);
      }
    }
  }
  return result;
}

}  // namespace sinter
