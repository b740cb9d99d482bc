#include "autograd/tape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "core/allocator.h"
#include "core/parallel.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "ops/ops.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

Tensor leaf(std::initializer_list<float> values) {
  return Tensor::from(values, {int64_t(values.size())}).set_requires_grad(true);
}

std::string message_of(const std::function<void()>& f, Error::Kind kind = Error::Kind::state) {
  return test::message_of(f, kind);
}

TEST(Backward, GradientsAccumulateUntilCleared) {
  Tensor x = leaf({1, 2, 3});
  for (int i = 0; i < 2; ++i) backward(sum(mul(x, x)));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{4, 8, 12}));
  x.autograd().grad = {};
  backward(sum(mul(x, x)));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 4, 6}));
}

TEST(Backward, AVectorOfLossesDifferentiatesItsMean) {
  Tensor x = leaf({1, 2, 3, 4});
  backward(mul(x, x));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0.5, 1, 1.5, 2}));
}

TEST(Backward, IsAMemberToo) {
  Tensor x = leaf({1, 2, 3, 4});
  (x * x).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0.5, 1, 1.5, 2}));
  EXPECT_THROW(Tensor::ones({1}).backward(), Error);
}

TEST(Backward, AGradientMayBeGiven) {
  Tensor x = leaf({1, 2});
  backward(mul(x, x), {.gradient = Tensor::from({10.f, 100.f}, {2})});
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{20, 400}));
  test::expect_error(Error::Kind::shape, {"gradient is f32[3]"},
      [&] { backward(mul(x, x), {.gradient = Tensor::ones({3})}); });
}

TEST(Backward, OperandsOfASumDoNotShareAGradient) {
  Tensor a = leaf({1, 2}), b = leaf({3, 4});
  for (int i = 0; i < 2; ++i) backward(add(a, b), {.gradient = Tensor::ones({2})});
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{2, 2}));
  EXPECT_EQ(b.grad().to_vector<float>(), (std::vector<float>{2, 2}));
  EXPECT_NE(a.grad().storage(), b.grad().storage());
}

TEST(Backward, AValueUsedTwiceGetsBothParts) {
  Tensor x = leaf({3});
  const Tensor y = mul(x, x);
  backward(add(mul(y, y), y));  // x^4 + x^2
  EXPECT_FLOAT_EQ(x.grad().to_vector<float>()[0], 4 * 27 + 6);
}

TEST(Backward, ALeafIsItsOwnGradient) {
  Tensor x = leaf({5});
  backward(x);
  EXPECT_EQ(x.grad().item(), 1);
}

TEST(Backward, OnlyLeavesKeepGradients) {
  Tensor x = leaf({2});
  const Tensor y = mul(x, x), z = mul(y, y);
  retain_grad(y);
  backward(z);
  EXPECT_EQ(y.grad().item(), 8);
  EXPECT_FALSE(z.grad().defined());
}

TEST(Tape, SecondBackwardNeedsRetain) {
  Tensor x = leaf({2});
  const Tensor y = mul(x, x);
  backward(y, {.retain_tape = true});
  backward(y);
  EXPECT_EQ(x.grad().item(), 8);
  test::expect_facts(message_of([&] { backward(y); }),
      {"tape was already used", "hint: call backward(loss, {.retain_tape = true})"});
}

TEST(Tape, BackwardFreesWhatItHasRead) {
  const Tensor x = Tensor::ones({1 << 16}).set_requires_grad(true);
  Tensor y = mul(x, x);
  int64_t then = 0;
  const auto live = [] { return allocator(kCpu).stats().live_bytes; };
  register_hook(y, [&](const Tensor&) {
    then = live();
    return Tensor();
  });
  const Tensor z = sum(mul(y, y));
  y = {};
  const int64_t before = live();
  backward(z);
  EXPECT_LT(then, before + x.numel() * 2) << "dy has taken the place of y";
}

TEST(Tape, AnExceptionUsesTheTapeUp) {
  const Tensor x = Tensor::ones({2}).set_requires_grad(true);
  const Tensor y = mul(x, x), z = mul(y, y);
  register_hook(y, [](const Tensor&) -> Tensor { throw std::runtime_error("hook"); });
  EXPECT_THROW(backward(z), std::runtime_error);
  test::expect_facts(message_of([&] { backward(z); }), {"tape was already used"});
}

