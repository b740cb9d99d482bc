#include "examples/gpt/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "cli/process.h"
#include "core/numbers.h"
#include "data/word_stream.h"

namespace sinter::gpt {
namespace {

constexpr uint32_t kStream = 0x73616d70;  // "samp"

int32_t draw(std::span<const float> logits, const SampleOptions& options, uint32_t word) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
  std::ranges::stable_sort(order, std::greater(), [&](int32_t i) { return logits[size_t(i)]; });
  if (options.temperature == 0) return order[0];
  if (options.top_k > 0) order.resize(std::min(order.size(), size_t(options.top_k)));
  const double most = logits[size_t(order[0])];
  std::vector<double> sums;
  for (const int32_t i : order) {
    const double p = std::exp((logits[size_t(i)] - most) / options.temperature);
    sums.push_back(p + (sums.empty() ? 0 : sums.back()));
  }
  const double at = (double(word) + 0.5) / 0x1p32 * sums.back();
  return order[size_t(std::ranges::upper_bound(sums, at) - sums.begin())];
}

}  // namespace

std::vector<std::string> sample(
    Gpt& model, const Vocabulary& vocabulary, int64_t context, const SampleOptions& options) {
  const NoGrad no_grad;
  const nn::EvalMode evaluation(model);
  const bool documents = vocabulary.documents();
  const std::vector<int32_t> prompt = vocabulary.encode(options.prompt, "the prompt");
  std::vector<int32_t> begin = prompt;
  const int64_t unseen = documents || prompt.empty();
  if (unseen) begin.insert(begin.begin(), vocabulary.beginning());
  const int64_t most = options.letters > 0 ? options.letters : context;
  constexpr int64_t kAtOnce = 256;  // samples that a call of the model writes on
  std::vector<std::string> out;
  const int64_t rows = std::min(kAtOnce, options.count);
  Reader read(model);
  for (int64_t first = 0; first < options.count && !cli::interrupted(); first += rows) {
    std::vector<std::vector<int32_t>> texts(size_t(rows), begin);
    std::vector<char> done(size_t(rows), false);
    int64_t from = 0, next = 0;  // what is read, as far as `next`
    for (int64_t i = 0; i < most && std::ranges::count(done, false) && !cli::interrupted(); ++i) {
      const int64_t n = std::ssize(texts[0]);
      if (n - from > context) next = from = n - std::max<int64_t>(context / 2, 1);
      std::vector<float> last;
      for (; next < n; ++next) {
        std::vector<int32_t> tokens;
        for (const auto& text : texts)
          tokens.insert(tokens.end(), {text[size_t(std::max(from, next - 1))], text[size_t(next)]});
        last = read(tokens, next - from);
      }
      const auto tokens_of = size_t(vocabulary.size());
      for (size_t row = 0; row < texts.size(); ++row) {
        WordStream words(options.seed, kStream, uint32_t(first) + uint32_t(row), uint32_t(i));
        const int32_t token =
            done[row] ? 0 : draw({&last[row * tokens_of], tokens_of}, options, words.next());
        done[row] |= char(documents && token == vocabulary.boundary());
        texts[row].push_back(token);
      }
    }
    texts.resize(size_t(std::min(rows, options.count - first)));
    for (const std::vector<int32_t>& text : texts) {
      const auto start = text.begin() + unseen,
                 end = documents ? std::find(start, text.end(), vocabulary.boundary()) : text.end();
      out.push_back(vocabulary.decode({start, end}));
    }
  }
  return out;
}

std::string printable(const std::vector<std::string>& samples, std::string_view between) {
  std::string out;
  for (const std::string& text : samples) {
    if (!out.empty()) out += between;
    for (const std::string_view line : parts_of(text, "\n")) {
      for (size_t at = 0; at < line.size();) {
        const size_t begin = at;
        if (next_letter(line, at) == 0) at = begin + 1;
        const bool raw = at == begin + 1 && uint8_t(line[begin]) >= 0x80;
        out += raw ? fmt::format("\\x{:02x}", uint8_t(line[begin]))
                   : escaped(line.substr(begin, at - begin));
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace sinter::gpt
