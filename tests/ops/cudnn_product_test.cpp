// Large products with what follows them as graphs of cuDNN's, on a recorder that keeps the graphs:
// what is asked means what the op means, and where the library refuses, fails or is slower, the
// path is the one without it.
#include <gtest/gtest.h>

#include "ops/fused/activation.h"
#include "ops/ops.h"
#include "ops/product/gemm_library.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"
#include "tests/ops/ends.h"
#include "tests/test_util.h"

#if SINTER_HAS_CUDA && SINTER_HAS_CUDNN
#include "core/device/cuda.h"
#include "core/device/cuda_graph.h"
#include "core/device/memory.h"
#include "tests/cuda_recorder.h"
#endif

namespace sinter {
namespace {

#if !SINTER_HAS_CUDA || !SINTER_HAS_CUDNN

TEST(CudnnProduct, NotInThisBuild) {
  GTEST_SKIP()
      << "cuDNN's headers are not there; the recorder needs the headers of the CUDA toolkit";
}

#else

using cuda::FakeToolkit;
using test::kCuda;

// A graph's meaning at one element of its results: by the id of their tensors. All in f32.
std::map<int64_t, float> evaluate(const FakeToolkit::GraphRun& run, int64_t i, int64_t j) {
  std::map<int64_t, float> values;
  const auto at = [&](const FakeToolkit::GraphTensor& t, int64_t row, int64_t col) {
    EXPECT_EQ(t.type, CUDNN_DATA_FLOAT);
    if (const auto made = values.find(t.id); made != values.end()) return made->second;
    EXPECT_FALSE(t.is_virtual) << "read before it is made";
    return static_cast<const float*>(
        FakeToolkit::host(run.memory.at(t.id)))[std::min(row, t.dims[1] - 1) * t.strides[1] +
                                                std::min(col, t.dims[2] - 1) * t.strides[2]];
  };
  for (const FakeToolkit::GraphOperation& o : run.operations) {
    float to = 0;
    if (o.mode < 0) {
      for (int64_t k = 0; k < o.x.dims[2]; ++k) to += at(o.x, i, k) * at(o.other, k, j);
    } else {
      const float x = at(o.x, i, j), other = o.other.dims.empty() ? 0 : at(o.other, i, j);
      switch (o.mode) {
        case CUDNN_POINTWISE_IDENTITY: to = x; break;
        case CUDNN_POINTWISE_ADD: to = x + other; break;
        case CUDNN_POINTWISE_MUL: to = x * other; break;
        case CUDNN_POINTWISE_RELU_FWD: to = std::max(x, 0.0f); break;
        case CUDNN_POINTWISE_RELU_BWD: to = other > 0 ? x : 0; break;
        case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD: to = pointwise::GeluTanh{}.forward(x); break;
        case CUDNN_POINTWISE_GELU_APPROX_TANH_BWD: to = pointwise::GeluTanh{}.grad(x, other); break;
        default: ADD_FAILURE() << "mode " << o.mode;
      }
    }
    values[o.y.id] = to;
  }
  return values;
}

constexpr int64_t kRows = 2048, kIn = 1024, kOut = 512;  // 2^30 terms
Tensor on_card(const Shape& shape, uint64_t seed, DType dtype = DType::f32) {
  return cast(sample_tensor(shape, seed, -0.2, 0.2), dtype).to(kCuda);
}
struct Case {
  const char* what;
  const OpDef& op;
  Attrs attrs;
  Tensors in;
};
// Both layers of a gated unit; of operands without values where only who makes it is asked.
Case gate(Act act, bool keep, DType dtype = DType::f32, bool filled = false) {
  const auto operand = [&](int64_t rows, uint64_t seed) {
    return filled ? on_card({rows, kIn}, seed, dtype) : Tensor::empty({rows, kIn}, dtype, kCuda);
  };
  return {keep ? "gate that keeps" : "gate", kGatedLinearOp, GatedLinearAttrs{act, keep},
      {operand(kRows, 1), operand(kOut, 2), operand(kOut, 7)}};
}
std::vector<Case> cases() {
  const Tensor x = on_card({kRows, kIn}, 1), weight = on_card({kOut, kIn}, 2),
               bias = on_card({kOut}, 3), dy = on_card({kRows, kOut}, 4),
               saved = on_card({kRows, kIn}, 5), up = on_card({kRows, kIn}, 6);
  const auto forward = [](Act act, bool keep) { return ends::linear_act(act, keep); };
  return {{"relu", kProductChainOp, forward(Act::relu, false), {x, weight, bias}},
      {"gelu that keeps", kProductChainOp, forward(Act::gelu_tanh, true), {x, weight, bias}},
      {"relu backward", kProductChainOp, ends::input_grad_act(Act::relu), {dy, weight, {}, saved}},
      {"gelu backward", kProductChainOp, ends::input_grad_act(Act::gelu_tanh),
          {dy, weight, {}, saved}},
      {"gate backward", kProductChainOp, ends::gated_linear_backward(),
          {dy, weight, {}, saved, up}},
      {"gate backward, halves", kProductChainOp, ends::gated_linear_backward(Act::gelu_tanh, true),
          {dy, weight, {}, saved, up}},
      gate(Act::gelu_tanh, false, DType::f32, true), gate(Act::relu, true, DType::f32, true)};
}
// The first rows of what has a row per row of the result.
Tensor few(const Tensor& t, int64_t n) {
  if (!t.defined()) return t;
  const Tensor host = t.to(kCpu);
  if (t.rank() < 2 || t.size(0) != kRows) return host;
  return copy(
      Tensor::view_of(host.storage(), host.dtype(), {n, t.size(1)}, host.strides(), host.offset()));
}

class CudnnProduct : public testing::Test {
 protected:
  CudnnProduct() { set_allow_tf32(true); }
  ~CudnnProduct() override { set_allow_tf32(false); }
  // Who made it: the last kernel that ran.
  std::string maker(const Case& c) {
    apply(c.op, c.in, c.attrs);
    return recorder_.executed().back();
  }
  FakeToolkit recorder_;
};

TEST_F(CudnnProduct, TheGraphMeansWhatTheOpMeans) {
  const ScopedChoiceRule rule(ChoiceRule::measured);
  recorder_.set({.gemm_ns = 1200, .graph_ns = 700});  // both: less than an own kernel's 2000
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.what);
    recorder_.clear_log();
    const Tensors got = apply(c.op, c.in, c.attrs);
    const std::vector<std::string> ran = recorder_.executed();
    ASSERT_EQ(ran.back(), "cudnn_graph");
    const FakeToolkit::GraphRun run = recorder_.graph_runs().back();
    constexpr int64_t kFew = 3;
    Tensors few_in;
    for (const Tensor& t : c.in) few_in.push_back(few(t, kFew));
    const Tensors want = apply(c.op, few_in, c.attrs);
    // What the graph of a gate reads is another product, which the recorder does not calculate.
    if (&c.op == &kGatedLinearOp) {
      const FakeToolkit::Matmul& before = recorder_.matmuls().back();
      EXPECT_EQ(ran[ran.size() - 2], "cublaslt_gemm");
      EXPECT_EQ(before.pa, c.in[2].raw());
      EXPECT_EQ(before.pb, c.in[0].raw());
      EXPECT_TRUE(before.transpose_a && !before.transpose_b);
      EXPECT_EQ(before.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
      EXPECT_EQ(before.c.ld, got.size() == 2 ? 2 * kOut : kOut);
      const Tensor up = linear(few_in[0], few_in[2]);
      for (int64_t i = 0; i < kFew; ++i)
        std::copy_n(up.data<float>() + i * kOut, kOut,
            static_cast<float*>(FakeToolkit::host(before.pc)) + i * before.c.ld);
    }
    for (size_t r = 0; r < got.size(); ++r) {
      const int64_t cols = got[r].size(1);
      for (const int64_t j : {int64_t{0}, cols / 2 - 1, cols / 2, cols - 1}) {
        for (int64_t i = 0; i < kFew; ++i) {
          // The tensor of the graph that lies where this element does, or what was made before.
          const float* const place = static_cast<const float*>(got[r].raw()) + i * cols + j;
          float found = NAN;
          if (&c.op == &kGatedLinearOp && r == 1 && j >= kOut)
            found = *static_cast<const float*>(FakeToolkit::host(place));
          for (const FakeToolkit::GraphOperation& o : run.operations) {
            if (o.y.is_virtual) continue;
            const int64_t at = place - static_cast<const float*>(run.memory.at(o.y.id)),
                          col = at - i * o.y.strides[1];
            if (o.y.strides[1] == cols && 0 <= col && col < o.y.dims[2])
              found = evaluate(run, i, col).at(o.y.id);
          }
          EXPECT_NEAR(found, want[r].data<float>()[i * cols + j], 1e-4)
              << "result " << r << ", " << i << ", " << j;
        }
      }
    }
  }
}

// Of three libraries: one that refuses the graph, one whose plans fail when they are run, and one
// that is slower. None: the library is not there.
TEST_F(CudnnProduct, WhereItRefusesFailsOrIsSlowerAllIsAsWithoutIt) {
  const auto with = [&](const FakeToolkit::Machine& machine) {
    FakeToolkit::Machine m = machine;
    m.proposals = 0;  // of cuBLASLt's
    recorder_.set(m);
    cuda::set_api(cuda::api());  // plans are made anew
    const ScopedChoiceRule rule(ChoiceRule::measured);
    const std::string made_by =
        maker({"relu backward", kProductChainOp, ends::input_grad_act(Act::relu),
            {on_card({kRows, kOut}, 1), on_card({kOut, kIn}, 2), {}, on_card({kRows, kIn}, 3)}});
    return made_by.substr(0, made_by.find("_mma"));
  };
  EXPECT_EQ(with({.graph_ns = 1000}), "cudnn_graph");
  EXPECT_EQ(with({.graph_proposals = 0, .graph_ns = 1000}), "product_chain");
  EXPECT_EQ(with({.graph_proposals = 1, .graph_ns = 1000}), "product_chain")
      << "the only plan does not repeat to the bit";
  recorder_.clear_log();
  EXPECT_EQ(
      with({.graph_proposals = 40, .graphs_unrepeatable = 40, .graph_ns = 1000}), "product_chain");
  EXPECT_EQ(recorder_.count("cudnnBackendGetAttribute"), 1 + 2 * 8) << "of 40 it was given 8";
  EXPECT_EQ(with({.graphs_fail = true, .graph_ns = 1000}), "product_chain");
  EXPECT_EQ(with({.graph_ns = 3000}), "product_chain") << "the own kernel takes 2 us";
}

// What both layers of a gated unit ask of two libraries: a product of cuBLASLt's, then a graph.
TEST_F(CudnnProduct, AGateIsAProductAndAGraphWhereThatIsMeasuredToBeFaster) {
  const auto with = [&](const FakeToolkit::Machine& machine) {
    recorder_.set(machine);
    cuda::set_api(cuda::api());  // plans are made anew
    recorder_.clear_log();
    const std::string made_by = maker(gate(Act::gelu_tanh, false, DType::bf16));
    return made_by.substr(0, made_by.find("_mma"));
  };
  EXPECT_EQ(with({.gemm_ns = 500, .graph_ns = 1000}), "gated_linear") << "nobody measured";
  EXPECT_EQ(recorder_.count("cudnnBackendExecute") + recorder_.count("cublasLtMatmul"), 0);
  const ScopedChoiceRule rule(ChoiceRule::measured);
  EXPECT_EQ(with({.gemm_ns = 1500, .graph_ns = 1000}), "gated_linear") << "it takes 2 us";
  EXPECT_EQ(with({.proposals = 0, .graph_ns = 100}), "gated_linear") << "no cuBLASLt";
  EXPECT_EQ(with({.broken = 3, .gemm_ns = 500, .graph_ns = 1000}), "gated_linear");
  EXPECT_EQ(with({.gemm_ns = 500, .graph_proposals = 0, .graph_ns = 1000}), "gated_linear");
  EXPECT_EQ(with({.gemm_ns = 500, .graph_proposals = 1, .graph_ns = 1000}), "gated_linear")
      << "the only plan does not repeat to the bit";
  EXPECT_EQ(with({.gemm_ns = 500, .graphs_fail = true, .graph_ns = 1000}), "gated_linear");
  EXPECT_EQ(with({.gemm_kernels = 2, .gemm_ns = 500, .graph_ns = 100}), "gated_linear")
      << "three kernels for one";
  EXPECT_EQ(with({.broken = 1, .gemm_ns = 500, .graph_ns = 1000}), "cudnn_graph");
  const FakeToolkit::GraphRun run = recorder_.graph_runs().back();
  const FakeToolkit::Matmul before = recorder_.matmuls().back();
  ASSERT_EQ(run.operations.size(), 3u);
  const FakeToolkit::GraphTensor& read = run.operations[2].other;
  EXPECT_EQ(run.memory.at(read.id), before.pc);
  EXPECT_EQ(read.type, CUDNN_DATA_BFLOAT16);
  EXPECT_EQ(run.operations[1].x.type, CUDNN_DATA_FLOAT) << "the sums are not rounded before";
  // Both in a graph, in this order, on the same memory; and it is told.
  const Case c = gate(Act::gelu_tanh, false, DType::bf16);
  cuda::GraphBuilder builder(0, false);
  for (const auto pass : {cuda::Pass::rehearsal, cuda::Pass::capture}) {
    builder.begin(pass);
    apply(c.op, c.in, c.attrs);
    if (const auto graph = builder.end()) {
      const FakeToolkit::Graph captured = recorder_.graphs().back();
      EXPECT_EQ(captured.names(), (std::vector<std::string>{"cublaslt_gemm", "cudnn_graph"}));
      EXPECT_TRUE(captured.precedes(0, 1));
    }
  }
  EXPECT_EQ(recorder_.matmuls().back().pc, before.pc);
  EXPECT_EQ(take_choice_text(), "cuBLASLt + cuDNN, measured 1.5 us, own kernel 2");
}

// What lies between the two is not where either of them has its workspace, of whatever size.
TEST_F(CudnnProduct, WhatIsBetweenHasMemoryOfItsOwn) {
  recorder_.set({.gemm_ns = 500, .graph_ns = 1000});
  const ScopedChoiceRule rule(ChoiceRule::measured);
  const int64_t rows = 8192, ins = 128, hidden = 1024;
  static_assert(rows * hidden * sizeof(float) == kLibraryWorkspace);
  const auto some = [](const Shape& shape) { return Tensor::empty(shape, DType::f32, kCuda); };
  const Tensors h = apply(kGatedLinearOp,
      {some({rows, ins}), some({hidden, ins}), some({hidden, ins})}, GatedLinearAttrs{});
  ASSERT_EQ(recorder_.executed().back(), "cudnn_graph");
  const FakeToolkit::Matmul made = recorder_.matmuls().back();
  const char* const between = static_cast<const char*>(made.pc);
  for (const void* other :
      {static_cast<const void*>(made.workspace), static_cast<const void*>(h[0].raw())}) {
    const char* const at = static_cast<const char*>(other);
    EXPECT_TRUE(between + kLibraryWorkspace <= at || at + kLibraryWorkspace <= between);
  }
}

// A's rows may lie apart. What does not lie on 16 bytes is nobody's but the own kernel's, and so
// are f64 and, without TF32, f32.
TEST_F(CudnnProduct, OperandsAreTakenAsTheyLieOrNotAtAll) {
  recorder_.set({.gemm_ns = 500, .graph_ns = 1000});
  const ScopedChoiceRule rule(ChoiceRule::measured);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    const Case c = gate(Act::gelu_tanh, true, dtype);
    const Tensor wide = Tensor::empty({kRows, 2 * kIn}, dtype, kCuda),
                 more = Tensor::empty({kOut * kIn + 1}, dtype, kCuda);
    EXPECT_EQ(maker({"", c.op, c.attrs, {slice(wide, 1, kIn, 2 * kIn), c.in[1], c.in[2]}}),
        "cudnn_graph");
    EXPECT_EQ(recorder_.graph_runs().back().operations[0].x.strides[1], 2 * kIn);
    EXPECT_EQ(recorder_.matmuls().back().b.ld, 2 * kIn);
    recorder_.clear_log();
    const Tensor off = Tensor::view_of(more.storage(), dtype, {kOut, kIn}, {kIn, 1}, 1);
    for (size_t at : {0, 1, 2}) {
      Tensors in = c.in;
      in[at] = at == 0 ? slice(wide, 1, 1, kIn + 1) : off;
      EXPECT_TRUE(maker({"", c.op, c.attrs, in}).starts_with("gated_linear_")) << at;
    }
    EXPECT_EQ(recorder_.count("cudnnBackendExecute"), 0);
  }
  recorder_.clear_log();
  EXPECT_TRUE(maker(gate(Act::gelu_tanh, true, DType::f64)).starts_with("gated_linear_ffma"));
  set_allow_tf32(false);
  EXPECT_TRUE(maker(gate(Act::gelu_tanh, true)).starts_with("gated_linear_ffma"));
  EXPECT_EQ(recorder_.count("cudnnBackendExecute"), 0);
}

