#include "nn/checkpoint.h"

#include <bit>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/device/memory.h"
#include "core/error.h"
#include "nn/state_dict.h"

namespace sinter::nn {
namespace {

constexpr const char *kConfig = "sinter.config", *kState = "sinter.state",
                     *kOptim = "sinter.optim/";
constexpr int kFormat = 1;
constexpr size_t kMaxState = 1 << 16;
constexpr int64_t kMany = 1'000'000'000'000'000;  // steps, rows, ..: no run has more

// A field as JSON keeps it to the bit: JSON's own numbers are neither 64 bits nor exact.
template <class T> nlohmann::ordered_json as_json(const T& value) {
  if constexpr (std::is_same_v<T, uint64_t>) {
    return std::to_string(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return fmt::format("{:016x}", std::bit_cast<uint64_t>(value));
  } else {
    return value;
  }
}

uint64_t unsigned_of(const nlohmann::ordered_json& json, int base) {
  const auto text = json.get<std::string>();
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

// Takes what comes near enough: whatever is not as as_json() has it shows when the state is written
// again. Returns what is wrong with the value, or "".
template <class T>
std::string read_field(const std::string& key, const nlohmann::ordered_json& json, T& value) {
  if constexpr (std::is_same_v<T, uint64_t>) {
    value = unsigned_of(json, 10);
  } else if constexpr (std::is_same_v<T, double>) {
    value = std::bit_cast<double>(unsigned_of(json, 16));
    if (!std::isfinite(value)) return cat(key, " is ", value, ", a finite number is wanted");
  } else {
    json.get_to(value);
    if constexpr (std::is_same_v<T, int64_t>) {
      if (value < 0 || value > kMany) return cat(key, " is ", value, ", allowed 0..", kMany);
    }
  }
  return "";
}

// The model's tensors and the optimizer's, as the file names them.
NamedTensors all_tensors(const Module& model, const Optimizer& optimizer) {
  NamedTensors all = model.state_dict();
  for (auto& [name, tensor] : optimizer.state_tensors()) all.push_back({kOptim + name, tensor});
  return all;
}

// The tensors of a checkpoint, with the skipped steps that one of before they were counted lacks.
NamedTensors saved_tensors(const Checkpoint& checkpoint, const Optimizer& optimizer) {
  NamedTensors all = checkpoint.tensors;
  const std::string prefix = cat(kOptim, kSkippedSteps, "/");
  bool any = false;
  for (const auto& [name, tensor] : all) {
    if (!name.starts_with(prefix)) continue;
    any = true;
    for (const double skipped : tensor.to_vector<double>()) {
      SINTER_CHECK(skipped >= 0 && skipped <= double(checkpoint.state.optimizer_step) &&
                       skipped == std::floor(skipped),
          checkpoint,
          cat("checkpoint: damaged: ", checkpoint.path, "; its ", escaped(name), " is ", skipped,
              ", a whole number is wanted, up to the ", checkpoint.state.optimizer_step,
              " steps done"));
    }
  }
  for (const auto& [name, tensor] : optimizer.state_tensors()) {
    const std::string saved = kOptim + name;
    if (!any && saved.starts_with(prefix)) all.push_back({saved, Tensor::zeros({1}, DType::f64)});
  }
  return all;
}

Device device_of(const Optimizer& optimizer) { return optimizer.parameters()[0].tensor.device(); }

}  // namespace

std::string to_json(const TrainingState& state) {
  nlohmann::ordered_json json = {{"format", kFormat}};
  visit_fields(state,
      [&](std::string_view key, const auto& value) { json[std::string(key)] = as_json(value); });
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

TrainingState parse_state(const std::string& text, const std::string& file) {
  const auto damaged = [&](const std::string& facts) {
    return Error(
        Error::Kind::checkpoint, cat("checkpoint: damaged: ", file, "; its sinter.state ", facts));
  };
  if (text.size() > kMaxState)
    throw damaged(cat("has ", text.size(), " bytes, at most ", kMaxState));
  TrainingState state;
  std::string wrong;
  try {
    bool fractions = false;  // we write none, and a huge one converted to an integer is undefined
    const nlohmann::ordered_json json = nlohmann::ordered_json::parse(text,
        [&](int, nlohmann::ordered_json::parse_event_t event, const nlohmann::ordered_json& value) {
          fractions |=
              event == nlohmann::ordered_json::parse_event_t::value && value.is_number_float();
          return true;
        });
    if (fractions) throw damaged("is not as sinter writes it");
    const auto format = json.at("format").get<int64_t>();
    if (format > kFormat)
      throw Error(Error::Kind::checkpoint,
          cat("checkpoint: made by a newer sinter: ", file, "; its sinter.state has format ",
              format, ", this build reads up to ", kFormat));
    visit_fields(state, [&](std::string_view name, auto& value) {
      const std::string key(name), problem = read_field(key, json.at(key), value);
      if (!problem.empty()) wrong = problem;
    });
  } catch (const nlohmann::ordered_json::exception& error) {
    const std::string_view what =
        error.what();  // "[json.exception.out_of_range.403] key 'step' not found"
    throw damaged(cat("is not one: ", escaped(what.substr(what.find(']') + 1, 200))));
  }
  if (wrong.empty() && (state.threads < 1 || state.threads > 4096))
    wrong = cat("threads is ", state.threads, ", allowed 1..4096");
  if (!wrong.empty()) throw damaged("is out of range: " + wrong);
  if (to_json(state) != text) throw damaged("is not as sinter writes it");
  return state;
}

void save_checkpoint(const std::string& path, const Module& model, const Optimizer& optimizer,
    const std::string& config, TrainingState state, const FileCalls& calls) {
  const StepState step = read_step_state(optimizer.state());
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
  load_state_dict(all_tensors(model, optimizer), saved_tensors(checkpoint, optimizer),
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
