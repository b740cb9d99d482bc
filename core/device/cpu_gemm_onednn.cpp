// Matrix products by oneDNN. A primitive and the memory objects that carry its operands' addresses
// serve one call at a time, and its scratch memory belongs to the thread that made it: so each
// thread keeps its own cache, and a call allocates nothing here.
#include "core/device/cpu_gemm.h"
#include "core/parallel.h"

#if SINTER_HAS_ONEDNN
#include <algorithm>
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
  int threads;  // a primitive is planned for a number of threads
  auto operator<=>(const Key&) const = default;
};

struct BatchKey {
  Gemm desc;
  GemmBatch batch;
  int threads;
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

// Whether this processor (as far as DNNL_MAX_CPU_ISA lets it) multiplies bf16 itself.
bool bf16_is_fast() {
  static const bool fast = [] {
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  }();
  return fast;
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

// Inside parallel_for its plan, which is for all threads, does not fit; and its emulation of bf16
// is slower than conversion to f32.
bool declines(const Gemm& desc) {
  return in_parallel() || (desc.in == DType::bf16 && !bf16_is_fast());
}

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
  const int threads = library_threads();
  if (sgemm_fits(desc, bias != nullptr, from)) {
    const auto letter = [](bool trans) { return trans ? 'T' : 'N'; };
    return dnnl_sgemm(letter(desc.trans_a), letter(desc.trans_b), desc.m, desc.n, desc.k, 1,
               static_cast<const float*>(a), desc.lda, static_cast<const float*>(b), desc.ldb, 0,
               static_cast<float*>(c), desc.ldc) == dnnl_success;
  }
  return run(known(Key{desc, bias != nullptr, threads}), a, b, bias, c);
}

bool gemm_onednn(const Gemm& desc, const GemmBatch& batch, const void* a, const void* b, void* c) {
  if (declines(desc)) return false;
  return run(known(BatchKey{desc, batch, library_threads()}), a, b, nullptr, c);
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
const char* onednn_name() { return nullptr; }
#endif

}  // namespace sinter::detail
