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
  EXPECT_EQ(fused, "attention attention_backward");
}

TEST(AttentionRule, FindsItHoweverItIsWritten) {
  for (const Written& how : all_ways()) check(how);
}
TEST(AttentionRuleSimt, FindsItHoweverItIsWritten) {
  check({.turned = true, .device = kSimt});
  check({.factor = Written::Factor::before, .causal = false, .shared = true, .device = kSimt});
}

// The ops of a fused step of a layer of x[B, S, E], which makes q, k and v by `heads_of`.
template <class F> std::string ops_of_layer(const nn::NamedTensors& params, const F& heads_of) {
  nn::Adam adam{params};
  const Shape shape{kBatch, kRows, kHeads * kDepth};
  Step step([&](const Tensors& in) {
    adam.zero_grad();
    const Tensors qkv = heads_of(relu(in[0]) * params[0].tensor);  // so that x has a gradient
    const Tensor y =
        reshape(transpose(scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}), 1, 2), shape);
    backward(y, {.gradient = in[1]});
    adam.step();
    return Tensors{y};
  });
  const auto x = [&](uint64_t seed) { return cast(sample_tensor(shape, seed), DType::f64); };
  for (uint64_t call = 0; call < 3; ++call) step({x(call), x(call + 7)});
  return ops_of(step.captured()->fused.graph);
}

// No result is copied: it lies where it is read.
TEST(AttentionRule, QkvOfOneProductOrOfThreeNeighboursAreNotCopied) {
  constexpr int64_t kAll = kHeads * kDepth;
  const auto parameter = [](const Tensor& t) {
    t.autograd().requires_grad = true;
    return t;
  };
  const Tensor gain = parameter(cast(sample_tensor({kAll}, 1), DType::f64)),
               one = parameter(cast(sample_tensor({3 * kAll, kAll}, 2), DType::f64));
  const auto of_one = [&](const Tensor& x) {
    const Tensor all = reshape(linear(x, one), {kBatch, kRows, 3 * kHeads, kDepth});
    Tensors qkv;
    for (int64_t i = 0; i < 3; ++i)
      qkv.push_back(transpose(slice(all, 2, i * kHeads, (i + 1) * kHeads), 1, 2));
    return qkv;
  };
  EXPECT_EQ(ops_of_layer({{"gain", gain}, {"in_proj_weight", one}}, of_one),
      "pointwise_chain linear attention attention_backward product_chain sum adam_update "
      "weight_grad_update");
  Tensors parts;
  const Tensor storage = copy(detach(one));
  for (int64_t i = 0; i < 3; ++i)
    parts.push_back(parameter(slice(storage, 0, i * kAll, (i + 1) * kAll)));
  const auto of_three = [&](const Tensor& x) {
    Tensors qkv;
    for (const Tensor& weight : parts) qkv.push_back(Hand::heads(linear(x, weight), kHeads));
    return qkv;
  };
  EXPECT_EQ(
      ops_of_layer({{"gain", gain}, {"q", parts[0]}, {"k", parts[1]}, {"v", parts[2]}}, of_three),
      "pointwise_chain linear attention attention_backward matmul product_chain sum "
      "multi_tensor_update");
}

// A decoder's: q of one input; k and v of another, which comes of an encoder that learns, too. kv:
// one product gives both. neighbour: the weight of q lies before theirs. The ops of a step, and
// what three of them give and leave.
std::pair<std::string, std::vector<double>> train_decoder(bool kv, bool neighbour, bool captured) {
  constexpr int64_t kAll = kHeads * kDepth;
  const auto draw = [](const Shape& shape, uint64_t seed) {
    return cast(sample_tensor(shape, seed, -1, 1), DType::f64);
  };
  const Tensor all = draw({3 * kAll, kAll}, 1);
  const auto rows = [&](int64_t from, int64_t to) { return slice(all, 0, from * kAll, to * kAll); };
  nn::NamedTensors params{{"gain", draw({kAll}, 2)},
      {"q", neighbour ? rows(0, 1) : draw({kAll, kAll}, 3)}, {"k", kv ? rows(1, 3) : rows(1, 2)}};
  if (!kv) params.push_back({"v", rows(2, 3)});
  for (auto& [name, t] : params) t.autograd().requires_grad = true;
  nn::Adam adam{params};
  const Step::Function function = [&](const Tensors& in) {
    adam.zero_grad();
    const Tensor x = relu(in[0]) * params[0].tensor, memory = relu(in[1]) * params[0].tensor;
    const Tensor q = Hand::heads(linear(x, params[1].tensor), kHeads);
    Tensor k = linear(memory, params[2].tensor), v;
    if (kv) {
      const Tensor both = reshape(k, {kBatch, kKeys, 2 * kHeads, kDepth});
      k = transpose(slice(both, 2, 0, kHeads), 1, 2);
      v = transpose(slice(both, 2, kHeads, 2 * kHeads), 1, 2);
    } else {
      k = Hand::heads(k, kHeads);
      v = Hand::heads(linear(memory, params[3].tensor), kHeads);
    }
    const Tensor y =
        reshape(transpose(scaled_dot_product_attention(q, k, v, {}), 1, 2), {kBatch, kRows, kAll});
    backward(y, {.gradient = in[2]});
    adam.step();
    return Tensors{y};
  };
  Step step(function);
  std::vector<double> left;
  for (uint64_t call = 0; call < 3; ++call) {
    const Tensors in{draw({kBatch, kRows, kAll}, call), draw({kBatch, kKeys, kAll}, call + 3),
        draw({kBatch, kRows, kAll}, call + 7)};
    for (const double x : (captured ? step(in) : function(in))[0].to_vector<double>())
      left.push_back(x);
  }
  for (const auto& [name, t] : params) {
    for (const double x : t.to_vector<double>()) left.push_back(x);
  }
  return {captured ? ops_of(step.captured()->fused.graph) : "", left};
}

TEST(AttentionRule, KAndVOfAnotherInputAreNotCopied) {
  const std::string begin =
      "pointwise_chain pointwise_chain linear linear attention attention_backward ";
  for (const bool kv : {true, false}) {
    for (const bool neighbour : {false, true}) {
      SCOPED_TRACE(str(kv ? "one product" : "two", neighbour ? ", behind q" : ""));
      const auto [ops, found] = train_decoder(kv, neighbour, true);
      EXPECT_EQ(ops, begin + (kv ? "product_chain sum product_chain sum add adam_update "
                                   "weight_grad_update weight_grad_update"
                                 : "matmul product_chain sum product_chain sum add "
                                   "weight_grad_update multi_tensor_update"));
      // f64; Adam makes an error e of a gradient one of up to lr e / eps = 1e5 e.
      EXPECT_TRUE(test::close(
          found, train_decoder(kv, neighbour, false).second, {.of_each = 1e-9, .absolute = 1e-9}));
    }
  }
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
