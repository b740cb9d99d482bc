#include "examples/mnist/run_log.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/error.h"

namespace sinter::mnist {
namespace {

std::string csv(const std::vector<EpochRow>& rows) {
  std::string text = "epoch,step,loss,val_accuracy,val_loss,lr,seconds\n";
  for (const EpochRow& e : rows) {
    const std::string val =
        std::isnan(e.val_accuracy) ? "," : fmt::format("{},{}", e.val_accuracy, e.val_loss);
    text += fmt::format("{},{},{},{},{},{:.4f}\n", e.number, e.step, e.loss, val, e.lr, e.seconds);
  }
  return text;
}

// Floats are written with all their digits, so a row that is read prints as it was.
EpochRow parse(const std::string& line) {
  double values[7];
  const char *at = line.data(), *end = at + line.size();
  for (double& value : values) {
    value = NAN;
    at = std::from_chars(at, end, value).ptr;
    at += at < end;  // the comma
  }
  return {std::llround(values[0]), std::llround(values[1]), values[2], values[3], values[4],
      values[5], values[6]};
}

}  // namespace

RunLog::RunLog(const std::string& folder, int64_t rows, int64_t events)
    : metrics_(folder + "/metrics.csv"), events_file_(folder + "/events.jsonl") {
  std::string line, kept;
  std::ifstream metrics(metrics_);
  std::getline(metrics, line);
  while (static_cast<int64_t>(rows_.size()) < rows && std::getline(metrics, line))
    rows_.push_back(parse(line));
  std::ifstream lines(events_file_);
  for (; events_ < events && std::getline(lines, line); ++events_) kept += line + "\n";
  if (lines.is_open()) write_file(events_file_, kept);
  if (metrics.is_open()) write_file(metrics_, csv(rows_));
}

void RunLog::add(const EpochRow& row) {
  rows_.push_back(row);
  write_file(metrics_, csv(rows_));
}

void RunLog::add(const nlohmann::ordered_json& event) {
  std::ofstream out(events_file_, std::ios::app);
  out << event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n'
      << std::flush;
  SINTER_CHECK(out, checkpoint, cat("checkpoint: cannot write: ", escaped(events_file_)));
  ++events_;
}

}  // namespace sinter::mnist
