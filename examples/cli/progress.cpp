#include "examples/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "examples/cli/text.h"

namespace sinter::cli {

std::string progress_line(const ProgressView& view, bool bar, int width) {
  constexpr int kCells = 8;
  const int full = std::clamp(int(view.done * kCells + 0.5), 0, kCells);
  std::string line = fmt::format("epoch {}/{} ", view.epoch, view.epochs);
  if (bar) line += fmt::format("[{:#<{}}{:-<{}}] ", "", full, "", kCells - full);
  line += fmt::format("{:.0f} %  loss {:.3g}  {} img/s  data-wait {:.1f} %  ETA {:.0f} s",
      100 * view.done, view.loss, rate(view.images_per_second), 100 * view.data_wait,
      view.eta_seconds);
  if (line.size() > size_t(std::max(width, 1))) line.resize(size_t(std::max(width, 1)));
  return line;
}

void Progress::show(const ProgressView& view) {
  last_ = {};
  if (!terminal_) return say(progress_line(view, false, 1000) + "\n");
  const std::string line = progress_line(view, true, terminal_width() - 1);
  say(fmt::format("\r{:<{}}", line, shown_));
  shown_ = std::max(shown_, line.size());
  std::fflush(stderr);
}

void Progress::clear() {
  if (shown_ == 0) return;
  say(fmt::format("\r{:<{}}\r", "", shown_));
  std::fflush(stderr);
  shown_ = 0;
}

}  // namespace sinter::cli
