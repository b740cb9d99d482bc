// Every op on the emulator, and on a card where there is one, against the CPU, by one loop over
// all_ops() and their samples: values, gradients, adversarial data, refusals, launches, and that
// neither the order of threads nor memory that nobody wrote shows in a result. An op without a
// kernel fails.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <random>
#include <set>

#include "core/context.h"
#include "core/device/launch_log.h"
#include "core/device/memory.h"
#include "core/device/simt.h"
#include "measure/rounding.h"
#include "ops/product/gemm_library.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"
#include "tests/ops/device_samples.h"
#include "tests/ops/plain_loops.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

// Outputs, then inputs that were changed; in plain ops where the device has no kernel.
Tensors run(const OpDef& op, const Tensors& in, const Attrs& attrs) {
  const bool plain = !op.view && !op.kernel(in[0].device().type);
  Tensors all = plain ? op.reference(in, attrs) : apply(op, in, attrs);
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].defined() && op.writes_input(i, in.size())) all.push_back(in[i]);
  }
  return all;
}
std::vector<std::vector<double>> values_of(const Tensors& all) {
  std::vector<std::vector<double>> values;
  for (const Tensor& t : all)
    values.push_back(t.defined() ? t.to_vector<double>() : std::vector<double>{});
  return values;
}

// Does the same arithmetic in the same order on both devices, so that no bit may differ?
bool is_bitwise(const OpDef& op) {
  static const std::set<std::string_view> exact{"max", "max_backward", "argmax", "dropout",
      "gather_batch", "copy", "cast", "accumulate", "masked_fill_", "tril", "embedding",
      "embedding_weight_grad", "ignore_labels", "count_rows", "pad_slice", "nll_backward",
      "mse_backward", "pointwise_chain", "multi_tensor_update", "max_pool2d", "max_pool2d_backward",
      "avg_pool2d", "avg_pool2d_backward", "batch_norm2d_backward", "batch_norm2d_eval"};
  const auto pointwise = pointwise_ops();
  return op.view || optimizer_of(op) || exact.contains(op.text()) ||
         std::find(pointwise.begin(), pointwise.end(), &op) != pointwise.end();
}

// K, the terms of the longest sum.
double terms_of(const Tensors& in) {
  int64_t terms = 1;
  for (const Tensor& t : in)
    terms = t.defined() && t.dtype() != DType::u8
                ? std::max(terms, t.rank() == 2 ? std::max(t.size(0), t.size(1)) : t.numel())
                : terms;
  return double(terms);
}
// Of sums in another order (Note [How far a kernel may be from f64], measure/rounding.h), whose
// roundings may all go one way, as those of equal terms do: sqrt(K) / 2 times as far.
double sum_factor(const Tensors& in, DType dtype) {
  const double terms = terms_of(in);
  return rounding_of_sum(terms, dtype) * std::sqrt(terms) / 2;
}
// Where S is not at hand: K times the largest product.
double sum_tolerance(const Tensors& in, DType dtype) {
  const double m = largest_magnitude(in), terms = terms_of(in);
  return rounding_of_sum(terms, dtype) * terms * m * m;
}
// S of every element, for ops that are sums of products. Else nothing.
std::vector<std::vector<double>> magnitudes_of(
    const OpDef& op, const Sample& sample, const Tensors& in) {
  static const std::set<std::string_view> sums{"linear", "matmul", "sum", "mean", "sum_rows",
      "squared_norm", "weight_bias_grad", "conv2d", "conv2d_input_grad", "conv2d_weight_grad",
      "conv2d_bias_grad"};
  const bool gated = &op == &kGatedLinearOp;  // a product of two sums, of which each may be off; no
                                              // gate is steeper than 1.13
  const bool norm = &op == &kLayerNormBackwardOp;  // rstd (g - mean(g) - n mean(g n))
  if (!gated && !norm && !sums.contains(op.text())) return {};
  Tensors positive;
  for (const Tensor& t : in)
    positive.push_back(t.defined() && is_float(t.dtype()) ? abs(cast(t, DType::f64)) : t);
  Attrs attrs = with_dtype(sample.attrs, DType::f64);
  if (norm) {  // n = (|x| + |mean|) rstd, and the two minus signs turned
    const Tensor g = mul(positive[0], positive[2]);
    const std::vector<double> own = g.to_vector<double>(), rstd = positive[4].to_vector<double>();
    positive[3] = neg(positive[3]);
    auto values = values_of(run(op, positive, attrs));
    for (size_t i = 0; i < own.size(); ++i)
      values[0][i] = 2 * rstd[i * rstd.size() / own.size()] * own[i] - values[0][i];
    return values;
  }
  if (!gated) return values_of(magnitudes(op, positive, run(op, positive, attrs), attrs));
  attrs.parse("act", "none");
  auto values = values_of(run(op, positive, attrs));
  for (double& v : values[0]) v *= 2 * 1.13;
  return values;
}

