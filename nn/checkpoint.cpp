#include "nn/checkpoint.h"

#include <bit>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "core/device/memory.h"
#include "core/json.h"
#include "nn/state_dict.h"

namespace sinter::nn {
namespace {

constexpr const char *kConfig = "sinter.config", *kState = "sinter.state",
                     *kOptim = "sinter.optim/";
constexpr size_t kMaxState = 1 << 16;
constexpr int64_t kMany = 1'000'000'000'000'000;  // steps, rows, ..: no run has more

// The model's tensors and the optimizer's, as the file names them.
NamedTensors all_tensors(const Module& model, const Optimizer& optimizer) {
  NamedTensors all = model.state_dict();
  for (auto& [name, tensor] : optimizer.state_tensors()) all.push_back({kOptim + name, tensor});
  return all;
}

// Whole numbers, up to the steps done.
void check_skipped_steps(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!name.starts_with(cat(kOptim, kSkippedSteps, "/"))) continue;
    for (const double skipped : tensor.to_vector<double>()) {
      SINTER_CHECK(skipped >= 0 && skipped <= double(checkpoint.state.optimizer_step) &&
                       skipped == std::floor(skipped),
          checkpoint,
          cat("checkpoint: damaged: ", checkpoint.path, "; its ", escaped(name), " is ", skipped,
              ", a whole number is wanted, up to the ", checkpoint.state.optimizer_step,
              " steps done"));
    }
  }
}

Device device_of(const Optimizer& optimizer) { return optimizer.parameters()[0].tensor.device(); }

}  // namespace

std::string exact_text(uint64_t value) { return std::to_string(value); }
std::string exact_text(double value) {
  return fmt::format("{:016x}", std::bit_cast<uint64_t>(value));
}
// What is no such text gives another number, which shows when the state is written again.
std::string read_exact(const std::string& text, uint64_t& value) {
  std::from_chars(text.data(), text.data() + text.size(), value);
  return "";
}
std::string read_exact(const std::string& text, double& value) {
  uint64_t bits = 0;
  std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  value = std::bit_cast<double>(bits);
  return std::isfinite(value) ? "" : cat("is ", value, ", wanted a finite number");
}

std::string to_json(const TrainingState& state) { return json_text(state); }

TrainingState parse_state(const std::string& text, const std::string& file) {
  const auto damaged = [&](const std::string& facts) {
    return Error(Error::Kind::checkpoint,
        cat("checkpoint: damaged: ", file, "; its sinter.state ", escaped(facts)));
  };
  if (text.size() > kMaxState)
    throw damaged(cat("has ", text.size(), " bytes, at most ", kMaxState));
  const Json json = Json::parse(text, nullptr, false);
  TrainingState state;
  if (const Json format = json.is_object() && json.contains("format") ? json["format"] : Json();
      format.is_number_integer() && format > TrainingState::kFormat)
    throw Error(Error::Kind::checkpoint,
        cat("checkpoint: made by a newer sinter: ", file, "; its sinter.state has format ",
            json_text(format), ", this build reads up to ", TrainingState::kFormat));
  try {
    read_json(json, state, "state");
  } catch (const Error& error) {
    throw damaged("is not one: " + error.message());
  }
  visit_fields(state, [&]<class T>(std::string_view key, const T& value) {
    if constexpr (std::is_same_v<T, int64_t>) {
      const int64_t low = key == "threads" ? 1 : 0, high = key == "threads" ? 4096 : kMany;
      if (value < low || value > high)
        throw damaged(cat("is out of range: ", key, " is ", value, ", allowed ", low, "..", high));
    }
  });
  if (to_json(state) != text) throw damaged("is not as sinter writes it");
  return state;
}

void save_checkpoint(const std::string& path, const Module& model, const Optimizer& optimizer,
    const std::string& config, TrainingState state, const FileCalls& calls) {
  const StepState step = read_step_state(optimizer.state());
  SINTER_CHECK(std::isfinite(step.loss_sum) && std::isfinite(step.last_loss), numeric,
      cat("checkpoint: not saved: ", shown(path), "; the last loss is ", step.last_loss,
          ", the sum of the epoch's ", step.loss_sum, "; no run goes on from there"),
      "write_safetensors writes the weights alone");
  state.optimizer_step = step.step;
  state.loss_sum = step.loss_sum;
  state.loss_rows = step.loss_rows;
  state.last_loss = step.last_loss;
  state.last_good_loss = step.last_good_loss;
  int64_t rng[3];
  copy_to_host(rng, rng_state(device_of(optimizer)).raw(), device_of(optimizer), sizeof rng);
  state.rng_seed = uint64_t(rng[0]);
  state.rng_offset = rng[1];
  write_safetensors(
      path, all_tensors(model, optimizer), {{kConfig, config}, {kState, to_json(state)}}, calls);
}

Checkpoint read_checkpoint(const std::string& path) {
  SafetensorsFile file = read_safetensors(path);
  Checkpoint out{.path = shown(path),
      .tensors = std::move(file.tensors),
      .config = file.metadata[kConfig],
      .state = {}};
  SINTER_CHECK(file.metadata.contains(kState), checkpoint,
      cat("checkpoint: weights only: ", out.path,
          "; optimizer state, RNG and data position are missing"),
      "load_state_dict takes the weights alone");
  out.state = parse_state(file.metadata[kState], out.path);
  return out;
}

void restore(const Checkpoint& checkpoint, const Module& model, Optimizer& optimizer) {
  check_skipped_steps(checkpoint);
  load_state_dict(all_tensors(model, optimizer), checkpoint.tensors,
      {.same_keys_only = true, .source = checkpoint.path});
  const TrainingState& state = checkpoint.state;
  optimizer.set_steps(state.optimizer_step);
  StepState step = read_step_state(optimizer.state());
  step.loss_sum = state.loss_sum;
  step.loss_rows = state.loss_rows;
  step.last_loss = state.last_loss;
  step.last_good_loss = state.last_good_loss;
  write_step_state(optimizer.state(), step);
  manual_seed(state.rng_seed);
  const int64_t rng[3] = {int64_t(state.rng_seed), state.rng_offset, 0};
  copy_to_device(rng_state(device_of(optimizer)).raw(), device_of(optimizer), rng, sizeof rng);
}

}  // namespace sinter::nn
