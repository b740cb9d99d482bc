#include "measure/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "core/context.h"
#include "measure/rounding.h"
#include "ops/ops.h"

namespace sinter::measure {
namespace {

void check_shape(const std::string& what, const Tensor& given, const Tensor& eager) {
  SINTER_CHECK(given.shape() == eager.shape(), shape,
      str("compare: two shapes of ", what, ": ", given.describe(), " beside eager's ",
          eager.describe()));
}

ParityRow row_of(const ParityPair& pair) {
  check_shape(pair.name, pair.fused, pair.eager);
  if (pair.bound.defined()) check_shape(pair.name, pair.bound, pair.eager);
  const std::vector<double> a = pair.fused.to_vector<double>(), b = pair.eager.to_vector<double>();
  double scale = 0;
  for (const double v : b) scale = std::isfinite(v) ? std::max(scale, std::abs(v)) : scale;
  scale = std::max(scale, 1e-30);  // zeros are differed from by next to nothing
  const std::vector<double> bounds = pair.bound.defined()
                                         ? pair.bound.to_vector<double>()
                                         : std::vector(a.size(), pair.limit * scale);
  ParityRow row{.kind = pair.kind, .name = pair.name};
  const auto at = [&](size_t i) {
    return str(pair.name, " at ", index_of(int64_t(i), pair.eager.shape()).str());
  };
  for (size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
    if (both_nan && row.nan.empty()) row.nan = at(i);
    if (both_nan || a[i] == b[i]) continue;
    double apart = std::abs(a[i] - b[i]), share = apart / bounds[i];
    if (std::isnan(apart)) apart = INFINITY;  // a NaN on one side is the largest of all
    if (std::isnan(share)) share = INFINITY;
    row.absolute = std::max(row.absolute, apart);
    if (share <= row.share) continue;
    row.share = share;
    row.where = at(i);
    if (!std::isfinite(a[i]) || !std::isfinite(b[i]))
      row.where += fmt::format(", {:.3g} where eager has {:.3g}", a[i], b[i]);
    row.where += pair.unit > 0 ? fmt::format(", by {0:.1e} {2}; allowed {1:.1e} {2}",
                                     apart / pair.unit, bounds[i] / pair.unit, pair.unit_name)
                               : fmt::format(", max rel {:.1e}; allowed {:.1g}", apart / scale,
                                     pair.bound.defined() ? bounds[i] / scale : pair.limit);
    row.where += pair.reason;
  }
  row.relative = row.absolute / scale;
  return row;
}

}  // namespace

Parity parity(const std::vector<ParityPair>& pairs) {
  Parity out;
  for (const ParityPair& pair : pairs) out.rows.push_back(row_of(pair));
  return out;
}

const ParityRow* Parity::worst() const {
  const auto at = std::ranges::max_element(rows, {}, &ParityRow::share);
  return at == rows.end() || at->share == 0 ? nullptr : &*at;
}

const ParityRow* Parity::first_beyond() const {
  const auto at = std::ranges::find_if(rows, [](const ParityRow& row) { return row.share > 1; });
  return at == rows.end() ? nullptr : &*at;
}

double Parity::relative(std::string_view kind) const {
  double most = 0;
  for (const ParityRow& row : rows) most = row.kind == kind ? std::max(most, row.relative) : most;
  return most;
}

double Parity::absolute(std::string_view kind) const {
  double most = 0;
  for (const ParityRow& row : rows) most = row.kind == kind ? std::max(most, row.absolute) : most;
  return most;
}

std::string Parity::nan() const {
  for (const ParityRow& row : rows) {
    if (!row.nan.empty()) return row.nan;
  }
  return "";
}

std::string Parity::text() const {
  const ParityRow* const row = worst();
  return row ? fmt::format("at most {:.2g} % of its bound ({})", 100 * row->share, row->name)
             : "to the bit";
}

Tensor update_bound(
    const Tensor& before, const Tensor& eager, const Tensor& less, const Tensor& more) {
  const NoGrad no_grad;
  for (const Tensor* t : {&before, &less, &more}) check_shape("an update", *t, eager);
  const auto f64 = [](const Tensor& t) { return cast(t.to(kCpu), DType::f64); };
  const Tensor b = f64(eager);
  return maximum(abs(f64(less) - b), abs(f64(more) - b)) + scale(abs(b - f64(before)), 0x1p-19) +
         scale(abs(b), 0x1p-22);
}

GradientRounding::GradientRounding() { Context::current().recorders.push_back(this); }
GradientRounding::~GradientRounding() { std::erase(Context::current().recorders, this); }

void GradientRounding::record(const Call& call) {
  if (&call.op == &kAccumulateOp) {  // the parts of a batch
    const std::vector<Made> part = made_[call.in[1].storage().get()];
    std::vector<Made>& all = made_[call.in[0].storage().get()];
    all.insert(all.end(), part.begin(), part.end());
  }
  for (size_t r = 0; r < call.out.size(); ++r) {
    std::vector<Made>& made = made_[call.out[r].storage().get()];
    made.clear();
    if (call.role == Role::wgrad || call.role == Role::bgrad)
      made.push_back({&call.op, Tensors(call.in.begin(), call.in.end()), call.attrs, r});
  }
}

Tensor GradientRounding::of(const Tensor& gradient) const {
  const auto at = made_.find(gradient.storage().get());
  if (at == made_.end() || at->second.empty()) return {};
  Tensor sum = Tensor::zeros(gradient.shape(), DType::f64);
  for (const Made& made : at->second) {
    Tensors in = made.in;
    for (Tensor& t : in) t = t.defined() ? t.to(kCpu) : t;
    const Tensor part = rounding_of_terms(*made.op, in, made.attrs)[made.result];
    const double* const values = part.data<double>() + gradient.offset();  // a row of what it made
    for (int64_t i = 0; i < sum.numel(); ++i) sum.data<double>()[i] += values[i];
  }
  return sum;
}

}  // namespace sinter::measure
