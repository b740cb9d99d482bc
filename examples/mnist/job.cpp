#include "examples/mnist/job.h"

#include <fmt/format.h>

#include <cmath>

#include "core/json.h"
#include "examples/mnist/evaluate.h"

namespace sinter::mnist {

void DigitsJob::add_flags(Flags& to, Use use) {
  add_data_flags(to, recipe.data);
  if (use == Use::run) add_augment_flag(to, recipe.data);
  add_model_flags(to, recipe.model);
  if (use == Use::step) {
    to.word("from", from_, "RUN|FILE", "a run folder or a safetensors file").standard =
        "new weights";
  }
}

void DigitsJob::check(const Flags& given, Use) {
  if (!from_.empty()) adopt_model(given, recipe, saved_.emplace(read_model(from_)));
  resolve_model(recipe.model, *flags.common);
}

// fast98: real MNIST to 98 % in the least time; bf16 where the device multiplies it fast. fast99:
// to 99 %, with a small convolutional net. best: what this program can do.
std::vector<Preset> DigitsJob::presets() const {
  return {
      {"fast98",
          "hidden=256,128\nact=relu\noptimizer=adam\nbetas=0.85,0.98\nschedule=onecycle\nlr=0.005\n"
          "lr-warmup=20%\nlabel-smoothing=0.1\nnormalize=mnist\nbatch-size=128\nepochs=2\nval=0\n"
          "save-every=0\nmode=fused\ntarget-acc=98\n",
          0.5},
      {"fast99",
          "model=\"conv 8 5; relu; pool 2; conv 24 3; relu; pool 2; flatten; linear 128; relu; "
          "linear 10\"\noptimizer=adam\nbetas=0.7,0.9\nschedule=onecycle\nlr=0.008\nlr-warmup=20%\n"
          "label-smoothing=0.1\nnormalize=mnist\nbatch-size=64\nsteps=1000\nval=0\nsave-every=0\n"
          "mode=fused\ntarget-acc=99\n",
          1.8},
      {"best",
          "model=cnn3\noptimizer=adam\nschedule=onecycle\nlr=0.003\nlr-warmup=20%\n"
          "normalize=mnist\nbatch-size=128\nepochs=15\naugment=\"shift=2,rotate=10,scale=10\"\n"
          "val=0\nmode=fused\ntarget-acc=99.4\n"}};
}

std::string DigitsJob::preset(const std::string& name) const {
  if (name != "fast98") return Job::preset(name);
  const Device device = choose_device(flags.common->device).first;
  const bool bf16 = device.type == Device::Type::cuda || (device == kCpu && cpu_has("amx_bf16"));
  return str(Job::preset(name), "dtype=", bf16 ? "bf16" : "f32", "\n");
}

double DigitsJob::least_loss(const Tensors&) const {
  // The entropy of a smoothed label.
  const auto others = double(recipe.model.classes - 1);
  const double other = label_smoothing_ / (others + 1), own = 1 - others * other;
  return other > 0 ? -own * std::log(own) - others * other * std::log(other) : 0;
}

std::optional<Guessing> DigitsJob::guessing() const {
  return Guessing{.loss = std::log(double(recipe.model.classes)),
      .text = fmt::format("ln({})", recipe.model.classes),
      .hint = "check lr, and that labels belong to images"};
}

std::string DigitsJob::weights() const {
  return saved_ ? fmt::format("{} ({})", escaped(saved_->path), how_) : "";
}

std::string DigitsJob::next() const {
  return recipe.model.model == "mlp" && flags.optimizer.batch > 16
             ? "where fusing pays more: a small step, --batch 1 --hidden 64,64; or --model lenet"
             : "";
}

Shape DigitsJob::picture() const {
  const ImageShape image = recipe.model.image();
  return {image.channels, image.height, image.width};
}

void DigitsJob::load(const Loading& loading) {
  const std::string& init = flags.run.init;
  const bool trains = loading.use == Use::run;
  if (trains && !init.empty() && !loading.resumed)
    adopt_model(loading.given, recipe, saved_.emplace(read_model(init)));
  DataOptions wanted = recipe.data.options(recipe.model.classes);
  const int64_t rows = flags.optimizer.rows_of_step();
  if (!trains) wanted.limit = wanted.limit ? std::min(wanted.limit, rows) : rows;
  data_ = load_dataset(wanted);
  if (trains) {
    loading.out.note("data", "{}: {}", data_.description, data_.sizes());
    note_sizes(loading);
  } else {
    loading.out.note(
        "data", "{}: one batch of {}", data_.description, std::min(rows, data_.train.size()));
  }
  if (saved_) check_images(*saved_, data_.train.image(), data_.name);
  if (saved_ && trains) note_split(*saved_, data_, loading.out);
  recipe.model.image_size = data_.train.image().str();
  recipe.data.what = data_.place;  // what was found is what the config remembers
  recipe.data.crc32 = fmt::format("{:08x}", data_.crc32);
}

// What was asked of the data and is not so.
void DigitsJob::note_sizes(const Loading& loading) const {
  const int64_t n = data_.train.size(), rows = flags.optimizer.rows_of_step(),
                val = data_.val.size();
  if (rows > n)
    loading.out.note("note",
        "a step of {} rows is more than the {} images for training: each "
        "step takes all of them",
        grouped(rows), grouped(n));
  const bool limited = recipe.data.limit > 0 && val == recipe.data.limit;
  if (loading.given.given("val") && val < recipe.data.val && !limited)
    loading.out.note("note", "--val {}: {} images are held out, at most 1/12 of those for training",
        grouped(recipe.data.val), grouped(val));
}

BatchOptions DigitsJob::batch_options(Device device) const {
  return {.size = flags.optimizer.rows_of_step(),
      .seed = flags.common->seed,
      .dtype = recipe.model.batch_dtype(),
      .normalize = recipe.data.normalization(),
      .device = device,
      .augment = parse_augment(recipe.data.augment)};
}

void DigitsJob::make_batches(const Loading& loading) {
  BatchOptions options = batch_options(loading.device);
  options.rank = loading.rank;
  options.ranks = loading.ranks;
  options.part = flags.optimizer.batch;
  const bool augments = options.augment.any();
  if (augments || !data_.to(loading.device)) {
    loading.out.note("data",
        "{}: a CPU thread makes each batch while the step before runs (mnist explain data-wait)",
        augments ? "augmented, " + recipe.data.augment : "too large for " + loading.device.str());
  }
  batches_.emplace(data_.train, options);
}

DataFacts DigitsJob::data() const {
  return {data_.name, data_.crc32, data_.train.size(), data_.val.size(), data_.test.size()};
}

Tensors DigitsJob::first_batch() {
  batches_->seek({});
  Batch batch = batches_->next();
  batches_->seek({});
  if (batch.of > batch.labels.numel())  // only this rank's rows
    batch = Batches(data_.train, batch_options(batch.images.device())).next();
  return {batch.images, batch.labels};
}

std::shared_ptr<nn::Module> DigitsJob::make_model(Device device) {
  auto model = mnist::make_model(recipe.model, flags.common->seed, device);
  if (!from_.empty()) how_ = mnist::take_weights(*model, *saved_);
  return model;
}

std::string DigitsJob::take_weights(nn::Module& model, const std::string&) {
  return fmt::format("{} ({}), normalize {}", escaped(saved_->path),
      mnist::take_weights(model, *saved_), recipe.data.normalize);
}

void DigitsJob::check_batches(Trainer& trainer) {
  try {
    trainer.check(*batches_);
  } catch (const Error& error) {
    const int64_t n = data_.train.size();
    int64_t size = flags.optimizer.batch + 1;
    while (n % size == 1 && size <= n) ++size;
    throw Error(Error::Kind::usage, error.message(),
        str("--batch-size ", size, " leaves no batch of one row, or --model without batchnorm"));
  }
}

void DigitsJob::resume(Trainer& trainer, const nn::Checkpoint& saved, const Job& then) {
  const nn::TrainingState& was = saved.state;
  const std::string& place = static_cast<const DigitsJob&>(then).recipe.data.what;
  SINTER_CHECK(was.data_crc != data_.crc32 || is_pair(place) == is_pair(data_.place), checkpoint,
      str("checkpoint: cannot resume with another split of the data: ", saved.path,
          "; the run took it from ", escaped(place), ", here it is ", data_.description),
      "without --data and SINTER_DATA the run looks where it found its data");
  try {
    trainer.resume(saved, *batches_);
  } catch (const Error& error) {
    if (was.data_crc == data_.crc32) throw;
    throw Error(error.kind(), error.message(),
        was.data == data_.name
            ? "the files have changed since; --init starts a new run from the weights"
            : "without --data and SINTER_DATA the run looks where it found its data");
  }
}

Evaluated DigitsJob::evaluate(nn::Module& model, Set set, int64_t most, Communicator* ranks) {
  const Split& split = set == Set::val ? data_.val : data_.test;
  const Evaluation e = mnist::evaluate(model, most < split.size() ? slice(split, 0, most) : split,
      {.batch = flags.optimizer.eval_batch,
          .dtype = recipe.model.batch_dtype(),
          .normalize = recipe.data.normalization(),
          .classes = recipe.model.classes,
          .ranks = ranks});
  return {.text = e.summary(),
      .metric_text = proportion(e.correct, e.images),
      .metric = e.accuracy(),
      .loss = e.loss(),
      .rows = e.images,
      .complete = e.complete,
      .json = e};
}

std::unique_ptr<Job> make_job(CommonFlags& common) { return std::make_unique<DigitsJob>(common); }

void add_mlp_bench(App& app, Command& command) {
  const auto job = std::make_shared<DigitsJob>(app.common());
  job->recipe.data = {.what = "synthetic", .val = 0};
  cli::add_bench(app, command, job,
      {.title = "mlp 784-H-H-10",
          .name = "hidden",
          .help = "widths H of both hidden layers",
          .batches = {1, 16, 128},
          .others = {64, 256, 1024},
          .most_rows = 60'000,  // of the synthetic digits
          .set =
              [job](int64_t hidden) {
                job->recipe.model.hidden = {hidden, hidden};
              },
          .add_flags =
              [job](Flags& to) {
                to.choice("dtype", job->recipe.model.dtype, {"f32", "bf16"},
                    "bf16: activations and copies of the weights");
              }});
}

}  // namespace sinter::mnist
