#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "capture/recording.h"
#include "core/allocator.h"
#include "core/numbers.h"
#include "core/parallel.h"
#include "nn/batch_norm.h"
#include "nn/clip.h"
#include "profiler/phase.h"

namespace sinter {
namespace {

// A shared_ptr that owns nothing.
template <class T> std::shared_ptr<T> borrowed(T& object) {
  return {std::shared_ptr<void>(), &object};
}

std::shared_ptr<nn::Module> given(std::shared_ptr<nn::Module> model) {
  SINTER_CHECK(model, usage, "trainer: the model is nullptr");
  return model;
}
}  // namespace

void check_each_row(const char* what, const Tensor& numbers, int64_t rows) {
  const int64_t n = numbers.defined() ? numbers.numel() : -1;
  SINTER_CHECK(n == rows || (n > rows && rows > 0 && n % rows == 0), shape,
      str("trainer: a ", what, " for each row is wanted of ", rows, " rows: it is ",
          numbers.describe(), "; or as many for each; their mean is for the trainer to take"),
      str("TrainerOptions::loss, or what gives the ", what, ", without mean() or sum()"));
}

Trainer::Trainer(nn::Module& model, nn::Optimizer& optimizer, TrainerOptions options)
    : Trainer(borrowed(model), borrowed(optimizer), std::move(options)) {}

Trainer::Trainer(std::shared_ptr<nn::Module> model, std::shared_ptr<nn::Optimizer> optimizer,
    TrainerOptions options)
    : options_(std::move(options)),
      model_(given(std::move(model))),
      optimizer_(std::move(optimizer)),
      parameters_(model_->parameters()),
      device_(parameters_.empty() ? kCpu : parameters_[0].device()) {
  SINTER_CHECK(optimizer_ || options_.step, usage,
      "trainer: no optimizer: only a step of your own (TrainerOptions::step) goes without");
  SINTER_CHECK(options_.clip >= 0 && options_.part >= 0, usage,
      str("trainer: clip is ", options_.clip, ", part is ", options_.part,
          "; both are at least 0"));
  if (Communicator* ranks = Communicator::current())
    parallel_ = std::make_unique<distributed::DataParallel>(*model_, ranks, options_.parallel);
  make_step(options_.capture.choices);
  at_.device = device_.str();
  at_.mode = options_.fused ? "fused" : "eager";
  at_.threads = num_threads();
}

// Of mode fused, with no capture yet.
void Trainer::make_step(std::vector<capture::Refused> choices) {
  if (!options_.fused) return;
  capture::StepOptions options = options_.capture;
  options.parameters = nn::parameter_visitor(*model_);
  options.mode = [this] { return parallel_ || given_.drawn_from ? given_.of : 0; };
  options.choices = std::move(choices);
  // What one rank measures the others do not, and all are to run the same plan.
  if (parallel_) options.measure = false;
  const auto step = [this](const Tensors& given) {
    Tensors out;
    run_step(given, out);
    return out;
  };
  step_ = std::make_unique<capture::Step>(step, std::move(options));
}

capture::Step::Function Trainer::function() {
  return [this](const Tensors& batch) {
    Tensors out;
    run_step(give(batch), out);
    return out;
  };
}

const Tensors& Trainer::give(const Tensors& batch) {
  for (const Tensor& t : batch) check_defined("trainer", "a tensor of the batch", t);
  check_pair(batch);
  given_.tensors = batch;
  given_.of = batch.empty() || batch[0].rank() == 0 ? 0 : batch[0].size(0);
  given_.drawn_from = nullptr;
  return given_.tensors;
}

void Trainer::check_pair(const Tensors& batch) const {
  SINTER_CHECK(options_.step || batch.size() == 2, usage,
      str("trainer: a batch has inputs and targets: 2 tensors are wanted, ", batch.size(),
          " are given"),
      "a step of other tensors is TrainerOptions::step");
  SINTER_CHECK(options_.step || batch[0].size(0) == batch[1].size(0), shape,
      str("trainer: rows differ: inputs are ", batch[0].describe(), ", targets are ",
          batch[1].describe()));
}

// A rank without a row of the batch has no tensors of it.
const Tensors& Trainer::give(Fed batch) {
  if (!batch.drawn_from && !batch.tensors.empty()) check_pair(batch.tensors);
  given_ = std::move(batch);
  return given_.tensors;
}

void Trainer::check(const BatchSource& batches) {
  const int64_t last = batches.rows_of({0, batches.per_epoch() - 1});
  const bool one_row = (options_.part > 0 ? (last - 1) % options_.part + 1 : last) == 1;
  const auto is_norm = [](nn::Module* m) { return dynamic_cast<nn::BatchNorm2d*>(m) != nullptr; };
  if (options_.step || !one_row || std::ranges::none_of(model_->modules(), is_norm)) return;
  const Tensors row = batches.shape_only(1);
  if (row.empty()) return;
  try {
    const capture::Recording not_done({}, false);
    const NoGrad no_grad;
    (*model_)(row[0]);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::shape) return;  // for the first step to say
    throw Error(error.kind(),
        str("trainer: the last batch of an epoch is of one row: ", batches.describe(), "; ",
            error.message()),
        "another BatchOptions::size");
  }
}

