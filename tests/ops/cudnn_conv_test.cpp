// cuDNN's convolutions as we ask for them: on a recorder that keeps the questions, the answers
// computed here by the definition of a convolution.
#include "ops/image/cudnn_conv.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/fused/fused.h"
#include "ops/image/conv2d.h"
#include "ops/product/gemm_library.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"

#if SINTER_HAS_CUDA && SINTER_HAS_CUDNN
#include "core/device/cuda.h"
#include "core/device/cuda_graph.h"
#include "core/device/memory.h"
#include "tests/cuda_recorder.h"
#include "tests/ops/ends.h"
#include "tests/test_util.h"
#endif

namespace sinter {
namespace {

#if !(SINTER_HAS_CUDA && SINTER_HAS_CUDNN)

TEST(CudnnConv, DeclinesWithoutTheLibrary) {
  const Tensors in{Tensor::ones({1, 1, 2, 2}), Tensor::ones({1, 1, 1, 1})};
  Tensors out{Tensor::empty({1, 1, 2, 2})};
  const Attrs attrs = Conv2dAttrs{};
  const Call call{kConv2dOp, in, out, attrs};
  EXPECT_FALSE(cudnn_conv2d(call, conv2d_sizes(call), [] {}));
  GTEST_SKIP() << "cuDNN's headers are not there";
}

#else

using cuda::FakeToolkit;

// A call of one of the three ops, its operands on the recorder's card.
struct ConvCall {
  ConvCall(const OpDef& which, const Tensors& on_cpu, const Attrs& with)
      : op(which), attrs(with), cpu(on_cpu), out(op.results(cpu, attrs)) {
    for (const Tensor& t : cpu) in.push_back(t.to(test::kCuda));
    out[0] = Tensor::empty(out[0].shape(), out[0].dtype(), test::kCuda);
  }
  bool ask(const std::function<void()>& own = [] {}) {
    const Call call{op, in, out, attrs};
    const Conv2dSizes sizes = &op == &kConv2dInputGradOp    ? conv2d_input_grad_sizes(call)
                              : &op == &kConv2dWeightGradOp ? conv2d_weight_grad_sizes(call)
                                                            : conv2d_sizes(call);
    return cudnn_conv2d(call, sizes, own);
  }
  const OpDef& op;
  Attrs attrs;
  Tensors cpu, in, out;
};
Tensor sample_f32(const Shape& shape, uint64_t seed) {
  return cast(sample_tensor(shape, seed), DType::f32);
}
ConvCall forward_call(bool bias = false) {
  Tensors in{sample_f32({2, 3, 5, 6}, 1), sample_f32({4, 3, 3, 2}, 2)};
  if (bias) in.push_back(sample_f32({4}, 3));
  return {kConv2dOp, in, Conv2dAttrs{2, 1, 1, 2}};
}
ConvCall input_grad_call() {
  return {kConv2dInputGradOp, {sample_f32({2, 4, 3, 9}, 1), sample_f32({4, 3, 3, 2}, 2)},
      Conv2dGradAttrs{2, 1, 1, 2, 5, 6}};
}
ConvCall weight_grad_call() {
  return {kConv2dWeightGradOp, {sample_f32({2, 4, 3, 9}, 1), sample_f32({2, 3, 5, 6}, 2)},
      Conv2dGradAttrs{2, 1, 1, 2, 3, 2}};
}

// What the library means by a question.
void compute(const FakeToolkit::Convolution& q) {
  const auto at = [](const void* p, const FakeToolkit::Images& d, int n, int c, int h,
                      int w) -> float& {
    EXPECT_EQ(d.type, CUDNN_DATA_FLOAT);
    return static_cast<float*>(FakeToolkit::host(p))[((n * d.c + c) * d.h + h) * d.w + w];
  };
  const bool forward = q.name == "cudnn_conv2d", by_input = q.name == "cudnn_conv2d_input_grad";
  const void* result = forward ? q.py : by_input ? q.px : q.pweight;
  const FakeToolkit::Images& shape = forward ? q.y : by_input ? q.x : q.weight;
  std::fill_n(
      static_cast<float*>(FakeToolkit::host(result)), shape.n * shape.c * shape.h * shape.w, 0.f);
  for (int n = 0; n < q.y.n; ++n) {
    for (int o = 0; o < q.y.c; ++o) {
      for (int p = 0; p < q.y.h; ++p) {
        for (int w = 0; w < q.y.w; ++w) {
          float& y = at(q.py, q.y, n, o, p, w);
          if (q.pbias) y += at(q.pbias, q.bias, 0, o, 0, 0);
          for (int c = 0; c < q.x.c; ++c) {
            for (int r = 0; r < q.weight.h; ++r) {
              for (int s = 0; s < q.weight.w; ++s) {
                const int u = p * q.stride_h - q.pad_h + r, v = w * q.stride_w - q.pad_w + s;
                if (u < 0 || u >= q.x.h || v < 0 || v >= q.x.w) continue;
                float &x = at(q.px, q.x, n, c, u, v), &weight = at(q.pweight, q.weight, o, c, r, s);
                if (forward)
                  y += x * weight;
                else if (by_input)
                  x += y * weight;
                else
                  weight += y * x;
              }
            }
          }
        }
      }
    }
  }
}

TEST(CudnnConv, QuestionsMeanTheOps) {
  const FakeToolkit recorder;
  ConvCall calls[] = {forward_call(), forward_call(true), input_grad_call(), weight_grad_call()};
  for (ConvCall& call : calls) {
    SCOPED_TRACE(call.op.text());
    ASSERT_TRUE(call.ask());
    const FakeToolkit::Convolution question = recorder.convolutions().back();
    EXPECT_EQ(question.algorithm, 1);
    EXPECT_EQ(question.workspace_bytes, size_t{1} << 20);
    EXPECT_NE(question.workspace, nullptr);
    compute(question);
    EXPECT_TRUE(test::close(
        call.out[0].to(kCpu), apply1(call.op, call.cpu, call.attrs), {.absolute = 1e-4}));
  }
}

// What keeps something for backward is the own kernel's; the library's call wants a bias. With ReLU
// any algorithm will do.
TEST(CudnnConv, ReluIsPartOfTheCallWhereNothingIsKept) {
  FakeToolkit recorder;
  recorder.set({.conv_proposals = {{2}, {1}}});
  ConvCall call = forward_call(true);
  ProductChainAttrs attrs = ends::conv_act({2, 1, 1, 2}, Act::relu);
  const LaunchLog log;
  apply1(kProductChainOp, call.in, attrs);
  EXPECT_EQ(test::library_launches(log), 1);
  const size_t asked = recorder.convolutions().size();  // to plan and to run
  ASSERT_GT(asked, 0u);
  EXPECT_EQ(recorder.convolutions().back().name, "cudnn_conv2d_relu");
  EXPECT_EQ(recorder.convolutions().back().algorithm, 2);
  attrs.program = act_program(Act::relu, true);
  apply(kProductChainOp, call.in, attrs);
  const Conv2dSizes sizes =
      conv2d_sizes(call.in[0], call.in[1], call.out[0], call.attrs.as<Conv2dAttrs>());
  const Tensors no_bias{call.in[0], call.in[1]};
  EXPECT_FALSE(cudnn_conv2d(
      {kConv2dOp, no_bias, call.out, call.attrs}, sizes, [] {}, true));
  EXPECT_EQ(recorder.convolutions().size(), asked);
}

TEST(CudnnConv, OnePlanPerQuestion) {
  const FakeToolkit recorder;
  ConvCall call = forward_call(), biased = forward_call(true);
  const LaunchLog log;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(call.ask());
  EXPECT_EQ(recorder.count("cudnnGetConvolutionForwardAlgorithm_v7"), 1);
  EXPECT_TRUE(biased.ask());
  {
    const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
    EXPECT_TRUE(call.ask());
  }
  EXPECT_EQ(recorder.count("cudnnGetConvolutionForwardAlgorithm_v7"), 3);
  EXPECT_EQ(test::library_launches(log), 5);
}

// By Fourier transforms, by Winograd's method, by atomics, refused, with too much memory: none of
// these.
TEST(CudnnConv, OnlyPlainSumsInAFixedOrderAreTaken) {
  FakeToolkit recorder;
  recorder.set({.conv_proposals = {{4}, {6}, {0, CUDNN_STATUS_NOT_SUPPORTED},
                    {2, 0, kConvWorkspace + 1}, {2}, {1}}});
  ConvCall forward = forward_call(), biased = forward_call(true), input = input_grad_call(),
           weight = weight_grad_call();
  EXPECT_TRUE(forward.ask());
  EXPECT_EQ(recorder.convolutions().back().algorithm, 2);
  for (ConvCall* call : {&biased, &input, &weight}) {
    EXPECT_TRUE(call->ask());
    EXPECT_EQ(recorder.convolutions().back().algorithm, 1) << call->op.text();
  }
  recorder.set({.conv_proposals = {{0}, {3}, {5}}});
  recorder.clear_log();
  Tensors other = input.cpu;
  other[0] = sample_f32({1, 4, 3, 9}, 1);
  EXPECT_FALSE(ConvCall(kConv2dInputGradOp, other, input.attrs).ask());
  EXPECT_TRUE(recorder.convolutions().empty());
}

// In powers of two, so that who wants about as much shares it.
TEST(CudnnConv, AnAlgorithmGetsTheMemoryItWants) {
  FakeToolkit recorder;
  recorder.set({.conv_proposals = {{1, 0, size_t{40} << 20}}});
  ConvCall call = forward_call(), other = weight_grad_call();
  EXPECT_TRUE(call.ask());
  EXPECT_EQ(recorder.convolutions().back().workspace_bytes, size_t{40} << 20);
  recorder.set({.conv_proposals = {{1, 0, size_t{60} << 20}}});
  EXPECT_TRUE(other.ask());
  EXPECT_EQ(recorder.convolutions().back().workspace, recorder.convolutions().front().workspace);
}

// f32 is cut to TF32 only where that is allowed, and never to half.
TEST(CudnnConv, PrecisionIsAsAsked) {
  FakeToolkit recorder;
  const int tensor = CUDNN_TENSOR_OP_MATH, half = CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
  recorder.set({.conv_proposals = {{0, 0, 0, half}, {1, 0, 0, tensor}, {2}}});
  ConvCall call = forward_call();
  EXPECT_TRUE(call.ask());
  EXPECT_EQ(recorder.convolutions().back().algorithm, 2);
  EXPECT_EQ(recorder.convolutions().back().math, CUDNN_FMA_MATH);
  const std::vector<std::string> calls = recorder.calls();
  EXPECT_LT(std::ranges::find(calls, "cudnnSetConvolutionMathType"),
      std::ranges::find(calls, "cudnnGetConvolutionForwardAlgorithm_v7"))
      << "what it proposes depends on it";
  {
    const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
    EXPECT_TRUE(call.ask());
  }
  EXPECT_EQ(recorder.convolutions().back().algorithm, 1);
  EXPECT_EQ(recorder.convolutions().back().math, CUDNN_TENSOR_OP_MATH);
}

// Plans are made in the rehearsal; a convolution of two kernels counts as two.
TEST(CudnnConv, InAGraph) {
  FakeToolkit recorder;
  recorder.set({.conv_kernels = 2});
  ConvCall call = weight_grad_call();
  cuda::GraphBuilder builder(0, false);
  builder.begin(cuda::Pass::rehearsal);
  EXPECT_TRUE(call.ask());
  builder.end();
  recorder.clear_log();
  const LaunchLog log;
  builder.begin(cuda::Pass::capture);
  EXPECT_TRUE(call.ask());
  const auto graph = builder.end();
  EXPECT_EQ(recorder.graphs().back().nodes.size(), 2u);
  EXPECT_EQ(test::library_launches(log), 2);
  EXPECT_EQ(recorder.count("cudnnGetConvolutionBackwardFilterAlgorithm_v7"), 0);
  builder.begin(cuda::Pass::capture);
  EXPECT_THROW(forward_call().ask(), Error);
}

TEST(CudnnConv, TheOwnKernelServesWhereTheLibraryDoesNot) {
  FakeToolkit recorder;
  {
    const ScopedChoiceRule rule(ChoiceRule::own);
    EXPECT_FALSE(forward_call().ask());
  }
  EXPECT_EQ(recorder.count("cudnnCreate"), 0);

  recorder.fail("cudnnCreate", 1, CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_FALSE(forward_call().ask()) << "the library is not there";
  EXPECT_TRUE(input_grad_call().ask()) << "now it is";
  recorder.fail("cudnnConvolutionBackwardFilter", 1, CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_FALSE(weight_grad_call().ask()) << "its only proposal does not run";

  const auto low = [](const Shape& shape) { return Tensor::ones(shape, DType::bf16); };
  const Attrs attrs = Conv2dAttrs{};
  EXPECT_TRUE(ConvCall(kConv2dOp, {low({1, 1, 3, 3}), low({2, 1, 2, 2})}, attrs).ask());
  EXPECT_FALSE(
      ConvCall(kConv2dOp, {low({1, 1, 3, 3}), low({2, 1, 2, 2}), Tensor::ones({2})}, attrs).ask());
  EXPECT_FALSE(ConvCall(kConv2dWeightGradOp, {low({1, 2, 2, 2}), low({1, 1, 3, 3})},
      Conv2dGradAttrs{1, 1, 0, 0, 2, 2})
                   .ask())
      << "its gradient is of the operands' type, ours f32";
  EXPECT_FALSE(
      ConvCall(kConv2dOp, {Tensor::ones({0, 1, 3, 3}), Tensor::ones({2, 1, 2, 2})}, attrs).ask());
  const Tensors huge{Tensor::shape_only({1 << 11, 1, 1 << 10, 1 << 10}, DType::f32, test::kCuda),
      Tensor::shape_only({1, 1, 1, 1}, DType::f32, test::kCuda)};
  Tensors out = kConv2dOp.results(huge, attrs);
  const Call call{kConv2dOp, huge, out, attrs};
  EXPECT_FALSE(cudnn_conv2d(call, conv2d_sizes(call), [] {})) << "2^31 elements";
}

// A kernel takes 2 us on this machine.
TEST(CudnnConv, TheFastestWinsWhereItIsMeasured) {
  for (const int kernels : {1, 3}) {
    FakeToolkit recorder;
    recorder.set({.conv_kernels = kernels});
    ConvCall call = forward_call();
    const auto own = [&] {
      for (int i = 0; i < 2; ++i) fill_bytes(call.out[0].raw(), test::kCuda, 0, 4);
    };
    EXPECT_TRUE(call.ask(own));
    {
      const ScopedChoiceRule rule(ChoiceRule::measured);
      EXPECT_EQ(call.ask(own), kernels == 1);
    }
    EXPECT_EQ(call.ask(own), kernels == 1) << "what was measured stays";
  }
}

TEST(CudnnConv, WhoMakesItIsToldInARehearsal) {
  FakeToolkit recorder;
  const auto told = [&](ConvCall call) {
    cuda::GraphBuilder builder(0, false);
    builder.begin(cuda::Pass::rehearsal);
    call.ask([&] { fill_bytes(call.out[0].raw(), test::kCuda, 0, 4); });
    builder.end();
    return take_choice_text();
  };
  EXPECT_EQ(told(forward_call()), "") << "the library by its first algorithm: a matter of course";
  const ScopedChoiceRule rule(ChoiceRule::measured);
  EXPECT_EQ(told(forward_call()), "own kernel, measured 2 us, cuDNN 2");
  recorder.set({.conv_proposals = {}});
  EXPECT_EQ(told(forward_call(true)), "own kernel, cuDNN offers none");
}

// A library that is not there is one thing, a card that no call survives another.
TEST(CudnnConv, ABrokenCardIsNoReasonForTheOwnKernel) {
  FakeToolkit recorder;
  ConvCall call = forward_call();
  recorder.fail("cudnnCreateTensorDescriptor", 1, CUDNN_STATUS_EXECUTION_FAILED);
  recorder.fail_for_good("cudaStreamSynchronize", cudaErrorIllegalAddress);
  test::expect_facts(test::message_of([&] { call.ask(); }), {"says 700"});
}

// Whatever fails, nothing is lost.
TEST(CudnnConv, EveryCallMayFail) {
  int thrown = 0;
  for (int64_t n = 1;; ++n) {
    FakeToolkit recorder;
    recorder.fail_any(n);
    bool answered = false;
    const std::string message = test::message_of([&] { answered = forward_call(true).ask(); });
    const std::string failed = recorder.failed();
    EXPECT_TRUE(recorder.leaks().empty()) << failed;
    if (failed.empty()) {
      EXPECT_TRUE(answered && message.empty()) << message;
      EXPECT_GT(thrown, 0);
      break;
    }
    // What is thrown is what failed, and by its name; without cuDNN the own kernel goes on.
    EXPECT_TRUE(message.empty() || message.find(failed + " says ") != std::string::npos)
        << "call " << n << ", " << failed << ": " << message;
    thrown += !message.empty();
  }
}

#endif

}  // namespace
}  // namespace sinter
