#include "measure/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/context.h"
#include "core/rng.h"
#include "ops/image/pool.h"
#include "ops/ops.h"
#include "ops/optim/update.h"
#include "ops/product/gemm_library.h"

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

double largest_of(DType type) {
  return type == DType::f64 ? std::numeric_limits<double>::max()
                            : std::numeric_limits<float>::max();  // bf16's is about the same
}

// The bound of a number of which only that it is one can be told.
constexpr double kAnyNumber = std::numeric_limits<double>::max();

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
    const DType* type = field.as<DType>();
    if (type && is_float(*type)) attrs.set(field.name, DType::f64);
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
enum class SumKind { sum, formula, derivative, softmax, log_softmax, log_softmax_backward, other };
SumKind sum_kind_of(const OpDef& op) {
  const auto pointwise = pointwise_ops();
  const auto at = std::find(pointwise.begin(), pointwise.end(), &op) - pointwise.begin();
  if (at < std::ssize(pointwise)) return at % 2 == 0 ? SumKind::formula : SumKind::derivative;
  if (&op == &kSoftmaxOp) return SumKind::softmax;
  if (&op == &kLogSoftmaxOp) return SumKind::log_softmax;
  if (&op == &kLogSoftmaxBackwardOp) return SumKind::log_softmax_backward;
  static const std::set<const OpDef*> others{&kSoftmaxBackwardOp, &kMseOp, &kMseBackwardOp,
      &kLayerNormOp, &kLayerNormBackwardOp, &kLayerNormWeightGradOp, &kRmsNormOp,
      &kRmsNormBackwardOp, &kRmsNormWeightGradOp, &kBatchNorm2dOp, &kBatchNorm2dEvalOp,
      &kBatchNorm2dBackwardOp, &kBatchNorm2dWeightGradOp};
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

// FLOPs behind an element of the results `out`, which end with the changed operands.
double flops_of_element(const OpDef& op, Operands in, Operands out, const Attrs& attrs) {
  int64_t elements = 1;
  for (const Tensor& t : out) elements = std::max(elements, is_float(t.dtype()) ? t.numel() : 0);
  const auto results = out.first(out.size() - changed_operands(op, in).size());
  return double(op.cost(in, results, attrs).flops) / double(elements);
}

// How far the sign in an update may take each parameter, where rounding may turn it: see the Note.
Tensor jump_of_sign(
    const OpDef& op, Operands in, const Tensor& exact, const Attrs& attrs, double by) {
  Tensor jump;
  for (const double way : {by, -by}) {
    Tensors moved = in_f64(op, in);
    moved[kGrad] = scale(moved[kGrad], 1 + way);
    moved[kState1] = scale(moved[kState1], 1 - way);
    run_on(op, moved, attrs);
    const Tensor here = abs(moved[kParam] - exact);
    jump = jump.defined() ? maximum(jump, here) : here;
  }
  return jump;
}

// The bound of each floating result of a plain op whose results have the types `types`. A result
// may be wider than its terms, as squared_norm's is; they are of the type `terms`.
Tensors bounds_of_plain(const OpDef& op, Operands in, Operands out, const Attrs& attrs,
    const std::vector<DType>& types, DType terms) {
  const double n = flops_of_element(op, in, out, attrs);
  const bool product = n > 1 && sum_kind_of(op) == SumKind::sum;
  Tensors bounds = magnitudes(op, in, out, attrs);
  const OptimizerRow* const optimizer = optimizer_of(op);
  Tensor jump;
  if (optimizer && optimizer->has_sign)
    jump = jump_of_sign(op, in, out[0], attrs, rounding_of_sum(n, types[0]));
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (!bounds[i].defined()) continue;
    // TF32 cuts each operand of a product to 11 bits.
    const double cut = product && allow_tf32() && types[i] == DType::f32 ? 2 * 0x1p-10 : 0;
    const DType type = size_of(terms) < size_of(types[i]) ? terms : types[i];
    const Tensor relative = scale(bounds[i], rounding_of_sum(n, type) + cut),
                 last = scale(abs(cast(out[i], DType::f64)), 2 * unit_of(types[i]));
    // Operands that are not finite leave no scale; partial results of finite ones may overflow.
    const double largest = largest_of(types[i]);
    const std::vector<double> s = bounds[i].to_vector<double>();
    bounds[i] = contiguous(relative + last + smallest_of(types[i]));
    if (jump.defined() && (i == 0 || is_bf16_copy(op, out[i]))) bounds[i] = bounds[i] + jump;
    double* bound = bounds[i].data<double>();
    for (size_t k = 0; k < s.size(); ++k) {
      if (!(bound[k] <= largest)) bound[k] = std::isfinite(s[k]) ? INFINITY : kAnyNumber;
    }
  }
  return bounds;
}

