// MultiheadAttention and TransformerEncoderLayer: self-attention of [B, S, E], and the block of a
// transformer round it. Parameters have PyTorch's names and layouts, so weights go both ways.
#pragma once

#include <cmath>
#include <numeric>

#include "nn/activations.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"

// B batch, S places, E features, H heads, D = E / H
namespace sinter::nn {

struct AttentionLayerOptions {
  bool bias = true;
  bool causal = false;  // place s reads the places up to s. A mask that is data is not taken.
  double dropout = 0;   // of the weights, in training
};

// PyTorch's MultiheadAttention with batch_first, of x with itself: "in_proj_weight" [3 E, E] and
// "in_proj_bias" [3 E], one product for q, k and v, and "out_proj", a Linear(E, E).
class MultiheadAttention : public ProductLayer {
 public:
  // Throws usage unless heads divide features.
  MultiheadAttention(int64_t features, int64_t heads, const AttentionLayerOptions& options = {})
      : features_(features), heads_(heads), options_(options) {
    SINTER_CHECK(features > 0 && heads > 0 && features % heads == 0, usage,
        sinter::str("MultiheadAttention: heads do not divide features: features is ", features,
            ", heads is ", heads, "; each has features / heads, 1 or more"),
        sinter::str("take ", std::gcd(features, heads), " heads"));
    add_parameter("in_proj_weight", Tensor::empty({3 * features, features}));
    if (options.bias) add_parameter("in_proj_bias", Tensor::empty({3 * features}));
    out_proj_ = add("out_proj", std::make_shared<Linear>(features, features, options.bias));
    init_own(init::default_stream());
  }
  // x[B, S, E] -> [B, S, E]
  Tensor forward(const Tensor& x) override {
    SINTER_CHECK(x.rank() == 3 && x.size(2) == features_, shape,
        sinter::str(
            "MultiheadAttention: x is ", x.describe(), "; [B, S, ", features_, "] is wanted"));
    const int64_t batch = x.size(0), places = x.size(1), depth = features_ / heads_;
    const Tensor all =
        reshape(linear_mixed(x, tensor(0), num_tensors() > 1 ? tensor(1) : Tensor(), result_),
            {batch, places, 3 * heads_, depth});
    const auto heads = [&](int64_t i, int64_t n = 1) {
      return transpose(slice(all, 2, i * heads_, (i + n) * heads_), 1, 2);
    };
    const Tensor o =
        place_.defined()
            ? read_next(heads(0), heads(1, 2))
            : scaled_dot_product_attention(heads(0), heads(1), heads(2),
                  {.causal = options_.causal, .dropout = is_training() ? options_.dropout : 0});
    return (*out_proj_)(reshape(transpose(o, 1, 2), {batch, places, features_}));
  }
  // From now on x[B, 1, E] is one place of a text that is read place by place: the one whose number
  // `place` is, an i32[1] below `most`. It reads those before it, of which keys and values are
  // kept; called again with the same sizes, it forgets them. Without gradients and dropout; an
  // undefined place: whole texts as before.
  void read_on(const Tensor& place, int64_t batch, int64_t most) {
    place_ = place;
    const Tensor& copy = tensor(0).autograd().bf16_copy;
    const Tensor none = Tensor::zeros({batch, 2 * heads_, most, features_ / heads_},
        copy.defined() ? result_ : tensor(0).dtype(), tensor(0).device());
    if (kept_.defined() && place.defined() && kept_.shape() == none.shape())
      return copy_values(kept_, none, "read_on");  // a captured step knows where they lie
    kept_ = none;
    std::vector<float> numbers(static_cast<size_t>(most));
    std::iota(numbers.begin(), numbers.end(), 0.0F);
    numbers_ = Tensor::from(numbers, {most, 1}).to(none.device());
  }
  std::string describe() const override {
    return sinter::str("MultiheadAttention(", features_, ", heads=", heads_,
        options_.causal ? ", causal" : "", options_.bias ? ")" : ", no bias)");
  }

 protected:
  // PyTorch's: Xavier's for the weight, in and out being E and 3 E, and biases of 0.
  void init_own(init::Stream& stream) override {
    const double bound = std::sqrt(6.0 / double(4 * features_));
    init::uniform(tensor(0), -bound, bound, stream);
    if (num_tensors() > 1) init::zeros(tensor(1));
  }
  bool depends_on_training() const override { return options_.dropout > 0; }

 private:
  // q[B, H, 1, D] of one place, its keys and values [B, 2 H, 1, D] -> o[B, H, 1, D]. In the time of
  // all `most` places, so that it is the same step for each.
  Tensor read_next(const Tensor& q, const Tensor& both) {
    const auto number = [&](double value) { return constant(value, both.dtype(), both.device()); };
    const Tensor ahead = numbers_ - cast(place_, DType::f32);
    accumulate(kept_, where(ahead, number(0), both));
    const Tensor scores = matmul(q, slice(kept_, 1, 0, heads_), false, true) *
                          (1 / std::sqrt(double(features_ / heads_))),
                 reads = where(relu(reshape(ahead, {-1})), number(-INFINITY), scores);
    return matmul(softmax(reads, -1), slice(kept_, 1, heads_, 2 * heads_));
  }

  int64_t features_, heads_;
  AttentionLayerOptions options_;
  std::shared_ptr<Linear> out_proj_;
  Tensor place_, kept_, numbers_;  // of a text that is read place by place
};

// x + part, in the type of x, whatever that of the products is (enable_bf16).
inline Tensor add_residual(const Tensor& x, const Tensor& part) {
  return x + (part.dtype() == x.dtype() ? part : cast(part, x.dtype()));
}

struct EncoderLayerOptions {
  int64_t hidden = 2048;            // PyTorch's dim_feedforward
  std::string activation = "relu";  // a word of activation_names()
  double dropout = 0;               // behind both halves and the activation; of the weights, too
  bool causal = false;
  bool bias = true;
};

// PyTorch's TransformerEncoderLayer with norm_first and batch_first:
//   x += self_attn(norm1(x)),  x += linear2(act(linear1(norm2(x))))
class TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(
      int64_t features, int64_t heads, const EncoderLayerOptions& options = {}) {
    self_attn_ =
        add("self_attn", std::make_shared<MultiheadAttention>(features, heads,
                             AttentionLayerOptions{options.bias, options.causal, options.dropout}));
    linear1_ = add("linear1", std::make_shared<Linear>(features, options.hidden, options.bias));
    linear2_ = add("linear2", std::make_shared<Linear>(options.hidden, features, options.bias));
    norm1_ = add("norm1", std::make_shared<LayerNorm>(features));
    norm2_ = add("norm2", std::make_shared<LayerNorm>(features));
    activation_ = add("activation", make_activation(options.activation));
    dropout_ = add("dropout", std::make_shared<Dropout>(options.dropout));
  }
  // x[B, S, E] -> [B, S, E]
  Tensor forward(const Tensor& x) override {
    const Tensor y = add_residual(x, (*dropout_)((*self_attn_)((*norm1_)(x))));
    const Tensor hidden = (*dropout_)((*activation_)((*linear1_)((*norm2_)(y))));
    return add_residual(y, (*dropout_)((*linear2_)(hidden)));
  }
  std::string describe() const override { return "TransformerEncoderLayer"; }

 private:
  std::shared_ptr<MultiheadAttention> self_attn_;
  std::shared_ptr<Linear> linear1_, linear2_;
  std::shared_ptr<LayerNorm> norm1_, norm2_;
  std::shared_ptr<Module> activation_;
  std::shared_ptr<Dropout> dropout_;
};

}  // namespace sinter::nn
