// Clipping by the norm of all gradients, at the ends of what a type holds and over several types:
// squared_norm and clip_in_place, and clip_norm, which is both in one, on the CPU and the emulator.
#include <gtest/gtest.h>

#include "core/device/launch_log.h"
#include "ops/fused/fused.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"
#include "tests/ops/device_samples.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

// `gradients` scaled by the ops that nn::clip_grad_norm calls, or by the fused one.
Tensors clipped(const Tensors& gradients, double max_norm, bool fused) {
  if (fused) {
    apply(kClipNormOp, gradients, ClipAttrs{max_norm});
  } else {
    kClipNormOp.reference(gradients, ClipAttrs{max_norm});
  }
  return gradients;
}

// n elements of this magnitude, of both signs, with zeros between them and one that is 2^-20 of it.
Tensor gradient(int64_t n, double magnitude, DType dtype) {
  const Tensor t = sample_tensor({n}, 1);
  for (int64_t i = 0; i < n; ++i) {
    double& v = t.data<double>()[i];
    v = (i % 5 == 4 ? 0 : i == 7 ? 0x1p-20 : v) * magnitude;
  }
  return cast(t, dtype);
}

void check_extremes(Device device) {
  // Of one vector, of ragged vectors, and of several pieces and blocks.
  for (const int64_t n : {8, 1003, 40000}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      for (const double magnitude : {1.0, 1e18, 1e20, 1e37, 1e-18, 1e-20, 1e-25, 1e-30}) {
        for (const double share : {1e-1, 1e-12, 10.0}) {  // of the norm; 10: nothing to clip
          const Tensor g = gradient(n, magnitude, dtype);
          const std::vector<double> before = g.to_vector<double>();
          const double norm = test::norm(before), limit = norm * share;
          // The smallest result, 2^-20 of the largest, is to be a normal number.
          if (magnitude * share * 0x1p-21 < 1e-37) continue;
          std::vector<double> wanted = before;
          for (double& v : wanted) v *= std::min(1.0, share);
          for (const bool fused : {false, true}) {
            SCOPED_TRACE(str(n, " of ", name_of(dtype), " ", magnitude, " to ", limit, " on ",
                device.str(), fused ? ", fused" : ""));
            const Tensor found = clipped({g.to(device)}, limit, fused)[0];
            // A sum of squares in f32 is off by less than 1000 roundings of it, the norm by half.
            const double u = dtype == DType::bf16  ? 0x1p-8
                             : dtype == DType::f32 ? 0x1p-24
                                                   : 0x1p-53;
            EXPECT_TRUE(test::close(
                found, wanted, {.of_each = u + 500 * (dtype == DType::f64 ? 0x1p-53 : 0x1p-24)}));
          }
        }
      }
    }
  }
}
TEST(Clip, IsRightAtExtremeNorms) { check_extremes(kCpu); }
TEST(ClipSimt, IsRightAtExtremeNorms) { check_extremes(kSimt); }

// The norm of f32 numbers may be beyond every f32, and the factor below.
void check_norm_beyond_f32(Device device) {
  for (const bool fused : {false, true}) {
    const Tensor many = clipped({Tensor::full({100}, 3e38).to(device)}, 1, fused)[0];
    EXPECT_TRUE(test::close(many, std::vector<double>(100, 0.1), {.of_each = 1e-6, .empty = true}));
  }
}
TEST(Clip, TheNormMayBeBeyondTheType) { check_norm_beyond_f32(kCpu); }
TEST(ClipSimt, TheNormMayBeBeyondTheType) { check_norm_beyond_f32(kSimt); }

