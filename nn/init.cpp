#include "nn/init.h"

#include <algorithm>
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

double fan(const Tensor& t, int dim) {
  SINTER_CHECK(t.rank() == 2, shape,
      cat("init: a weight [out, in] is wanted: found ", t.describe(), "; it has ", t.rank(),
          " dims"));
  return double(std::max<int64_t>(1, t.size(dim)));
}
double xavier_deviation(const Tensor& t, double gain) {
  return gain * std::sqrt(2 / (fan(t, 1) + fan(t, 0)));
}
double kaiming_deviation(const Tensor& t, double slope) {
  return std::sqrt(2 / (1 + slope * slope) / fan(t, 1));
}
// A uniform distribution on [-b, b] has the deviation b / sqrt(3).
void symmetric(const Tensor& t, double deviation, Stream& stream) {
  uniform(t, -deviation * std::sqrt(3.0), deviation * std::sqrt(3.0), stream);
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
  const auto [seed, index] = stream;
  fill(t, [&, seed = seed, index = index](uint64_t i) {
    return low + (high - low) * uniform_from_bits(philox_word(seed, index, i));
  });
  ++stream.index;
}

void normal(const Tensor& t, double mean, double deviation, Stream& stream) {
  const auto [seed, index] = stream;
  fill(t, [&, seed = seed, index = index](uint64_t i) {
    return mean + deviation * normal_from_bits(philox_word(seed, index, 2 * i),
                                  philox_word(seed, index, 2 * i + 1));
  });
  ++stream.index;
}

void xavier_uniform(const Tensor& t, Stream& stream, double gain) {
  symmetric(t, xavier_deviation(t, gain), stream);
}
void xavier_normal(const Tensor& t, Stream& stream, double gain) {
  normal(t, 0, xavier_deviation(t, gain), stream);
}
void kaiming_uniform(const Tensor& t, Stream& stream, double slope) {
  symmetric(t, kaiming_deviation(t, slope), stream);
}
void kaiming_normal(const Tensor& t, Stream& stream, double slope) {
  normal(t, 0, kaiming_deviation(t, slope), stream);
}

void linear_default(const Tensor& t, int64_t fan_in, Stream& stream) {
  const double bound = fan_in > 0 ? 1 / std::sqrt(double(fan_in)) : 0;
  uniform(t, -bound, bound, stream);
}

}  // namespace sinter::nn::init
