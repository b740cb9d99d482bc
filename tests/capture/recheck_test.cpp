// Note [Recorded once more] of capture/step.h: what a closure's changed number is refused for, and
// that nothing else of a step tells the calls that look from those that do not.
#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "autograd/tape.h"
#include "capture/step.h"
#include "core/allocator.h"
#include "core/context.h"
#include "core/device/launch_log.h"
#include "ops/ops.h"
#include "profiler/session.h"
#include "tests/capture/step_util.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

// The error of the first call that is refused, of at most `most`, and its number.
std::pair<int, std::string> first_refused(Step& step, const Tensors& in, int most) {
  for (int call = 1; call <= most; ++call) {
    const std::string message =
        test::message_of([&] { step(in); }, std::optional(Error::Kind::state));
    if (!message.empty()) return {call, message};
  }
  return {most + 1, ""};
}

// ---- what is refused

// A number that the function holds, of which call 3 and all later ones have another.
struct Changing {
  const char* what;
  double before, after;
  std::function<Tensors(const Tensors& in, const Tensor& w, double number)> function;
  std::vector<std::string> facts;
};

Tensors own_sgd(const Tensors& in, const Tensor& w, double lr) {
  w.autograd().grad = {};
  const Tensor y = mul(in[0], w);
  backward(y);
  const NoGrad no_grad;
  accumulate(w, scale(w.grad(), -lr));
  return {detach(y)};
}

const Changing kChanging[] = {
    {"a learning rate", 0.1, 0.2, own_sgd,
        {"scale f32[3, 4]", "factor is -0.1 as it was captured, -0.2 at this call"}},
    {"the p of dropout", 0.5, 0.25,
        [](const Tensors& in, const Tensor&, double p) { return Tensors{dropout(in[0], p)}; },
        {"op 0, dropout f32[3, 4]", "p is 0.5 as", "0.25 at"}},
    {"a factor", 2, 3,
        [](const Tensors& in, const Tensor&, double by) { return Tensors{neg(in[0] * by)}; },
        {"op 0, scale f32[3, 4]", "factor is 2 as", "3 at"}},
    {"a summand", 2, 3,
        [](const Tensors& in, const Tensor&, double by) { return Tensors{neg(in[0]) + by}; },
        {"op 1, add f32[3, 4]", "operand 1, a constant, is 2 as", "3 at"}},
    {"a flag", 0, 1,
        [](const Tensors& in, const Tensor&, double on) {
          return Tensors{on > 0 ? exp(neg(in[0])) : neg(in[0])};
        },
        {"there are 1 ops as it was captured, 2 at this call", "op 1, exp f32[3, 4]"}},
    {"another op", 0, 1,
        [](const Tensors& in, const Tensor&, double on) {
          return Tensors{on > 0 ? exp(in[0]) : neg(in[0])};
        },
        {"op 0, neg f32[3, 4]", "exp(%0)"}},
    {"whether gradients are cleared", 1, 0,
        [](const Tensors& in, const Tensor& w, double clears) {
          if (clears > 0) w.autograd().grad = {};
          return Tensors{neg(in[0])};
        },
        {"the gradient of w is cleared as it was captured, kept at this call"}}};

