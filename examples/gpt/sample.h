// What a model writes: letter by letter, each drawn from the distribution that the model gives
// after those before it. Draws are words of a counter-based generator: a sample is a function of
// the weights, of the seed and of its number.
#pragma once

#include "examples/gpt/model.h"
#include "examples/gpt/text.h"

namespace sinter::gpt {

struct SampleOptions {
  std::string prompt = "";
  double temperature = 1;  // of the logits; 0: always the likeliest letter
  int64_t top_k = 0;       // among the k likeliest; 0: all
  int64_t count = 10;
  int64_t letters = 0;  // at most, without the prompt; of documents 0 is as many as the context has
  uint64_t seed = 1;
};

// Each with the prompt. A document ends at its boundary. Of a text that is longer than the context
// the last half of that is read again, and counts its places from 0. Ends early, with what there
// is, when a signal comes. Throws data for a letter of the prompt that the model does not know.
std::vector<std::string> sample(
    Gpt& model, const Vocabulary& vocabulary, int64_t context, const SampleOptions& options);
// A line each, or those of a text; control letters, and bytes that are none, as \xNN.
std::string printable(const std::vector<std::string>& samples);

}  // namespace sinter::gpt