TEST(Tape, AValueOfAUsedTapeMayBeReadButNotDifferentiated) {
  Tensor x = leaf({2});
  const Tensor y = mul(x, x);
  backward(y);
  const Tensor z = mul(y, x);  // a statistic after the step
  EXPECT_EQ(z.item(), 8);
  const float before = x.grad().to_vector<float>()[0];
  test::expect_facts(message_of([&] { backward(z); }), {"an input of mul"});
  EXPECT_EQ(x.grad().to_vector<float>()[0], before) << "a refused backward changes no gradient";
  clear_tape();
}

TEST(Tape, ChangeInPlaceNamesBothOps) {
  Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor y = mul(x, w);
  {
    const NoGrad no_grad;
    accumulate(w, Tensor::ones({2}));
  }
  test::expect_facts(message_of([&] { backward(y); }),
      {"mul needs its input 1", "accumulate changed it in place"});
  clear_tape();
}

TEST(Tape, ChangeInPlaceOfAParameterNeedsNoGrad) {
  Tensor w = leaf({3, 4});
  test::expect_facts(
      message_of([&] { accumulate(w, Tensor::ones({2})); }), {"hint: do it inside NoGrad"});
}

TEST(Tape, NothingIsRecordedWithoutNeed) {
  clear_tape();
  const Tensor a = Tensor::ones({2});
  EXPECT_FALSE(mul(a, a).requires_grad());
  Tensor x = leaf({1, 2});
  {
    const NoGrad no_grad;
    EXPECT_FALSE(mul(x, x).requires_grad());
    const GradMode on(true);
    EXPECT_TRUE(mul(x, x).requires_grad());
  }
  EXPECT_EQ(Tape::current().size(), 1u);
  clear_tape();
  EXPECT_FALSE(argmax(x).requires_grad());
  EXPECT_FALSE(mul(detach(x), a).requires_grad());
  EXPECT_EQ(Tape::current().size(), 0u);
  test::expect_facts(
      message_of([&] { backward(sum(a)); }), {"does not depend on a tensor that requires grad"});
}

TEST(Tape, EachThreadHasItsOwn) {
  clear_tape();
  Tensor x = leaf({1, 2});
  const Tensor y = mul(x, x);
  std::thread([] {
    Tensor z = leaf({3});
    backward(mul(z, z));
    EXPECT_EQ(z.grad().item(), 6);
  }).join();
  EXPECT_EQ(Tape::current().size(), 1u);
  backward(y);
}

// Every tape used to number its generations from 1, so that a leaf of one thread's tape passed for
// another thread's first slot.
TEST(Tape, ALeafOfAnotherThreadKeepsItsOwnGradient) {
  Tensor w = leaf({1}), a = leaf({3});
  std::thread([&] { mul(w, w); }).join();
  std::thread([&] { backward(sum(mul(a, w))); }).join();
  EXPECT_EQ(a.grad().item(), 1);
  EXPECT_EQ(w.grad().item(), 3);
}

TEST(Tape, ThreadsMayUseOneLeafAtOnce) {
  constexpr int kThreads = 4, kRounds = 100;
  Tensor w = leaf({2});
  std::mutex gradients;  // of w: backward() adds to them, one thread at a time
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        Tensor a = leaf({float(t)});
        const Tensor y = mul(add(mul(a, w), w), w);  // (t + 1) w^2
        const std::lock_guard lock(gradients);
        backward(y);
        EXPECT_EQ(a.grad().item(), 4);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(w.grad().item(), kRounds * 4 * (1 + 2 + 3 + 4));
}

TEST(Tape, AValueOfAnotherThreadMayBeReadButNotDifferentiated) {
  Tensor w = leaf({2});
  const Tensor y = mul(w, w);
  std::thread([&] {
    Tensor b = leaf({5});
    const Tensor z = mul(b, y);
    EXPECT_EQ(z.item(), 20);
    test::expect_facts(message_of([&] { backward(z); }), {"another thread"});
    test::expect_facts(message_of([&] { backward(y); }), {"another thread"});
  }).join();
  backward(y);  // where it was made it still is what it was
  EXPECT_EQ(w.grad().item(), 4);
}

TEST(Tape, AChangeInPlaceIsRefusedBeforeItHappens) {
  Tensor w = leaf({1, 2});
  const uint64_t version = w.storage()->version();
  message_of([&] { accumulate(w, Tensor::ones({2})); });
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(w.storage()->version(), version);
}

