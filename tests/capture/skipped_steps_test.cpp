// Parameters that have no gradient in some steps, under Adam and AdamW: eager, captured and fused
// steps hold them to torch.optim's formula in f64, in which each parameter counts its own steps.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/autograd.h"
#include "capture/step.h"
#include "nn/optim.h"
#include "tests/capture/step_util.h"
#include "tests/closeness.h"

namespace sinter {
namespace {

constexpr size_t kParameters = 4;
constexpr int64_t kRows = 5;
const Shape kShapes[kParameters] = {{3, 4}, {3}, {2, 4}, {2}};  // of two branches, each a linear

// A letter for each step. Of a branch: '.', the loss does not use it. Of a parameter: 'f', frozen.
struct Pattern {
  const char* what;
  std::string branches[2], frozen[kParameters];
  size_t steps() const { return branches[0].size(); }
  bool used(size_t branch, size_t step) const { return branches[branch][step] != '.'; }
  bool is_frozen(size_t i, size_t step) const {
    return step < frozen[i].size() && frozen[i][step] == 'f';
  }
  bool has_gradient(size_t i, size_t step) const {
    return used(i / 2, step) && !is_frozen(i, step);
  }
};
// Long enough for replays: the second call of a kind is one.
const Pattern kPatterns[] = {
    {"all always", {"ggggggg", "ggggggg"}, {}},
    {"a late branch", {"ggggggggg", ".....gggg"}, {}},
    {"gaps", {"gggg..gggggg...ggg", "gg..gggg...ggggggg"}, {}},
    {"frozen, then not", {"ggggggggg", "ggggggggg"}, {"ffff.....", "ffff.....", "", ""}},
    {"a bias frozen in the middle", {"ggggggggggggg", "ggggggggggggg"},
        {"", "....ffff.....", "", ""}},
    {"weights frozen, a branch unused", {"gggggggggggg", "gggg....gggg"},
        {"ffff....", "", "ffff", ""}},
};

struct Options {
  bool decoupled = false;
  double weight_decay = 0;
  DType dtype = DType::f64;
  Device device = kCpu;
  const char* rules = nullptr;  // of a captured step
  nn::Betas betas{0.9, 0.999};
};
constexpr double kAdamLr = 0.1, kAdamEps = 1e-8;

Tensor values(const Shape& shape, uint64_t seed) { return sample_tensor(shape, seed, 0.5, 1.5); }
// x, and of each branch what its results are multiplied by: the gradient of the weight is then
// z^T x / rows, and of the bias sum_rows(z) / rows, whatever the weights are.
Tensors inputs_of(size_t step) {
  return {values({kRows, 4}, 100 + 3 * step), values({kRows, 3}, 101 + 3 * step),
      values({kRows, 2}, 102 + 3 * step)};
}

class Trained {
 public:
  Trained(const Pattern& pattern, const Options& o) : pattern_(pattern), options_(o) {
    for (size_t i = 0; i < kParameters; ++i) {
      Tensor p = cast(values(kShapes[i], i + 1), o.dtype).to(o.device);
      p.set_requires_grad(true).autograd().name = str("p", i);
      params_.push_back({str("p", i), p});
    }
    optimizer_ = nn::optimizer_named(o.decoupled ? "adamw" : "adam")
                     .make(params_, kAdamLr, o.weight_decay, 0, o.betas);
    if (o.rules)
      step_.emplace([this](const Tensors& in) { return run(in); },
          capture::StepOptions{.rules = capture::RuleSet(o.rules),
              .parameters =
                  [this](const capture::ParameterVisitor& visit) {
                    for (const auto& [_, p] : params_) visit(p);
                  },
              .mode = [this] { return pattern_.used(0, at_) + 2 * pattern_.used(1, at_); },
              .measure = false});
  }
  // From where `other` is.
  void take(const Trained& other) {
    const nn::NamedTensors from = other.optimizer_->state_tensors(),
                           to = optimizer_->state_tensors();
    for (size_t i = 0; i < to.size(); ++i) nn::copy_values(to[i].tensor, from[i].tensor, "test");
    for (size_t i = 0; i < kParameters; ++i)
      nn::copy_values(params_[i].tensor, other.params_[i].tensor, "test");
    optimizer_->set_steps(other.optimizer_->steps());
    at_ = other.at_;
  }
  void step() {
    for (size_t i = 0; i < kParameters; ++i)
      params_[i].tensor.set_requires_grad(!pattern_.is_frozen(i, at_));
    Tensors in;
    for (const Tensor& t : inputs_of(at_))
      in.push_back(cast(t, options_.dtype).to(options_.device));
    if (step_) {
      (*step_)(in);
    } else {
      run(in);
    }
    ++at_;
  }
  std::vector<double> weights() const {
    std::vector<double> all;
    for (const auto& [_, p] : params_) {
      for (const double v : p.to_vector<double>()) all.push_back(v);
    }
    return all;
  }
  const capture::Step& captured() const { return *step_; }

 private:
  Tensors run(const Tensors& in) {
    optimizer_->zero_grad();
    Tensor losses;
    for (size_t branch = 0; branch < 2; ++branch) {
      if (!pattern_.used(branch, at_)) continue;
      const Tensor y = linear(in[0], params_[2 * branch].tensor, params_[2 * branch + 1].tensor),
                   of_branch = sum(mul(y, in[1 + branch]), {1});
      losses = losses.defined() ? add(losses, of_branch) : of_branch;
    }
    backward(losses);
    optimizer_->step(losses);
    return {losses};
  }

