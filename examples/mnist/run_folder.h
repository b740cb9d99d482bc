// The folder of a training run: made (taken over with --force, or again with --resume), held by a
// lock while the run lasts, and shown as runs/last once it holds something. Errors are usage for a
// folder in use or not empty, checkpoint where writing fails. One per run.
#pragma once

#include <string>

namespace sinter::mnist {

class RunFolder {
 public:
  // What may be in the folder: nothing; a run that goes; a run that stays.
  enum class Take { fresh, force, resume };
  // "" : runs/DATE-TIME. Removes temporaries of dead processes.
  RunFolder(const std::string& out, Take take);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& name() const { return name_; }
  std::string file(const char* name) const { return name_ + "/" + name; }
  // Lets runs/last name this folder. Returns what went wrong, or "".
  std::string link_last() const;

 private:
  std::string name_;
  int lock_ = -1;
};

}  // namespace sinter::mnist