// To the bit; any NaN is a NaN.
void expect_same(const Tensors& found, const Tensors& cpu) {
  const auto bits = [](const Tensors& all) {
    std::vector<std::vector<uint64_t>> lists;
    for (const auto& values : values_of(all)) {
      lists.emplace_back();
      for (const double v : values)
        lists.back().push_back(std::bit_cast<uint64_t>(std::isnan(v) ? NAN : v));
    }
    return lists;
  };
  EXPECT_EQ(bits(found), bits(cpu));
}

// `scale`: factors of the tolerance for each element of each result; none: 1.
void expect_close(const Tensors& found, const Tensors& cpu, DType dtype, double tolerance,
    const std::vector<std::vector<double>>& scale = {}) {
  ASSERT_EQ(found.size(), cpu.size());
  const auto got = values_of(found), wanted = values_of(cpu);
  const auto unit = [](DType t) {
    return t == DType::bf16 ? 0x1p-8 : t == DType::f32 ? 0x1p-24 : 0x1p-53;
  };
  for (size_t r = 0; r < got.size(); ++r) {
    // A bf16 copy of an f32 parameter is rounded once more, by each side.
    const bool copy = found[r].defined() && found[r].dtype() == DType::bf16;
    std::vector<double> allowed(got[r].size(), tolerance);
    for (size_t i = 0; !scale.empty() && i < allowed.size(); ++i) {
      allowed[i] *= scale[r].at(i);
      if (std::isnan(allowed[i])) allowed[i] = INFINITY;  // of a NaN, which both sides must have
    }
    EXPECT_TRUE(test::close(got[r], wanted[r],
        {.of_each = 2 * unit(copy ? DType::bf16 : dtype),  // one rounding by each side
            .each = allowed,
            .same_nan = true,
            .empty = true}))
        << "result " << r;
  }
}

// No element may be as fresh memory is.
void expect_written(const Tensors& out) {
  for (const Tensor& t : out) {
    if (!t.defined() || !is_float(t.dtype())) continue;
    const Tensor host = t.to(kCpu);
    const auto* p = static_cast<const unsigned char*>(host.raw());
    const size_t size = size_of(t.dtype());
    for (int64_t i = 0; i < t.numel(); ++i) {
      const unsigned char* at = p + size_t(i) * size;
      ASSERT_FALSE(std::all_of(at, at + size, [](unsigned char b) { return b == 0xff; }))
          << "element " << i << " of " << t.describe() << " was not written";
    }
  }
}

enum class Data { plain, one_nan, one_inf, denormal, large, equal, negative };
constexpr Data kAdversarial[] = {
    Data::one_nan, Data::one_inf, Data::denormal, Data::large, Data::equal, Data::negative};
const char* const kDataNames[] = {
    "plain", "one NaN", "one Inf", "denormal", "one +120", "all equal", "all negative"};

// Changes floating operands in place: every element, or the one in the middle.
void spoil(const Tensors& in, Data data) {
  for (const Tensor& t : in) {
    if (!t.defined() || !is_float(t.dtype())) continue;
    visit_float(t.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const Tensor all = elements_of(t);
      T* p = all.data<T>();
      const int64_t n = all.numel();
      const auto each = [&](double v) { std::fill_n(p, n, static_cast<T>(v)); };
      const double tiny = t.dtype() == DType::f64 ? 1e-310 : 1e-40;
      if (n == 0) return;
      if (data == Data::one_nan)
        p[n / 2] = static_cast<T>(std::numeric_limits<double>::quiet_NaN());
      if (data == Data::one_inf) p[n / 2] = static_cast<T>(std::numeric_limits<double>::infinity());
      if (data == Data::large) p[n / 2] = static_cast<T>(120.0);
      if (data == Data::denormal) {
        for (int64_t i = 0; i < n; ++i)
          p[i] = static_cast<T>(i % 3 == 0 ? tiny : i % 3 == 1 ? -tiny : -0.0);
      }
      if (data == Data::equal) each(0.5);
      if (data == Data::negative) each(-1);
    });
  }
}

