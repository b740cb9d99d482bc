// What the programs of bench/ share: interleaved rounds of timed steps, their figures as JSON, and
// a main that reports an Error.
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

namespace sinter::bench {

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
