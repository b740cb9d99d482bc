#include "examples/mnist/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "core/classic.h"
#include "nn/net.h"
#include "nn/optim.h"

namespace sinter::mnist {
namespace {

constexpr int64_t kMany = 1'000'000'000'000;

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

void add_data_flags(Flags& flags, DataFlags& data) {
  flags.topic("data");
  Flag& what = flags.word("data", data.what, "WHAT",
      "a folder of the four MNIST files; two or four files, IDX or NumPy: images,labels; or "
      "synthetic; else $SINTER_DATA, ./data/mnist, ..");
  what.variable = "SINTER_DATA";
  what.place = true;
  flags.word("data-crc32", data.crc32, "HEX", "of the data of a run: for its config").hidden = true;
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

void add_augment_flag(Flags& flags, DataFlags& data) {
  flags.word("augment", data.augment, "LIST",
      "change the images of training: shift=2,rotate=10,scale=10 (pixels, degrees, percent)",
      parse_augment);
}

void resolve_model(ModelFlags& model, const CommonFlags& common) {
  if (model.model == "geglu") {
    std::vector<int64_t>& hidden = model.hidden;
    if (hidden == ModelFlags{}.hidden) hidden.resize(1);
    SINTER_CHECK(hidden.size() == 1, usage,
        fmt::format("usage: --model geglu has one hidden width: --hidden has {}: {}", hidden.size(),
            join(hidden, ",")),
        fmt::format("--hidden {}", hidden[0]));
  }
  check_dtype(model.dtype, common);
}

bool cpu_has(std::string_view feature) {
  ClassicStream<std::ifstream> cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("flags")) return (line + " ").find(str(" ", feature, " ")) != line.npos;
  }
  return false;
}

}  // namespace sinter::mnist
