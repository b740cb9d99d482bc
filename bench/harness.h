// What the programs of bench/ share: the time of one call against its budget, interleaved rounds of
// timed steps, their figures as JSON, and a main that reports an Error.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/device/memory.h"
#include "core/error.h"
#include "examples/cli/command_line.h"
#include "profiler/stats.h"

namespace sinter::bench {

// The compiler must make `value`, though nobody reads it.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// Median ns of one body(), over batches of `calls`.
template <class F>
double ns_per_call(int batches, int calls, F&& body) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples;
  for (int b = 0; b < batches; ++b) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) {
      body();
      asm volatile("" ::: "memory");  // keeps the loop, and keeps it a loop
    }
    samples.push_back(
        std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / calls);
  }
  return profiler::median(samples);
}

// Prints a figure beside its budget, and says whether it keeps it.
inline bool within_budget(
    const std::string& what, double value, double limit, const char* unit, bool at_least = false) {
  const bool ok = at_least ? value >= limit : value <= limit;
  fmt::print("{:<44} {:8.2f} {}  (budget {}{:.3g})  {}\n", what, value, unit, at_least ? ">= " : "",
      limit, ok ? "ok" : "MISSED");
  return ok;
}

// Runs `steps` steps of each case in turn, `rounds` times, so that a slow moment of the machine
// hits all alike. A Case has run() and `times`, which gets us per step, sorted at the end.
template <class Case>
void time_rounds(std::vector<Case>& cases, int rounds, int steps, Device device) {
  const int per_sample =
      device == kCpu ? 1 : steps;  // elsewhere waiting for the device is no part of a step
  for (int round = 0; round < rounds; ++round) {
    for (Case& c : cases) {
      for (int i = 0; i < steps; i += per_sample) {
        synchronize(device);
        const auto start = std::chrono::steady_clock::now();
        for (int n = 0; n < per_sample; ++n) c.run();
        synchronize(device);
        c.times.push_back(
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                .count() /
            per_sample);
      }
    }
  }
  for (Case& c : cases) std::sort(c.times.begin(), c.times.end());
}

// One object, or an array of them if there are several; to a file, to stdout for "-", nowhere for
// "".
inline void write_json(const nlohmann::ordered_json& rows, const std::string& file) {
  const std::string text = (rows.size() == 1 ? rows[0] : rows).dump(1) + "\n";
  if (file == "-") {
    fmt::print("{}", text);
  } else if (!file.empty()) {
    std::ofstream(file) << text;
  }
}

// The flags, and words that are none, from the command line; false after --help, which it prints.
inline bool read_flags(const char* name, cli::Flags& flags, int argc, char** argv,
    std::vector<std::string>* inputs = nullptr) {
  bool help = false;
  flags.toggle("help,h", help, "this text");
  cli::take_words(cli::words_of(argc, argv), flags, name, name, inputs);
  if (help) fmt::print("usage: {} [flags]\n{}", name, cli::flag_lines(flags));
  return !help;
}

// For main: the exit status of run(argc, argv), or 1 after an Error.
inline int run_reporting_errors(int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}

}  // namespace sinter::bench