TEST_F(CudnnProduct, IsAskedForLargeProductsByWhoMeasures) {
  const auto asked = [&](int64_t rows, DType dtype, const ChoiceRule choice) {
    const ScopedChoiceRule rule(choice);
    recorder_.clear_log();
    apply(kProductChainOp,
        {on_card({rows, kIn}, 1, dtype), on_card({kOut, kIn}, 2, dtype), on_card({kOut}, 3)},
        ends::linear_act(Act::relu, false, dtype));
    return recorder_.count("cudnnBackendExecute") > 0;
  };
  EXPECT_TRUE(asked(kRows, DType::bf16, ChoiceRule::measured));
  EXPECT_FALSE(asked(kRows / 2, DType::bf16, ChoiceRule::measured)) << "small";
  EXPECT_FALSE(asked(kRows + 8, DType::bf16, ChoiceRule::model));
  set_allow_tf32(false);
  EXPECT_FALSE(asked(kRows, DType::f32, ChoiceRule::measured)) << "f32 is multiplied in f32";
}

// The bias of a linear layer in bf16 is f32, which cuBLASLt takes from nobody.
TEST_F(CudnnProduct, ABiasInF32ReachesALibraryInBf16) {
  recorder_.set({.graph_ns = 1000});
  const Case linear{"bias", kLinearOp, LinearAttrs{DType::bf16},
      {on_card({kRows, kIn}, 1, DType::bf16), on_card({kOut, kIn}, 2, DType::bf16),
          on_card({kOut}, 3)}};
  EXPECT_TRUE(maker(linear).starts_with("matmul_mma")) << "by order it is the own kernel's";
  const ScopedChoiceRule rule(ChoiceRule::measured);
  EXPECT_EQ(maker(linear), "cudnn_graph");
  const FakeToolkit::GraphRun run = recorder_.graph_runs().back();
  ASSERT_EQ(run.operations.size(), 2u);
  EXPECT_EQ(run.operations[0].y.type, CUDNN_DATA_FLOAT) << "the sums are not rounded before";
  EXPECT_TRUE(run.operations[0].y.is_virtual);
  EXPECT_EQ(run.operations[1].other.type, CUDNN_DATA_FLOAT);
  EXPECT_EQ(run.operations[1].y.type, CUDNN_DATA_BFLOAT16);
  // As a node of a graph, with no descriptor of the card's made there.
  cuda::GraphBuilder builder(0, false);
  for (const auto pass : {cuda::Pass::rehearsal, cuda::Pass::capture}) {
    builder.begin(pass);
    apply(linear.op, linear.in, linear.attrs);
    if (const auto graph = builder.end()) {
      EXPECT_EQ(recorder_.graphs().back().names(), std::vector<std::string>{"cudnn_graph"});
    }
  }
  EXPECT_EQ(take_choice_text(),
      "cuDNN, measured 1 us, own kernel 2; cuBLASLt takes no f32 bias for a bf16 result");
}

