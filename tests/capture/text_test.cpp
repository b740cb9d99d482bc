#include "capture/text.h"

#include <gtest/gtest.h>

#include "capture/rules.h"
#include "core/context.h"
#include "core/rng.h"
#include "ops/ops.h"
#include "tests/capture/recorded.h"
#include "tests/ops/samples/samples.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

constexpr char kEager[] = R"(sinter-graph 1
%0 = input "x0" f32[4, 6]
%1 = input "x1" i32[4]
%2 = param "0.weight" f32[5, 6]
%3 = param "0.bias" f32[5]
%4 = param "2.weight" f32[3, 5]
%5 = param "2.bias" f32[3]
%6 = param "exp_avg/0.weight" f32[5, 6]
%7 = param "exp_avg_sq/0.weight" f32[5, 6]
%8 = param "step_state" u8[112]
%9 = param "exp_avg/0.bias" f32[5]
%10 = param "exp_avg_sq/0.bias" f32[5]
%11 = param "exp_avg/2.weight" f32[3, 5]
%12 = param "exp_avg_sq/2.weight" f32[3, 5]
%13 = param "exp_avg/2.bias" f32[3]
%14 = param "exp_avg_sq/2.bias" f32[3]
%15 = const 0.25 f32[4]
%16 = linear(%0, %2, %3) f32[4, 5]
%17 = relu(%16) f32[4, 5]
%18 = linear(%17, %4, %5) f32[4, 3]
%19 = log_softmax(%18) f32[4, 3]
%20 = nll(%19, %1) f32[4]
%21 = nll_backward(%15, %1) f32[4, 3] classes=3
%22 = log_softmax_backward(%21, %19) f32[4, 3]
%23 = matmul(%22, %17) f32[3, 5] trans_a=1 role=wgrad
%24 = sum_rows(%22) f32[3] role=bgrad
%25 = matmul(%22, %4) f32[4, 5] role=dgrad
%26 = relu_backward(%25, %17) f32[4, 5]
%27 = matmul(%26, %0) f32[5, 6] trans_a=1 role=wgrad
%28 = sum_rows(%26) f32[5] role=bgrad
adam_update(%2, %27, %6, %7, -, -, %8, -, -)
adam_update(%3, %28, %9, %10, -, -, %8, -, -)
adam_update(%4, %23, %11, %12, -, -, %8, -, -)
adam_update(%5, %24, %13, %14, -, -, %8, %20, -) tail=1
gradient %2 %27
gradient %3 %28
gradient %4 %23
gradient %5 %24
output "y0" %20
)";

// What the rules make of it, from %16 on.
constexpr char kFused[] =
    "%16 = linear_act(%0, %2, %3) f32[4, 5] program=1;relu(0);1  # rule linear_act\n"
    R"(%17 = linear(%16, %4, %5) f32[4, 3]
%18, %19 = softmax_xent(%17, %1, %15) f32[4], f32[4, 3]  # rule softmax_xent
)"
    "%20 = input_grad_act(%19, %4, -, %16) f32[4, 5] product=matmul "
    "program=2;relu_backward(0,1);2 role=dgrad  # rule input_grad_act\n"
    R"(weight_grad_update(%20, %0, %2, %6, %7, -, -, %3, %9, %10, -, -, %8, -, -) role=update  # rule weight_grad_update
weight_grad_update(%19, %16, %4, %11, %12, -, -, %5, %13, %14, -, -, %8, %18, -) tail=1 role=update  # rule weight_grad_update
output "y0" %18
)";

// All forms of memory: a view of a parameter, a strided input, views of a result, an odd name.
constexpr char kLayouts[] = R"(sinter-graph 1
%0 = input "x \x22\x0a\x5c" f32[6, 4] strides=[1,6]
%1 = param "both" f32[6, 4]
%2 = param "up" f32[3, 4]
%3 = const 0.5 f32[6, 3]
%4 = linear(%0, %2, -) f32[6, 3]
%5 = view(%1) f32[3, 4] offset=12
%6 = linear(%0, %5, -) f32[6, 3]
%7 = linear(%0, %1) f32[6, 6]
%8 = view(%7) f32[6, 3] strides=[6,1] offset=3
%9 = mul(%8, %3) f32[6, 3]
%10 = maximum(%9, %4) f32[6, 3]
output "a" %10, "b" %8, "y2" %5, "up" %2
)";

