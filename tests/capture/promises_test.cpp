// Note [What a replay promises] of capture/step.h: whatever the caller does between calls, a Step
// gives what its function gives, or refuses by name. Here is what the random sequences of
// call_sequence_test.cpp do not come to; they have the rest.
#include <gtest/gtest.h>

#include <thread>

#include "autograd/autograd.h"
#include "capture/step.h"
#include "core/context.h"
#include "core/device/launch_log.h"
#include "nn/named_tensor.h"
#include "ops/ops.h"
#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

#if SINTER_HAS_EMULATOR
constexpr Device kBoth[] = {kCpu, kSimt};
#else
constexpr Device kBoth[] = {kCpu};
#endif
using Numbers = std::vector<double>;

Tensor random_tensor(const Shape& shape, uint64_t seed, Device device = kCpu) {
  return sample_tensor(shape, seed, -1, 1).to(device);
}
Tensor random_leaf(const Shape& shape, uint64_t seed, Device device = kCpu) {
  return random_tensor(shape, seed, device).set_requires_grad(true);
}
Numbers numbers(const Tensor& t) { return t.defined() ? t.to_vector<double>() : Numbers{}; }
StepOptions following(Tensors tensors) {
  return {.parameters = [tensors = std::move(tensors)](const ParameterVisitor& visit) {
    for (const Tensor& t : tensors) visit(t);
  }};
}
void clear_gradient(const Tensor& t) { t.autograd().grad = {}; }
void expect_refused(const std::vector<std::string>& facts, const std::function<void()>& call) {
  test::expect_error(Error::Kind::state, facts, call);
}

// ---- calls

TEST(Promises, Call1RunsCall2IsTracedAndReplayed) {
  for (const Device device : kBoth) {
    int ran = 0;
    Step step([&](const Tensors& in) {
      ++ran;
      return Tensors{neg(scale(in[0], 2))};
    });
    for (int call = 1; call <= 12; ++call) {
      const LaunchLog log;
      const Tensor y = step({Tensor::full({3}, call, DType::f64, device)})[0];
      EXPECT_EQ(numbers(y), Numbers(3, -2.0 * call)) << "call " << call;
      EXPECT_EQ(ran, call == 1 ? 1 : call < 10 ? 2 : 3) << "call " << call;
      EXPECT_EQ(step.stats().replays, call - 1);
      EXPECT_EQ(step.stats().recordings, 1);
      if (device == kSimt) {
        EXPECT_EQ(log.launches().size(), call == 1 ? 2u : 1u) << "call " << call;
      }
    }
    EXPECT_EQ(step.stats().rechecks, 1);
  }
}

// What it does with a gradient that is there, and how often the function has run after each call
// of which the first begins without one, the others with what was left.
TEST(Promises, Call2IsTracedOnceMoreWhereItsGradientsMatter) {
  struct Case {
    const char* what;
    bool clears;
    std::vector<int> ran;
  };
  for (const Case& c : {Case{"clears it", true, {1, 2, 2, 2}}, Case{"adds", false, {1, 3, 3, 3}}}) {
    const Tensor w = random_leaf({3, 4}, 1), x = random_tensor({3, 4}, 2);
    int ran = 0;
    Step step(
        [&](const Tensors& in) {
          ++ran;
          if (c.clears) clear_gradient(w);
          backward(mul(in[0], w));
          return Tensors{};
        },
        following({w}));
    for (int call = 1; call <= 4; ++call) {
      step({x});
      EXPECT_EQ(ran, c.ran[size_t(call - 1)]) << c.what << ", call " << call;
      EXPECT_EQ(step.stats().replays, call - 1) << c.what;
      EXPECT_TRUE(
          test::close(w.grad(), scale(x, (c.clears ? 1.0 : call) / 12), {.absolute = 1e-15}))
          << c.what << ", call " << call;
    }
    EXPECT_EQ(step.stats().captures, 1) << c.what;
    // Call 1 waits for a call that begins as it did, and is traced then.
    clear_gradient(w);
    step({x});
    EXPECT_EQ(ran, c.clears ? 2 : 4) << c.what;
    EXPECT_EQ(step.stats().replays, 4) << c.what;
    EXPECT_EQ(step.stats().captures, c.clears ? 1 : 2) << c.what;
    EXPECT_TRUE(test::close(w.grad(), scale(x, 1.0 / 12), {.absolute = 1e-15})) << c.what;
  }
}

TEST(Promises, ACall2ThatIsAnotherIsNotDone) {
  Training training({.sizes = {6, 5, 3}, .dropout = 0.5});
  double factor = 1;
  Step step(
      [&](const Tensors& in) {
        training.optimizer->zero_grad();
        const Tensor losses = scale(cross_entropy(training.net(in[0]), in[1]), factor);
        backward(losses);
        training.optimizer->step(losses);
        return Tensors{losses};
      },
      training.step_options());
  const Tensors in = batch_of(training.options, 4, 1);
  step(in);
  const Tensor w = training.net.parameters()[0];
  const Tensor gradient = w.grad();
  const Numbers weights = numbers(w), gradients = numbers(gradient), rng = numbers(rng_state());
  const uint64_t version = w.storage()->version();
  factor = 2;
  expect_refused({"different graphs", "scale f32[4]", "factor is 1", "2 in"}, [&] { step(in); });
  EXPECT_EQ(numbers(w), weights);
  EXPECT_EQ(w.storage()->version(), version);
  EXPECT_TRUE(w.grad().is_same(gradient));
  EXPECT_EQ(numbers(gradient), gradients);
  EXPECT_EQ(numbers(rng_state()), rng);
  EXPECT_EQ(training.optimizer->steps(), 1);
  for (int i = 0; i < 2; ++i) step(in);
  EXPECT_EQ(step.stats().replays, 2) << "captured as it is since";
  EXPECT_EQ(training.optimizer->steps(), 3);
}