TEST(RecheckSimt, ANumberThatChangesAtCall3IsRefusedAtCall10ByTheNameOfItsNode) {
  for (const Device device : {kCpu, kSimt}) {
    for (const Changing& c : kChanging) {
      Tensor w = Tensor::ones({3, 4}, DType::f32, device).set_requires_grad(true);
      w.autograd().name = "w";
      w.autograd().grad = Tensor::ones({3, 4}, DType::f32, device);
      const Tensors in{cast(sample_tensor({3, 4}, 1), DType::f32).to(device)};
      double number = c.before;
      int calls = 0, recorded = 0;
      Step step(
          [&](const Tensors& x) {
            ++recorded;
            return c.function(x, w, number);
          },
          {.parameters = [&](const ParameterVisitor& visit) { visit(w); }});
      Tensor weight;
      const auto call = [&] {
        if (++calls == 3) number = c.after;
        if (c.after == 0) w.autograd().grad = Tensor::ones({3, 4}, DType::f32, device);
        weight = w.to(kCpu);
        step(in);
      };
      for (int i = 0; i < 9; ++i) call();
      std::vector<std::string> facts = c.facts;
      facts.insert(facts.end(), {"at call 10 ", "hint", "a new Step"});
      test::expect_error(Error::Kind::state, facts, call);
      EXPECT_EQ(recorded, 3) << c.what;
      EXPECT_TRUE(test::close(w.to(kCpu), weight, {})) << c.what << ": the call was not done";
      // From then on the step is captured as it is.
      for (int i = 0; i < 12; ++i) call();
      EXPECT_EQ(step.stats().rechecks, 2) << c.what;
      EXPECT_EQ(step.stats().captures, 2) << c.what;
    }
  }
}

TEST(Recheck, ANumberThatChangesLaterIsRefusedAtTheNextPowerOfTen) {
  const Tensors in{Tensor::ones({2})};
  double factor = 2;
  Step step([&](const Tensors& x) { return Tensors{x[0] * factor}; });
  for (int i = 0; i < 10; ++i) step(in);
  factor = 3;
  EXPECT_EQ(first_refused(step, in, 200).first, 90);
  EXPECT_EQ(step.stats().rechecks, 2);
}

TEST(Recheck, TheErrorSaysInWhichModuleTheNodeStands) {
  Training training({.sizes = {6, 5, 3}, .dropout = 0.5});
  double by = 1;
  Step step(
      [&](const Tensors& in) {
        const ModulePath module("Head / Scale");
        training.optimizer->zero_grad();
        const Tensor losses = cross_entropy(training.net(in[0]) * by, in[1]);
        backward(losses);
        training.optimizer->step(losses);
        return Tensors{losses};
      },
      training.step_options());
  const Tensors in = batch_of(training.options, 4, 1);
  for (int i = 0; i < 9; ++i) step(in);
  by = 0.5;
  const auto [call, message] = first_refused(step, in, 1);
  EXPECT_EQ(call, 1);
  test::expect_facts(
      message, {"scale f32[4, 3] in Head / Scale, forward: factor is 1 as", "0.5 at"});
}

TEST(Recheck, ATensorOfTheClosureThatIsAnotherIsRefused) {
  Tensor b = Tensor::ones({2});
  Step step([&](const Tensors& in) { return Tensors{neg(in[0]) + b}; });
  const Tensors in{Tensor::ones({2})};
  for (int i = 0; i < 9; ++i) step(in);
  b = Tensor::zeros({2});
  const auto [call, message] = first_refused(step, in, 1);
  test::expect_facts(message,
      {"op 1, add f32[2]", "operand 1, f32[2] cpu, which no op produced, is another tensor at"});
}

TEST(Recheck, CountsAreOfAKey) {
  double factor = 2;
  Step step([&](const Tensors& x) { return Tensors{x[0] * factor}; });
  const Tensors a{Tensor::ones({2})}, b{Tensor::ones({3})};
  for (int i = 0; i < 9; ++i) {
    step(a);
    if (i < 8) step(b);
  }
  factor = 3;
  step(b);
  EXPECT_EQ(step.stats().rechecks, 0) << "call 18, the ninth of either";
  EXPECT_EQ(first_refused(step, a, 1).first, 1);
  EXPECT_EQ(first_refused(step, b, 1).first, 1);
}

