#include "ops/rounding.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/context.h"
#include "core/rng.h"
#include "ops/gemm_library.h"
#include "ops/ops.h"
#include "ops/update.h"

namespace sinter {
namespace {

constexpr uint64_t kRuns = 16;

// Of the last rounding, to the type of the result.
double unit_of(DType type) {
  if (type == DType::bf16) return 0x1p-8;
  return type == DType::f64 ? 0x1p-53 : 0x1p-24;
}

// Below this a result may be 0, or that of an exp() inside.
double smallest_of(DType type) { return type == DType::f64 ? 0x1p-1022 : 0x1p-126; }

// While it lives, no recorder hears of an op and no gradient is prepared.
class Unrecorded {
 public:
  Unrecorded() {
    std::swap(Context::current().recorders, recorders_);
    std::swap(Context::current().grad_enabled, grad_enabled_);
  }
  ~Unrecorded() {
    std::swap(Context::current().recorders, recorders_);
    std::swap(Context::current().grad_enabled, grad_enabled_);
  }
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;

 private:
  std::vector<Recorder*> recorders_;
  bool grad_enabled_ = false;
};

// The copies of parameters that an update writes are bf16 whatever the parameters are.
bool is_bf16_copy(const OpDef& op, const Tensor& t) {
  return op.attrs == attr_type<UpdateAttrs>() && t.dtype() == DType::bf16;
}

// Copies in f64 of what is floating; of the rest, only what the op may change is copied.
Tensors in_f64(const OpDef& op, Operands in) {
  Tensors out(in.begin(), in.end());
  for (size_t i = 0; i < out.size(); ++i) {
    Tensor& t = out[i];
    if (!t.defined()) continue;
    const bool updated_copy = op.writes_input(i, in.size()) && is_bf16_copy(op, t);
    if (is_float(t.dtype()) && t.dtype() != DType::f64 && !updated_copy) {
      t = cast(t, DType::f64);
    } else if (op.writes_input(i, in.size())) {
      t = copy(t);
    }
  }
  return out;
}

Attrs in_f64(Attrs attrs) {
  for (const AttrField& field : attrs.fields()) {
    if (field.value == "f32" || field.value == "bf16") attrs.parse(field.name, "f64");
  }
  return attrs;
}

// The results, then what was changed, of the op or of what a fused op stands for.
Tensors run_on(const OpDef& op, const Tensors& in, const Attrs& attrs) {
  Tensors out = op.reference ? op.reference(in, attrs) : apply(op, in, attrs);
  const Tensors changed = changed_operands(op, in);
  out.insert(out.end(), changed.begin(), changed.end());
  return out;
}

// Which numbers an op adds up, see magnitudes().
enum class SumKind { sum, formula, derivative, log_softmax, log_softmax_backward, other };
SumKind sum_kind_of(const OpDef& op) {
  const auto pointwise = pointwise_ops();
  const auto at = std::find(pointwise.begin(), pointwise.end(), &op) - pointwise.begin();
  if (at < std::ssize(pointwise)) return at % 2 == 0 ? SumKind::formula : SumKind::derivative;
  if (&op == &kLogSoftmaxOp) return SumKind::log_softmax;
  if (&op == &kLogSoftmaxBackwardOp) return SumKind::log_softmax_backward;
  static const std::set<const OpDef*> others{&kSoftmaxOp, &kSoftmaxBackwardOp, &kMseOp,
      &kMseBackwardOp, &kLayerNormOp, &kLayerNormBackwardOp, &kLayerNormWeightGradOp,
      &kBatchNorm2dOp, &kBatchNorm2dEvalOp, &kBatchNorm2dBackwardOp, &kBatchNorm2dWeightGradOp};
  return others.contains(&op) ? SumKind::other : SumKind::sum;
}

// Of the floating operands from `first` on, added to `sum`.
Tensor add_magnitudes(Tensor sum, Operands in, size_t first) {
  for (const Tensor& t : in.subspan(first)) {
    if (t.defined() && is_float(t.dtype())) sum = sum + abs(t);
  }
  return sum;
}

// Of a sum of products, or an update: nothing cancels if no operand is negative. In place, what was
// there before may have cancelled what was added.
Tensors magnitudes_of_sum(const OpDef& op, Operands in, const Attrs& attrs) {
  Tensors positive(in.begin(), in.end()), before = changed_operands(op, in);
  for (size_t i = 0; i < positive.size(); ++i) {
    Tensor& t = positive[i];
    if (t.defined() && is_float(t.dtype())) {
      t = is_bf16_copy(op, t) ? copy(t) : abs(t);
    } else if (t.defined() && op.writes_input(i, in.size())) {
      t = copy(t);
    }
  }
  Tensors all = run_on(op, positive, attrs);
  for (Tensor& t : all) t = is_float(t.dtype()) ? abs(cast(t, DType::f64)) : Tensor();
  for (size_t i = 0; i < before.size(); ++i) {
    Tensor& t = all[all.size() - before.size() + i];
    t = t + scale(abs(cast(before[i], DType::f64)), 2);
  }
  return all;
}

// The bound of each floating result of a plain op whose results have the types `types`.
Tensors bounds_of_plain(const OpDef& op, Operands in, Operands out, const Attrs& attrs,
    const std::vector<DType>& types) {
  int64_t elements = 1;
  for (const Tensor& t : out) elements = std::max(elements, is_float(t.dtype()) ? t.numel() : 0);
  const auto results = out.first(out.size() - changed_operands(op, in).size());
  const double n = double(op.cost(in, results, attrs).flops) / double(elements);
  const bool product = n > 1 && sum_kind_of(op) == SumKind::sum;
  Tensors bounds = magnitudes(op, in, out, attrs);
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (!bounds[i].defined()) continue;
    // TF32 cuts each operand of a product to 11 bits.
    const double cut = product && allow_tf32() && types[i] == DType::f32 ? 2 * 0x1p-10 : 0;
    const Tensor relative = scale(bounds[i], rounding_of_sum(n, types[i]) + cut),
                 last = scale(abs(cast(out[i], DType::f64)), 2 * unit_of(types[i]));
    bounds[i] = relative + last + smallest_of(types[i]);
  }
  return bounds;
}

// Moves what each op of a reference gives by that op's bound: see the Note.
class Roundings : public Recorder {
 public:
  Roundings(DType type, uint64_t run) : type_(type), run_(run) {
    Context::current().recorders.push_back(this);
  }
  ~Roundings() override { std::erase(Context::current().recorders, this); }
  Roundings(const Roundings&) = delete;
  Roundings& operator=(const Roundings&) = delete;