// A tensor that a trace has made has no elements: whoever would read it later is told.
TEST(Promises, StateThatTheFunctionMakesAtCall2IsToldByName) {
  const Tensor x = Tensor::ones({3}, DType::f64), other = Tensor::ones({2, 3}, DType::f64);
  const std::vector<std::string> facts{"f64[3] cpu", "meta tensor", "calls 2, 10", "first call"};
  const std::vector<std::string> kept{"add is given f64[3] cpu", "a meta tensor", "only traced",
      "before the step", "at its first call"};
  Tensor state;
  int ran = 0;
  const auto late = [&](const Tensors& in) {  // made at the second run
    if (++ran == 2) state = neg(in[0]);
    return Tensors{state.defined() ? add(in[0], state) : neg(in[0])};
  };
  {
    Step step(late);
    step({x});
    expect_refused({"different graphs", "add", "hint"}, [&] { step({x}); });
    for (int i = 0; i < 2; ++i) expect_refused(kept, [&] { step({x}); });
    state = Tensor::ones({3}, DType::f64);  // mended
    expect_refused({"different graphs"}, [&] { step({x}); });
    for (int i = 0; i < 2; ++i) EXPECT_EQ(numbers(step({x})[0]), Numbers(3, 2.0));
  }
  const auto anew = [&](const Tensors& in) { return Tensors{neg(state = neg(in[0]))}; };
  {
    Step step(anew);
    for (int i = 0; i < 2; ++i) step({x});
    const Tensor total = Tensor::zeros({3}, DType::f64);
    expect_refused({"meta tensor", "calls 2, 10"}, [&] { state.to_vector<double>(); });
    expect_refused(facts, [&] { accumulate(total, state); });
    Step reads([&](const Tensors& in) { return Tensors{add(in[0], state)}; });
    expect_refused(kept, [&] { reads({x}); });
    expect_refused(kept, [&] { reads({other}); });
    Step writes([&](const Tensors&) {
      accumulate(total, state);
      return Tensors{};
    });
    expect_refused(facts, [&] { writes({}); });
    Step gives([&](const Tensors&) { return Tensors{state}; });
    for (int i = 0; i < 3; ++i)
      expect_refused({"meta tensor", "calls 2, 10"}, [&] { gives({})[0].to_vector<double>(); });
    EXPECT_EQ(numbers(total), Numbers(3, 0.0));
  }
}

// ---- gradients

TEST(Promises, AStepMayAskWhetherAGradientIsThere) {
  for (int order = 0; order < 64; ++order) {
    const Tensor w = random_leaf({2}, 1), one = Tensor::ones({2}, DType::f64);
    StepOptions options = following({w});
    options.cache_size = 1 + size_t(order % 2);
    Step step([&](const Tensors& in) { return Tensors{scale(in[0], w.grad().defined() ? 2 : 3)}; },
        options);
    for (int call = 0; call < 18; ++call) {
      const bool there = (order >> call % 6 & 1) != 0;
      w.autograd().grad = there ? one : Tensor();
      EXPECT_EQ(numbers(step({one})[0]), Numbers(2, there ? 2.0 : 3.0))
          << "order " << order << ", call " << call;
    }
  }
}

// mean(x * w) and its backward, from a weight of its own.
struct Backward {
  Tensor w;
  explicit Backward(Device device) : w(random_leaf({3, 4}, 1, device)) {}
  Tensors operator()(const Tensors& in) const {
    const Tensor y = mul(in[0], w);
    backward(y);
    return {detach(y)};
  }
};

TEST(Promises, GradientsPresentAtEntryAccumulate) {
  for (const Device device : kBoth) {
    const Backward eager(device), captured(device);
    Step step(captured, following({captured.w}));
    // Three calls from no gradient; micro-batches; then both in turn, by now all replayed.
    const std::string calls =
        "cc"
        "c++"
        "c++"
        "c+c+"
        "c++c";
    for (size_t i = 0; i < calls.size(); ++i) {
      const Tensor x = random_tensor({3, 4}, 10 + i, device);
      if (calls[i] == 'c') {
        clear_gradient(eager.w);
        clear_gradient(captured.w);
      }
      const Tensor wanted = eager({x})[0];
      EXPECT_EQ(numbers(step({x})[0]), numbers(wanted)) << "call " << i;
      EXPECT_EQ(numbers(captured.w.grad()), numbers(eager.w.grad()))
          << "call " << i << " on " << device.str();
    }
    EXPECT_EQ(step.stats().captures, 2) << "one for a gradient that is there, one for none";
    EXPECT_GE(step.stats().replays, 10);
  }
}

TEST(Promises, AGradientOfTheCallersIsAddedToInPlace) {
  const Backward f(kCpu);
  Step step(f, following({f.w}));
  for (int i = 0; i < 4; ++i) {
    const Tensor x = random_tensor({3, 4}, 10), mine = Tensor::full({3, 4}, i, DType::f64);
    f.w.autograd().grad = mine;
    step({x});
    EXPECT_TRUE(f.w.grad().is_same(mine));
    Numbers wanted = numbers(x);
    for (double& v : wanted) v = v * (1.0 / 12) + i;
    EXPECT_TRUE(test::close(mine, wanted, {.absolute = 1e-15})) << "call " << i;
  }
  EXPECT_EQ(step.stats().replays, 3);
}

