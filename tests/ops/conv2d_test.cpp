// conv2d by values that are known and by its definition, and what is special to it; gradients,
// types and devices are in the loops over all ops.
#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "core/device/launch_log.h"
#include "core/parallel.h"
#include "ops/image/conv2d.h"
#include "ops/product/gemm_library.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"
#include "tests/ops/device_samples.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

TEST(Conv2d, KnownValues) {
  const Tensor x = Tensor::from({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3}),
               weight = Tensor::from({1, 2, 3, 4}, {1, 1, 2, 2});
  EXPECT_EQ(conv2d(x, weight).to_vector<float>(), (std::vector<float>{37, 47, 67, 77}));
  EXPECT_EQ(conv2d(x, weight, Tensor::from({10}, {1})).to_vector<float>(),
      (std::vector<float>{47, 57, 77, 87}));
  // The windows at (-1, -1), (-1, 1), (1, -1) and (1, 1).
  EXPECT_EQ(conv2d(x, weight, {}, {2, 2, 1, 1}).to_vector<float>(),
      (std::vector<float>{4, 3 * 2 + 4 * 3, 4 * 2 + 7 * 4, 77}));
  // A window of one element over two channels, into three.
  const Tensor two = Tensor::from({1, 2, 3, 4}, {1, 2, 1, 2}),
               mix = Tensor::from({1, 0, 0, 1, 1, -1}, {3, 2, 1, 1});
  EXPECT_EQ(conv2d(two, mix).to_vector<float>(), (std::vector<float>{1, 2, 3, 4, -2, -2}));
}

TEST(Conv2d, KnownGradients) {
  Tensor x = Tensor::from({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3}).set_requires_grad(true),
         weight = Tensor::from({1, 2, 3, 4}, {1, 1, 2, 2}).set_requires_grad(true),
         bias = Tensor::from({0}, {1}).set_requires_grad(true);
  backward(conv2d(x, weight, bias), {.gradient = Tensor::from({1, 0, 0, 2}, {1, 1, 2, 2})});
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 2, 0, 3, 4 + 2, 4, 0, 6, 8}));
  EXPECT_EQ(weight.grad().to_vector<float>(), (std::vector<float>{11, 14, 20, 23}));
  EXPECT_EQ(bias.grad().to_vector<float>(), (std::vector<float>{3}));
}

// Small whole numbers, whose sums of at most 3000 terms no type rounds.
Tensor whole(const Shape& shape, uint64_t seed, DType type) {
  const Tensor t = sample_tensor(shape, seed, -3, 3);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = std::round(t.data<double>()[i]);
  return cast(t, type);
}

struct Conv2dByDefinition {
  std::vector<double> y, dx, dweight, dbias;
};
// Every product of a pixel, a weight and an output meets all three sums.
Conv2dByDefinition by_definition(
    const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& dy, Conv2dAttrs a) {
  const Conv2dSizes z = conv2d_sizes(x, weight, dy, a);
  const auto xs = x.to_vector<double>(), ws = weight.to_vector<double>(),
             bs = bias.to_vector<double>(), gs = dy.to_vector<double>();
  Conv2dByDefinition out{std::vector<double>(gs.size()), std::vector<double>(xs.size()),
      std::vector<double>(ws.size()), std::vector<double>(bs.size())};
  const auto index = [](std::initializer_list<std::pair<int64_t, int64_t>> parts) {
    size_t at = 0;
    for (const auto& [i, size] : parts) at = at * size_t(size) + size_t(i);
    return at;
  };
  for (size_t i = 0; i < gs.size(); ++i) {
    const auto flat = int64_t(i);
    const int64_t q = flat % z.q, p = flat / z.q % z.p, o = flat / (z.q * z.p) % z.o,
                  n = flat / (z.q * z.p * z.o);
    out.y[i] += bs[size_t(o)];
    out.dbias[size_t(o)] += gs[i];
    for (int64_t c = 0; c < z.c; ++c) {
      for (int64_t h = 0; h < z.h; ++h) {
        for (int64_t w = 0; w < z.w; ++w) {
          const int64_t r = h - p * a.stride_h + a.pad_h, s = w - q * a.stride_w + a.pad_w;
          if (r < 0 || r >= z.r || s < 0 || s >= z.s) continue;
          const size_t pixel = index({{n, z.n}, {c, z.c}, {h, z.h}, {w, z.w}}),
                       tap = index({{o, z.o}, {c, z.c}, {r, z.r}, {s, z.s}});
          out.y[i] += xs[pixel] * ws[tap];
          out.dx[pixel] += gs[i] * ws[tap];
          out.dweight[tap] += gs[i] * xs[pixel];
        }
      }
    }
  }
  return out;
}