  void check_in_place(const OpDef&, Operands in) const override {
    before_.clear();
    const Unrecorded quiet;
    for (const Tensor& t : in) before_.push_back(t.defined() ? copy(t) : Tensor());
  }
  void record(const Call& call) override {
    if (call.op.view) return;
    const Unrecorded quiet;
    const Operands in = call.op.in_place() ? Operands(before_) : call.in;
    Tensors out(call.out.begin(), call.out.end());
    const Tensors changed = changed_operands(call.op, call.in);
    out.insert(out.end(), changed.begin(), changed.end());
    std::vector<DType> types;
    for (const Tensor& t : out) types.push_back(t.dtype() == DType::f64 ? type_ : t.dtype());
    const Tensors bounds = bounds_of_plain(call.op, in, out, call.attrs, types);
    for (size_t i = 0; i < out.size(); ++i) {
      if (bounds[i].defined()) move(out[i], bounds[i].to_vector<double>());
    }
  }

 private:
  void move(const Tensor& t, const std::vector<double>& bound) {
    ++moved_;
    visit_float(t.dtype(), [&]<class T>(T) {
      T* p = t.data<T>();
      for (size_t i = 0; i < bound.size(); ++i) {
        // At least half of it: of two equal moves in opposite directions something is left.
        // Each second run moves all the other way: so one of two turns a mask or a maximum that is
        // near its edge.
        const uint32_t word = philox_word(run_ / 2, moved_, i);
        const double share = 0.5 + 0.5 * double(uniform_from_bits(word));
        const double by = ((word ^ run_) & 1) != 0 ? share * bound[i] : -share * bound[i];
        p[i] = T(double(p[i]) + by);
      }
    });
  }

  const DType type_;
  const uint64_t run_;
  uint64_t moved_ = 0;
  mutable Tensors before_;  // the operands of the op that changes some of them
};

// In which plain ops keep what lies between the operands of a fused op and its results.
DType narrowest_type(Operands in) {
  DType type = DType::f64;
  for (const Tensor& t : in) {
    if (t.defined() && is_float(t.dtype()) && size_of(t.dtype()) < size_of(type)) type = t.dtype();
  }
  return type;
}

void widen_by_runs(
    std::vector<ExactResult>& exact, const OpDef& op, Operands in, const Attrs& attrs, DType type) {
  for (uint64_t run = 0; run < kRuns; ++run) {
    const Tensors operands = in_f64(op, in);
    const Roundings roundings(type, run);
    const Tensors moved = run_on(op, operands, attrs);
    for (size_t r = 0; r < exact.size(); ++r) {
      const std::vector<double> a = moved[r].to_vector<double>(),
                                b = exact[r].value.to_vector<double>();
      for (size_t i = 0; i < a.size(); ++i)
        exact[r].bound[i] = std::max(exact[r].bound[i], 2 * std::abs(a[i] - b[i]));
    }
  }
}

}  // namespace