TEST(Promises, AStepThatClearsGradientsItselfKeepsReplaying) {
  Training eager({.sizes = {6, 5, 3}, .dtype = DType::f64}),
      captured({.sizes = {6, 5, 3}, .dtype = DType::f64});
  Step step(captured.function(), captured.step_options("all,-weight_grad_update"));
  for (uint64_t i = 0; i < 8; ++i) {
    if (i % 3 == 0) captured.optimizer->zero_grad();
    if (i % 3 == 2) {
      for (const Tensor& p : captured.net.parameters())
        p.autograd().grad = Tensor::full(p.shape(), 7, DType::f64);
    }
    const Tensors in = batch_of(eager.options, 4, i);
    eager(in);
    step(in);
    for (size_t p = 0; p < eager.net.parameters().size(); ++p) {
      EXPECT_TRUE(test::close(captured.net.parameters()[p].grad(), eager.net.parameters()[p].grad(),
          {.of_largest = 1e-9}));
    }
  }
  EXPECT_EQ(step.stats().captures, 1);
  EXPECT_EQ(step.stats().replays, 7);
}

TEST(Promises, GradientsOfTensorsThatAreNotListedAreDelivered) {
  const Backward eager(kCpu), captured(kCpu);
  Step step(captured);
  for (uint64_t i = 0; i < 8; ++i) {
    if (i < 5) {
      clear_gradient(eager.w);
      clear_gradient(captured.w);
    }
    const Tensor x = random_tensor({3, 4}, 10 + i);
    eager({x});
    step({x});
    EXPECT_EQ(numbers(captured.w.grad()), numbers(eager.w.grad())) << "call " << i;
  }
  EXPECT_GE(step.stats().replays, 4);
}

TEST(Promises, GradientsOfTensorsThatAreNotListedMayBeClearedInTheStep) {
  const Backward f(kCpu);
  Step step([&](const Tensors& in) {
    clear_gradient(f.w);
    return f(in);
  });
  for (uint64_t i = 0; i < 6; ++i) {
    const Tensor x = random_tensor({3, 4}, i);
    step({x});
    EXPECT_EQ(numbers(f.w.grad()), numbers(scale(x, 1.0 / 12))) << "call " << i;
  }
  EXPECT_EQ(step.stats().captures, 1);
  EXPECT_EQ(step.stats().replays, 5);
}

TEST(Promises, AGradientThatARuleTookIsNotAddedTo) {
  Training training({.sizes = {6, 5, 3}});
  const auto f = [&](const Tensors& in) {  // nobody clears the gradients in it
    const Tensor losses = cross_entropy(training.net(in[0]), in[1]);
    backward(losses);
    training.optimizer->step(losses);
    return Tensors{losses};
  };
  Step step(f, training.step_options());
  const Tensors in = batch_of(training.options, 4, 1);
  for (int i = 0; i < 3; ++i) {
    training.optimizer->zero_grad();
    step(in);
  }
  ASSERT_EQ(step.stats().replays, 2);
  expect_refused({"weight_grad_update"}, [&] { training.net.parameters()[0].grad(); });
  for (int i = 0; i < 2; ++i) expect_refused({"weight_grad_update", "hint"}, [&] { step(in); });
  training.optimizer->zero_grad();
  step(in);
  EXPECT_EQ(step.stats().replays, 3);
}

TEST(Promises, GradientsThatTheStepClearsAreCleared) {
  const Backward eager(kCpu), captured(kCpu);
  const auto clearing = [](const Backward& f) {
    return [&f](const Tensors& in) {
      Tensors out = f(in);
      out.push_back(copy(f.w.grad()));
      clear_gradient(f.w);
      return out;
    };
  };
  Step step(clearing(captured), following({captured.w}));
  for (uint64_t i = 0; i < 9; ++i) {
    if (i % 4 == 3) {
      for (const Backward* f : {&eager, &captured})
        f->w.autograd().grad = Tensor::full({3, 4}, 2, DType::f64);
    }
    const Tensor x = random_tensor({3, 4}, 10 + i);
    const Tensors wanted = clearing(eager)({x}), got = step({x});
    for (size_t r = 0; r < 2; ++r)
      EXPECT_EQ(numbers(got[r]), numbers(wanted[r])) << "call " << i << " result " << r;
    EXPECT_FALSE(captured.w.grad().defined()) << "call " << i;
  }
}

TEST(Promises, AStepMayReadGradientsThatWereMadeOutside) {
  for (const Device device : kBoth) {
    const TrainOptions options{
        .sizes = {6, 5, 3}, .optimizer = "sgd", .clip = 0.1, .dtype = DType::f64, .device = device};
    Training eager(options), captured(options);
    const auto update = [](Training& t) {
      nn::clip_grad_norm(t.net.parameters(), 0.1);
      t.optimizer->step();
      return Tensors{};
    };
    Step step([&](const Tensors&) { return update(captured); }, captured.step_options());
    for (uint64_t i = 0; i < 5; ++i) {
      const Tensors in = batch_of(options, 4, i);
      for (Training* t : {&eager, &captured}) {
        t->optimizer->zero_grad();
        backward(cross_entropy(t->net(in[0]), in[1]));
      }
      update(eager);
      step({});
      for (size_t p = 0; p < eager.net.parameters().size(); ++p) {
        EXPECT_TRUE(test::close(
            captured.net.parameters()[p], eager.net.parameters()[p], {.of_largest = 1e-12}))
            << "call " << i;
        EXPECT_TRUE(test::close(captured.net.parameters()[p].grad(),
            eager.net.parameters()[p].grad(), {.of_largest = 1e-12}));
      }
    }
    EXPECT_EQ(step.stats().replays, 4) << device.str();
  }
}

