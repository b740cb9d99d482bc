// Programs that were silently wrong or refused without a reason: several updates in a step, two
// devices in a step, constants that the step makes itself, and steps in which nothing changes.
#include <gtest/gtest.h>

#include <thread>

#include "autograd/autograd.h"
#include "capture/step.h"
#include "core/communicator.h"
#include "core/context.h"
#include "nn/clip.h"
#include "nn/optim.h"
#include "ops/ops.h"
#include "tests/capture/step_util.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

using Numbers = std::vector<double>;

StepOptions of_parameters(const Tensors& parameters, const char* rules = "all") {
  return {.rules = RuleSet(rules), .parameters = [parameters](const ParameterVisitor& visit) {
            for (const Tensor& t : parameters) visit(t);
          }};
}
Tensor leaf(const Shape& shape, uint64_t seed, Device device = kCpu) {
  return cast(sample_tensor(shape, seed, -1, 1), DType::f32).to(device).set_requires_grad(true);
}
Tensor data(const Shape& shape, uint64_t seed, Device device = kCpu) {
  return cast(sample_tensor(shape, seed, -1, 1), DType::f32).to(device);
}

// ---- several updates in a step

TEST(Cases, TwoUpdatesInAStep) {
  const Tensor p = Tensor::zeros({1}).set_requires_grad(true),
               q = Tensor::zeros({1}).set_requires_grad(true);
  nn::Sgd sgd({{"p", p}, {"q", q}}, {.lr = 1, .momentum = 0});
  sgd.set_rates({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  Step step(
      [&](const Tensors&) {
        for (const Tensor& t : {p, q}) {
          sgd.zero_grad();
          backward(sum(t));
          sgd.step();
        }
        return Tensors{copy(detach(p))};
      },
      of_parameters({p, q}));
  for (int i = 0; i < 6; ++i) step({});
  EXPECT_EQ(p.item(), -36);
  EXPECT_EQ(q.item(), -42);
  EXPECT_EQ(sgd.steps(), 12);
}

// Two linears and a scale, and optimizers over them, each with a schedule.
struct Two {
  nn::NamedTensors all;
  std::vector<std::unique_ptr<nn::Optimizer>> optimizers;
  Two(const std::string& optimizer, size_t count, Device device)
      : all{{"a", leaf({5, 4}, 1, device)}, {"ab", leaf({5}, 2, device)},
            {"b", leaf({3, 5}, 3, device)}, {"bb", leaf({3}, 4, device)},
            {"s", leaf({1}, 5, device)}} {
    const nn::OptimizerChoice& choice = nn::optimizer_named(optimizer);
    for (size_t i = 0; i < count; ++i) {
      const nn::NamedTensors part = count == 1 ? all
                                    : i == 0   ? nn::NamedTensors(all.begin(), all.begin() + 2)
                                               : nn::NamedTensors(all.begin() + 2, all.end());
      optimizers.push_back(choice.make(part, 0.01, 0.01, 0.9, choice.betas));
      std::vector<double> rates;
      for (int t = 0; t < 40; ++t) rates.push_back(0.01 + 0.002 * t);
      optimizers.back()->set_rates(rates);
    }
  }
  const Tensor& operator[](size_t i) const { return all[i].tensor; }
  Tensor hidden(const Tensor& x) const { return relu(linear(x, all[0].tensor, all[1].tensor)); }
  Tensor loss(const Tensor& x) const {
    const Tensor y = linear(hidden(x), all[2].tensor, all[3].tensor) * all[4].tensor;
    return sum(y * y, {1});
  }
  nn::Optimizer& opt(size_t i = 0) const { return *optimizers[i]; }
  Tensors parameters() const {
    Tensors list;
    for (const auto& [_, t] : all) list.push_back(t);
    return list;
  }
};

struct Updates {
  const char* what;
  size_t optimizers;
  Tensors (*step)(const Two&, const Tensor& x);
};
const Updates kUpdates[] = {
    {"trained twice", 1,
        [](const Two& t, const Tensor& x) {
          Tensor l;
          for (int i = 0; i < 2; ++i) {
            t.opt().zero_grad();
            l = t.loss(x);
            backward(l);
            t.opt().step(l);
          }
          return Tensors{detach(l)};
        }},
    {"two steps of one gradient", 1,
        [](const Two& t, const Tensor& x) {
          t.opt().zero_grad();
          const Tensor l = t.loss(x);
          backward(l);
          for (int i = 0; i < 2; ++i) t.opt().step(l);
          return Tensors{detach(l)};
        }},
    {"one layer, then the other", 1,
        [](const Two& t, const Tensor& x) {
          t.opt().zero_grad();
          backward(sum(t.hidden(x), {1}));
          t.opt().step();
          t.opt().zero_grad();
          const Tensor l = sum(linear(detach(t.hidden(x)), t[2], t[3]) * t[4], {1});
          backward(l);
          t.opt().step(l);
          return Tensors{detach(l)};
        }},
    {"weights, then biases, of one backward", 1,
        [](const Two& t, const Tensor& x) {
          t.opt().zero_grad();
          backward(t.loss(x));
          Tensors kept(5);
          for (const size_t i : {1, 3, 4}) kept[i] = std::exchange(t[i].autograd().grad, {});
          t.opt().step();
          t.opt().zero_grad();
          for (const size_t i : {1, 3, 4}) t[i].autograd().grad = kept[i];
          t.opt().step();
          return Tensors{};
        }},
    {"a read between", 1,
        [](const Two& t, const Tensor& x) {
          t.opt().zero_grad();
          backward(t.loss(x));
          t.opt().step();
          const Tensor between = copy(detach(t[0]));
          t.opt().step();
          return Tensors{between, copy(detach(t[0]))};
        }},
    {"clipped, twice", 1,
        [](const Two& t, const Tensor& x) {
          for (int i = 0; i < 2; ++i) {
            t.opt().zero_grad();
            backward(t.loss(x));
            nn::clip_grad_norm(t.parameters(), 0.5);
            t.opt().step();
          }
          return Tensors{};
        }},
    {"a clip between two steps of one gradient", 1,
        [](const Two& t, const Tensor& x) {
          t.opt().zero_grad();
          backward(t.loss(x));
          t.opt().step();
          nn::clip_grad_norm(t.parameters(), 0.05);
          t.opt().step();
          return Tensors{};
        }},
    {"two optimizers in turn", 2,
        [](const Two& t, const Tensor& x) {
          for (const size_t o : {0, 1, 0}) {
            for (size_t k = 0; k < 2; ++k) t.opt(k).zero_grad();
            backward(t.loss(x));
            t.opt(o).step();
          }
          return Tensors{detach(t.loss(x))};
        }},
    {"two optimizers of one backward", 2,
        [](const Two& t, const Tensor& x) {
          for (size_t k = 0; k < 2; ++k) t.opt(k).zero_grad();
          backward(t.loss(x));
          for (size_t k = 0; k < 2; ++k) t.opt(k).step();
          return Tensors{detach(t.loss(x))};
        }},
    {"gradients that add up over three steps", 1,
        [](const Two& t, const Tensor& x) {
          t.opt().zero_grad();
          for (int i = 0; i < 3; ++i) {
            backward(t.loss(x));
            t.opt().step();
          }
          return Tensors{};
        }},
};

void check_updates(Device device, const std::string& optimizer, const char* rules) {
  for (const Updates& u : kUpdates) {
    const std::string what = str(u.what, ", ", optimizer, ", rules ", rules, ", ", device.str());
    const Two eager(optimizer, u.optimizers, kCpu), captured(optimizer, u.optimizers, device);
    StepOptions options = of_parameters(captured.parameters(), rules);
    options.measure = false;
    Step step([&](const Tensors& in) { return u.step(captured, in[0]); }, options);
    for (uint64_t i = 0; i < 4; ++i) {
      const Tensor x = data({6, 4}, 10 + i);
      const Tensors wanted = u.step(eager, x), got = step({x.to(device)});
      for (size_t r = 0; r < wanted.size(); ++r)
        EXPECT_TRUE(test::close(got[r].to(kCpu), wanted[r], {.of_largest = 2e-5}))
            << what << ", result " << r << ", call " << i;
    }
    EXPECT_EQ(step.stats().replays, 3) << what;
    for (size_t o = 0; o < u.optimizers; ++o) {
      EXPECT_EQ(captured.opt(o).steps(), eager.opt(o).steps()) << what;
      EXPECT_EQ(captured.opt(o).lr(), eager.opt(o).lr()) << what;
    }
    for (size_t p = 0; p < 5; ++p)
      EXPECT_TRUE(test::close(captured[p].to(kCpu), eager[p], {.of_largest = 2e-5}))
          << what << ", " << eager.all[p].name;
    clear_tape();
  }
}
TEST(Updates, SeveralInAStepAreThoseOfAnEagerOne) {
  for (const std::string& optimizer : nn::optimizer_names()) {
    for (const char* rules :
        {"all", "none", "all,-multi_tensor_update", "all,-weight_grad_update", "all,-clip_norm"})
      check_updates(kCpu, optimizer, rules);
  }
}
TEST(UpdatesSimt, SeveralInAStepAreThoseOfAnEagerOne) {
  for (const std::string& optimizer : nn::optimizer_names()) check_updates(kSimt, optimizer, "all");
  for (const char* rules : {"none", "all,-multi_tensor_update", "all,-weight_grad_update"})
    check_updates(kSimt, "adam", rules);
}

// A list's members run side by side: none may write what another reads.
TEST(UpdatesSimt, OfAWeightThatAnotherGradientReadsAreNotJoined) {
  for (const Device device : {kCpu, kSimt}) {
    const auto run = [&](bool captured) {
      const Tensor a = leaf({40, 30}, 1, device), b = leaf({20, 30}, 2, device);
      nn::Sgd sgd({{"a", a}, {"b", b}}, {.lr = 0.1, .momentum = 0});
      const auto f = [&](const Tensors&) {  // of b the gradient is dy^T a
        sgd.zero_grad();
        const Tensor y = linear(a, b);
        backward(y * y);
        sgd.step();
        return Tensors{};
      };
      Step step(f, of_parameters({a, b}));
      for (int i = 0; i < 5; ++i) captured ? step({}) : f({});
      return Tensors{a.to(kCpu), b.to(kCpu)};
    };
    const Tensors eager = run(false), replayed = run(true);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(test::close(replayed[i], eager[i], {.of_largest = 1e-5})) << device.str();
  }
}

// ---- one device a step

TEST(CasesSimt, TwoChainsOnTwoDevices) {
  double loss[2][2] = {};
  std::string refused;
  for (int captured = 0; captured < 2; ++captured) {
    nn::Mlp a({8, 6, 3}), b({8, 6, 3});
    a.init_parameters(1);
    b.init_parameters(2);
    b.to(kSimt);
    nn::Sgd of_a(a.named_parameters(), {.lr = .1}), of_b(b.named_parameters(), {.lr = .1});
    const auto train = [](nn::Mlp& net, nn::Sgd& sgd, const Tensor& x, const Tensor& labels) {
      sgd.zero_grad();
      const Tensor losses = cross_entropy(net(x), labels);
      backward(losses);
      sgd.step(losses);
      return detach(losses);
    };
    const auto f = [&](const Tensors& in) {
      return Tensors{train(a, of_a, in[0], in[1]), train(b, of_b, in[2], in[3])};
    };
    Tensors parameters = a.parameters();
    for (const Tensor& t : b.parameters()) parameters.push_back(t);
    Step step(f, of_parameters(parameters));
    for (uint64_t i = 0; i < 4 && refused.empty(); ++i) {
      const Tensor x = Tensor::ones({4, 8}), y = sample_labels(4, 3, i);
      const Tensors in{x, y, x.to(kSimt), y.to(kSimt)};
      Tensors r;
      refused = test::message_of([&] { r = captured ? Tensors(step(in)) : f(in); });
      for (size_t k = 0; k < r.size(); ++k) loss[captured][k] = mean(r[k].to(kCpu)).item();
    }
  }
  if (refused.empty()) {
    EXPECT_NEAR(loss[0][0], loss[1][0], 1e-4);
    EXPECT_NEAR(loss[0][1], loss[1][1], 1e-4);
  } else {
    test::expect_facts(refused, {"two devices", "linear", "cpu", "simt", "hint: "});
  }
  clear_tape();
}

// A gradient that is made from the weight itself, or from another that is updated.
TEST(UpdatesSimt, OfAWeightThatItsOwnGradientReads) {
  for (const Device device : {kCpu, kSimt}) {
    const auto run = [&](bool captured) {
      const Tensor a = leaf({40, 40}, 1, device);
      nn::Sgd sgd({{"a", a}}, {.lr = 0.1, .momentum = 0});
      const auto f = [&](const Tensors&) {
        sgd.zero_grad();
        const Tensor y = linear(detach(a), a);
        backward(y * y);
        sgd.step();
        return Tensors{};
      };
      Step step(f, of_parameters({a}));
      for (int i = 0; i < 5; ++i) captured ? step({}) : f({});
      return a.to(kCpu);
    };
    EXPECT_TRUE(test::close(run(true), run(false), {.of_largest = 1e-5})) << device.str();
  }
}

// What lies on the second device, in each order, and whether the step is refused.
struct Devices {
  const char* what;
  bool refused;
  Tensors (*inputs)(Device here, Device there, uint64_t seed);
  Tensors (*step)(const Tensors& in, const Tensor& w, Device here, Device there);
};
const Devices kDevices[] = {
    {"labels first, which nobody reads", false,
        [](Device here, Device there, uint64_t seed) {
          return Tensors{sample_labels(4, 3, seed).to(there), data({4, 5}, seed, here)};
        },
        [](const Tensors& in, const Tensor& w, Device, Device) {
          return Tensors{detach(relu(linear(in[1], w)))};
        }},
    {"a mask last, which nobody reads", false,
        [](Device here, Device there, uint64_t seed) {
          return Tensors{data({4, 5}, seed, here), data({4, 5}, seed + 1, there)};
        },
        [](const Tensors& in, const Tensor& w, Device, Device) {
          return Tensors{detach(relu(linear(in[0], w)))};
        }},
    {"an unread input, and training", false,
        [](Device here, Device there, uint64_t seed) {
          return Tensors{data({2}, seed, there), data({4, 5}, seed, here)};
        },
        [](const Tensors& in, const Tensor& w, Device, Device) {
          w.autograd().grad = {};
          const Tensor y = linear(in[1], w);
          backward(y * y);
          return Tensors{detach(y), w.grad()};
        }},
    {"a mask there that an op reads", true,
        [](Device here, Device there, uint64_t seed) {
          return Tensors{data({4, 3}, seed, there), data({4, 5}, seed, here)};
        },
        [](const Tensors& in, const Tensor& w, Device, Device) {
          return Tensors{relu(in[0]), detach(linear(in[1], w))};
        }},
    {"the same, read last", true,
        [](Device here, Device there, uint64_t seed) {
          return Tensors{data({4, 3}, seed, there), data({4, 5}, seed, here)};
        },
        [](const Tensors& in, const Tensor& w, Device, Device) {
          const Tensor y = detach(linear(in[1], w));
          return Tensors{relu(in[0]), y};
        }},
    {"to() inside", true,
        [](Device, Device there, uint64_t seed) {
          return Tensors{data({4, 5}, seed, there)};
        },
        [](const Tensors& in, const Tensor& w, Device here, Device) {
          return Tensors{detach(linear(in[0].to(here), w))};
        }},
    {"a constant there", true,
        [](Device here, Device, uint64_t seed) {
          return Tensors{data({4, 5}, seed, here)};
        },
        [](const Tensors& in, const Tensor& w, Device, Device there) {
          return Tensors{detach(linear(in[0], w)), neg(Tensor::ones({3}, DType::f32, there))};
        }},
    {"a result that is an input there", true,
        [](Device here, Device there, uint64_t seed) {
          return Tensors{data({4, 5}, seed, here), data({4}, seed, there)};
        },
        [](const Tensors& in, const Tensor& w, Device, Device) {
          return Tensors{detach(linear(in[0], w)), in[1]};
        }},
    {"a leaf there", true,
        [](Device here, Device there, uint64_t seed) {
          Tensor x = data({4}, seed, there);
          x.set_requires_grad(true);
          return Tensors{x, data({4, 5}, seed, here)};
        },
        [](const Tensors& in, const Tensor& w, Device, Device) {
          in[0].autograd().grad = {};
          backward(in[0] * in[0]);
          return Tensors{detach(linear(in[1], w))};
        }},
};

TEST(DevicesSimt, OfAStepAreOneOrItIsRefusedByName) {
  for (const auto& [here, there] : {std::pair{kCpu, kSimt}, std::pair{kSimt, kCpu}}) {
    for (const Devices& d : kDevices) {
      clear_tape();
      const std::string what = str(d.what, ", on ", here.str());
      const Tensor w = leaf({3, 5}, 1, here);
      Step step([&](const Tensors& in) { return d.step(in, w, here, there); }, of_parameters({w}));
      std::string message;
      for (uint64_t i = 0; i < 12 && message.empty(); ++i) {
        const Tensors in = d.inputs(here, there, 20 + i);
        Tensors got;
        message = test::message_of([&] { got = step(in); });
        EXPECT_EQ(message.empty(), !d.refused) << what << ", call " << i << message;
        if (!message.empty()) break;
        const Tensors wanted = d.step(in, w, here, there);
        for (size_t r = 0; r < wanted.size(); ++r) {
          EXPECT_EQ(got[r].device(), wanted[r].device()) << what;
          EXPECT_TRUE(test::close(got[r].to(kCpu), wanted[r].to(kCpu), {.of_largest = 1e-6}))
              << what << ", result " << r << ", call " << i;
        }
      }
      if (d.refused) {
        test::expect_facts(message, {"captur", "hint: "});
      } else {
        EXPECT_EQ(step.stats().replays, 11) << what;
      }
    }
  }
  clear_tape();
}

TEST(DevicesSimt, OfAnEagerStepMayBeTwo) {
  const auto f = [](const Tensors& in) { return Tensors{neg(in[0]), neg(in[1].to(kCpu))}; };
  const Tensors in{Tensor::ones({2}), Tensor::ones({2}).to(kSimt)};
  Step step(f);
  const AnomalyMode anomaly;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step(in)[1].to_vector<double>(), Numbers({-1, -1}));
}

// ---- constants that a step makes itself

TEST(Cases, ZerosInsideAStep) {
  const Tensor w = leaf({3, 5}, 1), b = leaf({3}, 2);
  const auto f = [&](const Tensors& in) {
    const NoGrad no_grad;
    Tensor h = Tensor::zeros({2, 3});
    for (int t = 0; t < 4; ++t)
      h = tanh(linear(cat({slice(in[0], 1, t * 2, t * 2 + 2), h}, 1), w, b));
    return Tensors{h};
  };
  Step step(f);
  for (uint64_t i = 0; i < 12; ++i) {
    const Tensor x = data({2, 8}, i);
    EXPECT_TRUE(test::close(step({x})[0], f({x})[0], {.absolute = 1e-6})) << "call " << i;
  }
  EXPECT_EQ(step.stats().replays, 11);
  EXPECT_EQ(step.stats().rechecks, 1);
}

// Steps with tensors that the host makes inside. "": right at each call; else what the refusal
// says.
struct Constants {
  const char* what;
  std::vector<std::string> refused;
  Tensors (*step)(const Tensors& in, int call, Device device);
};
const Constants kConstants[] = {
    {"zeros, ones, full, from", {},
        [](const Tensors& in, int, Device d) {
          const Tensor a = Tensor::zeros({3}, DType::f32, d), b = Tensor::ones({3}, DType::f32, d),
                       c = Tensor::full({3}, 0.25, DType::f32, d),
                       e = Tensor::from({1, 2, 3}, {3}, d);
          return Tensors{(in[0] + a) * b - c + e};
        }},
    {"labels", {},
        [](const Tensors& in, int, Device d) {
          const std::vector<int64_t> labels{2, 1};
          return Tensors{cross_entropy(in[0], Tensor::from(labels, {2}, d))};
        }},
    {"a leaf", {},
        [](const Tensors& in, int, Device d) {
          const Tensor a = Tensor::ones({2, 3}, DType::f32, d).set_requires_grad(true);
          backward(a * in[0] * a);
          return Tensors{a.grad()};
        }},
    {"changed in place behind a copy", {},
        [](const Tensors& in, int, Device d) {
          const NoGrad no_grad;
          const Tensor a = copy(Tensor::zeros({2, 3}, DType::f32, d));
          accumulate(a, in[0]);
          accumulate(a, in[0]);
          return Tensors{a};
        }},
    {"a result", {},
        [](const Tensors& in, int, Device d) {
          return Tensors{Tensor::ones({2}, DType::f32, d), neg(in[0]),
              reshape(Tensor::zeros({4}, DType::f32, d), {2, 2})};
        }},
    {"read by an op and a result", {},
        [](const Tensors& in, int, Device d) {
          const Tensor a = Tensor::ones({2, 3}, DType::f32, d);
          return Tensors{a, in[0] + a};
        }},
    {"changed in place", {"accumulate", "changes", "f32[2, 3]", "copy("},
        [](const Tensors& in, int, Device d) {
          const NoGrad no_grad;
          const Tensor a = Tensor::zeros({2, 3}, DType::f32, d);
          accumulate(a, in[0]);
          return Tensors{neg(a)};
        }},
    {"two that change places", {"f32[3]", "other elements", "hint: "},
        [](const Tensors& in, int call, Device d) {
          const Tensor a = Tensor::full({3}, call % 2, DType::f32, d),
                       b = Tensor::full({3}, 1 - call % 2, DType::f32, d);
          return Tensors{in[0] * a + b};
        }},
    {"one that changes", {"f32[3]", "other elements", "input"},
        [](const Tensors& in, int call, Device d) {
          return Tensors{in[0] + Tensor::full({3}, call, DType::f32, d)};
        }},
    {"random numbers of the host", {"randn", "before the step"},
        [](const Tensors& in, int, Device d) {
          return Tensors{in[0] + randn({3}, DType::f32, d)};
        }},
    {"to() of an input", {"to: ", "before the step"},
        [](const Tensors& in, int, Device d) { return Tensors{neg(in[0].to(d))}; }},
};

void check_constants(Device device) {
  for (const Constants& c : kConstants) {
    clear_tape();
    const std::string what = str(c.what, ", on ", device.str());
    int calls = 0;
    Step step([&](const Tensors& in) { return c.step(in, calls, device); });
    std::string message;
    while (calls < 12 && message.empty()) {
      ++calls;
      const Tensors in{data({2, 3}, uint64_t(calls), device)};
      Tensors got;
      message = test::message_of([&] { got = step(in); }, Error::Kind::state);
      if (!message.empty()) break;
      const Tensors wanted = c.step(in, calls, device);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t r = 0; r < got.size(); ++r) {
        if (!c.refused.empty()) continue;
        EXPECT_TRUE(test::close(got[r].to(kCpu), wanted[r].to(kCpu), {.of_largest = 1e-6}))
            << what << ", result " << r << ", call " << calls;
        const NoGrad no_grad;  // the results are the caller's, until the next call
        accumulate(got[r], Tensor::full(got[r].shape(), 7, got[r].dtype(), device));
      }
    }
    if (c.refused.empty()) {
      EXPECT_EQ(message, "") << what;
      EXPECT_EQ(step.stats().replays, 11) << what;
      EXPECT_EQ(step.stats().rechecks, 1) << what;
    } else {
      EXPECT_LE(calls, 2) << what;
      test::expect_facts(message, c.refused);
    }
  }
  clear_tape();
}
TEST(Constants, OfAStepAreOfEachCallOrRefused) { check_constants(kCpu); }
TEST(ConstantsSimt, OfAStepAreOfEachCallOrRefused) { check_constants(kSimt); }

