#include "capture/text.h"

#include <gtest/gtest.h>

#include <set>

#include "capture/rules.h"
#include "core/context.h"
#include "core/rng.h"
#include "ops/ops.h"
#include "tests/capture/graph_file.h"
#include "tests/capture/recorded.h"
#include "tests/ops/samples/samples.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

constexpr char kEager[] = R"(%0 = input "x0" f32[4, 6]
%1 = input "x1" i32[4]
%2 = param "0.weight" f32[5, 6]
%3 = param "0.bias" f32[5]
%4 = param "2.weight" f32[3, 5]
%5 = param "2.bias" f32[3]
%6 = param "exp_avg/0.weight" f32[5, 6]
%7 = param "exp_avg_sq/0.weight" f32[5, 6]
%8 = param "step_state" u8[136]
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
constexpr char kLayouts[] = R"(%0 = input "x \x22\x0a\x5c" f32[6, 4] strides=[1,6]
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

// The file of kLayouts, part by part.
GraphFile layouts() {
  GraphFile f;
  const int x = f.input("x \"\n\\", "f32", {6, 4}, Strides{1, 6}),
            both = f.param("both", "f32", {6, 4}), up = f.param("up", "f32", {3, 4}),
            half = f.constant("0.5", "f32", {6, 3}),
            y = f.op("linear", {x, up, -1}, {{"f32", {6, 3}}}),
            low = f.view(both, "f32", {3, 4}, {}, 12);
  f.op("linear", {x, low, -1}, {{"f32", {6, 3}}});
  const int merged = f.op("linear", {x, both}, {{"f32", {6, 6}}}),
            right = f.view(merged, "f32", {6, 3}, Strides{6, 1}, 3),
            a = f.op(
                "maximum", {f.op("mul", {right, half}, {{"f32", {6, 3}}}), y}, {{"f32", {6, 3}}});
  for (const auto& [value, name] : {std::pair{a, "a"}, {right, "b"}, {low, ""}, {up, "up"}}) {
    f.output(value);
    f.json["values"][size_t(value)]["name"] = name;
  }
  return f;
}