// What is beyond the largest number of the type becomes infinite.
void overflow(const Tensor& t, DType type) {
  visit_float(t.dtype(), [&]<class T>(T) {
    T* p = t.data<T>();
    for (int64_t i = 0; i < t.numel(); ++i) {
      if (std::abs(double(p[i])) > largest_of(type))
        p[i] = T(std::copysign(INFINITY, double(p[i])));
    }
  });
}

// Listens to the ops of a reference in f64: keeps what each gives in the range of `type`, in a run
// moves it by that op's bound, and notes what was chosen from: see the Note.
class Roundings : public Recorder {
 public:
  Roundings(DType type, std::optional<uint64_t> run) : type_(type), run_(run) {
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
    const Tensors bounds =
        run_ ? bounds_of_plain(call.op, in, out, call.attrs, types, type_) : Tensors(out.size());
    // relu rounds nothing, and its backward reads on which side of 0 its result is.
    static const OpDef* const relu_op = find_op("relu");
    for (size_t i = 0; i < out.size(); ++i) {
      if (is_float(out[i].dtype())) overflow(out[i], type_);
      if (bounds[i].defined() && &call.op != relu_op) move(out[i], bounds[i].to_vector<double>());
    }
    if (&call.op == &kMaxPool2dOp || &call.op == &kArgmaxOp)
      choices.push_back({&call.op, call.attrs, contiguous(in[0]), out.back(), {}});
  }
  std::vector<Pick> choices;  // without bounds

 private:
  void move(const Tensor& t, const std::vector<double>& bound) {
    ++moved_;
    visit_float(t.dtype(), [&]<class T>(T) {
      T* p = t.data<T>();
      std::array<uint32_t, 4> words{};
      for (size_t i = 0; i < bound.size(); ++i) {
        if (i % 4 == 0) words = philox_words(*run_ / 2, moved_, i / 4);
        if (!(bound[i] <= largest_of(type_))) continue;
        // At least half of it: of two equal moves in opposite directions something is left.
        // Each second run moves all the other way: so one of two turns a ReLU or a maximum that is
        // near its edge.
        const uint32_t word = words[i % 4];
        const double share = 0.5 + 0.5 * double(uniform_from_bits(word));
        const double by = ((word ^ *run_) & 1) != 0 ? share * bound[i] : -share * bound[i];
        p[i] = T(double(p[i]) + by);
      }
    });
  }

  const DType type_;
  const std::optional<uint64_t> run_;
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

// How far two numbers lie apart; a NaN is equal to a NaN.
double difference(double a, double b) {
  const double d = std::abs(a - b);
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  return std::isnan(d) ? INFINITY : d;
}

// To the largest change of a run, doubled.
void widen(std::vector<double>& bound, const Tensor& moved, const Tensor& exact) {
  const std::vector<double> a = moved.to_vector<double>(), b = exact.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i)
    bound[i] = std::max(bound[i], std::min(2 * difference(a[i], b[i]), kAnyNumber));
}

