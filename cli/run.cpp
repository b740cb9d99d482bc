#include "cli/run.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/classic.h"
#include "core/crc32.h"
#include "core/device/cpu_gemm.h"
#include "core/device/cuda.h"
#include "core/parallel.h"
#include "nn/safetensors.h"

namespace sinter::cli {
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

Run::Run(Job& job_of_run, const Flags& flags_given, const Resumed* resumed_run, Ranks& ranks_of_run,
    Output& output)
    : job(job_of_run),
      flags(job.flags),
      all_flags(flags_given),
      resumed(resumed_run),
      ranks(ranks_of_run),
      out(output),
      progress(output),
      metric(job.metric()) {
  std::string why;
  std::tie(device, why) = choose_device(flags.common->device);
  device = ranks.use(device, flags.common->device.starts_with("cuda:"));
  // What the first step would wait for is opened while the data is loaded.
  if (device.type == Device::Type::cuda) {
    const bool convolves = job.convolves();
    opens_ = std::jthread([this, convolves] { cuda::warm_up(device.index, convolves); });
  }
  const Loading loading{.device = device,
      .given = all_flags,
      .use = Use::run,
      .out = out,
      .rank = ranks.rank(),
      .ranks = ranks.size(),
      .resumed = resumed != nullptr};
  job.load(loading);
  data = job.data();
  guessing = job.guessing();
  SINTER_CHECK(flags.optimizer.patience == 0 || data.val > 0, usage,
      str("usage: --patience needs a val set: --val is 0, --patience ", flags.optimizer.patience),
      "--val N holds some out");
  const std::string build = build_id();
  time.start();
  job.make_batches(loading);
  const OptimizerFlags& optimizer = flags.optimizer;
  per_epoch = job.batches().per_epoch();
  constexpr int64_t kOverfitSteps = 500;  // whose schedule of the rate is over them, too
  steps = flags.run.overfit_batch ? kOverfitSteps
                                  : optimizer.steps.value_or(optimizer.epochs * per_epoch);
  epochs = (steps + per_epoch - 1) / per_epoch;

  note_preset();
  check_ranks(build);
  const auto model = job.make_model(device);
  SINTER_CHECK(model, usage, "train: the job makes no model: make_model() gave nullptr");
  if (!flags.run.init.empty() && !resumed)
    out.note("init", job.take_weights(*model, flags.run.init));
  const Tensors batch = job.first_batch();
  Shape shape = batch[0].shape();
  batch_bytes =
      optimizer.rows_of_step() * (shape.numel() / shape[0]) * int64_t(size_of(batch[0].dtype()));
  shape[0] = optimizer.batch;
  note_model(*model, shape);
  const std::string where =
      ranks.many() ? str(device.str().substr(0, 4), " x ", ranks.size(), " ranks") : device.str();
  int64_t& asked = flags.common->threads;
  // Those of the run, where it goes on on the same device.
  if (resumed && (asked == 0 || all_flags["threads"].source == Source::checkpoint))
    asked = resumed->checkpoint.state.device == where ? resumed->checkpoint.state.threads : 0;
  if (ranks.many() && asked == 0) asked = ranks.threads();
  const std::string threads = job.choose_threads(batch);
  asked = num_threads();
  config = all_flags.config("train");
  manual_seed(flags.common->seed);
  out.note("device", "{}{}, {}{}   {}   mode {}", device.str(), why.empty() ? "" : " (" + why + ")",
      ranks.many() ? fmt::format("{} ranks of ", ranks.size()) : "", threads, job.dtype(),
      flags.mode.mode);
  out.detail(str("matrix products by ", gemm_backend_name()));
  note_emulator(device, out);
#ifndef NDEBUG
  out.note("note", "this build is made to find errors: times mean little");
#endif
  trainer = job.make_trainer(flags, model, steps);
  if (!flags.run.overfit_batch) job.check_batches(*trainer);  // else it is of the first one alone
  at().best = (metric.rises ? -1 : 1) * std::numeric_limits<double>::max();  // any is better
  at().data = data.name;
  at().data_crc = data.crc;
  at().device = where;
  at().build = build;
  time.stop();
}

void Run::check_ranks(const std::string& build) const {
  std::vector<Ranks::Fact> facts{{"the build", build}, {"the device", device.str().substr(0, 4)},
      {"the data", fmt::format("{} {}, crc32 {:08x}", data.train, job.rows().first, data.crc)}};
  for (const Flag& flag : all_flags.all()) {
    if (flag.saved && !flag.place) facts.push_back({flag.shown(), all_flags.value(flag)});
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
    if (value.find(' ') != value.npos) value = '"' + value + '"';
    const bool is_switch = flag.value.empty();
    text += str(" ", flag.shown(), is_switch ? "=" : " ", value);
  }
  out.note("preset", text);
}

void Run::note_model(nn::Module& model, const Shape& inputs) {
  const OptimizerFlags& optimizer = flags.optimizer;
  const int64_t parameters = model.num_parameters();
  out.note("model", "{}, {} parameters, {}     {} lr {}   batch {}{}   seed {}", job.describe(),
      grouped(parameters), cli::bytes(parameters * 4), optimizer.optimizer, *optimizer.lr,
      optimizer.batch, optimizer.accum > 1 ? fmt::format(" x {}", optimizer.accum) : "",
      flags.common->seed);
  out.detail(model.summary(inputs));
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
  if (ranks.first()) write_file(folder->file("config.toml"), str(kConfigOfRun, "\n", config));
  log.emplace(ranks.first() ? name : "", at().events, metric.name);
  if (flags.run.fingerprint && ranks.first()) keep_prints();
}

void Run::keep_prints() {
  std::vector<std::pair<std::string, Tensor>> named;
  for (const nn::NamedTensors& list :
      {trainer->model().state_dict(), trainer->optimizer().state_tensors()}) {
    for (const nn::NamedTensor& item : list) named.emplace_back(item.name, item.tensor);
  }
  named.emplace_back("the step's state", trainer->optimizer().state());
  // "roofs/3 cpu, NAME, 2 threads, ..", of a card its name in the third place.
  const bool on_card = device.type == Device::Type::cuda;
  const std::string roofs = profiler::roofs_key(on_card ? device : kCpu);
  const std::vector<std::string_view> of_roofs = parts_of(roofs, ", ");
  prints = std::make_unique<measure::Fingerprints>(folder->file(kPrintsFile),
      measure::FingerprintHead{.build = str(build_name(), ", program ", at().build),
          .machine = str(of_roofs.at(1), on_card ? str(", ", of_roofs.at(2)) : ""),
          .device = device.str(),
          .mode = flags.mode.mode + (flags.mode.mode == "fused" ? " " + flags.mode.rules : ""),
          .workload = job.workload(),
          .seed = std::to_string(flags.common->seed),
          .threads = num_threads(),
          .every = *flags.run.fingerprint},
      named, at().step);
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
  SINTER_CHECK(nn::to_json(nn::read_checkpoint(resumed->file).state) == nn::to_json(was),
      checkpoint,
      str("checkpoint: changed since it was read: ", checkpoint.path,
          "; another process goes on with this run"));
  job.resume(*trainer, checkpoint, *resumed->then);
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
        "best and --patience ({} explain patience)",
        here.epoch + 1, program_name());
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
  const OptimizerFlags& then = resumed->then->flags.optimizer;
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

void Run::check_finite(const StepState& state) const {
  if (state.first_bad_step < 0) return;
  const std::string kept = saved_step >= 0 ? fmt::format("checkpoint of step {} kept", saved_step)
                                           : "nothing was saved yet";
  throw Error(Error::Kind::numeric,
      fmt::format("train: loss is {}: {}; {}, lr {:.3g}; {}",
          std::isnan(state.last_loss) ? "nan" : "inf", position(state.first_bad_step + 1),
          state.first_bad_step == 0 ? "no step before it"
                                    : fmt::format("last good {:.4g}", state.last_good_loss),
          trainer->lr_of(state.first_bad_step), kept),
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
  return fmt::format("{}, {} now; in all {}{} steps, {} in {} but for what stops cut off",
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

Evaluated Run::evaluate_on(Set set, int64_t most) {
  Evaluated e = job.evaluate(trainer->model(), set, most, ranks.communicator());
  if (!e.complete) ranks.stop();
  return e;
}

// A save is noted before it is done, and the checkpoint says how many notes there are: so a run
// that was cut off between goes on with the lines it should have. What no plan asked for, a save on
// a signal, is not noted.
void Run::save_weights(const char* name) {
  if (!folder || !ranks.first()) return;
  log->add({{"step", at().step}, {"saved", name}});
  nn::write_safetensors(
      folder->file(name), trainer->model().state_dict(), {{"sinter.config", config}});
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

}  // namespace sinter::cli