// Those that may be infinite or NaN. What meets the zeros around an image may not: a kernel makes
// NaN of 0 * Inf, or leaves that product out.
Tensors may_be_infinite(const OpDef& op, const Tensors& in) {
  if (&op == &kConv2dOp || &op == &kConvActPoolOp || &op == &kProductChainOp)
    return {in[0], in.size() > 2 ? in[2] : Tensor()};
  if (&op == &kConv2dInputGradOp) return {in[0]};
  if (&op == &kConvActBackwardOp || &op == &kConvActPoolBackwardOp) return {in[0]};
  if (&op == &kConv2dWeightGradOp) return {in[1]};
  return in;
}

// Kernels that apply() starts for these operands: one, and a copy of every strided operand that the
// kernel does not take. None is logged of the CPU.
int64_t launches_of(const OpDef& op, const Tensors& in, const Attrs& attrs) {
  if (in[0].device() == kCpu) return 0;
  const bool on_host = op.cpu == op.simt;  // a sum over ranks: the communicator's to launch
  int64_t n = op.view || on_host ? 0 : 1;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool any_strides =
        op.view || op.takes_strides(i, in.size(), attrs) || op.writes_input(i, in.size());
    n += !any_strides && in[i].defined() && !in[i].is_contiguous() && in[i].numel() > 0;
  }
  return n;
}

// exp and its kin in f64 are the C library's here and CUDA's there.
bool other_math(Device device, DType dtype) {
  return device.type == Device::Type::cuda && dtype == DType::f64;
}

// Bounds take most of the time. What is the same on both devices is held to them by the emulator's
// case; the CPU's own is for the memory of its kernels under a sanitizer, and for --quick.
bool has_bounds(Device device) { return device != kCpu || std::getenv("SINTER_QUICK") != nullptr; }

// The exact results; of an op with plain loops by those, so that its formula is not judged by
// itself.
std::vector<ExactResult> wanted_results(const OpDef& op, const Tensors& in, const Attrs& attrs) {
  std::vector<ExactResult> exact = exact_results(op, in, attrs);
  const plain::Lists lists = plain::results(op, in, attrs);
  EXPECT_TRUE(lists.empty() || lists.size() == exact.size());
  for (size_t r = 0; r < lists.size(); ++r) {
    const std::vector<double> values(lists[r].begin(), lists[r].end());
    exact[r].value = Tensor::from(values, exact[r].value.shape());
  }
  return exact;
}

// Results, then what was changed, within the bounds of measure/rounding.h. `share` of a result, if
// it is one, must show.
void expect_exact(Tensors found, const OpDef& op, const Tensors& operands,
    const std::vector<ExactResult>& exact, double share = 0) {
  const Tensors changed = changed_operands(op, operands);
  found.resize(exact.size() - changed.size());  // without what is changed and no number
  found.insert(found.end(), changed.begin(), changed.end());
  for (size_t r = 0; r < exact.size(); ++r) {
    const test::Within within{.each = exact[r].bound, .same_nan = true, .empty = true};
    std::vector<double> values = exact[r].value.to_vector<double>();
    for (double& v : values) {  // what is beyond the type's largest number is infinite
      const bool beyond = std::abs(v) > std::numeric_limits<float>::max();
      if (beyond && found[r].dtype() != DType::f64) v = std::copysign(INFINITY, v);
    }
    const Tensor wanted = Tensor::from(values, exact[r].value.shape());
    EXPECT_TRUE(test::close(found[r], wanted, within))
        << "result " << r << " on " << found[r].device().str();
    if (share == 0 || std::ranges::all_of(values, [](double v) { return v == 0; })) continue;
    for (double& v : values) v *= 1 + share;
    EXPECT_TRUE(test::apart(values, wanted, within))
        << "result " << r << ": " << share << " of it must show";
  }
}

