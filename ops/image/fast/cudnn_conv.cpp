#include "ops/image/cudnn_conv.h"

#if SINTER_HAS_CUDA && SINTER_HAS_CUDNN

#include <algorithm>
#include <bit>
#include <climits>
#include <memory>

#include "core/device/chooser.h"
#include "core/device/cuda_libraries.h"
#include "core/device/cuda_stream.h"
#include "core/device/memory.h"
#include "core/device/plan_cache.h"
#include "ops/image/conv2d.h"
#include "ops/product/gemm_library.h"

namespace sinter {
namespace {

using cuda::Api;
using cuda::api;
using TensorDesc = cuda::Descriptor<cudnnTensorDescriptor_t, &Api::cudnnDestroyTensorDescriptor>;
using FilterDesc = cuda::Descriptor<cudnnFilterDescriptor_t, &Api::cudnnDestroyFilterDescriptor>;
using ActivationDesc =
    cuda::Descriptor<cudnnActivationDescriptor_t, &Api::cudnnDestroyActivationDescriptor>;
using ConvolutionDesc =
    cuda::Descriptor<cudnnConvolutionDescriptor_t, &Api::cudnnDestroyConvolutionDescriptor>;

constexpr int kConvProposals = 8;

enum class ConvProduct : uint8_t { forward, input_grad, weight_grad };
constexpr const char* kConvNames[] = {
    "cudnn_conv2d", "cudnn_conv2d_input_grad", "cudnn_conv2d_weight_grad"};

// All that the plan of a convolution depends on.
struct ConvKey {
  ConvProduct product;
  Conv2dSizes sizes;
  DType type, weight_type;  // a gradient's may be another one
  bool has_bias, relu, tf32;
  auto operator<=>(const ConvKey&) const = default;

  // f32 without TF32 stays on multiply-adds, whatever the library would rather do.
  bool exact() const { return type == DType::f32 && !tf32; }
  const char* kernel() const {
    return relu ? "cudnn_conv2d_relu" : kConvNames[static_cast<int>(product)];
  }
  std::string question() const {
    const Conv2dSizes& z = sizes;
    return str(kernel(), " ", name_of(type), " ", name_of(weight_type), " x ", z.n, " ", z.c, " ",
        z.h, " ", z.w, " weight ", z.o, " ", z.r, " ", z.s, " stride ", z.stride_h, " ", z.stride_w,
        " padding ", z.pad_h, " ", z.pad_w, has_bias ? " + bias" : "", tf32 ? " tf32" : "");
  }
};
// One of x, weight and y is written.
struct ConvPointers {
  void *x, *weight, *y;
  const void* bias;
};

struct ConvProposal {
  int algorithm;
  size_t workspace;
  cudnnMathType_t math;
};

struct ConvPlan {
  TensorDesc x, y, bias;
  FilterDesc weight;
  ConvolutionDesc convolution;
  ActivationDesc activation;
  std::vector<ConvProposal> proposals;
  Choice choice;  // among the own kernel and those

