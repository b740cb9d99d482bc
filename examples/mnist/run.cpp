#include "examples/mnist/run.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/classic.h"
#include "core/crc32.h"
#include "core/device/cpu_gemm.h"
#include "core/device/cuda.h"
#include "core/parallel.h"

namespace sinter::mnist {
namespace {

// Of the running program: another one may round otherwise.
std::string build_id() {
  ClassicStream<std::ifstream> self("/proc/self/exe", std::ios::binary);
  std::vector<char> buffer(1 << 20);
  uint32_t crc = 0;
  while (self.read(buffer.data(), std::streamsize(buffer.size())), self.gcount() > 0)
    crc = crc32(buffer.data(), size_t(self.gcount()), crc);
  return fmt::format("{:08x}, {}", crc, gemm_backend_name());
}

}  // namespace

Run::Run(TrainFlags& train_flags, const Flags& flags_given, const Resumed* resumed_run,
    Ranks& ranks_of_run, Output& output)
    : flags(train_flags),
      all_flags(flags_given),
      resumed(resumed_run),
      ranks(ranks_of_run),
      out(output),
      progress(output) {
  std::string why;
  std::tie(device, why) = choose_device(flags.common->device);
  device = ranks.use(device, flags.common->device.starts_with("cuda:"));
  // What the first step would wait for is opened while the data is loaded.
  if (device.type == Device::Type::cuda) {
    const bool convolves = flags.model.net().find("conv") != std::string::npos;
    opens_ = std::jthread([this, convolves] { cuda::warm_up(device.index, convolves); });
  }
  std::optional<SavedModel> init;
  if (!flags.run.init.empty() && !resumed) {
    init = read_model(flags.run.init);
    adopt_model(all_flags, flags, *init);
  }
  data = load_dataset(flags.data.options(flags.model.classes));
  out.note("data", "{}: {}", data.description, data.sizes());
  note_sizes();
  if (init) {
    check_images(*init, data.train.image(), data.name);
    note_split(*init, data, out);
  }
  flags.model.image_size = data.train.image().str();
  flags.data.what = data.place;  // what was found is what the config remembers
  flags.data.crc32 = fmt::format("{:08x}", data.crc32);
  const std::string build = build_id();
  time.start();
  BatchOptions batch_options = flags.batches(device);
  batch_options.rank = ranks.rank();
  batch_options.ranks = ranks.size();
  batch_options.part = flags.optimizer.batch;
  const bool augments = batch_options.augment.any();
  if (augments || !data.to(device)) {
    out.note("data",
        "{}: a CPU thread makes each batch while the step before runs (mnist explain data-wait)",
        augments ? "augmented, " + flags.data.augment : "too large for " + device.str());
  }
  const OptimizerFlags& optimizer = flags.optimizer;
  batches.emplace(data.train, batch_options);
  per_epoch = batches->per_epoch();
  steps = optimizer.steps.value_or(optimizer.epochs * per_epoch);
  epochs = (steps + per_epoch - 1) / per_epoch;

  note_preset();
  check_ranks(build);
  const auto model = make_model(flags.model, flags.common->seed, device);
  if (init) {
    out.note("init", "{} ({}), normalize {}", escaped(init->path), take_weights(*model, *init),
        flags.data.normalize);
  }
  note_model(*model);
  const std::string where =
      ranks.many() ? str(device.str().substr(0, 4), " x ", ranks.size(), " ranks") : device.str();
  int64_t& asked = flags.common->threads;
  // Those of the run, where it goes on on the same device.
  if (resumed && (asked == 0 || all_flags["threads"].source == Source::checkpoint))
    asked = resumed->checkpoint.state.device == where ? resumed->checkpoint.state.threads : 0;
  if (ranks.many() && asked == 0) asked = ranks.threads();
  const Batch first = batches->next();
  batches->seek({});
  const std::string threads = choose_threads(flags, first);
  asked = num_threads();
  config = all_flags.config("train");
  manual_seed(flags.common->seed);
  out.note("device", "{}{}, {}{}   {}   mode {}", device.str(), why.empty() ? "" : " (" + why + ")",
      ranks.many() ? fmt::format("{} ranks of ", ranks.size()) : "", threads, flags.model.dtype,
      flags.mode.mode);
  out.detail(str("matrix products by ", gemm_backend_name()));
  note_emulator(device, out);
#ifndef NDEBUG
  out.note("note", "this build is made to find errors: times mean little");
#endif
  trainer = make_trainer(flags, model, steps);
  check_last_batch();
  at().data = data.name;
  at().data_crc = data.crc32;
  at().device = where;
  at().build = build;
  time.stop();
}

void Run::check_ranks(const std::string& build) const {
  std::vector<Ranks::Fact> facts{{"the build", build}, {"the device", device.str().substr(0, 4)},
      {"the data", fmt::format("{} images, crc32 {}", data.train.size(), flags.data.crc32)}};
  for (const Flag& flag : all_flags.all()) {
    if (flag.saved && !flag.name.starts_with("data") && flag.name != "image-size")
      facts.push_back({flag.shown(), all_flags.value(flag)});
  }
  const std::string place = resumed                 ? resumed->file
                            : flags.run.out.empty() ? "runs"
                                                    : flags.run.out;
  facts.push_back({"the run folder", std::filesystem::absolute(place).string()});
  if (resumed)
    facts.push_back({"the checkpoint", fmt::format("step {}", resumed->checkpoint.state.step)});
  ranks.check_same(facts);
}

void Run::note_preset() {
  if (flags.run.preset.empty()) return;
  std::string text = flags.run.preset + ":";
  for (const Flag& flag : all_flags.all()) {
    std::string value = flag.source == Source::preset ? all_flags.value(flag) : flag.standard;
    std::erase(value, '"');
    if (value.empty() || value == flag.standard) continue;  // empty: --steps given, no --epochs
    const bool has_blanks = value.find(' ') != value.npos;
    text += fmt::format(" {} {}", flag.shown(), has_blanks ? '"' + value + '"' : value);
  }
  out.note("preset", text);
}

void Run::note_model(nn::Module& model) {
  const OptimizerFlags& optimizer = flags.optimizer;
  const int64_t parameters = model.num_parameters();
  out.note("model", "{}, {} parameters, {}     {} lr {}   batch {}{}   seed {}",
      flags.model.describe(), grouped(parameters), cli::bytes(parameters * 4), optimizer.optimizer,
      *optimizer.lr, optimizer.batch,
      optimizer.accum > 1 ? fmt::format(" x {}", optimizer.accum) : "", flags.common->seed);
  out.detail(model.summary({optimizer.batch, flags.model.image().pixels()}));
}

// What was asked of the data and is not so.
void Run::note_sizes() {
  const int64_t n = data.train.size(), rows = flags.optimizer.rows_of_step(), val = data.val.size();
  if (rows > n)
    out.note("note",
        "a step of {} rows is more than the {} images for training: each "
        "step takes all of them",
        grouped(rows), grouped(n));
  const bool limited = flags.data.limit > 0 && val == flags.data.limit;
  if (all_flags.given("val") && val < flags.data.val && !limited)
    out.note("note", "--val {}: {} images are held out, at most 1/12 of those for training",
        grouped(flags.data.val), grouped(val));
}

// Before anything is written, with the flag that cures it.
void Run::check_last_batch() {
  if (flags.run.overfit_batch) return;  // of the first one alone
  try {
    trainer->check(*batches);
  } catch (const Error& error) {
    const int64_t n = data.train.size();
    int64_t size = flags.optimizer.batch + 1;
    while (n % size == 1 && size <= n) ++size;
    throw Error(Error::Kind::usage, error.message(),
        str("--batch-size ", size, " leaves no batch of one row, or --model without batchnorm"));
  }
}

void Run::take_folder() {
  using Take = RunFolder::Take;
  if (ranks.first()) {
    folder = resumed ? std::make_unique<RunFolder>(resumed->folder, Take::resume)
                     : std::make_unique<RunFolder>(
                           flags.run.out, flags.run.force ? Take::force : Take::fresh);
  }
  const std::string name = ranks.of_first(folder ? folder->name() : "");
  if (!folder) folder = std::make_unique<RunFolder>(name, Take::shared);
  if (resumed) go_on();
  if (ranks.first()) check_room();
  if (ranks.first()) write_file(folder->file("config.toml"), config);
  log.emplace(ranks.first() ? name : "", at().events);
}

int64_t bytes_of(const nn::NamedTensors& tensors) {
  int64_t sum = 0;
  for (const auto& [name, t] : tensors) sum += t.numel() * int64_t(size_of(t.dtype()));
  return sum;
}

// A disk that is full is found out now, not after the first epoch. The largest file is written
// beside the one that it replaces.
void Run::check_room() const {
  const int64_t weights = bytes_of(trainer->model().state_dict()),
                last = weights + bytes_of(trainer->optimizer().state_tensors()),
                need = resumed ? last : 2 * weights + 2 * last;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder->name(), error);
  SINTER_CHECK(error || int64_t(space.available) >= need, checkpoint,
      str("checkpoint: no room for the run: ", shown(folder->name()), "; its weights take up to ",
          cli::bytes(need), ", ", cli::bytes(int64_t(space.available)), " are free"),
      "make room there, or --out DIR takes another place");
}