TEST(Promises, GradientsMayBePiecesOfOneBucket) {
  struct Bucket {
    Tensor all = Tensor::zeros({8}, DType::f64), a = random_leaf({3}, 1), b = random_leaf({5}, 2);
    Tensors operator()(const Tensors& in) const {
      backward(add(mul(sum(a), in[0]), sum(b)));
      const NoGrad no_grad;
      return {scale(all, 0.5)};
    }
    void lay_out(const Tensor& bucket) const {
      a.autograd().grad = slice(bucket, 0, 0, 3);
      b.autograd().grad = slice(bucket, 0, 3, 8);
    }
  };
  const Bucket eager, captured;
  eager.lay_out(eager.all);
  captured.lay_out(captured.all);
  Step step([&](const Tensors& in) { return captured(in); }, following({captured.a, captured.b}));
  for (int i = 0; i < 6; ++i) {
    const Tensor x = Tensor::full({1}, i, DType::f64);
    const Tensor mine = Tensor::zeros({8}, DType::f64);
    if (i == 5) {  // elsewhere: captured anew, not added to the old place
      eager.lay_out(mine);
      captured.lay_out(copy(mine));
    }
    EXPECT_EQ(numbers(eager({x})[0]), numbers(step({x})[0])) << "call " << i;
    EXPECT_EQ(numbers(eager.a.grad()), numbers(captured.a.grad())) << "call " << i;
    EXPECT_EQ(numbers(eager.b.grad()), numbers(captured.b.grad())) << "call " << i;
  }
  EXPECT_EQ(step.stats().replays, 4);
}

// A replay makes the gradients of merged weights in one storage, an eager call does not.
TEST(Promises, GradientsMayShareAStorageAtOneCallAndNotAtAnother) {
  struct Gated {
    Tensor gate = random_leaf({4, 10}, 1), up = random_leaf({4, 10}, 2);
    bool adds = false;
    Tensors operator()(const Tensors& in) const {
      if (!adds) {
        clear_gradient(gate);
        clear_gradient(up);
      }
      const Tensor y = sum(mul(gelu(linear(in[0], gate)), linear(in[0], up)), {1});
      backward(y);
      return {detach(y)};
    }
  };
  Gated eager, captured;
  StepOptions options = following({captured.gate, captured.up});
  options.mode = [&] { return int64_t(captured.adds); };
  options.recheck_every = 1;
  Step step([&](const Tensors& in) { return captured(in); }, options);
  // The first two that add begin with gradients of an eager call and of a replay; then both places
  // come in turn.
  const std::string calls = "cc+c+c+c+e+e+e+c+c+e+";
  for (size_t i = 0; i < calls.size(); ++i) {
    const Tensor x = random_tensor({6, 10}, 10 + i);
    eager.adds = captured.adds = calls[i] == '+';
    const Tensor wanted = eager({x})[0];
    const Tensor found = calls[i] == 'e' ? captured({x})[0] : step({x})[0];
    EXPECT_TRUE(test::close(found, wanted, {.of_largest = 1e-12})) << "call " << i;
    EXPECT_TRUE(test::close(captured.gate.grad(), eager.gate.grad(), {.of_largest = 1e-12})) << i;
    EXPECT_TRUE(test::close(captured.up.grad(), eager.up.grad(), {.of_largest = 1e-12})) << i;
  }
  EXPECT_EQ(step.stats().captures, 3) << "one that begins anew, one for each place to add to";
  EXPECT_GT(step.stats().replays, 8);
}

TEST(Promises, GradientsThatTheStepDoesNotTouchStay) {
  const Tensor w = random_leaf({3, 4}, 1), kept = Tensor::ones({3, 4}, DType::f64);
  Step step(
      [&](const Tensors& in) {
        const NoGrad no_grad;
        return Tensors{mul(in[0], w)};
      },
      following({w}));
  w.autograd().grad = kept;
  for (int i = 0; i < 4; ++i) step({random_tensor({3, 4}, 2)});
  EXPECT_TRUE(w.grad().is_same(kept));
  EXPECT_EQ(numbers(kept), Numbers(12, 1.0));
  EXPECT_EQ(step.stats().replays, 3);
}

// ---- results

TEST(Promises, AResultThatRequiresGradIsRefused) {
  const Tensor w = random_leaf({3, 4}, 1), x = random_tensor({3, 4}, 2);
  Step on_tape([&](const Tensors& in) { return Tensors{mul(in[0], w)}; });
  for (int i = 0; i < 4; ++i)
    expect_refused({"result 0", "requires grad", "detach"}, [&] { on_tape({x}); });
  Step leaf([&](const Tensors&) { return Tensors{w}; });
  expect_refused({"result 0", "requires grad"}, [&] { leaf({x}); });
  clear_tape();
}

TEST(Promises, AResultIsOffTheTapeAtEveryCall) {
  const Tensor w = random_leaf({3, 4}, 1), x = random_tensor({3, 4}, 2);
  Step step([&](const Tensors& in) {
    Tensor y = mul(in[0], w);
    backward(y);
    return Tensors{y};
  });
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(step({x})[0].requires_grad()) << "call " << i;
}

TEST(Promises, AnUndefinedResultIsRefused) {
  Step step([](const Tensors& in) { return Tensors{neg(in[0]), Tensor()}; });
  for (int i = 0; i < 3; ++i)
    expect_refused({"result 1", "undefined"}, [&] { step({Tensor::ones({2})}); });
}

