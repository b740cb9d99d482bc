#include "examples/mnist/model.h"

#include <cmath>
#include <filesystem>

#include "examples/mnist/job.h"
#include "nn/glu.h"
#include "nn/mlp.h"
#include "nn/net.h"
#include "nn/state_dict.h"

namespace sinter::mnist {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<nn::Net> make_net(const ModelFlags& flags) {
  const ImageShape image = flags.image();
  auto net =
      std::make_shared<nn::Net>(flags.net(), Shape{image.channels, image.height, image.width});
  SINTER_CHECK(net->output() == Shape{flags.classes}, usage,
      str("usage: --model gives ", net->output().str(), " for an image, wanted ",
          Shape{flags.classes}.str(), ": a number for each of --classes"),
      net->output().rank() == 1 ? str("--classes ", net->output()[0], ", or linear ", flags.classes,
                                      " at the end of --model")
                                : str("flatten; linear ", flags.classes, " at the end of --model"));
  return net;
}

// The kind and the widths of a chain of linear layers, or of a gated block: "mlp 784-256-10" ->
// mlp; 784, 256, 10. Of other tensors the kind is "".
struct Chain {
  std::string kind;
  std::vector<int64_t> sizes;
};
Chain chain_of(const nn::NamedTensors& tensors) {
  const std::string text = nn::architecture(tensors);
  Chain chain{text.substr(0, text.find(' ')), {}};
  if (chain.kind != "mlp" && chain.kind != "linear" && chain.kind != "geglu") return {};
  for (size_t at = text.find(' '); at != std::string::npos; at = text.find('-', at + 1))
    chain.sizes.push_back(std::stoll(text.substr(at + 1)));
  return chain;
}

// Data of which the run kept no sum are known by their place.
bool has_trained_on(const SavedModel& saved, const Dataset& data) {
  const DataFlags& run = saved.flags.data;
  return run.crc32.empty() ? run.what == data.place
                           : run.crc32 == fmt::format("{:08x}", data.crc32);
}

void require_model(const SavedModel& saved) {
  SINTER_CHECK(!saved.flags.model.model.empty(), checkpoint,
      str("checkpoint: not a model of mnist: ", shown(saved.path), "; it is ",
          nn::architecture(saved.tensors), " without sinter.config"),
      "mnist train --model LAYERS --init FILE takes its weights");
}

}  // namespace

std::shared_ptr<nn::Module> make_model(const ModelFlags& flags, uint64_t seed, Device device) {
  std::shared_ptr<nn::Module> model;
  const std::vector<int64_t> sizes = flags.sizes();
  if (!flags.net().empty()) {
    model = make_net(flags);
    model->init_parameters(seed);
  } else if (flags.model == "geglu") {
    model = std::make_shared<nn::Glu>(sizes[0], sizes[1], sizes[2]);
    model->init_parameters(seed);
  } else {
    model = std::make_shared<nn::Mlp>(
        sizes, nn::MlpOptions{
                   .activation = flags.act, .dropout = flags.dropout.value_or(0), .seed = seed});
  }
  if (flags.dtype == "bf16") model->enable_bf16();
  model->to(device);
  return model;
}

SavedModel read_model(const std::string& run_or_file) {
  SavedModel saved;
  saved.path =
      find_checkpoint(run_or_file, {"model.safetensors", "best.safetensors", "last.safetensors"});
  const std::string shown = sinter::shown(saved.path);
  nn::SafetensorsFile file = nn::read_safetensors(saved.path);
  saved.notes = std::move(file.notes);
  for (nn::NamedTensor& item : file.tensors) {
    if (!item.name.starts_with("sinter.")) saved.tensors.push_back(std::move(item));
  }
  ModelFlags& model = saved.flags.model;
  const Chain chain = chain_of(saved.tensors);
  const auto config = file.metadata.find("sinter.config");
  if (config != file.metadata.end()) {
    CommonFlags common;
    DigitsJob job(common);
    saved_flags(config->second, shown, job);
    saved.flags = job.recipe;
    if (!model.net().empty()) return saved;
  } else {
    saved.notes.push_back("no sinter.config in the file: activation relu, pixels x/255");
    // Whose images are then grey and square.
    const auto side = chain.sizes.empty() ? 0 : std::llround(std::sqrt(chain.sizes.front()));
    if (side > 0) model.image_size = ImageShape{.height = side, .width = side}.str();
  }
  SINTER_CHECK(chain.sizes.empty() || chain.sizes.front() == model.image().pixels(), checkpoint,
      str("checkpoint: not a model of mnist: ", shown, " is ", nn::architecture(saved.tensors),
          "; it takes ", chain.sizes.front(), " numbers, and an image of ", model.image_size,
          " has ", model.image().pixels()));
  model.model = chain.kind;
  if (chain.sizes.empty()) return saved;
  model.hidden.assign(chain.sizes.begin() + 1, chain.sizes.end() - 1);
  model.classes = chain.sizes.back();
  return saved;
}