TEST(RequiresGrad, OfANonLeafIsNotChanged) {
  Tensor x = leaf({1, 2});
  Tensor y = mul(x, x);
  for (const bool on : {false, true}) {
    test::expect_facts(message_of([&] { y.set_requires_grad(on); }),
        {"set_requires_grad: not a leaf: f32[2] cpu", "hint: detach"});
  }
  backward(y);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_FALSE(detach(y).set_requires_grad(false).requires_grad());
}

TEST(Hooks, SeeAndReplaceGradients) {
  Tensor x = leaf({2});
  const Tensor y = mul(x, x);
  double seen = 0;
  register_hook(y, [&](const Tensor& g) {
    seen = g.item();
    return scale(g, 10);
  });
  register_hook(x, [](const Tensor& g) { return neg(g); });
  backward(y);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(x.grad().item(), -40);
  for (const Tensor& other : {Tensor::ones({2}), Tensor::ones({1}, DType::f64)}) {
    Tensor z = leaf({2});
    register_hook(z, [&](const Tensor&) { return other; });
    test::expect_error(Error::Kind::shape,
        {"result of a hook is " + other.describe() + ", gradient is f32[1] cpu"},
        [&] { backward(mul(z, z)); });
  }
  test::expect_facts(
      message_of([&] { register_hook(Tensor::ones({1}), [](const Tensor& g) { return g; }); }),
      {"does not require grad"});
}

// backward() walks the lists that these would change.
TEST(Hooks, MayNotChangeTheTapeThatBackwardWalks) {
  Tensor x = leaf({2}), w = leaf({3});
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"backward", [&] { backward(w); }}, {"clear_tape", clear_tape},
      {"register_hook", [&] { register_hook(x, [](const Tensor& g) { return g; }); }},
      {"mul", [&] {
         const GradMode on(true);
         mul(w, w);
       }}};
  for (const auto& [name, change] : changes) {
    const Tensor y = mul(x, x);
    register_hook(y, [&](const Tensor&) {
      change();
      return Tensor();
    });
    test::expect_error(Error::Kind::state, {str(name, ": called by a hook, inside backward()")},
        [&] { backward(sum(y)); });
  }
  backward(mul(x, x));
  EXPECT_EQ(x.grad().item(), 4) << "the next one is free again";
}

// The root may be the leaf itself, which no op took: the copy of a tensor without gradient.
TEST(Hooks, OfALeafThatIsTheRootRunToo) {
  Tensor x = copy(Tensor::from({2}, {1}));
  x.set_requires_grad(true);
  int calls = 0;
  register_hook(x, [&](const Tensor& g) {
    ++calls;
    return scale(g, 10);
  });
  backward(x);
  EXPECT_EQ(x.grad().item(), 10);
  backward(mul(x, x));
  EXPECT_EQ(x.grad().item(), 50);
  EXPECT_EQ(calls, 2);
}

// A leaf is complete behind the op that used it first; what comes before in the tape goes on.
TEST(Tape, TellsOfACompleteGradientWhileOthersAreToCome) {
  Tensor a = leaf({2}), b = leaf({3}), c = leaf({4}), late = leaf({5});
  std::vector<double> told;
  Tape& tape = Tape::current();
  tape.on_complete = [&](const Tensor& leaf) {
    told.push_back(leaf.item() * 100 + leaf.grad().item());
    EXPECT_EQ(a.grad().defined(), leaf.is_same(a) || leaf.is_same(b));
  };
  backward(mul(mul(mul(mul(a, b), c), b), late));  // 2 * 3 * 4 * 3 * 5
  EXPECT_EQ(told, std::vector<double>({572, 490, 380, 540}));
  tape.on_complete = nullptr;
  b.autograd().grad = {};
  backward(mul(b, b));
  EXPECT_EQ(b.grad().item(), 6);
}

TEST(Tape, PartsOfABatchAddUpToTheGradientOfItsMean) {
  Tensor whole = leaf({2}), parts = leaf({2});
  const Tensor x = sample_tensor({5}, 1);
  const auto square = [](const Tensor& w, const Tensor& rows) { return mul(mul(rows, w), w); };
  backward(square(whole, cast(x, whole.dtype())));
  for (const auto& [begin, end] : {std::pair{0, 2}, {2, 5}})
    backward(square(parts, cast(slice(x, 0, begin, end), parts.dtype())), {.rows = 5});
  EXPECT_NEAR(parts.grad().item(), whole.grad().item(), 1e-6);
}

// ---- forward passes without backward

int64_t live_bytes() { return allocator(kCpu).stats().live_bytes; }
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

