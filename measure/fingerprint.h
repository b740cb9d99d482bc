// Fingerprints of a run: what each op wrote, as a number of 64 bits, step by step in a file. Two
// such files tell the op at which two runs part, and whether what it read was equal.
//
//   measure::Fingerprints prints("a.jsonl", {.device = "cpu", .mode = "fused"}, weights);
//   for (int step = 1; step <= 40; ++step) {
//     prints.begin_step(step);
//     trainer.step(batch);
//     prints.end_step();
//   }
//   for (const auto& [label, text] : measure::parting("a.jsonl", "b.jsonl").lines()) ..
//
// Note [What a fingerprint knows]
//   An op's line has once its name, module, library and tensors; a step's has the numbers of its
//   ops, and their hashes. Hashed is what an op writes, and before that what it reads and no op
//   wrote that was heard in this step or the last one: a batch, a table, a weight that the host
//   has changed; a small tensor once a step, as the host may write it without a word. So where two
//   runs are equal up to an op, what it reads is equal, or is told to differ. What lies there
//   before the first step is an op of its own, "start".
#pragma once

#include <fstream>
#include <map>
#include <unordered_map>

#include "capture/listener.h"
#include "core/classic.h"
#include "core/fields.h"

namespace sinter::measure {

// What two runs may differ in beside what their ops say.
struct FingerprintHead {
  std::string build{}, machine{}, device{}, mode{}, workload{}, seed{};
  int64_t threads = 0, every = 1;
  SINTER_FIELD_LIST(build, machine, device, mode, workload, seed, threads, every)
};

class Fingerprints final : public capture::Listener {
 public:
  // `named`: weights and state as they are behind step `done`. Throws checkpoint where the file
  // cannot be written, as end_step() does.
  Fingerprints(const std::string& file, const FingerprintHead& head,
      const std::vector<std::pair<std::string, Tensor>>& named, int64_t done = 0);
  // Of a step that `every` does not divide nothing is heard.
  void begin_step(int64_t step);
  void end_step();
  void record(const Call& call) override;

  struct Cost {
    int64_t steps = 0, bytes = 0;
    double seconds = 0;
  };
  const Cost& cost() const { return cost_; }

 private:
  bool is_known(const Tensor& t);
  std::string text_of(const Tensor& t) const;
  void hash(const Tensor& t);
  void write(const std::string& line);

  const std::string file_;
  ClassicStream<std::ofstream> out_;
  const int64_t every_;
  std::unordered_map<uint64_t, std::string> names_;  // of storages
  std::map<std::vector<int64_t>, int64_t> ops_;      // by all that their lines say
  int64_t step_;
  std::string ops_of_step_, hashes_;
  // The versions of the storages that were hashed in this step, and in the last one.
  std::unordered_map<uint64_t, uint64_t> known_, known_before_;
  Cost cost_;
};

// Where two runs part.
struct Parting {
  FingerprintHead a, b;
  int64_t first = 0, last = 0, ops = 0;  // the steps that are equal, and ops of all that were held
  // equal; what an op read, or wrote, differs; the ops themselves do
  enum class What : uint8_t { nothing, read, written, ops } what = What::nothing;
  int64_t step = 0, op = 0, of = 0;  // of that; from 1
  std::string name{}, module{}, tensor{}, library_a{}, library_b{}, name_b{};
  // Of another mode or device bits differ where no kernel is wrong.
  bool parts_by_nature() const {
    return what != What::nothing && (a.mode != b.mode || a.device != b.device);
  }
  // Labels and what stands behind them, for a reader.
  std::vector<std::pair<std::string, std::string>> lines() const;
  SINTER_FIELD_LIST(a, b, first, last, ops, what, step, op, of, name, module, tensor, library_a,
      library_b, name_b)
};
constexpr auto names_of(Parting::What) {
  return std::to_array<std::string_view>({"nothing", "read", "written", "ops"});
}
// Of the steps that both files have. Throws data where one is none, or they have none in common.
Parting parting(const std::string& a, const std::string& b);

}  // namespace sinter::measure