void compare(Device device, const OpDef& op, const Sample& sample, DType dtype, Data data) {
  const Tensors in = with_dtype(op, sample.in, dtype);
  const Attrs attrs = with_dtype(sample.attrs, dtype);
  const bool infinite = data == Data::one_nan || data == Data::one_inf;
  spoil(infinite ? may_be_infinite(op, in) : in, data);
  const Tensors mine = there(in, kCpu), theirs = there(in, device);
  const Tensors cpu = run(op, mine, attrs);
  const LaunchLog log;
  const Tensors got = run(op, theirs, attrs);
  const int64_t by_library = test::library_launches(log), most = launches_of(op, theirs, attrs),
                launched = std::ssize(log.launches()) - std::max<int64_t>(by_library - 1, 0);
  EXPECT_LE(launched, most);
  if (got[0].numel() > 0) {
    EXPECT_EQ(launched, most);
  }
  for (const Tensor& t : got) EXPECT_EQ(t.device(), device);
  const bool bitwise = is_bitwise(op) && !other_math(device, dtype);
  if (bitwise) expect_same(got, cpu);
  if (data == Data::plain) {
    const bool has_loops = plain::has(op);
    if (!op.view && &op != &kGatherBatchOp && (has_loops || has_bounds(device))) {  // of no f64
      const std::vector<ExactResult> exact = wanted_results(op, in, attrs);
      const bool must_show = has_loops && dtype != DType::bf16 && got[0].numel() > 0;
      const double share = must_show ? 0.01 : 0;
      expect_exact(got, op, theirs, exact, share);
      if (!bitwise) expect_exact(cpu, op, mine, exact);
    }
  } else if (const auto scale = magnitudes_of(op, sample, in); !scale.empty()) {
    expect_close(got, cpu, dtype, sum_factor(in, dtype), scale);
  } else if (!bitwise && data == Data::large) {  // of which sum_tolerance() would allow anything
    expect_exact(got, op, theirs, wanted_results(op, in, attrs));
  } else if (!bitwise) {
    expect_close(got, cpu, dtype, sum_tolerance(in, dtype));
  }
  if (device == kSimt) expect_written(got);  // elsewhere memory does not begin as NaN
}

TEST(DeviceParitySimt, EveryOpHasAKernel) {
  for (const OpDef* op : all_ops())
    EXPECT_TRUE(op->view || op->simt) << op->text() << " has no kernel for simt";
}

void check_values(Device device) {
  for_each_sample(false, [=](const OpDef& op, const Sample& sample, const std::string& what) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      if (!takes(op, dtype)) continue;
      SCOPED_TRACE(str(what, ", ", name_of(dtype)));
      ASSERT_NO_THROW(compare(device, op, sample, dtype, Data::plain));
    }
  });
}

void check_adversarial_values(Device device) {
  for_each_sample(false, [=](const OpDef& op, const Sample& sample, const std::string& what) {
    for (const Data data : kAdversarial) {
      SCOPED_TRACE(str(what, ", ", kDataNames[int(data)]));
      ASSERT_NO_THROW(compare(device, op, sample, DType::f32, data));
    }
  });
}

// The gradients of a sample as results of a fused op, which stands for the ops of forward and
// backward: measure/rounding.h bounds it by theirs. A reference is a function, so what it is to
// differentiate, and the tape, which exact_results() takes off, stand beside it.
struct {
  const OpDef* op = nullptr;
  bool first_only = false;
  std::vector<Recorder*> tape;
} differentiated;
const OpDef kGradientsOp{.name = "gradients", .reference = [](Operands in, const Attrs& attrs) {
                           const GradMode on(true);
                           auto& recorders = Context::current().recorders;
                           const std::vector<Recorder*> before = recorders;
                           std::ranges::copy(differentiated.tape, std::back_inserter(recorders));
                           const Tensors fresh = there({in.begin(), in.end()}, kCpu);
                           const Tensors grads = gradients(
                               *differentiated.op, fresh, attrs, differentiated.first_only);
                           recorders = before;
                           return grads;
                         }};

void check_gradients(Device device) {
  for_each_sample(false, [=](const OpDef& op, const Sample& sample, const std::string& what) {
    if (!op.backward || !sample.differentiable) return;
    for (const DType dtype : {DType::f32, DType::bf16}) {  // f64's backward ops are in Values
      if (test::kSanitized && dtype != DType::f32) continue;
      SCOPED_TRACE(str(what, ", ", name_of(dtype)));
      const Tensors in = with_dtype(op, sample.in, dtype);
      const Attrs attrs = with_dtype(sample.attrs, dtype);
      std::vector<ExactResult> exact;
      Tensors got;
      ASSERT_NO_THROW(got = gradients(op, there(in, device), attrs, sample.first_only));
      if (op.text() == "max") {  // a maximum that a rounding moved is no element's
        expect_same(got, gradients(op, there(in, kCpu), attrs));
        continue;
      }
      differentiated = {&op, sample.first_only, Context::current().recorders};
      ASSERT_NO_THROW(exact = exact_results(kGradientsOp, in, attrs));
      ASSERT_EQ(got.size(), exact.size());
      for (size_t r = 0; r < got.size(); ++r) {
        const test::Within within{.each = exact[r].bound, .empty = true};
        EXPECT_TRUE(test::close(got[r], exact[r].value, within)) << "gradient " << r;
        const bool zero = test::close(exact[r].value, Tensor::zeros(got[r].shape()), {});
        if (dtype == DType::bf16 || zero || got[r].numel() == 0) continue;
        // Of batch norm's weight the terms nearly cancel, and its bound is that of the largest.
        const double share = op.text() == "batch_norm2d" ? 0.05 : 0.01;
        EXPECT_TRUE(test::apart(scale(got[r], 1 + share), exact[r].value, within))
            << "gradient " << r << ": " << share << " of it must show";
      }
      if (device == kSimt) expect_written(got);
    }
  });
}

