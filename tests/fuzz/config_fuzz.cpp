// Config files of `mnist train`: as a user gives them, and as a checkpoint carries them.
#include "examples/mnist/flags.h"
#include "tests/fuzz/fuzz.h"

namespace sinter::fuzz {

void one(Bytes bytes) {
  for (const cli::Source source : {cli::Source::file, cli::Source::checkpoint}) {
    guarded([&] {
      cli::CommonFlags common;
      mnist::TrainFlags train;
      train.common = &common;
      cli::Flags flags;
      cli::add_common_flags(flags, common);
      mnist::add_train_flags(flags, train);
      cli::apply_config(
          std::string(text_of(bytes)), "F", flags, "train", {"train", "eval"}, source);
      flags.config("train");
    });
  }
}

}  // namespace sinter::fuzz