// An infinite norm takes what is finite to 0; one that is NaN makes all NaN.
void check_infinite(Device device) {
  for (const bool fused : {false, true}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      for (const double bad : {double(INFINITY), double(NAN)}) {
        const Tensor spoilt =
                         cast(Tensor::from(std::vector<double>{1, bad, -2}, {3}), dtype).to(device),
                     other = Tensor::ones({2}, dtype, device);
        clipped({spoilt, other}, 1, fused);
        const double left = std::isnan(bad) ? NAN : 0;
        EXPECT_TRUE(test::close(spoilt, {left, NAN, left}, {.same_nan = true}));
        EXPECT_TRUE(test::close(other, {left, left}, {.same_nan = true}));
      }
    }
  }
}
TEST(Clip, InfAndNaNReachAllGradients) { check_infinite(kCpu); }
TEST(ClipSimt, InfAndNaNReachAllGradients) { check_infinite(kSimt); }

// The plain ops take gradients of several types, and the norm is that of all; the fused one says
// that it does not.
void check_types(Device device) {
  const Tensor f32 = Tensor::ones({4}, DType::f32, device),
               f64 = Tensor::ones({8}, DType::f64, device),
               bf16 = Tensor::ones({4}, DType::bf16, device);
  for (const Tensors& order : {Tensors{f32, f64, bf16}, Tensors{bf16, f32, f64}}) {
    Tensors copies;
    for (const Tensor& t : order) copies.push_back(copy(t));
    for (const Tensor& t : clipped(copies, 1, false))
      EXPECT_TRUE(test::close(t, std::vector<double>(size_t(t.numel()), 0.25), {}));
  }
  test::expect_error(Error::Kind::shape, {"clip_norm", "bf16[4]", "f32[4]", "one type"}, [&] {
    clipped({f32, bf16}, 1, true);
  });
}
TEST(Clip, OfSeveralTypesIsByTheNormOfAll) { check_types(kCpu); }
TEST(ClipSimt, OfSeveralTypesIsByTheNormOfAll) { check_types(kSimt); }

using ClipGpu = test::GpuTest;

// Up to 2^15 elements the block that arrives last scales them; of more the factor comes from the
// launch before, and as many blocks scale as took the norm.
void check_many_elements(Device device) {
  for (const int64_t n : {1 << 15, (1 << 15) + 3}) {
    const Tensor large = Tensor::full({n}, 1e20, DType::f32).to(device);
    const LaunchLog log;
    clipped({large}, 1, true);
    EXPECT_EQ(log.launches().size(), n > 1 << 15 ? 2u : 1u);
    EXPECT_GT(log.launches().back().grid.x, 1);
    const double wanted = 1 / std::sqrt(double(n));
    const std::vector<double> values = large.to_vector<double>();
    EXPECT_NEAR(values.front() / wanted, 1, 1e-6);
    EXPECT_NEAR(values.back() / wanted, 1, 1e-6);
  }
}

TEST(ClipSimt, ManyElementsAreScaledByALaunchOfTheirOwn) { check_many_elements(kSimt); }
TEST_F(ClipGpu, ManyElementsAreScaledByALaunchOfTheirOwn) { check_many_elements(test::kCuda); }

// Each block finds its tensor among many, of which some are empty.
void check_table(Device device) {
  for (const int64_t count : {1, 2, 3, 48, 127, 128, 129, 300}) {
    Tensors many;
    double squares = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t n = i % 7 == 3 ? 0 : 1 + i % 5 * 1030;
      many.push_back(Tensor::full({n}, double(1 + i % 11), DType::f32).to(device));
      squares += double(n) * double((1 + i % 11) * (1 + i % 11));
    }
    clipped(many, 1, true);
    for (int64_t i = 0; i < count; ++i) {
      const size_t n = size_t(many[size_t(i)].numel());
      EXPECT_TRUE(test::close(many[size_t(i)],
          std::vector<double>(n, double(1 + i % 11) / std::sqrt(squares)),
          {.of_each = 1e-6, .empty = true}))
          << "tensor " << i << " of " << count;
    }
  }
}

TEST(ClipSimt, ATableOfManyTensors) { check_table(kSimt); }
TEST_F(ClipGpu, ATableOfManyTensors) { check_table(test::kCuda); }

}  // namespace
}  // namespace sinter