TEST(DeviceParity, ValuesOfTheCpu) { check_values(kCpu); }
TEST(DeviceParitySimt, Values) { check_values(kSimt); }
TEST(DeviceParitySimt, AdversarialValues) { check_adversarial_values(kSimt); }
TEST(DeviceParitySimt, Gradients) { check_gradients(kSimt); }

using test::kCuda;
using DeviceParityGpu = test::GpuTest;
TEST_F(DeviceParityGpu, Values) { check_values(kCuda); }
TEST_F(DeviceParityGpu, AdversarialValues) { check_adversarial_values(kCuda); }
TEST_F(DeviceParityGpu, Gradients) { check_gradients(kCuda); }
TEST_F(DeviceParityGpu, ValuesOfOwnProducts) {
  const ScopedChoiceRule rule(ChoiceRule::own);
  check_values(kCuda);
}

TEST(DeviceParitySimt, BadInputsAreRefusedInTheSameWords) {
  for_each_sample(true, [](const OpDef& op, const Sample& sample, const std::string& what) {
    SCOPED_TRACE(what);
    const auto refusal = [&](Device device) {
      try {
        apply(op, there(sample.in, device), sample.attrs);
      } catch (const Error& error) {
        return str(int(error.kind()), ": ", error.message());
      }
      return std::string("accepted");
    };
    std::string wanted = refusal(kCpu);
    for (size_t at = 0; (at = wanted.find("] cpu", at)) != std::string::npos;)
      wanted.replace(at, 5, "] simt");
    EXPECT_EQ(refusal(kSimt), wanted);
  });
}

// Results to the bit, whatever runs first. A run is repeated by SINTER_TEST_SEED.
TEST(DeviceParitySimt, NoOrderOfThreadsShows) {
  const char* const given = std::getenv("SINTER_TEST_SEED");
  const uint64_t fresh = given ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cout << "SINTER_TEST_SEED=" << fresh << " repeats this run\n";
  using Order = simt::Schedule::Order;
  for_each_sample(false, [&](const OpDef& op, const Sample& sample, const std::string& what) {
    const Tensors in = with_dtype(op, sample.in, DType::f32);
    const Attrs attrs = with_dtype(sample.attrs, DType::f32);
    const auto result = [&](const simt::Schedule& schedule) {
      simt::set_schedule(schedule);
      const auto values = values_of(run(op, there(in, kSimt), attrs));
      simt::set_schedule({});
      std::vector<uint64_t> bits;
      for (const auto& list : values) {
        for (const double v : list) bits.push_back(std::bit_cast<uint64_t>(v));
      }
      return bits;
    };
    SCOPED_TRACE(what);
    std::vector<uint64_t> wanted;
    ASSERT_NO_THROW(wanted = result({}));
    for (const simt::Schedule& schedule : {simt::Schedule{Order::reversed, 0},
             {Order::one_warp_ahead, 1}, {Order::shuffled, 2}, {Order::shuffled, fresh}})
      ASSERT_NO_THROW(EXPECT_EQ(result(schedule), wanted)
                      << "order " << int(schedule.order) << ", seed " << schedule.seed);
  });
}

TEST(DeviceParitySimt, BadDataIsReportedWhenTheDeviceIsAsked) {
  const Tensor logp = cast(sample_tensor({3, 4}, 1), DType::f32).to(kSimt),
               label = Tensor::from<int32_t>({1, 4, 0}, {3}, kSimt);
  test::expect_error(Error::Kind::data, {"label out of range"}, [&] {
    nll(logp, label);
    synchronize(kSimt);
  });
}

TEST(DeviceParitySimt, OperandsOnTwoDevicesAreRefused) {
  test::expect_error(Error::Kind::device, {"two devices: f32[2] cpu and f32[2] simt"},
      [] { add(Tensor::ones({2}), Tensor::ones({2}, DType::f32, kSimt)); });
}

}  // namespace
}  // namespace sinter
