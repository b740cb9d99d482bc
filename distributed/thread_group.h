// Ranks that are threads of one process: data-parallel training without a launcher, for tests and
// lessons.
//
//   ThreadGroup(4).run([](Communicator& ranks) { .. });
#pragma once

#include <functional>
#include <memory>

#include "core/communicator.h"

namespace sinter::distributed {

struct ThreadGroupOptions {
  double timeout = 60;  // seconds
};

class ThreadGroup {
 public:
  explicit ThreadGroup(int size, const ThreadGroupOptions& options = {});
  ~ThreadGroup();
  // f on a thread for each rank, whose communicator is current() there; returns when all are done.
  // Throws the error of the rank that failed first; the others then stop waiting, and get an error
  // that says so. The group can run again all the same.
  void run(const std::function<void(Communicator&)>& f);

 private:
  class Rank;
  struct Part;
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace sinter::distributed