struct Conv2dCase {
  Shape x, weight;
  Conv2dAttrs attrs;
};
const Conv2dCase kConv2dCases[] = {{{2, 1, 28, 28}, {6, 1, 5, 5}, {1, 1, 2, 2}},
    {{3, 6, 14, 14}, {16, 6, 5, 5}, {}}, {{1, 3, 9, 12}, {4, 3, 3, 7}, {2, 3, 1, 3}},
    {{33, 2, 4, 3}, {3, 2, 1, 1}, {1, 2, 0, 1}}, {{1, 3, 8, 8}, {5, 3, 7, 7}, {1, 1, 3, 3}},
    {{17, 20, 7, 6}, {18, 20, 3, 2}, {1, 1, 1, 0}}, {{2, 37, 9, 8}, {33, 37, 1, 3}, {1, 2, 0, 1}}};

TEST(Conv2d, IsItsDefinitionForwardAndBackward) {
  for (const Conv2dCase& c : kConv2dCases) {
    SCOPED_TRACE(str(c.x.str(), " * ", c.weight.str()));
    for (const DType type : {DType::f64, DType::f32}) {
      Tensor x = cast(sample_tensor(c.x, 1), type).set_requires_grad(true),
             weight = cast(sample_tensor(c.weight, 2), type).set_requires_grad(true),
             bias = cast(sample_tensor({c.weight[0]}, 3), type).set_requires_grad(true);
      const Tensor y = conv2d(x, weight, bias, c.attrs),
                   dy = cast(sample_tensor(y.shape(), 4, -1, 1), type);
      backward(y, {.gradient = dy});
      const Conv2dByDefinition wanted = by_definition(x, weight, bias, dy, c.attrs);
      // Sums of at most n = 1600 terms of at most 4: n u times the sum of their magnitudes, of
      // which random terms come near its root only.
      const double unit = type == DType::f64 ? 0x1p-53 : 0x1p-24, tolerance = 1600 * 4 * unit * 40;
      EXPECT_TRUE(test::close(y, wanted.y, {.absolute = tolerance}));
      EXPECT_TRUE(test::close(x.grad(), wanted.dx, {.absolute = tolerance}));
      EXPECT_TRUE(test::close(weight.grad(), wanted.dweight, {.absolute = tolerance}));
      EXPECT_TRUE(test::close(bias.grad(), wanted.dbias, {.absolute = tolerance}));
    }
  }
}

// Sums in bf16 are f32's: the result is rounded once, gradients of parameters not at all.
TEST(Conv2d, Bf16SumsInF32) {
  Tensor x = cast(sample_tensor({2, 3, 6, 6}, 1), DType::bf16).set_requires_grad(true),
         weight = cast(sample_tensor({4, 3, 3, 3}, 2), DType::bf16).set_requires_grad(true),
         bias = cast(sample_tensor({4}, 3), DType::f32).set_requires_grad(true);
  const Tensor y = conv2d(x, weight, bias);
  const Tensor exact =
      conv2d(cast(x, DType::f64), cast(weight, DType::f64), cast(bias, DType::f64));
  EXPECT_TRUE(test::close(y, exact, {.of_each = 0x1p-8, .absolute = 27 * 4 * 27 * 0x1p-24}));
  const Tensor dy = cast(sample_tensor(y.shape(), 4), DType::bf16);
  const NoGrad no_grad;
  EXPECT_EQ(
      apply1(kConv2dWeightGradOp, {dy, x}, Conv2dGradAttrs{1, 1, 0, 0, 3, 3}).dtype(), DType::f32);
  EXPECT_EQ(apply1(kConv2dBiasGradOp, {dy}).dtype(), DType::f32);
  EXPECT_EQ(apply1(kConv2dInputGradOp, {dy, weight}, Conv2dGradAttrs{1, 1, 0, 0, 6, 6}).dtype(),
      DType::bf16);
}