  const Pattern& pattern_;
  const Options options_;
  nn::NamedTensors params_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::optional<capture::Step> step_;
  size_t at_ = 0;
};

// torch.optim.Adam and AdamW, from their documentation.
std::vector<double> by_formula(const Pattern& pattern, const Options& o) {
  const auto [beta1, beta2] = o.betas;
  std::vector<double> all;
  for (size_t i = 0; i < kParameters; ++i) {
    std::vector<double> p = values(kShapes[i], i + 1).to_vector<double>(), m(p.size()), v(p.size());
    int t = 0;
    for (size_t step = 0; step < pattern.steps(); ++step) {
      if (!pattern.has_gradient(i, step)) continue;
      ++t;
      const Tensors in = inputs_of(step);
      const Tensor &x = in[0], &z = in[1 + i / 2];
      for (size_t k = 0; k < p.size(); ++k) {
        double g = 0;
        for (int64_t r = 0; r < kRows; ++r) {
          const int64_t out = i % 2 == 0 ? int64_t(k) / 4 : int64_t(k);
          const double of_x = i % 2 == 0 ? x.data<double>()[r * 4 + int64_t(k) % 4] : 1;
          g += z.data<double>()[r * z.size(1) + out] * of_x / double(kRows);
        }
        if (o.decoupled) {
          p[k] *= 1 - kAdamLr * o.weight_decay;
        } else {
          g += o.weight_decay * p[k];
        }
        m[k] = beta1 * m[k] + (1 - beta1) * g;
        v[k] = beta2 * v[k] + (1 - beta2) * g * g;
        p[k] -= kAdamLr / (1 - std::pow(beta1, t)) * m[k] /
                (std::sqrt(v[k] / (1 - std::pow(beta2, t))) + kAdamEps);
      }
    }
    all.insert(all.end(), p.begin(), p.end());
  }
  return all;
}

// Nothing cancels: all gradients are above 0. So a step, which is about lr long, is off by some 16
// roundings of its type and, as 1 - beta2 is 1/1000 or more, by 1000 of f64; a weight, below 2,
// by 2.
double bound(const Pattern& pattern, DType dtype) {
  const double unit = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  return double(pattern.steps()) * (kAdamLr * (16 * unit + 1000 * 0x1p-53) + 2 * 2 * unit);
}

void expect_as_torch(const Options& o) {
  for (const Pattern& pattern : kPatterns) {
    SCOPED_TRACE(str(pattern.what, ", ", o.decoupled ? "AdamW" : "Adam", ", decay ", o.weight_decay,
        ", ", name_of(o.dtype), ", ", o.device.str(), ", rules ",
        o.rules ? o.rules : "of an eager step"));
    Trained straight(pattern, o), first(pattern, o), second(pattern, o);
    const size_t middle = pattern.steps() / 2;
    for (size_t s = 0; s < pattern.steps(); ++s) {
      straight.step();
      if (s == middle) second.take(first);
      (s < middle ? first : second).step();
    }
    EXPECT_TRUE(test::close(
        straight.weights(), by_formula(pattern, o), {.absolute = bound(pattern, o.dtype)}));
    if (o.rules) {
      EXPECT_GT(straight.captured().stats().replays, 0);
    } else {
      EXPECT_EQ(second.weights(), straight.weights());  // resumed: to the bit
    }
  }
}

constexpr const char *kUncaptured = nullptr, *kListed = "all,-weight_grad_update";

TEST(SkippedSteps, AreNoneForTheParameterAsInTorch) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const char* rules : {kUncaptured, "none", kListed, "all"}) {
      expect_as_torch({.dtype = dtype, .rules = rules});
      expect_as_torch({.decoupled = true, .weight_decay = 0.1, .dtype = dtype, .rules = rules});
    }
  }
  expect_as_torch({.weight_decay = 0.1});
  for (const char* rules : {kUncaptured, "none", kListed, "all"})
    expect_as_torch({.dtype = DType::f32, .rules = rules, .betas = {0.7, 0.9}});
}
TEST(SkippedStepsSimt, AreNoneForTheParameterAsInTorch) {
  for (const char* rules : {kUncaptured, "none", kListed, "all"})
    expect_as_torch({.dtype = DType::f32, .device = kSimt, .rules = rules});
  expect_as_torch({.decoupled = true, .weight_decay = 0.1, .device = kSimt, .rules = "all"});
  for (const char* rules : {kListed, "all"})
    expect_as_torch({.dtype = DType::f32, .device = kSimt, .rules = rules, .betas = {0.7, 0.9}});
}

// Where all have a gradient nothing is launched for it, and one launch where some have none.
TEST(SkippedSteps, CostALaunchOnlyWhereThereAreSome) {
  for (const char* rules : {"none", "all"}) {
    for (const bool some : {false, true}) {
      const Pattern pattern{"", {"gggg", "gggg"}, {some ? "ffff" : "", some ? "ffff" : "", "", ""}};
      Trained training(pattern, {.rules = rules});
      for (int s = 0; s < 4; ++s) training.step();
      const std::string ops = ops_of(training.captured().captured()->fused.graph);
      EXPECT_EQ(ops.ends_with(" accumulate"), some) << ops;
      EXPECT_EQ(ops.find(" accumulate") < ops.rfind(" accumulate"), false) << ops;
    }
  }
}

}  // namespace
}  // namespace sinter