TEST(Promises, InPlaceOfAResultThatViewsAnInputThereIsACopy) {
  for (const Device device : kBoth) {
    Step step([](const Tensors& in) {
      return Tensors{reshape(slice(in[0], 0, 1, 3), {8}), in[0]};
    });
    Tensors results;
    for (uint64_t i = 0; i < 4; ++i) {
      Tensor x = random_tensor({3, 4}, i, device);
      const Numbers all = numbers(x);
      results = step({x});
      x = {};
      const Tensor other =
          Tensor::full({3, 4}, 9, DType::f64, device);  // would get the memory of x
      EXPECT_EQ(numbers(results[0]), Numbers(all.begin() + 4, all.end())) << "call " << i;
      EXPECT_EQ(numbers(results[1]), all) << "call " << i;
    }
  }
}

TEST(Promises, WhatACallerDoesToAResultDoesNotStickToTheNext) {
  Step step([](const Tensors& in) { return Tensors{neg(in[0])}; });
  for (int i = 0; i < 5; ++i) {
    Tensor y = step({Tensor::ones({2})})[0];
    EXPECT_FALSE(y.requires_grad()) << "call " << i;
    y.set_requires_grad(true);
    backward(y);
  }
}

TEST(Promises, AResultThatBackwardNeedsIsNotOverwrittenUnseen) {
  const Tensor w = random_leaf({2}, 1), x = Tensor::ones({2}, DType::f64);
  Step step([](const Tensors& in) { return Tensors{neg(in[0])}; });
  for (int i = 0; i < 3; ++i) step({x});
  const Tensor y = mul(step({x})[0], w);
  step({x});
  expect_refused({"mul", "changed it in place", "replay"}, [&] { backward(y); });
  clear_tape();
}

// ---- inputs

TEST(Promises, InputsMayOverlapInOneStorage) {
  for (const Device device : kBoth) {
    const Tensor sequence = random_tensor({40, 3}, 1, device);
    const auto f = [](const Tensors& in) { return Tensors{sub(mul(in[0], in[0]), in[1])}; };
    Step step(f);
    for (int64_t t = 0; t < 6; ++t) {
      const Tensors in{slice(sequence, 0, t, t + 8), slice(sequence, 0, t + 1, t + 9)};
      EXPECT_EQ(numbers(step(in)[0]), numbers(f(in)[0])) << "call " << t;
    }
    EXPECT_EQ(step.stats().replays, 5);
    const Tensors wider{slice(sequence, 0, 0, 8), slice(sequence, 0, 5, 13)},
        apart{slice(sequence, 0, 0, 8), slice(sequence, 0, 20, 28)};
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(numbers(step(wider)[0]), numbers(f(wider)[0]));
      EXPECT_EQ(numbers(step(apart)[0]), numbers(f(apart)[0]));
    }
  }
}

// It lies in the memory of the other, or at its end.
TEST(Promises, AnInputMayBeAnEmptySliceOfAnother) {
  const Tensor x = random_tensor({4}, 1);
  for (const int64_t at : {0, 2, 4}) {
    Step step([](const Tensors& in) { return Tensors{neg(in[0]), neg(in[1])}; });
    for (int i = 0; i < 4; ++i) {
      const Tensors& results = step({x, slice(x, 0, at, at)});
      EXPECT_EQ(numbers(results[0]), numbers(neg(x)));
      EXPECT_EQ(results[1].numel(), 0);
    }
    EXPECT_EQ(step.stats().replays, 3);
  }
}

TEST(Promises, AnInputMayViewAParameter) {
  for (const Device device : kBoth) {
    const Tensor w = random_leaf({4, 4}, 1, device), other = random_tensor({4, 4}, 2, device);
    const auto f = [&](const Tensors& in) {
      const NoGrad no_grad;
      return Tensors{sub(w, scale(in[0], 0.25))};
    };
    Step step(f, following({w}));
    const std::vector<Tensor> calls{detach(w), detach(w), detach(w), other, other, other,
        detach(transpose(w)), other, detach(w)};
    for (size_t i = 0; i < calls.size(); ++i)
      EXPECT_EQ(numbers(step({calls[i]})[0]), numbers(f({calls[i]})[0])) << "call " << i;
  }
}

TEST(Promises, AnInputThatSharesMemoryWithWhatIsWrittenIsRefused) {
  const Tensor w = random_leaf({4, 4}, 1), other = random_tensor({4, 4}, 2);
  const std::vector<std::string> facts{"input ", "shares memory", "changes one", "copy"};
  Step updates(
      [&](const Tensors& in) {
        const NoGrad no_grad;
        accumulate(detach(w), in[0]);
        return Tensors{};
      },
      following({w}));
  expect_refused(facts, [&] { updates({detach(w)}); });
  for (int i = 0; i < 3; ++i) updates({other});
  expect_refused(facts, [&] { updates({detach(w)}); });
  Step writes([](const Tensors& in) {
    accumulate(in[0], in[1]);
    return Tensors{};
  });
  const Tensor x = random_tensor({4, 4}, 3), start = copy(x);
  expect_refused(facts, [&] { writes({x, x}); });
  EXPECT_EQ(numbers(x), numbers(scale(start, 2))) << "the first call ran, on a copy of input 1";
  for (int i = 0; i < 3; ++i) writes({x, other});
  const Numbers before = numbers(x);
  expect_refused(facts, [&] { writes({x, detach(x)}); });
  EXPECT_EQ(numbers(x), before);
}

TEST(Promises, AnInputThatSharesMemoryWithWhatTheStepWritesIsRefused) {
  const Tensor total = Tensor::zeros({4, 3}, DType::f64);
  Step step([&](const Tensors& in) {
    const NoGrad no_grad;
    accumulate(total, in[0]);
    return Tensors{copy(in[0])};
  });
  const Tensor x = random_tensor({4, 3}, 1);
  for (int i = 0; i < 3; ++i) step({x});
  expect_refused({"input 0", "changes", "copy"}, [&] { step({total}); });
}