TEST(Constants, ThatChangeLaterAreFoundByTheRecheck) {
  double value = 1;
  Step step([&](const Tensors& in) { return Tensors{in[0] + Tensor::full({3}, value)}; });
  const Tensors in{Tensor::ones({3})};
  for (int i = 0; i < 9; ++i) step(in);
  value = 2;
  test::expect_error(Error::Kind::state, {"call 10", "add f32[3]", "other elements at this call"},
      [&] { step(in); });
}

TEST(Constants, AreTheStepsOwnWhateverTheFunctionKeeps) {
  Tensor kept;
  Step step([&](const Tensors& in) { return Tensors{in[0] + (kept = Tensor::ones({3}))}; });
  for (int i = 0; i < 14; ++i) {
    EXPECT_EQ(step({Tensor::ones({3})})[0].to_vector<double>(), Numbers({2, 2, 2})) << i;
    const NoGrad no_grad;
    accumulate(kept, Tensor::ones({3}));
  }
  EXPECT_EQ(step.stats().replays, 13);
}

// State that the function makes at its first call is no constant.
TEST(Constants, AreNotTheStateThatTheFirstCallMakes) {
  Tensor state;
  Step step([&](const Tensors& in) {
    const NoGrad no_grad;
    if (!state.defined()) state = Tensor::zeros({3});
    accumulate(state, in[0]);
    return Tensors{neg(state)};
  });
  for (int i = 1; i <= 12; ++i)
    EXPECT_EQ(step({Tensor::ones({3})})[0].to_vector<double>(), Numbers(3, -i));
  EXPECT_EQ(step.stats().replays, 11);
}

