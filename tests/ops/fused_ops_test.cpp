// Every fused op, on the CPU and on the emulator, against its meaning in plain ops, on all samples,
// in f32, f64 and bf16, and the products in TF32. The oracle is the reference in f64 on the rounded
// inputs; bounds: docs of the numerics, "same terms, other order", and a fused op may not be less
// accurate than the plain ops.
#include <gtest/gtest.h>

#include <map>

#include "core/device/launch_log.h"
#include "core/device/simt.h"
#include "core/parallel.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/gemm_library.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"
#include "tests/ops/device_samples.h"
#include "tests/test_util.h"

namespace sinter {

std::vector<Sample> row_chain_samples_of_activations();  // samples/row_chain.cpp

namespace {

// Fresh operands of a sample in another type; floating f64 operands change, bf16 copies, indices,
// labels and states stay. What is strided stays so, and views of one storage, as an op may take
// neighbours together.
Tensors convert(const OpDef& op, Operands in, DType dtype) {
  Tensors out;
  std::map<std::pair<uint64_t, DType>, std::shared_ptr<Storage>> wholes;
  for (size_t i = 0; i < in.size(); ++i) {
    const Tensor& x = in[i];
    const DType wanted = operand_type(op, i, in.size(), dtype);
    if (!x.defined()) {
      out.push_back({});
    } else if (x.dtype() != DType::f64 &&
               !(dtype == DType::f64 && x.dtype() != DType::bf16 && is_float(x.dtype()))) {
      out.push_back(copy(x));
    } else {
      auto& whole = wholes[{x.storage()->uid(), wanted}];
      if (!whole) {
        const int64_t n = int64_t(x.storage()->bytes() / size_of(x.dtype()));
        const Tensor all = Tensor::view_of(x.storage(), x.dtype(), {n}, {1}, 0);
        whole = (x.dtype() == wanted ? copy(all) : cast(all, wanted)).storage();
      }
      out.push_back(Tensor::view_of(whole, wanted, x.shape(), x.strides(), x.offset()));
    }
  }
  return out;
}

// Results of one run: outputs, then inputs that were written, as f64 (indices and states as bytes).
std::vector<std::vector<double>> results(
    const OpDef& op, Tensors in, const Attrs& attrs, bool fused, Device device = kCpu) {
  if (device != kCpu) in = there(in, device);
  Tensors out = fused ? apply(op, in, attrs) : op.reference(in, attrs);
  for (size_t i = 0; i < in.size(); ++i) {
    if (op.writes_input(i, in.size()) && in[i].defined()) out.push_back(in[i]);
  }
  std::vector<std::vector<double>> values;
  for (const Tensor& t : out) values.push_back(t.to_vector<double>());
  return values;
}

void compare(const OpDef& op, const Sample& sample, DType dtype, Device device) {
  const Tensors in = convert(op, sample.in, dtype);
  const Attrs attrs = with_dtype(sample.attrs, dtype);
  const auto fused = results(op, convert(op, in, dtype), attrs, true, device),
             eager = results(op, convert(op, in, dtype), attrs, false, device);
  Tensors exact_in;
  for (const Tensor& t : in)
    exact_in.push_back(
        t.defined() && is_float(t.dtype()) && t.dtype() != DType::f64 ? cast(t, DType::f64) : t);
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].defined() && sample.in[i].dtype() == DType::bf16)
      exact_in[i] = copy(sample.in[i]);  // bf16 copies of parameters stay
    if (in[i].defined() && exact_in[i].is_same(in[i]) && op.writes_input(i, in.size()))
      exact_in[i] = copy(in[i]);
  }
  const auto exact = results(op, exact_in, with_dtype(sample.attrs, DType::f64), false);
  ASSERT_EQ(fused.size(), eager.size());
  const double u = dtype == DType::f64    ? 0x1p-53
                   : dtype == DType::bf16 ? 0x1p-8
                   : allow_tf32()         ? 0x1p-10
                                          : 0x1p-24;
  // Eager f32 products on the emulator add k in up to 16 shares (ops/product/fast/gemm_ffma.cuh).
  // Rounding errors of a sum add up as a random walk, so each share's are smaller by the root of 16
  // than those of one long sum, as kernels with a product of their own may have.
  const double one_sum = device.type == Device::Type::simt && dtype == DType::f32 ? 4 : 1;
  for (size_t r = 0; r < fused.size(); ++r) {
    SCOPED_TRACE(str("result ", r));
    EXPECT_TRUE(
        test::close(fused[r], eager[r], {.of_largest = 64 * u, .same_nan = true, .empty = true}));
    const double size = test::norm(exact[r]);
    if (dtype != DType::f64 && std::isfinite(size)) {  // there are numbers, and all are finite
      EXPECT_TRUE(test::near(
          fused[r], exact[r], 1.25 * one_sum * test::distance(eager[r], exact[r]) + u * size));
    }
  }
}

