// From a product to its end: which steps behind a product join it, under which name, and that the
// fused op gives what they give. Note [From a product to its end] in capture/rules_pointwise.cpp.
#include <gtest/gtest.h>

#include "capture/executor.h"
#include "capture/recording.h"
#include "capture/rules.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "ops/fused/product_chain.h"
#include "ops/ops.h"
#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

using Function = std::function<Tensors(const Tensors&)>;

struct Fused {
  Rewriter r;
  Tensors eager, found;
};
Fused fuse(const Function& f, const Tensors& in, const char* rules = "all") {
  const NoGrad no_grad;
  const Tensors eager = f(in);
  Recording recording(in);
  const Graph graph = recording.finish(f(in), {});
  Rewriter r = rewrite(graph, RuleSet(rules), in[0].device().type);
  Executor executor(r.graph);
  executor.run(in);
  return {std::move(r), eager, executor.outputs()};
}
// Sums of at most 72 terms below 1 in another order, then at most four steps, each of which makes
// an error at most four times as large.
void expect_equal(const Fused& fused) {
  ASSERT_EQ(fused.found.size(), fused.eager.size());
  const bool bf16 = fused.eager[0].dtype() == DType::bf16;
  const double bound = bf16 ? 4 * 0x1p-8 : 4 * 72 * 0x1p-23;
  for (size_t i = 0; i < fused.eager.size(); ++i)
    EXPECT_TRUE(
        test::close(fused.found[i], fused.eager[i], {.of_largest = bound, .absolute = bound}))
        << "result " << i;
}
Tensor sample(const Shape& shape, uint64_t seed, Device device, DType dtype = DType::f32) {
  return cast(sample_tensor(shape, seed, -1, 1), dtype).to(device);
}

