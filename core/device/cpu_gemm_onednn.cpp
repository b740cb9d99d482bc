// Matrix products by oneDNN, on one thread each: parallel_for shares them out, as OpenMP's threads,
// which oneDNN would take, wait by spinning on the cores of ours. A primitive and the memory
// objects that carry its operands' addresses serve one call at a time, and its scratch memory
// belongs to the thread that made it: so each thread keeps its own cache, and a call allocates
// nothing here.
#include "core/device/cpu_gemm.h"
#include "core/parallel.h"

#if SINTER_HAS_ONEDNN
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#endif

namespace sinter::detail {

#if SINTER_HAS_ONEDNN
namespace {

struct Key {
  Gemm desc;
  bool has_bias;
  auto operator<=>(const Key&) const = default;
};

struct BatchKey {
  Gemm desc;
  GemmBatch batch;
  auto operator<=>(const BatchKey&) const = default;
};

struct Plan {
  dnnl::matmul primitive;
  dnnl::memory a, b, bias, c;
};

using Strides = dnnl::memory::dims;

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// Nothing if this oneDNN has no such product, or only a slow reference of it.
std::optional<Plan> plan(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
    const dnnl::memory::desc& bias, const dnnl::memory::desc& c) {
  const dnnl::matmul::desc op =
      bias.is_zero() ? dnnl::matmul::desc(a, b, c) : dnnl::matmul::desc(a, b, bias, c);
  const dnnl::matmul::primitive_desc pd(op, cpu(), /*allow_empty=*/true);
  if (!pd || std::string_view(pd.impl_info_str()).starts_with("ref")) return std::nullopt;
  const auto memory = [](const dnnl::memory::desc& desc) {
    return dnnl::memory(desc, cpu(), nullptr);
  };
  return Plan{dnnl::matmul(pd), memory(a), memory(b), memory(bias), memory(c)};
}

std::optional<Plan> plan(const Key& key) {
  const Gemm& d = key.desc;
  const dnnl::memory::desc a(
      {d.m, d.k}, type_of(d.in), d.trans_a ? Strides{1, d.lda} : Strides{d.lda, 1});
  const dnnl::memory::desc b(
      {d.k, d.n}, type_of(d.in), d.trans_b ? Strides{1, d.ldb} : Strides{d.ldb, 1});
  const dnnl::memory::desc c({d.m, d.n}, type_of(d.out), Strides{d.ldc, 1});
  return plan(a, b,
      key.has_bias ? dnnl::memory::desc({1, d.n}, type_of(d.bias), Strides{d.n, 1})
                   : dnnl::memory::desc(),
      c);
}

std::optional<Plan> plan(const BatchKey& key) {
  const Gemm& d = key.desc;
  // An operand that products share is one along that dim.
  const auto operand = [&](DType type, const int64_t(&step)[2], int64_t rows, int64_t cols,
                           int64_t by_row, int64_t by_col) {
    const auto many = [&](int dim) { return step[dim] == 0 ? 1 : key.batch.count[dim]; };
    const auto apart = [&](int dim) { return step[dim] == 0 ? rows * cols : step[dim]; };
    return dnnl::memory::desc(
        {many(0), many(1), rows, cols}, type_of(type), Strides{apart(0), apart(1), by_row, by_col});
  };
  const int64_t of_c[2] = {key.batch.count[1] * d.m * d.n, d.m * d.n};
  return plan(operand(d.in, key.batch.a, d.m, d.k, d.trans_a ? 1 : d.lda, d.trans_a ? d.lda : 1),
      operand(d.in, key.batch.b, d.k, d.n, d.trans_b ? 1 : d.ldb, d.trans_b ? d.ldb : 1), {},
      operand(d.out, of_c, d.m, d.n, d.n, 1));
}

// The plan of this thread for a key.
template <class K> const std::optional<Plan>& known(const K& key) {
  static thread_local std::map<K, std::optional<Plan>> cache;
  auto found = cache.find(key);
  if (found == cache.end()) {
    constexpr size_t kMostProducts = 256;
    if (cache.size() >= kMostProducts) cache.clear();
    found = cache.emplace(key, plan(key)).first;
  }
  return found->second;
}

bool run(const std::optional<Plan>& plan, const void* a, const void* b, const void* bias, void* c) {
  if (!plan) return false;
  static thread_local dnnl::stream stream(cpu());
  plan->a.set_data_handle(const_cast<void*>(a));
  plan->b.set_data_handle(const_cast<void*>(b));
  plan->c.set_data_handle(c);
  if (bias) plan->bias.set_data_handle(const_cast<void*>(bias));
  // The C call: the C++ one builds a hash map and a vector for each call.
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, plan->a.get()}, {DNNL_ARG_WEIGHTS, plan->b.get()},
      {DNNL_ARG_DST, plan->c.get()}, {DNNL_ARG_BIAS, plan->bias.get()}};
  const dnnl_status_t status =
      dnnl_primitive_execute(plan->primitive.get(), stream.get(), bias ? 4 : 3, args);
  SINTER_ASSERT(status == dnnl_success, "gemm: oneDNN status ", int(status));
  return true;
}

