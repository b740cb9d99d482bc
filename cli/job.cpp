#include "cli/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "cli/process.h"
#include "core/crc32.h"
#include "core/parallel.h"
#include "nn/optim.h"
#include "nn/safetensors.h"
#include "nn/state_dict.h"
#include "ops/ops.h"
#include "ops/product/gemm_library.h"

namespace sinter::cli {
namespace {

std::unique_ptr<nn::Optimizer> make_optimizer(
    const OptimizerFlags& flags, const nn::Module& model) {
  const nn::OptimizerChoice& choice = nn::optimizer_named(flags.optimizer);
  return choice.make(model.named_parameters(), flags.lr.value(),
      flags.weight_decay.value_or(choice.weight_decay), flags.momentum,
      flags.betas.empty() ? choice.betas : nn::Betas{flags.betas[0], flags.betas[1]});
}

}  // namespace

std::string Job::workload() const {
  const OptimizerFlags& optimizer = flags.optimizer;
  return str(describe(), ", ", optimizer.optimizer,
      optimizer.accum > 1 ? str(" in parts of ", optimizer.batch) : "");
}

std::vector<std::string> Job::preset_names() const {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return names;
}

Preset Job::preset_named(const std::string& name) const {
  const std::vector<Preset> all = presets();
  return *std::ranges::find(all, name, &Preset::name);
}

Tensors Job::first_batch() {
  BatchSource& source = batches();
  source.seek({});
  Tensors batch = source.take().tensors;
  source.seek({});
  return batch;
}

std::string Job::take_weights(nn::Module& model, const std::string& file) {
  nn::NamedTensors weights;
  for (nn::NamedTensor& item : nn::read_safetensors(file).tensors) {
    if (!item.name.starts_with("sinter.")) weights.push_back(std::move(item));
  }
  return str(escaped(file), " (", nn::load_state_dict(model, weights, {.source = file}), ")");
}

std::unique_ptr<Trainer> Job::make_trainer(
    const TrainFlags& by, Device device, int64_t steps, std::vector<capture::Refused> choices) {
  return make_trainer(by, make_model(device), steps, std::move(choices));
}

std::unique_ptr<Trainer> Job::make_trainer(const TrainFlags& by, std::shared_ptr<nn::Module> model,
    int64_t steps, std::vector<capture::Refused> choices) {
  set_allow_tf32(dtype() == "tf32");
  const OptimizerFlags& optimizer = by.optimizer;
  auto made = make_optimizer(optimizer, *model);
  set_groups(*made);
  return std::make_unique<Trainer>(std::move(model), std::move(made),
      TrainerOptions{.loss = loss(),
          .fused = by.mode.mode == "fused",
          .capture = {.rules = capture::RuleSet(by.mode.rules),
              .measure = by.mode.measures(),
              .choices = std::move(choices)},
          .schedule = optimizer.schedule_of(steps),
          .clip = optimizer.clip,
          .part = optimizer.accum > 1 ? optimizer.batch : 0});
}

std::string Job::choose_threads(const Tensors& batch) {
  const Device device = batch[0].device();
  const std::string work = fmt::format("{}, rows {}{}, {}", describe(), batch[0].shape().str(),
      flags.optimizer.accum > 1 ? str(" in parts of ", flags.optimizer.batch) : "", dtype());
  return cli::choose_threads(flags.common->threads, device, work, [&] {
    TrainFlags eager = flags;
    eager.mode.mode = "eager";
    const std::shared_ptr<Trainer> scratch = make_trainer(eager, device, 1000);
    return [scratch, &batch] { scratch->step(batch); };
  });
}

void add_step_flags(Command& command, Job& job) {
  Flags& to = command.flags;
  const size_t others = to.all().size();
  job.add_flags(to, Use::step);
  add_step_flags(to, job.flags.optimizer);
  job.add_loss_flags(to);
  std::set<std::string_view> of_step;
  for (size_t i = others; i < to.all().size(); ++i) of_step.insert(to.all()[i].name);
  to.topic("run");
  add_preset_flag(to, job);
  command.preset = [&command, &job, of_step] {
    const std::string &preset = job.flags.run.preset, saved = job.saved_config();
    SINTER_CHECK(preset.empty() || saved.empty(), usage,
        "usage: --preset and --from exclude each other: both are given");
    std::string out = str("[", command.name, "]\n");
    const std::string text = preset.empty() ? saved : job.preset(preset);
    for (const std::string_view line : parts_of(text, "\n")) {
      if (of_step.contains(line.substr(0, line.find_first_of(" =")))) out += str(line, "\n");
    }
    return out;
  };
}

void add_preset_flag(Flags& to, Job& job) {
  if (!job.presets().empty())
    not_saved(to.choice("preset", job.flags.run.preset, job.preset_names(), job.preset_help()));
}

void add_recipe_flags(Flags& to, Job& job) {
  job.add_flags(to, Use::run);
  for (Flag& flag : to.all())
    flag.kept = flag.saved && !flag.global && !flag.place ? Kept::yes : Kept::no;
  add_epoch_flags(to, job.flags.optimizer, job.metric());
  const size_t of_step = to.all().size();
  add_step_flags(to, job.flags.optimizer);
  job.add_loss_flags(to);
  add_eval_flag(to, job.flags.optimizer);
  for (size_t i = of_step; i < to.all().size(); ++i) to.all()[i].kept = Kept::or_said;
  for (const char* name : {"seed", "batch-size", "accum", "optimizer"})
    to.find(name)->kept = Kept::yes;
}

void add_run_flags(Flags& to, Job& job) {
  add_recipe_flags(to, job);
  add_mode_flags(to, job.flags.mode);
  for (const char* name : {"mode", "rules", "measure"}) to.find(name)->kept = Kept::or_said;
  to.topic("run");
  add_preset_flag(to, job);
  add_folder_flags(to, job.flags.run, job.metric());
}

void check_flags(const Flags& given, Job& job, Use use) {
  if (use == Use::run && given.first_wins("epochs", "steps")) job.flags.optimizer.steps.reset();
  job.check(given, use);
  resolve_optimizer(given, job.flags.optimizer);
}

void apply_saved_config(const std::string& config, const std::string& file, Flags& flags) {
  constexpr size_t kMaxConfig = 1 << 16;
  try {
    SINTER_CHECK(config.size() <= kMaxConfig, usage,
        str("it has ", config.size(), " bytes, at most ", kMaxConfig));
    apply_config(config, "sinter.config", flags, "train", {"train"}, Source::checkpoint);
  } catch (const Error& error) {
    // Of an unknown key not what is known in its place.
    std::string said = error.message();
    if (said.starts_with("usage: unknown key")) said.resize(std::min(said.find("; "), said.size()));
    throw Error(Error::Kind::checkpoint,
        str("checkpoint: not one of ", program_name(), ": ", file,
            "; its sinter.config is another program's, or damaged: ", said),
        "the program that wrote it reads it");
  }
}

Flags saved_flags(const std::string& config, const std::string& file, Job& job) {
  Flags flags;
  add_common_flags(flags, *job.flags.common);
  add_run_flags(flags, job);
  apply_saved_config(config, file, flags);
  return flags;
}

std::string find_checkpoint(
    const std::string& run_or_file, std::initializer_list<const char*> names) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string shown = sinter::shown(run_or_file),
                    hint = str(program_name(),
                        " train makes one; another RUN or FILE.safetensors can be named");
  const fs::file_status status = fs::status(run_or_file, error);
  SINTER_CHECK(fs::exists(status), checkpoint, str("checkpoint: nothing there: ", shown), hint);
  if (!fs::is_directory(status)) return run_or_file;
  for (const char* name : names) {
    if (const fs::path path = fs::path(run_or_file) / name; fs::exists(path, error))
      return path.string();
  }
  throw Error(Error::Kind::checkpoint,
      str("checkpoint: no model in the folder: ", shown, "; looked for ", join(names)), hint);
}

