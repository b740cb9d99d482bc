// What every op must do, by loops over all_ops() and their samples: gradients, element types,
// refusals, costs, strides; and the list. Values, bytes and strides of fused ops (those with a
// reference) are compared with their references in fused_ops_test.cpp.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <set>

#include "autograd/autograd.h"
#include "ops/fused/fused.h"
#include "ops/optim/optimizers.h"
#include "tests/closeness.h"
#include "tests/ops/samples/samples.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

// What f is refused with.
template <class F> std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == Error::Kind::shape || error.kind() == Error::Kind::dtype)
        << error.what();
    return error.what();
  }
  return "not refused";
}

bool has_one_of(std::string_view text, const std::vector<std::string>& facts) {
  return std::ranges::any_of(facts, [&](const auto& fact) { return text.find(fact) != text.npos; });
}

Tensors converted(const OpDef& op, const Tensors& in, DType dtype) {
  Tensors out;
  for (size_t i = 0; i < in.size(); ++i) {
    const Tensor& t = in[i];
    const DType type = operand_type(op, i, in.size(), dtype);
    out.push_back(t.defined() && t.dtype() == DType::f64 ? cast(t, type) : t);
    if (t.defined() && t.has_autograd() && t.autograd().bf16_copy.defined())
      out.back().autograd().bf16_copy = t.autograd().bf16_copy;
  }
  return out;
}

// Outputs and inputs changed in place; bytes (masks, the step state) left out.
std::vector<std::vector<double>> results(const OpDef& op, const Tensors& in, const Attrs& attrs) {
  Tensors all = apply(op, in, attrs);
  for (size_t i = 0; i < in.size(); ++i) {
    if (op.writes_input(i, in.size())) all.push_back(in[i]);
  }
  std::vector<std::vector<double>> values;
  for (const Tensor& t : all) {
    if (t.defined() && t.dtype() != DType::u8) values.push_back(t.to_vector<double>());
  }
  return values;
}

TEST(OpList, NamesAreUniqueAndEveryOpIsWhole) {
  std::set<std::string_view> names;
  for (const OpDef* op : all_ops()) {
    SCOPED_TRACE(op->text());
    EXPECT_TRUE(names.insert(op->text()).second);
    EXPECT_EQ(find_op(op->text()), op);
    EXPECT_TRUE(op->view ||
                ((op->infer || !op->signature.empty()) && op->cost && (op->cpu || op->reference)));
    EXPECT_LE(op->min_inputs, op->most_inputs());
    const std::vector<Sample> samples = samples_of(*op);
    ASSERT_FALSE(samples.empty()) << "list some in tests/ops/samples/";
    EXPECT_TRUE(
        std::any_of(samples.begin(), samples.end(), [](const Sample& s) { return s.bad; }) ||
        op->name == kCopyOp.name || op->name == kCastOp.name ||
        op->name == kDetachOp.name);  // these take everything
  }
  EXPECT_EQ(find_op("no_such_op"), nullptr);
}

// The place is that of the text, in a file of ops/, or a line or two beside it where the compiler
// counts from the beginning of a call.
TEST(OpList, EveryOpHasAFormulaAndAPlaceInTheSource) {
  std::vector<Label> names(labels().begin(), labels().end());
  for (const OpDef* op : all_ops()) names.push_back(label_of(*op));
  for (const Label& name : names) {
    SCOPED_TRACE(name.text());
    const Formula& formula = name.formula;
    ASSERT_GT(std::string_view(formula.text).size(), 5u);
    EXPECT_EQ(std::string_view(formula.text).find_first_of("\n\t"), std::string_view::npos);
    const std::string place = formula.place();
    ASSERT_TRUE(place.starts_with("ops/")) << place;
    std::ifstream file(SINTER_SOURCE_DIR "/" + place.substr(0, place.find(':')));
    std::string lines, line;
    for (int n = 1; n <= formula.line + 2 && std::getline(file, line); ++n) {
      if (n >= formula.line - 2) lines += line;
    }
    test::expect_facts(lines, {std::string(formula.text).substr(0, 12)});
  }
}