double Trainer::fit(BatchSource& batches, const Callback& after) {
  check(batches);
  at_.batches = batches.describe();
  if (at_.data.empty()) at_.data_crc = batches.crc32();  // else the caller has said it
  const int64_t n = batches.per_epoch();
  const auto next = [&] {
    if (at_.batch >= n) return false;
    const BatchPosition here{at_.epoch, at_.batch};  // `after` may have read some of them
    if (batches.position() != here) batches.seek(here);
    give(batches.feed());
    return true;
  };
  return run(next, after);
}

double Trainer::run(const std::function<bool()>& next, const Callback& after) {
  const auto next_batch = [&] {
    timer_ = {};
    const profiler::Scope scope("next_batch", profiler::ScopeKind::data);
    const bool found = next();
    wait_seconds_ += timer_.seconds();
    return found;
  };
  stopped_ = false;
  while (next_batch()) {
    {
      const profiler::Scope scope("train_step");
      step_given();
    }
    ++at_.batch;
    if (after) after();
    if (stopped_) break;
  }
  SINTER_CHECK(at_.batch > 0, usage, "trainer: no batch: the range is empty; at least 1");
  const StepState state = optimizer_ ? collect_state() : StepState();
  const int64_t bad = state.first_bad_step;
  SINTER_CHECK(stopped_ || bad < 0, numeric,
      str("trainer: the loss of step ", bad + 1, " is not finite; ",
          bad == 0 ? "no step before it" : str("last good ", state.last_good_loss), ", lr ",
          lr_of(bad)),
      "a smaller learning rate, or TrainerOptions::clip; AnomalyMode names the op");
  SINTER_CHECK(stopped_ || state.loss_rows > 0 || state.idle_steps == 0, data,
      str("trainer: no row counts: every label of ", count_of(state.idle_steps, "step"),
          " is the loss's ignore_index; nothing was learned"));
  if (!stopped_) end_epoch();
  return Score::share(state.loss_sum, state.loss_rows);
}

nn::Optimizer& Trainer::optimizer() const {
  SINTER_CHECK(optimizer_, usage, "trainer: it was made without an optimizer, and this needs one");
  return *optimizer_;
}

void Trainer::end_epoch() {
  ++at_.epoch;
  at_.batch = 0;
  reset_loss();
}

// Rates are told for some thousand updates at once: a run may be of any length. A step of one's own
// has up to kMost of them in a call, and only the device knows how many there were.
void Trainer::tell_rates() {
  constexpr int64_t kAhead = 4096, kMost = 64;
  if (!options_.schedule || at_.step < rates_until_) return;
  const int64_t first = options_.step ? optimizer().steps() : at_.step;
  std::vector<double> rates;
  for (int64_t update = first; update < first + kAhead; ++update) rates.push_back(lr_of(update));
  optimizer().set_rates(rates);
  rates_until_ = at_.step + (options_.step ? kAhead / kMost : kAhead);
}

const Tensors& Trainer::step_given() {
  tell_rates();
  const Tensors* results = &results_;
  if (step_) {
    const auto requests = [this] { return allocator(device_).stats().requests; };
    const capture::StepStats& stats = step_->stats();
    const int64_t plain = stats.replays - stats.captures, before = requests();
    results = &(*step_)(given_.tensors);
    if (stats.replays - stats.captures > plain)  // a replay that captured nothing first
      allocations_ = std::max(allocations_, requests() - before);
  } else {
    run_step(given_.tensors, results_);
  }
  ++at_.step;
  return *results;
}