double largest_magnitude(Operands tensors) {
  double largest = 1;
  for (const Tensor& t : tensors) {
    if (!t.defined() || !is_float(t.dtype())) continue;
    for (const double v : t.to_vector<double>())
      largest = std::isfinite(v) ? std::max(largest, std::abs(v)) : largest;
  }
  return largest;
}

double rounding_of_sum(double n, DType type, bool alike) {
  return (alike ? 2 * n : 4 * std::sqrt(n)) * unit_of(wide(type));
}

Tensors changed_operands(const OpDef& op, Operands in) {
  Tensors changed;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].defined() && is_float(in[i].dtype()) && op.writes_input(i, in.size()))
      changed.push_back(in[i]);
  }
  return changed;
}

Tensors magnitudes(const OpDef& op, Operands in, Operands out, const Attrs& attrs) {
  const SumKind kind = sum_kind_of(op);
  if (kind == SumKind::sum) return magnitudes_of_sum(op, in, attrs);
  Tensors all(out.size());
  if (kind == SumKind::formula) {  // its steps are about as large as what goes in and comes out
    all[0] = add_magnitudes(abs(out[0]), in, 0);
    return all;
  }
  const Tensor first = abs(in[0]);
  if (kind == SumKind::derivative) {  // dy times a number made of what was saved
    const Tensor number = add_magnitudes(Tensor::ones({}, DType::f64), in, 1);
    for (size_t i = 0; i < out.size(); ++i) all[i] = abs(out[i]) + first * number;
  } else if (kind == SumKind::log_softmax) {  // x - log(sum(exp(x)))
    all[0] = abs(out[0]) + max(first, {-1}, true);
  } else if (kind == SumKind::log_softmax_backward) {  // dy - exp(y) sum(dy)
    all[0] = first + exp(in[1]) * (1 + abs(in[1])) * sum(first, {-1}, true);
  } else {  // a product of two numbers as large as the largest
    Tensors numbers(in.begin(), in.end());
    numbers.insert(numbers.end(), out.begin(), out.end());
    const double largest = largest_magnitude(numbers);
    for (size_t i = 0; i < out.size(); ++i) {
      if (is_float(out[i].dtype()))
        all[i] = Tensor::full(out[i].shape(), largest * largest, DType::f64);
    }
  }
  return all;
}

std::vector<ExactResult> exact_results(const OpDef& op, Operands in, const Attrs& attrs) {
  const Unrecorded quiet;
  const Attrs wide_attrs = in_f64(attrs);
  const Tensors operands = in_f64(op, in), before = in_f64(op, in);
  const Tensors out = run_on(op, operands, wide_attrs);
  std::vector<ExactResult> exact;
  for (const Tensor& t : out) {
    const Tensor dense = contiguous(t);
    exact.push_back({dense, std::vector<double>(size_t(t.numel()))});
  }
  std::vector<DType> types;
  for (const Tensor& t : op.infer ? op.infer(in, attrs) : Tensors{}) types.push_back(t.dtype());
  for (const Tensor& t : changed_operands(op, in)) types.push_back(t.dtype());
  if (op.reference) {
    Tensors typed(in.begin(), in.end());
    for (const DType type : types) typed.push_back(Tensor::shape_only({}, type, kCpu));
    widen_by_runs(exact, op, in, wide_attrs, narrowest_type(typed));
    return exact;
  }
  const Tensors bounds = bounds_of_plain(op, before, out, wide_attrs, types);
  for (size_t r = 0; r < exact.size(); ++r) {
    if (bounds[r].defined()) exact[r].bound = bounds[r].to_vector<double>();
  }
  return exact;
}

double Deviation::share() const {
  if (error == 0) return 0;
  return bound > 0 ? error / bound : INFINITY;
}

Deviation worst_deviation(const Tensors& found, const std::vector<ExactResult>& exact) {
  Deviation worst;
  for (size_t r = 0; r < exact.size(); ++r) {
    const std::vector<double> got = found[r].to_vector<double>(),
                              wanted = exact[r].value.to_vector<double>();
    for (size_t i = 0; i < wanted.size(); ++i) {
      const bool same = got[i] == wanted[i] || (std::isnan(got[i]) && std::isnan(wanted[i]));
      const double error = std::abs(got[i] - wanted[i]);
      const Deviation here{
          same ? 0 : (std::isnan(error) ? INFINITY : error), exact[r].bound[i], r, int64_t(i)};
      const bool first_bound = worst.error == 0 && worst.bound == 0;  // rather than none
      if (here.share() > worst.share() || first_bound) worst = here;
    }
  }
  return worst;
}

}  // namespace sinter