// What fails while a graph is made costs the candidate; later, it is told. Nothing stays behind.
TEST_F(CudnnProduct, EveryCallFailsInTurn) {
  for (const OpDef* op : {&kLinearOp, &kGatedLinearOp}) {
    const bool gated = op == &kGatedLinearOp;
    recorder_.set({.proposals = gated, .gemm_ns = 500, .graph_ns = 1000});
    const auto scenario = [&] {
      const ScopedChoiceRule rule(ChoiceRule::measured);
      const auto some = [](const Shape& shape, DType dtype) {
        return Tensor::empty(shape, dtype, kCuda);
      };
      const Tensor x = some({kRows, kIn}, DType::bf16), weight = some({kOut, kIn}, DType::bf16);
      return gated ? maker({"gate", *op, GatedLinearAttrs{}, {x, weight, weight}})
                   : maker({"bias", *op, LinearAttrs{DType::bf16},
                         {x, weight, some({kOut}, DType::f32)}});
    };
    recorder_.clear_log();
    ASSERT_EQ(scenario(), "cudnn_graph");
    std::map<std::string, int> calls;
    for (const std::string& name : recorder_.calls()) {
      if (name.starts_with("cudnn")) ++calls[name];
    }
    ASSERT_GE(calls.size(), 7u);
    for (const auto& [name, count] : calls) {
      for (int n = 1; n <= count; ++n) {
        ASSERT_TRUE(recorder_.leaks().empty());
        recorder_.fail(name, n, CUDNN_STATUS_INTERNAL_ERROR);
        std::string made_by;
        const std::string message = test::message_of([&] { made_by = scenario(); });
        EXPECT_TRUE(message.empty()
                        ? made_by == "cudnn_graph" ||
                              made_by.starts_with(gated ? "gated_linear_mma" : "matmul_mma")
                        : message.find(name + " says ") != message.npos)
            << name << " " << n << ": " << made_by << message;
      }
    }
    EXPECT_TRUE(recorder_.leaks().empty());
  }
}

