// The commands of `mnist`, and their flags: a struct and a function per topic, shared by the
// commands that have it. The structs hold checked values.
#pragma once

#include "cli/commands.h"
#include "cli/train_flags.h"
#include "data/batches.h"
#include "data/dataset.h"
#include "data/digits.h"

namespace sinter::mnist {

using namespace cli;

struct DataFlags {
  std::string what;
  int64_t val = 5000, limit = 0;
  std::string normalize = "none";
  std::string augment;  // as parse_augment() reads it; of train
  std::string
      crc32;  // of the data that a run was trained on, see Dataset; it writes it into its config

  DataOptions options(int64_t classes) const {
    return {.what = what, .val = val, .limit = limit, .classes = classes};
  }
  Normalize normalization() const {
    return normalize == "mnist" ? Normalize::mnist : Normalize::none;
  }
};

struct ModelFlags {
  std::string model = "mlp";  // a name, or layers as nn::Net reads them
  std::vector<int64_t> hidden = {256, 128};
  std::string act = "relu";
  std::optional<double> dropout;  // unset: none, or what the named net has
  int64_t classes = 10;
  std::string dtype = "f32";
  std::string image_size = ImageShape().str();  // of the data; a run writes it into its config

  ImageShape image() const { return ImageShape::parse(image_size); }
  std::vector<int64_t> sizes() const;  // of mlp, linear and geglu: 784, .., classes
  std::string net() const;             // the layers of any other, as nn::Net reads them
  std::string name() const;            // the model's, or "net" of layers
  std::string describe() const;        // mlp 784-256-128-10 relu; lenet 28x28-10; or the layers
  DType batch_dtype() const { return dtype == "bf16" ? DType::bf16 : DType::f32; }
};

void add_data_flags(Flags& flags, DataFlags& data);
void add_augment_flag(Flags& flags, DataFlags& data);
void add_model_flags(Flags& flags, ModelFlags& model);
// What goes together of a model's flags; a geglu has one width.
void resolve_model(ModelFlags& model, const CommonFlags& common);

// Is this among the flags of /proc/cpuinfo: "amx_bf16"?
bool cpu_has(std::string_view feature);

// What one types here in place of other words.
ProgramWords words();

// The commands that others have not, see cli/commands.h.
Setup add_eval, add_predict, add_mlp_bench, add_data, add_doctor;

}  // namespace sinter::mnist
