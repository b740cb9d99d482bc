// gpt: its text, its built-in names, its model eager and fused, with parts and ranks, and the
// program.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/text_grid.h"
#include "distributed/thread_group.h"
#include "examples/gpt/job.h"
#include "examples/gpt/names.h"
#include "examples/gpt/sample.h"
#include "nn/safetensors.h"
#include "tests/closeness.h"
#include "tests/examples/program.h"
#include "tests/python.h"

namespace sinter::gpt {
namespace {

using namespace test;
using distributed::ThreadGroup;

// ---- letters

TEST(GptText, LettersAreThoseOfUtf8OrBytes) {
  const std::string text = "a\u00e4\u20ac\U0001f600\nb";
  EXPECT_EQ(letters_of(text, false, "t"), (Letters{'a', 0xe4, 0x20ac, 0x1f600, '\n', 'b'}));
  const Vocabulary chars(text, false, true, "t"), bytes(text, true, false, "t");
  EXPECT_EQ(chars.text(), "97-98,228,8364,128512");
  EXPECT_EQ(chars.size(), 6) << "five letters, and the boundary; the line's end is none";
  EXPECT_EQ(bytes.size(), 12);
  for (const Vocabulary* vocabulary : {&chars, &bytes}) {
    const std::string line = vocabulary == &chars ? text.substr(0, 10) : text;
    const std::vector<int32_t> tokens = vocabulary->encode(line, "t");
    EXPECT_EQ(vocabulary->decode(tokens), line);
    const Vocabulary again(vocabulary->text(), vocabulary == &bytes, vocabulary == &chars);
    EXPECT_EQ(again.encode(line, "t"), tokens);
  }
}

TEST(GptText, WhatIsNoUtf8IsRefusedWithItsPlace) {
  // Cut off; too long a form; half of a pair; above the last letter; no first byte; 0xff.
  for (const char* bad : {"\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
           "\xf4\x90\x80\x80", "\x80", "\xff", "\xf8\x88\x80\x80\x80"}) {
    const std::string text = str("ab\ncd", bad, "ef");
    expect_error(Error::Kind::data, {"not UTF-8: t, line 2, byte 3 is 0x", "--symbols bytes"},
        [&] { letters_of(text, false, "t"); });
    EXPECT_EQ(std::ssize(letters_of(text, true, "t")), std::ssize(text));
  }
  expect_error(Error::Kind::data, {"a NUL: t, line 1, byte 2"},
      [] { letters_of(std::string_view("a\0b", 3), false, "t"); });
}

TEST(GptText, LettersThatLackOrAreTooFewOrTooManyAreRefused) {
  expect_error(Error::Kind::data, {"one letter: t has no letter but a"},
      [] { Vocabulary("aa\na", false, true, "t"); });
  expect_error(Error::Kind::data, {"t has none but ends of lines"},
      [] { Vocabulary("\n\n", false, true, "t"); });
  std::string many;
  for (int i = 0; i < 5000; ++i)
    many += {char(0xe4), char(0x80 + i / 64 % 64), char(0x80 + i % 64)};
  Vocabulary(many, false, true, "t");
  for (int i = 0; i < 5000; ++i)
    many += {char(0xe5 + i / 4096), char(0x80 + i / 64 % 64), char(0x80 + i % 64)};
  expect_error(Error::Kind::data, {"too many letters: t has ", "at most 4096", "--symbols bytes"},
      [&] { Vocabulary(many, false, true, "t"); });
  const Vocabulary known("abc", false, true, "t");
  expect_error(Error::Kind::data,
      {"knows no such letter: z in the prompt, letter 3; it has 3 letters a-c"},
      [&] { known.encode("abz", "the prompt"); });
  const Vocabulary stream("abc\n", false, false, "t");
  expect_error(Error::Kind::data,
      {"no such letter: \u00a0 (U+00A0) in t, line 8, letter 2; it has 4 letters"},
      [&] { stream.encode("abc\na\u00a0", "t", 7); });
  for (const char* wrong : {"", "5-4", "7,7", "1-2-3", "x", "0-4096", "1114112"})
    expect_error(Error::Kind::checkpoint, {"letters are no rising ranges"},
        [&] { Vocabulary(wrong, false, true); });
}

TEST(GptText, RowsArePaddedDocumentsOrWindowsOfAStream) {
  const Vocabulary lines("abc", false, true, "t"), stream("abc", false, false, "t");
  const Tensors padded = token_rows({{0, 1}, {2, 1, 0, 2, 1}}, lines, 4);
  EXPECT_EQ(padded[0].to_vector<int32_t>(), (std::vector<int32_t>{3, 0, 1, 0, 3, 2, 1, 0}));
  EXPECT_EQ(padded[1].to_vector<int32_t>(), (std::vector<int32_t>{0, 1, 3, -1, 2, 1, 0, 2}))
      << "the second is cut";
  const Tensors windows = token_rows({{0, 1, 2, 0, 1, 2, 0, 1}}, stream, 3);
  EXPECT_EQ(windows[0].to_vector<int32_t>(), (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(windows[1].to_vector<int32_t>(), (std::vector<int32_t>{1, 2, 0, 1, 2, 0}));
}

TEST(GptNames, ObeyTheirRules) {
  const std::vector<std::string> names = built_in_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), size_t(kBuiltInNames));
  for (const std::string& name : names) EXPECT_TRUE(is_name(name)) << name;
  for (const char* word : {"tabokur", "dekin", "timekes", "mutadokan"})
    EXPECT_EQ(is_name(word), std::string_view(word) != "dekin") << word << ": two syllables";
  for (const char* wrong : {"", "tabokurs", "tabekur", "tapokur", "tabokuk", "tabokua", "atabokur",
           "tabokutabor", "Tabokur"})
    EXPECT_FALSE(is_name(wrong)) << wrong;
  const NameCount all = count_names(names, {names.begin(), names.begin() + 4000});
  EXPECT_EQ(all.valid, 10'000);
  EXPECT_EQ(all.fresh, 6000);
  EXPECT_LT(all.random_valid, 10) << "of random words less than one in a thousand";
  EXPECT_TRUE(count_names({"x"}, {}).text().starts_with("0.0 % of 1 samples obey the rules; of "));
}

// ---- the step

struct Made {
  std::shared_ptr<Gpt> model;
  std::unique_ptr<nn::Optimizer> optimizer;
  std::unique_ptr<Trainer> trainer;
  Made(const GptOptions& options, int64_t tokens, DType dtype, TrainerOptions how)
      : model(std::make_shared<Gpt>(tokens, options, 3)) {
    manual_seed(5);
    model->to(dtype);
    optimizer = std::make_unique<nn::Adam>(model->named_parameters(), nn::AdamOptions{.lr = 0.01});
    how.loss = [](const Tensor& logits, const Tensor& labels) {
      return cross_entropy(
          reshape(logits, {-1, logits.size(2)}), reshape(labels, {-1}), 0, kIgnoredLabel);
    };
    trainer = std::make_unique<Trainer>(*model, *optimizer, std::move(how));
  }
  std::vector<double> weights() const {
    std::vector<double> all;
    for (const Tensor& p : model->parameters()) {
      for (const double value : p.to_vector<double>()) all.push_back(value);
    }
    return all;
  }
};

// Names of unequal length, 11 in batches of 4.
Tensors some_rows(const Vocabulary& vocabulary, int64_t context) {
  std::vector<std::vector<int32_t>> documents;
  for (const char* word :
      {"a", "bac", "cabbabc", "", "abcabcabcabc", "cc", "bcb", "acaca", "b", "cacbabcab", "ab"})
    documents.push_back(vocabulary.encode(word, "t"));
  return token_rows(documents, vocabulary, context);
}
const Vocabulary& abc() {
  static const Vocabulary vocabulary("abc", false, true, "t");
  return vocabulary;
}

const GptOptions kSmall{.layers = 2, .width = 8, .heads = 2, .context = 8, .init_std = 0.3};
const GptOptions kOther = as_gpt2({.layers = 2,
    .width = 8,
    .heads = 2,
    .context = 8,
    .pairs = true,
    .dropout = 0.1,
    .init_std = 0.3});

TEST(Gpt, TwoHundredStepsEagerAndFusedAreTheSame) {
  for (const GptOptions& options : {kSmall, kOther}) {
    std::vector<double> losses[2];
    for (const bool fused : {false, true}) {
      const Made made(options, abc().size(), DType::f64, {.fused = fused});
      TensorBatches batches(some_rows(abc(), 8), {.size = 4});
      while (std::ssize(losses[fused]) < 200 * 32)
        made.trainer->fit(batches, [&] {
          const StepState state = made.trainer->state();
          losses[fused].resize(losses[fused].size() + 32, state.last_loss);
        });
      EXPECT_LT(losses[fused].back(), losses[fused][0]);
    }
    EXPECT_TRUE(close(losses[1], losses[0], {.absolute = 1e-8}));
  }
}

// Parts and ranks have unequal numbers of letters, some ranks no row: the mean is that of all
// letters.
TEST(Gpt, PartsAndRanksTrainAsOneBatchDoes) {
  const Tensors rows = some_rows(abc(), 8);
  const auto train = [&](bool fused, int64_t part) {
    const Made made(kSmall, abc().size(), DType::f64, {.fused = fused, .part = part});
    TensorBatches batches(rows, {.size = 4});
    double loss = 0;
    for (int epoch = 0; epoch < 4; ++epoch) loss = made.trainer->fit(batches);
    std::vector<double> found = made.weights();
    found.push_back(loss);
    return found;
  };
  const std::vector<double> wanted = train(false, 0);
  for (const bool fused : {false, true}) {
    for (const int64_t part : {0, 1, 3}) {
      SCOPED_TRACE(str(fused ? "fused" : "eager", " in parts of ", part));
      EXPECT_TRUE(close(train(fused, part), wanted, {.absolute = 1e-11}));
      for (const int size : {2, 5}) {
        std::vector<std::vector<double>> found(static_cast<size_t>(size));
        ThreadGroup(size).run(
            [&](Communicator& ranks) { found[size_t(ranks.rank())] = train(fused, part); });
        for (const auto& of_rank : found) EXPECT_EQ(of_rank, found[0]);
        EXPECT_TRUE(close(found[0], wanted, {.absolute = 1e-11})) << size << " ranks";
      }
    }
  }
}

// The same without a letter that is ignored, where nothing is counted.
TEST(Gpt, PartsAndRanksOfAStreamTrainAsOneBatchDoes) {
  const Vocabulary vocabulary("abc", false, false, "t");
  const Tensors rows = token_rows(
      {vocabulary.encode(
          "abcabbacbaabccabacbbacabcabbacbaabccabacbbacabbcacbabcbcabcbacbacbcabcbcab", "t")},
      vocabulary, 8);
  const auto train = [&](int64_t part) {
    Gpt model(3, kSmall, 3);
    model.to(DType::f64);
    nn::Adam optimizer(model.named_parameters(), {.lr = 0.01});
    Trainer trainer(model, optimizer,
        {.loss =
                [](const Tensor& y, const Tensor& labels) {
                  return cross_entropy(reshape(y, {-1, 3}), reshape(labels, {-1}));
                },
            .part = part});
    TensorBatches batches(rows, {.size = 4});
    std::vector<double> found;
    for (int epoch = 0; epoch < 4; ++epoch) found.push_back(trainer.fit(batches));
    for (const Tensor& p : model.parameters()) {
      for (const double value : p.to_vector<double>()) found.push_back(value);
    }
    return found;
  };
  const std::vector<double> wanted = train(0);
  for (const int64_t part : {1, 3}) EXPECT_TRUE(close(train(part), wanted, {.absolute = 1e-11}));
  std::vector<std::vector<double>> found(3);
  ThreadGroup(3).run([&](Communicator& ranks) { found[size_t(ranks.rank())] = train(0); });
  EXPECT_TRUE(close(found[0], wanted, {.absolute = 1e-11}));
  EXPECT_EQ(found[1], found[0]);
}

// Of a model that is its own oracle: place after place, each the last of a shorter text.
TEST(Gpt, APlaceReadsWhatStandsBeforeIt) {
  const NoGrad no_grad;
  for (const GptOptions& options : {kSmall, kOther}) {
    Gpt model(4, options, 3);
    model.eval();
    const Tensor tokens = Tensor::from(std::vector<int32_t>{3, 0, 1, 2, 2, 1, 0, 1}, {1, 8});
    const std::vector<float> all = model(tokens).to_vector<float>();
    for (int64_t n = 1; n <= 8; ++n) {
      const auto last = model(slice(tokens, 1, 0, n)).to_vector<float>();
      EXPECT_TRUE(close(std::vector<double>(last.end() - 4, last.end()),
          std::vector<double>(all.begin() + 4 * n - 4, all.begin() + 4 * n), {.absolute = 1e-5}));
    }
  }
  Gpt model(4, kSmall, 3);
  expect_error(Error::Kind::shape, {"more places than the context", "at most 8"}, [&] {
    model(Tensor::from(std::vector<int32_t>(9, 0), {1, 9}));
  });
}

// In plain f64 loops: microgpt as it is written down, weights as they lie in the file.
TEST(Gpt, IsMicrogpt) {
  const NoGrad no_grad;
  Gpt model(5, {.width = 8, .heads = 2, .context = 6, .init_std = 0.4}, 7);
  model.to(DType::f64);
  std::map<std::string, std::vector<double>> w;
  for (const auto& [name, t] : model.named_parameters()) w[name] = t.to_vector<double>();
  const std::vector<int32_t> tokens{4, 1, 0, 3, 1, 2};
  const auto times = [&](const std::string& name, const std::vector<double>& x) {
    std::vector<double> y(w.at(name).size() / x.size(), 0);
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += w.at(name)[o * x.size() + i] * x[i];
    }
    return y;
  };
  const auto norm = [](std::vector<double> x) {
    double squares = 0;
    for (const double v : x) squares += v * v;
    for (double& v : x) v /= std::sqrt(squares / 8 + 1e-5);
    return x;
  };
  std::vector<double> wanted;
  std::vector<std::vector<double>> keys, values;
  for (size_t s = 0; s < tokens.size(); ++s) {
    std::vector<double> x(8);
    for (size_t i = 0; i < 8; ++i)
      x[i] = w.at("letters.weight")[size_t(tokens[s]) * 8 + i] + w.at("places")[s * 8 + i];
    x = norm(x);
    const std::vector<double> qkv = times("blocks.0.self_attn.in_proj_weight", norm(x));
    keys.emplace_back(qkv.begin() + 8, qkv.begin() + 16);
    values.emplace_back(qkv.begin() + 16, qkv.end());
    std::vector<double> merged(8, 0);
    for (size_t h = 0; h < 2; ++h) {
      std::vector<double> weights(keys.size(), 0);
      double sum = 0;
      for (size_t t = 0; t < keys.size(); ++t) {
        for (size_t d = 0; d < 4; ++d) weights[t] += qkv[4 * h + d] * keys[t][4 * h + d] / 2;
        sum += weights[t] = std::exp(weights[t]);
      }
      for (size_t t = 0; t < keys.size(); ++t) {
        for (size_t d = 0; d < 4; ++d) merged[4 * h + d] += weights[t] / sum * values[t][4 * h + d];
      }
    }
    const std::vector<double> o = times("blocks.0.self_attn.out_proj.weight", merged);
    for (size_t i = 0; i < 8; ++i) x[i] += o[i];
    std::vector<double> hidden = times("blocks.0.linear1.weight", norm(x));
    for (double& v : hidden) v = std::max(v, 0.0);
    const std::vector<double> out = times("blocks.0.linear2.weight", hidden);
    for (size_t i = 0; i < 8; ++i) x[i] += out[i];
    for (const double logit : times("head.weight", x)) wanted.push_back(logit);
  }
  EXPECT_TRUE(
      close(model(Tensor::from(tokens, {1, 6})).to_vector<double>(), wanted, {.absolute = 1e-12}));
}

// ---- what it writes

TEST(GptSample, DrawsByTheDistributionAndIsAFunctionOfTheSeed) {
  Gpt model(4, kSmall, 3);
  const SampleOptions options{.count = 3000, .letters = 1, .seed = 9};
  const std::vector<std::string> samples = sample(model, abc(), 8, options);
  EXPECT_EQ(samples, sample(model, abc(), 8, options));
  const NoGrad no_grad;
  const auto logits = model(Tensor::from(std::vector<int32_t>{3}, {1, 1})).to_vector<double>();
  double sum = 0;
  for (const double l : logits) sum += std::exp(l);
  std::map<std::string, int> counts;
  for (const std::string& text : samples) ++counts[text];
  for (int i = 0; i < 4; ++i) {
    const double p = std::exp(logits[size_t(i)]) / sum,
                 found = counts[i < 3 ? std::string(1, char('a' + i)) : ""] / 3000.0;
    EXPECT_NEAR(found, p, 5 * std::sqrt(p * (1 - p) / 3000)) << i;
  }
  // The first is the likeliest, whatever the temperature, where there is one alone.
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  for (const SampleOptions& one : {SampleOptions{.temperature = 0, .count = 5, .letters = 1},
           SampleOptions{.temperature = 9, .top_k = 1, .count = 5, .letters = 1}}) {
    for (const std::string& text : sample(model, abc(), 8, one))
      EXPECT_EQ(text, best < 3 ? std::string(1, char('a' + best)) : "");
  }
}

// Logits place by place, beside those of the whole text; of more texts than one, on both devices;
// and once more from its first place on, as if nothing had been kept. In f64 all that differs is
// the order of sums of at most 32 numbers of size 10: 32 * 10 * 2^-53 < 1e-13, through 2 blocks.
TEST(GptSample, PlaceByPlaceTheLogitsAreThoseOfTheWhole) {
  const NoGrad no_grad;
  for (const GptOptions& options : {kSmall, kOther}) {
    for (const DType dtype : {DType::f64, DType::f32}) {
      for (const Device device : {kCpu, Device{Device::Type::simt}}) {
        Gpt model(4, options, 3);
        model.to(dtype);
        model.to(device);
        model.eval();
        const Tensor tokens = Tensor::from(
            std::vector<int32_t>{3, 0, 1, 2, 2, 1, 0, 1, 3, 2, 1, 0, 0, 0, 1, 2}, {2, 8})
                                  .to(device);
        const Tensor whole = model(tokens);
        const Tensor place = Tensor::from(std::vector<int32_t>{0}, {1}).to(device);
        for (int64_t n = 0; n < 16; ++n) {
          if (n % 8 == 0) model.read_on(place, 2);
          nn::copy_values(place, Tensor::from(std::vector{int32_t(n % 8)}, {1}), "test");
          const auto at = [&](const Tensor& t, int64_t i) { return slice(t, 1, i, i + 1); };
          const Tensor both =
              cat({at(tokens, std::max<int64_t>(n % 8 - 1, 0)), at(tokens, n % 8)}, 1);
          EXPECT_TRUE(close(model(both), contiguous(at(whole, n % 8)),
              {.absolute = dtype == DType::f64 ? 1e-12 : 1e-5}))
              << n;
        }
      }
    }
  }
}

// The likeliest letters are those that a model gives which reads all of the text, or behind the
// context the last half of it, for each letter anew.
TEST(GptSample, TheLikeliestLettersAreThoseOfAFullReading) {
  const Vocabulary vocabulary("abc", false, false, "t");
  for (const GptOptions& options : {kSmall, kOther}) {
    Gpt model(3, options, 5);
    const std::string found = sample(
        model, vocabulary, 8, {.prompt = "abca", .temperature = 0, .count = 1, .letters = 40})
                                  .at(0);
    const NoGrad no_grad;
    const nn::EvalMode evaluation(model);
    std::vector<int32_t> text = vocabulary.encode("abca", "t");
    for (size_t from = 0; text.size() < 44;) {
      if (text.size() - from > 8) from = text.size() - 4;
      const std::vector<int32_t> read(text.begin() + int64_t(from), text.end());
      const Tensor likeliest = argmax(model(Tensor::from(read, {1, std::ssize(read)})));
      text.push_back(int32_t(likeliest.to_vector<int64_t>().back()));
    }
    EXPECT_EQ(found, vocabulary.decode(text));
  }
}

// Far beyond the context, of which the last half is read again.
TEST(GptSample, ATextGoesOnBeyondTheContext) {
  const Vocabulary vocabulary("abc", false, false, "t");
  Gpt model(3, kSmall, 3);
  const std::vector<std::string> texts =
      sample(model, vocabulary, 8, {.prompt = "abcabcabcabc", .count = 2, .letters = 30});
  for (const std::string& text : texts) {
    EXPECT_EQ(text.size(), 42U);
    EXPECT_TRUE(text.starts_with("abcabcabcabc"));
  }
  EXPECT_NE(texts[0], texts[1]);
  // Without a prompt one letter is read that is not told.
  EXPECT_EQ(sample(model, vocabulary, 8, {.count = 1, .letters = 30})[0].size(), 30U);
  EXPECT_EQ(vocabulary.beginning(), 0);
  EXPECT_EQ(Vocabulary("\tab\n", false, false, "t").beginning(), 1) << "an end of a line";
}

// ---- the program

struct GptProgram : Program {
  GptProgram() { name = "gpt"; }
};

TEST(GptProgram, TrainsOnItsNamesAndWritesNewOnes) {
  const GptProgram program;
  const Result r = program.run(0, {"train", "--threads", "1", "--out", "r"});
  expect_facts(
      r.err, {"data    built-in names: 10,000 names, of which 1,000 val, 1,000 test",
                 "text    18 letters", "epoch 5/5  loss 1.", " bits  loss ", "perplexity"});
  expect_facts(r.out, {"test    1.9", " a letter", "of 1,000 samples obey the rules"});
  const std::string samples = r.out.substr(r.out.find("\n\n"));
  EXPECT_GE(times_in(samples, "\n"), 12) << "ten, between blank lines";
  const Words from{"sample", "--from", "r", "--threads", "1"};
  const nlohmann::json found = json_of(program, from + Words{"--rules", "--count", "1000"});
  EXPECT_GE(found["rules"]["valid"], 600);
  EXPECT_GE(2 * int(found["rules"]["new"]), int(found["rules"]["valid"]));
  EXPECT_LT(found["rules"]["random_valid"], 1 + 1000 / 1000);
  const nlohmann::json some = json_of(program, from + Words{"--prompt", "tab", "--count", "3"});
  for (const auto& text : some["samples"]) EXPECT_TRUE(std::string(text).starts_with("tab"));
  const nlohmann::json test = json_of(program, {"eval", "--from", "r", "--threads", "1"});
  EXPECT_NEAR(double(test["bits"]), double(test["loss"]) / std::log(2), 1e-6);
  EXPECT_NEAR(double(test["perplexity"]), std::exp(double(test["loss"])), 1e-6);
  expect_facts(program.run(3, from + Words{"--prompt", "tax"}).err,
      {"knows no such letter: x in the prompt, letter 3; it has 18 letters"});
}

TEST(GptProgram, AStoppedRunGoesOnToTheBit) {
  const GptProgram program, other;
  const Words train{"train", "--out", "r", "--threads", "1", "--steps", "90", "--dropout", "0.1",
      "--layers", "2", "--save-steps", "1", "--log-every", "10", "--cut"};
  other.run(0, train);
  const Result killed = program.run(train, [&](pid_t child) {
    const auto file = program.folder() / "r/last.safetensors";
    while (!std::filesystem::exists(file)) usleep(1000);
    kill(child, SIGKILL);
  });
  EXPECT_EQ(killed.status, 128 + SIGKILL);
  program.run(0, {"train", "--resume", "r"});
  EXPECT_TRUE(text_of(program.folder() / "r/model.safetensors") ==
              text_of(other.folder() / "r/model.safetensors"));
  expect_facts(program.run(4, {"train", "--resume", "r", "--steps", "95", "--width", "32"}).err,
      {"cannot resume with another --width", "has 16, asked 32"});
}

// What is cut off counts nothing: of 30 steps the losses are the same, but for rounding.
TEST(GptProgram, BatchesThatAreCutTrainAsWholeOnesDo) {
  const GptProgram program;
  const Words train{"train", "--threads", "1", "--steps", "30", "--out", "r", "--force"};
  for (const Words& model : {Words{}, Words{"--norm", "layer", "--bias"}}) {
    const double whole = json_of(program, train + model)["test"]["loss"],
                 cut = json_of(program, train + model + Words{"--cut"})["test"]["loss"];
    EXPECT_NEAR(whole, cut, 1e-5);
  }
}

TEST(GptProgram, ReadsATextOfLinesOrOneText) {
  const GptProgram program;
  std::string text;
  for (int i = 0; i < 200; ++i) text += str("the ", i % 7, "th line of ", i * i % 11, "\n");
  program.write("text", text);
  const Words few{"--text", "text", "--steps", "20", "--threads", "1", "--force", "--out", "r"};
  expect_facts(program.run(0, Words{"train"} + few).err,
      {"note    200 of 200 lines are longer than --context 16", "200 lines, of which 20 val, 20"});
  const char* const other = "the model was trained on another text, crc32 ";
  const Words eval{"eval", "--from", "r", "--threads", "1", "--text"};
  EXPECT_FALSE(has(program.run(0, eval + Words{"text"}).err, other));
  program.write("more", text + "the one\n");
  expect_facts(program.run(0, eval + Words{"more"}).err, {other});
  // A run that died before its first save leaves its config alone, and room for another.
  for (const auto& entry : std::filesystem::directory_iterator(program.folder() / "r"))
    if (entry.path().filename() != "config.toml") std::filesystem::remove(entry);
  program.run(0, {"train", "--text", "text", "--steps", "2", "--threads", "1", "--out", "r"});
  expect_facts(program
                   .run(0, Words{"train", "--stream", "--symbols", "bytes", "--norm", "layer",
                               "--act", "gelu", "--bias", "--tied", "--dtype", "bf16"} +
                               few)
                   .out,
      {" a byte"});
  expect_facts(program.run(0, {"sample", "--from", "r", "--prompt", "the ", "--length", "40"}).out,
      {"the "});
  EXPECT_EQ(times_in(program.run(0, {"sample", "--from", "r", "--count", "3"}).out, "---\n"), 2);
  expect_facts(program.run(2, {"sample", "--from", "r", "--prompt", "t", "--rules"}).err,
      {"--rules: the rules of the built-in names"});
  for (const auto& [status, words, wanted] : std::vector<std::tuple<int, Words, std::string>>{
           {3, {"--stream", "--context", "4000"},
               "--context 4000 is too long for parts of the text"},
           {2, {"--heads", "3"}, "--heads 3 do not divide --width 16"},
           {2, {"--stream", "--text", ""}, "--stream is for a text"},
           {2, {"--preset", "shakespeare", "--text", ""}, "--preset shakespeare is for a text"},
           {2, {"--val", "0", "--patience", "1"}, "--patience needs a val set"},
           {2, {"--context", "1000000", "--text", ""}, "makes 10,000,000,000 places"}})
    expect_facts(program.run(status, Words{"train"} + few + words).err, {wanted});
  for (const auto& [content, wanted] :
      std::vector<std::pair<std::string, std::string>>{{"", "the file is empty: "},
          {"aaa\naa\n", "one letter: "}, {std::string("ab\0", 3), "a NUL: "},
          {"ab\xff", "not UTF-8: "}, {"ab\nba\n", "too few lines: "}}) {
    program.write("text", content);
    expect_facts(program.run(3, Words{"train"} + few).err, {"error: text: " + wanted});
  }
}

// What Windows adds is no letter; but to a model of bytes, of which each is one.
TEST(GptProgram, ReadsATextOfWindowsAsOneOfUnix) {
  const GptProgram program;
  std::string unix_text, windows_text = "\xef\xbb\xbf";
  for (int i = 0; i < 60; ++i) {
    const std::string line = str("line ", i % 7, " of ", i * i % 11);
    unix_text += line + "\n";
    windows_text += line + "\r\n";
  }
  program.write("unix", unix_text);
  program.write("windows", windows_text);
  const auto train = [&](const char* text, const Words& more) {
    return json_of(program,
        Words{"train", "--text", text, "--steps", "9", "--out", "r", "--force", "--threads", "1"} +
            more)["test"]["loss"];
  };
  for (const Words& how : {Words{}, Words{"--stream"}, Words{"--symbols", "bytes"}})
    EXPECT_EQ(train("windows", how), train("unix", how)) << testing::PrintToString(how);
  const Words raw{"--stream", "--symbols", "bytes"};
  EXPECT_NE(train("windows", raw), train("unix", raw));
}

// Of two rows a boundary is followed by a or b, of three that begin with ab by c, c or d.
TEST(GptText, ABatchAllowsTheEntropyOfWhatIsBehindEachBeginning) {
  const Vocabulary letters("abcd", false, true, "t");
  std::vector<std::vector<int32_t>> documents;
  for (const char* line : {"abc", "abc", "abd", "b"})
    documents.push_back(letters.encode(line, "t"));
  const double first = 3 * std::log(4 / 3.0) + std::log(4.0),
               third = 2 * std::log(3 / 2.0) + std::log(3.0);
  EXPECT_NEAR(least_loss(token_rows(documents, letters, 6)), (first + third) / 14, 1e-12);
  EXPECT_EQ(least_loss(token_rows({documents[0]}, letters, 6)), 0);
}

TEST(GptProgram, OneBatchIsLearntAsFarAsItsBeginningsAllow) {
  const GptProgram program;
  const Words overfit{"train", "--overfit-batch", "--threads", "1"};
  for (const char* seed : {"1", "2", "3"}) {
    const Result r = program.run(0, overfit + Words{"--seed", seed});
    expect_facts(r.out, {" on one batch of 16 after ", "; it allows 0."});
  }
  std::string text;  // a run of it has fewer steps, and would end with a rate of 0
  for (int i = 0; i < 300; ++i) text += str("the ", i % 7, "th line of ", i * i % 11, "\n");
  program.write("text", text);
  program.run(0, overfit + Words{"--text", "text", "--stream"});
  expect_facts(program.run(7, overfit + Words{"--lr", "0"}).err,
      {"one batch cannot be learnt: loss 2.9", ", wanted < 0.3", "; it allows 0.3"});
}

TEST(GptProgram, OpensATrainedModelToCompareAndInspect) {
  const GptProgram program;
  std::string text;
  for (int i = 0; i < 200; ++i) text += str("the ", i % 7, "th line of ", i * i % 11, "\n");
  program.write("text", text);
  expect_facts(program
                   .run(0, {"train", "--preset", "shakespeare", "--text", "text", "--layers", "1",
                               "--width", "32", "--steps", "5", "--out", "r", "--threads", "1"})
                   .err,
      {"preset  shakespeare: --stream=true --context 64 ", " --first-norm=false ",
          "gpt compare --from runs/last, gpt inspect --from runs/last"});
  const Words step{"--threads", "1"}, from{"--from", "r"};
  const Result walk = program.run(0, Words{"inspect", "--walk"} + from + step);
  expect_facts(walk.out, {"gpt 1 x 32, 4 heads, context 64, last layer norm, gelu, biases, tied"});
  expect_facts(walk.err, {"text, one text", "model   r/model.safetensors"});
  const Words few{"--rounds", "1", "--steps", "1", "--warmup", "0"};
  expect_facts(
      program.run(0, Words{"compare", "--preset", "shakespeare", "--text", "text"} + few + step)
          .out,
      {"gpt 4 x 128, 4 heads, context 64"});
  expect_facts(program.run(0, Words{"compare"} + from + few + step).out, {"gpt 1 x 32"});
  expect_facts(program.run(2, Words{"compare", "--preset", "names"} + from).err,
      {"--preset and --from exclude each other"});
  expect_facts(program.run(4, Words{"compare", "--width", "16"} + from + step).err, {"letters"});
  expect_facts(program.run(2, {"inspect", "--walk", "-o", "walk.html"}).err, {"-o is for a page"});
}

// Lines of chance are learnt by heart, and others are then read worse.
TEST(GptProgram, SaysWhichWeightsTheTestReadsAndWhereTheBestOnesAre) {
  const GptProgram program;
  std::string text;
  for (uint32_t i = 1, word = 1; i <= 60 * 9; ++i) {
    word = word * 1664525 + 1013904223;
    text += i % 9 == 0 ? '\n' : char('a' + (word >> 24) % 8);
  }
  program.write("text", text);
  const Result r = program.run(0, {"train", "--text", "text", "--epochs", "40", "--schedule",
                                      "constant", "--out", "r", "--threads", "1"});
  expect_facts(r.err, {"best    by val bits ", ": test is of the last weights, ",
                          "; gpt sample --count 10 --from r/best.safetensors"});
}

// Our weights in PyTorch's modules, and back what these have made of them.
TEST(GptProgram, WeightsGoToTorchAndBack) {
  const Words other{"--norm", "layer", "--first-norm=false", "--final-norm", "--act", "gelu",
      "--bias", "--layers", "2"};
  for (const Words& model : {Words{}, Words{"--tied", "--layers", "2"}, other,
           other + Words{"--tied", "--act", "silu"}}) {
    SCOPED_TRACE(testing::PrintToString(model));
    const GptProgram program;
    program.run(0, Words{"train", "--steps", "40", "--out", "r"} + model);
    const auto file = [&](const char* name) { return (program.folder() / "r" / name).string(); };
    std::vector<int32_t> tokens;
    for (int i = 0; i < 3 * 16; ++i) tokens.push_back(i * 7 % 19);
    const Tensor given = Tensor::from(tokens, {3, 16});
    nn::write_safetensors(file("given.safetensors"), {{"tokens", given}});
    const int status = run_python("examples/torch_gpt.py", program.folder() / "r");
    if (status == 77) GTEST_SKIP() << kNoTorch;
    ASSERT_EQ(status, 0);
    const nn::NamedTensors torch = nn::read_safetensors(file("torch.safetensors")).tensors;
    const NoGrad no_grad;
    for (const auto& [name, wanted] :
        {std::pair{"model.safetensors", "before"}, {"trained.safetensors", "after"}}) {
      cli::CommonFlags common;
      cli::Output out({.quiet = true});
      const auto opened = GptJob(common).open(file(name), kCpu, out);
      EXPECT_TRUE(close((*opened)(given), *find(torch, wanted), {.absolute = 1e-5})) << name;
    }
    EXPECT_FALSE(close(*find(torch, "before"), *find(torch, "after"), {.absolute = 1e-2}));
    program.run(0, {"eval", "--from", "r/trained.safetensors"});
    program.run(0, {"sample", "--from", "r/trained.safetensors"});
  }
}

// A budget ends a run before its steps do. Without a rate the 100 steps of an epoch have the same
// mean loss each time.
TEST(GptProgram, ARecordEndsWithItsBudgetAndTellsTheLastLosses) {
  const GptProgram program;
  std::string text;
  for (int i = 0; i < 125; ++i) text += str("ab", std::string(size_t(i % 5), 'c'), "\n");
  program.write("text", text);
  const Words speedrun{"speedrun", "--text", "text", "--seeds", "2", "--threads", "1", "--batch",
      "1", "--eval-batch-size", "7"};
  const nlohmann::json cut = json_of(program, speedrun + Words{"--budget", "0", "--steps", "50"});
  EXPECT_EQ(cut["budget"], 0);
  for (const auto& run : cut["runs"]) EXPECT_EQ(run["steps"], 1) << "the first ends later";
  EXPECT_GE(double(cut["seconds"]["low"]), 0) << "of two seeds the interval is wide";
  EXPECT_NE(std::string(cut["machine"]).find(", 1 thread, "), std::string::npos);
  const nlohmann::json all = json_of(
      program, speedrun + Words{"--lr", "0", "--budget", "1000", "--val", "13", "--steps", "250"});
  EXPECT_EQ(all["set"], "held-out");
  EXPECT_EQ(all["lines"], 13);
  for (const auto& run : all["runs"]) {
    EXPECT_EQ(run["steps"], 250) << "two and a half epochs of 100";
    EXPECT_NEAR(double(run["bits"]), double(run["loss"]) / std::log(2), 1e-6);
    EXPECT_GT(double(run["last_100_loss"]), 0);
  }
  const Words epoch{"--lr", "0", "--budget", "1000", "--val", "13"};
  const nlohmann::json one = json_of(program, speedrun + epoch + Words{"--steps", "100"}),
                       two = json_of(program, speedrun + epoch + Words{"--steps", "200"});
  for (int i = 0; i < 2; ++i)
    EXPECT_NEAR(
        double(one["runs"][i]["last_100_loss"]), double(two["runs"][i]["last_100_loss"]), 1e-6);
  const Result r = program.run(0, speedrun);
  expect_facts(r.out, {"  last 100 steps ", "of the last 100 steps ", " of 12 test lines"});
  expect_facts(program.run(2, {"train", "--budget", "1"}).err, {"--budget"});
  expect_facts(program.run(3, {"train", "--text", "text", "--val", "113"}).err,
      {"--val 113 leaves none to train on: there are 125 lines, of which 12 are the test"});
  program.run(0, {"train", "--text", "text", "--val", "0", "--steps", "3", "--out", "r"});
  expect_facts(program.run(2, {"eval", "--from", "r", "--set", "val"}).err,
      {"--set val: the run has held out nothing"});
  expect_facts(program.run(0, {"train", "--dry-run", "--text", "text"}).out, {" 12 test lines: "});
  EXPECT_EQ(times_in(program.run(0, {"train", "--dry-run"}).out, "bits"), 1);
}

// Of bytes that are no letter each stands as its number, and what is a letter as itself.
TEST(GptSample, PrintsNoBytesThatAreNoLetters) {
  EXPECT_EQ(printable({"a\xff\u00e4\xe2\x82", "\x80\x01\u20ac\nb"}),
      "a\\xff\u00e4\\xe2\\x82\n\\x80\\x01\u20ac\nb\n");
}

TEST(GptProgram, ExplainsItsOwnWords) {
  const GptProgram program;
  for (const char* word : {"bits", "perplexity", "loss", "letter", "boundary", "windows", "causal",
           "mask", "head", "val", "test", "best"})
    EXPECT_EQ(program.run(0, {"explain", word}).out.find("A flag"), std::string::npos) << word;
  expect_facts(program.run(0, {"explain", "pairs"}).out, {"letters each with"});
}

TEST(GptProgram, ComparesBlamesAndInspects) {
  const GptProgram program;
  const Words step{"--threads", "1"};
  const nlohmann::json compared =
      json_of(program, Words{"compare", "--rounds", "3", "--steps", "2", "--warmup", "1"} + step);
  EXPECT_LT(double(compared["parity"]["loss"]), 1e-5);
  expect_facts(program.run(0, Words{"compare", "--blame"} + step).out, {"blame"});
  expect_facts(
      program.run(0, Words{"inspect", "--walk", "--layers", "2", "--batch", "2"} + step).out,
      {"attention", "embedding"});
}

// ---- launches

std::map<std::string, int> nodes_of(const GptOptions& options) {
  const Made made(options, 27, DType::f32, {});
  const std::vector<int32_t> tokens(16 * 16, 1);
  const Tensors batch{Tensor::from(tokens, {16, 16}), Tensor::from(tokens, {16, 16})};
  for (int i = 0; i < 3; ++i) made.trainer->step(batch);
  std::map<std::string, int> count;
  const capture::Captured& captured = *made.trainer->captured_step()->captured();
  for (const auto& node : captured.fused.graph.nodes) ++count[std::string(node.text())];
  count["eager"] = int(captured.recorded.nodes.size());
  return count;
}

// docs/RULES.md lists the launches of a step of gpt: with one layer, and what another one adds.
TEST(GptLaunches, AreThoseOfTheDocument) {
  constexpr std::string_view kBegin = "<!-- gpt: this list is generated -->\n",
                             kEnd = "<!-- gpt: end -->\n";
  GptOptions names, layer{.norm = "layer", .act = "gelu", .bias = true};
  std::string wanted;
  const auto add = [&](const std::string& what, const std::map<std::string, int>& nodes) {
    int fused = 0;
    std::vector<std::string> which;
    for (const auto& [name, n] : nodes) {
      if (name == "eager" || n == 0) continue;
      fused += n;
      which.push_back(str("`", name, "`", n > 1 ? str(" x", n) : ""));
    }
    wanted += wrapped(
        str("- ", what, ": ", fused, " for ", nodes.at("eager"), ": ", join(which), "\n"), 100);
  };
  for (GptOptions* options : {&names, &layer}) {
    const auto one = nodes_of(*options);
    options->layers = 2;
    auto further = nodes_of(*options);
    for (auto& [name, n] : further) n -= one.contains(name) ? one.at(name) : 0;
    const char* const what = options == &names ? "`names`" : "layer norms, GELU, biases";
    add(str(what, ", one layer"), one);
    add(str(what, ", each further layer"), further);
  }
  const std::filesystem::path file = std::filesystem::path(SINTER_SOURCE_DIR) / "docs/RULES.md";
  std::string text = text_of(file);
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_TRUE(begin < end && end != std::string::npos) << "no marks in " << file;
  const size_t at = begin + kBegin.size();
  if (std::getenv("SINTER_REGENERATE")) std::ofstream(file) << text.replace(at, end - at, wanted);
  EXPECT_EQ(text_of(file).substr(at, wanted.size() + kEnd.size()), wanted + std::string(kEnd))
      << "SINTER_REGENERATE=1 examples_test --gtest_filter=GptLaunches.* writes it anew";
}

}  // namespace
}  // namespace sinter::gpt
