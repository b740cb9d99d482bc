// cuBLASLt is column-major: it sees each row-major matrix as its transpose. So it computes C^T =
// B^T A^T: its first operand is our B, its rows are our columns (features), its columns our rows
// (samples), and a bias over its rows is ours over columns.
#include "ops/product/gemm_library.h"

#include <atomic>
#include <cstdint>

#include "ops/product/matrix_view.h"

#if SINTER_HAS_CUDA
#include <algorithm>
#include <bit>
#include <climits>
#include <memory>
#include <mutex>
#include <span>

#include "core/cache.h"
#include "core/device/cuda.h"
#include "core/device/cuda_libraries.h"
#include "core/device/cuda_stream.h"
#include "core/device/memory.h"
#include "core/device/plan_cache.h"
#include "core/error.h"
#include "ops/product/fast/cudnn_product.h"

namespace sinter {
namespace {

using cuda::api;
using cuda::set;

constexpr int kProposals = 8;

// The largest power of two, up to 16, that divides an address. No kernel of the library moves more
// than 16 bytes at once, and eager blocks and a replay's arena, which lie on 256 and on 64, must
// have one plan.
int alignment_of(const void* p) {
  return 1 << std::min(4, std::countr_zero(reinterpret_cast<uintptr_t>(p) | 16));
}

// By GemmEpilogue::Kind: without and with a bias, and in words.
struct Form {
  cublasLtEpilogue_t plain, biased;
  const char* text;
};
constexpr Form kForms[] = {{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, ""},
    {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS, ", relu"},
    {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS, ", gelu_tanh"},
    {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, ", gelu_tanh and pre-activation"},
    {CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU, ", gelu_tanh backward"},
    {CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_BGRADB, ", bias gradient"},
    {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, ", steps"}};

// All that the plan of a product depends on.
struct GemmKey {
  Gemm gemm;
  GemmBatch batch;
  GemmEpilogue::Kind epilogue;
  bool has_bias, tf32;
  int align_a, align_b, align_bias, align_c, align_aux;
  std::string graph;  // cuDNN's; "": it is not asked
  auto operator<=>(const GemmKey&) const = default;

  // With an epilogue the own kernel is as good until it is measured: one launch, the same bytes.
  bool fused() const { return epilogue != GemmEpilogue::none; }
  // "product f32 -> f32 m 4 n 8 k 16 A B + bias, relu, ld .."
  std::string question() const {
    const Gemm& g = gemm;
    return str("product ", name_of(g.in), " -> ", name_of(g.out), " m ", g.m, " n ", g.n, " k ",
        g.k, g.trans_a ? " A^T" : " A", g.trans_b ? " B^T" : " B", has_bias ? " + bias" : "",
        kForms[epilogue].text, tf32 ? " tf32" : "", ", ld ", g.lda, " ", g.ldb, " ", g.ldc,
        ", bias ", name_of(g.bias), ", aligned ", align_a, " ", align_b, " ", align_bias, " ",
        align_c, " ", align_aux,
        batch.products() == 1
            ? ""
            : str(", ", batch.count[1], " products, ", batch.a[1], " ", batch.b[1], " apart"),
        graph.empty() ? "" : ", graph ", graph);
  }
};

// Which of a cuDNN graph's products is not the graph's: another product of the same A before it,
// whose result the steps read. By an algorithm of cuBLASLt's.
const ProductSteps* pair_of(const GemmEpilogue& epilogue) {
  return epilogue.steps && epilogue.steps->operand_b ? epilogue.steps : nullptr;
}
// What that one reads and writes. Where its result has no memory it is given scratch memory of the
// stream's, of no size that another kernel asks for.
ProductMemory first_of(const ProductSteps& pair, const ProductMemory& p) {
  const Tensor& between = pair.operands[0];
  Storage& storage = *between.storage();
  if (!storage.data())
    storage.rebind(scratch(cuda::device(), std::bit_ceil(storage.bytes()) + 256).memory);
  return {p.a, pair.operand_b->raw(), nullptr, between.raw(), nullptr};
}

struct Plan {
  cuda::LtMatmul matmul;
  cuda::LtLayout a, b, c;
  cublasLtMatmulDescAttributes_t aux_attribute = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER;
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  CudnnProduct graph;  // made when it first runs
  Choice choice;       // candidates: the own kernel, the algorithms, perhaps the graph

