// cuBLASLt is column-major: it sees each row-major matrix as its transpose. So it computes C^T =
// B^T A^T: its first operand is our B, its rows are our columns (features), its columns our rows
// (samples), and a bias over its rows is ours over columns.
#include "ops/product/gemm_plans.h"

#if SINTER_HAS_CUDA

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>

#include "core/cache.h"
#include "core/device/cuda.h"
#include "core/device/cuda_cublaslt.h"
#include "core/device/cuda_graph.h"
#include "core/device/cuda_stream.h"
#include "core/device/kept_choices.h"
#include "core/device/launch_hook.h"
#include "core/device/launch_log.h"
#include "core/device/memory.h"
#include "core/error.h"
#include "ops/product/fast/gemm_key.h"
#include "ops/product/gemm_library.h"

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

struct Pointers {
  const void *a, *b, *bias;
  void *c, *aux;
};

// By GemmEpilogue::Kind: without and with a bias.
struct Form {
  cublasLtEpilogue_t plain, biased;
};
constexpr Form kForms[] = {{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS},
    {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS},
    {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS},
    {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
    {CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU},
    {CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_BGRADB}};

constexpr int kOwn = -1, kFails = -2;
struct Proposal {
  cublasLtMatmulAlgo_t algo;
  int launches = -1;  // -1: not counted yet, 0: could not be counted, kFails: does not run
  double us = 0;      // 0: not timed
};
uint64_t hash_of(const Proposal& proposal) {
  return stable_hash({reinterpret_cast<const char*>(&proposal.algo), sizeof proposal.algo});
}
struct Plan {
  cuda::LtMatmul matmul;
  cuda::LtLayout a, b, c;
  cublasLtMatmulDescAttributes_t aux_attribute = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER;
  std::vector<Proposal> proposals;
  std::string without = "cuBLASLt offers none";  // why there are no proposals, if there are none
  int first = kOwn;                              // the first proposal that would do
  bool measured = false, before = false;         // before: by an earlier process
  int fastest = kOwn;                            // if measured
  double library_us = 0, own_us = 0;  // if measured: the fastest proposal, the own kernel

  void run(const Gemm& gemm, const Pointers& p, const Proposal& proposal, void* workspace) const;
  std::string said(int choice) const;
  std::string answer() const;
};

// For take_gemm_choice(); written in rehearsals only.
thread_local std::string choice_text;

class Plans {
 public:
  static Plans& get() {
    static Plans& plans = *new Plans;
    static const bool hooked = (cuda::at_reset([] { plans.clear(); }), true);
    static_cast<void>(hooked);
    return plans;
  }

  bool run(const Gemm& gemm, const Pointers& p, const GemmEpilogue& epilogue,
      const std::function<void()>& own) {
    const std::lock_guard lock(mutex_);
    const GemmChoice rule = gemm_choice();
    const GemmKey key{gemm, epilogue.kind, epilogue.ld, p.bias != nullptr, allow_tf32(),
        alignment_of(p.a), alignment_of(p.b), alignment_of(p.bias), alignment_of(p.c),
        alignment_of(p.aux)};
    const bool tell = own && cuda::rehearsing();  // opens the card, or says why not
    auto found = plans_.find(key);
    if (own && key.fused() && rule == GemmChoice::model && found == plans_.end()) {
      if (tell)
        choice_text = "own kernel, by the cost model: one launch, as cuBLASLt's would be at best";
      return false;
    }
    if (!handle_) SINTER_CUDA_CALL(cublasLtCreate(&handle_));
    void* workspace = scratch(cuda::device(), kLibraryWorkspace).memory;
    if (found == plans_.end()) {
      SINTER_CHECK(!cuda::capturing(), state,
          "cuda: a matrix product without a plan inside a captured step");
      found = plans_.emplace(key, make(key, p, workspace)).first;
    }
    const std::unique_ptr<Plan>& plan = found->second;
    if (rule == GemmChoice::measured && !plan->measured && !cuda::capturing()) {
      const std::string question = cat(key.text(), own ? ", or by the own kernel" : "");
      if (!recall(question, key, *plan, p, workspace)) {
        measure(key, *plan, p, workspace, own);
        if (plan->library_us > 0) keep_choice(question, plan->answer());
      }
    }
    // What was measured once stays: a step that is replayed as a list runs what it was planned
    // with.
    const bool by_time = plan->measured && rule != GemmChoice::library;
    const int choice = by_time                                           ? plan->fastest
                       : own && key.fused() && rule == GemmChoice::model ? kOwn
                                                                         : plan->first;
    if (tell && (key.fused() || by_time || choice == kOwn)) choice_text = plan->said(choice);
    if (choice == kOwn) return false;
    const Proposal& proposal = plan->proposals[static_cast<size_t>(choice)];
    if (!cuda::rehearsing()) {
      for (int i = 0; i < std::max(proposal.launches, 1); ++i)
        log_launch({.kernel = "cublaslt_gemm", .grid = {}, .block = 1, .shared_bytes = 0});
    }
    const HookedCall hooked(DeviceWork::kernel, Device::Type::cuda, "cublaslt_gemm", 0,
        cuda::thread_state().mode == cuda::Mode::run, proposal.launches);
    if (!cuda::rehearsing()) plan->run(gemm, p, proposal, workspace);
    return true;
  }

  std::vector<std::string> lines();

  void clear() {
    plans_.clear();
    if (handle_) api().cublasLtDestroy(std::exchange(handle_, nullptr));
  }
  cublasLtHandle_t handle() const { return handle_; }

 private:
  std::unique_ptr<Plan> make(const GemmKey& key, const Pointers& p, void* workspace);
  void count(
      const GemmKey& key, const Plan& plan, Proposal& proposal, const Pointers& p, void* workspace);
  bool can_be_timed(
      const GemmKey& key, const Plan& plan, Proposal& proposal, const Pointers& p, void* workspace);
  void measure(const GemmKey& key, Plan& plan, const Pointers& p, void* workspace,
      const std::function<void()>& own);
  bool recall(const std::string& question, const GemmKey& key, Plan& plan, const Pointers& p,
      void* workspace);

  std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmKey, std::unique_ptr<Plan>> plans_;
};

void Plan::run(
    const Gemm& gemm, const Pointers& p, const Proposal& proposal, void* workspace) const {
  if (p.bias) set(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  if (p.aux) set(matmul, aux_attribute, p.aux);
  // Scalars of the compute type.
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const bool f64 = gemm.in == DType::f64;
  const auto scalar = [&](const float& narrow, const double& wide) {
    return f64 ? static_cast<const void*>(&wide) : &narrow;
  };
  SINTER_CUDA_CALL(cublasLtMatmul(Plans::get().handle(), matmul, scalar(one, one64), p.b, a, p.a, b,
      scalar(zero, zero64), p.c, c, p.c, c, &proposal.algo, workspace, kLibraryWorkspace,
      cuda::stream()));
}

// "cuBLASLt, measured 3.1 us, own kernel 4.2"
std::string Plan::said(int choice) const {
  const auto text = [](double us) { return cat(std::round(us * 10) / 10, " us"); };
  const char* who = choice == kOwn ? "own kernel" : "cuBLASLt";
  if (first == kOwn)
    return cat(who, ": ", proposals.empty() ? without : "cuBLASLt offers none of one kernel");
  if (!measured || own_us == 0)
    return cat(who, choice == kOwn ? ", by the cost model" : ", as was asked for");
  const std::string times =
      choice == kOwn ? cat(", measured ", text(own_us), ", cuBLASLt ", text(library_us))
                     : cat(", measured ", text(library_us), ", own kernel ", text(own_us));
  return cat(who, times, before ? "; measured before on this card" : "");
}

// The algorithm of a proposal is kept as its number among the heuristic's answers, which are the
// same for the same question to the same version, and as a hash of its bytes, to be sure: the
// structure is opaque, and bytes from a file are nothing to run.
std::string Plan::answer() const {
  uint64_t algorithm = 0;
  if (fastest != kOwn) algorithm = hash_of(proposals[static_cast<size_t>(fastest)]);
  return cat(fastest, " ", algorithm, " ", library_us, " ", own_us);
}

std::unique_ptr<Plan> Plans::make(const GemmKey& key, const Pointers& p, void* workspace) {
  const Gemm& g = key.gemm;
  auto plan = std::make_unique<Plan>();
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
    if (g.bias != g.out)
      plan->without =
          cat("cuBLASLt takes no ", name_of(g.bias), " bias for a ", name_of(g.out), " result");
  }
  if (key.epilogue == GemmEpilogue::bias_grad) {
    plan->aux_attribute = CUBLASLT_MATMUL_DESC_BIAS_POINTER;
    set(plan->matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda::lt_type_of(g.out));
  } else if (p.aux) {
    set(plan->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.aux_ld);
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
  layout(plan->c, g.out, g.n, g.m, g.ldc);

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
  const cublasStatus_t answer = api().cublasLtMatmulAlgoGetHeuristic(handle_, plan->matmul, plan->a,
      plan->b, plan->c, plan->c, preference, kProposals, answers, &found);
  if (answer == CUBLAS_STATUS_NOT_SUPPORTED || answer == CUBLAS_STATUS_INVALID_VALUE)
    found = 0;
  else
    cuda::check(answer, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < found; ++i) {
    if (answers[i].state == CUBLAS_STATUS_SUCCESS)
      plan->proposals.push_back({.algo = answers[i].algo});
  }
  for (size_t i = 0; i < plan->proposals.size() && plan->first == kOwn; ++i) {
    count(key, *plan, plan->proposals[i], p, workspace);
    const int launches = plan->proposals[i].launches;
    if (key.fused() ? launches == 1 : launches != kFails) plan->first = static_cast<int>(i);
  }
  return plan;
}

// REQUIRES: what p names may be written; whoever asked makes the result afterwards.
void Plans::count(
    const GemmKey& key, const Plan& plan, Proposal& proposal, const Pointers& p, void* workspace) {
  const cuda::Aside aside;
  proposal.launches = kFails;
  try {
    plan.run(key.gemm, p, proposal, workspace);  // loads the kernels, which a capture must not
    proposal.launches = 0;
    cuda::GraphBuilder builder(0, false);
    builder.begin(cuda::Pass::capture);
    plan.run(key.gemm, p, proposal, workspace);
    proposal.launches = static_cast<int>(builder.count());
  } catch (const Error&) {  // the next one, or the own kernel
  }
}

// Counts its launches if nobody has: an op of one launch is made by no product of two.
bool Plans::can_be_timed(
    const GemmKey& key, const Plan& plan, Proposal& proposal, const Pointers& p, void* workspace) {
  if (proposal.launches < 0) count(key, plan, proposal, p, workspace);
  return key.fused() ? proposal.launches == 1 : proposal.launches >= 1;
}

// On the operands as they are: in a measured step these are the stopwatch's random copies
// (capture/measure.cpp).
void Plans::measure(const GemmKey& key, Plan& plan, const Pointers& p, void* workspace,
    const std::function<void()>& own) {
  const cuda::Aside aside;
  plan.fastest = kOwn;
  for (size_t i = 0; i < plan.proposals.size(); ++i) {
    Proposal& proposal = plan.proposals[i];
    if (!can_be_timed(key, plan, proposal, p, workspace)) continue;
    proposal.us = cuda::microseconds_of([&] { plan.run(key.gemm, p, proposal, workspace); });
    if (plan.fastest == kOwn || proposal.us < plan.library_us) {
      plan.library_us = proposal.us;
      plan.fastest = static_cast<int>(i);
    }
    if (plan.first == kOwn) plan.first = static_cast<int>(i);
  }
  if (own && plan.fastest != kOwn) {
    plan.own_us = cuda::microseconds_of(own);
    if (plan.own_us <= plan.library_us) plan.fastest = kOwn;
  }
  plan.measured = true;
}

// False: there is no answer of before, or not to what the library proposes now.
bool Plans::recall(const std::string& question, const GemmKey& key, Plan& plan, const Pointers& p,
    void* workspace) {
  std::istringstream answer(kept_choice(question).value_or(""));
  int fastest = kOwn;
  uint64_t algorithm = 0;
  double library_us = 0, own_us = 0;
  answer >> fastest >> algorithm >> library_us >> own_us;
  if (!answer || fastest < kOwn || fastest >= static_cast<int>(plan.proposals.size())) return false;
  if (fastest != kOwn) {
    Proposal& chosen = plan.proposals[static_cast<size_t>(fastest)];
    if (hash_of(chosen) != algorithm || !can_be_timed(key, plan, chosen, p, workspace))
      return false;
    chosen.us = library_us;
  }
  plan.fastest = fastest;
  plan.library_us = library_us;
  plan.own_us = own_us;
  plan.measured = plan.before = true;
  return true;
}

std::vector<std::string> Plans::lines() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& [key, plan] : plans_) {
    std::string line =
        cat("cublaslt_gemm ", key.product(), ": ", plan->proposals.size(), " proposals");
    const int choice = plan->measured ? plan->fastest : plan->first;
    line += choice == kOwn ? ", own kernel" : cat(", number ", choice + 1);
    line += plan->measured ? " (the fastest)" : " (the first, untimed)";
    for (const Proposal& proposal : plan->proposals) {
      if (proposal.launches >= 0)
        line += cat(", ", proposal.launches ? cat(proposal.launches) : ">=1",
            proposal.launches == 1 ? " launch" : " launches");
      if (proposal.us > 0) line += cat(" ", proposal.us, " us");
    }
    if (plan->own_us > 0) line += cat(", own kernel ", plan->own_us, " us");
    lines.push_back(std::move(line));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace

bool cublaslt_gemm(const Gemm& gemm, const void* a, const void* b, const void* bias, void* c,
    const GemmEpilogue& epilogue, const std::function<void()>& own) {
  return Plans::get().run(gemm, {a, b, bias, c, epilogue.aux}, epilogue, own);
}
std::string take_gemm_choice() { return std::exchange(choice_text, {}); }
std::vector<std::string> gemm_plan_lines() { return Plans::get().lines(); }

}  // namespace sinter

#else

namespace sinter {
bool cublaslt_gemm(const Gemm&, const void*, const void*, const void*, void*, const GemmEpilogue&,
    const std::function<void()>&) {
  return false;
}
std::string take_gemm_choice() { return {}; }
std::vector<std::string> gemm_plan_lines() { return {}; }

}  // namespace sinter

#endif  // SINTER_HAS_CUDA
