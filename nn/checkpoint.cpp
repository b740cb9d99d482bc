#include "nn/checkpoint.h"

#include <bit>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "core/device/memory.h"
#include "core/json.h"
#include "core/parallel.h"
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
    if (!name.starts_with(sinter::str(kOptim, kSkippedSteps, "/"))) continue;
    for (const double skipped : tensor.to_vector<double>()) {
      SINTER_CHECK(skipped >= 0 && skipped <= double(checkpoint.state.optimizer_step) &&
                       skipped == std::floor(skipped),
          checkpoint,
          sinter::str("checkpoint: damaged: ", checkpoint.path, "; its ", escaped(name), " is ",
              skipped, ", a whole number is wanted, up to the ", checkpoint.state.optimizer_step,
              " steps done"));
    }
  }
}

// Where the thread's random numbers are; those of the device that trains apart.
void save_rng(TrainingState& to, Device trains) {
  const RngStates& states = RngStates::of_thread();
  to.rng_seed = states.seed;
  to.rng_tensors = states.host_tensors;
  to.rng_offset = to.rng_ops = 0;
  to.rng_devices.clear();
  for (const auto& [device, rng] : states.devices) {
    int64_t offset = rng.offset;
    if (rng.state.defined())
      copy_to_host(&offset, rng.state.data<int64_t>() + 1, device, sizeof offset);
    if (device == trains) {
      to.rng_offset = offset;
      to.rng_ops = rng.ops;
    } else if (offset != 0 || rng.ops != 0) {
      to.rng_devices.emplace_back(device, offset, rng.ops);
    }
  }
}

void restore_rng(const TrainingState& from, Device trains) {
  manual_seed(from.rng_seed);
  RngStates& states = RngStates::of_thread();
  states.host_tensors = from.rng_tensors;
  const auto restore = [&states](Device device, int64_t offset, int64_t ops) {
    RngStates::OfDevice& rng = states.devices[device];
    rng.offset = offset;
    rng.ops = ops;
    states.write(rng);
  };
  for (const auto& [device, offset, ops] : from.rng_devices) restore(device, offset, ops);
  // Last: a model that was on another device goes on with its own numbers.
  restore(trains, from.rng_offset, from.rng_ops);
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
  return std::isfinite(value) ? "" : sinter::str("is ", value, ", wanted a finite number");
}

std::string to_json(const TrainingState& state) { return json_text(state); }

TrainingState parse_state(const std::string& text, const std::string& file) {
  const auto damaged = [&](const std::string& facts) {
    return Error(Error::Kind::checkpoint,
        sinter::str("checkpoint: damaged: ", file, "; its sinter.state ", escaped(facts)));
  };
  if (text.size() > kMaxState)
    throw damaged(sinter::str("has ", text.size(), " bytes, at most ", kMaxState));
  const Json json = Json::parse(text, nullptr, false);
  TrainingState state;
  if (const Json format = json.is_object() && json.contains("format") ? json["format"] : Json();
      format.is_number_integer() && format > TrainingState::kFormat)
    throw Error(Error::Kind::checkpoint,
        sinter::str("checkpoint: made by a newer sinter: ", file, "; its sinter.state has format ",
            json_text(format), ", this build reads up to ", TrainingState::kFormat));
  try {
    read_json(json, state, "state");
  } catch (const Error& error) {
    throw damaged("is not one: " + error.message());
  }
  const auto check_range = [&](std::string_view key, int64_t value) {
    const int64_t low = key == "threads" ? 1 : 0, high = key == "threads" ? kMostThreads : kMany;
    if (value < low || value > high)
      throw damaged(
          sinter::str("is out of range: ", key, " is ", value, ", allowed ", low, "..", high));
  };
  visit_fields(state, [&]<class T>(std::string_view key, const T& value) {
    if constexpr (std::is_same_v<T, int64_t>) check_range(key, value);
  });
  check_range("rng_ops", state.rng_ops);
  for (const auto& [device, offset, ops] : state.rng_devices) {
    check_range("rng_devices", offset);
    check_range("rng_devices", ops);
  }
  Json wanted = state;
  for (const char* newer : {"batches", "rng_ops", "rng_tensors", "rng_devices"}) {
    if (!json.contains(newer)) wanted.erase(newer);
  }
  if (json_text(wanted) != text) throw damaged("is not as sinter writes it");
  return state;
}

void save_checkpoint(const std::string& path, const Module& model, const Optimizer& optimizer,
    const std::string& config, TrainingState state, const FileCalls& calls) {
  const StepState step = read_step_state(optimizer.state());
  SINTER_CHECK(std::isfinite(step.loss_sum) && std::isfinite(step.last_loss), numeric,
      sinter::str("checkpoint: not saved: ", shown(path), "; the last loss is ", step.last_loss,
          ", the sum of the epoch's ", step.loss_sum, "; no run goes on from there"),
      "write_safetensors writes the weights alone");
  state.optimizer_step = step.step;
  state.loss_sum = step.loss_sum;
  state.loss_rows = step.loss_rows;
  state.last_loss = step.last_loss;
  state.last_good_loss = step.last_good_loss;
  save_rng(state, device_of(optimizer));
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
      sinter::str("checkpoint: weights only: ", out.path,
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
  restore_rng(state, device_of(optimizer));
}

}  // namespace sinter::nn
