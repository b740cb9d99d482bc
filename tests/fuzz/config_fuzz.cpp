// Config files of `mnist train`: as a user gives them, and as a checkpoint carries them.
#include "cli/train_flags.h"
#include "examples/mnist/flags.h"
#include "tests/fuzz/fuzz.h"

namespace sinter::fuzz {

void one(Bytes bytes) {
  for (const cli::Source source : {cli::Source::file, cli::Source::checkpoint}) {
    guarded([&] {
      cli::CommonFlags common;
      cli::TrainFlags train;
      const cli::Metric metric{.name = "accuracy"};
      mnist::DataFlags data;
      mnist::ModelFlags model;
      cli::Flags flags;
      cli::add_common_flags(flags, common);
      mnist::add_data_flags(flags, data);
      mnist::add_augment_flag(flags, data);
      mnist::add_model_flags(flags, model);
      cli::add_epoch_flags(flags, train.optimizer, metric);
      cli::add_step_flags(flags, train.optimizer);
      cli::add_mode_flags(flags, train.mode);
      cli::add_folder_flags(flags, train.run, metric);
      cli::apply_config(
          std::string(text_of(bytes)), "F", flags, "train", {"train", "eval"}, source);
      flags.config("train");
    });
  }
}

}  // namespace sinter::fuzz
