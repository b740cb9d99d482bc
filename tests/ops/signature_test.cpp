// A signature's notation: what it checks, what it infers, and what it says.
#include "ops/signature.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

Tensor f32(const Shape& shape) { return Tensor::meta(shape); }
Tensor of(DType dtype, const Shape& shape) { return Tensor::meta(shape, dtype); }

// What an op that is no more than its signature gives, or says, for `in`.
std::string given(const Signature& signature, const Tensors& in, const Attrs& attrs = {}) {
  const OpDef op{.name = "op", .signature = signature};
  try {
    std::string out;
    for (const Tensor& t : op.results(in, attrs))
      out += str(out.empty() ? "" : ", ", name_of(t.dtype()), t.shape().str());
    return out;
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Signature, ALetterIsOneSizeWhereverItStands) {
  constexpr Signature kRule = "x[B, I] weight[O, I] -> y[B, O]";
  EXPECT_EQ(given(kRule, {f32({2, 3}), f32({4, 3})}), "f32[2, 4]");
  EXPECT_EQ(given(kRule, {f32({2, 3}), f32({4, 5})}),
      "op: input features differ: x is f32[2, 3] cpu, weight is f32[4, 5] cpu; I of x[B, I] is 3, "
      "of "
      "weight[O, I] it is 5");
  EXPECT_EQ(given(kRule, {f32({2, 3}), f32({4})}),
      "op: wrong rank: x is f32[2, 3] cpu, weight is f32[4] cpu; weight[O, I] must be [O, 3] "
      "beside x[B, I]");
  EXPECT_EQ(given(kRule, {f32({2, 3, 1}), f32({4, 3})}),
      "op: wrong rank: x is f32[2, 3, 1] cpu; x[B, I] must have 2 dims, it has 3");
}

TEST(Signature, DotsAreTheSameDimsAndTheirProductCountsThem) {
  constexpr Signature kRule = "dy[.., D+] x[.., D+] mean:wide[*..] -> dx[.., D] rows[*..] d[D]";
  EXPECT_EQ(
      given(kRule, {f32({2, 3, 4}), f32({2, 3, 4}), f32({6})}), "f32[2, 3, 4], f32[6], f32[4]");
  EXPECT_EQ(given(kRule, {f32({4}), f32({4}), f32({1})}), "f32[4], f32[1], f32[4]");
  EXPECT_EQ(given(kRule, {f32({2, 4}), f32({3, 4}), f32({2})}),
      "op: shapes differ: dy is f32[2, 4] cpu, x is f32[3, 4] cpu; they must be equal");
  EXPECT_EQ(given(kRule, {f32({2, 3, 4}), f32({2, 3, 4}), f32({5})}),
      "op: row counts differ: dy is f32[2, 3, 4] cpu, mean is f32[5] cpu; mean[*..] must be [6] "
      "beside dy[.., D+]");
  EXPECT_EQ(given(kRule, {f32({}), f32({}), f32({1})}),
      "op: wrong rank: dy is f32[] cpu; dy[.., D+] must have at least 1 dim, it has 0");
  EXPECT_EQ(given(kRule, {f32({2, 0}), f32({2, 0}), f32({2})}),
      "op: no columns: dy is f32[2, 0] cpu; D of dy[.., D+] must be at least 1");
  constexpr Signature kBehind = "x[N, C, ..] scale[C] -> y[C, .., N]";
  EXPECT_EQ(given(kBehind, {f32({2, 3, 4, 5}), f32({3})}), "f32[3, 4, 5, 2]");
  EXPECT_EQ(given(kBehind, {f32({2, 3}), f32({4})}),
      "op: channels differ: x is f32[2, 3] cpu, scale is f32[4] cpu; C of x[N, C, ..] is 3, of "
      "scale[C] it is 4");
}

TEST(Signature, FlattenIsTheHintWhereItHelps) {
  constexpr Signature kRule = "x[.., I] weight[O, I] -> y[.., O]";
  EXPECT_EQ(given(kRule, {f32({2, 3, 4}), f32({5, 12})}),
      "op: input features differ: x is f32[2, 3, 4] cpu, weight is f32[5, 12] cpu; I of x[.., I] "
      "is 4, of weight[O, I] it is 12\n"
      "    hint: flatten(x) gives f32[2, 12]");
  EXPECT_EQ(given(kRule, {f32({2, 3, 4}), f32({5, 13})}).find("hint"), std::string::npos);
}

TEST(Signature, TypesAreThatOfTheWeightUnlessSaid) {
  constexpr Signature kRule =
      "x[B] weight[B] bias:same|wide[B]? labels:i32|i64[B]? -> y[B] sums:wide[B] index:i64[B]";
  const Tensor low = of(DType::bf16, {2}), integers = of(DType::i32, {2});
  EXPECT_EQ(given(kRule, {low, low, f32({2}), integers}), "bf16[2], f32[2], i64[2]");
  EXPECT_EQ(given(kRule, {low, low}), "bf16[2], f32[2], i64[2]");
  EXPECT_EQ(given(kRule, {low, f32({2})}),
      "op: element types differ: weight is f32[2] cpu, x is bf16[2] cpu; weight is f32, x is bf16\n"
      "    hint: cast(x, DType::f32)");
  EXPECT_EQ(given(kRule, {integers, f32({2})}),
      "op: element types differ: weight is f32[2] cpu, x is i32[2] cpu; weight is f32, x is i32\n"
      "    hint: cast(x, DType::f32)");
  EXPECT_EQ(given(kRule, {f32({2}), f32({2}), low}),
      "op: element types differ: weight is f32[2] cpu, bias is bf16[2] cpu; weight is f32, bias is "
      "bf16\n    hint: cast(bias, DType::f32)");
  EXPECT_EQ(given(kRule, {f32({2}), f32({2}), {}, f32({2})}),
      "op: wrong element type: x is f32[2] cpu, labels is f32[2] cpu; it must be i32 or i64\n"
      "    hint: cast(labels, DType::i32)");
  constexpr Signature kAny = "x:any[..] -> y[..]";
  EXPECT_EQ(given(kAny, {of(DType::u8, {3})}), "u8[3]");
}

TEST(Signature, AttributesGiveSizesAndTypesOfResults) {
  constexpr Signature kRule = "dloss[B] -> dlogp:out=same|wide[B, classes]";
  EXPECT_EQ(given(kRule, {of(DType::bf16, {2})}, NllBackwardAttrs{5, 0, DType::f32}), "f32[2, 5]");
  EXPECT_EQ(given(kRule, {f32({2})}, NllBackwardAttrs{5, 0, DType::f64}),
      "op: output type does not fit: dloss is f32[2] cpu; out is f64, allowed f32");
}

TEST(Signature, AbsentOperandsAreNamed) {
  constexpr Signature kRule = "into![..] value[..] copy!:bf16[..]? rng:i64[3]?";
  EXPECT_EQ(kRule.operands(), 4);
  EXPECT_EQ(kRule.required(), 2);
  EXPECT_EQ(kRule.writes(), 0b101u);
  EXPECT_EQ(given(kRule, {f32({2}), f32({2})}), "");
  EXPECT_EQ(given(kRule, {f32({2}), {}}),
      "op: into is f32[2] cpu, value is undefined; a tensor is wanted");
  EXPECT_EQ(given("x[..] param!:f32|f64[..]", {f32({2}), of(DType::bf16, {2})}),
      "op: wrong element type: x is f32[2] cpu, param is bf16[2] cpu; it must be f32 or f64\n"
      "    hint: bf16 training updates an f32 master weight");
  EXPECT_EQ(given(kRule, {{}, f32({2})}), "op: into is undefined; it is changed in place");
  EXPECT_EQ(given(kRule, {transpose(f32({2, 3})), f32({3, 2})}),
      "op: a dense tensor is wanted: into is f32[3, 2] cpu with strides [1, 3]; it is changed in "
      "place");
  EXPECT_EQ(given(kRule, {f32({2}), f32({2}), {}, of(DType::i64, {4})}),
      "op: sizes differ: into is f32[2] cpu, rng is i64[4] cpu; rng[3] must be [3]");
}

TEST(Signature, OfAListEachIsNumbered) {
  constexpr Signature kRule = "first[..] tensors..";
  EXPECT_EQ(given(kRule, {f32({2}), f32({3}), f32({1, 4})}), "");
  EXPECT_EQ(given(kRule, {f32({2}), f32({3}), of(DType::f64, {4})}),
      "op: element types differ: first is f32[2] cpu, tensors[1] is f64[4] cpu; first is f32, "
      "tensors[1] is f64\n    hint: cast(tensors[1], DType::f32)");
}

// But for views, whose rule is code alone.
TEST(Signature, EveryStructuredOpHasThatOfTheList) {
#define SINTER_EXPECT_LISTED(op, ...)                                                     \
  EXPECT_TRUE(op.view || op.signature.operands() == Signature(kSignature<op>).operands()) \
      << op.text();
  SINTER_STRUCTURED_OPS(SINTER_EXPECT_LISTED, SINTER_EXPECT_LISTED)
#undef SINTER_EXPECT_LISTED
}

}  // namespace
}  // namespace sinter
