// The folder of a training run: made (or taken over with --force), held by a lock while the run lasts, and shown as runs/last once it holds
// something. Errors are usage for a folder in use or not empty, checkpoint where writing fails. One per run.
#pragma once

#include <string>

namespace sinter::mnist {

class RunFolder {
 public:
  // "" : runs/DATE-TIME. Removes temporaries of dead processes; with `force` also the files of the run before.
  RunFolder(const std::string& out, bool force);
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