TEST(Recheck, OfEveryNthCallOrNone) {
  const auto calls_until_refused = [](std::optional<int64_t> every) {
    double factor = 2;
    Step step([&](const Tensors& x) { return Tensors{x[0] * factor}; }, {.recheck_every = every});
    const Tensors in{Tensor::ones({2})};
    for (int i = 0; i < 2; ++i) step(in);
    factor = 3;
    return 2 + first_refused(step, in, 30).first;
  };
  EXPECT_EQ(calls_until_refused({}), 10);
  EXPECT_EQ(calls_until_refused(1), 3);
  EXPECT_EQ(calls_until_refused(2), 4);
  EXPECT_EQ(calls_until_refused(7), 7);
  EXPECT_EQ(calls_until_refused(0), 33);
  test::expect_error(Error::Kind::usage, {"recheck_every", "-1"},
      [] { Step step([](const Tensors& x) { return x; }, {.recheck_every = -1}); });
}

// ---- what nobody can tell

// All that training leaves behind, and what it cost.
struct Run {
  std::vector<double> numbers;
  std::vector<int64_t> counts;
  int64_t replays = 0, rechecks = 0;
};

struct Setting {
  const char* what;
  TrainOptions options{.sizes = {6, 5, 3}};
  const char* rules = "all";
  bool accumulates = false, listed = true;
};

Run run(const Setting& s, int calls, std::optional<int64_t> every) {
  manual_seed(3);
  clear_tape();
  Training t(s.options);
  const Tensors parameters = t.net.parameters();
  const auto halves = [&](const Tensors& in) {
    t.optimizer->zero_grad();
    for (int64_t at = 0; at < 4; at += 2) {
      const Tensor part =
          cross_entropy(t.net(slice(in[0], 0, at, at + 2)), slice(in[1], 0, at, at + 2));
      backward(part);
    }
    if (s.options.clip > 0) nn::clip_grad_norm(parameters, s.options.clip);
    t.optimizer->step();
    return Tensors{};
  };
  StepOptions options = t.step_options(s.rules);
  if (!s.listed) options.parameters = nullptr;
  options.recheck_every = every;
  Step step(s.accumulates ? Step::Function(halves) : t.function(), options);
  Run out;
  const auto see = [&](const Tensor& x) {
    const std::vector<double> values = x.to_vector<double>();
    out.numbers.insert(out.numbers.end(), values.begin(), values.end());
  };
  std::vector<double> rates;
  std::vector<Tensors> batches;  // all at once, so that each lies elsewhere
  for (int i = 0; i < calls; ++i) {
    rates.push_back(0.01 / (i + 1));
    batches.push_back(batch_of(s.options, 4, uint64_t(i)));
  }
  t.optimizer->set_rates(rates);
  const LaunchLog log;
  const int64_t requests = allocator(s.options.device).stats().requests;
  for (int i = 0; i < calls; ++i) {
    for (const Tensor& result : step(batches[size_t(i)])) see(result);
    see(dropout(Tensor::ones({16}, DType::f32, s.options.device), 0.5));
    if (i % 5 == 4) t.optimizer->set_lr(0.003);
  }
  out.counts = {std::ssize(log.launches()), allocator(s.options.device).stats().requests - requests,
      int64_t(Tape::current().size()), next_random_op(), t.optimizer->steps()};
  for (const Tensor& p : parameters) {
    see(p);
    const AutogradMeta& meta = p.autograd();
    out.counts.push_back(int64_t(p.storage()->version()));
    out.counts.insert(out.counts.end(),
        {meta.grad.defined(), meta.grad.is_meta(), meta.grad_taken_by != nullptr, meta.known});
    if (meta.grad.defined() && !meta.grad.is_meta()) see(meta.grad);
    if (meta.bf16_copy.defined()) see(meta.bf16_copy);
  }
  for (const auto& [_, tensor] : t.optimizer->state_tensors()) see(tensor);
  const StepState state = read_step_state(t.optimizer->state());
  out.numbers.insert(out.numbers.end(), {state.lr, state.loss_sum, state.root_scale});
  see(rng_state(s.options.device));
  out.replays = step.stats().replays;
  out.rechecks = step.stats().rechecks;
  return out;
}

