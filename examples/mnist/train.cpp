// mnist train: the run around the training step: data, model, threads, epochs, saving, signals, and
// the report.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "autograd/autograd.h"
#include "capture/explain.h"
#include "capture/measure.h"
#include "core/atomic_file.h"
#include "core/device/cpu_gemm.h"
#include "core/device/memory.h"
#include "core/parallel.h"
#include "examples/cli/messages.h"
#include "examples/cli/progress.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/evaluate.h"
#include "examples/mnist/model_file.h"
#include "examples/mnist/resume.h"
#include "examples/mnist/run_folder.h"
#include "examples/mnist/run_log.h"
#include "examples/mnist/trainer.h"
#include "measure/ledger.h"
#include "nn/state_dict.h"
#include "profiler/exports.h"
#include "profiler/session.h"

namespace sinter::mnist {
namespace {

constexpr const char *kModel = "model.safetensors", *kBest = "best.safetensors",
                     *kLast = "last.safetensors";

// Runs while training does: not during evaluation and saving.
class Stopwatch {
 public:
  void start() { begin_ = Clock::now(); }
  void stop() { sum_ += Clock::now() - begin_; }
  double seconds() const { return std::chrono::duration<double>(sum_).count(); }
  double running_seconds() const {
    return std::chrono::duration<double>(sum_ + (Clock::now() - begin_)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
  Clock::duration sum_{};
};

class Run {
 public:
  Run(TrainFlags& flags, const cli::Flags& all_flags, const Resumed* resumed, cli::Output& out)
      : flags_(flags), all_flags_(all_flags), resumed_(resumed), out_(out), progress_(out) {}
  int train();

 private:
  void set_up();
  void note_sizes();
  void take_folder();
  void go_on();
  bool epoch_is_over() const { return at_.batch == per_epoch_ || at_.step == steps_; }
  bool lost_patience() const {
    return flags_.optimizer.patience > 0 && at_.patience >= flags_.optimizer.patience;
  }
  void train_steps();
  void one_step();
  void end_epoch();
  void check_finite(const StepState& state) const;
  std::string smaller_lr() const;
  void look_at_loss();
  void save_weights(const char* name);
  void save_all(bool planned);
  void link_once();
  void warn(const std::string& text);
  int overfit_batch();
  int dry_run();
  Evaluation evaluate_on(const Split& split);
  std::string position(int64_t step) const;
  void start_profile();
  void profile_step(std::chrono::steady_clock::time_point begin);
  void end_session();
  void report_profile();
  void report_capture();
  int report();
  int report_interrupted();
  void report_json(const Evaluation* test) const;

  TrainFlags& flags_;
  const cli::Flags& all_flags_;
  const Resumed* resumed_;  // null: a new run
  cli::Output& out_;
  cli::Progress progress_;
  Device device_;
  Dataset data_;
  std::optional<Batches> batches_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<RunFolder> folder_;
  std::optional<RunLog> log_;
  std::unique_ptr<profiler::Session> session_;
  std::optional<profiler::Report> report_;
  std::vector<double> clean_us_;  // steps after the window, as many as it has
  int64_t after_window_ = 0;
  std::string config_;
  Stopwatch time_, epoch_time_, data_wait_;
  int64_t per_epoch_ = 0, steps_ = 0, epochs_ = 0;
  nn::TrainingState at_;     // where the run is
  int64_t first_step_ = 0;   // of this process
  int64_t saved_step_ = -1;  // of the newest checkpoint
  bool linked_ = false;
};

int Run::train() {
  set_up();
  if (flags_.run.dry_run) return dry_run();
  if (flags_.run.overfit_batch) return overfit_batch();
  take_folder();
  start_profile();
  train_steps();
  return cli::interrupted() ? report_interrupted() : report();
}

void Run::set_up() {
  std::string why;
  std::tie(device_, why) = choose_device(flags_.common->device);
  std::optional<SavedModel> init;
  if (!flags_.run.init.empty() && !resumed_) {
    init = read_model(flags_.run.init);
    adopt_model(all_flags_, flags_, *init);
  }
  data_ = load_dataset(flags_.data.options(flags_.model.classes));
  out_.note("data", fmt::format("{}: {}", data_.description, data_.sizes()));
  note_sizes();
  flags_.data.what = data_.place;  // what was found is what the config remembers
  flags_.data.crc32 = fmt::format("{:08x}", data_.crc32);
  at_ = {.data = data_.name,
      .data_crc = data_.crc32,
      .device = device_.str(),
      .mode = flags_.mode.mode,
      .build = build_id()};
  time_.start();
  if (!data_.to(device_)) {
    out_.note("data", fmt::format("too large for {}: a thread of the CPU makes each batch while "
                                  "the step before runs (see data-wait)",
                          device_.str()));
  }
  const OptimizerFlags& optimizer = flags_.optimizer;
  batches_.emplace(data_.train, BatchOptions{.size = optimizer.rows_of_step(),
                                    .seed = flags_.common->seed,
                                    .dtype = flags_.model.batch_dtype(),
                                    .normalize = flags_.data.normalization(),
                                    .device = device_});
  per_epoch_ = batches_->per_epoch();
  steps_ = optimizer.steps ? optimizer.steps : optimizer.epochs * per_epoch_;
  epochs_ = (steps_ + per_epoch_ - 1) / per_epoch_;

  if (!flags_.run.preset.empty()) {
    std::string text = flags_.run.preset + ":";
    for (const cli::Flag& flag : all_flags_.all()) {
      std::string value = flag.source == cli::Source::preset ? flag.get() : flag.standard;
      std::erase(value, '"');
      if (value != flag.standard) text += fmt::format(" {} {}", flag.shown(), value);
    }
    out_.note("preset", text);
  }
  config_ = all_flags_.config("train");
  const auto model = make_model(flags_.model, flags_.common->seed, device_);
  if (init) {
    out_.note("init", fmt::format("{} ({}), normalize {}", escaped(init->path),
                          take_weights(*model, *init), flags_.data.normalize));
  }
  const int64_t parameters = model->num_parameters();
  out_.note("model",
      fmt::format("{}, {} parameters, {}     {} lr {}   batch {}{}   seed {}",
          flags_.model.describe(), cli::grouped(parameters), cli::bytes(parameters * 4),
          optimizer.optimizer, *optimizer.lr, optimizer.batch,
          optimizer.accum > 1 ? fmt::format(" x {}", optimizer.accum) : "", flags_.common->seed));
  out_.detail(model->summary({optimizer.batch, kImagePixels}));
  if (resumed_ && flags_.common->threads == 0)
    flags_.common->threads = resumed_->checkpoint.state.threads;  // after the config was taken
  const std::string threads = choose_threads(flags_, batches_->next());
  at_.threads = num_threads();
  batches_->seek({});
  manual_seed(flags_.common->seed);
  out_.note("device",
      fmt::format("{}{}, {}   {}   mode {}", device_.str(), why.empty() ? "" : " (" + why + ")",
          threads, flags_.model.dtype, flags_.mode.mode));
  out_.detail(fmt::format("matrix products by {}", gemm_backend_name()));
  note_emulator(device_, out_);
#ifndef NDEBUG
  out_.note("note", "this build is made to find errors: times mean little");
#endif
  trainer_ = std::make_unique<Trainer>(flags_, model, steps_,
      resumed_ ? resumed_->checkpoint.state.unfused : std::vector<capture::Refused>{});
  time_.stop();
}

// What was asked of the data and is not so.
void Run::note_sizes() {
  const int64_t n = data_.train.size(), rows = flags_.optimizer.rows_of_step(),
                val = data_.val.size();
  if (rows > n)
    out_.note("note", fmt::format("a step of {} rows is more than the {} images for training: each "
                                  "step takes all of them",
                          cli::grouped(rows), cli::grouped(n)));
  const bool limited = flags_.data.limit > 0 && val == flags_.data.limit;
  if (all_flags_.given("val") && val < flags_.data.val && !limited)
    out_.note(
        "note", fmt::format("--val {}: {} are held out, at most 1/12 of what is there for training",
                    cli::grouped(flags_.data.val), cli::grouped(val)));
}

// The folder is locked before anything in it is believed.
void Run::take_folder() {
  using Take = RunFolder::Take;
  folder_ = resumed_ ? std::make_unique<RunFolder>(resumed_->folder, Take::resume)
                     : std::make_unique<RunFolder>(
                           flags_.run.out, flags_.run.force ? Take::force : Take::fresh);
  if (resumed_) go_on();
  write_file(folder_->file("config.toml"), config_);
  log_.emplace(folder_->name(), at_.epoch + (at_.ended && at_.batch > 0), at_.events);
}

void Run::go_on() {
  const nn::Checkpoint& checkpoint = resumed_->checkpoint;
  const nn::TrainingState now = std::exchange(at_, checkpoint.state);
  const auto refuse = [&](const std::string& what, const std::string& facts,
                          const std::string& hint = "") {
    throw Error(Error::Kind::checkpoint,
        cat("checkpoint: ", what, ": ", checkpoint.path, "; ", facts), hint);
  };
  if (nn::to_json(nn::read_checkpoint(resumed_->file).state) != nn::to_json(at_))
    refuse("changed meanwhile", "another process went on with it");
  if (at_.data_crc != now.data_crc) {
    refuse("cannot resume with other data",
        fmt::format("crc32 of {} was {:08x}, of {} it is {:08x}", escaped(at_.data), at_.data_crc,
            escaped(now.data), now.data_crc),
        at_.data == now.data
            ? "the files have changed since; --init starts a new run from the weights"
            : "without --data and SINTER_DATA the run looks where it found its data");
  }
  if (at_.batch > per_epoch_ || at_.epoch > at_.step ||
      at_.epoch * per_epoch_ + at_.batch != at_.step)
    refuse("damaged", fmt::format("step {} is not batch {} after {} epochs of {}", at_.step,
                          at_.batch, at_.epoch, per_epoch_));

  std::vector<std::string> differences = resumed_->differences;
  const auto compare = [&](const char* what, const auto& was, const auto& is) {
    if (was != is) differences.push_back(cat(what, " was ", was, ", now ", is));
  };
  compare("device", escaped(at_.device), now.device);
  compare("--threads", at_.threads, now.threads);
  compare("the build", escaped(at_.build), now.build);
  for (const std::string& difference : differences)
    out_.note("note", "not bit-identical: " + difference);

  const bool ragged = data_.train.size() % flags_.optimizer.rows_of_step() != 0;
  const int64_t last_batches = ragged ? at_.epoch + (at_.batch == per_epoch_) : 0;
  for (const auto& [batch, calls] :
      {std::pair{int64_t{0}, at_.step - last_batches}, std::pair{per_epoch_ - 1, last_batches}}) {
    batches_->seek({0, batch});
    if (calls > 0) trainer_->rehearse(batches_->next(), calls);
  }
  trainer_->restore(checkpoint);
  batches_->seek(at_.batch == per_epoch_ ? BatchPosition{at_.epoch + 1, 0}
                                         : BatchPosition{at_.epoch, at_.batch});
  at_.device = now.device, at_.mode = now.mode, at_.threads = now.threads, at_.build = now.build;
  first_step_ = saved_step_ = at_.step;
  if (at_.ended && at_.batch > 0 && at_.step < steps_) {
    out_.note("note", fmt::format("the run had ended within epoch {}: what it looked at and saved "
                                  "there stays in its log, and "
                                  "counts for best and --patience",
                          at_.epoch + 1));
  }
  if (at_.step < steps_ && !lost_patience())
    at_.ended = false;  // more steps than before, or more patience
  if (at_.step > steps_) at_.ended = true;
  out_.note("resume",
      at_.ended ? fmt::format("{} is finished: {}; --epochs N or --steps N goes on",
                      escaped(folder_->name()), count_of(at_.step, "step"))
                : fmt::format("{} after step {} of {} (epoch {}, batch {})",
                      escaped(folder_->name()), at_.step, steps_, at_.epoch + 1, at_.batch));
}

void Run::train_steps() {
  std::optional<AnomalyMode> check_nan;
  if (flags_.run.check_nan) check_nan.emplace();
  time_.start();
  epoch_time_ = {};
  epoch_time_.start();
  while (!at_.ended && !cli::interrupted()) {
    if (!epoch_is_over()) one_step();
    const bool over = epoch_is_over(),
               save = flags_.run.save_steps && at_.step % flags_.run.save_steps == 0;
    if (!over && !save) continue;
    time_.stop();
    epoch_time_.stop();
    const profiler::Pause no_step(session_.get());
    if (over) {
      end_epoch();
      epoch_time_ = {};
    } else {
      save_all(true);
    }
    epoch_time_.start();
    time_.start();
  }
  time_.stop();
  progress_.clear();
  if (!at_.ended) return save_all(false);
  if (at_.step < steps_) {
    out_.note("stop", fmt::format("no better val accuracy for {} (--patience): best {:.1f} %",
                          count_of(flags_.optimizer.patience, "epoch"), 100 * at_.best));
  }
}

void Run::one_step() {
  const auto step_begin = std::chrono::steady_clock::now();
  data_wait_.start();
  const Batch batch = [this] {
    const profiler::Scope scope("next_batch", profiler::ScopeKind::data);
    return batches_->next();
  }();
  data_wait_.stop();
  {
    const profiler::Scope scope("train_step");
    trainer_->step(batch);
  }
  if (session_) profile_step(step_begin);
  ++at_.step;
  ++at_.batch;
  const double minutes =
      epoch_time_.running_seconds() * static_cast<double>(steps_ - first_step_) / 60;
  if (at_.step == first_step_ + 1 && device_.type == Device::Type::simt && minutes > 1)
    out_.note(
        "note", fmt::format("simt emulates threads: about {:.0f} min; try --limit 1000 --epochs 1",
                    std::ceil(minutes)));
  if (epoch_is_over() || at_.step % flags_.run.log_every == 0) {
    const profiler::Pause no_step(session_.get());
    look_at_loss();
  }
  if (at_.step == flags_.run.stop_after) cli::interrupt();
  if (epoch_is_over() || !progress_.due()) return;
  const profiler::Pause no_step(session_.get());
  const StepState state = trainer_->state();
  const double seconds = time_.running_seconds(),
               done = static_cast<double>(at_.step - first_step_);
  progress_.show({.epoch = at_.epoch + 1,
      .epochs = epochs_,
      .done = static_cast<double>(at_.batch) / static_cast<double>(per_epoch_),
      .loss = state.loss_sum / static_cast<double>(state.loss_rows),
      .images_per_second = done * static_cast<double>(flags_.optimizer.rows_of_step()) / seconds,
      .data_wait = data_wait_.seconds() / seconds,
      .eta_seconds = seconds / done * static_cast<double>(steps_ - at_.step)});
}

void Run::profile_step(std::chrono::steady_clock::time_point begin) {
  if (!session_->done()) return session_->step();
  const int active = parse_profile_steps(flags_.mode.profile_steps).active;
  // The first is left out: on a device it waits for the window's work.
  if (++after_window_ == 1 || static_cast<int>(clean_us_.size()) >= active) return;
  if (device_ != kCpu) synchronize(device_);
  clean_us_.push_back(
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
}

std::string Run::position(int64_t step) const {
  return fmt::format("step {} (epoch {}, batch {})", step, (step - 1) / per_epoch_ + 1,
      (step - 1) % per_epoch_ + 1);
}

void Run::check_finite(const StepState& state) const {
  if (state.first_bad_step < 0) return;
  const std::string kept = saved_step_ >= 0 ? fmt::format("checkpoint of step {} kept", saved_step_)
                                            : "nothing was saved yet";
  throw Error(Error::Kind::numeric,
      fmt::format("train: loss is {}: {}; last good {:.4g}, lr {:.3g}; {}",
          std::isnan(state.last_loss) ? "nan" : "inf", position(state.first_bad_step + 1),
          state.last_good_loss, trainer_->lr_of(state.first_bad_step), kept),
      fmt::format("--lr {} or --clip 1; {}{}--check-nan {}names the op", smaller_lr(),
          saved_step_ >= 0 ? cat("--resume ", escaped(folder_->name()), " ") : "",
          flags_.mode.mode == "fused" ? "--mode eager " : "",
          saved_step_ >= 0 ? "replays and " : ""));
}

// To be tried where the loss has run away: the optimizer's usual one, or less where it was no
// larger.
std::string Run::smaller_lr() const {
  const double lr = *flags_.optimizer.lr, usual = default_lr(flags_.optimizer.optimizer);
  return lr > 2 * usual ? fmt::format("{} (the default of {})", usual, flags_.optimizer.optimizer)
                        : fmt::format("{:.1g}", lr / 3);
}

// The one place where training reads the loss: every --log-every steps and at the end of an epoch.
void Run::look_at_loss() {
  const StepState state = trainer_->state();
  check_finite(state);
  const double rows = static_cast<double>(state.loss_rows - at_.window_rows);
  const double window = (state.loss_sum - at_.window_loss) / rows,
               chance = std::log(static_cast<double>(flags_.model.classes));
  log_->add({{"step", at_.step}, {"loss", window}, {"lr", trainer_->lr_of(at_.step - 1)}});
  const int64_t before = at_.flat_steps;
  // Steps since the last look: it was at the last multiple of --log-every, or where the epoch
  // began.
  const int64_t steps = std::min(at_.batch, (at_.step - 1) % flags_.run.log_every + 1);
  at_.flat_steps = std::abs(window - chance) < 0.003 ? at_.flat_steps + steps : 0;
  at_.window_loss = state.loss_sum;
  at_.window_rows = state.loss_rows;
  if (before >= 200 || at_.flat_steps < 200) return;
  warn(fmt::format(
      "loss has stayed at {:.3f} = ln({}) for {} steps; check lr, and that labels belong to images",
      window, flags_.model.classes, at_.flat_steps));
}

void Run::warn(const std::string& text) {
  progress_.clear();
  out_.warning(text);
  log_->add({{"step", at_.step}, {"warning", text}});
}

Evaluation Run::evaluate_on(const Split& split) {
  return evaluate(trainer_->model(), split,
      {.batch = flags_.optimizer.eval_batch,
          .dtype = flags_.model.batch_dtype(),
          .normalize = flags_.data.normalization(),
          .classes = flags_.model.classes});
}

// A save is noted before it is done, and the checkpoint says how many notes there are: so a run
// that was cut off between goes on with the lines it should have. What no plan asked for, a save on
// a signal, is not noted.
void Run::save_weights(const char* name) {
  log_->add({{"step", at_.step}, {"saved", name}});
  save_model(folder_->file(name), trainer_->model(), config_);
  link_once();
}

void Run::save_all(bool planned) {
  check_finite(trainer_->state());
  if (planned) log_->add({{"step", at_.step}, {"saved", kLast}});
  at_.events = log_->events();
  if (const capture::Step* step = trainer_->captured_step()) at_.unfused = step->choices();
  nn::save_checkpoint(folder_->file(kLast), trainer_->model(), trainer_->optimizer(), config_, at_);
  saved_step_ = at_.step;
  link_once();
}

void Run::link_once() {
  if (std::exchange(linked_, true)) return;
  if (const std::string problem = folder_->link_last(); !problem.empty()) out_.warning(problem);
}

// Evaluates, notes and saves what the epoch has come to; interrupted, it leaves all that to the run
// that goes on.
void Run::end_epoch() {
  const StepState state = trainer_->state();
  EpochRow row{.number = at_.epoch + 1,
      .step = at_.step,
      .loss = state.loss_sum / static_cast<double>(state.loss_rows),
      .val_accuracy = NAN,
      .val_loss = NAN,
      .lr = trainer_->lr_of(at_.step - 1),
      .seconds = epoch_time_.seconds()};
  std::string val;
  bool best = false;
  const int64_t every = flags_.run.save_every;
  if (data_.val.size() > 0) {
    const Evaluation e = evaluate_on(data_.val);
    if (!e.complete) return;
    row.val_accuracy = e.accuracy();
    row.val_loss = e.loss();
    val = "  val " + cli::proportion(e.correct, e.images);
    ++at_.patience;
    if (e.accuracy() > at_.best) {
      at_.best = e.accuracy();
      at_.patience = 0;
      best = every > 0;
      if (best) save_weights(kBest);
    }
  }
  const bool ends = at_.step == steps_ || lost_patience();
  log_->add(row);
  log_->add({{"step", at_.step}, {"epoch", row.number}, {"loss", row.loss},
      {"val_accuracy", row.val_accuracy}});
  if (const double chance = std::log(static_cast<double>(flags_.model.classes));
      row.loss > 10 * chance) {
    warn(
        fmt::format("the loss of epoch {} is {:.3g}, and guessing has ln({}) = {:.3f}: training "
                    "diverges; try --lr {}",
            row.number, row.loss, flags_.model.classes, chance, smaller_lr()));
  }
  if (ends) save_weights(kModel);
  at_.ended = ends;
  if (at_.batch ==
      per_epoch_) {  // else the run ends within an epoch, which more steps would go on with
    ++at_.epoch;
    at_.batch = 0;
    at_.window_loss = 0;
    at_.window_rows = 0;
    trainer_->reset_loss();
  }
  const bool planned = ends || (every > 0 && row.number % every == 0) ||
                       (flags_.run.save_steps && at_.step % flags_.run.save_steps == 0);
  if (planned) save_all(true);
  progress_.clear();
  out_.note(fmt::format("epoch {}/{}", row.number, epochs_),
      fmt::format(" loss {:.4f}{}  {}{}", row.loss, val, cli::seconds(row.seconds),
          planned ? best ? "  saved, best" : "  saved"
          : best  ? "  best"
                  : ""));
}

void Run::start_profile() {
  if (flags_.mode.profile.empty()) return;
  const auto [wait, warmup, active, repeat] = parse_profile_steps(flags_.mode.profile_steps);
  SINTER_CHECK(steps_ - at_.step > wait + warmup, usage,
      cat("usage: --profile-steps ", flags_.mode.profile_steps, " records nothing: the run has ",
          steps_ - at_.step, " steps, wanted ", wait + warmup + 1, " at least"),
      cat("--profile-steps 0:0:", steps_ - at_.step, " records them all"));
  const bool fused = flags_.mode.mode == "fused", cuda = device_.type == Device::Type::cuda;
  int64_t resident = 0;  // parameters and gradients, optimizer state, the batch
  for (const auto& [name, p] : trainer_->model().named_parameters())
    resident += 2 * p.numel() * static_cast<int64_t>(size_of(p.dtype()));
  for (const auto& [name, t] : trainer_->optimizer().state_tensors())
    resident += t.numel() * static_cast<int64_t>(size_of(t.dtype()));
  resident += flags_.optimizer.batch * kImagePixels *
              static_cast<int64_t>(size_of(flags_.model.batch_dtype()));
  const std::string type = cuda ? "CUDA" : device_ == kCpu ? "CPU" : device_.str();
  session_ = std::make_unique<profiler::Session>(profiler::Options{
      .schedule = {.wait = wait, .warmup = warmup, .active = active, .repeat = repeat},
      .title = type + " " + flags_.mode.mode,
      .threads = num_threads(),
      .device = device_,
      .mode = flags_.mode.mode,
      .rules = fused ? flags_.mode.rules : "",
      .dtype = flags_.model.dtype,
      .replayed = fused && cuda,
      .roofs = cli::roofs_for(device_, out_),
      .resident_bytes = resident});
}

// What follows is no part of a step.
void Run::end_session() {
  const ProfileSteps steps = parse_profile_steps(flags_.mode.profile_steps);
  if (!session_ || report_ || at_.step - first_step_ <= steps.wait + steps.warmup) return;
  report_ = session_->finish();
  report_->clean_us = clean_us_;
}

// Files and table. After the results of the run: a full disk is not to cost them.
void Run::report_profile() {
  if (!report_) return;
  const capture::Captured* captured =
      trainer_->captured_step() ? trainer_->captured_step()->captured() : nullptr;
  if (captured && report_->replayed) report_->nodes = measure::describe_nodes(*captured);
  cli::check_roofs(*report_, out_);
  const profiler::Exports files{
      folder_->file("profile"), profiler::parse_formats(flags_.mode.profile, "usage: --profile")};
  const std::string table = report_->table(flags_.mode.view.table);
  const std::vector<std::string> said = files.write({&*report_, 1},
      {flags_.model.describe() + ", " + flags_.optimizer.optimizer, flags_.common->command,
          cli::build_name(), std::to_string(flags_.common->seed), flags_.optimizer.batch},
      table);
  for (const std::string& text : said) out_.note("profile", text);
  std::string shown = files.has("table") || flags_.mode.view.guess ? "\n" + table : "";
  if (flags_.mode.view.guess) shown = "\n" + cli::guess(*report_, out_) + shown;
  if (!shown.empty()) out_.result_text(shown);
}

// Of mode fused: what the capture did. --dump-graph also in mode eager and in a run too short for a
// capture, by a scratch capture of the same step.
void Run::report_capture() {
  const ModeFlags& mode = flags_.mode;
  std::optional<Trainer> scratch;
  const bool fused = trainer_->captured_step() != nullptr,
             captured_one = fused && trainer_->captured_step()->captured();
  if (fused && !captured_one) {
    out_.note("capture", fmt::format("none: the first two steps of a shape are recorded as they "
                                     "run eagerly; this run had {}",
                             count_of(at_.step, "step")));
  }
  if (!captured_one && (!mode.dump_graph.empty() || mode.explain)) {
    TrainFlags flags = flags_;
    flags.mode.mode = "fused";
    if (!fused) flags.mode.rules = "none";
    scratch.emplace(flags, make_model(flags.model, flags.common->seed, device_), 2);
    const Batch batch = batches_->next();
    for (int i = 0; i < 2; ++i) scratch->step(batch);
  }
  const capture::Step* step = scratch ? scratch->captured_step() : trainer_->captured_step();
  const capture::Captured* captured = step ? step->captured() : nullptr;
  if (!captured) return;
  if (!mode.dump_graph.empty()) cli::write_graph(mode.dump_graph, captured->fused.graph);
  if (mode.explain)
    out_.result_text("\n" + capture::explain(*captured, capture::RuleSet(mode.rules)));
  if (scratch) return;
  const auto kept = std::count_if(captured->fused.groups.begin(), captured->fused.groups.end(),
      [](const capture::Group& g) { return g.kept_unfused; });
  const capture::StepStats& stats = step->stats();
  out_.note(
      "capture", fmt::format("{} launches -> {} (rules {}), shape-specialised, {} in {}, {} of {} "
                             "replayed, {} per replay",
                     captured->recorded.nodes.size(), captured->executor->launches(), mode.rules,
                     count_of(stats.captures, "capture"), cli::seconds(stats.capture_ms * 1e-3),
                     cli::grouped(stats.replays), count_of(stats.calls, "step"),
                     count_of(trainer_->allocations_per_replay(), "allocation")));
  if (kept) {
    out_.note("note", fmt::format("fused: {} of {} kept unfused, not faster here{}", kept,
                          count_of(static_cast<int64_t>(captured->fused.groups.size()), "group"),
                          mode.explain ? "" : " (--explain; --measure off fuses all)"));
  }
  if (const int64_t open = capture::not_judged(captured->fused); open > 0)
    out_.note("note", fmt::format("measure: the machine is too busy to judge {}: fused",
                          count_of(open, "group")));
  for (const std::string& miss : stats.misses) out_.note("note", miss);
}

int Run::report() {
  end_session();
  const Evaluation test = evaluate_on(data_.test);
  if (!test.complete) return report_interrupted();
  const std::optional<double> target = flags_.run.target_acc;
  const bool reached = !target || 100 * test.accuracy() >= *target;
  out_.result("test", test.summary() + (target ? fmt::format("   target {} %: {}", *target,
                                                     reached ? "reached" : "missed")
                                               : ""));
  out_.result("time", fmt::format("{} of training, {}     run {}", cli::seconds(time_.seconds()),
                          count_of(at_.step, "step"), escaped(folder_->name())));
  report_json(&test);
  report_profile();
  report_capture();
  if (report_) {
    cli::Measured measured{.only = &*report_};
    if (const profiler::Estimate clean = profiler::median_interval(report_->clean_us);
        clean.has_interval) {
      measured.distortion = report_->distortion();
      measured.noise = 100 * clean.noise();
    }
    cli::judge("train", flags_.mode.view, measured);
  }
  SINTER_CHECK(reached, check,
      fmt::format("train: target missed: test accuracy {:.2f} %, --target-acc {}",
          100 * test.accuracy(), *target));
  out_.note("next",
      "mnist predict --index 0, mnist predict FILE.png, mnist compare, mnist train --mode fused");
  return 0;
}

int Run::report_interrupted() {
  end_session();
  out_.note("stop", fmt::format("interrupted after {}: {} saved; mnist train --resume {} goes on",
                        position(std::max<int64_t>(at_.step, 1)), kLast, escaped(folder_->name())));
  out_.result("time",
      fmt::format("{} of training, {} of {} steps     run {}", cli::seconds(time_.seconds()),
          cli::grouped(at_.step), cli::grouped(steps_), escaped(folder_->name())));
  report_json(nullptr);
  report_profile();
  return cli::exit_code(Error::Kind::interrupted);
}

void Run::report_json(const Evaluation* test) const {
  nlohmann::ordered_json object = {
      {"schema", "sinter.train/1"}, {"run", folder_->name()}, {"interrupted", test == nullptr}};
  if (test) {
    object["test"] = nlohmann::ordered_json::object();
    add_json(object["test"], *test);
  }
  object["train_seconds"] = time_.seconds();
  object["data_wait_seconds"] = data_wait_.seconds();
  object["steps"] = at_.step;
  object["data"] = {{"name", data_.name}, {"train", data_.train.size()}, {"val", data_.val.size()},
      {"test", data_.test.size()}};
  object["model"] = {{"name", flags_.model.describe()},
      {"parameters", trainer_->model().num_parameters()}, {"dtype", flags_.model.dtype}};
  object["optimizer"] = {{"name", flags_.optimizer.optimizer}, {"lr", *flags_.optimizer.lr},
      {"batch_size", flags_.optimizer.batch}};
  object["seed"] = std::to_string(flags_.common->seed);
  object["device"] = device_.str();
  object["threads"] = num_threads();
  object["mode"] = flags_.mode.mode;
  object["epochs"] = nlohmann::ordered_json::array();
  for (const EpochRow& e : log_->rows())
    object["epochs"].push_back(
        {{"epoch", e.number}, {"step", e.step}, {"loss", e.loss}, {"val_accuracy", e.val_accuracy},
            {"val_loss", e.val_loss}, {"lr", e.lr}, {"seconds", e.seconds}});
  out_.json(object);
}

int Run::dry_run() {
  // Fused, two steps are recorded, then one is replayed.
  const int64_t steps = flags_.mode.mode == "fused" ? 3 : 1;
  const Batch batch = batches_->next();
  for (int64_t i = 0; i < steps; ++i) trainer_->step(batch);
  const int64_t n = std::min(flags_.optimizer.eval_batch, data_.test.size());
  const Evaluation e = evaluate_on(slice(data_.test, 0, n));
  out_.result(
      "dry run", fmt::format("{}: loss {:.4f}; {} test images: accuracy {}; nothing was written",
                     count_of(steps, "step"), trainer_->state().last_loss, n,
                     cli::proportion(e.correct, e.images)));
  report_capture();
  out_.json({{"schema", "sinter.dry-run/1"}, {"loss", trainer_->state().last_loss}, {"images", n},
      {"accuracy", e.accuracy()}});
  return 0;
}

int Run::overfit_batch() {
  constexpr int kSteps = 500;
  constexpr double kWanted = 0.01;
  const Batch batch = batches_->next();
  StepState state;
  int steps = 0;
  do {
    trainer_->step(batch);
    state = trainer_->state();
  } while (++steps < kSteps && !(state.last_loss < kWanted) && !cli::interrupted());
  out_.result("overfit", fmt::format("loss {:.4f} on one batch of {} after {} steps",
                             state.last_loss, batch.labels.numel(), steps));
  out_.json({{"schema", "sinter.overfit-batch/1"}, {"loss", state.last_loss}, {"steps", steps}});
  if (cli::interrupted()) return cli::exit_code(Error::Kind::interrupted);
  SINTER_CHECK(state.last_loss < kWanted, check,
      fmt::format("train: one batch cannot be learnt: loss {:.4g} after {} steps, wanted < {}",
          state.last_loss, steps, kWanted),
      "another --lr, or a mistake in the model");
  return 0;
}

}  // namespace

void add_train(cli::App& app) {
  static TrainFlags flags;
  flags.common = &app.common();
  cli::Command& command = app.add(
      "train", "Trains a model on handwritten digits, tests it and saves it in a run folder.");
  add_train_flags(command.flags, flags);
  command.preset = &flags.run.preset;
  command.presets["fast98"] = [&app] { return fast98(app.common()); };
  static std::optional<Resumed> resumed;
  command.check = [&command] {
    flags.run.resume.empty() ? resolve(command.flags, flags)
                             : void(resumed = open_resumed(command.flags, flags));
  };
  command.run = [&command](cli::Output& out) {
    cli::catch_signals();
    return Run(flags, command.flags, resumed ? &*resumed : nullptr, out).train();
  };
}

}  // namespace sinter::mnist