  void describe(const ConvKey& key);
  void run(const ConvKey& key, const ConvPointers& p, const ConvProposal& proposal) const;
};

void ConvPlan::describe(const ConvKey& key) {
  const Conv2dSizes& z = key.sizes;
  const auto n = [](int64_t v) { return static_cast<int>(v); };
  const auto type = cuda::cudnn_type_of(key.type);
  const auto images = [&](TensorDesc& desc, int64_t batch, int64_t c, int64_t h, int64_t w) {
    SINTER_CUDA_CALL(cudnnCreateTensorDescriptor(&desc));
    SINTER_CUDA_CALL(
        cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NCHW, type, n(batch), n(c), n(h), n(w)));
  };
  images(x, z.n, z.c, z.h, z.w);
  images(y, z.n, z.o, z.p, z.q);
  SINTER_CUDA_CALL(cudnnCreateFilterDescriptor(&weight));
  SINTER_CUDA_CALL(cudnnSetFilter4dDescriptor(weight, cuda::cudnn_type_of(key.weight_type),
      CUDNN_TENSOR_NCHW, n(z.o), n(z.c), n(z.r), n(z.s)));
  SINTER_CUDA_CALL(cudnnCreateConvolutionDescriptor(&convolution));
  SINTER_CUDA_CALL(cudnnSetConvolution2dDescriptor(convolution, n(z.pad_h), n(z.pad_w),
      n(z.stride_h), n(z.stride_w), 1, 1, CUDNN_CROSS_CORRELATION,
      key.type == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
  // Said before it proposes anything: TF32 wants memory that multiply-adds do without, and by
  // default bf16 gets nothing that is fast.
  SINTER_CUDA_CALL(
      cudnnSetConvolutionMathType(convolution, key.exact()               ? CUDNN_FMA_MATH
                                               : key.type == DType::bf16 ? CUDNN_TENSOR_OP_MATH
                                                                         : CUDNN_DEFAULT_MATH));
  if (!key.has_bias) return;
  images(bias, 1, z.o, 1, 1);
  SINTER_CUDA_CALL(cudnnCreateActivationDescriptor(&activation));
  SINTER_CUDA_CALL(cudnnSetActivationDescriptor(activation,
      key.relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY, CUDNN_PROPAGATE_NAN, 0));
}

void ConvPlan::run(const ConvKey& key, const ConvPointers& p, const ConvProposal& proposal) const {
  const auto [algorithm, workspace, math] = proposal;
  // The stream's. Of few sizes, as each one stays: powers of two.
  void* memory =
      scratch(cuda::device(), std::bit_ceil(std::max(workspace, kLibraryWorkspace))).memory;
  if (cuda::rehearsing()) return;
  SINTER_CUDA_CALL(cudnnSetConvolutionMathType(convolution, math));
  cudnnHandle_t handle = cuda::CudnnHandle::get().on_stream();
  const cuda::LibraryScalars scalars(key.type);
  const void *one = scalars.one(), *zero = scalars.zero();
  if (key.product == ConvProduct::input_grad) {
    SINTER_CUDA_CALL(cudnnConvolutionBackwardData(handle, one, weight, p.weight, y, p.y,
        convolution, static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm), memory, workspace, zero,
        x, p.x));
  } else if (key.product == ConvProduct::weight_grad) {
    SINTER_CUDA_CALL(cudnnConvolutionBackwardFilter(handle, one, x, p.x, y, p.y, convolution,
        static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm), memory, workspace, zero, weight,
        p.weight));
  } else if (key.has_bias) {
    SINTER_CUDA_CALL(cudnnConvolutionBiasActivationForward(handle, one, x, p.x, weight, p.weight,
        convolution, static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), memory, workspace, zero, y,
        p.y, bias, p.bias, activation, y, p.y));
  } else {
    SINTER_CUDA_CALL(cudnnConvolutionForward(handle, one, x, p.x, weight, p.weight, convolution,
        static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), memory, workspace, zero, y, p.y));
  }
}

// What of the library's proposals is allowed (top of cudnn_conv.h), the best first by its own
// reckoning. get(count, &found, results) asks it.
template <class Perf, class Get>
std::vector<ConvProposal> allowed_proposals(const ConvKey& key, int from, int to, const Get& get) {
  Perf results[kConvProposals] = {};
  int found = 0;
  get(kConvProposals, &found, results);
  std::vector<ConvProposal> proposals;
  for (int i = 0; i < found; ++i) {
    const Perf& r = results[i];
    const bool right_math = r.mathType != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION &&
                            !(key.exact() && r.mathType == CUDNN_TENSOR_OP_MATH);
    if (r.status == CUDNN_STATUS_SUCCESS && r.algo >= from && r.algo <= to && right_math &&
        r.memory <= kConvWorkspace)
      proposals.push_back({r.algo, r.memory, key.exact() ? CUDNN_FMA_MATH : r.mathType});
  }
  return proposals;
}

std::vector<ConvProposal> proposals_for(const ConvKey& key, const ConvPlan& plan) {
  cudnnHandle_t handle = cuda::CudnnHandle::get().on_stream();
  if (key.product == ConvProduct::input_grad) {
    constexpr int kOnly = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
    return allowed_proposals<cudnnConvolutionBwdDataAlgoPerf_t>(
        key, kOnly, kOnly, [&](int wanted, int* found, auto* results) {
          SINTER_CUDA_CALL(cudnnGetConvolutionBackwardDataAlgorithm_v7(
              handle, plan.weight, plan.y, plan.convolution, plan.x, wanted, found, results));
        });
  }
  if (key.product == ConvProduct::weight_grad) {
    constexpr int kOnly = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
    return allowed_proposals<cudnnConvolutionBwdFilterAlgoPerf_t>(
        key, kOnly, kOnly, [&](int wanted, int* found, auto* results) {
          SINTER_CUDA_CALL(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
              handle, plan.x, plan.y, plan.convolution, plan.weight, wanted, found, results));
        });
  }
  // With a bias and no activation the library has one algorithm only.
  constexpr int kOnly = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  const bool one = key.has_bias && !key.relu;
  return allowed_proposals<cudnnConvolutionFwdAlgoPerf_t>(key,
      one ? kOnly : CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
      one ? kOnly : CUDNN_CONVOLUTION_FWD_ALGO_GEMM, [&](int wanted, int* found, auto* results) {
        SINTER_CUDA_CALL(cudnnGetConvolutionForwardAlgorithm_v7(
            handle, plan.x, plan.weight, plan.convolution, plan.y, wanted, found, results));
      });
}