void expect_same(const Setting& setting, int calls, std::optional<int64_t> every, int64_t looks) {
  run(setting, 3, 0);  // makes the constants, which the thread keeps
  const Run with = run(setting, calls, every), without = run(setting, calls, 0);
  const std::string what = str(setting.what, " on ", setting.options.device.str());
  EXPECT_TRUE(test::close(with.numbers, without.numbers, {})) << what;
  EXPECT_EQ(with.counts, without.counts) << what;
  EXPECT_EQ(with.replays, without.replays) << what;
  EXPECT_EQ(with.replays, calls - 1) << what;
  EXPECT_EQ(with.rechecks, looks) << what;
  EXPECT_EQ(without.rechecks, 0) << what;
}

TEST(Recheck, ResultsOf120CallsAreThoseOfAStepWithoutThem) {
  expect_same({.what = "Adam", .options = {.sizes = {6, 5, 3}, .dropout = 0.5}}, 120, {}, 2);
}

// Looked at each call, so that what a look leaves behind adds up.
void check_settings(Device device) {
  const Setting settings[] = {{.what = "SGD", .options = {.optimizer = "sgd"}},
      {.what = "AdamW, dropout, clip",
          .options = {.optimizer = "adamw", .dropout = 0.5, .clip = 0.1}},
      {.what = "bf16", .options = {.activation = "gelu", .clip = 1, .dtype = DType::bf16}},
      {.what = "gradients left", .options = {.dropout = 0.25}, .rules = "none"},
      {.what = "accumulated", .options = {.dropout = 0.5, .clip = 0.1}, .accumulates = true},
      {.what = "not listed", .options = {.optimizer = "sgd"}, .rules = "none", .listed = false}};
  for (Setting s : settings) {
    s.options.sizes = {6, 5, 3};
    s.options.device = device;
    expect_same(s, 9, 1, 7);
  }
}
TEST(Recheck, LeavesNoTraceInTraining) { check_settings(kCpu); }
TEST(RecheckSimt, LeavesNoTraceInTraining) { check_settings(kSimt); }
using RecheckGpu = test::GpuTest;
TEST_F(RecheckGpu, LeavesNoTraceInTraining) { check_settings(test::kCuda); }

TEST(Recheck, LeavesWhatAutogradKnowsAlone) {
  Tensor w = Tensor::ones({2}).set_requires_grad(true), x = Tensor::ones({2});
  int hooks = 0, calls = 0;
  register_hook(w, [&](const Tensor&) {
    ++hooks;
    return Tensor();
  });
  Step step(
      [&](const Tensors& in) {
        if (++calls == 3) {  // what is changed on the host by the call that is not done
          register_hook(w, [&](const Tensor&) { return Tensor(); });
          w.autograd().known = true;
          w.autograd().name = "mine";
          Tensor(in[0]).autograd().name = "its";
          set_first_row(7);
        }
        w.autograd().grad = {};
        backward(mul(in[0], w));
        return Tensors{};
      },
      {.parameters = [&](const ParameterVisitor& visit) { visit(w); }, .recheck_every = 3});
  for (int i = 0; i < 2; ++i) step({x});
  const Tensor outside = mul(w, w);  // on the caller's tape
  const size_t taped = Tape::current().size();
  step({x});
  EXPECT_EQ(step.stats().rechecks, 1);
  EXPECT_EQ(calls, 3) << "what the function counts is counted";
  EXPECT_EQ(w.autograd().hooks.size(), 1u);
  EXPECT_FALSE(w.autograd().known);
  EXPECT_EQ(w.autograd().name, "");
  EXPECT_EQ(first_row(), 0);
  EXPECT_FALSE(w.grad().is_meta());
  EXPECT_TRUE(Context::current().launches);
  EXPECT_EQ(taped, 1u);
  clear_tape();
}