void agree_with_their_references(Device device) {
  over_samples(fused_ops(), false, [&](const OpDef& op, const Sample& sample) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      if (!op.kernel(device.type) || !takes(op, dtype)) continue;
      SCOPED_TRACE(name_of(dtype));
      ASSERT_NO_THROW(compare(op, sample, dtype, device));
    }
  });
}

TEST(FusedOps, AgreeWithTheirReferences) {
  if (test::kSanitized) GTEST_SKIP() << "DeviceParity.ValuesOfTheCpu runs these kernels";
  agree_with_their_references(kCpu);
}
TEST(FusedOpsSimt, AgreeWithTheirReferencesOnTheEmulator) { agree_with_their_references(kSimt); }

TEST(FusedOpsSimt, AgreeWithTheirReferencesInTf32) {
  const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
  const OpDef* const ops[] = {&kProductChainOp, &kWeightBiasGradOp, &kWeightGradUpdateOp,
      &kRowChainOp, &kConvActPoolOp, &kConvActBackwardOp, &kConvActPoolBackwardOp};
  over_samples(ops, false, [](const OpDef& op, const Sample& sample) {
    const LaunchLog log;
    ASSERT_NO_THROW(compare(op, sample, DType::f32, kSimt));
    for (const LaunchShape& launch : log.launches())
      EXPECT_EQ(launch.kernel.find("_ffma_"), std::string::npos) << launch.kernel;
  });
}

TEST(FusedOpsSimt, AChainOfRowsHasAnyActivation) {
  for (const Sample& sample : row_chain_samples_of_activations()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(str(sample.what, ", ", name_of(dtype)));
      ASSERT_NO_THROW(compare(kRowChainOp, sample, dtype, kSimt));
    }
  }
}

// Of more rows than blocks take at once, a block takes 16 after the other, with the same weights.
TEST(FusedOpsSimt, ABlockTakesRowsAfterRowsThroughAChain) {
  simt::set_schedule({.multiprocessors = 1});
  int longer = 0;
  for (const Sample& sample : samples_of(kRowChainOp)) {
    if (sample.bad) continue;
    longer += sample.in[0].size(0) > 2 * 16;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(str(sample.what, ", ", name_of(dtype)));
      ASSERT_NO_THROW(compare(kRowChainOp, sample, dtype, kSimt));
    }
  }
  simt::set_schedule({});
  EXPECT_GE(longer, 2);
}

// Of more than the 4224 rows that a card's blocks take at once.
using FusedOpsGpu = test::GpuTest;
TEST_F(FusedOpsGpu, ABlockTakesRowsAfterRowsThroughAChain) {
  const std::vector<Sample> samples = samples_of(kRowChainOp);
  Sample many = *std::ranges::find(samples, std::string_view("whole tiles"),
      [](const Sample& sample) { return std::string_view(sample.what); });
  for (const size_t rows : {0, 1, 2}) many.in[rows] = cat(Tensors(100, many.in[rows]), 0);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    ASSERT_NO_THROW(compare(kRowChainOp, many, dtype, test::kCuda));
  }
}

// Own kernels do; of gemm() oneDNN's AVX2 kernels cut a sum in as many parts as suit the threads
// (core/device/cpu_gemm.h), so what calls it repeats for one number of them.
TEST(FusedOps, RepeatToTheBitForAnyNumberOfThreads) {
  const test::Scoped before(num_threads, set_num_threads, num_threads());
  over_samples(fused_ops(), false, [](const OpDef& op, const Sample& sample) {
    if (!op.cpu) return;
    const bool by_library = has_onednn() && (&op == &kGatedLinearOp || &op == &kProductChainOp);
    const auto run = [&](int threads) {
      set_num_threads(threads);
      std::vector<uint64_t> bits;
      for (const auto& values : results(op, convert(op, sample.in, DType::f32),
               with_dtype(sample.attrs, DType::f32), true)) {
        for (const double v : values) bits.push_back(std::bit_cast<uint64_t>(v));
      }
      return bits;
    };
    const auto one = run(by_library ? 3 : 1);
    EXPECT_EQ(one, run(3));
    EXPECT_EQ(one, run(3));
  });
}

TEST(FusedOps, ALimitIsThatOfTheDevice) {
  static const OpDef op{.name = "cpu_alone",
      .reference = [](Operands in, const Attrs&) { return Tensors{relu(in[0])}; },
      .limit = [](Operands in, const Attrs&) -> std::string {
        return in[0].device() == kCpu ? "" : "not on this device";
      }};
  const auto infer = [](Device device) {
    return infer_by_reference(op, Tensors{Tensor::meta({3, 4}, DType::f32, device)}, Attrs{});
  };
  EXPECT_EQ(infer(kCpu)[0].shape(), (Shape{3, 4}));
  test::expect_error(Error::Kind::shape, {"not on this device"}, [&] { infer(kSimt); });
}