TEST(Promises, AReplayThatWritesItsInputBumpsItsVersion) {
  for (const Device device : kBoth) {
    Step step([](const Tensors& in) {
      accumulate(in[0], in[1]);
      return Tensors{};
    });
    const Tensor x = Tensor::zeros({4}, DType::f64, device),
                 one = Tensor::ones({4}, DType::f64, device);
    for (int i = 1; i <= 4; ++i) {
      const uint64_t before = x.storage()->version();
      step({x, one});
      EXPECT_GT(x.storage()->version(), before) << "call " << i;
      EXPECT_STREQ(x.storage()->last_writer(), "accumulate");
      EXPECT_EQ(numbers(x), Numbers(4, i));
    }
  }
}

TEST(Promises, AResultOfTheStepThatItWouldWriteIsRefusedAsInput) {
  Step step([](const Tensors& in) {
    const NoGrad no_grad;
    accumulate(in[0], in[1]);
    return Tensors{neg(in[0])};
  });
  const Tensor one = Tensor::ones({4});
  Tensor y;
  for (int i = 0; i < 3; ++i) y = step({Tensor::zeros({4}), one})[0];
  expect_refused({"input 0", "result of this step", "copy"}, [&] { step({y, one}); });
}

TEST(Promises, AnInputInsideTheCallersTapeIsRefused) {
  const Tensor w = random_leaf({3}, 1), x = random_tensor({3}, 2);
  Step step([](const Tensors& in) {
    backward(mul(in[0], in[0]));
    return Tensors{};
  });
  for (int i = 0; i < 3; ++i)
    expect_refused({"input 0", "requires grad", "detach"}, [&] { step({mul(w, x)}); });
  clear_tape();
}

// ---- parameters and the closure

TEST(Promises, AParameterReplacedBetweenCallsIsFollowed) {
  Tensor w = random_leaf({3, 4}, 1);
  Step step(
      [&](const Tensors& in) {
        clear_gradient(w);
        backward(mul(in[0], w));
        return Tensors{scale(detach(w), 1)};
      },
      {.parameters = [&](const ParameterVisitor& visit) { visit(w); }});
  const Tensor x = random_tensor({3, 4}, 2);
  for (int i = 0; i < 3; ++i) step({x});
  const Tensor before = w;
  w = detach(w).set_requires_grad(
      true);  // another tensor on the same memory: the gradient is this one's now
  clear_gradient(before);
  step({x});
  EXPECT_TRUE(w.grad().defined());
  EXPECT_FALSE(before.grad().defined());
  w = random_leaf({3, 4}, 5);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(numbers(step({x})[0]), numbers(w));
  EXPECT_EQ(step.stats().misses.size(), 1u);
  w = transpose(reshape(detach(w), {4, 3}))
          .set_requires_grad(true);  // the same memory, laid out otherwise
  for (int i = 0; i < 3; ++i) EXPECT_EQ(numbers(step({x})[0]), numbers(w));
  EXPECT_EQ(step.stats().misses.size(), 2u);
}

TEST(Promises, AnInputThatGetsAGradientSharesNoMemoryWithAParameterOrAnother) {
  const Tensor w = random_leaf({3, 4}, 1), other = random_leaf({3, 4}, 2);
  Step step(
      [&](const Tensors& in) {
        backward(mul(mul(in[0], in[1]), w));
        return Tensors{};
      },
      following({w}));
  const std::vector<std::string> facts{"requires grad and shares memory", "copy"};
  for (int i = 0; i < 4; ++i) {
    expect_refused(facts, [&] { step({w, other}); });
    expect_refused(facts, [&] { step({other, other}); });
    step({other, detach(w)});
  }
}