using CudnnProductGpu = test::GpuTest;
// What this card's libraries make of each case against the own kernels. In bf16 one of two results
// is rounded once and the other twice, each time by up to 2^-9. In TF32 factors are cut to 10 bits:
// a sum of kIn products, each of 0.2^2 / 3 as a rule, moves by about 2^-9 of that times sqrt(kIn),
// 8e-4, and six times as much where it moves most; what is behind it is no steeper than 1.13.
TEST_F(CudnnProductGpu, GiveWhatTheOwnKernelsGive) {
  const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(str(name_of(dtype), " ", c.what));
      Tensors in;
      for (const Tensor& t : c.in) in.push_back(!t.defined() || t.rank() == 1 ? t : cast(t, dtype));
      Attrs attrs = c.attrs;
      if (&c.op == &kProductChainOp) attrs.parse("out", name_of(dtype));
      Tensors by[2];
      const LaunchLog log;
      for (const auto choice : {ChoiceRule::own, ChoiceRule::library}) {
        const ScopedChoiceRule rule(choice);
        by[choice == ChoiceRule::library] = apply(c.op, in, attrs);
      }
      RecordProperty(str(name_of(dtype), " ", c.what), std::string(log.launches().back().kernel));
      for (size_t r = 0; r < by[0].size(); ++r)
        EXPECT_TRUE(test::close(by[1][r].to(kCpu), by[0][r].to(kCpu),
            {.of_each = dtype == DType::bf16 ? 0x1p-7 : 0, .absolute = 5e-3}));
    }
  }
}

#endif

}  // namespace
}  // namespace sinter
