// scaled_dot_product_attention, which is plain ops, against the op that is none; the layers round
// it: keys, numbers, errors.
#include "nn/attention.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "nn/safetensors.h"
#include "tests/closeness.h"
#include "tests/python.h"
#include "tests/test_util.h"

namespace sinter::nn {
namespace {

Tensor drawn(const Shape& shape, uint64_t seed) { return sample_tensor(shape, seed, -1, 1); }

void expect_close(const Tensor& found, const Tensor& wanted, double tolerance) {
  ASSERT_EQ(found.shape().str(), wanted.shape().str());
  EXPECT_TRUE(test::close(found.to_vector<double>(), wanted.to_vector<double>(),
      {.absolute = tolerance, .empty = true}));
}

TEST(ScaledDotProductAttention, IsTheOpThatKeepsNoWeights) {
  for (const bool causal : {false, true}) {
    for (const int64_t groups : {1, 2, 4}) {
      for (const auto& [rows, keys] : {std::pair{5, 7}, {7, 5}, {1, 1}, {3, 0}}) {
        const Tensor q = drawn({2, 4, rows, 3}, 1), k = drawn({2, groups, keys, 3}, 2),
                     v = drawn({2, groups, keys, 3}, 3);
        SCOPED_TRACE(sinter::str(q.describe(), " ", k.describe(), causal ? " causal" : ""));
        expect_close(
            scaled_dot_product_attention(q, k, v, {.causal = causal, .enable_gqa = groups < 4}),
            attention(q, k, v, causal), 1e-14);
        expect_close(scaled_dot_product_attention(
                         q, k, v, {.causal = causal, .scale = 0.3, .enable_gqa = true}),
            attention(q, k, v, causal, 0.3), 1e-14);
      }
    }
  }
}

TEST(ScaledDotProductAttention, GradientsAreThoseOfDifferences) {
  const auto check = [](const auto& f, const Tensors& in) {
    const GradcheckResult result = gradcheck([&f](const Tensors& x) { return Tensors{f(x)}; }, in);
    EXPECT_TRUE(result.ok) << result.message;
  };
  for (const auto& [q, groups, keys] : {std::tuple{Shape{2, 4, 5, 3}, 2, 7},
           {Shape{1, 3, 7, 4}, 3, 5}, {Shape{2, 4, 1, 3}, 1, 6}, {Shape{2, 2, 5, 3}, 2, 1},
           {Shape{0, 2, 3, 4}, 2, 5}, {Shape{1, 2, 0, 4}, 2, 5}, {Shape{1, 2, 3, 4}, 2, 0}}) {
    const auto heads = [&](int64_t n, int64_t rows, uint64_t seed) {  // views of what a layer gives
      return transpose(drawn({q[0], rows, n, q[3]}, seed), 1, 2).set_requires_grad(true);
    };
    const Tensors in{heads(q[1], q[2], 1), heads(groups, keys, 2), heads(groups, keys, 3)};
    SCOPED_TRACE(sinter::str(in[0].describe(), " ", in[1].describe()));
    for (const bool causal : {false, true}) {
      check(
          [=](const Tensors& x) {
            return scaled_dot_product_attention(
                x[0], x[1], x[2], {.causal = causal, .enable_gqa = true});
          },
          in);
    }
    if (groups != q[1]) continue;  // by hand, with a mask that is data and broadcasts
    const Tensor mask = cast(tril(Tensor::ones({q[2], keys})) == 0.0, DType::u8);
    check(
        [&](const Tensors& x) {
          return matmul(softmax(masked_fill(matmul(x[0], x[1], false, true), mask, -1e30)), x[2]);
        },
        in);
  }
}

// Both ways of computing it, in f32, forward and backward.
TEST(ScaledDotProductAttention, AgreesWithTorch) {
  struct Given {
    Tensors qkv;
    Tensor d_o;
    bool causal;
  };
  std::vector<Given> all;
  NamedTensors given;
  for (const int64_t places : {1, 7, 64, 1000}) {
    for (const int64_t depth : {4, 32, 80, 128}) {
      const int64_t groups = int64_t{1} << all.size() % 3;
      const Shape of_q{1, 4, places, depth}, of_k{1, groups, places, depth};
      const std::string n = std::to_string(all.size());
      Tensors in;
      for (const auto& [name, shape] :
          {std::pair{".q", of_q}, {".k", of_k}, {".v", of_k}, {".do", of_q}}) {
        in.push_back(cast(drawn(shape, in.size() + 1), DType::f32));
        given.push_back({n + name, in.back()});
      }
      all.push_back({{in[0], in[1], in[2]}, in[3], all.size() % 2 == 0});
      if (all.back().causal) given.push_back({n + ".causal", Tensor::ones({1})});
    }
  }
  const test::TempDir folder;
  write_safetensors(folder.file("given.safetensors"), given);
  const int status = test::run_python("nn/torch_attention.py", folder.path());
  if (status == 77) GTEST_SKIP() << test::kNoTorch;
  ASSERT_EQ(status, 0);
  const NamedTensors torch = read_safetensors(folder.file("torch.safetensors")).tensors;
  for (size_t n = 0; n < all.size(); ++n) {
    for (const bool fused : {false, true}) {
      Tensors in;
      for (const Tensor& t : all[n].qkv) in.push_back(copy(t).set_requires_grad(true));
      const Tensor o = fused ? attention(in[0], in[1], in[2], all[n].causal)
                             : scaled_dot_product_attention(in[0], in[1], in[2],
                                   {.causal = all[n].causal, .enable_gqa = true});
      backward(o, {.gradient = all[n].d_o});
      const Tensor found[] = {detach(o), in[0].grad(), in[1].grad(), in[2].grad()};
      for (size_t i = 0; i < 4; ++i) {
        const char* const names[] = {".o", ".dq", ".dk", ".dv"};
        SCOPED_TRACE(sinter::str(n, names[i], " of q ", in[0].describe(), fused ? ", fused" : ""));
        EXPECT_TRUE(test::close(found[i], *find(torch, std::to_string(n) + names[i]),
            {.of_each = 1e-5, .absolute = 1e-5}));
      }
    }
  }
}

TEST(ScaledDotProductAttention, DropoutIsOfTheWeights) {
  manual_seed(3);
  const Tensor ones = Tensor::ones({1, 2, 8, 4});
  const std::vector<float> o =
      scaled_dot_product_attention(ones, ones, ones, {.dropout = 0.5}).to_vector<float>();
  // Of eight weights of 1/8 those that are kept are 1/4.
  for (size_t i = 0; i < o.size(); ++i) {
    EXPECT_EQ(o[i], o[i / 4 * 4]);
    EXPECT_EQ(o[i] * 4, std::round(o[i] * 4));
  }
  EXPECT_NE(o, std::vector<float>(o.size(), 1.0f));
}

TEST(ScaledDotProductAttention, ErrorsNameWhatDoesNotFit) {
  const auto t = [](const Shape& shape) { return Tensor::zeros(shape); };
  const auto of = [&](const Shape& q, const Shape& k, const Shape& v, bool gqa = false) {
    return [=] { scaled_dot_product_attention(t(q), t(k), t(v), {.enable_gqa = gqa}); };
  };
  test::expect_error(Error::Kind::shape, {"wrong rank: q is f32[4, 5, 8] cpu", "4 dims"},
      of({4, 5, 8}, {1, 4, 7, 8}, {1, 4, 7, 8}));
  test::expect_error(Error::Kind::shape, {"shapes differ", "v is f32[1, 4, 6, 8] cpu"},
      of({1, 4, 5, 8}, {1, 4, 7, 8}, {1, 4, 6, 8}));
  test::expect_error(Error::Kind::shape, {"H of q is 4, G of k is 2", "enable_gqa"},
      of({1, 4, 5, 8}, {1, 2, 7, 8}, {1, 2, 7, 8}));
  test::expect_error(Error::Kind::shape, {"H of q is 4, G of k is 3", "a multiple of G"},
      of({1, 4, 5, 8}, {1, 3, 7, 8}, {1, 3, 7, 8}, true));
}

std::vector<std::string> keys_of(const Module& module) {
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : module.state_dict())
    keys.push_back(sinter::str(key, " ", tensor.shape().str()));
  std::ranges::sort(keys);
  return keys;
}

// The lists of torch.nn.MultiheadAttention(6, 2) and TransformerEncoderLayer(6, 2, 8), PyTorch 2.
TEST(AttentionLayers, HavePyTorchsKeysAndShapes) {
  EXPECT_EQ(keys_of(MultiheadAttention(6, 2)),
      (std::vector<std::string>{"in_proj_bias [18]", "in_proj_weight [18, 6]", "out_proj.bias [6]",
          "out_proj.weight [6, 6]"}));
  EXPECT_EQ(keys_of(MultiheadAttention(6, 2, {.bias = false})),
      (std::vector<std::string>{"in_proj_weight [18, 6]", "out_proj.weight [6, 6]"}));
  EXPECT_EQ(keys_of(TransformerEncoderLayer(6, 2, {.hidden = 8})),
      (std::vector<std::string>{"linear1.bias [8]", "linear1.weight [8, 6]", "linear2.bias [6]",
          "linear2.weight [6, 8]", "norm1.bias [6]", "norm1.weight [6]", "norm2.bias [6]",
          "norm2.weight [6]", "self_attn.in_proj_bias [18]", "self_attn.in_proj_weight [18, 6]",
          "self_attn.out_proj.bias [6]", "self_attn.out_proj.weight [6, 6]"}));
}

// Each head by loops: the layout of in_proj_weight is q, k, v, each head by head.
TEST(AttentionLayers, AreTheirFormula) {
  constexpr int64_t kBatch = 2, kPlaces = 5, kFeatures = 6, kHeads = 2, kDepth = 3;
  MultiheadAttention layer(kFeatures, kHeads, {.causal = true});
  layer.to(DType::f64);
  const NoGrad no_grad;
  const Tensor x = drawn({kBatch, kPlaces, kFeatures}, 4);
  const NamedTensors parameters = layer.named_parameters();
  const auto values = [&](size_t i) { return parameters[i].tensor.to_vector<double>(); };
  const std::vector<double> w = values(0), b = values(1), w_out = values(2), b_out = values(3),
                            in = x.to_vector<double>();
  const auto row = [](const std::vector<double>& matrix, int64_t r, const double* by) {
    double sum = 0;
    for (int64_t i = 0; i < kFeatures; ++i) sum += matrix[size_t(r * kFeatures + i)] * by[i];
    return sum;
  };
  std::vector<double> wanted;
  for (int64_t n = 0; n < kBatch; ++n) {
    const double* of = in.data() + n * kPlaces * kFeatures;
    const auto projected = [&](int64_t part, int64_t place, int64_t column) {
      const int64_t r = part * kFeatures + column;
      return row(w, r, of + place * kFeatures) + b[size_t(r)];
    };
    for (int64_t s = 0; s < kPlaces; ++s) {
      std::vector<double> o(kFeatures);
      for (int64_t h = 0; h < kHeads; ++h) {
        double total = 0;
        for (int64_t t = 0; t <= s; ++t) {
          double score = 0;
          for (int64_t d = h * kDepth; d < (h + 1) * kDepth; ++d)
            score += projected(0, s, d) * projected(1, t, d);
          const double e = std::exp(score / std::sqrt(double(kDepth)));
          total += e;
          for (int64_t d = h * kDepth; d < (h + 1) * kDepth; ++d)
            o[size_t(d)] += e * projected(2, t, d);
        }
        for (int64_t d = h * kDepth; d < (h + 1) * kDepth; ++d) o[size_t(d)] /= total;
      }
      for (int64_t c = 0; c < kFeatures; ++c)
        wanted.push_back(row(w_out, c, o.data()) + b_out[size_t(c)]);
    }
  }
  EXPECT_TRUE(test::close(layer(x).to_vector<double>(), wanted, {.absolute = 1e-13}));
}

TEST(AttentionLayers, ABlockInBf16TakesAndGivesF32) {
  TransformerEncoderLayer block(8, 2, {.hidden = 16, .activation = "gelu"});
  block.init_parameters(3);
  const NoGrad no_grad;
  const Tensor x = cast(drawn({2, 5, 8}, 1), DType::f32), exact = block(x);
  block.enable_bf16();
  const Tensor y = block(x);
  EXPECT_EQ(y.dtype(), DType::f32);
  // A handful of roundings to 8 bits of numbers up to 3.
  EXPECT_TRUE(test::close(y.to_vector<double>(), exact.to_vector<double>(), {.absolute = 0.1}));
}

TEST(AttentionLayers, ErrorsNameWhatDoesNotFit) {
  test::expect_error(Error::Kind::usage,
      {"MultiheadAttention: heads do not divide features: features is 6, heads is 4"},
      [] { MultiheadAttention(6, 4); });
  MultiheadAttention layer(6, 2);
  test::expect_error(Error::Kind::shape, {"x is f32[2, 6] cpu; [B, S, 6] is wanted"}, [&] {
    layer(Tensor::zeros({2, 6}));
  });
}

}  // namespace
}  // namespace sinter::nn