TEST(Cases, ForwardWithoutNoGrad) {
  clear_tape();
  const int threads = num_threads();
  set_num_threads(1);  // no team between ops of some microseconds
  nn::Mlp net({64, 64, 10});
  const Tensor x = Tensor::ones({16, 64});
  net(x);
  const int64_t live = live_bytes(), resident = resident_bytes();
  int64_t most = 0;
  for (int i = 0; i < 10000; ++i) {
    net(x);
    most = std::max(most, live_bytes() - live);
  }
  set_num_threads(threads);
  EXPECT_LT(most, 16 << 10) << "of 4 kB a pass: the one that runs, and nothing of those before";
  // ASan keeps what is freed for a while.
  if (!test::kSanitized) EXPECT_LT(resident_bytes() - resident, 8 << 20);
  EXPECT_LT(Tape::current().size(), 100u);
  clear_tape();
}

// What the passes are, whose results nobody keeps.
TEST(Tape, ForgetsWhatNobodyCanDifferentiate) {
  const Tensor w = Tensor::ones({64, 64}).set_requires_grad(true);
  const std::pair<const char*, std::function<void(const Tensor&)>> passes[] = {
      {"saved results", [&](const Tensor& x) { tanh(exp(relu(linear(x, w)))); }},
      {"saved views",
          [&](const Tensor& x) {
            linear(reshape(relu(linear(x, w)), {8, 64}), w);
          }},
      {"values that ask for their gradient",
          [&](const Tensor& x) {
            const Tensor y = relu(linear(x, w));
            retain_grad(y);
            register_hook(y, [](const Tensor& g) { return g; });
            exp(y);
          }},
      {"leaves of their own",
          [&](const Tensor& x) { relu(linear(copy(x).set_requires_grad(true), w)); }},
      {"a tape that was kept",
          [&](const Tensor& x) { backward(relu(linear(x, w)), {.retain_tape = true}); }},
      {"values of a tape that is gone",
          [&, last = Tensor()](const Tensor& x) mutable {
            if (last.defined()) exp(last);
            last = relu(linear(x, w));
          }},
  };
  for (const auto& [what, pass] : passes) {
    clear_tape();
    const Tensor x = Tensor::ones({8, 64});
    pass(x);
    int64_t most = 0;
    const int64_t before = live_bytes();
    for (int i = 0; i < 500; ++i) {
      pass(x);
      most = std::max(most, live_bytes() - before);
    }
    EXPECT_LT(most, 300 << 10) << what << ", of 2 kB a value";
    EXPECT_LT(Tape::current().size(), 80u) << what;
  }
  clear_tape();
}

TEST(Tape, KeepsWhatIsStillInUse) {
  clear_tape();
  const Tensor w = Tensor::from({1, 2, 3, 4}, {2, 2}).set_requires_grad(true),
               x = Tensor::from({1, 2}, {1, 2});
  const auto pass = [&](double by) { return exp(reshape(relu(linear(x * by, w)), {2}) * 0.1); };
  const auto gradient = [&](const Tensor& loss) {
    w.autograd().grad = {};
    backward(loss);
    return w.grad().to_vector<double>();
  };
  const std::vector<double> wanted = gradient(pass(1) + pass(2) * pass(3));
  const Tensor first = pass(1);
  int hooked = 0;
  register_hook(first, [&](const Tensor&) {
    ++hooked;
    return Tensor();
  });
  Tensor second, sum_of_all;
  for (int i = 0; i < 300; ++i) {
    pass(5);
    if (i == 100) second = pass(2);
    if (i % 50 == 0) sum_of_all = sum_of_all.defined() ? sum_of_all + pass(i) : pass(i);
    exp(first);
  }
  const Tensor loss = first + second * pass(3);
  for (int i = 0; i < 300; ++i) pass(5);
  EXPECT_LT(Tape::current().size(), 200u);
  EXPECT_EQ(gradient(loss), wanted);
  EXPECT_EQ(hooked, 1);
  test::expect_facts(message_of([&] { backward(sum_of_all); }), {"tape was already used"});
}

// ---- ops without a backward

Tensors shape_of_operand(Operands in, const Attrs&) {
  return {Tensor::shape_only(in[0].shape(), in[0].dtype(), in[0].device())};
}
Tensors flags_of_operand(Operands in, const Attrs&) {
  return {Tensor::shape_only(in[0].shape(), DType::u8, in[0].device())};
}
Cost no_cost(Operands, Operands, const Attrs&) { return {}; }
void twice(const Call& call) {
  for (int64_t i = 0; i < call.in[0].numel(); ++i)
    call.out[0].data<float>()[i] = 2 * call.in[0].data<float>()[i];
}
const OpDef kTwice{.name = "twice", .infer = shape_of_operand, .cost = no_cost, .cpu = twice};
const OpDef kIsThere{
    .name = "is_there", .infer = flags_of_operand, .cost = no_cost, .cpu = [](const Call&) {}};
