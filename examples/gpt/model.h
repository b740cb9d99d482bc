// Gpt: a decoder of text. Tokens become the sum of two rows, one of the letter and one of its
// place; blocks of attention and of a layer of two products add to that; the last product gives the
// logits of the token that follows each place.
//
//   x = norm(letters[tokens] + places), or with pairs[before, tokens], too: of the letter before
//   x += self_attn(norm1(x)),  x += linear2(act(linear1(norm2(x))))    in each block
//   logits = head(norm(x))
//
// With RMS norms, no biases and a first norm alone it is microgpt; with layer norms, biases, a
// last norm, GELU and a head that is the table of the letters, GPT-2. Names and layouts of the
// blocks' parameters are those of PyTorch's TransformerEncoderLayer.
#pragma once

#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/rms_norm.h"

// B batch, S places, E width, V tokens
namespace sinter::gpt {

struct GptOptions {
  int64_t layers = 1, width = 16, heads = 4, context = 16;
  std::string norm = "rms";  // or layer; an RMS norm has no weight
  bool first_norm = true, final_norm = false;
  std::string act = "relu";  // a word of nn::activation_names()
  bool bias = false;         // of the products in the blocks
  bool tied = false;         // the head's weight is the letters'
  bool pairs = false;        // a row of each two letters in turn: the square of their number
  double dropout = 0;
  double init_std = 0.08;  // all matrices are drawn from N(0, init_std)
};

// Of these sizes, but otherwise as GPT-2.
inline GptOptions as_gpt2(GptOptions o) {
  o.norm = "layer";
  o.first_norm = false;
  o.final_norm = o.bias = o.tied = true;
  o.act = "gelu";
  return o;
}

inline std::shared_ptr<nn::Module> make_norm(const GptOptions& options) {
  if (options.norm == "layer") return std::make_shared<nn::LayerNorm>(options.width);
  return std::make_shared<nn::RMSNorm>(options.width, 1e-5, false);
}

class Block : public nn::Module {
 public:
  explicit Block(const GptOptions& o)
      : self_attn_(add("self_attn",
            std::make_shared<nn::MultiheadAttention>(o.width, o.heads,
                nn::AttentionLayerOptions{.bias = o.bias, .causal = true, .dropout = o.dropout}))),
        linear1_(add("linear1", std::make_shared<nn::Linear>(o.width, 4 * o.width, o.bias))),
        linear2_(add("linear2", std::make_shared<nn::Linear>(4 * o.width, o.width, o.bias))),
        norm1_(add("norm1", make_norm(o))),
        norm2_(add("norm2", make_norm(o))),
        act_(add("activation", nn::make_activation(o.act))),
        dropout_(add("dropout", std::make_shared<nn::Dropout>(o.dropout))) {}
  // x[B, S, E] -> [B, S, E]
  Tensor forward(const Tensor& x) override {
    const Tensor y = nn::add_residual(x, (*dropout_)((*self_attn_)((*norm1_)(x))));
    const Tensor hidden = (*act_)((*linear1_)((*norm2_)(y)));
    return nn::add_residual(y, (*dropout_)((*linear2_)(hidden)));
  }
  std::string describe() const override { return "Block"; }

 private:
  std::shared_ptr<nn::MultiheadAttention> self_attn_;
  std::shared_ptr<nn::Linear> linear1_, linear2_;
  std::shared_ptr<nn::Module> norm1_, norm2_, act_, dropout_;
};

class Gpt : public nn::Module {
 public:
  // Throws usage unless heads divide width.
  Gpt(int64_t tokens, const GptOptions& o, uint64_t seed)
      : context_(o.context), num_tokens_(tokens), tied_(o.tied) {
    letters_ = add("letters", std::make_shared<nn::Embedding>(tokens, o.width));
    add_parameter("places", Tensor::empty({o.context, o.width}));
    if (o.pairs) pairs_ = add("pairs", std::make_shared<nn::Embedding>(tokens * tokens, o.width));
    dropout_ = add("dropout", std::make_shared<nn::Dropout>(o.dropout));
    if (o.first_norm) first_norm_ = add("first_norm", make_norm(o));
    for (int64_t i = 0; i < o.layers; ++i)
      blocks_.push_back(add(sinter::str("blocks.", i), std::make_shared<Block>(o)));
    if (o.final_norm) final_norm_ = add("final_norm", make_norm(o));
    if (!tied_) head_ = add("head", std::make_shared<nn::Linear>(o.width, tokens, false));
    nn::init::Stream stream{.seed = seed};
    for (const auto& [name, t] : named_parameters()) {
      if (t.rank() > 1) nn::init::normal(t, 0, o.init_std, stream);
      if (name.ends_with("bias")) nn::init::zeros(t);
    }
  }
  // tokens i32 [B, S], S <= context -> logits [B, S, V]
  Tensor forward(const Tensor& given) override {
    // Of two tokens that are read on the first is the one before.
    const Tensor tokens = place_.defined() ? slice(given, 1, 1, 2) : given;
    const int64_t places = tokens.size(1);
    SINTER_CHECK(places <= context_, shape,
        sinter::str("Gpt: more places than the context: tokens are ", tokens.describe(),
            "; at most ", context_));
    const Tensor& all = tensor(0);
    Tensor x = (*letters_)(tokens) + (place_.defined()       ? embedding(place_, all)
                                         : places < context_ ? slice(all, 0, 0, places)
                                                             : all);
    if (pairs_) {
      // The first stands before itself.
      const Tensor before =
          slice(place_.defined() ? given : cat({slice(given, 1, 0, 1), given}, 1), 1, 0, places);
      const Tensor number =
          scale(cast(before, DType::f64), double(num_tokens_)) + cast(tokens, DType::f64);
      x = x + (*pairs_)(cast(number, DType::i32));
    }
    x = (*dropout_)(x);
    if (first_norm_) x = (*first_norm_)(x);
    for (const auto& block : blocks_) x = (*block)(x);
    if (final_norm_) x = (*final_norm_)(x);
    return tied_ ? linear(x, letters_->parameters()[0]) : (*head_)(x);
  }
  // From now on tokens [batch, 2] are those of place number `place`, an i32[1] below the context,
  // each behind the one before it, the first behind itself: see nn::MultiheadAttention.
  void read_on(const Tensor& place, int64_t batch) {
    place_ = place;
    for (nn::Module* m : modules()) {
      if (auto* attention = dynamic_cast<nn::MultiheadAttention*>(m))
        attention->read_on(place, batch, context_);
    }
  }
  std::string describe() const override { return sinter::str("Gpt(context ", context_, ")"); }

 protected:
  std::optional<DType> own_input() const override { return DType::i32; }

 private:
  int64_t context_, num_tokens_;
  bool tied_;
  Tensor place_;
  std::shared_ptr<nn::Embedding> letters_, pairs_;
  std::shared_ptr<nn::Module> dropout_, first_norm_, final_norm_;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<nn::Linear> head_;
};

}  // namespace sinter::gpt
