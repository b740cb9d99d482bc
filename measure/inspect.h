// Inspect: one training step, opened. The ops of a captured step run one by one, as they were
// recorded (eager) and as the rules left them (fused), on copies of all that they change; what each
// of them is, reads, gives, costs and takes is kept: as JSON (sinter.inspect/1), as a page for a
// browser, and as a walk in text.
//
//   const measure::Inspection opened(*step.captured(), inputs);
//   write_file("step.html", opened.page());
//
// Used by `mnist inspect`; docs/GUIDE.md walks through a page. One thread; nothing of the step,
// its model or its optimizer changes.
#pragma once

#include <string>

#include "capture/captured.h"

namespace sinter::measure {

struct InspectOptions {
  std::string title = "step", command{};
  capture::RuleSet rules{};  // of the capture
  int passes = 7;            // through the step; the time of an op is the median
  // [C, H, W] of a row of the step's inputs, which are drawn as such; empty: they are no images.
  Shape picture{};
};

class Inspection {
 public:
  // `inputs`: what the step is called with. Throws shape where they are not those of the capture,
  // and what its kernels throw.
  Inspection(
      const capture::Captured& captured, const Tensors& inputs, const InspectOptions& options = {});
  // Two steps (eager, fused), each with its ops in the order in which they run, its buffers, arcs
  // and pictures; what the step counts without some of its rules (RuleSwitches; null: it has none);
  // near misses; parameters, and how far the update moved them. Times in ns, null on the emulator;
  // sizes in bytes; node numbers count from 0; `buffer` and `picture` are indices.
  const std::string& json() const { return json_; }
  // One HTML file that asks for nothing over any wire.
  std::string page() const;
  // ASCII, at most 100 columns.
  std::string text() const;

 private:
  std::string title_, command_, json_;
};

// What a captured step would count if some of its fusion rules were off: launches, bytes and arena
// of each choice, known beforehand, for the switches of a page.
//
// Rules interact: without one of them another may find a group that it has not had. So each choice
// is a rewriting of the recorded step of its own, the one that the rules `SET,-NAME,-NAME` make,
// and no sum of what single rules save. Groups that measuring kept unfused stay so; the smaller
// groups that a choice makes are not measured.
struct StepCounts {
  size_t launches = 0;
  int64_t bytes = 0, arena_bytes = 0;
};

struct RuleSwitches {
  // Those with groups in the step that save most bytes, at most kMost, in their order in rules().
  std::vector<std::string> names;
  // 2^names: of the choice in which the rules of the number's bits are on, so the last has all.
  std::vector<StepCounts> counts;

  static constexpr size_t kMost = 8;
};

// `set`: the rules of the capture.
RuleSwitches rule_switches(const capture::Captured& captured, const capture::RuleSet& set);

}  // namespace sinter::measure
