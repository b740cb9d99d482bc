// Models of the command line, made of flags; and their files: where --from looks, and
// what a file says of its model.
//
// A file of ours carries the run's flags as metadata `sinter.config`, so that the layers, the
// activation, the type, the normalization and the size of the images come back; a file of others is
// a chain of linear layers whose sizes its tensors give, taken with relu. Widths of such a chain
// are always those of the tensors.
#pragma once

#include "cli/output.h"
#include "examples/mnist/flags.h"
#include "nn/module.h"
#include "nn/safetensors.h"

namespace sinter::mnist {

// Drawn on the CPU, so that the numbers are those of every device.
std::shared_ptr<nn::Module> make_model(const ModelFlags& flags, uint64_t seed, Device device);

// Flags of a model and of the data that it was trained on.
struct RecipeFlags {
  DataFlags data;
  ModelFlags model;
};

struct SavedModel {
  std::string path;
  nn::NamedTensors tensors;  // weights only
  // Of the run that made it; else defaults. The model is "" where neither a config nor the tensors'
  // shapes tell which it is.
  RecipeFlags flags;
  std::vector<std::string> notes;       // for the user
  std::shared_ptr<nn::Module> model{};  // of open_model()
};

// A run folder means its model, else best, else last. Throws checkpoint.
SavedModel read_model(const std::string& run_or_file);
// Throws data, with both sizes, unless the images of `name` are of the size that the model reads.
void check_images(const SavedModel& saved, const ImageShape& images, const std::string& name);
// Flags of the model and the normalization that were not given become the file's; then its weights,
// and how they were found.
void adopt_model(const Flags& flags, RecipeFlags& recipe, const SavedModel& saved);
std::string take_weights(nn::Module& model, const SavedModel& saved);

// The flags of eval and predict: --from, and the data with the checkpoint's as the default.
struct FromFlags {
  std::string from = "runs/last";
  DataFlags data{.normalize = ""};
};
void add_from_flags(Flags& flags, FromFlags& from);
// The model of --from with its weights on the device, in evaluation mode. Data flags
// that were not given become the checkpoint's. Throws checkpoint if it is none.
SavedModel open_model(const Flags& flags, FromFlags& from, Device device, Output& out);
// The data of eval and predict. A pair of files is split as in training where it is what the model
// was trained on, wherever it was named; of another pair all is the test. The description says
// which, and a note where the data are others. Throws as load_dataset() and check_images().
Dataset load_data(const SavedModel& saved, DataOptions options, Output& out);
// Says so where the model was trained on the same images, but not on the same share of them.
void note_split(const SavedModel& saved, const Dataset& data, Output& out);
// Is this Dataset::place that of one pair of files, of which a share is drawn for the test?
bool is_pair(const std::string& place);

}  // namespace sinter::mnist
