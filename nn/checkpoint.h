// Checkpoints: all that a training run needs to go on to the bit, in one safetensors file.
//
//   "0.weight"                      weights, as in the state dict: f32 masters
//   "sinter.optim/exp_avg/0.weight" optimizer state, under PyTorch's names; skipped_steps is the
//                                   step's number less PyTorch's `step`
//   metadata sinter.config          the run's flags, as text that the caller reads
//   metadata sinter.state           TrainingState as JSON: u64 as text, floats as hex bits, no
//                                   time, so that the same state is the same bytes
//   metadata sinter.crc32           of all data
//
// A file without sinter.state is weights only. A file is input from a stranger: its state must be
// exactly what we would write for it. Errors are of kind checkpoint. Used by the programs; not
// thread-safe.
#pragma once

#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/fields.h"
#include "nn/module.h"
#include "nn/optim.h"
#include "nn/safetensors.h"

namespace sinter::nn {

// A number as the file keeps it, to the bit: for most readers of JSON a number is neither 64 bits
// nor exact. An integer is its digits, a fraction the 16 digits of its bits.
std::string exact_text(uint64_t value);
std::string exact_text(double value);
std::string read_exact(const std::string& text, uint64_t& value);  // what is wrong, or ""
std::string read_exact(const std::string& text, double& value);
template <class T> auto exact(T& value) {
  return through([&value] { return exact_text(value); },
      [&value](const auto& text) { return read_exact(text, value); });
}

struct TrainingState {
  static constexpr int kFormat = 1;
  // Batches consumed, not prefetched. `epoch` epochs are closed (evaluated, reported), `batch`
  // batches of the next one are done; batch may be all of them: then the epoch is still to be
  // closed. `ended`: the run did all its steps, whether or not the last epoch was whole.
  int64_t step = 0, epoch = 0, batch = 0;
  bool ended = false;
  uint64_t rng_seed = 0;  // of Philox, and how often a step drew from it
  int64_t rng_offset = 0;
  // Random ops since then; tensors that the host drew; offset and ops of other devices that drew.
  // Files of earlier builds lack them: then they begin anew.
  int64_t rng_ops = 0;
  uint64_t rng_tensors = 0;
  std::vector<std::tuple<Device, int64_t, int64_t>> rng_devices = {};
  int64_t optimizer_step = 0;
  double loss_sum = 0, last_loss = 0, last_good_loss = 0;  // of the epoch so far
  int64_t loss_rows = 0;
  double best = -1;      // accuracy on val; -1: none yet
  int64_t patience = 0;  // epochs since then
  double window_loss =
      0;  // sums at the last look at the loss, and for how many steps it has not moved
  int64_t window_rows = 0, flat_steps = 0;
  int64_t events = 0;  // lines of events.jsonl
  // The data set's name, "" if nobody has said, its crc32 or 0, and what its batches are, as
  // Batches::describe() has it; "": of batches of the caller's own, or of an earlier build.
  std::string data;
  uint64_t data_crc = 0;
  std::string batches;
  std::string device, mode, build;
  int64_t threads = 1;
  // What measuring kept unfused, per capture: rule and first node of the group.
  std::vector<std::set<std::pair<std::string, int>>> unfused = {};
  // In the order of the JSON.
  SINTER_FIELD_LIST(named("format", written(kFormat)), step, epoch, batch, ended, exact(rng_seed),
      rng_offset, optimizer_step, exact(loss_sum), loss_rows, exact(last_loss),
      exact(last_good_loss), exact(best), patience, exact(window_loss), window_rows, flat_steps,
      events, data, exact(data_crc), device, mode, threads, build, unfused, newer(batches),
      newer(rng_ops), newer(exact(rng_tensors)), newer(rng_devices))
};
std::string to_json(const TrainingState& state);
// `file` is for messages. Throws unless `text` is what to_json() gives for some state in range.
TrainingState parse_state(const std::string& text, const std::string& file);

struct Checkpoint {
  std::string path;  // absolute, escaped
  NamedTensors tensors;
  std::string config;
  TrainingState state;
};

// `state` is the caller's part: what model, optimizer and RNG know themselves is filled in.
void save_checkpoint(const std::string& path, const Module& model, const Optimizer& optimizer,
    const std::string& config, TrainingState state, const FileCalls& calls = FileCalls::system());
Checkpoint read_checkpoint(const std::string& path);
// Weights, optimizer and the thread's RNG as they were at the save, in place; the same keys are
// wanted. All or nothing.
void restore(const Checkpoint& checkpoint, const Module& model, Optimizer& optimizer);

}  // namespace sinter::nn
