#include "nn/init.h"

#include <cmath>
#include <vector>

#include "core/device/memory.h"
#include "core/error.h"
#include "core/rng.h"

namespace sinter::nn::init {
namespace {

// Element i becomes value(i), computed on the host. REQUIRES: dense, as parameters are.
template <class F> void fill(const Tensor& t, F&& value) {
  SINTER_ASSERT(t.is_contiguous(), "init of ", t.describe());
  visit_float(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> drawn(size_t(t.numel()));
    for (size_t i = 0; i < drawn.size(); ++i) drawn[i] = T(value(i));
    copy_to_device(t.raw(), t.device(), drawn.data(), drawn.size() * sizeof(T));
  });
  t.storage()->bump_version("init");
}

}  // namespace

Stream& default_stream() {
  static thread_local Stream stream;
  return stream;
}
void manual_seed(uint64_t seed) { default_stream() = {seed, 0}; }

void zeros(const Tensor& t) {
  fill(t, [](uint64_t) { return 0.0; });
}
void ones(const Tensor& t) {
  fill(t, [](uint64_t) { return 1.0; });
}

void uniform(const Tensor& t, double low, double high, Stream& stream) {
  const Stream at{stream.seed, stream.index++};
  fill(t, [&](uint64_t i) {
    return low + (high - low) * uniform_from_bits(philox_word(at.seed, at.index, i));
  });
}

void normal(const Tensor& t, double mean, double deviation, Stream& stream) {
  const Stream at{stream.seed, stream.index++};
  fill(t, [&](uint64_t i) {
    return mean + deviation * normal_from_bits(philox_word(at.seed, at.index, 2 * i),
                                  philox_word(at.seed, at.index, 2 * i + 1));
  });
}

void linear_default(const Tensor& t, int64_t fan_in, Stream& stream) {
  const double bound = fan_in > 0 ? 1 / std::sqrt(double(fan_in)) : 0;
  uniform(t, -bound, bound, stream);
}

}  // namespace sinter::nn::init
