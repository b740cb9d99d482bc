#include "examples/gpt/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "cli/run.h"
#include "examples/gpt/names.h"
#include "examples/gpt/sample.h"
#include "nn/optim.h"
#include "nn/state_dict.h"
#include "ops/ops.h"

namespace sinter::gpt {
namespace {

using cli::Flags, cli::Use;

constexpr uint64_t kSplitSeed = 1;  // of the documents: the same sets for each --seed

}  // namespace

// A number of its own for what microgpt has otherwise than usual.
GptJob::GptJob(cli::CommonFlags& common) : TensorJob(common) {
  cli::OptimizerFlags& optimizer = flags.optimizer;
  optimizer.batch = 16;
  optimizer.lr = 0.01;
  optimizer.betas = {0.85, 0.99};
  optimizer.schedule = "linear";
}

std::array<int64_t, 2> GptJob::parts_of_set(int64_t n) const {
  const int64_t tenth = std::max<int64_t>(n / 10, 1), held_out = val_.value_or(tenth);
  SINTER_CHECK(held_out < n - tenth, data,
      str("text: --val ", held_out, " leaves none to train on: there are ",
          count_of(n, stream_ ? "letter" : "line"), ", of which ", tenth, " are the test"));
  return {n - tenth - held_out, n - tenth};
}

void GptJob::add_text_flag(Flags& to) {
  to.word("text", file_, "FILE", "a text; else built-in names, whose rules the program knows")
      .place = true;
}

void GptJob::add_flags(Flags& to, Use use) {
  to.topic("text");
  add_text_flag(to);
  to.toggle("stream", stream_, "all of it is one text; else each line is a document");
  to.choice("symbols", symbols_, {"chars", "bytes"}, "what a letter is");
  to.number("val", val_, 0, 1'000'000'000, "held out: lines, or letters of one text").standard =
      "a tenth";
  to.word("letters", letters_, "N-M,..", "of the text of a run: for its config").hidden = true;
  to.word("data-crc32", crc_, "HEX", "of the text of a run: for its config").hidden = true;
  to.toggle("cut", cut_, "each batch ends with its longest line, at an even place");
  to.topic("model");
  constexpr int64_t kMany = 1'000'000;
  to.number("layers,n-layer", model.layers, 1, 1000, "blocks");
  to.number("width,n-embd", model.width, 1, kMany, "features of a place");
  to.number("heads,n-head", model.heads, 1, kMany, "of attention; they divide the width");
  to.number("context,block-size", model.context, 1, kMany, "places that are read at once");
  to.number("dropout", model.dropout, 0, 0.99, "share of activations zeroed in training");
  to.choice("norm", model.norm, {"rms", "layer"}, "rms: without a weight");
  to.toggle("first-norm", model.first_norm, "a norm before the blocks; --first-norm=false: none");
  to.toggle("final-norm", model.final_norm, "a norm behind them");
  to.choice("act,activation", model.act, {"relu", "gelu", "gelu_tanh", "silu"}, "in the blocks");
  to.toggle("bias", model.bias, "of the products in the blocks");
  to.toggle("tied,tie-weights", model.tied, "the table of the letters is the last product's, too");
  to.toggle("pairs", model.pairs, "letters are read with the one before, by a table of all pairs");
  to.number("init-std", model.init_std, 0, 10, "of new matrices, drawn from a normal distribution");
  to.choice("dtype", dtype_, {"f32", "tf32", "bf16"},
      "bf16: activations and copies of the weights; tf32: cuda and simt only",
      {{"float32", "f32"}, {"bfloat16", "bf16"}});
  if (use == Use::step) {
    to.word("from", from_, "RUN|FILE", "a run folder or a safetensors file").standard =
        "new weights";
  }
}

void GptJob::add_loss_flags(Flags& to) {
  to.find("lr")->standard = "0.01";
  to.find("betas")->standard = "0.85,0.99";
}

void GptJob::check(const Flags&, Use) {
  SINTER_CHECK(model.width % model.heads == 0, usage,
      str("usage: --heads ", model.heads, " do not divide --width ", model.width,
          ": each has width / heads features"));
  const std::string& name = flags.run.preset;
  const bool by_preset = !name.empty() && preset(name).starts_with("stream");
  SINTER_CHECK(!stream_ || !file_.empty(), usage,
      str("usage: --", by_preset ? "preset " + name : "stream",
          " is for a text: the built-in names are lines"),
      "--text FILE");
  cli::check_dtype(dtype_, *flags.common);
}

std::vector<cli::Preset> GptJob::presets() const {
  return {
      {.name = "names",
          .config =
              "layers=1\nwidth=16\nheads=4\ncontext=16\nnorm=rms\nfirst-norm=true\n"
              "final-norm=false\nact=relu\nbias=false\ntied=false\ninit-std=0.08\nbatch-size=16\n"
              "optimizer=adam\nlr=0.01\nbetas=\"0.85,0.99\"\nschedule=linear\nsteps=1000\n"
              "mode=fused\n",
          .budget = 1},
      // Of what one second allows, chosen by names held out: docs/results/README.md.
      {.name = "record",
          .config = "val=0\nlayers=1\nwidth=32\nheads=4\ncontext=16\nnorm=rms\nfirst-norm=true\n"
                    "final-norm=false\nact=relu\nbias=false\ntied=false\npairs=true\ncut=true\n"
                    "init-std=0.14\nbatch-size=16\noptimizer=adam\nlr=0.007\nbetas=\"0.85,0.99\"\n"
                    "schedule=linear\nsteps=2600\nmode=fused\n",
          .budget = 1},
      {"shakespeare",
          "stream=true\nlayers=4\nwidth=128\nheads=4\ncontext=64\nnorm=layer\nfirst-norm=false\n"
          "final-norm=true\nact=gelu\nbias=true\ntied=true\ninit-std=0.02\nbatch-size=16\n"
          "optimizer=adamw\nlr=0.001\nbetas=\"0.9,0.99\"\nweight-decay=0.1\nschedule=cosine\n"
          "lr-warmup=100\nclip=1\nsteps=2000\nmode=fused\n"}};
}

std::string GptJob::describe() const {
  return fmt::format("gpt {} x {}, {} heads, context {}, {}{}{} norm, {}{}{}{}{}", model.layers,
      model.width, model.heads, model.context, model.first_norm ? "first " : "",
      model.final_norm ? "last " : "", model.norm, model.act, model.bias ? ", biases" : "",
      model.tied ? ", tied" : "", model.pairs ? ", pairs" : "",
      model.dropout > 0 ? str(", dropout ", model.dropout) : "");
}

std::optional<cli::Guessing> GptJob::guessing() const {
  const int64_t tokens = vocabulary_.size();
  return cli::Guessing{.loss = std::log(double(tokens)),
      .text = fmt::format("ln({})", tokens),
      .hint = "check lr, and that the text is one"};
}

std::pair<std::string, const char*> GptJob::rows() const {
  if (stream_) return {"windows", "win"};
  return built_in() ? std::pair{"names", "names"} : std::pair{"lines", "lines"};
}

std::string GptJob::data_name() const {
  return built_in() ? "built-in names"
                    : str(std::filesystem::path(file_).filename().string(),
                          stream_ ? ", one text" : ", lines");
}

void GptJob::load(const cli::Loading& loading) {
  TensorJob::load(loading);
  letters_ = vocabulary_.text();
  const std::string crc = fmt::format("{:08x}", data().crc);
  if (saved_ && !crc_.empty() && crc_ != crc)
    loading.out.note("note",
        "the model was trained on another text, crc32 {}, here it is {}: it may have read what is "
        "held out here",
        escaped(crc_), crc);
  crc_ = crc;
  loading.out.note("text", "{}{}", vocabulary_.describe(),
      vocabulary_.documents() ? ", and the boundary of a name or line" : "");
}

cli::TensorJob::Sets GptJob::make_sets(const cli::Loading& loading) {
  if (!built_in()) file_ = std::filesystem::absolute(file_).string();
  const std::string name = built_in() ? "the built-in names" : shown(file_);
  const std::string text =
      built_in() ? join(built_in_names(), "\n") : read_text(file_, is_bytes() && stream_);
  vocabulary_ = letters_.empty() ? Vocabulary(text, is_bytes(), !stream_, name)
                                 : Vocabulary(letters_, is_bytes(), !stream_);
  Sets sets;
  if (stream_) {
    const std::vector<int32_t> tokens = vocabulary_.encode(text, name, 1);
    const int64_t n = std::ssize(tokens);
    const auto [val, test] = parts_of_set(n);
    const auto windows = [&](int64_t begin, int64_t end) {
      return token_rows(
          {{tokens.begin() + begin, tokens.begin() + end}}, vocabulary_, model.context);
    };
    SINTER_CHECK(
        std::min(val, n - test) > model.context && (val == test || test - val > model.context),
        data,
        str("text: --context ", model.context, " is too long for parts of the text: ", name,
            " has ", grouped(val), " letters to train on, ", grouped(test - val), " held out, ",
            grouped(n - test), " of the test; each needs ", grouped(model.context + 1)),
        "a smaller --context, or a longer text");
    return {windows(0, val), val < test ? windows(val, test) : Tensors{}, windows(test, n)};
  }
  const std::vector<Document> documents = documents_of(text);
  const int64_t n = std::ssize(documents);
  SINTER_CHECK(n >= 3, data,
      str("text: too few lines: ", name, " has ", n,
          " that are not empty, at least 3: to train on, held out, and of the test"),
      "--stream reads all of it as one text");
  std::vector<std::vector<int32_t>> encoded, all;
  int64_t cut = 0;
  for (const Document& document : documents) {
    encoded.push_back(vocabulary_.encode(document.text, name, document.line));
    cut += std::ssize(encoded.back()) + 1 > model.context;
  }
  for (const int32_t i : epoch_order(n, kSplitSeed, 0))
    all.push_back(std::move(encoded[size_t(i)]));
  SINTER_CHECK(model.context <= kMostBytes / n, usage,
      str("usage: --context ", model.context, ": each of ", grouped(n), " ", rows().first,
          " is padded to it, which makes ", grouped(n * model.context), " places, at most ",
          grouped(kMostBytes)),
      "no more than the longest has");
  if (cut > 0) {
    loading.out.note("note", "{} of {} {} are longer than --context {}: what is behind is not read",
        grouped(cut), grouped(n), rows().first, model.context);
  }
  const auto [val, test] = parts_of_set(n);
  const auto lines = [&](int64_t begin, int64_t end) {
    return token_rows({all.begin() + begin, all.begin() + end}, vocabulary_, model.context);
  };
  return {lines(0, val), val < test ? lines(val, test) : Tensors{}, lines(test, n)};
}

// Behind a line labels count nothing. Even lengths are half as many steps to capture.
std::function<Tensors(const Tensors&)> GptJob::then() const {
  if (!cut_) return {};
  return [](const Tensors& batch) {
    const std::vector<int32_t> labels = batch[1].to_vector<int32_t>();
    const int64_t places = batch[1].size(1);
    int64_t longest = 1;
    for (int64_t i = 0; i < std::ssize(labels); ++i) {
      if (labels[size_t(i)] != kIgnoredLabel) longest = std::max(longest, i % places + 1);
    }
    const int64_t end = std::min(places, longest + longest % 2);
    return Tensors{contiguous(slice(batch[0], 1, 0, end)), contiguous(slice(batch[1], 1, 0, end))};
  };
}

std::vector<std::string> GptJob::training_names() const {
  const std::vector<std::string> names = built_in_names();
  const std::vector<int32_t> order = epoch_order(std::ssize(names), kSplitSeed, 0);
  std::vector<std::string> out;
  for (int64_t i = 0; i < parts_of_set(std::ssize(names))[0]; ++i)
    out.push_back(names[size_t(order[size_t(i)])]);
  return out;
}

std::shared_ptr<nn::Module> GptJob::make_model(Device device) { return make_gpt(device); }

std::shared_ptr<Gpt> GptJob::make_gpt(Device device) const {
  auto made = std::make_shared<Gpt>(vocabulary_.size(), model, flags.common->seed);
  if (dtype_ == "bf16") made->enable_bf16();
  made->to(device);
  if (saved_) nn::load_state_dict(*made, saved_->second.tensors, {.source = saved_->first});
  return made;
}

std::function<Tensor(const Tensor&, const Tensor&)> GptJob::loss() const {
  // Only documents are padded.
  const auto ignored = stream_ ? std::nullopt : std::optional<int64_t>(kIgnoredLabel);
  return [ignored](const Tensor& logits, const Tensor& labels) {
    return cross_entropy(reshape(logits, {-1, logits.size(2)}), reshape(labels, {-1}), 0, ignored);
  };
}

void GptJob::set_groups(nn::Optimizer& optimizer) const {
  if (std::ranges::any_of(optimizer.parameters(), nn::is_vector))
    optimizer.set_weight_decay(0, nn::is_vector);
}

Tensor GptJob::score(const Tensor& output, const Tensor& target) const {
  return scale(loss()(output, target), 1 / std::numbers::ln2);
}

cli::Evaluated GptJob::evaluate(
    nn::Module& model_to_read, cli::Set set, int64_t most, Communicator* ranks) {
  cli::Evaluated e = TensorJob::evaluate(model_to_read, set, most, ranks);
  const std::string rest =
      fmt::format("loss {}  perplexity {:.3g}", cli::loss(e.loss), std::exp(e.loss));
  e.metric_text = fmt::format("{} bits  {}", e.metric_text, rest);
  e.text = fmt::format("{} a {}", e.metric_text, is_bytes() ? "byte" : "letter");
  e.json["perplexity"] = std::exp(e.loss);
  return e;
}

void GptJob::show(nn::Module& trained, cli::Output& out) {
  SampleOptions options{.seed = flags.common->seed};
  if (stream_) {
    options.count = 1;
    options.letters = 300;
  }
  if (built_in()) options.count = 1000;
  std::vector<std::string> samples =
      sample(dynamic_cast<Gpt&>(trained), vocabulary_, model.context, options);
  if (built_in() && !samples.empty())
    out.result("rules", count_names(samples, training_names()).text());
  samples.resize(std::min<size_t>(samples.size(), 10));
  out.result_text("\n" + printable(samples) + "\n");
}

std::string GptJob::saved_config() {
  cli::CommonFlags common;
  GptJob saved(common);
  return from_.empty() ? "" : read(from_, saved);
}

std::string GptJob::read(const std::string& run_or_file, GptJob& saved) {
  const std::string path =
      cli::find_checkpoint(run_or_file, {cli::kModelFile, cli::kBestFile, cli::kLastFile});
  nn::SafetensorsFile file = nn::read_safetensors(path);
  const auto config = file.metadata.find("sinter.config");
  SINTER_CHECK(config != file.metadata.end(), checkpoint,
      str("checkpoint: no sinter.config in ", shown(path),
          ": which letters and layers the model has is not known"),
      "gpt train writes it with the weights");
  std::erase_if(file.tensors, [](const auto& t) { return t.name.starts_with("sinter."); });
  const std::string flags_of_run =
      cli::saved_flags(config->second, shown(path), saved).config("train");
  saved_.emplace(path, std::move(file));
  return flags_of_run;
}

std::shared_ptr<Gpt> GptJob::open(const std::string& run_or_file, Device device, cli::Output& out) {
  cli::CommonFlags common;
  GptJob saved(common);
  read(run_or_file, saved);
  model = saved.model;
  symbols_ = saved.symbols_;
  stream_ = saved.stream_;
  val_ = saved.val_;
  dtype_ = saved.dtype_;
  letters_ = saved.letters_;
  crc_ = saved.crc_;
  if (file_.empty()) file_ = saved.file_;
  vocabulary_ = Vocabulary(letters_, is_bytes(), !stream_);
  auto made = make_gpt(device);
  made->eval();
  for (const std::string& note : saved_->second.notes) out.note("note", note);
  out.note("model", "{}   {}", describe(), escaped(saved_->first));
  return made;
}

std::unique_ptr<cli::Job> make_job(cli::CommonFlags& common) {
  return std::make_unique<GptJob>(common);
}

}  // namespace sinter::gpt