void Trainer::run_step(const Tensors& given, Tensors& out) {
  const Tensors drawn = given_.drawn_from ? given_.drawn_from->draw(given_.of) : Tensors();
  const Tensors& batch = given_.drawn_from ? drawn : given;
  if (options_.step) {
    out = options_.step(batch);
    return;
  }
  optimizer_->zero_grad();
  const Tensor losses = backward_of(batch);
  if (options_.clip > 0) nn::clip_grad_norm(parameters_, options_.clip);
  optimizer_->step(losses);
  out.clear();
  if (losses.defined()) out.push_back(losses);
}

// Of some rows of the batch.
Tensor Trainer::losses_of(const Tensors& batch, int64_t begin, int64_t end) {
  const profiler::PhaseScope forward(Phase::forward);
  const auto part = [&](const Tensor& t) {
    return begin == 0 && end == t.size(0) ? t : slice(t, 0, begin, end);
  };
  const Tensor losses = options_.loss((*model_)(part(batch[0])), part(batch[1]));
  check_each_row("loss", losses, end - begin);
  return losses;
}

// Of this rank's rows of the step, part by part, whose gradients add up. The batch is empty if it
// has none.
Tensor Trainer::backward_of(const Tensors& batch) {
  const int64_t rows = parallel_ ? given_.of : batch[0].size(0),
                size = options_.part > 0 ? options_.part : rows;
  const bool all_rows = !batch.empty() && batch[0].size(0) == rows;  // of all ranks
  Tensors parts;
  Tensor counted;  // of the rows, if not all count
  int64_t row = 0, own = 0;
  do {
    const int64_t n = std::min(size, rows - row);
    const RowRange mine = parallel_
                              ? parallel_->begin_batch(n, {.of = rows, .last = row + n == rows})
                              : RowRange{0, n};
    const int64_t begin = all_rows ? row + mine.begin : own;
    Tensor losses;
    if (!parallel_ || mine.size() > 0) losses = losses_of(batch, begin, begin + mine.size());
    if (parallel_) {
      parallel_->backward(losses);
    } else {
      backward(losses, {.gradient = {}, .rows = n < rows ? nn::divisor(losses, n, rows) : 0});
      nn::add_counted(counted, losses);
    }
    if (losses.defined()) parts.push_back(losses);
    own += mine.size();
    row += n;
  } while (row < rows);
  const NoGrad no_grad;
  if (counted.defined() && parts.size() > 1)
    nn::average_counted(parameters_, rows, counted, counted);
  return parts.empty() ? Tensor() : parts.size() == 1 ? parts[0] : cat(parts);
}

void Trainer::reset_loss() {
  if (!optimizer_) return;
  StepState state = this->state();
  state.loss_sum = 0;
  state.loss_rows = 0;
  state.idle_steps = 0;
  write_step_state(optimizer_->state(), state);
}

StepState Trainer::collect_state() {
  StepState state = this->state();
  if (!parallel_) return state;
  parallel_->check_equal();
  Communicator& ranks = *Communicator::current();
  state.loss_sum = ranks.sum(state.loss_sum);
  state.loss_rows = std::llround(ranks.sum(double(state.loss_rows)));
  if (ranks.sum(state.first_bad_step >= 0) > 0) {
    for (const std::string& text : ranks.gather(std::to_string(state.first_bad_step))) {
      const int64_t step = std::stoll(text);
      if (step >= 0 && (state.first_bad_step < 0 || step < state.first_bad_step))
        state.first_bad_step = step;
    }
  }
  write_step_state(optimizer_->state(), state);
  if (ranks.rank() > 0) reset_loss();
  return state;
}

void Trainer::add(Score& score, const Tensors& batch) {
  if (batch.empty()) return;
  check_pair(batch);
  const Tensor output = (*model_)(batch[0]), losses = options_.loss(output, batch[1]);
  check_each_row("loss", losses, batch[0].size(0));
  // Of a row that does not count the loss is 0, and its label is none.
  std::vector<uint8_t> counts(size_t(losses.numel()), 1);
  if (const Tensor& given = losses.autograd().counts; given.defined())
    counts = given.to_vector<uint8_t>();
  for (const double loss : losses.to_vector<double>()) score.loss_sum += loss;
  const int64_t counted = std::ranges::count(counts, 1);
  score.rows += counted;
  if (is_float(batch[1].dtype())) return;
  const auto read = argmax(output).to_vector<int64_t>(), labels = batch[1].to_vector<int64_t>();
  if (read.size() != labels.size()) return;
  for (size_t i = 0; i < labels.size(); ++i) score.correct += counts[i] && read[i] == labels[i];
  score.labels += counted;
}