void check_ends(Device device, DType dtype) {
  const auto of = [&](const Shape& shape, uint64_t seed) {
    return sample(shape, seed, device, dtype);
  };
  const Tensor x = of({7, 9}, 1), w = of({11, 9}, 2), b = of({11}, 3), r = of({7, 11}, 4),
               a = of({7, 9}, 5), m = of({9, 11}, 6);
  struct Case {
    const char *what, *ops;
    Tensors in;
    Function f;
  };
  const Case cases[] = {
      {"a residual", "product_chain", {x, w, b, r},
          [](const Tensors& t) { return Tensors{gelu(add(linear(t[0], t[1], t[2]), t[3]))}; }},
      {"a residual in front", "product_chain", {x, w, r},
          [](const Tensors& t) { return Tensors{relu(add(t[2], linear(t[0], t[1])))}; }},
      {"a number", "product_chain", {a, m},
          [](const Tensors& t) { return Tensors{leaky_relu(matmul(t[0], t[1]), 0.1)}; }},
      {"a name", "linear_act", {x, w, b},
          [](const Tensors& t) { return Tensors{silu(linear(t[0], t[1], t[2]))}; }},
      {"sums that are kept", "linear_act", {x, w, b},
          [](const Tensors& t) {
            const Tensor z = linear(t[0], t[1], t[2]);
            return Tensors{tanh(z), z};
          }},
      {"three results", "product_chain", {x, w, b, r},
          [](const Tensors& t) {
            const Tensor z = linear(t[0], t[1], t[2]), y = mul(z, t[3]);
            return Tensors{z, y, sigmoid(y)};
          }},
      {"one operand twice", "product_chain", {x, w, r},
          [](const Tensors& t) {
            const Tensor z = linear(t[0], t[1]);
            return Tensors{sub(mul(z, t[2]), mul(z, z))};
          }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(str(c.what, " on ", device.str(), " in ", name_of(dtype)));
    const Fused fused = fuse(c.f, c.in);
    EXPECT_EQ(ops_of(fused.r.graph), c.ops) << dump(fused.r.graph);
    expect_equal(fused);
  }
}
TEST(ProductEnd, StepsBehindAProductAreOneLaunch) {
  check_ends(kCpu, DType::f32);
  check_ends(kCpu, DType::bf16);
}
TEST(ProductEndSimt, StepsBehindAProductAreOneLaunch) {
  check_ends(kSimt, DType::f32);
  check_ends(kSimt, DType::bf16);
}

void check_convolution(Device device) {
  const Tensor x = sample({3, 2, 6, 5}, 1, device), w = sample({4, 2, 3, 3}, 2, device),
               b = sample({4}, 3, device), r = sample({3, 4, 6, 5}, 4, device);
  const Fused fused = fuse(
      [](const Tensors& t) {
        return Tensors{relu(add(conv2d(t[0], t[1], t[2], {.pad_h = 1, .pad_w = 1}), t[3]))};
      },
      {x, w, b, r});
  EXPECT_EQ(ops_of(fused.r.graph), "product_chain") << dump(fused.r.graph);
  expect_equal(fused);
}
TEST(ProductEnd, AResidualBlocksConvolution) { check_convolution(kCpu); }
TEST(ProductEndSimt, AResidualBlocksConvolution) { check_convolution(kSimt); }

// What is learnt beside a product: scale, offset and temperature of every shape that broadcasts to
// the product, and a product that is broadcast itself. Forward, backward and update, as eager.
void check_learnable(Device device) {
  constexpr int64_t kRows = 5, kOuts = 8;
  const Shape shapes[] = {{}, {1}, {1, 1}, {kOuts}, {1, kOuts}, {kRows, 1}, {kRows, kOuts}};
  for (const int64_t outs : {kOuts, int64_t{1}}) {
    for (Shape shape : shapes) {
      for (int d = 0; d < shape.rank(); ++d) shape[d] = shape[d] == kOuts ? outs : shape[d];
      for (const char* what : {"linear", "matmul", "one row"}) {
        SCOPED_TRACE(str(shape.str(), " beside ", what, " of ", outs, " columns"));
        const bool one_row = std::string_view(what) == "one row";
        Tensors results[2];
        for (const bool captured : {false, true}) {
          Tensors p{sample(shape, 1, device), sample(shape, 2, device), sample(shape, 3, device),
              sample({outs, 6}, 4, device), sample({6, outs}, 5, device)};
          nn::NamedTensors named;
          for (Tensor& t : p) named.push_back({str("p", named.size()), t.set_requires_grad(true)});
          nn::Sgd optimizer(named, {.lr = 0.1});
          const auto f = [&](const Tensors& in) {
            optimizer.zero_grad();
            const Tensor product = std::string_view(what) == "matmul"
                                       ? matmul(in[0], p[4])
                                       : linear(one_row ? slice(in[0], 0, 0, 1) : in[0], p[3]);
            const Tensor y = tanh((product + 1.0) * p[0] + p[1]) / exp(p[2]);
            backward(mean(y));
            optimizer.step();
            return Tensors{detach(y)};
          };
          Step step(f, {.parameters = [&](const auto& visit) {
            for (const Tensor& t : p) visit(t);
          }});
          const Tensors in{sample({kRows, 6}, 6, device)};
          for (int i = 0; i < 4; ++i) results[captured] = captured ? step(in) : f(in);
          results[captured].insert(results[captured].end(), p.begin(), p.end());
        }
        for (size_t i = 0; i < results[0].size(); ++i) {
          EXPECT_TRUE(test::close(results[1][i], results[0][i], {.of_largest = 1e-5}))
              << "value " << i;
        }
      }
    }
  }
}
TEST(ProductEnd, LearnsNumbersRowsAndColumns) { check_learnable(kCpu); }
TEST(ProductEndSimt, LearnsNumbersRowsAndColumns) { check_learnable(kSimt); }

TEST(CasesSimt, NumberAfterProduct) {
  const Tensor w = Tensor::ones({3, 4}, DType::f32, kSimt);
  Step step([&](const Tensors& in) { return Tensors{linear(in[0], w) + 1.0}; });
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(sum(step({Tensor::ones({2, 4}, DType::f32, kSimt)})[0]).item(), 30);
}

// The module of docs/GUIDE.md ("Your own module"), as it stands there.
struct Residual : nn::Module {
  explicit Residual(int64_t width) {
    fc = add("fc", nn::Linear(width, width));
    add_parameter("scale", Tensor::full({}, 0.5));
  }
  Tensor forward(const Tensor& x) override { return x + relu((*fc)(x)) * tensor(0); }
  std::string describe() const override { return "Residual"; }
  std::shared_ptr<nn::Linear> fc;
};
TEST(CasesSimt, GuideModuleOnADevice) {
  nn::Sequential model{nn::Linear(16, 8), Residual(8), nn::Linear(8, 10)};
  model.to(kSimt);
  nn::Adam optimizer(model.named_parameters(), {.lr = 0.001});
  Trainer trainer(model, optimizer);
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_NO_THROW(trainer.step(
        {Tensor::ones({4, 16}, DType::f32, kSimt), sample_labels(4, 10, i).to(kSimt)}));
  }
}

