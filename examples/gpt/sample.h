// What a model writes: letter by letter, each drawn from the distribution that the model gives
// after those before it. Draws are words of a counter-based generator: a sample is a function of
// the weights, of the seed and of its number.
#pragma once

#include "capture/step.h"
#include "examples/gpt/model.h"
#include "examples/gpt/text.h"

namespace sinter::gpt {

// Reads texts on, a place of each at a time, by one captured step.
class Reader {
 public:
  explicit Reader(Gpt& model)  // which outlives it
      : model_(model), place_(Tensor::zeros({1}, DType::i32, model.parameters()[0].device())) {}
  ~Reader() { model_.read_on({}, 0); }
  // The logits behind a token of each text, beside the one before; place 0 begins new ones, of
  // which the first is before itself. REQUIRES: NoGrad, evaluation.
  std::vector<float> operator()(const std::vector<int32_t>& tokens, int64_t place) {
    if (place == 0) model_.read_on(place_, std::ssize(tokens) / 2);
    nn::copy_values(place_, Tensor::from(std::vector{int32_t(place)}, {1}), "sample");
    return step_({Tensor::from(tokens, {std::ssize(tokens) / 2, 2}).to(place_.device())})[0]
        .to_vector<float>();
  }

 private:
  Gpt& model_;
  Tensor place_;
  capture::Step step_{[this](const Tensors& in) { return Tensors{model_(in[0])}; },
      {.parameters = nn::parameter_visitor(model_)}};
};

struct SampleOptions {
  std::string prompt = "";
  double temperature = 1;  // of the logits; 0: always the likeliest letter
  int64_t top_k = 0;       // among the k likeliest; 0: all
  int64_t count = 10;
  int64_t letters = 0;  // at most, without the prompt; of documents 0 is as many as the context has
  uint64_t seed = 1;
};

// Each with the prompt; a document, and a text without one, stands behind Vocabulary::beginning().
// A document ends at its boundary. Of a text that is longer than the context the last half of that
// is read again, and counts its places from 0. Ends early, with what there is, when a signal comes.
// Throws data for a letter of the prompt that the model does not know.
std::vector<std::string> sample(
    Gpt& model, const Vocabulary& vocabulary, int64_t context, const SampleOptions& options);
// A line each, or those of a text, with what is to stand between two; control letters, and bytes
// that are none, as \xNN.
std::string printable(const std::vector<std::string>& samples, std::string_view between = "");

}  // namespace sinter::gpt
