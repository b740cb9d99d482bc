// What gpt trains, as the commands of cli/ see it.
#pragma once

#include <array>

#include "cli/job.h"
#include "examples/gpt/model.h"
#include "examples/gpt/text.h"
#include "nn/safetensors.h"

namespace sinter::gpt {

class GptJob : public cli::TensorJob {
 public:
  explicit GptJob(cli::CommonFlags& common);
  GptOptions model;

  void add_flags(cli::Flags& to, cli::Use use) override;
  void add_loss_flags(cli::Flags& to) override;
  void check(const cli::Flags& given, cli::Use use) override;
  std::vector<cli::Preset> presets() const override;
  std::string preset_help() const override {
    return "names: a microgpt in 1,000 steps; record: the best after a second; shakespeare: a "
           "nanoGPT of one text; other flags given win";
  }
  std::string saved_config() override;

  std::string name() const override { return "gpt"; }
  std::string describe() const override;
  std::string dtype() const override { return dtype_; }
  cli::Metric metric() const override {
    return {.name = "bits", .decimals = 3, .rises = false, .low = 0};
  }
  std::optional<cli::Guessing> guessing() const override;
  std::pair<std::string, const char*> rows() const override;
  std::string weights() const override { return from_.empty() ? "" : escaped(saved_->first); }
  std::string uses() const override { return "gpt sample --count 10"; }
  std::string opens() const override { return " --from runs/last"; }

  void load(const cli::Loading& loading) override;
  std::shared_ptr<nn::Module> make_model(Device device) override;
  std::function<Tensor(const Tensor&, const Tensor&)> loss() const override;
  double least_loss(const Tensors& batch) const override { return gpt::least_loss(batch); }
  void set_groups(nn::Optimizer& optimizer) const override;
  cli::Evaluated evaluate(
      nn::Module& model, cli::Set set, int64_t most, Communicator* ranks) override;
  void show(nn::Module& model, cli::Output& out) override;

  // A run's model with its weights, to be evaluated or to write: its flags become this job's.
  // Throws checkpoint.
  std::shared_ptr<Gpt> open(const std::string& run_or_file, Device device, cli::Output& out);
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Is the text that of the built-in names?
  bool built_in() const { return file_.empty(); }
  // Of those that were trained on.
  std::vector<std::string> training_names() const;
  void add_text_flag(cli::Flags& to);

 protected:
  std::string data_name() const override;
  Sets make_sets(const cli::Loading& loading) override;
  std::function<Tensors(const Tensors&)> then() const override;
  Tensor score(const Tensor& output, const Tensor& target) const override;

 private:
  // Where of n documents or letters, which are read from the first on, those that are held out
  // begin, and those of the test, which are a tenth, one at least.
  std::array<int64_t, 2> parts_of_set(int64_t n) const;
  std::shared_ptr<Gpt> make_gpt(Device device) const;
  // The weights of a run, and its config, which `saved` takes. Throws checkpoint.
  std::string read(const std::string& run_or_file, GptJob& saved);
  bool is_bytes() const { return symbols_ == "bytes"; }
  std::string file_, symbols_ = "chars", letters_, crc_, dtype_ = "f32", from_;
  std::optional<int64_t> val_;
  bool stream_ = false, cut_ = false;
  Vocabulary vocabulary_;
  std::optional<std::pair<std::string, nn::SafetensorsFile>> saved_;  // where it lies, and weights
};
std::unique_ptr<cli::Job> make_job(cli::CommonFlags& common);

// sample and eval (commands.cpp).
void add_sample(cli::App& app, cli::Command& command);
void add_eval(cli::App& app, cli::Command& command);

}  // namespace sinter::gpt
