// cuBLASLt is column-major: it sees each row-major matrix as its transpose. So it computes C^T = B^T A^T: its first operand is our B, its
// rows are our columns (features), its columns our rows (samples), and a bias over its rows is ours over columns.
#include "ops/gemm_plans.h"

#include <atomic>

#if SINTER_HAS_CUDA

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "core/device/cuda.h"
#include "core/device/cuda_graph.h"
#include "core/device/cuda_stream.h"
#include "core/device/launch_hook.h"
#include "core/device/launch_log.h"
#include "core/rng.h"
#include "core/storage.h"
#include "ops/gemm_library.h"

namespace sinter {
namespace {

using cuda::api;

constexpr size_t kWorkspace = 32 << 20;  // what the library wants on Hopper
constexpr int kProposals = 8;
constexpr int kRepetitions = 20, kRounds = 5;

std::atomic<bool> timing{false};

cudaDataType_t type_of(DType t) { return t == DType::f64 ? CUDA_R_64F : t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// The largest power of two, up to 256, that divides an address.
int alignment_of(const void* p) { return 1 << std::min(8, std::countr_zero(reinterpret_cast<uintptr_t>(p) | 256)); }

// A descriptor of the library's, given back at the end.
template <class T, auto destroy>
class Handle {
 public:
  Handle() = default;
  ~Handle() {
    if (handle_) (api().*destroy)(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  T* operator&() { return &handle_; }
  operator T() const { return handle_; }

 private:
  T handle_ = nullptr;
};
using cuda::Api;
using MatmulDesc = Handle<cublasLtMatmulDesc_t, &Api::cublasLtMatmulDescDestroy>;
using Layout = Handle<cublasLtMatrixLayout_t, &Api::cublasLtMatrixLayoutDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, &Api::cublasLtMatmulPreferenceDestroy>;

struct Operands3 {
  const void *a, *b, *bias;
  void* c;
};

struct Key {
  Gemm gemm;
  bool has_bias, tf32, timed;
  int align_a, align_b, align_bias, align_c;
  bool operator==(const Key&) const = default;
  size_t hash() const {
    uint64_t h = 0;
    for (const int64_t v :
         {gemm.m, gemm.n, gemm.k, gemm.lda, gemm.ldb, gemm.ldc, int64_t{align_a}, int64_t{align_b}, int64_t{align_bias}, int64_t{align_c}})
      h = (h ^ static_cast<uint64_t>(v)) * 0x9e3779b97f4a7c15u;
    return h ^ (gemm.trans_a | gemm.trans_b << 1 | gemm.accumulate << 2 | has_bias << 3 | tf32 << 4 | timed << 5 |
                static_cast<int>(gemm.in) << 6);
  }
};

struct Plan {
  MatmulDesc matmul;
  Layout a, b, c;
  std::vector<cublasLtMatmulHeuristicResult_t> proposals;
  size_t choice = 0;
  std::vector<double> us;  // per proposal, if timed

  void run(const Gemm& gemm, const Operands3& p, const cublasLtMatmulAlgo_t& algo, void* workspace) const;
};

class Plans {
 public:
  static Plans& get() {
    static Plans& plans = *new Plans;
    static const bool hooked = (cuda::at_reset([] { plans.clear(); }), true);
    static_cast<void>(hooked);
    return plans;
  }

  bool run(const Gemm& gemm, const Operands3& p) {
    const std::lock_guard lock(mutex_);
    cuda::thread_state();  // opens the card, or says why not
    if (!handle_) SINTER_CUDA_CALL(cublasLtCreate(&handle_));
    const Key key{
        gemm, p.bias != nullptr, allow_tf32(), timing, alignment_of(p.a), alignment_of(p.b), alignment_of(p.bias), alignment_of(p.c)};
    void* workspace = workspace_of(cuda::stream());
    std::unique_ptr<Plan>& plan = plans_[key];
    if (!plan) {
      SINTER_CHECK(!cuda::capturing(), state, "cuda: a matrix product without a plan inside a captured step");
      plan = make(key, p, workspace);
    }
    if (plan->proposals.empty()) return false;
    if (!cuda::rehearsing()) log_launch({.kernel = "cublaslt_gemm", .grid = {}, .block = 1, .shared_bytes = 0});
    const HookedCall hooked(DeviceWork::kernel, Device::Type::cuda, "cublaslt_gemm", 0, cuda::thread_state().mode == cuda::Mode::run);
    if (!cuda::rehearsing()) plan->run(gemm, p, plan->proposals[plan->choice].algo, workspace);
    return true;
  }

  std::vector<std::string> lines();

  void clear() {
    plans_.clear();
    workspaces_.clear();
    if (handle_) api().cublasLtDestroy(std::exchange(handle_, nullptr));
  }
  cublasLtHandle_t handle() const { return handle_; }

 private:
  struct KeyHash {
    size_t operator()(const Key& key) const { return key.hash(); }
  };
  // One per stream: two branches of a graph must not share one.
  void* workspace_of(cudaStream_t stream) {
    std::unique_ptr<Storage>& w = workspaces_[stream];
    if (!w) w = std::make_unique<Storage>(kWorkspace, cuda::device());
    return w->data();
  }
  std::unique_ptr<Plan> make(const Key& key, const Operands3& p, void* workspace);
  void time(const Key& key, Plan& plan, void* workspace);

  std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans_;
  std::map<cudaStream_t, std::unique_ptr<Storage>> workspaces_;
};

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  SINTER_CUDA_CALL(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  SINTER_CUDA_CALL(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

void Plan::run(const Gemm& gemm, const Operands3& p, const cublasLtMatmulAlgo_t& algo, void* workspace) const {
  if (p.bias) set(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  // Scalars of the compute type.
  const float one = 1, beta = gemm.accumulate ? 1.f : 0.f;
  const double one64 = 1, beta64 = beta;
  const bool f64 = gemm.in == DType::f64;
  const auto scalar = [&](const float& narrow, const double& wide) { return f64 ? static_cast<const void*>(&wide) : &narrow; };
  SINTER_CUDA_CALL(cublasLtMatmul(Plans::get().handle(), matmul, scalar(one, one64), p.b, a, p.a, b, scalar(beta, beta64), p.c, c, p.c, c,
                                  &algo, workspace, kWorkspace, cuda::stream()));
}

std::unique_ptr<Plan> Plans::make(const Key& key, const Operands3& p, void* workspace) {
  const Gemm& g = key.gemm;
  auto plan = std::make_unique<Plan>();
  const cublasComputeType_t compute = g.in == DType::f64               ? CUBLAS_COMPUTE_64F
                                      : key.tf32 && g.in == DType::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                       : CUBLAS_COMPUTE_32F;
  SINTER_CUDA_CALL(cublasLtMatmulDescCreate(&plan->matmul, compute, g.in == DType::f64 ? CUDA_R_64F : CUDA_R_32F));
  set(plan->matmul, CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan->matmul, CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.has_bias) {
    set(plan->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan->matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(g.bias));
    set(plan->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);  // the heuristic reads its alignment
  }
  const auto layout = [](Layout& to, DType type, int64_t rows, int64_t columns, int64_t ld) {
    SINTER_CUDA_CALL(cublasLtMatrixLayoutCreate(&to, type_of(type), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld));
  };
  g.trans_b ? layout(plan->a, g.in, g.k, g.n, g.ldb) : layout(plan->a, g.in, g.n, g.k, g.ldb);
  g.trans_a ? layout(plan->b, g.in, g.m, g.k, g.lda) : layout(plan->b, g.in, g.k, g.m, g.lda);
  layout(plan->c, g.out, g.n, g.m, g.ldc);

  Preference preference;
  SINTER_CUDA_CALL(cublasLtMatmulPreferenceCreate(&preference));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspace});
  // Split-K that sums in the result's type would lose digits in bf16.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.align_b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.align_a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.align_c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.align_c));
  plan->proposals.resize(kProposals);
  int found = 0;
  const cublasStatus_t answer = api().cublasLtMatmulAlgoGetHeuristic(handle_, plan->matmul, plan->a, plan->b, plan->c, plan->c, preference,
                                                                     kProposals, plan->proposals.data(), &found);
  if (answer == CUBLAS_STATUS_NOT_SUPPORTED || answer == CUBLAS_STATUS_INVALID_VALUE)
    found = 0;
  else
    cuda::check(answer, "cublasLtMatmulAlgoGetHeuristic");
  plan->proposals.resize(static_cast<size_t>(found));
  std::erase_if(plan->proposals, [](const auto& proposal) { return proposal.state != CUBLAS_STATUS_SUCCESS; });
  if (key.timed && api().real && plan->proposals.size() > 1) time(key, *plan, workspace);
  return plan;
}

// On operands of its own, random and never NaN: at the time of a rehearsal the true ones hold nothing yet.
void Plans::time(const Key& key, Plan& plan, void* workspace) {
  const Gemm& g = key.gemm;
  cuda::ThreadState& thread = cuda::thread_state();
  const auto mode = std::exchange(thread.mode, cuda::Mode::run);
  const auto kept = std::exchange(thread.kept, nullptr);
  const struct Restore {
    cuda::ThreadState& thread;
    cuda::Mode mode;
    decltype(kept) blocks;
    cuda::Stream* now;
    ~Restore() { thread.mode = mode, thread.kept = blocks, thread.now = now; }
  } restore{thread, mode, kept, std::exchange(thread.now, thread.main)};
  const auto random = [&](int64_t elements, DType type) {
    constexpr int64_t kPattern = 1 << 16;
    std::vector<float> values(kPattern);
    for (int64_t i = 0; i < kPattern; ++i)
      values[static_cast<size_t>(i)] = uniform_from_bits(philox_word(11, 0, static_cast<uint64_t>(i))) - 0.5f;
    std::vector<std::byte> pattern(static_cast<size_t>(kPattern) * size_of(type));
    for (size_t i = 0; i < values.size(); ++i) {
      if (type == DType::f64)
        reinterpret_cast<double*>(pattern.data())[i] = values[i];
      else if (type == DType::bf16)
        reinterpret_cast<bf16*>(pattern.data())[i] = bf16(values[i]);
      else
        reinterpret_cast<float*>(pattern.data())[i] = values[i];
    }
    auto storage = std::make_unique<Storage>(static_cast<size_t>(elements) * size_of(type), cuda::device());
    for (size_t at = 0; at < storage->bytes(); at += pattern.size())
      cuda::copy_to_device(static_cast<char*>(storage->data()) + at, pattern.data(), std::min(pattern.size(), storage->bytes() - at));
    return storage;
  };
  const auto a = random((g.trans_a ? g.k : g.m) * g.lda, g.in), b = random((g.trans_b ? g.n : g.k) * g.ldb, g.in),
             c = random(g.m * g.ldc, g.out);
  const auto bias = key.has_bias ? random(g.n, g.bias) : nullptr;
  const Operands3 p{a->data(), b->data(), bias ? bias->data() : nullptr, c->data()};
  for (const auto& proposal : plan.proposals) {
    plan.run(g, p, proposal.algo, workspace);  // loads it
    cuda::GraphBuilder builder(0, false);
    builder.begin(cuda::Pass::capture);
    for (int i = 0; i < kRepetitions; ++i) plan.run(g, p, proposal.algo, workspace);
    plan.us.push_back(builder.end()->milliseconds(kRounds) * 1e3 / kRepetitions);
  }
  plan.choice = static_cast<size_t>(std::min_element(plan.us.begin(), plan.us.end()) - plan.us.begin());
}

std::vector<std::string> Plans::lines() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& [key, plan] : plans_) {
    const Gemm& g = key.gemm;
    std::string line = cat("cublaslt_gemm ", name_of(g.in), " -> ", name_of(g.out), " m ", g.m, " n ", g.n, " k ", g.k,
                           g.trans_a ? " A^T" : " A", g.trans_b ? " B^T" : " B", key.has_bias ? " + bias" : "", g.accumulate ? " + C" : "",
                           key.tf32 ? " tf32" : "", ": ", plan->proposals.size(), " proposals");
    if (!plan->proposals.empty())
      line += cat(", number ", plan->choice + 1, plan->us.empty() ? " (the first, untimed)" : " (the fastest), us:");
    for (const double us : plan->us) line += cat(" ", us);
    lines.push_back(std::move(line));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace

bool cublaslt_gemm(const Gemm& gemm, const void* a, const void* b, const void* bias, void* c) {
  return Plans::get().run(gemm, {a, b, bias, c});
}
void set_gemm_timing(bool on) { timing = on; }
std::vector<std::string> gemm_plan_lines() { return Plans::get().lines(); }

}  // namespace sinter

#else

namespace sinter {
bool cublaslt_gemm(const Gemm&, const void*, const void*, const void*, void*) { return false; }
void set_gemm_timing(bool) {}
std::vector<std::string> gemm_plan_lines() { return {}; }

}  // namespace sinter

#endif  // SINTER_HAS_CUDA