// Sums of small whole numbers are exact in f32 in any order (at most 1600 terms of at most 9), so
// that products by AMX, tails of tiles and the threads' shares show in every bit: y and dx are
// rounded once, dweight and dbias are not.
TEST(Conv2d, Bf16IsItsDefinitionToTheBit) {
  const auto rounded = [](std::vector<double> values) {
    for (double& v : values) v = bf16(float(v));
    return values;
  };
  for (const Conv2dCase& c : kConv2dCases) {
    SCOPED_TRACE(str(c.x.str(), " * ", c.weight.str()));
    const Tensor x = whole(c.x, 1, DType::bf16), weight = whole(c.weight, 2, DType::bf16),
                 bias = whole({c.weight[0]}, 3, DType::bf16);
    const Tensor y = conv2d(x, weight, bias, c.attrs), dy = whole(y.shape(), 4, DType::bf16);
    const Conv2dGradAttrs of_weight{c.attrs.stride_h, c.attrs.stride_w, c.attrs.pad_h,
        c.attrs.pad_w, weight.size(2), weight.size(3)};
    Conv2dGradAttrs of_x = of_weight;
    of_x.height = x.size(2);
    of_x.width = x.size(3);
    const Conv2dByDefinition wanted = by_definition(x, weight, bias, dy, c.attrs);
    EXPECT_TRUE(test::close(y, rounded(wanted.y), {}));
    EXPECT_TRUE(
        test::close(apply1(kConv2dInputGradOp, {dy, weight}, of_x), rounded(wanted.dx), {}));
    EXPECT_TRUE(test::close(apply1(kConv2dWeightGradOp, {dy, x}, of_weight), wanted.dweight, {}));
    EXPECT_TRUE(test::close(apply1(kConv2dBiasGradOp, {dy}), wanted.dbias, {}));
  }
}

// A NaN or an infinity of x reaches the windows that hold it, and no others.
TEST(Conv2d, NanAndInfinityGoThrough) {
  for (const float bad : {NAN, INFINITY}) {
    const Tensor x = Tensor::ones({1, 1, 4, 4});
    x.data<float>()[5] = bad;  // row 1, column 1
    const auto y = conv2d(x, Tensor::ones({1, 1, 2, 2}), {}, {1, 1, 1, 1}).to_vector<float>();
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t row = i / 5, column = i % 5;
      const bool holds = (row == 1 || row == 2) && (column == 1 || column == 2);
      EXPECT_EQ(!std::isfinite(y[i]), holds) << i;
    }
  }
}

TEST(Conv2d, AnEmptyBatchHasNoValuesAndNoGradient) {
  Tensor x = Tensor::ones({0, 2, 5, 5}).set_requires_grad(true),
         weight = Tensor::ones({3, 2, 3, 3}).set_requires_grad(true),
         bias = Tensor::ones({3}).set_requires_grad(true);
  const Tensor y = conv2d(x, weight, bias);
  EXPECT_EQ(y.shape(), (Shape{0, 3, 3, 3}));
  backward(y, {.gradient = Tensor::ones(y.shape())});
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>(54, 0));
  EXPECT_EQ(bias.grad().to_vector<float>(), std::vector<float>(3, 0));
}

// A slice of channels, and images that lie by columns.
TEST(Conv2d, StridedImages) {
  const Tensor all = sample_tensor({2, 5, 6, 4}, 1), weight = sample_tensor({3, 2, 3, 3}, 2);
  const Tensor part = slice(all, 1, 2, 4), turned = transpose(part, 2, 3);
  EXPECT_EQ(conv2d(part, weight).to_vector<double>(),
      conv2d(contiguous(part), weight).to_vector<double>());
  EXPECT_EQ(conv2d(turned, weight).to_vector<double>(),
      conv2d(contiguous(turned), weight).to_vector<double>());
}