// The last rounding, below which no bound is.
std::vector<double> last_rounding(const Tensor& exact, DType type) {
  std::vector<double> bound = exact.to_vector<double>();
  for (double& b : bound)
    b = std::isfinite(b) ? 2 * unit_of(type) * std::abs(b) + smallest_of(type) : kAnyNumber;
  return bound;
}

// The results of what a fused op stands for, and their bounds.
std::vector<ExactResult> results_of_reference(
    const OpDef& op, Operands in, const Attrs& attrs, const std::vector<DType>& types) {
  Tensors typed(in.begin(), in.end());
  for (const DType type : types) typed.push_back(Tensor::shape_only({}, type, kCpu));
  const DType type = narrowest_type(typed);
  std::vector<ExactResult> exact;
  const auto run = [&](std::optional<uint64_t> number) {
    const Tensors operands = in_f64(op, in);
    Roundings roundings(type, number);
    const Tensors out = run_on(op, operands, attrs);
    return std::pair(out, std::move(roundings.choices));
  };
  auto [out, choices] = run({});
  for (Pick& choice : choices) choice.bound = last_rounding(choice.from, type);
  for (size_t r = 0; r < out.size(); ++r) {
    const Tensor dense = contiguous(out[r]);
    const DType stored = r < types.size() ? types[r] : type;  // an op may have no rule of shapes
    exact.push_back({dense, is_float(dense.dtype()) ? last_rounding(dense, stored)
                                                    : std::vector<double>(size_t(dense.numel()))});
  }
  for (uint64_t number = 0; number < kRuns; ++number) {
    const auto [moved, moved_choices] = run(number);
    for (size_t r = 0; r < exact.size(); ++r) widen(exact[r].bound, moved[r], exact[r].value);
    for (size_t c = 0; c < choices.size(); ++c)
      widen(choices[c].bound, moved_choices[c].from, choices[c].from);
  }
  for (size_t r = 0; r < out.size(); ++r) {
    for (const Pick& choice : choices) {
      const Tensor& taken = choice.taken;
      if (taken.storage() == out[r].storage() && taken.numel() == out[r].numel())
        exact[r].choice = choice;
    }
  }
  return exact;
}

// The element of choice.from to which each place of an index points; kNowhere: there is none;
// kZero: the 0 of ReLU, which is larger than all of a window.
constexpr int64_t kNowhere = -1, kZero = -2;
std::vector<int64_t> places(const Pick& choice, const Tensor& taken) {
  const std::vector<int64_t> all = taken.to_vector<int64_t>();
  const Tensor& from = choice.from;
  std::vector<int64_t> out;
  if (choice.op == &kMaxPool2dOp) {
    const auto& attrs = choice.attrs.as<MaxPool2dAttrs>();
    for (const int64_t k : all) out.push_back(attrs.relu && k == kNoPlace ? kZero : kNowhere);
    const PoolPlane plane(attrs, from, choice.taken);
    for (int64_t i = 0; i < std::ssize(all); ++i) {
      const int64_t output = i % plane.outputs(), first = i / plane.outputs() * plane.inputs(),
                    width = plane.columns.outputs;
      plane.for_window(output / width, output % width, [&](int64_t k, int64_t at) {
        out[size_t(i)] = k == all[size_t(i)] ? first + at : out[size_t(i)];
      });
    }
  } else {
    const int dim = normalize_dim("argmax", choice.attrs.as<DimAttrs>().dim, from.rank());
    const int64_t n = from.size(dim), inner = numel_of_dims(from, dim + 1);
    for (int64_t i = 0; i < std::ssize(all); ++i) {
      const int64_t at = all[size_t(i)];
      const bool inside = at >= 0 && at < n;
      out.push_back(inside ? (i / inner * n + at) * inner + i % inner : kNowhere);
    }
  }
  return out;
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

double rounding_of_sum(double n, DType type) { return 4 * std::sqrt(n) * unit_of(wide(type)); }

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
  } else if (kind == SumKind::softmax) {
    // Powers of x - max, which rounds by as much of itself: of the element's, and of the sum's.
    all[0] = scale(abs(out[0]), 1 + 4 * largest_magnitude(in));
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
  std::vector<DType> types;
  for (const Tensor& t : op.results(in, attrs)) types.push_back(t.dtype());
  for (const Tensor& t : changed_operands(op, in)) types.push_back(t.dtype());
  if (op.reference) return results_of_reference(op, in, wide_attrs, types);
  const Tensors operands = in_f64(op, in), before = in_f64(op, in);
  const Tensors out = run_on(op, operands, wide_attrs);
  const bool is_number = in[0].defined() && is_float(in[0].dtype());
  const Tensors bounds =
      bounds_of_plain(op, before, out, wide_attrs, types, is_number ? in[0].dtype() : DType::f64);
  std::vector<ExactResult> exact;
  for (size_t r = 0; r < out.size(); ++r) {
    exact.push_back(
        {contiguous(out[r]), bounds[r].defined() ? bounds[r].to_vector<double>()
                                                 : std::vector<double>(size_t(out[r].numel()))});
  }
  return exact;
}