// ---- steps in which nothing changes

TEST(Cases, RecheckFalseAlarm) {
  const Tensor a = Tensor::full({4, 4}, .1).set_requires_grad(true),
               b = Tensor::full({4, 4}, .2).set_requires_grad(true);
  nn::Sgd sgd({{"a", a}, {"b", b}}, {.lr = .001});
  Step step(
      [&](const Tensors& in) {
        backward(mean(linear(linear(in[0], b), a)));
        sgd.step();
        return Tensors{detach(sum(a * a))};
      },
      of_parameters({a, b}));
  for (int i = 0; i < 24; ++i) step({Tensor::full({4, 4}, .5)});
  EXPECT_GE(step.stats().replays, 20);
  EXPECT_GE(step.stats().rechecks, 1);
  clear_tape();
}

// Weights a, b of 4 x 4, a vector v of 4, and an input x of 4 x 4.
struct Same {
  const char* what;
  Tensors (*step)(const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& v);
};
const auto clear_all = [](const Tensors& list) {
  for (const Tensor& t : list) t.autograd().grad = {};
};
const Same kSame[] = {
    {"a norm left on the tape",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          backward(linear(linear(x, b), a));
          return Tensors{detach(sum(b * a))};
        }},
    {"a norm before, of another order",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& v) {
          const Tensor norm = detach(sum(v * v) + sum(b * b));
          clear_all({a, b, v});
          backward(linear(linear(x, a, v), b));
          return Tensors{norm};
        }},
    {"one op on the tape at the end",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          backward(x * a);
          return Tensors{detach(a * b)};
        }},
    {"two backwards, of other orders",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& v) {
          clear_all({a, b, v});
          backward(linear(linear(x, a), b, v));
          backward(linear(linear(x, b, v), a));
          return Tensors{detach(sum(v * v))};
        }},
    {"a tape that is kept for a second backward",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          const Tensor y = linear(linear(x, b), a);
          backward(y, {.retain_tape = true});
          backward(y);
          return Tensors{detach(y)};
        }},
    {"a tape that stays",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          const Tensor y = linear(linear(x, b), a);
          backward(y, {.retain_tape = true});
          return Tensors{detach(y)};
        }},
    {"a leaf as the root",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          const Tensor y = detach(sum(a * x));
          backward(a);
          return Tensors{y};
        }},
    {"a leaf of the step",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          const Tensor own = detach(x * 2).set_requires_grad(true);
          backward(linear(linear(own, b), a));
          return Tensors{own.grad()};
        }},
    {"gradients that are left to add up",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          backward(linear(linear(x, b), a));
          return Tensors{};
        }},
    {"some cleared, some not",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& v) {
          clear_all({b});
          backward(linear(linear(x, b, v), a));
          return Tensors{};
        }},
    {"a parameter that no op reads",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& v) {
          clear_all({a, b, v});
          backward(linear(x, b));
          return Tensors{};
        }},
    {"constants of the host",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          const Tensor y = linear(linear(x, b), a) - Tensor::full({4, 4}, 0.5);
          backward(y * y * Tensor::from({1, 2, 3, 4}, {4}));
          return Tensors{detach(y)};
        }},
    {"dropout",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          backward(linear(dropout(linear(x, b), 0.5), a));
          return Tensors{};
        }},
    {"a part under NoGrad",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          Tensor h;
          {
            const NoGrad no_grad;
            h = linear(x, a);
          }
          backward(linear(h, b));
          return Tensors{h};
        }},
    {"an own update",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          backward(linear(linear(x, b), a));
          const NoGrad no_grad;
          for (const Tensor& t : {b, a}) accumulate(t, scale(t.grad(), -0.01));
          return Tensors{};
        }},
    {"a gradient that is given",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          backward(linear(x, a), {.gradient = linear(x, detach(b))});
          return Tensors{};
        }},
    {"a gradient that is kept",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          const Tensor h = linear(x, b);
          retain_grad(h);
          backward(linear(h, a));
          return Tensors{h.grad()};
        }},
    {"a gradient that is scaled in place",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          backward(linear(linear(x, b), a));
          nn::clip_grad_norm({a, b}, 0.1);
          return Tensors{};
        }},
    {"a gradient that is carried over, halved",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          const NoGrad no_grad;
          clear_all({b});
          if (a.grad().defined()) a.autograd().grad = scale(a.grad(), 0.5);
          const GradMode on(true);
          backward(linear(linear(x, b), a));
          return Tensors{};
        }},
    {"views as results",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          const Tensor y = linear(linear(x, b), a);
          backward(y);
          return Tensors{slice(detach(y), 0, 1, 3), transpose(detach(y)), slice(x, 0, 0, 2)};
        }},
    {"no op at all", [](const Tensor& x, const Tensor&, const Tensor&,
                         const Tensor&) { return Tensors{reshape(x, {16})}; }},
    {"one tensor twice",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          backward(linear(linear(x, a), a) * linear(x, b));
          return Tensors{};
        }},
    {"products of a product's weight",
        [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor&) {
          clear_all({a, b});
          backward(matmul(linear(a, b), linear(b, a)) * x);
          return Tensors{};
        }},
};