// A rule that is off is not another one's.
TEST(ProductEnd, ANamedEndIsItsRulesAlone) {
  const Tensors in{sample({4, 5}, 1, kCpu), sample({6, 5}, 2, kCpu)};
  const auto f = [](const Tensors& t) { return Tensors{relu(linear(t[0], t[1]))}; };
  EXPECT_EQ(ops_of(fuse(f, in, "all,-linear_act").r.graph), "linear relu");
  EXPECT_EQ(ops_of(fuse(f, in, "product_chain").r.graph), "linear relu");
  EXPECT_EQ(ops_of(fuse(f, in, "linear_act").r.graph), "linear_act");
}

// What broadcasts the product itself, or is made later from the end itself, stays apart.
TEST(ProductEnd, WhatDoesNotFitStaysApart) {
  const Tensor x = sample({4, 5}, 1, kCpu), w = sample({6, 5}, 2, kCpu), row = sample({6}, 3, kCpu);
  const Fused broadcast =
      fuse([](const Tensors& t) { return Tensors{mul(linear(t[0], t[1]), t[2])}; }, {x, w, row});
  EXPECT_EQ(ops_of(broadcast.r.graph), "product_chain");
  expect_equal(broadcast);
  const Fused wider = fuse([](const Tensors& t) { return Tensors{mul(linear(t[0], t[1]), t[2])}; },
      {x, w, sample({2, 4, 6}, 3, kCpu)});
  EXPECT_EQ(ops_of(wider.r.graph), "linear mul");
  // The second product reads the first one's end; the sum cannot be where the first end is.
  const Tensor v = sample({6, 6}, 4, kCpu);
  const Fused later = fuse(
      [](const Tensors& t) {
        const Tensor z = linear(t[0], t[1]), h = relu(z);
        return Tensors{add(z, linear(h, t[2]))};
      },
      {x, w, v});
  EXPECT_EQ(ops_of(later.r.graph), "linear_act product_chain") << dump(later.r.graph);
  expect_equal(later);
}

// The kernels with an end make one product.
TEST(ProductEnd, SeveralProductsHaveNoEnd) {
  const Tensor a = sample({2, 3, 4, 5}, 1, kCpu), b = sample({2, 3, 5, 6}, 2, kCpu);
  const Fused end =
      fuse([](const Tensors& t) { return Tensors{relu(matmul(t[0], t[1]))}; }, {a, b});
  EXPECT_EQ(ops_of(end.r.graph), "matmul relu");
  expect_equal(end);
  const Fused sums = fuse(
      [](const Tensors& t) {
        return Tensors{matmul(t[0], t[1], true), sum_rows(t[0])};
      },
      {a, sample({2, 3, 4, 6}, 3, kCpu)});
  EXPECT_EQ(ops_of(sums.r.graph), "matmul sum_rows");
  expect_equal(sums);
  for (const auto& [fused, rule] :
      {std::pair(&end, "product_chain"), {&sums, "weight_bias_grad"}}) {
    const auto miss = std::ranges::find_if(
        fused->r.misses, [&](const Miss& m) { return std::string_view(m.rule) == rule; });
    ASSERT_NE(miss, fused->r.misses.end()) << rule;
    test::expect_facts(miss->obstacle.why, {"f32[2, 3, 4, 5] cpu", "must have 2 dims"});
  }
}

TEST(ProductEnd, SixValuesAtOnceAndNoMore) {
  const Tensor x = sample({4, 5}, 1, kCpu), w = sample({6, 5}, 2, kCpu);
  // Value i + 1 is made of value i; all are read again in the end, the last first.
  const auto deep = [](int values) {
    return [values](const Tensors& t) {
      Tensors v{linear(t[0], t[1])};
      for (int i = 1; i < values; ++i) v.push_back(tanh(v.back()));
      Tensor sum = v.back();
      for (int i = values - 1; i-- > 0;) sum = add(sum, v[size_t(i)]);
      return Tensors{sum};
    };
  };
  const Fused five = fuse(deep(5), {x, w});
  EXPECT_EQ(ops_of(five.r.graph), "product_chain") << dump(five.r.graph);
  expect_equal(five);
  ChainProgram p;
  ASSERT_TRUE(parse_value("6;add(0,5);add(6,4);add(7,3);add(8,2);add(9,1);10", p));
  EXPECT_EQ(code_of(p).registers, 2) << "operands are loaded as they are read";
  ASSERT_TRUE(parse_value("1;exp(0);exp(1);exp(2);add(3,2);add(4,1);add(5,0);6", p));
  EXPECT_EQ(code_of(p).registers, 4);
}

}  // namespace
}  // namespace sinter::capture