void Run::go_on() {
  const nn::Checkpoint& checkpoint = resumed->checkpoint;
  const nn::TrainingState &was = checkpoint.state, now = at();
  const auto refuse = [&](const std::string& what, const std::string& facts,
                          const std::string& hint = "") {
    throw Error(Error::Kind::checkpoint,
        str("checkpoint: ", what, ": ", checkpoint.path, "; ", facts), hint);
  };
  if (nn::to_json(nn::read_checkpoint(resumed->file).state) != nn::to_json(was))
    refuse("changed since it was read", "another process goes on with this run");
  if (was.data_crc == now.data_crc && is_pair(resumed->place) != is_pair(data.place)) {
    refuse("cannot resume with another split of the data",
        str("the run took it from ", escaped(resumed->place), ", here it is ", data.description),
        "without --data and SINTER_DATA the run looks where it found its data");
  }
  try {
    trainer->resume(checkpoint, *batches);
  } catch (const Error& error) {
    if (was.data_crc == now.data_crc) throw;
    throw Error(error.kind(), error.message(),
        was.data == now.data
            ? "the files have changed since; --init starts a new run from the weights"
            : "without --data and SINTER_DATA the run looks where it found its data");
  }
  // What keeps the run from ending with the bits of an undisturbed one.
  std::vector<std::string> differences = resumed->differences;
  const auto compare = [&](const char* what, const auto& then, const auto& here) {
    if (then != here) differences.push_back(str(what, " was ", then, ", now ", here));
  };
  compare("device", escaped(was.device), now.device);
  compare("--threads", was.threads, now.threads);
  compare("the build", escaped(was.build), now.build);
  for (const std::string& difference : differences)
    out.note("note", "the run will not end with the bits of an undisturbed one: " + difference);
  nn::TrainingState& here = at();
  first_step = saved_step = here.step;
  first_epoch = here.epoch;
  ranks.set_saved(folder->name());
  if (here.ended && here.batch > 0 && here.step < steps) {
    out.note("note",
        "the run had ended within epoch {}: its evaluation there stays in the log, and counts for "
        "best and --patience (mnist explain patience)",
        here.epoch + 1);
  }
  if (here.step < steps && !lost_patience())
    here.ended = false;  // more steps than before, or more patience
  if (here.step > steps) here.ended = true;
  if (!here.ended) note_rate();
  out.note("resume",
      here.ended ? fmt::format("{} is finished: {}; a larger --epochs or --steps goes on",
                       escaped(folder->name()), count_of(here.step, "step"))
                 : fmt::format("{} after step {} of {} (epoch {}, batch {})",
                       escaped(folder->name()), here.step, steps, here.epoch + 1, here.batch));
}