TEST(ChainText, ReadsBackAndRefusesNonsense) {
  for (const Sample& sample : samples_of(kPointwiseChainOp)) {
    const ChainProgram& program = sample.attrs.as<ChainAttrs>().program;
    ChainProgram back;
    ASSERT_TRUE(parse_value(print_value(program), back)) << print_value(program);
    EXPECT_EQ(back, program);
  }
  ChainProgram p;
  ASSERT_TRUE(parse_value("2;mul(0,1);scale:0.5(2);3", p));
  EXPECT_EQ(print_value(p), "2;mul(0,1);scale:0.5(2);3");
  const char* const wrong[] = {"", "2", "2;mul(0,1)", "2;mul(0,1);", "2;mul(0,2);2", "2;mul(0);2",
      "2;mul(0,1,1);2", "2;mul(0,1;2", "2;mul(0,1);1", "2;mul(0,1);3", "2;nosuch(0,1);2",
      "2;scale:x(0);2", "9;neg(0);9", "2;mul(0,1);2,2,2,2", "1;div_backward(0,0,0);1",
      "1;where(0,0,0);1",
      "1;neg(0);neg(0);neg(0);neg(0);neg(0);neg(0);neg(0);neg(0);neg(0);neg(0);neg(0);1",
      "2;mul(0,1);2;3", "2;mul(-1,1);2", "1;neg(0);1junk"};
  for (const char* text : wrong) EXPECT_FALSE(parse_value(text, p)) << text;
}

TEST(Chain, SaysWhatItTakes) {
  for (const char* op : {"silu_backward", "relu_backward", "div_backward", "maximum_backward"})
    EXPECT_TRUE(chain_op_number(find_op(op)) >= 0) << op;
  for (const char* op : {"where", "where_backward", "sub_backward", "eq_backward", "linear"})
    EXPECT_FALSE(chain_op_number(find_op(op)) >= 0) << op;
  for (const char* op : {"relu", "relu_backward"})
    EXPECT_FALSE(chain_op_number(find_op(op), 1) >= 0) << op;
  EXPECT_NE(chain_op_number(find_op("div_backward")), chain_op_number(find_op("div_backward"), 1));
  const Shape shape{2, 3, 5};
  struct Case {
    Shape operand;
    int64_t inner, period;
  };
  for (const auto& [operand, inner, period] :
      {Case{{2, 3, 5}, 1, 30}, Case{{3, 5}, 1, 15}, Case{{5}, 1, 5}, Case{{1, 1, 5}, 1, 5},
          Case{{2, 3, 1}, 5, 6}, Case{{3, 1}, 5, 3}, Case{{2, 1, 1}, 15, 2}}) {
    const auto b = broadcast_of(Tensor::meta(operand), shape);
    ASSERT_TRUE(b) << operand.str();
    EXPECT_EQ(b->inner, inner) << operand.str();
    EXPECT_EQ(b->period, period) << operand.str();
    EXPECT_EQ(b->full, period == 30) << operand.str();
  }
  for (const Shape& number : {Shape{1}, Shape{}})
    EXPECT_EQ(broadcast_of(Tensor::meta(number), shape)->period, 1);
  for (const Shape& not_so : {Shape{2, 1, 5}, Shape{3}, Shape{1, 2, 3, 5}})
    EXPECT_FALSE(broadcast_of(Tensor::meta(not_so), shape)) << not_so.str();
  EXPECT_FALSE(broadcast_of(transpose(Tensor::zeros({5, 3})), shape));
  pointwise::Scale half;
  half.factor = 0.5;
  EXPECT_EQ(chain_param(find_op("scale"), half), 0.5);
}

// In f32 a chain and multi_tensor_update do the plain ops' arithmetic in the plain ops' order:
// no bit may differ.
TEST(FusedOps, AreBitwiseThePlainOpsWhereNothingIsReordered) {
  const OpDef* const ops[] = {&kPointwiseChainOp, &kMultiTensorUpdateOp};
  over_samples(ops, false, [](const OpDef& op, const Sample& sample) {
    EXPECT_EQ(results(op, convert(op, sample.in, DType::f32), sample.attrs, true),
        results(op, convert(op, sample.in, DType::f32), sample.attrs, false));
  });
}

// Lists of tensors have more operands than a mask has bits: strides are seen at any place.
TEST(FusedOps, StridedOperandsOfALongListAreSeen) {
  const OpDef* const ops[] = {&kMultiTensorUpdateOp, &kWeightGradUpdateOp};
  over_samples(ops, false, [](const OpDef& op, const Sample& sample) {
    if (sample.in.size() < 33) return;
    const auto wanted = results(op, convert(op, sample.in, DType::f64), sample.attrs, true);
    Tensors in = convert(op, sample.in, DType::f64);
    size_t strided = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!in[i].defined() || in[i].rank() != 2 || op.writes_input(i, in.size())) continue;
      in[i] = transpose(contiguous(transpose(in[i])));
      strided += i >= 32;
    }
    SCOPED_TRACE(str("strided behind the 32nd: ", strided));
    const auto got = results(op, in, sample.attrs, true);
    for (size_t r = 0; r < wanted.size(); ++r) {
      EXPECT_TRUE(test::close(got[r], wanted[r], {.absolute = 1e-9, .empty = true}))
          << "result " << r;
    }
  });
}

}  // namespace
}  // namespace sinter