TEST(Conv2d, TheNumberOfThreadsDoesNotShow) {
  const auto bits = [] {
    Tensor x = cast(sample_tensor({37, 3, 12, 12}, 1), DType::f32).set_requires_grad(true),
           weight = cast(sample_tensor({8, 3, 5, 5}, 2), DType::f32).set_requires_grad(true),
           bias = Tensor::ones({8}).set_requires_grad(true);
    const Tensor y = conv2d(x, weight, bias, {1, 1, 2, 2});
    backward(y, {.gradient = cast(sample_tensor(y.shape(), 3), DType::f32)});
    std::vector<float> all;
    for (const Tensor& t : {y, x.grad(), weight.grad(), bias.grad()}) {
      const auto values = t.to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const test::Scoped threads(num_threads, set_num_threads, 1);
  const auto one = bits();
  set_num_threads(3);
  const auto three = bits();
  EXPECT_TRUE(one == three);
}

// Small whole numbers, whose sums no core rounds: every core, over many tiles and, of the 3000
// terms of a weight, in shares, to the bit.
void check_exact_values(Device device) {
  const auto all_of = [&](Device device, DType type) {
    Tensor x = whole({40, 2, 9, 12}, 1, type).to(device).set_requires_grad(true),
           weight = whole({70, 2, 3, 2}, 2, type).to(device).set_requires_grad(true),
           bias = whole({70}, 3, wide(type)).to(device).set_requires_grad(true);
    const Tensor y = conv2d(x, weight, bias, {2, 1, 1, 2});
    backward(y, {.gradient = whole(y.shape(), 4, type).to(device)});
    std::vector<std::vector<double>> values;
    for (const Tensor& t : {y, x.grad(), weight.grad(), bias.grad()})
      values.push_back(t.to_vector<double>());
    return values;
  };
  const LaunchLog log;
  for (const DType type : {DType::f32, DType::f64, DType::bf16})
    EXPECT_EQ(all_of(device, type), all_of(kCpu, type)) << name_of(type);
  {
    const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
    EXPECT_EQ(all_of(device, DType::f32), all_of(kCpu, DType::f32)) << "TF32";
  }
  if (device != kSimt) return;  // cuDNN's may be
  const auto launches = log.launches();
  const auto in_shares = [](const LaunchShape& launch) { return launch.grid.z > 1; };
  EXPECT_EQ(std::ranges::count_if(launches, in_shares), 4) << "each core's weight gradient";
}
TEST(Conv2dSimt, EveryCoreGivesExactValues) { check_exact_values(kSimt); }
using Conv2dGpu = test::GpuTest;
TEST_F(Conv2dGpu, GivesExactValues) { check_exact_values(test::kCuda); }

TEST(Conv2d, CostCountsTheProducts) {
  const Tensor x = Tensor::ones({2, 3, 5, 5}), weight = Tensor::ones({4, 3, 3, 3}),
               bias = Tensor::ones({4}), dy = Tensor::ones({2, 4, 3, 3});
  const auto flops = [](const OpDef& op, const Tensors& in, const Attrs& attrs) {
    return op.cost(in, op.results(in, attrs), attrs).flops;
  };
  const int64_t products = 2 * 72 * 27;  // 72 elements of y, of 27 products each
  EXPECT_EQ(flops(kConv2dOp, {x, weight}, Conv2dAttrs{}), products);
  EXPECT_EQ(flops(kConv2dOp, {x, weight, bias}, Conv2dAttrs{}), products + 72);
  EXPECT_EQ(flops(kConv2dInputGradOp, {dy, weight}, Conv2dGradAttrs{1, 1, 0, 0, 5, 5}), products);
  EXPECT_EQ(flops(kConv2dWeightGradOp, {dy, x}, Conv2dGradAttrs{1, 1, 0, 0, 3, 3}), products);
  EXPECT_EQ(flops(kConv2dBiasGradOp, {dy}, {}), 72);
}

}  // namespace
}  // namespace sinter