// oneDNN's emulation of bf16 is slower than own kernels.
bool declines(const Gemm& desc) { return desc.in == DType::bf16 && !onednn_multiplies_bf16(); }

// While one is there, oneDNN keeps to the calling thread: OpenMP's setting is each thread's own. A
// oneDNN that asks something else keeps its threads.
class OneThread {
 public:
  OneThread() {
    if (set_ && most_) set_(1);
  }
  ~OneThread() {
    if (set_ && most_) set_(before_);
  }

 private:
  template <class F> static F* find(const char* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
  }
  static inline void (*const set_)(int) = find<void(int)>("omp_set_num_threads");
  static inline int (*const most_)() = find<int()>("omp_get_max_threads");
  const int before_ = most_ ? most_() : 0;
};

bool sgemm_fits(const Gemm& d, bool has_bias, const SgemmFrom& from) {
  if (d.in != DType::f32 || has_bias) return false;
  const double products = double(d.m) * double(d.n) * double(d.k);
  return d.trans_b ? products >= from.products_of_transposed
                   : products >= from.products && std::max({d.m, d.n, d.k}) >= from.side;
}

}  // namespace

bool gemm_onednn(const Gemm& desc, const void* a, const void* b, const void* bias, void* c,
    const SgemmFrom& from) {
  if (declines(desc)) return false;
  const bool by_sgemm = sgemm_fits(desc, bias != nullptr, from);
  // Blocks of C, one for each thread, as square as their number lets them be: each reads few rows
  // of A and columns of B.
  const int64_t blocks =
      std::clamp<int64_t>(desc.m * desc.n / grain_of(desc.k / 8), 1, num_threads());
  Gemm block = desc;
  int64_t across = 1;
  for (int64_t n = 1, least = INT64_MAX; n <= blocks; ++n) {
    const int64_t rows = (desc.m * n + blocks - 1) / blocks,
                  cols = ((desc.n + n - 1) / n + 15) / 16 * 16;
    if (blocks % n != 0 || rows + cols >= least) continue;
    least = rows + cols;
    across = n;
    block.m = rows;
    block.n = cols;
  }
  std::atomic<bool> done = true;
  parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    const OneThread alone;
    for (int64_t q = begin; q < end; ++q) {
      const int64_t i = q / across * block.m, j = q % across * block.n;
      Gemm d = desc;
      d.m = std::min(block.m, desc.m - i);
      d.n = std::min(block.n, desc.n - j);
      if (d.m <= 0 || d.n <= 0) continue;
      const void* const of_a = at(a, d.in, d.trans_a ? i : i * d.lda);
      const void* const of_b = at(b, d.in, d.trans_b ? j * d.ldb : j);
      void* const of_c = at(c, d.out, i * d.ldc + j);
      if (by_sgemm) {
        const auto letter = [](bool trans) { return trans ? 'T' : 'N'; };
        if (dnnl_sgemm(letter(d.trans_a), letter(d.trans_b), d.m, d.n, d.k, 1,
                static_cast<const float*>(of_a), d.lda, static_cast<const float*>(of_b), d.ldb, 0,
                static_cast<float*>(of_c), d.ldc) != dnnl_success)
          done = false;
      } else if (!run(known(Key{d, bias != nullptr}), of_a, of_b,
                     bias ? at(bias, d.bias, j) : nullptr, of_c)) {
        done = false;
      }
    }
  });
  return done;
}

bool gemm_onednn(const Gemm& desc, const GemmBatch& batch, const void* a, const void* b, void* c) {
  if (declines(desc)) return false;
  // Each thread makes a part of the first dim that has products to share.
  const int dim = batch.count[0] > 1 ? 0 : 1;
  std::atomic<bool> done = true;
  const int64_t of_c = batch.products() / batch.count[dim] * desc.m * desc.n;
  parallel_for(batch.count[dim], grain_of(of_c * desc.k / 8), [&](int64_t begin, int64_t end) {
    const OneThread alone;
    GemmBatch part = batch;
    part.count[dim] = end - begin;
    if (!run(known(BatchKey{desc, part}), at(a, desc.in, begin * batch.a[dim]),
            at(b, desc.in, begin * batch.b[dim]), nullptr, at(c, desc.out, begin * of_c)))
      done = false;
  });
  return done;
}

// As far as DNNL_MAX_CPU_ISA lets it.
bool onednn_multiplies_bf16() {
  static const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

const char* onednn_name() {
  static const std::string name =
      str("oneDNN ", dnnl_version()->major, ".", dnnl_version()->minor, ".", dnnl_version()->patch);
  return name.c_str();
}

#else
bool gemm_onednn(const Gemm&, const void*, const void*, const void*, void*, const SgemmFrom&) {
  return false;
}
bool gemm_onednn(const Gemm&, const GemmBatch&, const void*, const void*, void*) { return false; }
bool onednn_multiplies_bf16() { return false; }
const char* onednn_name() { return nullptr; }
#endif

}  // namespace sinter::detail