// recheck_test.cpp has the rest of it.
TEST(Promises, AChangedNumberOfTheClosureIsRefusedAtTheNextCallThatIsRecordedOnceMore) {
  double factor = 2;
  const auto f = [&](const Tensors& in) { return Tensors{scale(in[0], factor)}; };
  Step step(f);
  const Tensors in{Tensor::ones({2})};
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(numbers(step(in)[0]), Numbers(2, 2.0));
    if (i == 1) factor = 3;
  }
  expect_refused({"at call 10", "op 0, scale", "factor is 2", "3 at", "hint"}, [&] { step(in); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(numbers(step(in)[0]), Numbers(2, 3.0)) << "captured anew";
}

TEST(Promises, WritesOfTheHostInsideAStepAreRefused) {
  Training training({.sizes = {6, 5, 3}});
  const Tensor p = detach(training.net.parameters()[0]), ones = Tensor::ones(p.shape());
  const std::pair<const char*, std::function<void()>> writes[] = {
      {"set_lr", [&] { training.optimizer->set_lr(training.optimizer->lr()); }},
      {"set_rates", [&] { training.optimizer->set_rates({0.1}); }},
      {"set_steps", [&] { training.optimizer->set_steps(3); }},
      {"write_step_state", [&] { write_step_state(training.optimizer->state(), {}); }},
      {"read_step_state", [&] { training.optimizer->steps(); }},
      {"manual_seed", [] { manual_seed(1); }},
      {"copy_values", [&] { nn::copy_values(p, ones, "copy_values"); }}};
  for (const auto& [what, write] : writes) {
    Step step([&](const Tensors& in) {
      write();
      return Tensors{neg(in[0])};
    });
    for (int i = 0; i < 2; ++i)
      expect_refused({what, "inside a captured step", "hint"}, [&] { step({ones}); });
    write();
  }
}

// ---- random numbers

TEST(Promises, TheFirstRowOfTheBatchBelongsToTheKey) {
  for (const Device device : kBoth) {
    const auto f = [](const Tensors& in) { return Tensors{dropout(in[0], 0.5)}; };
    const Tensor x = Tensor::ones({5, 40}, DType::f64, device);
    const auto run = [&](const std::function<Tensors(const Tensors&)>& call) {
      manual_seed(5);
      std::vector<Numbers> all;
      for (int i = 0; i < 12; ++i) {
        set_first_row(i < 4 || i > 8 ? 0 : 5);
        all.push_back(numbers(call({x})[0]));
      }
      set_first_row(0);
      return all;
    };
    Step step(f);
    EXPECT_EQ(run([&](const Tensors& in) { return step(in); }), run(f)) << device.str();
    EXPECT_EQ(step.stats().captures, 2);
  }
}

// As a replay, which does not run it.
TEST(Promises, AFirstRowThatTheFunctionSetsHoldsInsideIt) {
  const Tensor x = Tensor::ones({5, 40}, DType::f64);
  Step step([](const Tensors& in) {
    set_first_row(5);
    return Tensors{dropout(in[0], 0.5)};
  });
  for (int i = 0; i < 4; ++i) {
    step({x});
    EXPECT_EQ(first_row(), 0) << "call " << i;
  }
  EXPECT_EQ(step.stats().replays, 3);
}

// ---- nesting, threads, anomaly mode

TEST(Promises, AStepInsideAStepIsPartOfIt) {
  Step inner([](const Tensors& in) { return Tensors{neg(in[0])}; });
  const Tensor x = Tensor::full({2}, 3);
  for (int i = 0; i < 3; ++i) inner({x});
  Step outer([&](const Tensors& in) { return Tensors{scale(inner(in)[0], 2)}; });
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(numbers(outer({Tensor::full({2}, i)})[0]), Numbers(2, -2.0 * i)) << "call " << i;
  EXPECT_EQ(outer.stats().replays, 4);
  EXPECT_EQ(outer.captured()->recorded.nodes.size(), 2u);
  EXPECT_EQ(numbers(inner({x})[0]), Numbers(2, -3.0));
}

TEST(Promises, EachThreadHasItsOwnCapture) {
  const auto f = [](const Tensors& in) { return Tensors{dropout(in[0], 0.5)}; };
  Step step(f);
  const Tensor x = Tensor::ones({64}, DType::f64);
  manual_seed(1);
  for (int i = 0; i < 4; ++i) step({x});
  for (int k = 0; k < 2; ++k) {  // the second thread may get the first one's id
    std::thread([&] {
      const auto run = [&](const std::function<Tensors(const Tensors&)>& call) {
        manual_seed(20 + uint64_t(k));
        std::vector<Numbers> all;
        for (int i = 0; i < 4; ++i) all.push_back(numbers(call({x})[0]));
        return all;
      };
      EXPECT_EQ(run([&](const Tensors& in) { return step(in); }), run(f)) << "thread " << k;
    }).join();
  }
}

TEST(Promises, TwoThreadsAtOnceAreRefused) {
  Step* other = nullptr;
  std::string message;
  Step step([&](const Tensors& in) {
    std::thread([&] {
      message = test::message_of([&] { (*other)(in); }, Error::Kind::usage);
    }).join();
    return Tensors{neg(in[0])};
  });
  other = &step;
  step({Tensor::ones({2})});
  test::expect_facts(message, {"two threads at once", "hint"});
}

TEST(Promises, UnderAnomalyModeTheFunctionRunsOpByOp) {
  const auto f = [](const Tensors& in) { return Tensors{log(in[0])}; };
  Step step(f);
  const Tensor good = Tensor::full({2}, 2), bad = Tensor::full({2}, -1);
  for (int i = 0; i < 3; ++i) step({good});
  {
    const AnomalyMode anomaly;
    EXPECT_EQ(numbers(step({good})[0]), numbers(f({good})[0]));
    test::expect_error(Error::Kind::numeric, {"log", "nan"}, [&] { step({bad}); });
  }
  EXPECT_EQ(step.stats().replays, 2);
  step({good});
  EXPECT_EQ(step.stats().replays, 3);
}

// ---- failures and lifetimes

int g_shapes_until_failure = -1;  // of meta tensors; -1: none fails
Tensors infer_failing(Operands in, const Attrs&) {
  if (in[0].is_meta() && g_shapes_until_failure >= 0 && g_shapes_until_failure-- == 0)
    throw Error(Error::Kind::memory, "failing: now");
  return {Tensor::shape_only(in[0].shape(), in[0].dtype(), in[0].device())};
}
const OpDef kFailingOp{.name = "failing",
    .infer = infer_failing,
    .cost = [](Operands in, Operands out, const Attrs&) { return cost_of(0, in, out); },
    .cpu =
        [](const Call& call) {
          std::memcpy(call.out[0].raw(), call.in[0].raw(), call.in[0].storage()->bytes());
        }};

TEST(Promises, AFailedCaptureLeavesTheStepAsItWas) {
  Step step([](const Tensors& in) {
    neg(in[0]);  // nobody reads it: the graph without it is checked again
    return Tensors{apply1(kFailingOp, {in[0]})};
  });
  const Tensor x = random_tensor({3}, 1);
  step({x});
  for (int i = 0; i < 3; ++i) {
    g_shapes_until_failure =
        1;  // the recording's own check passes; the first one of the capture does not
    test::expect_error(Error::Kind::memory, {"failing: now"}, [&] { step({x}); });
    EXPECT_EQ(step.captured(), nullptr);
  }
  g_shapes_until_failure = -1;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(numbers(step({x})[0]), numbers(x));
  EXPECT_EQ(step.stats().replays, 3);
}

TEST(Promises, AnExceptionOfTheFunctionLeavesTheStepAsItWas) {
  bool fail = false;
  Step step([&](const Tensors& in) {
    Tensor y = neg(in[0]);
    if (fail) throw std::runtime_error("mine");
    return Tensors{y};
  });
  const Tensor x = Tensor::ones({2});
  for (int call = 0; call < 2; ++call) {
    fail = true;
    for (int i = 0; i < 2; ++i) EXPECT_THROW(step({x}), std::runtime_error);
    EXPECT_TRUE(Context::current().host_reads_forbidden == nullptr);
    fail = false;
    EXPECT_EQ(numbers(step({x})[0]), Numbers(2, -1.0));
  }
  step({x});
  EXPECT_EQ(step.stats().replays, 2);
}

TEST(Promises, RecordingsThatKeepDifferingSayItEachTime) {
  double factor = 1;
  Step step([&](const Tensors& in) { return Tensors{scale(in[0], factor *= 2)}; });
  step({Tensor::ones({2})});
  for (int i = 0; i < 3; ++i)
    expect_refused({"different graphs", "op 0, scale f32[2], forward: factor is ",
                       " in the first recording, ", " in the second"},
        [&] { step({Tensor::ones({2})}); });
}

TEST(Promises, AStepIsNotResetWhileItIsCalled) {
  Step* self = nullptr;
  Step step([&](const Tensors& in) {
    self->reset();
    return in;
  });
  self = &step;
  test::expect_error(Error::Kind::usage, {"reset()"}, [&] { step({Tensor::ones({2})}); });
}

// Takes the memory that was given back, if any was, and spoils it.
void spoil_free_memory(Device device) {
  Tensors held;
  for (int64_t n = 1; n <= 1 << 16; n *= 2) {
    for (int k = 0; k < 4; ++k) held.push_back(Tensor::full({n}, 99, DType::f32, device));
  }
}

TEST(Promises, ResultsAndGradientsOutliveTheirStep) {
  for (const Device device : kBoth) {
    for (const std::string how : {"destroyed", "reset", "evicted", "captured again"}) {
      Tensor w = random_leaf({3, 4}, 1, device);
      StepOptions options{
          .parameters = [&](const ParameterVisitor& visit) { visit(w); }, .cache_size = 1};
      auto step = std::make_unique<Step>(
          [&](const Tensors& in) {
            clear_gradient(w);
            const Tensor y = mul(in[0], w);
            backward(y);
            return Tensors{detach(y)};
          },
          options);
      const Tensor x = random_tensor({3, 4}, 2, device);
      Tensor y;
      for (int i = 0; i < 3; ++i) y = (*step)({x})[0];
      const Tensor gradient = w.grad();
      const Numbers y_before = numbers(y), gradient_before = numbers(gradient);
      if (how == "destroyed") step.reset();
      if (how == "reset") step->reset();
      if (how == "evicted") (*step)({random_tensor({1, 4}, 3, device)});
      if (how == "captured again") {
        w = random_leaf({3, 4}, 7, device);
        (*step)({x});
      }
      spoil_free_memory(device);
      EXPECT_EQ(numbers(y), y_before) << how;
      EXPECT_EQ(numbers(gradient), gradient_before) << how;
    }
  }
}

// A view of a weight that the step makes a leaf of is another tensor at each call, on the memory of
// before: nobody's gradient is kept, and the step is captured once.
TEST(Promises, ALeafOnOldMemoryIsTheCallsOwn) {
  for (const Device device : kBoth) {
    for (const char* what : {"alone", "beside one that is added to", "beside one that is set"}) {
      const auto add = std::string_view(what) != "alone",
                 clear = what == std::string_view("beside one that is set");
      Numbers results[2], gradients[2];
      int64_t captures = 0;
      for (const bool captured : {false, true}) {
        const Tensor w = random_leaf({4, 3}, 1, device);
        const auto f = [&](const Tensors& in) {
          if (clear) clear_gradient(w);
          if (add) backward(sum(linear(in[0], w)));
          const Tensor view = detach(w).set_requires_grad(true);
          backward(sum(linear(in[0], view) * 2.0));
          return Tensors{copy(view.grad())};
        };
        Step step(f, following({w}));
        for (uint64_t call = 0; call < 5; ++call) {
          const Tensors in{random_tensor({5, 3}, call, device)};
          const Numbers now = numbers((captured ? step(in) : f(in))[0]);
          results[captured].insert(results[captured].end(), now.begin(), now.end());
        }
        gradients[captured] = numbers(w.grad());
        captures = step.stats().captures;
      }
      EXPECT_EQ(results[0], results[1]) << what;
      EXPECT_EQ(gradients[0], gradients[1]) << what;
      // A gradient that is added to is there from the second call on: another graph.
      EXPECT_EQ(captures, 1) << what;
    }
  }
}

// The forward pass would not run again in a replay, and a random op of it would find another state.
TEST(Promises, BackwardThroughOpsBeforeTheStepIsRefused) {
  const Tensor w = Tensor::full({4}, 2).set_requires_grad(true);
  Tensor loss = sum(dropout(w, 0.5));
  Step step([&](const Tensors&) {
    backward(loss);
    return Tensors{};
  });
  test::expect_error(
      Error::Kind::state, {"which ran before the step began", "hint:"}, [&] { step({}); });
  EXPECT_FALSE(w.grad().defined());
  backward(loss);  // outside it may
  EXPECT_TRUE(w.grad().defined());
}

}  // namespace
}  // namespace sinter::capture