// A name is one program's, and no op's own: so it says which rule made a node, and what the op
// does.
TEST(OpList, ALabelIsThatOfItsForms) {
  for (const Label& label : labels()) {
    SCOPED_TRACE(label.text());
    EXPECT_EQ(find_label(label.text()), &label);
    EXPECT_EQ(find_op(label.text()), nullptr);
    EXPECT_TRUE(label.forms || label.op == &kLinearOp);
    if (!label.forms) continue;
    for (const Form& form : label.forms())
      EXPECT_EQ(label.op->label_of(form.attrs).view(), label.text()) << form.attrs.str();
  }
  for (const OpDef* op : {&kProductChainOp, &kPointwiseChainOp}) {
    for (const ChainProgram& program : kChainEnds) {  // of which only some have a name
      const Attrs attrs = op == &kProductChainOp ? Attrs(ProductChainAttrs{.program = program})
                                                 : Attrs(ChainAttrs{program});
      const std::string_view name = op->label_of(attrs).view();
      EXPECT_TRUE(name == op->text() || find_label(name)->op == op) << name;
    }
  }
}

TEST(OpList, EveryOpOfAFileIsListed) {
#define SINTER_TEXT(op, ...) #op,
  const std::set<std::string> listed{
      SINTER_STRUCTURED_OPS(SINTER_TEXT, SINTER_TEXT) SINTER_FUSED_OPS(SINTER_TEXT)};
  std::set<std::string> found{SINTER_OPTIMIZERS(SINTER_TEXT, SINTER_NOTHING)};  // by a macro
#undef SINTER_TEXT
  for (const auto& entry :
      std::filesystem::recursive_directory_iterator(SINTER_SOURCE_DIR "/ops")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string text = test::text_of(entry.path());
    static const std::regex kDefinition(R"re(\nconst OpDef (k\w+))re");
    for (std::sregex_iterator it(text.begin(), text.end(), kDefinition), end; it != end; ++it)
      found.insert((*it)[1].str());
  }
  EXPECT_EQ(found, listed);
}

TEST(OpList, Gradients) {
  over_samples(all_ops(), false, [](const OpDef& op, Sample& sample) {
    if (!op.backward || !sample.differentiable) return;
    for (size_t i = 0; i < sample.in.size(); ++i) {
      Tensor& t = sample.in[i];
      const bool constant = op.writes_input(i, sample.in.size());
      if (t.defined() && t.dtype() == DType::f64 && !constant) t.set_requires_grad(true);
    }
    const GradcheckResult result = gradcheck(
        [&](const Tensors& in) {
          Tensors out = apply(op, in, sample.attrs);
          if (sample.first_only) out.resize(1);
          return out;
        },
        sample.in);
    EXPECT_TRUE(result.ok) << result.message;
  });
}

TEST(OpList, BadInputsAreRefusedWithNameAndNumbers) {
  over_samples(all_ops(), true, [](const OpDef& op, Sample& sample) {
    const std::string said = refusal([&] { apply(op, sample.in, sample.attrs); });
    EXPECT_TRUE(said.starts_with(str(op.label_of(sample.attrs), ": "))) << said;
    std::vector<std::string> numbers{"no such dim", "inputs given"};
    for (const Tensor& t : sample.in) {
      if (t.defined()) numbers.push_back(t.shape().str());
    }
    EXPECT_TRUE(has_one_of(said, numbers)) << said;
    test::expect_facts(said, {";"});  // and the rule
  });
}

TEST(OpList, TooManyInputsAreRefused) {
  for (const OpDef* op : all_ops()) {
    if (op->most_inputs() > 16) continue;  // a list of tensors
    const Tensors in(size_t(op->most_inputs()) + 1, Tensor::zeros({1}));
    const std::string said = test::message_of([&] { apply(*op, in); });
    EXPECT_TRUE(said.starts_with(op->text())) << op->text() << ": " << said;
  }
}