std::string without_comments(std::string text) {
  for (size_t at; (at = text.find('#')) != std::string::npos;) {
    const size_t end = text.find('\n', at), begin = text.find_last_not_of(' ', at - 1) + 1;
    text.erase(begin, end - begin);
  }
  return text;
}
// Begin and length of every token: a name in quotes, a word or number, or one other character.
std::vector<std::pair<size_t, size_t>> tokens(std::string_view text) {
  const auto word = [&](size_t i) {
    return std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_' || text[i] == '.';
  };
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t i = 0; i < text.size(); i += out.empty() ? 0 : out.back().second) {
    while (i < text.size() && std::isspace(static_cast<unsigned char>(text[i]))) ++i;
    if (i == text.size()) break;
    size_t n = 1;
    if (text[i] == '"') n = text.find('"', i + 1) + 1 - i;
    while (word(i) && i + n < text.size() && word(i + n)) ++n;
    out.emplace_back(i, n);
  }
  return out;
}

// "" if the text parses, else the message; fails on any error that is not of kind data.
std::string fault_of(std::string_view text) {
  try {
    parse(text, "F").verify("test");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::data) << error.what() << "\nin:\n" << text;
    EXPECT_TRUE(error.message().starts_with("graph: ") &&
                error.message().find(": F line ") != std::string::npos)
        << error.what();
    return error.what();
  }
}

TEST(GraphText, ForwardPassIsTheGoldenText) {
  const SmallMlp mlp;
  Context::current().module = "MLP / 0";
  Graph graph = mlp.forward_graph();
  Context::current().module = "";
  graph.nodes[1].module.clear();
  EXPECT_EQ(dump(graph), R"(sinter-graph 1
%0 = input "x" f32[4, 6]
%1 = param "0.weight" f32[5, 6]
%2 = param "0.bias" f32[5]
%3 = param "2.weight" f32[3, 5]
%4 = param "2.bias" f32[3]
%5 = linear(%0, %1, %2) f32[4, 5]  # module MLP / 0
%6 = relu(%5) f32[4, 5]
%7 = linear(%6, %3, %4) f32[4, 3]  # module MLP / 0
output "logits" %7
)");
}

TEST(GraphText, TrainingStepIsTheGoldenTextEagerAndFused) {
  const Graph recorded = SmallMlp().training_graph();
  EXPECT_EQ(dump(recorded), kEager);
  const std::string eager = kEager;
  EXPECT_EQ(dump(rewrite(recorded, RuleSet("all"), Device::Type::cpu).graph),
      eager.substr(0, eager.find("%16 =")) + kFused);
}

TEST(GraphText, OfSeveralRanksParsesBack) {
  const Tensor x = Tensor::ones({4, 6});
  Recording recording({x});
  all_reduce({x}, 3);
  all_reduce_wait({x}, 3);
  const std::string text = dump(recording.finish({}, {}));
  test::expect_facts(text, {"role=comm"});
  EXPECT_EQ(dump(parse(text, "F")), without_comments(text));
}

TEST(GraphText, ParsesBackToTheSameText) {
  const Graph forward = SmallMlp().forward_graph(), training = SmallMlp().training_graph();
  const Graph fused =
      rewrite(training, RuleSet("all,-weight_grad_update"), Device::Type::cpu).graph;
  for (const std::string& text :
      {dump(forward), dump(training), dump(fused), std::string(kLayouts)}) {
    const Graph again = parse(text, "F");
    EXPECT_NO_THROW(again.verify("parsing"));
    EXPECT_EQ(dump(again), without_comments(text));
  }
  const Graph again = parse(dump(training), "F");
  EXPECT_EQ(again.gradients.size(), 4u);
  EXPECT_EQ(again.nodes.size(), training.nodes.size());
  for (size_t n = 0; n < again.nodes.size(); ++n)
    EXPECT_EQ(again.nodes[n].attrs, training.nodes[n].attrs);
}

TEST(GraphText, MemoryIsRestored) {
  const Graph g = parse(kLayouts, "F");
  EXPECT_EQ(g.values[0].name, "x \"\n\\");
  EXPECT_NE(g.values[1].buffer, g.values[2].buffer);
  EXPECT_EQ(g.values[1].buffer, g.values[5].buffer);
  EXPECT_EQ(g.buffers[g.values[1].buffer].bytes, 24u * 4);
  EXPECT_EQ(g.values[8].buffer, g.values[7].buffer);
  EXPECT_TRUE(g.overlap(7, 8));
  EXPECT_EQ(g.buffers[g.values[3].buffer].value, 0.5);
}

