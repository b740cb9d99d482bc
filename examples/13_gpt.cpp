// 13: a small GPT of the modules of nn/ learns a verse by heart, letter by letter, and goes on from
// its first word. `gpt train` does it with names, or a text of yours, and with all around it.
#include <cstdio>

#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/sequential.h"
#include "train/trainer.h"

using namespace sinter;

constexpr int64_t kContext = 32, kWidth = 32, kLetters = 128;  // a letter is one of ASCII
const std::string kText =
    "Twinkle, twinkle, little star, / How I wonder what you are! / "
    "Up above the world so high, / Like a diamond in the sky. ";

struct Gpt : nn::Module {
  Gpt() {
    add_parameter("places", Tensor::zeros({kContext, kWidth}));
    for (int i = 0; i < 2; ++i)
      blocks->append(std::make_shared<nn::TransformerEncoderLayer>(kWidth, 4,
          nn::EncoderLayerOptions{.hidden = 4 * kWidth, .activation = "gelu", .causal = true}));
  }
  // tokens i32 [B, S] -> logits of the letter behind each [B, S, kLetters]
  Tensor forward(const Tensor& tokens) override {
    const Tensor places = slice(tensor(0), 0, 0, tokens.size(1));
    return (*head)((*norm)((*blocks)((*letters)(tokens) + places)));
  }
  std::string describe() const override { return "Gpt"; }
  std::shared_ptr<nn::Embedding> letters =
      add("letters", std::make_shared<nn::Embedding>(kLetters, kWidth));
  std::shared_ptr<nn::Sequential> blocks = add("blocks", std::make_shared<nn::Sequential>());
  std::shared_ptr<nn::LayerNorm> norm = add("norm", std::make_shared<nn::LayerNorm>(kWidth));
  std::shared_ptr<nn::Linear> head = add("head", nn::Linear(kWidth, kLetters));
};

Tensor tokens_of(std::string_view text) {
  return Tensor::from(std::vector<int32_t>(text.begin(), text.end()), {1, int64_t(text.size())});
}

int main() {
  Tensors x, next;  // a row from each place of the text on, and the letters behind those of it
  for (size_t at = 0; at + kContext < kText.size(); ++at) {
    x.push_back(tokens_of(kText.substr(at, kContext)));
    next.push_back(tokens_of(kText.substr(at + 1, kContext)));
  }
  Gpt model;
  nn::Adam optimizer(model.named_parameters(), {.lr = 0.003});
  const auto loss = [](const Tensor& logits, const Tensor& labels) {  // one for each letter
    return cross_entropy(reshape(logits, {-1, kLetters}), reshape(labels, {-1}));
  };
  Trainer trainer(model, optimizer, {.loss = loss});
  TensorBatches batches({cat(x), cat(next)}, {.size = 32});
  while (trainer.fit(batches) > 0.06) {}
  std::printf("%d epochs, step: %d launches, of %d eager\n", int(trainer.epoch()),
      int(trainer.captured_step()->captured()->executor->launches()),
      int(trainer.captured_step()->captured()->recorded.launches()));
  std::string out = "Twinkle";
  for (const NoGrad no_grad; out.size() < kText.size();)  // the likeliest letter each time
    out +=
        char(argmax(model(tokens_of(out.substr(std::max<size_t>(out.size(), kContext) - kContext))))
                 .to_vector<int64_t>()
                 .back());
  std::puts(out.c_str());
}
