// --profile of a training run: the window of steps that is recorded, as many clean steps behind it,
// the table and the files. Without --profile nothing happens.
#pragma once

#include "examples/mnist/run.h"
#include "profiler/session.h"

namespace sinter::mnist {

class StepProfile {
 public:
  explicit StepProfile(Run& run) : run_(run) {}
  // Before the first step. Throws usage if the run is too short for the window.
  void start();
  // After each step, which began then.
  void step(std::chrono::steady_clock::time_point begin);
  // Of what is no part of a step, see profiler::Pause.
  profiler::Session* session() const { return session_.get(); }
  // What follows is no part of a step.
  void end();
  // Files and table. After the results of the run: a full disk is not to cost them.
  void report();
  // Throws where --expect or --fail-on ask for it.
  void judge() const;

 private:
  Run& run_;
  std::unique_ptr<profiler::Session> session_;
  std::optional<profiler::Report> report_;
  std::vector<double> clean_us_;  // steps after the window, as many as it has
  int64_t after_window_ = 0;
};

}  // namespace sinter::mnist
