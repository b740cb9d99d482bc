#include <filesystem>

#include "examples/mnist/run.h"

namespace sinter::mnist {
namespace {

constexpr const char* kFixed[] = {"model", "hidden", "act", "dropout", "classes", "dtype", "val",
    "limit", "normalize", "augment", "batch-size", "accum", "optimizer", "seed"};
constexpr const char* kSaid[] = {"lr", "momentum", "betas", "weight-decay", "schedule", "lr-warmup",
    "clip", "label-smoothing", "eval-batch-size", "mode", "rules", "measure"};
constexpr const char* kExcluded[] = {"out", "force", "init", "dry-run", "overfit-batch"};

std::string said_of(const Flags& flags, std::string_view name) {
  const std::string value = flags.value(flags[name]);
  return value.empty() ? "not given" : escaped(value);
}

}  // namespace

Resumed open_resumed(Flags& flags, TrainFlags& train) {
  for (const char* name : kExcluded) {
    SINTER_CHECK(flags[name].source != Source::command_line, usage,
        cat("usage: --resume and --", name, " exclude each other: both are given"));
  }
  namespace fs = std::filesystem;
  // Of a run without last.safetensors the others are looked at, to say that they are weights only.
  const std::string file = find_checkpoint(
      train.run.resume, {"last.safetensors", "model.safetensors", "best.safetensors"});
  const fs::path real = fs::canonical(file);  // runs/last is to name the run, not itself
  Resumed out{.folder = fs::proximate(real.parent_path()).string(),
      .file = fs::proximate(real).string(),
      .checkpoint = nn::read_checkpoint(file),
      .differences = {}};
  const nn::Checkpoint& checkpoint = out.checkpoint;

  CommonFlags common;
  TrainFlags then{.common = &common};
  const Flags saved = saved_flags(checkpoint.config, checkpoint.path, then);
  apply_saved_config(checkpoint.config, checkpoint.path, flags);
  resolve(flags, train);
  for (const char* name : kFixed) {
    const std::string was = said_of(saved, name), now = said_of(flags, name);
    SINTER_CHECK(was == now, checkpoint,
        cat("checkpoint: cannot resume with another --", name, ": ", checkpoint.path, " has ", was,
            ", asked ", now));
  }
  std::vector<std::string> said(std::begin(kSaid), std::end(kSaid));
  if (train.optimizer.schedule != "constant") said.insert(said.end(), {"epochs", "steps"});
  for (const std::string& name : said) {
    const std::string was = said_of(saved, name), now = said_of(flags, name);
    if (was != now) out.differences.push_back(cat("--", name, " was ", was, ", now ", now));
  }
  return out;
}

}  // namespace sinter::mnist