class ConvPlans {
 public:
  static ConvPlans& get() {
    static ConvPlans& plans = *new ConvPlans;
    static const bool hooked = (cuda::at_reset([] { plans.plans_.clear(); }), true);
    static_cast<void>(hooked);
    return plans;
  }

  bool run(const ConvKey& key, const ConvPointers& p, const std::function<void()>& own) {
    const std::lock_guard lock(cuda::CudnnHandle::get().mutex);
    ConvPlan* plan = plans_.find(key);
    SINTER_CHECK(!cuda::capturing() || (plan && plan->choice.made), state,
        "cuda: a convolution without a plan inside a captured step");
    // What a step has rehearsed it is about to capture.
    const auto may_go = [](const ConvPlan&) { return !cuda::rehearsing(); };
    if (!plan) plan = plans_.add(key, make(key), may_go);
    const auto question = [&] { return key.question(); };
    const auto make_it = [&](size_t i) {
      return i == 0 ? own() : plan->run(key, p, plan->proposals[i - 1]);
    };
    return run_chosen(plan->choice, key.kernel(), std::cref(question), std::cref(make_it));
  }

 private:
  // Where the library refuses, or is not there, there is the own kernel.
  static std::unique_ptr<ConvPlan> make(const ConvKey& key) {
    auto plan = std::make_unique<ConvPlan>();
    const auto error = failure_of(Device::Type::cuda, [&] {
      plan->describe(key);
      plan->proposals = proposals_for(key, *plan);
    });
    plan->choice.candidates = {{"own kernel"}};
    for (const auto& [algorithm, workspace, math] : plan->proposals)
      plan->choice.candidates.push_back({.name = "cuDNN",
          .version = str("algorithm ", algorithm, " math ", static_cast<int>(math)),
          .most_launches = INT_MAX});
    if (plan->proposals.empty())
      plan->choice.note = error ? error->message() : std::string("cuDNN offers none");
    return plan;
  }

  PlanCache<ConvKey, ConvPlan> plans_;
};

// The library counts sizes and elements in int, and takes no empty tensor.
bool cudnn_counts(const Conv2dSizes& z) {
  for (const int64_t elements : {z.n * z.c * z.h * z.w, z.o * z.taps(), z.n * z.o * z.p * z.q}) {
    if (elements < 1 || elements > INT_MAX) return false;
  }
  return true;  // strides and paddings are ints by the shape rule
}

}  // namespace

bool cudnn_conv2d(
    const Call& call, const Conv2dSizes& sizes, const std::function<void()>& own, bool relu) {
  const bool by_input = &call.op == &kConv2dInputGradOp,
             by_weight = &call.op == &kConv2dWeightGradOp;
  const Tensor bias = optional_input(call.in, 2), &result = call.out[0];
  const Tensor &x = by_input ? result : call.in[by_weight ? 1 : 0],
               &weight = by_weight ? result : call.in[1],
               &y = by_input || by_weight ? call.in[0] : result;
  const bool takes_bias = bias.defined() ? bias.dtype() == y.dtype() : !relu;
  if (choice_rule() == ChoiceRule::own || !takes_bias || !cudnn_counts(sizes)) return false;
  const ConvProduct product = by_input    ? ConvProduct::input_grad
                              : by_weight ? ConvProduct::weight_grad
                                          : ConvProduct::forward;
  return ConvPlans::get().run(
      {product, sizes, x.dtype(), weight.dtype(), bias.defined(), relu, allow_tf32()},
      {x.raw(), weight.raw(), y.raw(), bias.defined() ? bias.raw() : nullptr}, own);
}

}  // namespace sinter

#else

namespace sinter {
bool cudnn_conv2d(const Call&, const Conv2dSizes&, const std::function<void()>&, bool) {
  return false;
}
}  // namespace sinter

#endif