Tensors rounding_of_terms(const OpDef& op, Operands in, const Attrs& attrs) {
  const Unrecorded quiet;
  const Attrs wide_attrs = in_f64(attrs);
  const Tensors operands = in_f64(op, in), before = in_f64(op, in);
  const Tensors out = run_on(op, operands, wide_attrs);
  const double n = std::max(1.0, flops_of_element(op, before, out, wide_attrs));
  const DType type = narrowest_type(in);
  Tensors all = magnitudes(op, before, out, wide_attrs);
  for (Tensor& t : all) {
    // n terms of about S / n, each off by 2 u or less, add up to sqrt(n) of them.
    if (t.defined()) t = scale(t, rounding_of_sum(n, type) + 4 * unit_of(type) / std::sqrt(n));
  }
  return all;
}

double Deviation::share() const {
  if (error == 0) return 0;
  return bound > 0 && std::isfinite(error) ? error / bound : INFINITY;
}

Deviation worst_deviation(const Tensors& found, const std::vector<ExactResult>& exact) {
  Deviation worst;
  const auto see = [&](const Deviation& here) {
    const bool first_bound = worst.error == 0 && worst.bound == 0;  // rather than none
    if (here.share() > worst.share() || first_bound) worst = here;
  };
  for (size_t r = 0; r < exact.size(); ++r) {
    if (const auto& choice = exact[r].choice) {
      const std::vector<int64_t> got = places(*choice, found[r]),
                                 wanted = places(*choice, exact[r].value);
      const std::vector<double> values = choice->from.to_vector<double>();
      const auto value = [&](int64_t at) {
        return at == kZero ? 0 : at == kNowhere ? NAN : values[size_t(at)];
      };
      const auto bound = [&](int64_t at) { return at < 0 ? 0 : choice->bound[size_t(at)]; };
      for (size_t i = 0; i < got.size(); ++i) {
        if (got[i] == wanted[i]) continue;
        const double error = std::abs(value(got[i]) - value(wanted[i]));
        see({std::isnan(error) ? INFINITY : error, bound(got[i]) + bound(wanted[i]), r,
            int64_t(i)});
      }
      continue;
    }
    const std::vector<double> got = found[r].to_vector<double>(),
                              wanted = exact[r].value.to_vector<double>();
    const double largest = largest_of(found[r].dtype());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double bound = exact[r].bound[i];
      const bool overflowed = bound == INFINITY ? !std::isfinite(got[i])
                                                : std::isinf(got[i]) && got[i] * wanted[i] > 0 &&
                                                      std::abs(wanted[i]) + bound > largest;
      see({overflowed ? 0 : difference(got[i], wanted[i]), bound, r, int64_t(i)});
    }
  }
  return worst;
}

}  // namespace sinter