TEST(OpList, CostsArePositiveAndBytesAreOnePass) {
  // What these do not read as a whole, or what is no data of the step, is written at each cost
  // function.
  const std::set<std::string_view> special{"nll", "nll_backward", "mse_backward", "gather_batch",
      "dropout", "relu", "relu_backward", "renew_copy", "embedding", "count_rows"};
  over_samples(all_ops(), false, [&](const OpDef& op, Sample& sample) {
    if (op.view || &op == &kAllReduceWaitOp) return;
    if (!op.cpu) {  // f64 is for the CPU
      sample.in = converted(op, sample.in, DType::f32);
      sample.attrs.parse("out", "f32");
    }
    Tensors out = op.results(sample.in, sample.attrs);
    const Cost cost = op.cost(sample.in, out, sample.attrs);
    EXPECT_GE(cost.flops, 0);
    if (sample.in[0].numel() > 0 && (out.empty() || out[0].numel() > 0)) {
      EXPECT_GT(cost.bytes(), 0);
    }
    if (optimizer_of(op) || op.reference || special.count(op.text())) return;
    const Cost whole = cost_of(cost.flops, sample.in, out, &op);
    EXPECT_EQ(cost.bytes_read, whole.bytes_read);
    EXPECT_EQ(cost.bytes_written, whole.bytes_written);
  });
}

TEST(OpList, StridesDoNotMatter) {
  over_samples(all_ops(), false, [](const OpDef& op, Sample& sample) {
    if (op.reference) return;
    if (op.name == kReshapeOp.name || op.name == kLowPrecisionOp.name || op.in_place())
      return;  // see views_test; in place wants dense
    const auto wanted = results(op, sample.in, sample.attrs);
    for (size_t i = 0; i < sample.in.size(); ++i) {
      const Tensor dense = sample.in[i];
      if (!dense.defined() || dense.rank() < 2 || dense.numel() < 2) continue;
      sample.in[i] = transpose(contiguous(transpose(dense)));  // the same values by columns
      const auto got = results(op, sample.in, sample.attrs);
      sample.in[i] = dense;
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t o = 0; o < got.size(); ++o) {
        // A product may take another path of the library; the rest has to agree to the bit.
        const double tolerance = op.name == kLinearOp.name || op.name == kMatmulOp.name ? 1e-12 : 0;
        EXPECT_TRUE(test::close(got[o], wanted[o], {.absolute = tolerance, .empty = true}))
            << "input " << i;
      }
    }
  });
}

TEST(OpList, ThereIsAnEmptySampleAndAttributesReadBack) {
  for (const OpDef* op : all_ops()) {
    if (op == &kLowPrecisionOp || op == &kDetachOp || op == &kCountRowsOp) continue;
    bool empty = false;
    for (const Sample& sample : samples_of(*op)) {
      for (const Tensor& t : sample.in)
        empty = empty || (!sample.bad && t.defined() && t.numel() == 0);
      Attrs attrs = sample.attrs;
      std::istringstream fields(attrs.str());
      for (std::string field; fields >> field;) {
        const size_t equals = field.find('=');
        EXPECT_EQ(attrs.parse(field.substr(0, equals), field.substr(equals + 1)), 0)
            << op->text() << ": " << field;
      }
      EXPECT_TRUE(attrs == sample.attrs) << op->text() << ": " << attrs.str();
    }
    EXPECT_TRUE(empty) << op->text();
  }
}