std::string without_comments(std::string text) {
  for (size_t at; (at = text.find('#')) != std::string::npos;) {
    const size_t end = text.find('\n', at), begin = text.find_last_not_of(' ', at - 1) + 1;
    text.erase(begin, end - begin);
  }
  return text;
}
// "" if it is the text of a graph, else the message; fails on any error that is not of kind data.
std::string fault_of(std::string_view text) {
  try {
    read_graph(text, "F").verify("test");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::data) << error.what() << "\nin:\n" << text;
    EXPECT_TRUE(
        error.message().starts_with("graph: ") && error.message().find(": F") != std::string::npos)
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
  EXPECT_EQ(dump(graph), R"(%0 = input "x" f32[4, 6]
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
  const Graph graph = recording.finish({}, {});
  test::expect_facts(dump(graph), {"role=comm"});
  EXPECT_EQ(dump(read_graph(to_json(graph), "F")), without_comments(dump(graph)));
}

TEST(GraphText, AFileReadsBackToTheSameText) {
  const Graph forward = SmallMlp().forward_graph(), training = SmallMlp().training_graph(),
              fused =
                  rewrite(training, RuleSet("all,-weight_grad_update"), Device::Type::cpu).graph,
              laid_out = layouts().graph();
  EXPECT_EQ(dump(laid_out), kLayouts);
  for (const Graph* graph : {&forward, &training, &fused, &laid_out}) {
    const std::string file = to_json(*graph);
    const Graph again = read_graph(file, "F");
    EXPECT_NO_THROW(again.verify("reading"));
    EXPECT_EQ(dump(again), without_comments(dump(*graph)));
    const auto parts = [](const std::string& text) {
      Json parts = Json::parse(text);
      parts.erase("listing");  // the comments of which nobody reads back
      return parts;
    };
    EXPECT_EQ(parts(to_json(again)), parts(file));
  }
  const Graph again = read_graph(to_json(training), "F");
  EXPECT_EQ(again.gradients.size(), 4u);
  EXPECT_EQ(again.nodes.size(), training.nodes.size());
  for (size_t n = 0; n < again.nodes.size(); ++n)
    EXPECT_EQ(again.nodes[n].attrs, training.nodes[n].attrs);
}

TEST(GraphText, MemoryIsRestored) {
  const Graph g = layouts().graph();
  EXPECT_EQ(g.values[0].name, "x \"\n\\");
  EXPECT_NE(g.values[1].buffer, g.values[2].buffer);
  EXPECT_EQ(g.values[1].buffer, g.values[5].buffer);
  EXPECT_EQ(g.buffers[g.values[1].buffer].bytes, 24u * 4);
  EXPECT_EQ(g.values[8].buffer, g.values[7].buffer);
  EXPECT_TRUE(g.overlap(7, 8));
  EXPECT_EQ(g.buffers[g.values[3].buffer].value, 0.5);
}

TEST(GraphText, NumbersThatJsonDoesNotKnowComeBack) {
  for (const char* number : {"inf", "-inf", "nan", "-0", "1e-320", "0.1"}) {
    GraphFile f;
    f.output(f.op("exp", {f.constant(number, "f64", {})}, {{"f64", {}}}));
    EXPECT_EQ(print_value(read_graph(to_json(f.graph()), "F").buffers[0].value), number);
  }
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
  EXPECT_EQ(text, R"(%0 = input "x" f32[1, 4, 6]
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
  test::expect_facts(fault_of(to_json(g)), {"layout too large: F.values[7]"});  // for people
}

TEST(GraphText, EveryOpAndAttributeComesBack) {
  int seen = 0;
  for (const OpDef* op : all_ops()) {
    if (op->view) continue;
    GraphFile no_such;
    no_such.op(op->text(), {no_such.input("x", "f32", {4})}, {}, {{"no_such", "1"}});
    test::expect_facts(fault_of(no_such.text()), {"unknown attribute: F.nodes[0]; no_such"});
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
      const std::string text = to_json(g);
      ASSERT_EQ(fault_of(text), "") << op->text() << ", " << sample.what;
      const Graph again = read_graph(text, "F");
      EXPECT_EQ(to_json(again), text);
      EXPECT_EQ(again.nodes[0].attrs, node.attrs) << text;
      // An operand that is not there is refused or allowed, but never followed.
      for (size_t i = 0; i < node.in.size(); ++i) {
        Json absent = Json::parse(text);
        absent["nodes"][0]["in"][i] = -1;
        fault_of(json_text(absent));
      }
      ++seen;
    }
  }
  EXPECT_GT(seen, 100);
}

Json file_of(const Graph& graph) {
  Json file = Json::parse(to_json(graph));
  file.erase("listing");  // for people: any text may stand there
  return file;
}

TEST(GraphText, CutAnywhereIsRefused) {
  for (const std::string& text : {to_json(layouts().graph()), json_text(layouts().json, 1)}) {
    ASSERT_EQ(fault_of(text), "");
    for (size_t n = 0; n < text.rfind('}'); ++n) EXPECT_NE(fault_of(text.substr(0, n)), "") << n;
  }
}

TEST(GraphText, NothingInPlaceOfAnyPartIsRefused) {
  for (const Json& file : {file_of(SmallMlp().training_graph()), layouts().json}) {
    ASSERT_EQ(fault_of(json_text(file)), "");
    const Json parts = file.flatten();
    std::set<std::string> seen;
    for (const auto& [path, value] : parts.items()) {
      Json::json_pointer at(path);
      for (; !at.empty() && seen.insert(at.to_string()).second; at.pop_back()) {
        for (const Json& junk : {Json(), Json(true), Json(1e300), Json{{"a", 1}}}) {
          Json edited = file;
          if (edited[at].is_object() && edited[at].empty()) continue;  // no attributes: any object
          edited[at] = junk;
          EXPECT_NE(fault_of(json_text(edited)), "") << json_text(edited);
        }
      }
    }
  }
}

TEST(GraphText, RandomEditsGiveAGraphOrAnErrorOfKindData) {
  const Graph training = SmallMlp().training_graph();
  const Json seeds[] = {file_of(training), layouts().json,
      file_of(rewrite(training, RuleSet("all"), Device::Type::cpu).graph)};
  constexpr char kBytes[] = "0123456789%,()[]=-_\". #\nabefilmnrstux\xff\\{}:";
  int accepted = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    Json file = seeds[round % 3];
    const Json parts = file.flatten();
    uint64_t draws = 0;
    const auto draw = [&](size_t n) { return philox_word(round, 5, draws++) % n; };
    const auto part = [&] { return std::next(parts.begin(), int(draw(parts.size()))); };
    // A number, a name or a list in place of another, or one that is gone.
    for (size_t edits = draw(3); edits > 0; --edits) {
      const Json::json_pointer at(part().key());
      if (draw(3) > 0) {
        file[at] = draw(2) ? part().value() : Json(int(draw(40)) - 2);
      } else if (Json& list = file[at.parent_pointer()]; list.is_array() && !list.empty()) {
        list.erase(draw(list.size()));
      }
    }
    std::string text = json_text(file);
    if (draw(3) == 0) text[draw(text.size())] = kBytes[draw(sizeof kBytes - 1)];
    if (!fault_of(text).empty()) continue;
    ++accepted;
    const std::string first = to_json(read_graph(text, "F"));
    EXPECT_EQ(to_json(read_graph(first, "F")), first) << text;
  }
  EXPECT_GT(accepted, 200);  // else it tests the first check only
}

