// Optimizers against their recurrences in plain f64 loops, and clipping. The gradients are set by
// hand.
#include "nn/optim.h"

#include <cmath>
#include <random>

#include "autograd/autograd.h"
#include "core/allocator.h"
#include "nn/clip.h"
#include "tests/closeness.h"
#include "tests/data/data_test_util.h"
#include "tests/test_util.h"

namespace sinter::nn {
namespace {

using Vector = std::vector<double>;

NamedTensors two_parameters() {
  NamedTensors list{{"a", sample_tensor({3, 4}, 1)}, {"b", sample_tensor({5}, 2)}};
  for (auto& [name, t] : list) t.set_requires_grad(true).autograd().name = name;
  return list;
}
// One element is 0 all the time.
Tensor gradient(size_t i, int step, const Shape& shape) {
  const Tensor g = sample_tensor(shape, 100 + 10 * uint64_t(step) + i);
  g.data<double>()[3] = 0;
  return g;
}

// Runs `optimizer` for 7 steps and the recurrence next(t, value, gradient, parameter, element)
// beside it; the values must agree.
template <class F> void compare(Optimizer& optimizer, F&& next) {
  const NamedTensors params = optimizer.parameters();
  std::vector<Vector> wanted;
  for (const NamedTensor& p : params) wanted.push_back(p.tensor.to_vector<double>());
  for (int t = 1; t <= 7; ++t) {
    optimizer.set_lr(0.05 / t);
    for (size_t i = 0; i < params.size(); ++i) {
      const Tensor g = gradient(i, t, params[i].tensor.shape());
      params[i].tensor.autograd().grad = g;
      const Vector values = g.to_vector<double>();
      for (size_t k = 0; k < values.size(); ++k)
        wanted[i][k] = next(t, 0.05 / t, wanted[i][k], values[k], i, k);
    }
    optimizer.step();
    EXPECT_EQ(optimizer.steps(), t);
    for (size_t i = 0; i < params.size(); ++i)
      ASSERT_TRUE(test::close(params[i].tensor, wanted[i], {.absolute = 1e-13}))
          << params[i].name << " step " << t;
  }
}

TEST(Optim, SgdFollowsItsRecurrence) {
  for (const SgdOptions& o :
      {SgdOptions{.momentum = 0}, SgdOptions{.momentum = 0, .weight_decay = 0.1},
          SgdOptions{.momentum = 0.9}, SgdOptions{.momentum = 0.8, .weight_decay = 0.1},
          SgdOptions{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}}) {
    Sgd sgd(two_parameters(), o);
    EXPECT_EQ(sgd.state_tensors().size(), o.momentum == 0 ? 0u : 2u);
    double buffer[2][12] = {};
    compare(sgd, [&](int, double lr, double p, double g, size_t i, size_t k) {
      g += o.weight_decay * p;
      double& v = buffer[i][k];
      v = o.momentum * v + g;
      return p - lr * (o.nesterov ? g + o.momentum * v : v);
    });
  }
}

template <class A, class Options> void check_adam(const Options& o, bool decoupled) {
  A adam(two_parameters(), o);
  double m[2][12] = {}, v[2][12] = {};
  compare(adam, [&](int t, double lr, double p, double g, size_t i, size_t k) {
    if (decoupled) p -= lr * o.weight_decay * p;
    if (!decoupled) g += o.weight_decay * p;
    m[i][k] = o.beta1 * m[i][k] + (1 - o.beta1) * g;
    v[i][k] = o.beta2 * v[i][k] + (1 - o.beta2) * g * g;
    return p - lr * (m[i][k] / (1 - std::pow(o.beta1, t))) /
                   (std::sqrt(v[i][k] / (1 - std::pow(o.beta2, t))) + o.eps);
  });
  EXPECT_EQ(adam.state_tensors()[0].name, "exp_avg/a");
  EXPECT_TRUE(
      test::close(adam.state_tensors()[3].tensor, Vector(v[1], v[1] + 5), {.absolute = 1e-15}));
}

TEST(Optim, AdamFollowsItsRecurrence) {
  check_adam<Adam>(AdamOptions{}, false);
  check_adam<Adam>(
      AdamOptions{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1}, false);
  check_adam<AdamW>(AdamWOptions{.weight_decay = 0.1}, true);
}

// torch.optim.RMSprop, and alg. 2 of Lion's paper: where the average and the gradient are 0, so is
// the sign.
TEST(Optim, RMSpropFollowsItsRecurrence) {
  for (const RMSpropOptions& o :
      {RMSpropOptions{}, RMSpropOptions{.alpha = 0.8, .eps = 1e-3, .weight_decay = 0.1}}) {
    RMSprop rmsprop(two_parameters(), o);
    double v[2][12] = {};
    compare(rmsprop, [&](int, double lr, double p, double g, size_t i, size_t k) {
      g += o.weight_decay * p;
      v[i][k] = o.alpha * v[i][k] + (1 - o.alpha) * g * g;
      return p - lr * g / (std::sqrt(v[i][k]) + o.eps);
    });
    ASSERT_EQ(rmsprop.state_tensors().size(), 2u);
    EXPECT_EQ(rmsprop.state_tensors()[1].name, "square_avg/b");
  }
}

TEST(Optim, LionFollowsItsRecurrence) {
  for (const LionOptions& o :
      {LionOptions{}, LionOptions{.beta1 = 0.5, .beta2 = 0.8, .weight_decay = 0.1}}) {
    Lion lion(two_parameters(), o);
    double m[2][12] = {};
    compare(lion, [&](int, double lr, double p, double g, size_t i, size_t k) {
      const double c = o.beta1 * m[i][k] + (1 - o.beta1) * g;
      m[i][k] = o.beta2 * m[i][k] + (1 - o.beta2) * g;
      return p - lr * ((c > 0) - (c < 0) + o.weight_decay * p);
    });
    ASSERT_EQ(lion.state_tensors().size(), 2u);
    EXPECT_EQ(lion.state_tensors()[0].name, "exp_avg/a");
  }
}

// A number that no field of UpdateAttrs takes would be ignored without a word.
template <class Options> void expect_fields_of_attrs() {
  Options options;
  visit_fields(options, [](std::string_view name, const auto&) {
    const Attrs attrs = UpdateAttrs();
    const auto fields = attrs.fields();
    EXPECT_TRUE(name == "lr" || std::ranges::find(fields, name, &AttrField::name) != fields.end())
        << Options::class_name << " has " << name;
  });
}
TEST(Optim, EveryNumberReachesTheFormula) {
#define SINTER_ROW(op, signature, Struct) expect_fields_of_attrs<Struct##Options>();
#define SINTER_VARIANT(Struct, Of) expect_fields_of_attrs<Struct##Options>();
  SINTER_OPTIMIZERS(SINTER_ROW, SINTER_VARIANT)
#undef SINTER_ROW
#undef SINTER_VARIANT
}

TEST(Optim, AreMadeByName) {
  EXPECT_EQ(
      optimizer_names(), (std::vector<std::string>{"sgd", "adam", "adamw", "rmsprop", "lion"}));
  for (const OptimizerChoice& choice : optimizers()) {
    const NamedTensors params = two_parameters();
    const auto optimizer = optimizer_named(choice.name)
                               .make(params, choice.lr, choice.weight_decay, 0.9, choice.betas);
    EXPECT_EQ(optimizer->lr(), choice.lr);
    params[0].tensor.autograd().grad = gradient(0, 1, {3, 4});
    const Tensor after = optimizer->after_step(0, params[0].tensor.grad());
    optimizer->step();
    EXPECT_TRUE(test::close(params[0].tensor, after, {.absolute = 1e-15})) << choice.name;
  }
  test::expect_error(Error::Kind::usage, {"sophia", "rmsprop, lion"},
      [] { static_cast<void>(optimizer_named("sophia")); });
}

TEST(Optim, AdamWDecaysAsInPyTorchWhateverElseIsNamed) {
  const auto step = [](auto&& make_optimizer) {
    const NamedTensors params = two_parameters();
    auto optimizer = make_optimizer(params);
    params[0].tensor.autograd().grad = gradient(0, 1, {3, 4});
    optimizer->step();
    return params[0].tensor.template to_vector<double>();
  };
  const Vector standard = step([](const NamedTensors& p) { return std::make_unique<AdamW>(p); });
  EXPECT_EQ(step([](const NamedTensors& p) {
    return std::make_unique<AdamW>(p, AdamWOptions{.lr = 0.001});
  }),
      standard);
  EXPECT_NE(step([](const NamedTensors& p) { return std::make_unique<Adam>(p); }), standard);
}

// Of a step without a row that counts nothing is left, not in the states either: it is as if it had
// not been. A rate that was told for it is used up.
TEST(Optim, AStepOfNoRowsThatCountChangesNothing) {
  for (const OptimizerChoice& choice : optimizers()) {
    for (const Device device : test::devices_of_tests()) {
      SCOPED_TRACE(sinter::str(choice.name, " ", device.str()));
      const auto run = [&](bool with_idle) {
        NamedTensors params;
        for (const NamedTensor& p : two_parameters()) {
          Tensor moved = cast(detach(p.tensor), DType::f32).to(device);
          params.push_back({p.name, moved.set_requires_grad(true)});
        }
        const auto optimizer = choice.make(params, 0.05, 0.1, 0.9, choice.betas);
        for (int t = 0; t < 5; ++t) {
          const bool idle = t == 2;
          if (idle && !with_idle) continue;
          for (size_t i = 0; i < params.size(); ++i) {
            if (t == 3 && i == 0) continue;  // then its own steps are counted
            const Tensor g = cast(gradient(i, t, params[i].tensor.shape()), DType::f32);
            params[i].tensor.autograd().grad = scale(g, idle ? 0 : 1).to(device);
          }
          const Tensor losses = Tensor::full({4}, idle ? 0 : 1, DType::f32, device);
          losses.autograd().counted = Tensor::full({1}, idle ? 0 : 3, DType::f32, device);
          optimizer->step(losses);
          optimizer->zero_grad();
        }
        Vector all;
        for (const NamedTensor& p : params) {
          for (const double v : p.tensor.to_vector<double>()) all.push_back(v);
        }
        for (const NamedTensor& p : optimizer->state_tensors()) {
          for (const double v : p.tensor.to_vector<double>()) all.push_back(v);
        }
        const StepState state = read_step_state(optimizer->state());
        EXPECT_EQ(state.step, 4);
        EXPECT_EQ(state.loss_rows, 4 * 3);
        EXPECT_EQ(state.loss_sum, 4 * 4);
        EXPECT_EQ(state.idle_steps, with_idle);
        EXPECT_EQ(state.first_bad_step, -1);
        return all;
      };
      EXPECT_EQ(run(true), run(false));
    }
  }
}

TEST(Optim, AGroupHasAWeightDecayOfItsOwn) {
  AdamW grouped(two_parameters(), {.weight_decay = 0.1}),
      all(two_parameters(), {.weight_decay = 0.1}), none(two_parameters(), {.weight_decay = 0});
  grouped.set_weight_decay(0, is_vector);
  for (Optimizer* optimizer : {static_cast<Optimizer*>(&grouped), static_cast<Optimizer*>(&all),
           static_cast<Optimizer*>(&none)}) {
    for (size_t i = 0; i < 2; ++i) {
      const Tensor& p = optimizer->parameters()[i].tensor;
      p.autograd().grad = gradient(i, 1, p.shape());
    }
    optimizer->step();
  }
  const auto values = [](const Optimizer& of, size_t i) {
    return of.parameters()[i].tensor.to_vector<double>();
  };
  EXPECT_EQ(values(grouped, 0), values(all, 0));
  EXPECT_EQ(values(grouped, 1), values(none, 1));
  EXPECT_NE(values(all, 1), values(none, 1));
  test::expect_error(Error::Kind::usage, {"weight_decay out of range: -1"},
      [&] { grouped.set_weight_decay(-1, is_vector); });
  test::expect_error(Error::Kind::usage, {"no parameter is in the group", "it has 2"},
      [&] { grouped.set_weight_decay(1, [](const NamedTensor&) { return false; }); });
}

TEST(Optim, OneParameterGivenTwiceIsRefused) {
  NamedTensors params = two_parameters();
  params.push_back({"c", params[0].tensor});
  test::expect_error(
      Error::Kind::usage, {"given twice", "a and c are tied"}, [&] { Adam adam(params); });
}

TEST(Optim, TheLastParameterWithAGradientClosesTheStep) {
  const NamedTensors params = two_parameters();
  Adam adam(params);
  test::expect_error(Error::Kind::state, {"step", "0 of 2", "backward"}, [&] { adam.step(); });
  params[0].tensor.autograd().grad = gradient(0, 1, {3, 4});
  const Vector before = params[1].tensor.to_vector<double>();
  adam.step(Tensor::from(std::vector<float>{1, 2, 6}, {3}));
  EXPECT_EQ(params[1].tensor.to_vector<double>(), before);
  const StepState& state = host_step_state(adam.state());
  EXPECT_EQ(state.step, 1);
  EXPECT_EQ(state.loss_sum, 9);
  EXPECT_EQ(state.loss_rows, 3);
  EXPECT_EQ(state.last_loss, 3);
  adam.zero_grad();
  EXPECT_FALSE(params[0].tensor.grad().defined());
}

// As torch.optim.Adam does: a step without a gradient is none for that parameter.
TEST(Optim, AParameterWhoseFirstGradientComesLateBeginsAtItsFirstStep) {
  const NamedTensors params = two_parameters();
  const Tensor late = params[1].tensor;
  const double start = late.to_vector<double>()[0];
  Adam adam(params, {.lr = 0.1});
  const auto steps = [&](int n, bool both) {
    for (int i = 0; i < n; ++i) {
      params[0].tensor.autograd().grad = gradient(0, i, {3, 4});
      late.autograd().grad = both ? Tensor::ones({5}, DType::f64) : Tensor();
      adam.step();
    }
    return late.to_vector<double>()[0] - start;
  };
  EXPECT_EQ(steps(10, false), 0);
  for (const double wanted : {-0.1, -0.2, -0.3})
    EXPECT_TRUE(test::close({steps(1, true)}, {wanted}, {.of_each = 1e-7}));  // eps / |g| is 1e-8
  steps(1000, false);
  for (int i = 0; i < 2; ++i) steps(1, true);
  EXPECT_EQ(adam.steps(), 1015);
  EXPECT_EQ(adam.state_tensors()[5].name, "skipped_steps/b");
  EXPECT_EQ(adam.state_tensors()[5].tensor.item(), 1010);
  EXPECT_TRUE(test::close({late.to_vector<double>()[0] - start}, {-0.5}, {.of_each = 1e-7}));
}

// 40 branches, of which each step takes some at random.
TEST(Cases, ManyPatternsOfGradients) {
  NamedTensors params;
  for (int i = 0; i < 40; ++i)
    params.push_back({str("p", i), Tensor::zeros({1}).set_requires_grad(true)});
  Adam adam(params);
  const Tensor gradient = Tensor::ones({1});
  std::mt19937 draw(1);
  const auto live = [] { return allocator(kCpu).stats().live_bytes; };
  int64_t before = 0, most = 0;
  Vector skipped(40, 0);
  for (int step = 0; step < 3000; ++step) {
    for (size_t i = 0; i < 40; ++i) {
      const bool taken = i == 0 || draw() & 1;
      params[i].tensor.autograd().grad = taken ? gradient : Tensor();
      skipped[i] += !taken;
    }
    adam.step();
    if (step == 0) before = live();
    most = std::max(most, live() - before);
  }
  EXPECT_LT(most, 64 << 10) << "of 320 bytes a pattern";
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(adam.state_tensors()[80 + i].tensor.item(), skipped[i]);
}

TEST(Optim, RefusesBadOptions) {
  using enum Error::Kind;
  const NamedTensors params = two_parameters();
  test::expect_error(usage, {"lr", "-1"}, [&] { Sgd(params, {.lr = -1}); });
  test::expect_error(usage, {"lr", "nan"}, [&] { Adam(params).set_lr(NAN); });
  test::expect_error(usage, {"Sgd", "momentum", "1"}, [&] { Sgd(params, {.momentum = 1}); });
  test::expect_error(usage, {"nesterov"}, [&] { Sgd(params, {.momentum = 0, .nesterov = true}); });
  test::expect_error(usage, {"AdamW", "beta2", "1.5"}, [&] { AdamW(params, {.beta2 = 1.5}); });
  test::expect_error(usage, {"RMSprop", "alpha", "1"}, [&] { RMSprop(params, {.alpha = 1}); });
  test::expect_error(
      usage, {"Lion", "weight_decay", "-1"}, [&] { Lion(params, {.weight_decay = -1}); });
  test::expect_error(usage, {"no parameters"}, [] { Adam({}); });
  test::expect_error(usage, {"x", "f32[2] cpu", "require"}, [] {
    Adam({{"x", Tensor::ones({2})}});
  });
}

TEST(Clip, ScalesAllGradientsTogether) {
  const NamedTensors params = two_parameters();
  const std::vector<Tensor> tensors{params[0].tensor, params[1].tensor,
      Tensor::ones({2}).set_requires_grad(true)};  // the last has none
  EXPECT_FALSE(clip_grad_norm(tensors, 1).defined());
  double squared = 0;
  Vector before;
  for (size_t i = 0; i < 2; ++i) {
    tensors[i].autograd().grad = gradient(i, 1, tensors[i].shape());
    for (const double g : tensors[i].grad().to_vector<double>()) {
      squared += g * g;
      before.push_back(g);
    }
  }
  const double norm = std::sqrt(squared);
  EXPECT_NEAR(clip_grad_norm(tensors, norm * 2).item(), norm, 1e-12);  // under the limit: as it is
  EXPECT_EQ(tensors[0].grad().to_vector<double>()[0], before[0]);
  clip_grad_norm(tensors, 0.5);
  EXPECT_NEAR(clip_grad_norm(tensors, 1).item(), 0.5, 1e-12);
  for (double& g : before) g *= 0.5 / norm;
  const Tensor clipped = cat({reshape(tensors[0].grad(), {12}), tensors[1].grad()});
  EXPECT_TRUE(test::close(clipped, before, {.absolute = 1e-14}));
  test::expect_error(Error::Kind::usage, {"max_norm", "0"}, [&] { clip_grad_norm(tensors, 0); });
}

TEST(OptimSimt, RatesToldAtOnceAreThoseSetOneByOne) {
  const std::vector<double> rates{0.1, 0.05, 0.3, 0.01};
  for (const Device device : {kCpu, Device{Device::Type::simt, 0}}) {
    NamedTensors params[2] = {two_parameters(), two_parameters()};
    for (const NamedTensors& list : params) {
      for (const auto& [_, p] : list) p.storage()->move_to(device);
    }
    Adam told(params[0]), set(params[1]);
    told.set_rates(rates);
    const auto step_both = [&](double rate) {
      set.set_lr(rate);
      EXPECT_EQ(told.lr(), rate);
      for (size_t k = 0; k < 2; ++k) {
        for (size_t i = 0; i < 2; ++i) {
          const Tensor& p = params[k][i].tensor;
          p.autograd().grad = gradient(i, 0, p.shape()).to(device);
        }
        (k == 0 ? told : set).step();
      }
      for (size_t i = 0; i < 2; ++i)
        EXPECT_EQ(params[0][i].tensor.to_vector<double>(), params[1][i].tensor.to_vector<double>());
    };
    for (size_t t = 0; t < 6; ++t) step_both(rates[std::min<size_t>(t, 3)]);
    told.set_rates(rates);
    step_both(0.1);
    told.set_steps(3);  // the rate stays, the later ones are gone
    set.set_steps(3);
    for (int t = 0; t < 2; ++t) step_both(0.05);
    told.set_rates(rates);
    told.set_lr(0.7);
    for (int t = 0; t < 2; ++t) step_both(0.7);
  }
  Adam adam(two_parameters());
  test::expect_error(Error::Kind::usage, {"no rates"}, [&] { adam.set_rates({}); });
  test::expect_error(Error::Kind::usage, {"lr", "-1"}, [&] { adam.set_rates({0.1, -1}); });
}

TEST(OptimSimt, StateIsWhereTheParametersAre) {
  constexpr Device kSimt{Device::Type::simt, 0};
  NamedTensors params = two_parameters();
  for (const auto& [_, p] : params) p.storage()->move_to(kSimt);
  Adam adam(params, {.lr = 0.25});
  EXPECT_EQ(adam.state().device(), kSimt);
  for (const auto& [_, slot] : adam.state_tensors()) EXPECT_EQ(slot.device(), kSimt);
  adam.set_lr(0.5);
  adam.set_steps(3);
  const StepState state = read_step_state(adam.state());
  EXPECT_EQ(adam.lr(), 0.5);
  EXPECT_EQ(state.lr, 0.5);
  EXPECT_EQ(state.step, 3);
  EXPECT_EQ(adam.steps(), 3);
  EXPECT_EQ(state.beta1_power, 0.9 * 0.9 * 0.9);
  EXPECT_EQ(rng_state(kSimt).device(), kSimt);
  sinter::manual_seed(77);
  for (const Device device : {kCpu, kSimt})
    EXPECT_EQ(rng_state(device).to_vector<int64_t>(), (std::vector<int64_t>{77, 0, 0}));
}

}  // namespace
}  // namespace sinter::nn
