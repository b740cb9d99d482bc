// What a run writes down as it goes: metrics.csv, a row per epoch, and events.jsonl, a line per
// look at the loss, per epoch, save and warning. No line holds a time but the seconds of a row, so
// a resumed run ends with the lines of an undisturbed one. Errors are of kind checkpoint. One per
// run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sinter::mnist {

struct EpochRow {
  int64_t number, step;
  double loss, val_accuracy, val_loss, lr, seconds;  // NaN where there is no val
};

class RunLog {
 public:
  // In `folder`; of what is there already, the first `rows` and `events` stay.
  RunLog(const std::string& folder, int64_t rows, int64_t events);
  void add(const EpochRow& row);
  // One line. REQUIRES: the first key is "step".
  void add(const nlohmann::ordered_json& event);
  const std::vector<EpochRow>& rows() const { return rows_; }
  int64_t events() const { return events_; }

 private:
  std::string metrics_, events_file_;
  std::vector<EpochRow> rows_;
  int64_t events_ = 0;
};

}  // namespace sinter::mnist