// A schedule over other steps, or another one, may go on elsewhere than the run left it.
void Run::note_rate() const {
  const OptimizerFlags& then = resumed->optimizer;
  const nn::Schedule was = then.schedule_of(then.steps.value_or(then.epochs * per_epoch));
  const int64_t step = at().step;
  const double here = trainer->lr_of(step), there = nn::learning_rate(was, step);
  if (step == 0 || std::abs(here - there) <= 0.01 * std::max(here, there)) return;
  out.warning(fmt::format(
      "the learning rate jumps: {:.2g} in step {}, {:.2g} in step {}, where the run that was saved "
      "would have had {:.2g}",
      nn::learning_rate(was, step - 1), step, here, step + 1, there));
}

std::string Run::position(int64_t step) const {
  return fmt::format(
      "step {} (epoch {}, batch {})", step, (step - 1) / per_epoch + 1, (step - 1) % per_epoch + 1);
}

bool Run::diverges(double loss) const { return loss > 10 * std::log(double(flags.model.classes)); }

void Run::check_finite(const StepState& state) const {
  if (state.first_bad_step < 0) return;
  const std::string kept = saved_step >= 0 ? fmt::format("checkpoint of step {} kept", saved_step)
                                           : "nothing was saved yet";
  throw Error(Error::Kind::numeric,
      fmt::format("train: loss is {}: {}; last good {:.4g}, lr {:.3g}; {}",
          std::isnan(state.last_loss) ? "nan" : "inf", position(state.first_bad_step + 1),
          state.last_good_loss, trainer->lr_of(state.first_bad_step), kept),
      fmt::format("--lr {} or --clip 1; {}{}--check-nan {}names the op", smaller_lr(),
          saved_step >= 0 ? str("--resume ", as_word(folder->name()), " ") : "",
          flags.mode.mode == "fused" ? "--mode eager " : "",
          saved_step >= 0 ? "replays and " : ""));
}