const OpDef kSelf{.name = "self",
    .infer = shape_of_operand,
    .cost = no_cost,
    .view = [](Operands in, const Attrs&) {
      return Tensor::view_of(
          in[0].storage(), in[0].dtype(), in[0].shape(), in[0].strides(), in[0].offset());
    }};

TEST(Cases, OwnOpWithoutBackward) {
  nn::Linear a(4, 8), b(8, 2);
  const auto train = [&](const auto& f) {
    const Tensor y = b(f(a(Tensor::ones({3, 4}))));
    backward(sum(y * y));
  };
  for (const OpDef* op : {&kTwice, &kSelf}) {
    test::expect_error(Error::Kind::usage,
        {op->text().data(), "without a backward", "f32[3, 8] cpu", "trained",
            "hint: ", "detach(..)", "NoGrad", ".backward"},
        [&] { train([&](const Tensor& h) { return apply1(*op, {h}); }); });
    clear_tape();
    train([&](const Tensor& h) { return apply1(*op, {detach(h)}); });
    EXPECT_TRUE(b.weight().grad().defined());
    const NoGrad no_grad;
    apply1(*op, {a.weight()});
  }
  EXPECT_FALSE(a.weight().grad().defined());
}

TEST(Tape, AnOpOfOursWithoutBackwardIsToldToo) {
  const Tensor w = leaf({1, 2});
  test::expect_error(Error::Kind::usage, {"squared_norm", "without a backward"},
      [&] { backward(sum(w * w) + squared_norm(w)); });
  squared_norm(detach(w));
  const NoGrad no_grad;
  squared_norm(w);
}

TEST(Tape, OpsWithoutAGradientByNatureAreSilent) {
  const Tensor x = leaf({1, 2, 3}), y = leaf({3, 2, 1});
  detach(x);
  argmax(reshape(x, {1, 3}), -1);
  x < y;
  cast(x, DType::i32);
  apply1(kIsThere, {x});
  apply1(kTwice, {detach(x)});
  clear_tape();
}

TEST(Hooks, AHookOfNoFunctionIsRefused) {
  const Tensor x = leaf({1});
  for (const Tensor& t : {x, x * x})
    test::expect_error(Error::Kind::usage, {"register_hook", "null", "hint: "},
        [&] { register_hook(t, nullptr); });
  test::expect_error(Error::Kind::usage, {"gradcheck", "null"}, [&] { gradcheck(nullptr, {x}); });
  clear_tape();
}

// Leaves get their gradients in the order in which backward() reaches them, whatever else is on the
// tape: a recorded step must not depend on what ran before it.
TEST(Backward, TheOrderOfLeavesIsThatOfTheOpsThatItGoesThrough) {
  const Tensor a = leaf({2}), b = leaf({3}), c = leaf({4});
  const auto order_of = [&](const std::function<void()>& before) {
    clear_tape();
    if (before) before();
    std::string order;
    Tape::current().on_gradient = [&](const Tensor& t) {
      order += t.is_same(a) ? 'a' : t.is_same(b) ? 'b' : 'c';
    };
    const Tensor first = c * a, second = a * b;
    backward(first * second);
    Tape::current().on_gradient = nullptr;
    return order;
  };
  EXPECT_EQ(order_of({}), "cab");
  EXPECT_EQ(order_of([&] { b* a; }), "cab");
  EXPECT_EQ(order_of([&] { exp(a * b * c); }), "cab");
}

TEST(Anomaly, NamesTheFirstNan) {
  Tensor x = Tensor::from({1.f, -1.f, 0.f}, {3}).set_requires_grad(true);
  const AnomalyMode anomaly;
  test::expect_error(
      Error::Kind::numeric, {"log: the result is nan: first at [1]"}, [&] { log(x); });
  clear_tape();
  const Tensor y =
      sum(mul(sqrt(abs(x)), Tensor::zeros({3})));  // 0 / 0 in the backward of sqrt at 0
  test::expect_error(Error::Kind::numeric, {"sqrt_backward: the result is nan: first at [2]"},
      [&] { backward(y); });
  clear_tape();
}