Tensors load_first_batch(Job& job, const Flags& given, Device device, Output& out) {
  const Loading loading{.device = device, .given = given, .use = Use::step, .out = out};
  job.load(loading);
  job.make_batches(loading);
  return job.first_batch();
}

Tensors load_batch(Job& job, const Flags& given, Output& out) {
  const Device device = choose_device(job.flags.common->device).first;
  const Tensors batch = load_first_batch(job, given, device, out);
  const int64_t rows = job.flags.optimizer.rows_of_step(), found = batch[0].size(0);
  if (found < rows) {
    out.note(
        "note", "a batch of {} rows was asked for; the set has {}", grouped(rows), grouped(found));
  }
  note_emulator(device, out);
  const std::string threads = job.choose_threads(batch);
  if (device == kCpu) out.note("threads", threads);
  manual_seed(job.flags.common->seed);
  return batch;
}

// ---- TensorJob

namespace {

int64_t rows_in(const Tensors& set) { return set.empty() ? 0 : set[0].size(0); }

double sum_of(const Tensor& numbers) {
  double sum = 0;
  for (const double x : numbers.to_vector<double>()) sum += x;
  return sum;
}

// How many of the losses count.
double counted(const Tensor& losses) {
  const Tensor& of = losses.autograd().counted;
  return of.defined() ? of.item() : double(losses.numel());
}

}  // namespace