void check_images(const SavedModel& saved, const ImageShape& images, const std::string& name) {
  const ModelFlags& model = saved.flags.model;
  SINTER_CHECK(model.model.empty() || images == model.image(), data,
      str("data: images of another size: ", name, " has ", images.str(), ", the model ",
          escaped(saved.path), " reads ", model.image_size));
}

void adopt_model(const Flags& flags, RecipeFlags& recipe, const SavedModel& saved) {
  if (!flags.given("normalize")) recipe.data.normalize = saved.flags.data.normalize;
  if (flags.given("model") || flags.given("hidden")) return;
  require_model(saved);
  const ModelFlags& there = saved.flags.model;
  ModelFlags& model = recipe.model;
  model.model = there.model;
  model.hidden = there.hidden;
  if (!flags.given("classes")) model.classes = there.classes;
  if (!flags.given("act")) model.act = there.act;
  if (!flags.given("dropout")) model.dropout = there.dropout;
}

std::string take_weights(nn::Module& model, const SavedModel& saved) {
  return nn::load_state_dict(model, saved.tensors,
      {.source = saved.path, .hint = "leave out --model and --hidden to take them from the file"});
}

void add_from_flags(Flags& flags, FromFlags& from) {
  flags.topic("model and data");
  flags.word("from", from.from, "RUN|FILE", "a run folder or a safetensors file");
  flags.word("data", from.data.what, "WHAT", "as for train; else what the model was trained on")
      .variable = "SINTER_DATA";
  flags.number(
      "limit", from.data.limit, 0, 1'000'000'000'000, "only the first N of the set; 0 all");
  flags.choice("normalize", from.data.normalize, {"none", "mnist"}, "as in training unless given");
}

SavedModel open_model(const Flags& flags, FromFlags& from, Device device, Output& out) {
  SavedModel saved = read_model(from.from);
  require_model(saved);
  saved.model = make_model(saved.flags.model, 1, device);
  const std::string how = nn::load_state_dict(*saved.model, saved.tensors, {.source = saved.path});
  if (how != "same keys") saved.notes.push_back("weights: " + how);
  saved.model->eval();
  const DataFlags& run = saved.flags.data;
  if (!flags.given("data")) from.data.what = run.what;
  if (!flags.given("normalize")) from.data.normalize = run.normalize;
  from.data.val = run.val;
  for (const std::string& note : saved.notes) out.note("note", note);
  note_emulator(device, out);
  return saved;
}

bool is_pair(const std::string& place) {
  const std::vector<std::string_view> files = parts_of(place, ",");
  return files.size() == 2 && files[1].starts_with('/');
}

void note_split(const SavedModel& saved, const Dataset& data, Output& out) {
  const bool pair = is_pair(data.place);
  if (!has_trained_on(saved, data) || pair == is_pair(saved.flags.data.what)) return;
  if (pair)
    out.warning("the model was trained on these images: how it reads them says nothing of others");
  else
    out.note("note", "the model was trained on another split of these training images");
}

Dataset load_data(const SavedModel& saved, DataOptions options, Output& out) {
  const DataFlags& run = saved.flags.data;
  options.pair_is_test = true;
  Dataset data = load_dataset(options);
  const bool same = has_trained_on(saved, data);
  if (same && is_pair(data.place) && is_pair(run.what)) {
    options.pair_is_test = false;
    data = load_dataset(options);
    data.description += ", as in training";
  }
  check_images(saved, data.test.image(), data.name);
  if (!same && !run.crc32.empty()) {
    out.note("note", "the model was trained on other data: {} with crc32 {}, here it is {:08x}",
        escaped(run.what), escaped(run.crc32), data.crc32);
  }
  note_split(saved, data, out);
  return data;
}

}  // namespace sinter::mnist
