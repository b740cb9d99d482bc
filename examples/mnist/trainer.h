// What mnist trains by: the model of its flags, and a Trainer of it.
#pragma once

#include <memory>

#include "examples/mnist/flags.h"
#include "train/trainer.h"

namespace sinter::mnist {

// Drawn on the CPU, so that the numbers are those of every device.
std::shared_ptr<nn::Module> make_model(const ModelFlags& flags, uint64_t seed, Device device);
// `steps`: of the whole run, for the schedule. `choices`: of an earlier capture, see
// capture::StepOptions.
std::unique_ptr<Trainer> make_trainer(const TrainFlags& flags, std::shared_ptr<nn::Module> model,
    int64_t steps, std::vector<capture::Refused> choices = {});
// cli::choose_threads() by the step of a scratch model. Draws random numbers, if the step does.
std::string choose_threads(const TrainFlags& flags, const Batch& batch);

}  // namespace sinter::mnist