// y = 4 x, whose gradient at one element is changed on its way to x. The weights of gradcheck's sum
// are 0.5 to 1.5, so that every derivative is 2 to 6.
GradcheckResult check_with(const std::function<double(double)>& change, int64_t at) {
  const auto f = [&](const Tensors& in) {
    const Tensor hidden = scale(in[1], 4);
    if (hidden.requires_grad()) {
      register_hook(hidden, [&](const Tensor& g) {
        const Tensor changed = copy(g);
        changed.data<double>()[at] = change(g.data<double>()[at]);
        return changed;
      });
    }
    return Tensors{scale(in[0], 3), hidden};
  };
  return gradcheck(f, {sample_tensor({2}, 2).set_requires_grad(true),
                          sample_tensor({3, 2}, 1).set_requires_grad(true)});
}

TEST(Gradcheck, FindsAWrongDerivative) {
  Tensor x = sample_tensor({3, 2}, 1).set_requires_grad(true);
  EXPECT_TRUE(
      gradcheck([](const Tensors& in) { return Tensors{mul(in[0], tanh(in[0]))}; }, {x}).ok);
  const GradcheckResult wrong =
      gradcheck([](const Tensors& in) { return Tensors{mul(in[0], detach(in[0]))}; }, {x});
  EXPECT_FALSE(wrong.ok);
  test::expect_facts(wrong.message, {"input 0 element"});
}

// By 1e-6 of it, at any element of any input; what all tests of derivatives rest on.
TEST(Gradcheck, FindsASmallErrorOfOneElement) {
  for (int64_t at = 0; at < 6; ++at) {
    SCOPED_TRACE(at);
    for (const double error : {1e-5, -1e-5, 2e-6, -2e-6}) {
      const GradcheckResult wrong = check_with([&](double g) { return g * (1 + error); }, at);
      EXPECT_FALSE(wrong.ok) << error;
      EXPECT_NEAR(wrong.worst, std::abs(error), 1e-8);
      test::expect_facts(wrong.message, {str("input 1 element ", at, ": backward gives ")});
    }
    for (const double error : {5e-7, -5e-7, 0.0}) {
      const GradcheckResult right = check_with([&](double g) { return g * (1 + error); }, at);
      EXPECT_TRUE(right.ok) << right.message;
      EXPECT_EQ(right.message, "");
    }
    for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
      const GradcheckResult wrong = check_with([&](double) { return bad; }, at);
      EXPECT_FALSE(wrong.ok) << bad;
      test::expect_facts(wrong.message, {str("input 1 element ", at, ": backward gives ", bad)});
    }
  }
}

// A derivative below 1 may err by 1e-6 in all; one that is missing counts as 0.
TEST(Gradcheck, FindsASmallErrorOfASmallDerivative) {
  const auto check = [](double error) {
    const auto f = [=](const Tensors& in) {
      const Tensor small = scale(in[0], 1e-3);
      if (small.requires_grad()) register_hook(in[0], [=](const Tensor& g) { return g + error; });
      return Tensors{small};
    };
    return gradcheck(f, {sample_tensor({3}, 1).set_requires_grad(true)});
  };
  EXPECT_TRUE(check(5e-7).ok);
  EXPECT_FALSE(check(2e-6).ok);
  const auto lost =
      gradcheck([](const Tensors& in) { return Tensors{scale(detach(in[0]), 2) + in[1]}; },
          {sample_tensor({3}, 1).set_requires_grad(true),
              sample_tensor({3}, 2).set_requires_grad(true)});
  EXPECT_FALSE(lost.ok);
  test::expect_facts(lost.message, {"input 0 element ", "backward gives 0,"});
}

// Each output has weights of its own, and no two elements the same: the gradient of the plain sum
// of a softmax is 0, whatever the backward of what is before it.
TEST(Gradcheck, WeighsEveryElementOfEveryOutput) {
  for (const size_t wrong : {0, 1}) {
    const auto f = [=](const Tensors& in) {
      Tensors hidden{scale(in[0], 2), scale(in[0], 3)};
      if (in[0].requires_grad() && hidden[wrong].requires_grad())
        register_hook(hidden[wrong], [](const Tensor& g) { return scale(g, 1.01); });
      return Tensors{softmax(hidden[0]), softmax(hidden[1])};
    };
    EXPECT_FALSE(gradcheck(f, {sample_tensor({2, 3}, 1).set_requires_grad(true)}).ok) << wrong;
  }
}

}  // namespace
}  // namespace sinter