TEST(SameStep, IsNeverAnother) {
  for (const Same& s : kSame) {
    for (const bool listed : {true, false}) {
      for (const bool junk : {false, true}) {
        clear_tape();
        manual_seed(1);
        const Tensor a = leaf({4, 4}, 1), b = leaf({4, 4}, 2), v = leaf({4}, 3);
        StepOptions options = listed ? of_parameters({a, b, v}) : StepOptions{};
        options.recheck_every = 1;
        Step step([&](const Tensors& in) { return s.step(in[0], a, b, v); }, options);
        for (uint64_t i = 0; i < 16; ++i) {
          // What the caller does between calls, and leaves on the tape.
          if (junk && i % 2 == 0) v* v + b;
          if (junk && i % 3 == 0) a* a;
          const std::string message = test::message_of([&] { step({data({4, 4}, i)}); });
          EXPECT_EQ(message, "") << s.what << ", call " << i << (listed ? ", listed" : "")
                                 << (junk ? ", junk" : "");
          if (!message.empty()) break;
        }
        EXPECT_GE(step.stats().rechecks, 8) << s.what;
      }
    }
  }
  clear_tape();
}

// Which op of the forward pass a node of backward() belongs to, also where the tape of one op ended
// with backward() and the next one begins with another.
TEST(SameStep, ATapeOfOneOpThatBeginsAnewKeepsItsPairs) {
  const Tensor w = leaf({2}, 1);
  Step step([&](const Tensors& in) {
    w.autograd().grad = {};
    for (int i = 0; i < 3; ++i) backward(in[0] * w);
    return Tensors{};
  });
  for (int i = 0; i < 2; ++i) step({Tensor::ones({2})});
  int forward = -1, pairs = 0;
  for (const Node& node : step.captured()->recorded.nodes) {
    if (node.op->text() == "mul" && node.forward < 0)
      forward = int(&node - step.captured()->recorded.nodes.data());
    if (node.forward >= 0) {
      EXPECT_EQ(node.forward, forward);
      ++pairs;
    }
  }
  EXPECT_EQ(pairs, 3);
}

