#include "examples/mnist/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>

#include "core/classic.h"
#include "nn/net.h"
#include "nn/optim.h"

namespace sinter::mnist {
namespace {

constexpr int64_t kMany = 1'000'000'000'000;

// Warm-up steps of a run: "200" or "20%".
int64_t warmup_steps(const std::string& text, int64_t steps) {
  const std::string what = "usage: --lr-warmup";
  if (!text.ends_with('%')) return std::min(parse<int64_t>(what, text, 0, kMany), steps);
  return std::llround(
      parse(what, text.substr(0, text.size() - 1), 0.0, 100.0) / 100 * double(steps));
}

// "1:3:20" or "1:3:20:2"
ProfileSteps parse_profile_steps(const std::string& text) {
  const std::string what = "usage: --profile-steps";
  const std::vector<std::string_view> items = parts_of(text, ":");
  SINTER_CHECK(items.size() == 3 || items.size() == 4, usage,
      str(what, " is not W:U:A[:R]: ", in_message(text), "; ",
          count_of(std::ssize(items), "number"), ", wanted 3 or 4"),
      "--profile-steps 1:3:20");
  ProfileSteps steps;
  int* const fields[] = {&steps.wait, &steps.warmup, &steps.active, &steps.repeat};
  for (size_t i = 0; i < items.size(); ++i)
    *fields[i] = parse(what, std::string(items[i]), int(i == 2), 1'000'000);
  return steps;
}

// What --model names, the flags of the model that it takes, and its layers (nn/net.h) up to the
// number of classes; mlp, linear and geglu are modules of their own.
struct NamedModel {
  std::string_view name, flags, layers;
};
constexpr NamedModel kModels[] = {{"mlp", "hidden act dropout", ""}, {"linear", "", ""},
    {"geglu", "hidden", ""}, {"lenet", "", nn::kLenetLayers}, {"cnn", "dropout", nn::kCnnLayers},
    // Pooling stands before batch norm and ReLU, which then have a quarter of the elements.
    {"cnn3", "dropout",
        "conv 32 5; pool 2; batchnorm; relu; conv 64 3; batchnorm; relu; "
        "conv 64 3; pool 2; batchnorm; relu; "
        "flatten; dropout 0.4; linear 128; relu; dropout 0.4; linear "}};

const NamedModel* find_model(const std::string& name) {
  const auto found = std::ranges::find(kModels, name, &NamedModel::name);
  return found == std::end(kModels) ? nullptr : found;
}

void check_model(const std::string& text) {
  std::vector<std::string> names;
  for (const NamedModel& model : kModels) names.emplace_back(model.name);
  const bool has_layers = text.find_first_of(" ;") != std::string::npos;
  if (!has_layers)
    check_word("unknown --model", text, names, "",
        "or layers: --model \"conv 16 5; relu; pool 2; flatten; linear 10\"");
}

// Each "dropout X; " of the layers with another share; none at 0.
std::string with_dropout(std::string layers, double share) {
  const std::string mine = share > 0 ? fmt::format("dropout {}; ", share) : "";
  for (size_t at = 0; (at = layers.find("dropout ", at)) != std::string::npos; at += mine.size())
    layers.replace(at, layers.find(' ', layers.find(';', at)) + 1 - at, mine);
  return layers;
}

std::vector<std::string> models_with(std::string_view flag) {
  std::vector<std::string> names;
  for (const NamedModel& model : kModels) {
    if (model.flags.find(flag) != model.flags.npos) names.emplace_back(model.name);
  }
  return names;
}

template <class Has> std::vector<std::string> optimizers_with(Has has) {
  std::vector<std::string> names;
  for (const nn::OptimizerChoice& choice : nn::optimizers()) {
    if (std::invoke(has, choice)) names.emplace_back(choice.name);
  }
  return names;
}

std::string text_of(double number) { return fmt::format("{}", number); }
std::string text_of(const nn::Betas& betas) { return fmt::format("{}", fmt::join(betas, ",")); }

// "0.001, sgd 0.1": Adam's numbers, and those of each optimizer that has others.
template <class Numbers> std::string usual_numbers(Numbers nn::OptimizerChoice::*of) {
  const Numbers usual = nn::optimizer_named("adam").*of;
  std::string text = text_of(usual);
  for (const nn::OptimizerChoice& choice : nn::optimizers()) {
    const bool has_others = choice.*of != usual && choice.*of != Numbers{};
    if (has_others) text += str(", ", choice.name, " ", text_of(choice.*of));
  }
  return text;
}

}  // namespace

std::vector<int64_t> ModelFlags::sizes() const {
  std::vector<int64_t> out{image().pixels()};
  if (model != "linear") out.insert(out.end(), hidden.begin(), hidden.end());
  out.push_back(classes);
  return out;
}

std::string ModelFlags::net() const {
  const NamedModel* named = find_model(model);
  if (!named) return model;
  if (named->layers.empty()) return "";
  const std::string layers(named->layers);
  return str(dropout ? with_dropout(layers, *dropout) : layers, classes);
}

std::string ModelFlags::name() const { return find_model(model) ? model : "net"; }

std::string ModelFlags::describe() const {
  if (!find_model(model)) return model;
  std::string text =
      str(model, " ", net().empty() ? join(sizes(), "-") : str(image_size, "-", classes));
  if (model == "mlp") text += " " + act;
  if (dropout && std::ranges::count(models_with("dropout"), model) > 0 &&
      (model != "mlp" || *dropout > 0))
    text += fmt::format(" dropout {}", *dropout);
  return text;
}

std::string TrainFlags::workload() const {
  return str(model.describe(), ", ", optimizer.optimizer,
      optimizer.accum > 1 ? str(" in parts of ", optimizer.batch) : "");
}

nn::Schedule OptimizerFlags::schedule_of(int64_t steps_of_run) const {
  return {.kind = nn::parse_schedule(schedule),
      .lr = lr.value(),
      .steps = steps_of_run,
      .warmup = warmup_steps(warmup, steps_of_run)};
}

void add_data_flags(Flags& flags, DataFlags& data) {
  flags.topic("data");
  Flag& what = flags.word("data", data.what, "WHAT",
      "a folder of the four MNIST files; two or four files, IDX or NumPy: images,labels; or "
      "synthetic; else $SINTER_DATA, ./data/mnist, ..");
  flags.word("data-crc32", data.crc32, "HEX", "of the data of a run: for its config").hidden = true;
  what.variable = "SINTER_DATA";
  flags.number("val", data.val, 0, kMany, "held out: the last of train, at most 1/12 of it");
  flags.number("limit", data.limit, 0, kMany, "only the first N of each set; 0 all");
  flags.choice("normalize", data.normalize, {"none", "mnist"}, "mnist: (x/255 - 0.1307) / 0.3081");
}

void add_model_flags(Flags& flags, ModelFlags& model) {
  flags.topic("model");
  flags.word("model", model.model, "NAME|LAYERS",
      "mlp, linear, geglu (one gated block, hidden 256), lenet, cnn, cnn3; or layers: "
      "\"conv 16 5; relu; pool 2; flatten; linear 10\"",
      check_model);
  only_for(flags.number(
               "hidden,hidden-sizes", model.hidden, 1, 1'000'000, "widths of the hidden layers"),
      "model", models_with("hidden"));
  only_for(flags.choice("act,activation", model.act, {"relu", "gelu", "silu", "tanh", "sigmoid"},
               "between the layers", {{"swish", "silu"}}),
      "model", models_with("act"));
  only_for(flags.number("dropout", model.dropout, 0, 0.99,
               "share of activations zeroed in training; 0 none"),
      "model", models_with("dropout"))
      .standard = "0, cnn 0.25 and 0.5, cnn3 0.4";
  flags.number("classes", model.classes, 2, 4096, "labels are 0..N-1");
  flags.choice("dtype", model.dtype, {"f32", "tf32", "bf16"},
      "bf16: activations and copies of the weights; tf32: cuda and simt only",
      {{"float32", "f32"}, {"fp32", "f32"}, {"float", "f32"}, {"bfloat16", "bf16"}});
  flags
      .word("image-size", model.image_size, "HxW[xC]", "of the data of a run: for its config",
          [](const std::string& text) { ImageShape::parse(text); })
      .hidden = true;
}

void add_optimizer_flags(Flags& flags, OptimizerFlags& optimizer) {
  flags.topic("optimizer");
  flags.number("epochs,num-epochs", optimizer.epochs, 1, 1'000'000, "passes over the training set")
      .get = [&optimizer] { return optimizer.steps ? "" : std::to_string(optimizer.epochs); };
  flags.number("steps", optimizer.steps, 1, kMany, "steps in place of epochs");
  flags.number("patience", optimizer.patience, 0, 1'000'000,
      "end after N epochs without a better val accuracy; 0 never");
  add_step_flags(flags, optimizer);
  flags.number("eval-batch-size,test-batch-size", optimizer.eval_batch, 1, 1'000'000, "");
}

void add_step_flags(Flags& flags, OptimizerFlags& optimizer) {
  flags.topic("optimizer");
  flags.number("batch-size,batch", optimizer.batch, 1, 1'000'000, "");
  flags.number(
      "accum", optimizer.accum, 1, 10'000, "batches whose gradients are added up for one step");
  flags.choice("optimizer", optimizer.optimizer, nn::optimizer_names(), "");
  flags.number("lr,learning-rate", optimizer.lr, 0, 1e6, "learning rate; the peak of a schedule")
      .standard = usual_numbers(&nn::OptimizerChoice::lr);
  only_for(flags.number("momentum", optimizer.momentum, 0, 0.9999, "of sgd"), "optimizer",
      optimizers_with(&nn::OptimizerChoice::has_momentum));
  Flag& betas = flags.number("betas", optimizer.betas, 0, 0.999999,
      "of adam, adamw, lion: how much of its averages each step keeps");
  betas.value = "B1,B2";
  betas.standard = usual_numbers(&nn::OptimizerChoice::betas);
  only_for(betas, "optimizer", optimizers_with(&nn::OptimizerChoice::has_betas));
  flags.number("weight-decay,wd", optimizer.weight_decay, 0, 1000, "").standard =
      usual_numbers(&nn::OptimizerChoice::weight_decay);
  flags.choice("schedule,lr-schedule", optimizer.schedule,
      {"constant", "cosine", "step", "onecycle"}, "of the learning rate",
      {{"cosineannealinglr", "cosine"}, {"steplr", "step"}, {"onecyclelr", "onecycle"}});
  flags
      .word("lr-warmup", optimizer.warmup, "N|P%", "steps with a rising rate, or a share of all",
          [](const std::string& text) { warmup_steps(text, 1); })
      .standard = "0, onecycle 20%";
  flags.number(
      "clip,max-grad-norm", optimizer.clip, 0, 1e6, "largest norm of all gradients; 0 off");
  flags.number("label-smoothing", optimizer.label_smoothing, 0, 0.99, "");
}

void add_mode_flags(Flags& flags, ModeFlags& mode) {
  flags.topic("mode, looking in");
  flags.choice("mode", mode.mode, {"eager", "fused"}, "");
  add_fusion_flags(flags, mode);
  add_profile_flag(flags, mode.profile);
  flags.word("profile-steps", mode.profile_steps, "W:U:A[:R]",
      "steps to wait, to warm up, to record; R times, 0 to the end",
      [&mode](const std::string& text) { mode.window = parse_profile_steps(text); });
  add_view_flags(flags, mode.view);
}

void add_preset_flag(Flags& flags, RunFlags& run) {
  not_saved(flags.choice(
      "preset", run.preset, preset_names(), "a named list of flags; others given win"));
}

void add_target_flag(Flags& flags, RunFlags& run) {
  flags.number("target-acc", run.target_acc, 0, 100, "wanted test accuracy in %; exit 7 below it");
}

void add_run_flags(Flags& flags, RunFlags& run) {
  flags.topic("run");
  add_preset_flag(flags, run);
  flags.word("out", run.out, "DIR", "the run folder").standard = "runs/DATE-TIME";
  not_saved(flags.toggle("force", run.force,
      "start over in a folder that holds a run, write over a graph that is there"));
  flags.number(
      "save-every", run.save_every, 0, 1'000'000, "epochs between saves; 0 at the end only");
  flags.number("save-steps", run.save_steps, 0, kMany, "also save every N steps; 0 off");
  Flag& resume = flags.word("resume", run.resume, "RUN", "go on with a run that was stopped");
  resume.saved = false;
  resume.bare_value = "runs/last";
  Flag& stop = flags.number(
      "stop-after", run.stop_after, 0, kMany, "as if a signal came after step N: for tests");
  stop.saved = false;
  stop.hidden = true;
  flags.word("init", run.init, "FILE", "start from these weights (safetensors)");
  flags.number(
      "log-every,log-interval", run.log_every, 1, 1'000'000'000, "steps between looks at the loss");
  add_target_flag(flags, run);
  not_saved(flags.number("rank-timeout", run.rank_timeout, 1, 1e6,
      "of several processes (mpirun): seconds to wait for one that hangs"));
  not_saved(flags.toggle("dry-run", run.dry_run,
      "one step (fused: two to record, one to replay) and one evaluation batch, nothing is "
      "written"));
  not_saved(flags.toggle("overfit-batch", run.overfit_batch,
      "500 steps on one batch must reach loss < 0.01, else exit 7"));
  flags.toggle("check-nan", run.check_nan, "look for NaN behind every op and name it (slow)");
}

void add_recipe_flags(Flags& flags, TrainFlags& train) {
  add_data_flags(flags, train.data);
  flags.word("augment", train.data.augment, "LIST",
      "change the images of training: shift=2,rotate=10,scale=10 (pixels, degrees, percent)",
      parse_augment);
  add_model_flags(flags, train.model);
  add_optimizer_flags(flags, train.optimizer);
}

void add_train_flags(Flags& flags, TrainFlags& train) {
  add_recipe_flags(flags, train);
  add_mode_flags(flags, train.mode);
  add_run_flags(flags, train.run);
}

void resolve(const Flags& flags, TrainFlags& train) {
  if (flags.first_wins("epochs", "steps")) train.optimizer.steps.reset();
  resolve_step(flags, train);
  SINTER_CHECK(train.optimizer.patience == 0 || train.data.val > 0, usage,
      "usage: --patience needs a val set: --val is 0, --patience " +
          std::to_string(train.optimizer.patience),
      "--val 5000");
  SINTER_CHECK(!train.run.dry_run || !train.run.overfit_batch, usage,
      "usage: --dry-run and --overfit-batch exclude each other: both are given");
  const bool no_training = train.run.dry_run || train.run.overfit_batch;
  SINTER_CHECK(!no_training || flags["profile"].source != Source::command_line, usage,
      str("usage: ", train.run.dry_run ? "--dry-run" : "--overfit-batch",
          " and --profile exclude each other: both are given"),
      "--steps 24 --profile is a short run with a profile");
  for (const Flag& flag : flags.all()) {
    const bool of_a_profile = flag.topic == "table" || flag.name == "profile-steps";
    SINTER_CHECK(
        !of_a_profile || !train.mode.profile.formats.empty() || flag.source != Source::command_line,
        usage, str("usage: ", flag.shown(), " needs --profile: none is given"),
        "--profile prints the table");
  }
  if (train.mode.mode == "fused") {
    SINTER_CHECK(!train.run.check_nan, usage,
        "usage: --check-nan needs --mode eager: the mode is fused; it reads what every op makes",
        "the numbers are those of --mode eager --check-nan");
    return;
  }
  for (const char* name : {"rules", "explain", "dump-graph"}) {
    SINTER_CHECK(flags[name].source != Source::command_line, usage,
        str("usage: --", name, " needs --mode fused: the mode is eager"),
        "mnist compare --explain shows what fusing changes");
  }
}

void resolve_step(const Flags& flags, TrainFlags& train) {
  OptimizerFlags& optimizer = train.optimizer;
  flags.check_uses();
  const std::vector<double>& betas = optimizer.betas;
  SINTER_CHECK(betas.empty() || betas.size() == 2, usage,
      str("usage: --betas has ", count_of(std::ssize(betas), "number"), ": ", join(betas, ","),
          "; wanted 2"),
      "--betas 0.9,0.999");
  if (train.model.model == "geglu") {
    std::vector<int64_t>& hidden = train.model.hidden;
    if (hidden == ModelFlags{}.hidden) hidden.resize(1);
    SINTER_CHECK(hidden.size() == 1, usage,
        fmt::format("usage: --model geglu has one hidden width: --hidden has {}: {}", hidden.size(),
            join(hidden, ",")),
        fmt::format("--hidden {}", hidden[0]));
  }
  const nn::OptimizerChoice& choice = nn::optimizer_named(optimizer.optimizer);
  if (!optimizer.lr) optimizer.lr = choice.lr;
  if (!optimizer.weight_decay) optimizer.weight_decay = choice.weight_decay;
  if (optimizer.betas.empty() && choice.has_betas())
    optimizer.betas.assign(choice.betas.begin(), choice.betas.end());
  if (optimizer.warmup.empty()) optimizer.warmup = optimizer.schedule == "onecycle" ? "20%" : "0";
  if (train.model.dtype == "tf32") {
    const Device device = choose_device(train.common->device).first;
    SINTER_CHECK(device.type != Device::Type::cpu, usage,
        str("usage: --dtype tf32 needs cuda or simt: the device is ", device.str()),
        "--dtype f32, or --dtype bf16");
  }
}

bool cpu_has(std::string_view feature) {
  ClassicStream<std::ifstream> cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("flags")) return (line + " ").find(str(" ", feature, " ")) != line.npos;
  }
  return false;
}

namespace {

// What --preset names. fast98: real MNIST to 98 % in the least time; bf16 where the device
// multiplies it fast. fast99: to 99 %, with a small convolutional net. best: what this program can
// do.
struct Preset {
  const char* name;
  std::optional<double> seconds;  // of training, wanted on two quiet cores
  const char* flags;              // lines of a config
};
constexpr Preset kPresets[] = {
    {"fast98", 0.5,
        "hidden=256,128\nact=relu\noptimizer=adam\nschedule=onecycle\nlr=0.005\nlr-warmup=20%\n"
        "label-smoothing=0.05\nnormalize=mnist\nbatch-size=256\nepochs=3\nval=0\nsave-every=0\n"
        "mode=fused\ntarget-acc=98\n"},
    {"fast99", 1.8,
        "model=\"conv 8 5; relu; pool 2; conv 24 3; relu; pool 2; flatten; linear 128; relu; "
        "linear 10\"\noptimizer=adam\nbetas=0.7,0.9\nschedule=onecycle\nlr=0.006\nlr-warmup=20%\n"
        "normalize=mnist\nbatch-size=64\nsteps=1400\nval=0\nsave-every=0\nmode=fused\n"
        "target-acc=99\n"},
    {"best", {},
        "model=cnn3\noptimizer=adam\nschedule=onecycle\nlr=0.003\nlr-warmup=20%\n"
        "normalize=mnist\nbatch-size=128\nepochs=15\naugment=\"shift=2,rotate=10,scale=10\"\n"
        "val=0\nmode=fused\ntarget-acc=99.4\n"}};

const Preset& preset_named(const std::string& name) {
  return *std::ranges::find(kPresets, name, &Preset::name);
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::optional<double> preset_seconds(const std::string& name) { return preset_named(name).seconds; }

std::string preset(const std::string& name, const CommonFlags& common, const std::string& command) {
  if (name.empty()) return "";
  std::string config = str("[", command, "]\n", preset_named(name).flags);
  if (name == "fast98") {
    const Device device = choose_device(common.device).first;
    const bool bf16 = device.type == Device::Type::cuda || (device == kCpu && cpu_has("amx_bf16"));
    config += bf16 ? "dtype=bf16\n" : "dtype=f32\n";
  }
  return config;
}

}  // namespace sinter::mnist
