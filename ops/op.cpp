#include "ops/op.h"

#include <algorithm>
#include <cmath>

#include "core/rng.h"

namespace sinter {

std::string Formula::place() const {
  std::string_view path = file;
  if (const size_t ours = path.rfind("/ops/"); ours != path.npos) path.remove_prefix(ours + 1);
  return str(path, ":", line);
}

static std::string both(
    std::string_view name_a, const Tensor& a, std::string_view name_b, const Tensor& b) {
  return str(name_a, " is ", a.describe(), ", ", name_b, " is ", b.describe());
}

void check_defined(const char* op, std::string_view name, const Tensor& t) {
  SINTER_CHECK(t.defined(), shape, str(op, ": ", name, " is undefined; a tensor is wanted"));
}

void check_same_dtype(const char* op, std::string_view name_a, const Tensor& a,
    std::string_view name_b, const Tensor& b) {
  SINTER_CHECK(a.dtype() == b.dtype(), dtype,
      str(op, ": element types differ: ", both(name_a, a, name_b, b), "; ", name_a, " is ",
          name_of(a.dtype()), ", ", name_b, " is ", name_of(b.dtype())),
      str("cast(", name_b, ", DType::", name_of(a.dtype()), ")"));
}

void check_same_shape(const char* op, std::string_view name_a, const Tensor& a,
    std::string_view name_b, const Tensor& b) {
  SINTER_CHECK(a.shape() == b.shape(), shape,
      str(op, ": shapes differ: ", both(name_a, a, name_b, b), "; they must be equal"));
}

void check_rank(const char* op, std::string_view name, const Tensor& t, int rank) {
  SINTER_CHECK(t.defined() && t.rank() == rank, shape,
      str(op, ": wrong rank: ", name, " is ", t.describe(), "; ", name, " must have ", rank,
          " dims, it has ", t.defined() ? t.rank() : 0));
}

void check_dtype(const char* op, std::string_view name, const Tensor& t, DType wanted) {
  SINTER_CHECK(t.defined() && t.dtype() == wanted, dtype,
      str(op, ": wrong element type: ", name, " is ", t.describe(), "; it must be ",
          name_of(wanted)));
}

void check_floating(const char* op, std::string_view name, const Tensor& t) {
  SINTER_CHECK(t.defined() && is_float(t.dtype()), dtype,
      str(op, ": a floating type is wanted: ", name, " is ", t.describe(),
          "; allowed f32, f64, bf16"));
}

void check_range(const char* op, const char* what, const char* place, const Tensor& t,
    const char* things, int64_t n, int64_t none) {
  const auto check = [&](const auto* values) {
    for (int64_t i = 0; i < t.numel(); ++i) {
      if (values[i] == none && n > 0) continue;
      SINTER_CHECK(values[i] >= 0 && values[i] < n, data,
          str(op, ": ", what, " out of range: ", values[i], " ", place, " ", i, " of ",
              t.describe(), "; ", n, " ", things, " are 0..", n - 1),
          none < 0 && values[i] < 0 ? "an ignore_index leaves rows of such a label out" : "");
    }
  };
  if (t.dtype() == DType::i64) return check(t.data<int64_t>());
  check(t.data<int32_t>());
}

Device device_of(Operands in) {
  for (const Tensor& t : in) {
    if (t.defined()) return t.device();
  }
  return kCpu;
}

int64_t numel_of(Operands in) {
  int64_t n = 0;
  for (const Tensor& t : in) n += t.numel();
  return n;
}

int64_t numel_of_dims(const Tensor& t, int from, int to) {
  int64_t n = 1;
  for (int d = from; d < std::min(to, t.rank()); ++d) n *= t.size(d);
  return n;
}

std::string not_finite(const Tensor& t) {
  if (!t.defined() || !is_float(t.dtype())) return "";
  const std::vector<double> values = t.to_vector<double>();
  auto at = std::ranges::find_if(values, [](double v) { return std::isnan(v); });
  const char* const what = at == values.end() ? "inf" : "nan";
  if (at == values.end()) at = std::ranges::find_if(values, [](double v) { return std::isinf(v); });
  if (at == values.end()) return "";
  return str(what, " at ", index_of(at - values.begin(), t.shape()).str());
}

std::string finiteness(const OpDef& op, Operands in) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (op.writes_input(i, in.size())) continue;
    const std::string found = not_finite(in[i]);
    if (found.empty()) continue;
    const std::string name = in[i].has_autograd() ? in[i].autograd().name : "";
    return str("operand ", i, name.empty() ? "" : str(", ", name, ","), " has ", found);
  }
  return "all are finite";
}

int64_t bytes_of(const Tensor& t) {
  if (!t.defined()) return 0;
  int64_t n = t.numel() == 0 ? 0 : 1;
  for (int d = 0; d < t.rank(); ++d) n *= t.strides()[d] == 0 ? 1 : t.size(d);
  return n * int64_t(size_of(t.dtype()));
}

Cost cost_of(int64_t flops, Operands in, Operands out, const OpDef* op) {
  Cost cost{.flops = flops};
  for (size_t i = 0; i < in.size(); ++i) {
    cost.bytes_read += bytes_of(in[i]);
    if (op && op->writes_input(i, in.size())) cost.bytes_written += bytes_of(in[i]);
  }
  for (const Tensor& t : out) cost.bytes_written += bytes_of(t);
  return cost;
}

int64_t bytes_unless_broadcast(const Tensor& t) {
  for (const int64_t stride : t.strides()) {
    if (stride != 0) return bytes_of(t);
  }
  return t.rank() == 0 ? bytes_of(t) : 0;
}

void check_writable(const char* op, std::string_view name, const Tensor& t) {
  SINTER_CHECK(t.defined(), shape, str(op, ": ", name, " is undefined; it is changed in place"));
  SINTER_CHECK(t.is_contiguous(), shape,
      str(op, ": a dense tensor is wanted: ", name, " is ", t.describe(), " with strides ",
          t.strides().str(), "; it is changed in place"));
}

Tensor sample_tensor(const Shape& shape, uint64_t seed, double low, double high) {
  Tensor t = Tensor::empty(shape, DType::f64);
  double* p = t.data<double>();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double u = (double(philox_word(seed, 77, uint64_t(i))) + 0.5) * 0x1p-32;
    p[i] = low + (high - low) * u;
  }
  return t;
}

Tensor sample_labels(int64_t n, int64_t classes, uint64_t seed) {
  Tensor t = Tensor::empty({n}, DType::i32);
  for (int64_t i = 0; i < n; ++i)
    t.data<int32_t>()[i] = int32_t(philox_word(seed, 78, uint64_t(i)) % uint64_t(classes));
  return t;
}

}  // namespace sinter