TEST(GraphText, MessagesNamePlaceFoundAndCure) {
  // What is wrong with a file of x f32[4, 6] and w f32[5, 6] to which `add` adds.
  const auto fault = [](auto add) {
    GraphFile f;
    f.input("x", "f32", {4, 6});
    f.param("w", "f32", {5, 6});
    add(f);
    return fault_of(f.text());
  };
  using F = GraphFile;
  using Facts = std::vector<std::string>;
  const GraphFile::Result y{"f32", {4, 5}}, x{"f32", {4, 6}};
  constexpr int64_t kBig = int64_t{1} << 48;
  const std::pair<std::string, Facts> cases[] = {
      {fault([&](F& f) {
         f.op("linear_atc", {0, 1, -1}, {y});
       }),
          {"unknown op: F.nodes[0]; linear_atc, nearest is linear_act"}},
      {fault([&](F& f) {
         f.op("linear_act", {0, 1, -1}, {y, y}, {{"programme", "1"}});
       }),
          {"unknown attribute: F.nodes[0]; programme of linear_act", "it has product, stride_h"}},
      {fault([&](F& f) {
         f.op("linear_act", {0, 1, -1}, {y}, {{"merged", "2"}});
       }),
          {"not a value of merged: F.nodes[0]; 2"}},
      {fault([&](F& f) {
         f.op("linear_act", {0, 1, -1}, {y}, {{"program", "1;exp(0);1"}});
       }),
          {"another op: F.nodes[0]; with these attributes linear_act is product_chain"}},
      {fault([&](F& f) { f.op("relu", {0}, {x}, {}, "wgard"); }),
          {"F.nodes[0].role is \"wgard\", wanted one of "}},
      {fault([&](F& f) {
         f.op("nll_backward", {0, 1}, {}, {{"classes", "281474976710657"}});
       }),
          {"classes out of range: F.nodes[0]; 281474976710657"}},
      {fault([&](F& f) { f.op("relu", {7}, {x}); }), {"undefined value: F.nodes[0]; %7"}},
      {fault([&](F& f) { f.op("relu", {2}, {x}); }), {"undefined value: F.nodes[0]; %2"}},
      {fault([&](F& f) {
         f.op("relu", {0}, {x});
         f.op("relu", {2}, {});
         f.json["nodes"][1]["out"] = {1};
       }),
          {"not a result: F.nodes[1]; %1"}},
      {fault([&](F& f) {
         f.param("w", "f32", {5, 6});
       }),
          {"given twice: F.values[2]; w"}},
      {fault([&](F& f) {
         f.param("", "f32", {5, 6});
       }),
          {"name of a bad length: F.values[2]"}},
      {fault([&](F& f) {
         f.op("linear", {0, 1, -1}, {x});
       }),
          {"results do not fit", "linear gives f32[4, 5], found f32[4, 6]"}},
      {fault([&](F& f) {
         f.op("linear", {1, 0}, {{"f64", {5, 4}}});
       }),
          {"results do not fit", "found f64[5, 4]"}},
      {fault([&](F& f) {
         f.op("relu", {0}, {x, x});
       }),
          {"results do not fit", "relu gives 1, found 2"}},
      {fault([&](F& f) {
         f.op("matmul", {0, 1}, {y});
       }),
          {"operands do not fit", "inner sizes differ"}},
      {fault([&](F& f) { f.op("relu", {}, {x}); }),
          {"operands do not fit", "relu takes 1..1, found 0"}},
      {fault([&](F& f) { f.op("relu", {-1}, {x}); }),
          {"operands do not fit", "must not be absent"}},
      {fault([&](F& f) {
         f.op("reshape", {0}, {{"f32", {24}}});
       }),
          {"a view op: F.nodes[0]; reshape"}},
      {fault([&](F& f) {
         f.view(0, "f32", {5, 6});
       }),
          {"view out of range: F.values[2]", "120 of 96"}},
      {fault([&](F& f) {
         f.op("log_softmax", {f.view(0, "f32", {6, 4}, Strides{1, 6})}, {{"f32", {6, 4}}});
       }),
          {"F.nodes[0]", "must be dense"}},
      {fault([&](F& f) {
         f.op("accumulate", {f.constant("1", "f32", {4, 6}), 0});
       }),
          {"F.nodes[0]", "changes operand 0, which is a constant"}},
      {fault([&](F& f) { f.constant("1", "i32", {4}); }), {"unknown element type", "i32"}},
      {fault([&](F& f) { f.constant("many", "f32", {4}); }), {"not a number: F.values[2]; many"}},
      {fault([&](F& f) { f.view(f.constant("1", "f32", {4}), "f32", {1}); }),
          {"view of a constant"}},
      {fault([&](F& f) { f.input("y", "f16", {4}); }),
          {"F.values[2].dtype is \"f16\", wanted one of", "bf16"}},
      {fault([&](F& f) {
         f.input("y", "f32", {1});
         f.json["values"][2]["shape"] = std::vector<int>(9, 1);
       }),
          {"F.values[2].shape is an array, wanted at most 8 sizes"}},
      {fault([&](F& f) {
         f.input("y", "f32", {kBig, 2});
       }),
          {"shape too large", "2^48"}},
      {fault([&](F& f) {
         f.input("y", "f32", {2, 2}, Strides{kBig, kBig});
       }),
          {"layout too large"}},
      {fault([&](F& f) {
         f.input("y", "f32", {2, 2}, Strides{1});
       }),
          {"strides do not fit", "[1] for f32[2, 2]"}},
      {fault([&](F& f) {
         f.input("y", "f32", {2, -2});
       }),
          {"layout does not fit", "negative"}},
      {fault([&](F& f) {
         f.param("y", "f32", {2});
         f.json["values"][2]["offset"] = 3;
       }),
          {"F.values[2]", "only views"}},
      {fault([&](F& f) {
         f.json["gradients"] = {{{"param", 0}, {"grad", 0}}};
       }),
          {"not a parameter: F.gradients"}},
      {fault([&](F& f) { f.output(2); }), {"undefined value: F.outputs; %2"}},
      {fault([&](F& f) { f.view(3, "f32", {4}); }), {"undefined value: F.values[2]; %3"}},
      {fault([&](F& f) { f.view(2, "f32", {4}); }), {"undefined value: F.values[2]; %2"}},
      {fault([&](F& f) { f.json["values"][size_t(f.view(0, "f32", {4}))]["name"] = "part"; }),
          {"name of a view: F.values[2]; part"}},
      {fault([&](F& f) { f.json.erase("outputs"); }), {"F.outputs is missing"}},
      {fault([&](F& f) { f.json["schema"] = "sinter.graph/3"; }),
          {"another version: F; its schema is \"sinter.graph/3\", this build reads "
           "sinter.graph/2"}},
      {fault_of(""), {"not a graph file: F; parse error at line 1"}},
      {fault_of("<!DOCTYPE html>\n"), {"not a graph file: F; parse error at line 1", "'<'"}},
      {fault_of("[]"), {"not a graph file: F; no JSON object with a schema"}},
      {fault_of("sinter-graph 1\n%0 = input \"x\" f32[1]\noutput \"y\" %0\n"),
          {"of an earlier build: F; it is no JSON of schema sinter.graph/2",
              "hint: to_json() of the graph of a prediction writes one that fits"}},
      {fault_of(std::string(100'000, '[')), {"not understood: F; more than 4 levels"}},
      {fault_of(std::string(kMaxGraphBytes + 1, ' ')), {"too large: F"}},
  };
  for (const auto& [message, facts] : cases) test::expect_facts(message, facts);
}

}  // namespace
}  // namespace sinter::capture
