// Attention captured: found in a step that is written by hand, both directions as one op each, with
// eager's numbers; and what is told where it cannot be one.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/capture/step_util.h"

namespace sinter {
namespace {

using capture::Step;

constexpr int64_t kBatch = 2, kHeads = 3, kRows = 7, kKeys = 9, kDepth = 4;

// How a program may write it.
struct Written {
  enum class Factor { none, before, behind } factor = Factor::behind;
  bool turned = false;  // k^T as a view, not by the product's flag
  bool causal = true;
  bool shared = false;  // one head of k and v for all of q
  Device device = kCpu;
  std::string str() const {
    constexpr const char* kFactors[] = {"no factor", "factor before", "factor behind"};
    return sinter::str(kFactors[int(factor)], turned ? ", k^T a view" : "",
        causal ? ", causal" : "", shared ? ", one head of k" : "", " on ", device.str());
  }
};

struct Hand {
  Written how;
  int64_t groups() const { return how.shared ? 1 : kHeads; }
  // As layers have them: q[B, S, H D], k and v[B, T, G D], and the gradient of what comes out.
  Tensors inputs(uint64_t seed) const {
    const Shape q{kBatch, kRows, kHeads * kDepth}, k{kBatch, kKeys, groups() * kDepth};
    Tensors in;
    for (const Shape& shape : {q, k, k, q})
      in.push_back(cast(sample_tensor(shape, seed++, -1, 1), DType::f64).to(how.device));
    for (int i = 0; i < 3; ++i) in[size_t(i)].autograd().requires_grad = true;
    return in;
  }
  static Tensor heads(const Tensor& x, int64_t n) {
    return transpose(reshape(x, {x.size(0), x.size(1), n, kDepth}), 1, 2);
  }
  Tensor forward(const Tensors& in) const {
    Tensor q = heads(in[0], kHeads);
    const Tensor k = heads(in[1], groups()), v = heads(in[2], groups());
    if (how.factor == Written::Factor::before) q = q * 0.5;
    Tensor scores = how.turned ? matmul(q, transpose(k, -2, -1)) : matmul(q, k, false, true);
    if (how.factor == Written::Factor::behind) scores = scores * 0.5;
    return matmul(softmax(scores, -1, how.causal), v);
  }
  Tensors operator()(const Tensors& in) const {
    for (const Tensor& t : in) t.autograd().grad = {};
    const Tensor o = forward(in);
    const Tensor y = reshape(transpose(o, 1, 2), {kBatch, kRows, kHeads * kDepth});
    backward(y, {.gradient = in[3]});
    return {y, in[0].grad(), in[1].grad(), in[2].grad()};
  }
};

std::vector<Written> all_ways() {
  std::vector<Written> ways;
  for (const auto factor :
      {Written::Factor::none, Written::Factor::before, Written::Factor::behind}) {
    for (const bool turned : {false, true}) {
      for (const bool causal : {false, true}) {
        for (const bool shared : {false, true}) ways.push_back({factor, turned, causal, shared});
      }
    }
  }
  return ways;
}

void check(const Written& how) {
  SCOPED_TRACE(how.str());
  const Hand hand{how};
  Step step([&](const Tensors& in) { return hand(in); }, {});
  for (uint64_t call = 0; call < 4; ++call) {
    const Tensors in = hand.inputs(10 * call);
    const Tensors found = step(in), wanted = hand(hand.inputs(10 * call));
    for (size_t i = 0; i < found.size(); ++i) {
      // f64: a sum of up to nine weights of numbers up to one.
      EXPECT_TRUE(test::close(found[i].to(kCpu).to_vector<double>(),
          wanted[i].to(kCpu).to_vector<double>(), {.absolute = 1e-13}))
          << "call " << call << ", result " << i;
    }
  }
  ASSERT_TRUE(step.captured());
  for (const capture::Miss& miss : step.captured()->fused.misses)
    EXPECT_STRNE(miss.rule, "attention") << miss.obstacle.why;
  const std::string fused = ops_of(step.captured()->fused.graph);
  EXPECT_NE(fused.find("attention "), std::string::npos) << fused;
  EXPECT_NE(fused.find("attention_backward"), std::string::npos) << fused;
  for (const char* gone : {"matmul", "softmax", "scale", "sum"})
    EXPECT_EQ(fused.find(gone), std::string::npos) << fused;
}

TEST(AttentionRule, FindsItHoweverItIsWritten) {
  for (const Written& how : all_ways()) check(how);
}
TEST(AttentionRuleSimt, FindsItHoweverItIsWritten) {
  check({.turned = true, .device = kSimt});
  check({.factor = Written::Factor::before, .causal = false, .shared = true, .device = kSimt});
}

TEST(AttentionRule, ForwardAloneIsOneLaunch) {
  const Hand hand;
  Step step([&](const Tensors& in) {
    const NoGrad no_grad;
    return Tensors{hand.forward(in)};
  });
  for (uint64_t call = 0; call < 3; ++call) step(hand.inputs(call));
  EXPECT_EQ(ops_of(step.captured()->recorded), "matmul scale softmax matmul");
  EXPECT_EQ(ops_of(step.captured()->fused.graph), "attention");
}

// What is in the way, in the words of --explain.
std::string told(const Step::Function& function, const Tensors& in) {
  Step step(function);
  for (int call = 0; call < 3; ++call) step(in);
  EXPECT_EQ(ops_of(step.captured()->fused.graph).find("attention"), std::string::npos);
  for (const capture::Miss& miss : step.captured()->fused.misses) {
    if (std::string(miss.rule) == "attention") return miss.obstacle.why;
  }
  return "";
}

TEST(AttentionRule, TellsWhatIsInTheWay) {
  const Hand hand;
  const auto scores = [](const Tensors& in) {
    return matmul(Hand::heads(in[0], kHeads), Hand::heads(in[1], kHeads), false, true);
  };
  const auto out = [](const Tensor& weights, const Tensors& in) {
    return matmul(weights, Hand::heads(in[2], kHeads));
  };
  const NoGrad no_grad;
  const Tensor mask = cast(sample_tensor({kRows, kKeys}, 9, -1, 1) > 0, DType::f64);
  EXPECT_EQ(told(
                [&](const Tensors& in) {
                  const Tensor s = scores(in);
                  return Tensors{out(softmax(where(mask, s, constant_like(s, -1e30))), in)};
                },
                hand.inputs(1)),
      "its scores go through where, by numbers that are data");
  EXPECT_EQ(
      told([&](const Tensors& in) { return Tensors{out(dropout(softmax(scores(in)), 0.5), in)}; },
          hand.inputs(1)),
      "dropout draws from its weights, which are in no memory");
  EXPECT_NE(told(
                [&](const Tensors& in) {
                  const Tensor w = softmax(scores(in));
                  return Tensors{out(w, in), w * 2.0};
                },
                hand.inputs(1))
                .find("what softmax gives is also read by"),
      std::string::npos);
  EXPECT_EQ(told(
                [&](const Tensors& in) {
                  const Tensor q = reshape(in[0], {kBatch, kRows, kHeads * kDepth});
                  return Tensors{matmul(softmax(matmul(q, in[1], false, true)), in[2])};
                },
                hand.inputs(1)),
      "its operands have 3, 3 and 3 dims; 4 each");
}

}  // namespace
}  // namespace sinter