// Two parameters in one storage, which a rule may read as one value.
TEST(GraphText, ViewsCountFromTheRootThatHoldsThem) {
  const Tensor whole = cast(sample_tensor({3, 4, 6}, 1), DType::f32),
               x = cast(sample_tensor({1, 4, 6}, 2), DType::f32);
  Tensor middle = slice(whole, 0, 1, 2), last = slice(whole, 0, 2, 3);
  middle.autograd().name = "middle";
  last.autograd().name = "last";
  Recording recording({x});
  const Graph g =
      recording.finish({add(add(x, last), middle), neg(slice(last, 1, 1, 3)), neg(whole)}, {});
  const std::string text = dump(g);
  EXPECT_EQ(text, R"(sinter-graph 1
%0 = input "x" f32[1, 4, 6]
%1 = param "last" f32[1, 4, 6]
%2 = param "middle" f32[1, 4, 6]
%3 = add(%0, %1) f32[1, 4, 6]
%4 = add(%3, %2) f32[1, 4, 6]
%5 = view(%1) f32[1, 2, 6] strides=[24,6,1] offset=6
%6 = neg(%5) f32[1, 2, 6]
%7 = view(%1) f32[3, 4, 6] offset=-48
%8 = neg(%7) f32[3, 4, 6]
output "y0" %4, "y1" %6, "y2" %8
)");
  EXPECT_NE(fault_of(text).find("layout too large: F line 9"), std::string::npos) << "for people";
}

TEST(GraphText, EveryOpAndAttributeComesBack) {
  int seen = 0;
  for (const OpDef* op : all_ops()) {
    if (op->view) continue;
    const std::string no_such =
        cat("sinter-graph 1\n%0 = input \"x\" f32[4]\n", op->text(), "(%0) no_such=1\noutput\n");
    test::expect_facts(fault_of(no_such), {"unknown attribute"});
    for (const Sample& sample : samples_of(*op)) {
      if (sample.bad) continue;
      Graph g;
      Node node;
      node.op = op;
      node.attrs = sample.attrs;
      for (size_t i = 0; i < sample.in.size(); ++i) {
        Tensor t = sample.in[i];
        node.in.push_back(t.defined() ? int(g.values.size()) : -1);
        if (!t.defined()) continue;
        if (!op->cpu && t.dtype() == DType::f64) t = cast(t, DType::f32);  // f64 is for the CPU
        if (!op->takes_strides(i, sample.in.size(), sample.attrs)) t = contiguous(t);
        Buffer buffer;
        buffer.kind = Buffer::Kind::external;
        buffer.bytes = t.storage()->bytes();
        g.add_value({.buffer = g.add_buffer(buffer),
            .dtype = t.dtype(),
            .shape = t.shape(),
            .strides = t.strides(),
            .offset = t.offset(),
            .name = ""});
      }
      for (const Tensor& t : op->results(g.metas(node.in), node.attrs))
        node.out.push_back(g.add_local(t.shape(), t.dtype(), kCpu));
      g.outputs = node.out;
      g.nodes.push_back(node);
      const std::string text = dump(g);
      ASSERT_EQ(fault_of(text), "") << op->text() << ", " << sample.what;
      const Graph again = parse(text, "F");
      EXPECT_EQ(dump(again), text);
      EXPECT_EQ(again.nodes[0].attrs, node.attrs) << text;
      // An operand that is not there is refused or allowed, but never followed.
      for (size_t from = text.find(cat(" = ", node.text(), "("));
           (from = text.find('%', from + 1)) < text.find(')', text.find(cat(node.text(), "(")));) {
        std::string absent = text;
        absent.replace(from, absent.find_first_of(",)", from) - from, "-");
        fault_of(absent);
      }
      ++seen;
    }
  }
  EXPECT_GT(seen, 100);
}

TEST(GraphText, CutAnywhereIsRefused) {
  for (const std::string text : {kEager, kLayouts}) {
    ASSERT_EQ(fault_of(text), "");
    for (size_t n = 0; n < text.size(); ++n) EXPECT_NE(fault_of(text.substr(0, n)), "") << n;
  }
}

TEST(GraphText, JunkInPlaceOfAnyTokenIsRefused) {
  for (const std::string text : {kEager, kLayouts}) {
    ASSERT_EQ(fault_of(text), "");
    for (const auto& [begin, length] : tokens(text)) {
      for (const char* junk : {"@@", "99x", "\xff", "%"}) {
        if (text.substr(begin, length) == junk) continue;
        std::string edited = text;
        EXPECT_NE(fault_of(edited.replace(begin, length, junk)), "") << edited;
      }
    }
  }
}

TEST(GraphText, RandomEditsGiveAGraphOrAnErrorOfKindData) {
  const std::string seeds[] = {
      kEager, kLayouts, std::string(kEager).substr(0, std::string(kEager).find("%16 =")) + kFused};
  constexpr char kBytes[] = "0123456789%,()[]=-_\". #\nabefilmnrstux\xff\\";
  int accepted = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    std::string text = seeds[round % 3];
    uint64_t draws = 0;
    const auto draw = [&](size_t n) { return philox_word(round, 5, draws++) % n; };
    for (size_t edits = 1 + draw(3); edits > 0; --edits) {
      const size_t at = draw(text.size());
      const char byte = kBytes[draw(sizeof kBytes - 1)];
      switch (draw(4)) {
        case 0: text[at] = byte; break;
        case 1: text.insert(at, 1, byte); break;
        case 2: text.erase(at, 1 + draw(4)); break;
        default: text.insert(at, text.substr(draw(text.size()), draw(30)));
      }
    }
    if (!fault_of(text).empty()) continue;
    ++accepted;
    const std::string first = dump(parse(text, "F"));
    EXPECT_EQ(dump(parse(first, "F")), first) << text;
  }
  EXPECT_GT(accepted, 20);  // else it tests the first check only
}