// ---- what is refused by name

TEST(Refusals, NoFunctionIsSaidAtOnce) {
  test::expect_error(
      Error::Kind::usage, {"capture", "no function", "Step"}, [] { Step step(nullptr); });
  test::expect_error(
      Error::Kind::usage, {"capture", "no function"}, [] { Step step{Step::Function()}; });
}

TEST(Refusals, AGradientThatIsCarriedOverIsCalledByItsName) {
  const Tensor w = leaf({3}, 1);
  w.autograd().name = "w";
  Step step(
      [&](const Tensors& in) {
        backward(in[0] * w);
        const NoGrad no_grad;
        w.autograd().grad = scale(w.grad(), 0.5);
        return Tensors{};
      },
      of_parameters({w}));
  Numbers grad(3, 0);
  for (uint64_t i = 0; i < 8; ++i) {
    const Tensor x = data({3}, i);
    const std::string message = test::message_of([&] { step({x}); }, Error::Kind::state);
    EXPECT_EQ(message.find("input 1"), std::string::npos) << message;
    if (!message.empty()) {
      test::expect_facts(message, {"the gradient of w", "hint: "});
      break;
    }
    const Numbers values = x.to_vector<double>();
    for (size_t k = 0; k < 3; ++k) grad[k] = (grad[k] + values[k] / 3) * 0.5;
    EXPECT_TRUE(test::close(w.grad(), grad, {.absolute = 1e-6})) << "call " << i;
  }
}

