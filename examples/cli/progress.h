// The progress of a training run on stderr. On a terminal one line, written anew at most ten times
// a second:
//   epoch 2/5 [####----] 44 %  loss 0.101  1.1 M img/s  data-wait 0.2 %  ETA 3 s
// elsewhere a whole line every ten seconds. Ask due() after each step: only if it says so, read the
// loss and call show().
#pragma once

#include <string>

#include "examples/cli/output.h"
#include "measure/timer.h"

namespace sinter::cli {

struct ProgressView {
  int64_t epoch = 1, epochs = 1;
  double done = 0;  // of this epoch, 0..1
  double loss = 0;
  double images_per_second = 0, data_wait = 0;  // data_wait: share of the time, 0..1
  double eta_seconds = 0;                       // until the end of training
};

class Progress {
 public:
  explicit Progress(const Output& out) : on_(!out.quiet()), terminal_(out.stderr_is_terminal()) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool due() const { return on_ && last_.seconds() >= (terminal_ ? 0.1 : 10); }
  void show(const ProgressView& view);
  // Takes the line away, so that another line can be written.
  void clear();

 private:
  bool on_, terminal_;
  size_t shown_ = 0;  // columns of the line on the terminal
  measure::Timer last_;
};

// The line, at most `width` columns; with a bar if `bar`.
std::string progress_line(const ProgressView& view, bool bar, int width);

}  // namespace sinter::cli