TEST(Recheck, LooksBehindATapeThatTheCallerStillNeeds) {
  const Tensor w = Tensor::ones({2}).set_requires_grad(true);
  Step step([](const Tensors& in) { return Tensors{neg(in[0])}; }, {.recheck_every = 3});
  const Tensor x = Tensor::ones({2});
  for (int i = 0; i < 2; ++i) step({x});
  const Tensor y = mul(w, w);
  step({x});
  EXPECT_EQ(step.stats().rechecks, 1);
  backward(y);
  EXPECT_TRUE(test::close(w.grad(), {1, 1}, {}));  // of the mean
}

TEST(Recheck, AsksForNoTensorMemory) {
  Training training({.sizes = {6, 5, 3}, .dropout = 0.5, .clip = 1});
  Step step(training.function(), training.step_options());
  const Tensors in = batch_of(training.options, 4, 1);
  for (int i = 0; i < 9; ++i) step(in);
  const int64_t requests = allocator(kCpu).stats().requests;
  step(in);
  EXPECT_EQ(step.stats().rechecks, 1);
  EXPECT_EQ(allocator(kCpu).stats().requests, requests);
}

TEST(Recheck, IsOneRowOfAProfile) {
  Training training({.sizes = {6, 5, 3}});
  Step step(training.function(), training.step_options());
  const Tensors in = batch_of(training.options, 4, 1);
  const auto rows_of_call = [&] {
    profiler::Session session({.schedule = {.wait = 0, .warmup = 0, .active = 1}});
    step(in);
    session.step();
    std::vector<std::string> rows;
    for (const profiler::Row& row : session.finish().rows().rows)
      rows.push_back(str(row.name, " ", row.calls, " ", row.launches));
    return rows;
  };
  for (int i = 0; i < 8; ++i) step(in);
  std::vector<std::string> ninth = rows_of_call(), tenth = rows_of_call();
  ASSERT_EQ(step.stats().rechecks, 1);
  ninth.insert(ninth.begin(), "recheck 1 0");
  EXPECT_EQ(tenth, ninth);
}

TEST(Recheck, WhatTheFunctionThrowsLeavesTheStepAsItWas) {
  Training training({.sizes = {6, 5, 3}, .dropout = 0.5});
  bool fail = false;
  Step step(
      [&](const Tensors& in) {
        Tensors out = training(in);
        if (fail) throw std::runtime_error("mine");
        return out;
      },
      training.step_options());
  const Tensors in = batch_of(training.options, 4, 1);
  for (int i = 0; i < 9; ++i) step(in);
  const Tensor before = copy(training.net.parameters()[0]), rng = copy(rng_state());
  fail = true;
  for (int i = 0; i < 2; ++i) EXPECT_THROW(step(in), std::runtime_error);
  EXPECT_TRUE(Context::current().launches);
  EXPECT_TRUE(test::close(training.net.parameters()[0], before, {}));
  EXPECT_TRUE(test::close(rng_state(), rng, {}));
  EXPECT_EQ(training.optimizer->steps(), 9);
  fail = false;
  step(in);
  EXPECT_EQ(step.stats().replays, 9);
  EXPECT_EQ(step.stats().rechecks, 1);
}

TEST(Recheck, ATensorThatTheFunctionKeepsForItselfSaysWhyItHasNoElements) {
  Tensor kept;
  Step step([&](const Tensors& in) { return Tensors{kept = neg(in[0])}; });
  for (int i = 0; i < 10; ++i) step({Tensor::ones({2})});
  test::expect_error(Error::Kind::state,
      {"meta tensor", "calls 2, 10, 100", "return from the step"},
      [&] { kept.to_vector<float>(); });
}