// What a step reads of training flags is of its key, and nothing else of them.
TEST(Key, OfAStepHoldsTheTrainingFlagsThatItAsksFor) {
  nn::Mlp net({4, 5, 3}, {.dropout = 0.5}), other({4, 5, 3}, {.dropout = 0.5});
  Step step([&](const Tensors& in) { return Tensors{detach(net(in[0]))}; });
  const Tensors in{Tensor::ones({2, 4})};
  const auto captures_after = [&](int calls) {
    for (int i = 0; i < calls; ++i) step(in);
    return step.stats().captures;
  };
  EXPECT_EQ(captures_after(3), 1);
  std::thread([&] { other.eval(); }).join();
  {
    const nn::Mlp gone({4, 5, 3}, {.dropout = 0.5});
    other.train();
    EXPECT_EQ(captures_after(1), 1);
  }
  other.eval();
  EXPECT_EQ(captures_after(1), 1);
  EXPECT_EQ(step.stats().recordings, 1);
  net.eval();
  EXPECT_EQ(step(in)[0].to_vector<double>(), net(in[0]).to_vector<double>());
  EXPECT_EQ(captures_after(2), 2);
  net.train();
  other.train();
  EXPECT_EQ(captures_after(1), 2) << "as at the beginning";
  net.eval();
  EXPECT_EQ(captures_after(1), 2);
  EXPECT_EQ(step(in)[0].to_vector<double>(), net(in[0]).to_vector<double>());
  EXPECT_EQ(step.stats().recordings, 2);
  clear_tape();
}