  // Candidate i behind the own kernel: an algorithm, behind which a pair has its graph, or a graph.
  void run(size_t i, const Gemm& gemm, const ProductMemory& p, const GemmEpilogue& epilogue) {
    const ProductSteps* const pair = pair_of(epilogue);
    if (i < algorithms.size()) multiply(i, gemm, pair ? first_of(*pair, p) : p);
    if (i < algorithms.size() && !pair) return;
    if (!graph) graph = make_cudnn_product(gemm, p.bias != nullptr, epilogue);
    graph(p, epilogue);
  }

 private:
  void multiply(size_t algorithm, const Gemm& gemm, const ProductMemory& p) const;
};

class Plans {
 public:
  static Plans& get() {
    static Plans& plans = *new Plans;
    static const bool hooked = (cuda::at_reset([] { plans.plans_.clear(); }), true);
    static_cast<void>(hooked);
    return plans;
  }

  // Finds the product's plan, or makes it, and lets the plan's choice run: one story for a call, a
  // rehearsal and a capture, which differ in what the functions below say.
  bool run(const Gemm& gemm, const GemmBatch& batch, const ProductMemory& p,
      const GemmEpilogue& epilogue, const std::function<void()>& own) {
    const std::lock_guard lock(cuda::CublasLtHandle::get().mutex);
    // Of all products: an operand's address, or how far apart two are, where that is less aligned.
    const auto aligned = [&](const void* first, DType type, int64_t step) {
      const uintptr_t bytes = uintptr_t(step) * size_of(type);
      return alignment_of(
          reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(first) | bytes));
    };
    const int64_t of_c = batch.products() > 1 ? gemm.m * gemm.n : 0;
    const GemmKey key{gemm, batch, epilogue.kind, p.bias != nullptr, allow_tf32(),
        aligned(p.a, gemm.in, batch.a[1]), aligned(p.b, gemm.in, batch.b[1]), alignment_of(p.bias),
        aligned(p.c, gemm.out, of_c), alignment_of(p.aux),
        batch.products() > 1 ? "" : cudnn_graph(gemm, p, epilogue)};
    if (epilogue.kind == GemmEpilogue::other && key.graph.empty()) return false;
    Plan* plan = plans_.find(key);
    if (key.fused() && is_own_by_model(plan)) return false;
    check_capture(plan);
    if (!plan) plan = add(key, p, pair_of(epilogue));
    const auto question = [&] { return key.question(); };
    const auto make_it = [&](size_t i) {
      if (i == 0) return own();
      plan->run(i - 1, gemm, p, epilogue);
    };
    return run_chosen(plan->choice, "cublaslt_gemm", std::cref(question), std::cref(make_it));
  }

 private:
  // With an epilogue, where nothing was measured: by the model the library's is no better. A
  // rehearsal writes that down.
  static bool is_own_by_model(const Plan* plan) {
    if (choice_rule() != ChoiceRule::model || (plan && plan->choice.measured)) return false;
    if (cuda::rehearsing())
      set_choice_text("own kernel, by the cost model: one launch, as cuBLASLt's would be at best");
    return true;
  }
  // A capture makes and chooses nothing: its rehearsal did.
  static void check_capture(const Plan* plan) {
    SINTER_CHECK(!cuda::capturing() || (plan && plan->choice.made), state,
        "cuda: a matrix product without a plan inside a captured step");
  }
  Plan* add(const GemmKey& key, const ProductMemory& p, const ProductSteps* pair) {
    // What a step has rehearsed it is about to capture; the kernels of a cuDNN graph may stand in
    // a captured step.
    const auto may_go = [](const Plan& other) { return !cuda::rehearsing() && !other.graph; };
    return plans_.add(key, make(key, p, pair), may_go);
  }
  std::unique_ptr<Plan> make(const GemmKey& key, const ProductMemory& p, const ProductSteps* pair);