std::string Run::steps_text(std::optional<int64_t> planned) const {
  const std::string of = planned ? " of " + grouped(*planned) : "";
  if (first_step == 0)
    return planned ? str(grouped(at().step), of, " steps") : count_of(at().step, "step");
  double seconds = 0;  // of whole epochs; what a stop cut off is in no row
  for (const EpochRow& row : log->rows()) seconds += row.seconds;
  return fmt::format("{}, {} now; in all {}{} steps, {} in {}",
      count_of(at().step - first_step, "step"), count_of(at().epoch - first_epoch, "epoch"),
      grouped(at().step), of, count_of(at().epoch, "epoch"), cli::seconds(seconds));
}

// To be tried where the loss has run away: the optimizer's usual one, or less where it was no
// larger.
std::string Run::smaller_lr() const {
  const double lr = *flags.optimizer.lr, usual = nn::optimizer_named(flags.optimizer.optimizer).lr;
  return lr > 2 * usual ? fmt::format("{} (the default of {})", usual, flags.optimizer.optimizer)
                        : fmt::format("{:.1g}", lr / 3);
}

void Run::warn(const std::string& text) {
  progress.clear();
  out.warning(text);
  log->add({{"step", at().step}, {"warning", text}});
}

Evaluation Run::evaluate_on(const Split& split) {
  Evaluation e = evaluate(trainer->model(), split,
      {.batch = flags.optimizer.eval_batch,
          .dtype = flags.model.batch_dtype(),
          .normalize = flags.data.normalization(),
          .classes = flags.model.classes,
          .ranks = ranks.communicator()});
  if (!e.complete) ranks.stop();
  return e;
}

// A save is noted before it is done, and the checkpoint says how many notes there are: so a run
// that was cut off between goes on with the lines it should have. What no plan asked for, a save on
// a signal, is not noted.
void Run::save_weights(const char* name) {
  if (!folder || !ranks.first()) return;
  log->add({{"step", at().step}, {"saved", name}});
  save_model(folder->file(name), trainer->model(), config);
  link_once();
}

void Run::save_all(bool planned) {
  check_finite(trainer->state());
  if (!folder) return;
  if (planned) log->add({{"step", at().step}, {"saved", kLastFile}});
  at().events = log->events();
  trainer->save(folder->file(kLastFile), config);
  if (ranks.first()) link_once();
  saved_step = at().step;
  ranks.set_saved(folder->name());
}

void Run::link_once() {
  if (std::exchange(linked, true)) return;
  if (const std::string problem = folder->link_last(); !problem.empty()) out.warning(problem);
}

}  // namespace sinter::mnist