// A rule that finds no place for its group leaves no value behind.
TEST(Rules, AddNothingWhereTheyDoNotFuse) {
  const Tensor both = leaf({6, 4}, 1), x = data({5, 4}, 2);
  const NoGrad no_grad;
  Recording recording({x});
  const Tensor g = linear(x, slice(both, 0, 0, 3)), u = linear(x, slice(both, 0, 3, 6));
  const Graph graph = recording.finish({g, u}, {});
  const Rewriter fused = rewrite(graph, RuleSet("all"), Device::Type::cpu);
  EXPECT_EQ(ops_of(fused.graph), "linear linear");
  EXPECT_EQ(fused.graph.values.size(), graph.values.size());
  EXPECT_EQ(fused.graph.buffers.size(), graph.buffers.size());
}

TEST(Key, OfAStepHoldsTheRanksThatItIsCalledIn) {
  struct Alone final : Communicator {
    Alone() : Communicator(0, 1) {}
    std::string describe() const override { return "alone"; }
    std::vector<std::string> gather(const std::string& own) override { return {own}; }
    void abort(int status) override { std::exit(status); }
    void start(int64_t, std::span<const SumPiece>, DType, Device) override {}
    Time finish(int64_t) override { return {}; }
  };
  Alone first, second;
  Step step([](const Tensors& in) { return Tensors{neg(in[0])}; });
  const auto call = [&](Communicator* ranks) {
    const CommunicatorScope scope(ranks);
    step({Tensor::ones({2})});
    return step.stats().captures;
  };
  for (int i = 0; i < 3; ++i) call(&first);
  EXPECT_EQ(call(&first), 1);
  for (int i = 0; i < 2; ++i) call(&second);
  EXPECT_EQ(call(&second), 2);
  EXPECT_EQ(call(&first), 2);
}

}  // namespace
}  // namespace sinter::capture