void TensorJob::load(const Loading& loading) {
  sets_ = make_sets(loading);
  uint32_t crc = 0;
  for (Tensors* set : {&sets_.train, &sets_.val, &sets_.test}) {
    for (Tensor& t : *set) {
      t = contiguous(t.to(kCpu));
      crc = crc32(t.raw(), size_t(t.numel()) * size_of(t.dtype()), crc);
    }
  }
  for (const auto& [set, use] :
      {std::pair{&sets_.train, "train"}, {&sets_.val, "val"}, {&sets_.test, "test"}}) {
    std::vector<std::string> found;
    for (const Tensor& t : *set) found.push_back(t.describe());
    const bool pair = set->size() == 2 && rows_in(*set) == (*set)[1].size(0);
    SINTER_CHECK(pair || set->empty(), data,
        str("data: set ", use, " is {", join(found), "}; wanted {x, target} with as many rows"),
        "make_sets() of the job gives them");
    SINTER_CHECK(rows_in(*set) > 0 || set == &sets_.val, data,
        str("data: no rows to ", use, " on: the set has none"));
  }
  facts_ = {data_name(), crc, rows_in(sets_.train), rows_in(sets_.val), rows_in(sets_.test)};
  loading.out.note("data", "{}: {} {}, of which {} val, {} test", facts_.name,
      grouped(facts_.train + facts_.val + facts_.test), rows().first, grouped(facts_.val),
      grouped(facts_.test));
}

void TensorJob::make_batches(const Loading& loading) {
  device_ = loading.device;
  batches_.emplace(sets_.train, TensorBatchOptions{.size = flags.optimizer.rows_of_step(),
                                    .seed = flags.common->seed,
                                    .device = device_,
                                    .then = then()});
}

Evaluated TensorJob::evaluate(nn::Module& model, Set set, int64_t most, Communicator* ranks) {
  const NoGrad no_grad;
  const nn::EvalMode evaluation_mode(model);
  const Tensors& all = set == Set::val ? sets_.val : sets_.test;
  const int64_t n = std::min(rows_in(all), most);
  const RowRange own = ranks ? rows_of_rank(n, ranks->rank(), ranks->size()) : RowRange{0, n};
  const auto of_loss = loss();
  double loss_sum = 0, score_sum = 0, numbers = 0, ended = 0;
  for (int64_t row = own.begin; row < own.end; row += flags.optimizer.eval_batch) {
    if (interrupted()) {
      ended = 1;
      break;
    }
    const int64_t end = std::min(own.end, row + flags.optimizer.eval_batch);
    const Tensor output = model(slice(all[0], 0, row, end).to(device_)),
                 target = slice(all[1], 0, row, end).to(device_);
    const Tensor losses = of_loss(output, target), scores = score(output, target);
    check_each_row("loss", losses, end - row);
    check_each_row("score", scores, losses.numel());
    loss_sum += sum_of(losses);
    score_sum += sum_of(scores);
    numbers += counted(losses);
  }
  for (double* sum : {&loss_sum, &score_sum, &numbers, &ended}) {
    if (ranks) *sum = ranks->sum(*sum);
  }
  Evaluated e{.metric = score_sum / numbers, .loss = loss_sum / numbers, .rows = n};
  e.complete = ended == 0;
  const Metric metric = this->metric();
  e.metric_text = metric.text(e.metric);
  e.text = fmt::format("{} {}  loss {}", metric.name, e.metric_text, cli::loss(e.loss));
  e.json = {{rows().first, n}, {metric.name, e.metric}, {"loss", e.loss}};
  return e;
}

}  // namespace sinter::cli
