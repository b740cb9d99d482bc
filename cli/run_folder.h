// The folder of a training run: made (taken over with --force, or again with --resume), held by a
// lock while the run lasts, and shown as runs/last once it holds something. Errors are usage for a
// folder in use or not empty, checkpoint where writing fails. One per run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/fields.h"

namespace sinter::cli {

// The first line of a run's config: no config of a user's has it.
inline constexpr std::string_view kConfigOfRun = "# the flags of a run";

class RunFolder {
 public:
  // What may be in the folder: nothing, or the config of a run that failed; a run that goes, and
  // nothing but a run; a run that stays. shared: it is the folder of another process, and nothing
  // is done to it.
  enum class Take { fresh, force, resume, shared };
  // "" : runs/DATE-TIME. Removes temporaries of dead processes. runs/last, the link, is no folder
  // of a run; of another name that leads through a link it has the folder's own name.
  RunFolder(const std::string& out, Take take);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& name() const { return name_; }
  std::string file(const char* name) const { return name_ + "/" + name; }
  // "best.safetensors 0.90 MiB, config.toml 0.7 KiB"; or "nothing".
  std::string holds() const;
  // Lets runs/last name this folder. Returns what went wrong, or "".
  std::string link_last() const;

 private:
  std::string name_;
  int lock_ = -1;
};

struct EpochRow {
  int64_t step = 0, number = 0;
  double loss = 0;
  std::optional<double> val_metric{}, val_loss{};  // none without val
  double lr = 0, seconds = 0;
  SINTER_FIELD_LIST(
      step, named("epoch", number), loss, val_metric, newer(val_loss), newer(lr), newer(seconds))
};

// Of a metric that is called "accuracy", with a val_accuracy.
nlohmann::ordered_json json_of(const EpochRow& row, const std::string& metric);

// What a run writes down as it goes, in events.jsonl: a line per look at the loss, per epoch, save
// and warning. No line holds a time but the `seconds` of an epoch, so a resumed run ends with the
// lines of an undisturbed one. Errors are of kind checkpoint. One per run.
class RunLog {
 public:
  // In `folder`; of the lines that are there already, the first `events` stay. "": in none, and
  // nothing is written. `metric`: its name.
  RunLog(const std::string& folder, int64_t events, std::string metric);
  void add(const EpochRow& row);
  // One line. REQUIRES: the first key is "step".
  void add(const nlohmann::ordered_json& event);
  const std::vector<EpochRow>& rows() const { return rows_; }
  int64_t events() const { return events_; }

 private:
  void take(const EpochRow& row);
  std::string file_, metric_;
  std::vector<EpochRow> rows_;
  int64_t events_ = 0;
};

}  // namespace sinter::cli