// Every public function of ops/ops.h with tensors of its kind, by name.
struct PublicFunction {
  const char* name;
  Tensors in;
  std::function<void(const Tensors&)> call;
  uint32_t optional = 0;  // bit i: operand i may be undefined
};
std::vector<PublicFunction> public_functions() {
  using T = const Tensors&;
  const Tensor x = Tensor::ones({2, 3}), y = Tensor::ones({2, 3}), row = Tensor::ones({2}),
               columns = Tensor::ones({3}), images = Tensor::ones({2, 3, 4, 4}),
               labels = Tensor::zeros({2}, DType::i32), index = Tensor::zeros({2}, DType::i64),
               bytes = Tensor::zeros({2, 3}, DType::u8), low = Tensor::zeros({2, 3}, DType::bf16),
               state = make_step_state(), losses = Tensor::ones({2}),
               rng = Tensor::zeros({3}, DType::i64), count = Tensor::zeros({}, DType::i64);
  return {
      {"add", {x, y}, [](T t) { add(t[0], t[1]); }},
      {"sub", {x, y}, [](T t) { sub(t[0], t[1]); }},
      {"mul", {x, y}, [](T t) { mul(t[0], t[1]); }},
      {"div", {x, y}, [](T t) { div(t[0], t[1]); }},
      {"maximum", {x, y}, [](T t) { maximum(t[0], t[1]); }},
      {"masked_fill", {x, bytes}, [](T t) { masked_fill(t[0], t[1], 7); }},
      {"masked_fill_", {copy(x), bytes}, [](T t) { masked_fill_(t[0], t[1], 7); }},
      {"where", {bytes, x, y}, [](T t) { where(t[0], t[1], t[2]); }},
      {"neg", {x}, [](T t) { neg(t[0]); }},
      {"abs", {x}, [](T t) { sinter::abs(t[0]); }},
      {"exp", {x}, [](T t) { sinter::exp(t[0]); }},
      {"log", {x}, [](T t) { sinter::log(t[0]); }},
      {"sqrt", {x}, [](T t) { sinter::sqrt(t[0]); }},
      {"pow", {x}, [](T t) { sinter::pow(t[0], 2); }},
      {"relu", {x}, [](T t) { relu(t[0]); }},
      {"leaky_relu", {x}, [](T t) { leaky_relu(t[0]); }},
      {"elu", {x}, [](T t) { elu(t[0]); }},
      {"gelu", {x}, [](T t) { gelu(t[0]); }},
      {"gelu_tanh", {x}, [](T t) { gelu_tanh(t[0]); }},
      {"silu", {x}, [](T t) { silu(t[0]); }},
      {"sigmoid", {x}, [](T t) { sigmoid(t[0]); }},
      {"tanh", {x}, [](T t) { sinter::tanh(t[0]); }},
      {"softplus", {x}, [](T t) { softplus(t[0]); }},
      {"mish", {x}, [](T t) { mish(t[0]); }},
      {"scale", {x}, [](T t) { scale(t[0], 2); }},
      {"reshape", {x},
          [](T t) {
            reshape(t[0], {3, 2});
          }},
      {"transpose", {x}, [](T t) { transpose(t[0]); }},
      {"permute", {x},
          [](T t) {
            permute(t[0], {1, 0});
          }},
      {"tril", {x}, [](T t) { tril(t[0]); }},
      {"slice", {x}, [](T t) { slice(t[0], 0, 0, 1); }},
      {"broadcast_to", {x},
          [](T t) {
            broadcast_to(t[0], {4, 2, 3});
          }},
      {"flatten", {x}, [](T t) { flatten(t[0]); }},
      {"detach", {x}, [](T t) { detach(t[0]); }},
      {"eq", {x, y}, [](T t) { eq(t[0], t[1]); }},
      {"ne", {x, y}, [](T t) { ne(t[0], t[1]); }},
      {"lt", {x, y}, [](T t) { lt(t[0], t[1]); }},
      {"le", {x, y}, [](T t) { le(t[0], t[1]); }},
      {"gt", {x, y}, [](T t) { gt(t[0], t[1]); }},
      {"ge", {x, y}, [](T t) { ge(t[0], t[1]); }},
      {"constant", {}, [](T) { constant(1, DType::f32, kCpu); }},
      {"constant_like", {x}, [](T t) { constant_like(t[0], 1); }},
      {"cat", {x, y}, [](T t) { cat(t); }},
      {"stack", {x, y}, [](T t) { stack(t); }},
      {"randn", {}, [](T) { randn({2}); }},
      {"linear", {x, y, row}, [](T t) { linear(t[0], t[1], t[2]); }, 0b100},
      {"linear_to", {x, y, row}, [](T t) { linear_to(t[0], t[1], t[2], DType::f32); }, 0b100},
      {"matmul", {x, y}, [](T t) { matmul(t[0], t[1], false, true); }},
      {"matmul_as", {x, y},
          [](T t) { matmul_as(t[0], t[1], false, true, DType::f32, Role::none); }},
      {"attention", {images, images, images}, [](T t) { attention(t[0], t[1], t[2]); }},
      {"scaled_dot_product_attention", {images, images, images},
          [](T t) { scaled_dot_product_attention(t[0], t[1], t[2]); }},
      {"sum_rows", {x}, [](T t) { sum_rows(t[0]); }},
      {"conv2d", {images, images, row}, [](T t) { conv2d(t[0], t[1], t[2]); }, 0b100},
      {"sum", {x}, [](T t) { sum(t[0]); }},
      {"mean", {x}, [](T t) { mean(t[0]); }},
      {"max", {x}, [](T t) { sinter::max(t[0]); }},
      {"argmax", {x}, [](T t) { argmax(t[0]); }},
      {"sum_to", {x}, [](T t) { sum_to(t[0], {3}); }},
      {"softmax", {x}, [](T t) { softmax(t[0]); }},
      {"log_softmax", {x}, [](T t) { log_softmax(t[0]); }},
      {"nll", {x, labels}, [](T t) { nll(t[0], t[1]); }},
      {"cross_entropy", {x, labels}, [](T t) { cross_entropy(t[0], t[1]); }},
      {"count_rows", {state, Tensor::ones({1}), Tensor::ones({1})},
          [](T t) { count_rows(t[0], t[1], t[2]); }},
      {"mse", {x, y}, [](T t) { mse(t[0], t[1]); }},
      {"layer_norm", {x, columns, columns}, [](T t) { layer_norm(t[0], t[1], t[2]); }},
      {"rms_norm", {x, columns}, [](T t) { rms_norm(t[0], t[1]); }, 0b10},
      {"embedding", {labels, x}, [](T t) { embedding(t[0], t[1]); }},
      {"max_pool2d", {images}, [](T t) { max_pool2d(t[0]); }},
      {"avg_pool2d", {images}, [](T t) { avg_pool2d(t[0]); }},
      {"batch_norm2d", {images, columns, columns, copy(columns), copy(columns), count},
          [](T t) { batch_norm2d(t[0], t[1], t[2], t[3], t[4], t[5]); }},
      {"batch_norm2d_eval", {images, columns, columns, columns, columns},
          [](T t) { batch_norm2d_eval(t[0], t[1], t[2], t[3], t[4]); }},
      {"dropout", {x}, [](T t) { dropout(t[0], 0.5); }},
      {"cast", {x}, [](T t) { cast(t[0], DType::f64); }},
      {"copy", {x}, [](T t) { copy(t[0]); }},
      {"contiguous", {x}, [](T t) { contiguous(t[0]); }},
      {"accumulate", {x, y}, [](T t) { accumulate(t[0], t[1]); }},
      {"low_precision", {[&] {
         const Tensor w = Tensor::ones({2, 3});
         w.autograd().bf16_copy = low;
         return w;
       }()},
          [](T t) { low_precision(t[0]); }},
      {"bf16_copy_of", {x}, [](T t) { bf16_copy_of(t[0]); }},
      {"renew_bf16_copy", {x, low}, [](T t) { renew_bf16_copy(t[0], t[1]); }},
      {"update_parameter", {x, y, copy(y), copy(y), low, state, losses, rng},
          [](T t) {
            update_parameter({t[0], t[1], t[2], t[3], t[4]}, t[5], {.tail = true}, t[6], t[7]);
          },
          0b11010000},
      {"squared_norm", {x}, [](T t) { squared_norm(t[0]); }},
      {"clip_in_place", {x, Tensor::ones({1}, DType::f64)},
          [](T t) { clip_in_place(t[0], t[1], 1); }},
      {"all_reduce", {x, y}, [](T t) { all_reduce(t); }},
      {"all_reduce_wait", {x, y}, [](T t) { all_reduce_wait(t); }},
  };
}