  PlanCache<GemmKey, Plan> plans_;
};

// A rehearsal asks for the memory, and no more.
void Plan::multiply(size_t algorithm, const Gemm& gemm, const ProductMemory& p) const {
  void* workspace = scratch(cuda::device(), kLibraryWorkspace).memory;
  if (cuda::rehearsing()) return;
  if (p.bias) set(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  if (p.aux) set(matmul, aux_attribute, p.aux);
  const cuda::LibraryScalars scalars(gemm.in);
  SINTER_CUDA_CALL(cublasLtMatmul(cuda::CublasLtHandle::get().on_stream(), matmul, scalars.one(),
      p.b, a, p.a, b, scalars.zero(), p.c, c, p.c, c, &algorithms[algorithm], workspace,
      kLibraryWorkspace, cuda::stream()));
}

std::unique_ptr<Plan> Plans::make(
    const GemmKey& key, const ProductMemory& p, const ProductSteps* pair) {
  const Gemm& g = key.gemm;
  auto plan = std::make_unique<Plan>();
  plan->choice.candidates = {{"own kernel"}};
  const cublasComputeType_t compute = g.in == DType::f64 ? CUBLAS_COMPUTE_64F
                                      : key.tf32 && g.in == DType::f32
                                          ? CUBLAS_COMPUTE_32F_FAST_TF32
                                          : CUBLAS_COMPUTE_32F;
  SINTER_CUDA_CALL(cublasLtMatmulDescCreate(
      &plan->matmul, compute, g.in == DType::f64 ? CUDA_R_64F : CUDA_R_32F));
  set(plan->matmul, CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan->matmul, CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  const Form& form = kForms[key.epilogue];
  set(plan->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, key.has_bias ? form.biased : form.plain);
  // The heuristic reads the alignment of these pointers.
  if (key.has_bias) {
    set(plan->matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda::lt_type_of(g.bias));
    set(plan->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  if (key.epilogue == GemmEpilogue::bias_grad) {
    plan->aux_attribute = CUBLASLT_MATMUL_DESC_BIAS_POINTER;
    set(plan->matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda::lt_type_of(g.out));
  } else if (p.aux) {
    set(plan->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.n);
  }
  if (p.aux) set(plan->matmul, plan->aux_attribute, p.aux);
  const auto layout = [](cuda::LtLayout& to, DType type, int64_t rows, int64_t columns, int64_t ld,
                          bool transposed = false) {
    if (transposed) std::swap(rows, columns);
    SINTER_CUDA_CALL(cublasLtMatrixLayoutCreate(&to, cuda::lt_type_of(type),
        static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld));
  };
  layout(plan->a, g.in, g.n, g.k, g.ldb, g.trans_b);
  layout(plan->b, g.in, g.k, g.m, g.lda, g.trans_a);
  layout(plan->c, g.out, g.n, g.m, pair ? pair->operands[0].strides()[0] : g.ldc);
  if (const GemmBatch& batch = key.batch; batch.products() > 1) {
    for (const auto& [of, step] :
        {std::pair(&plan->a, batch.b[1]), {&plan->b, batch.a[1]}, {&plan->c, g.m * g.n}}) {
      set(*of, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch.count[1]));
      set(*of, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
    }
  }

  cuda::LtPreference preference;
  SINTER_CUDA_CALL(cublasLtMatmulPreferenceCreate(&preference));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kLibraryWorkspace});
  // Split-K that sums in the result's type would lose digits in bf16.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.align_b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.align_a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.align_c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.align_c));
  cublasLtMatmulHeuristicResult_t answers[kProposals] = {};
  int found = 0;
  const cublasStatus_t answer =
      key.epilogue == GemmEpilogue::other && !pair
          ? CUBLAS_STATUS_NOT_SUPPORTED
          : api().cublasLtMatmulAlgoGetHeuristic(cuda::CublasLtHandle::get().on_stream(),
                plan->matmul, plan->a, plan->b, plan->c, plan->c, preference, kProposals, answers,
                &found);
  if (answer == CUBLAS_STATUS_NOT_SUPPORTED || answer == CUBLAS_STATUS_INVALID_VALUE)
    found = 0;
  else
    cuda::check(answer, "cublasLtMatmulAlgoGetHeuristic");
  // An op of one launch is made by no product of two.
  const int most_launches = pair ? 2 : key.fused() ? 1 : INT_MAX;
  for (const cublasLtMatmulHeuristicResult_t& proposal : std::span(answers).first(found)) {
    if (proposal.state != CUBLAS_STATUS_SUCCESS) continue;
    const cublasLtMatmulAlgo_t& algo = plan->algorithms.emplace_back(proposal.algo);
    // The structure is opaque, and bytes from a file are nothing to run: so a choice is kept by a
    // hash of them.
    const uint64_t hash = stable_hash({reinterpret_cast<const char*>(&algo), sizeof algo});
    plan->choice.candidates.push_back({.name = pair ? "cuBLASLt + cuDNN" : "cuBLASLt",
        .version = str(hash),
        .kernel = pair ? "cudnn_graph" : nullptr,
        .most_launches = most_launches,
        .by_time_only = pair != nullptr});
  }
  if (plan->algorithms.empty())
    plan->choice.note =
        key.has_bias && g.bias != g.out
            ? str("cuBLASLt takes no ", name_of(g.bias), " bias for a ", name_of(g.out), " result")
            : "cuBLASLt offers none";
  if (!key.graph.empty() && !pair)
    plan->choice.candidates.push_back({.name = "cuDNN",
        .version = "graph",
        .kernel = "cudnn_graph",
        .most_launches = most_launches,
        .by_time_only = true});
  return plan;
}

}  // namespace

bool cublaslt_gemm(const Gemm& gemm, const void* a, const void* b, const void* bias, void* c,
    const std::function<void()>& own, const GemmEpilogue& epilogue, const GemmBatch& batch) {
  void* const aux = epilogue.kind == GemmEpilogue::gelu_pre    ? epilogue.steps->results[1].raw()
                    : epilogue.kind == GemmEpilogue::gelu_grad ? epilogue.steps->operands[0].raw()
                                                               : epilogue.bias_grad_to;
  return Plans::get().run(gemm, batch, {a, b, bias, c, aux}, epilogue, own);
}

}  // namespace sinter

#else

namespace sinter {
bool cublaslt_gemm(const Gemm&, const void*, const void*, const void*, void*,
    const std::function<void()>&, const GemmEpilogue&, const GemmBatch&) {
  return false;
}
}  // namespace sinter

#endif  // SINTER_HAS_CUDA

namespace sinter {
namespace {
std::atomic<bool> tf32{false};
}  // namespace

bool library_gemm(const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, const Tensor& bias,
    const Tensor& c, const std::function<void()>& own, const GemmEpilogue& epilogue) {
  const int64_t k = a.size(trans_a ? -2 : -1);
  if (choice_rule() == ChoiceRule::own || k == 0 || c.numel() == 0 || !MatrixView::takes(a) ||
      !MatrixView::takes(b))
    return false;
  const GemmBatch batch = batch_of(a, a.strides(), b, b.strides(), c);
  if (batch.count[0] > 1 || batch.count[1] > INT32_MAX) return false;
  const MatrixView va(a), vb(b);
  Gemm gemm = gemm_of(va, trans_a, vb, trans_b, c.dtype());
  if (bias.defined()) gemm.bias = bias.dtype();
  return cublaslt_gemm(
      gemm, va.data, vb.data, bias.defined() ? bias.raw() : nullptr, c.raw(), own, epilogue, batch);
}

void set_allow_tf32(bool allow) { tf32 = allow; }
bool allow_tf32() { return tf32; }

}  // namespace sinter