void Trainer::save(const std::string& file, const std::string& config) {
  collect_state();
  if (step_) at_.unfused = step_->choices();
  if (parallel_ && Communicator::current()->rank() > 0) return;
  nn::save_checkpoint(file, *model_, optimizer(), config, at_);
}

void Trainer::resume(const nn::Checkpoint& saved, BatchSource& batches) {
  const nn::TrainingState& at = saved.state;
  const auto require = [&](bool same, const char* what, const std::string& facts) {
    SINTER_CHECK(same, checkpoint, str("checkpoint: ", what, ": ", saved.path, "; ", facts),
        "the data and the size of a batch are to be those of the save");
  };
  const std::string here = batches.describe();
  require(at.batches.empty() || at.batches == here, "of other batches",
      str("it has ", escaped(at.batches), ", here are ", here));
  // Steps that were given batches of their own come on top. An earlier build did not save which
  // batches it had: of its checkpoints there are to be no such steps.
  const int64_t n = batches.per_epoch(),
                drawn = at.epoch <= at.step / n ? at.epoch * n + at.batch : -1;
  require(at.batch <= n && drawn >= 0 && (at.batches.empty() ? drawn == at.step : drawn <= at.step),
      "of other batches",
      str(n, " batches make an epoch here: step ", at.step, " is not batch ", at.batch, " after ",
          count_of(at.epoch, "epoch")));
  const uint64_t crc = at_.data.empty() ? batches.crc32() : at_.data_crc;
  require(at.data_crc == 0 || at.data_crc == crc, "cannot resume with other data",
      fmt::format("crc32 of {} was {:08x}, of {} it is {:08x}",
          at.data.empty() ? "the data" : escaped(at.data), at.data_crc,
          at_.data.empty() ? "these" : escaped(at_.data), crc));
  make_step(at.unfused);
  const bool ragged = batches.rows_of({0, n - 1}) != batches.rows_of({0, 0});
  const int64_t last_batches = ragged ? at.epoch + (at.batch == n) : 0;
  for (const auto& [batch, calls] :
      {std::pair{int64_t{0}, drawn - last_batches}, std::pair{n - 1, last_batches}}) {
    if (!step_ || calls == 0 || batches.shapes_vary()) continue;
    batches.seek({0, batch});
    give(batches.feed());
    step_given();
  }
  std::set<std::string> done;
  for (int64_t i = 0; step_ && batches.shapes_vary() && i < drawn; ++i) {
    batches.seek({i / n, i % n});
    give(batches.feed());
    rehearse(done);
  }
  restore(saved);
  batches.seek(at.batch == n ? BatchPosition{at.epoch + 1, 0} : BatchPosition{at.epoch, at.batch});
}

// `done`: the shapes of the batches of which a step was rehearsed.
void Trainer::rehearse(std::set<std::string>& done) {
  std::string shapes;
  for (const Tensor& t : given_.tensors) shapes += t.describe() + " ";
  if (step_ && done.insert(shapes).second) step_given();
}

void Trainer::restore(const nn::Checkpoint& checkpoint) {
  nn::restore(checkpoint, *model_, optimizer());
  if (parallel_ && Communicator::current()->rank() > 0) reset_loss();  // rank 0 has the sums of all
  const nn::TrainingState here = std::exchange(at_, checkpoint.state);
  at_.device = here.device;
  at_.mode = here.mode;
  at_.threads = here.threads;
  at_.build = here.build;
  rates_until_ = at_.step;
}

void Trainer::copy_from(const Trainer& other) {
  const auto copy_all = [](const nn::NamedTensors& to, const nn::NamedTensors& from) {
    for (size_t i = 0; i < to.size(); ++i) nn::copy_values(to[i].tensor, from[i].tensor, "trainer");
  };
  copy_all(model_->state_dict(), other.model_->state_dict());
  copy_all(optimizer().state_tensors(), other.optimizer().state_tensors());
  optimizer().set_steps(other.optimizer().steps());
  at_.step = rates_until_ = other.at_.step;
}

}  // namespace sinter
