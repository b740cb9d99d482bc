#include "measure/start.h"

#include <fmt/format.h>

#include "core/device/cuda.h"
#include "measure/timer.h"

namespace sinter::measure {
namespace {

// Made before main() begins.
const Timer since_start;

}  // namespace

StartTimeline::~StartTimeline() {
  if (beside_.joinable()) beside_.join();
}

void StartTimeline::add(const std::string& what, double& last_ms, bool beside) {
  const std::lock_guard lock(mutex_);
  const double now_ms = 1e3 * since_start.seconds();
  spans_.push_back({what, std::exchange(last_ms, now_ms), now_ms, beside});
}

void StartTimeline::open_beside(Device device, bool convolves) {
  if (device.type != Device::Type::cuda) return;
  beside_ = std::thread([this, device, convolves, last_ms = 1e3 * since_start.seconds()]() mutable {
    cuda::warm_up(device.index, convolves, [&](const char* what) { add(what, last_ms, true); });
  });
}

std::vector<StartTimeline::Span> StartTimeline::spans() const {
  const std::lock_guard lock(mutex_);
  return spans_;
}

std::string StartTimeline::text() const {
  std::string text;
  for (const auto& [what, begin_ms, end_ms, beside] : spans()) {
    text += fmt::format(
        "start   {:8.1f} .. {:8.1f} ms  {}{}\n", begin_ms, end_ms, what, beside ? ", beside" : "");
  }
  return text;
}

}  // namespace sinter::measure
