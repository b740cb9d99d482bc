// The matcher of fused ops: each op is found in its own reference, and not where it may not be.
#include "capture/pattern.h"

#include <gtest/gtest.h>

#include "capture/recording.h"
#include "capture/rules.h"
#include "core/json.h"
#include "ops/fused/fused.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"
#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

// The reference as a step on meta tensors; `more` may add to it and to its results.
template <class F> Graph step_of(const OpDef& op, const Form& form, F&& more) {
  Tensors in;
  for (const Tensor& t : form.in)
    in.push_back(t.defined() ? Tensor::meta(t.shape(), t.dtype(), kSimt) : Tensor());
  Tensors given;
  std::copy_if(
      in.begin(), in.end(), std::back_inserter(given), [](auto& t) { return t.defined(); });
  const NoGrad no_grad;
  Recording recording(given);
  Tensors out = op.reference(in, form.attrs);
  more(out);
  return recording.finish(out, {});
}

Rewriter fused(const Graph& graph, std::string_view rule) {
  return rewrite(graph, RuleSet(rule), Device::Type::simt);
}

TEST(Pattern, EveryFormOfEveryNameIsFoundInItsReference) {
  int forms = 0;
  for (const Rule& rule : rules()) {
    if (!rule.label.forms) continue;
    for (const Form& form : rule.label.forms()) {
      SCOPED_TRACE(str(rule.name(), " ", form.attrs.str()));
      const Rewriter r = fused(step_of(*rule.label.op, form, [](Tensors&) {}), rule.name());
      ASSERT_EQ(r.graph.nodes.size(), 1u) << dump(r.graph);
      EXPECT_EQ(r.graph.nodes[0].op, rule.label.op);
      EXPECT_EQ(r.graph.nodes[0].text(), rule.label.text());
      EXPECT_EQ(r.graph.nodes[0].attrs, form.attrs);
      EXPECT_TRUE(r.misses.empty());
      ++forms;
    }
  }
  EXPECT_GE(forms, 30);
}

// The view is another value of the same memory.
TEST(Pattern, AViewOfWhatLiesBetweenForbidsIt) {
  const Tensor dy = Tensor::meta({2, 4}, DType::f32, kSimt),
               w = Tensor::meta({4, 3}, DType::f32, kSimt),
               pre = Tensor::meta({2, 3}, DType::f32, kSimt);
  const NoGrad no_grad;
  Recording recording({dy, w, pre});
  const Tensor d = matmul(dy, w);
  const Tensor dx = apply1(*find_op("gelu_backward"), {d, pre}, pointwise::Gelu{});
  const Graph graph = recording.finish({dx, transpose(d)}, {});
  const Rewriter r = fused(graph, "input_grad_act");
  EXPECT_EQ(r.graph.nodes.size(), 2u);
  ASSERT_EQ(r.misses.size(), 1u);
  EXPECT_EQ(r.misses[0].obstacle.why, "what matmul gives is also read by a result of the step");
  EXPECT_EQ(r.misses[0].obstacle.remedy,
      str("let the step not return %", graph.nodes[0].out[0], " or a view of it"));
  EXPECT_EQ(r.misses[0].would_save, 1);
}

// dW and db of one dy are weight_bias_grad; dX and db are nothing, however square.
TEST(Pattern, AProductOfOtherOperandsIsAnotherOp) {
  const Tensor dy = Tensor::meta({4, 4}, DType::f32, kSimt),
               w = Tensor::meta({4, 4}, DType::f32, kSimt);
  const NoGrad no_grad;
  Recording recording({dy, w});
  const Tensors out{matmul(dy, w), sum_rows(dy, Role::bgrad)};
  const Rewriter r = fused(recording.finish(out, {}), "weight_bias_grad");
  EXPECT_EQ(r.graph.nodes.size(), 2u);
  EXPECT_TRUE(r.misses.empty());
}

// glu needs act(g) to itself; glu_backward computes it again.
TEST(Pattern, APointwiseOpStaysForItsOtherReaders) {
  const Form form = find_label("glu_backward")->forms()[0], plain = find_label("glu")->forms()[0];
  const Rewriter r =
      fused(step_of(kPointwiseChainOp, form,
                [&](Tensors& out) { out.push_back(apply1(*find_op("gelu"), {out[0]})); }),
          "glu_backward");
  EXPECT_EQ(r.graph.nodes.size(), 2u);
  const Rewriter alone = fused(
      step_of(kPointwiseChainOp, plain, [](Tensors& out) { out.push_back(neg(out[0])); }), "glu");
  EXPECT_EQ(alone.graph.nodes.size(), 2u);
}

TEST(Pattern, AnotherTypeIsANearMiss) {
  const Tensor x = Tensor::meta({2, 3}, DType::bf16, kSimt),
               w = Tensor::meta({4, 3}, DType::bf16, kSimt),
               labels = Tensor::meta({2}, DType::i32, kSimt),
               seed = Tensor::meta({2}, DType::f32, kSimt);
  const NoGrad no_grad;
  Recording recording({x, w, labels, seed});
  const Tensor z = linear_to(x, w, {}, DType::bf16);
  const Tensors loss = apply(kSoftmaxXentOp, {z, labels, seed}, SoftmaxXentAttrs{.low = true});
  const Tensor dx = matmul(loss[1], w);
  const Rewriter r = fused(recording.finish({loss[0], loss[1], dx}, {}), "row_chain");
  EXPECT_EQ(r.graph.nodes.size(), 3u);
  ASSERT_EQ(r.misses.size(), 1u);
  EXPECT_EQ(
      r.misses[0].obstacle.why, "linear gives bf16[2, 4] simt, row_chain makes f32[2, 4] simt");
  EXPECT_EQ(r.misses[0].obstacle.remedy, "make %4 f32[2, 4]");
}

TEST(Pattern, TheGraphReaderRefusesWhatTheKernelCannotTake) {
  const Form form = kConvActBackwardOp.forms()[0];
  const Rewriter r = fused(step_of(kConvActBackwardOp, form, [](Tensors&) {}), "conv_act_backward");
  Json file = Json::parse(to_json(r.graph));
  EXPECT_EQ(read_graph(json_text(file), "F").nodes.size(), 1u);
  const size_t y = file["nodes"][0]["in"][2];
  file["values"][y]["shape"] = {4, 5, 4};
  file["values"][y]["strides"] = {20, 4, 1};
  test::expect_error(
      Error::Kind::data, {"it must be of dy's shape"}, [&] { read_graph(json_text(file), "F"); });
}

}  // namespace
}  // namespace sinter::capture