TEST(OpList, EveryPublicFunctionRefusesAnUndefinedTensor) {
  for (const PublicFunction& f : public_functions()) {
    SCOPED_TRACE(f.name);
    EXPECT_NO_THROW(f.call(f.in));
    for (size_t i = 0; i < f.in.size(); ++i) {
      SCOPED_TRACE(i);
      Tensors in = f.in;
      in[i] = {};
      if (f.optional >> i & 1) {
        EXPECT_NO_THROW(f.call(in));
        continue;
      }
      const std::string said = refusal([&] { f.call(in); });
      EXPECT_TRUE(has_one_of(said, {"is undefined", "is nothing"})) << said;
    }
  }
}

TEST(OpList, TheListOfPublicFunctionsIsWhole) {
  std::set<std::string> listed;
  for (const PublicFunction& f : public_functions()) listed.insert(f.name);
  std::ifstream file(SINTER_SOURCE_DIR "/ops/ops.h");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  static const std::regex kDeclared(R"re(\n(?:Tensor|void) ([a-z_0-9]+)\()re");
  size_t found = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), kDeclared), end; it != end; ++it, ++found)
    EXPECT_TRUE(listed.contains((*it)[1].str())) << (*it)[1];
  EXPECT_EQ(found, listed.size());
}

}  // namespace
}  // namespace sinter