TEST(GraphText, MessagesNameLineTokenAndCure) {
  const std::string head =
      "sinter-graph 1\n%0 = input \"x\" f32[4, 6]\n%1 = param \"w\" f32[5, 6]\n";
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"", {"not a graph file", "it is empty"}},
      {"<!DOCTYPE html>\n", {"not a graph file", "line 1", "sinter-graph 1"}},
      {"sinter-graph 2\noutput\n", {"another version", "line 1", "sinter-graph 2", "reads 1"}},
      {head + "%2 = linear_atc(%0, %1, -) f32[4, 5]\n",
          {"unknown op", "line 4", "linear_atc, nearest is linear_act"}},
      {head + "%2, %3 = linear_act(%0, %1, -) f32[4, 5], f32[4, 5] programme=1\n",
          {"unknown attribute", "line 4", "programme of linear_act", "it has product, stride_h"}},
      {head + "%2 = linear_act(%0, %1, -) f32[4, 5] merged=2\n",
          {"not a value of merged", "line 4", "2"}},
      {head + "%2 = linear_act(%0, %1, -) f32[4, 5] program=1;exp(0);1\n",
          {"another op", "line 4", "with these attributes linear_act is product_chain"}},
      {head + "%2 = relu(%0) f32[4, 6] role=wgard\n", {"not a value of role", "wgard"}},
      {head + "%2 = nll_backward(%0, %1) f32[4] classes=281474976710657\n",
          {"classes out of range"}},
      {head + "%2 = relu(%7) f32[4, 6]\n", {"undefined value", "line 4", "%7"}},
      {head + "%1 = relu(%0) f32[4, 6]\n", {"defined twice", "line 4", "%1"}},
      {head + "%2 = param \"w\" f32[5, 6]\n", {"given twice", "w"}},
      {head + "%2 = linear(%0, %1, -) f32[4, 6]\n",
          {"results do not fit", "linear gives f32[4, 5], found f32[4, 6]"}},
      {head + "%2 = linear(%1, %0) f64[5, 4]\n", {"results do not fit", "found f64[5, 4]"}},
      {head + "%2, %3 = relu(%0) f32[4, 6], f32[4, 6]\n",
          {"results do not fit", "relu gives 1, found 2"}},
      {head + "%2 = matmul(%0, %1) f32[4, 5]\n", {"operands do not fit", "inner sizes differ"}},
      {head + "%2 = relu() f32[4, 6]\n", {"operands do not fit", "relu takes 1..1, found 0"}},
      {head + "%2 = relu(-) f32[4, 6]\n", {"operands do not fit", "must not be absent"}},
      {head + "%2 = reshape(%0) f32[24]\n", {"a view op", "reshape", "view(%n)"}},
      {head + "%2 = view(%0) f32[5, 6]\n", {"view out of range", "120 of 96"}},
      {head + "%2 = view(%0) f32[6, 4] strides=[1,6]\n%3 = log_softmax(%2) f32[6, 4]\n",
          {"line 5", "must be dense"}},
      {head + "%2 = const 1 f32[4, 6]\naccumulate(%2, %0)\n",
          {"line 5", "changes operand 0, which is a constant"}},
      {head + "%2 = const 1 i32[4]\n", {"unknown element type", "i32"}},
      {head + "%2 = input \"y\" f16[4]\n", {"unknown element type", "f16", "bf16"}},
      {head + "%2 = input \"y\" f32[1,1,1,1,1,1,1,1,1]\n", {"too many dims", "8"}},
      {head + "%2 = input \"y\" f32[281474976710656, 2]\n", {"shape too large", "2^48"}},
      {head + "%2 = input \"y\" f32[2, 2] strides=[281474976710656,281474976710656] "
              "offset=281474976710656\n",
          {"layout too large"}},
      {head + "%2 = param \"y\" f32[2] offset=3\n", {"line 4", "only views"}},
      {head + "gradient %0 %0\n", {"not a parameter", "line 4"}},
      {head + "output \"y\" %0\n%2 = relu(%0) f32[4, 6]\n", {"line 5", "after the output line"}},
      {head, {"cut short", "line 3", "output"}},
      {head + "output \"y\" %0", {"cut short", "line 4"}},
  };
  for (const auto& [text, facts] : cases) test::expect_facts(fault_of(text), facts);
  test::expect_facts(fault_of(std::string(kMaxGraphBytes + 1, '#')), {"too large"});
}

}  // namespace
}  // namespace sinter::capture