TEST(Recheck, ConstantsOfAThreadMayHaveBegunAnew) {
  const auto f = [](const Tensors& in) { return Tensors{(1 - in[0]) + 1 + (in[0] + 3)}; };
  Step step(f);
  const Tensor x = Tensor::ones({2});
  for (int i = 0; i < 9; ++i) step({x});
  for (const int from : {0, 1000}) {  // the second time the list is full when the step looks
    for (int i = 0; i < 257 - (from > 0); ++i) x + (from + 5.0 + i);
    EXPECT_TRUE(test::close(step({x})[0], f({x})[0], {}));
    for (int i = 0; from == 0 && i < 89; ++i) step({x});
  }
  EXPECT_EQ(step.stats().rechecks, 2);
}

// ---- keys that keep changing

TEST(ChangingKeys, AreSaidOnceWithWhatDiffers) {
  Step step([](const Tensors& in) { return Tensors{neg(in[0])}; });
  const auto call = [&](int64_t rows) { step({Tensor::ones({rows, 3})}); };
  for (int i = 0; i < 29; ++i) {
    call(1 + i % 12);
    EXPECT_EQ(step.stats().misses.size(), i < 15 ? 0u : 1u) << i;
  }
  EXPECT_EQ(step.stats().replays, 0);
  EXPECT_EQ(step.stats().evictions, 21);
  test::expect_facts(step.stats().misses.at(0),
      {"keep changing", "of 16 calls 0 were replayed", "16 times a key", "8 were evicted",
          "room for 8", "input 0 is f32[4, 3] cpu, before f32[3, 3] cpu", "pad",
          "StepOptions::cache_size"});
}

TEST(ChangingKeys, AreNotSaidOfAFewOrOfThoseThatReplay) {
  Step few([](const Tensors& in) { return Tensors{neg(in[0])}; });
  for (int i = 0; i < 40; ++i) few({Tensor::ones({1 + i % 8})});
  EXPECT_TRUE(few.stats().misses.empty());
  Step slow([](const Tensors& in) { return Tensors{neg(in[0])}; });
  for (int i = 0; i < 80; ++i) slow({Tensor::ones({1 + i / 4})});
  EXPECT_EQ(slow.stats().evictions, 12);
  EXPECT_TRUE(slow.stats().misses.empty());
}

// A weight that is replaced at every second call: each capture is made for one replay.
TEST(ChangingKeys, CapturesThatAreForgottenAreSaidOnceWithTheGuard) {
  for (const int calls_of_each : {1, 2, 3}) {
    Tensor weight = Tensor::ones({3});
    Step step([&](const Tensors& in) { return Tensors{in[0] * weight}; },
        {.parameters = [&](const ParameterVisitor& visit) { visit(weight); }});
    const auto notes = [&] {
      return std::ranges::count_if(step.stats().misses,
          [](const std::string& miss) { return miss.starts_with("recorded "); });
    };
    for (int i = 0; i < 40; ++i) {
      if (i % calls_of_each == 0) {
        weight = Tensor::ones({3});
        weight.autograd().name = "scale";
      }
      step({Tensor::ones({3})});
      const bool said = calls_of_each < 3 && i >= 8 * calls_of_each;
      EXPECT_EQ(notes(), said) << calls_of_each << ", " << i;
      if (calls_of_each == 2 && i == 16)
        test::expect_facts(step.stats().misses.back(),
            {"recorded 8 times in 17 calls, and replayed in 8: ", "at call 13 guard ",
                "at call 17 guard storage address of scale changed; pad ", "op by op"});
    }
  }
}

TEST(ChangingKeys, OfTheModeAreNamed) {
  int64_t mode = 0;
  Step step([](const Tensors& in) { return Tensors{neg(in[0])}; },
      {.mode = [&] { return mode++; }, .cache_size = 2});
  for (int i = 0; i < 5; ++i) step({Tensor::ones({2})});
  test::expect_facts(step.stats().misses.at(0), {"mode is 3, before 2", "room for 2"});
}

}  // namespace
}  // namespace sinter::capture
