// The lines round the rows of a table: how the profile was measured, where the step went, and what
// bounds it.
#include "profiler/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/numbers.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace detail {
namespace {

// Parts with `between` in one line, as many as have room; a long one alone.
std::string line_of(const std::vector<std::string>& parts, const char* between = "   ") {
  std::string out, line;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    const bool fits = line.size() + std::string_view(between).size() + part.size() <= kNoTerminal;
    if (!line.empty() && !fits) out += std::exchange(line, "") + "\n";
    line += (line.empty() ? "" : between) + part;
  }
  return out + line + (line.empty() ? "" : "\n");
}

// The count of every step: 25, or 25..26.
std::string range_of(const Profile& p, int64_t StepSample::*count) {
  const auto [low, high] = std::ranges::minmax(p.steps, {}, count);
  return low.*count == high.*count ? fmt::format("{}", low.*count)
                                   : fmt::format("{}..{}", low.*count, high.*count);
}

// A sum as one step has it, in us.
double step_us(const Profile& p, int64_t sum) { return double(sum) / double(p.steps.size()) / 1e3; }
std::string us1(const Profile& p, int64_t sum) { return fmt::format("{:.1f}", step_us(p, sum)); }

int64_t step_sum(const Profile& p) {
  int64_t sum = 0;
  for (const StepSample& step : p.steps) sum += step.ns();
  return sum;
}

std::string work(const Profile& p, const Row& ops) {
  return fmt::format(
      "{:.3f} MFLOP  {:.1f} kB", step_us(p, ops.cost.flops) / 1e3, step_us(p, ops.cost.bytes()));
}

const char* ok_word(const Profile& p) { return p.incomplete.empty() ? "OK" : "INCOMPLETE"; }

// In units of 1000 from `from` on: "6.0 TB/s", "21 GB/s".
std::string rate(double giga, double from, int digits, const char* unit) {
  return giga >= from ? fmt::format("{:.{}f} T{}", giga / 1e3, digits, unit)
                      : fmt::format("{:.0f} G{}", giga, unit);
}

std::string roofs_part(const Profile& p) {
  const bool cpu = p.device == kCpu;
  if (p.roofline && !p.roofs) return "";  // a profile that was read back
  if (!p.roofline)
    return p.device.type == Device::Type::simt ? "" : "roofs: not measured (the command calibrate)";
  const Ceiling& used = *p.roofline;
  const Roofs& r = *p.roofs;
  const std::string dtype = cpu && p.dtype == "f32" ? "" : " " + p.dtype;
  std::string fits = "working set unknown: DRAM";
  if (p.working_set > 0)
    fits = fmt::format("{:.1f} MB {} {} {:.0f} MB", double(p.working_set) / 1e6,
        used.in_cache ? "fits" : "over", cpu ? "LLC" : "L2", double(r.cache_bytes) / 1e6);
  return fmt::format("roofs: GEMM {}{}, copy {} ({}){}", rate(used.flops_per_ns, 1e4, 0, "FLOP/s"),
      dtype, rate(used.bytes_per_ns, 1e3, 1, "B/s"), fits, r.loaded ? ", under load" : "");
}

// "clean median 73.0us [71.0,75.0], profiler 12.1us, distortion +3.6 %", or "".
std::string clean_part(const Profile& p) {
  if (p.clean_us.empty()) return "";
  const Estimate e = median_interval(p.clean_us);
  return fmt::format("clean median {:.1f}us{}, profiler {:.1f}us, distortion {:+.1f} %", e.value,
      e.has_interval ? fmt::format(" [{:.1f},{:.1f}]", e.low, e.high) : "", p.profiler_us(),
      p.distortion());
}

// "busy 38.0us 50.3 %   idle 37.6us = host 37.6 + gap 0 + sync 0 + data 0 (OK)"
std::string device_share(const Profile& p) {
  if (!p.idle) return "busy -   idle -";
  const Timeline& t = *p.idle;
  std::vector<std::pair<int64_t, const char*>> parts = {
      {t.host_ns, "host"}, {t.gap_ns, "gap"}, {t.sync_ns, "sync"}, {t.data_ns, "data"}};
  std::ranges::stable_sort(parts, std::greater(), [](const auto& part) { return part.first; });
  std::vector<std::string> idle;
  for (const auto& [ns, what] : parts)
    idle.push_back(fmt::format("{} {}", what, ns == 0 ? "0" : us1(p, ns)));
  return fmt::format("busy {}us {:.1f} %   idle {}us = {} ({})", us1(p, t.busy_ns),
      100 * double(t.busy_ns) / double(std::max<int64_t>(t.window_ns, 1)), us1(p, t.idle_ns()),
      join(idle, " + "), t.idle_ns() == t.window_ns - t.busy_ns ? "OK" : "INCOMPLETE");
}

// Fetching the batch has a row, and is no part of the step.
std::string data_part(const Profile& p) {
  int64_t launches = 0;
  for (const Row& row : p.rows) launches += row.kind == ScopeKind::data ? row.launches : 0;
  if (launches == 0) return "";
  return fmt::format("data: launches {:.0f}", double(launches) / double(p.steps.size()));
}

std::string cpu_lines(const Profile& p, const Row& ops) {
  // Of a typical step, as the rows above.
  const int64_t others = ops.self_ns - p.ops_ns;
  const double step = median(p.step_ns()) / 1e3,
               in_ops = step_us(p, int64_t(ops.typical_ns) - others);
  // Each row has the median of its own: of few or unsteady steps these do not add up to a step.
  const std::string rest =
      in_ops <= step
          ? fmt::format("+ rest of step {:.1f} = profiled step {:.1f}us ({})", step - in_ops, step,
                ok_word(p))
          : fmt::format(
                "are more than the profiled step {:.1f}us: medians of {}, too few or too "
                "unsteady to add up ({})",
                step, count_of(int64_t(p.steps.size()), "step"),
                p.incomplete.empty() ? "not OK" : "INCOMPLETE");
  return line_of({fmt::format("ops {:.1f} {}", in_ops, rest),
      others != 0 ? "other threads " + us1(p, others) + "us" : "", clean_part(p),
      fmt::format("{}  launches {}  allocs {}", work(p, ops), range_of(p, &StepSample::launches),
          range_of(p, &StepSample::allocs)),
      data_part(p)});
}

std::string launched_part(const Profile& p) {
  const std::string launches = range_of(p, &StepSample::launches);
  if (p.device.type == Device::Type::simt) return "launched " + launches;
  if (p.unproved > 0) return fmt::format("launched >= {}, not proved", launches);
  const bool timed = p.source != Source::none && p.source != Source::host;
  return fmt::format("launched {} {} timed {}", launches,
      p.incomplete.empty() && timed ? "=" : "!=", range_of(p, &StepSample::timed));
}

std::string sm_clock(const Profile& p) {
  if (p.sm_mhz <= 0) return "";
  return p.throttled()
             ? fmt::format("SM {:.0f} of {:.0f} MHz, THROTTLED", p.sm_mhz, p.sm_standard_mhz)
             : fmt::format("SM {:.0f} MHz, not throttled", p.sm_mhz);
}

std::string device_lines(const Profile& p, const Row& ops) {
  std::string first = "times are the emulator's and mean nothing\n";
  if (p.device.type != Device::Type::simt) {
    // A replay has no host time per row: its launches stand for the ops.
    const int64_t step = step_sum(p), part = p.replayed ? p.replay_ns : p.ops_ns;
    const std::string whole =
        fmt::format("{} {} + rest of step {} + drain {} = profiled step {}us ({})",
            p.replayed ? "host: replay" : "ops", us1(p, part), us1(p, step - part),
            us1(p, p.drain_ns()), us1(p, step + p.drain_ns()), ok_word(p));
    first = p.replayed && p.idle ? line_of({whole}) + line_of({device_share(p)})
                                 : line_of({whole, device_share(p)});
  }
  const int64_t axis = p.overheads.axis_ns;
  return first + line_of({clean_part(p),
                     p.replayed ? "API calls " + range_of(p, &StepSample::api_calls) : "",
                     launched_part(p), "memcpy " + range_of(p, &StepSample::copies),
                     "allocs " + range_of(p, &StepSample::allocs),
                     axis >= 0 ? fmt::format("axis +-{:.1f}us", double(axis) / 1e3) : "",
                     sm_clock(p), work(p, ops), data_part(p)});
}

std::string verdict_line(const Profile& p) {
  const StepVerdict& v = p.verdict;
  return fmt::format("STEP: {} - {}{}\n", name_of(v.code), v.evidence,
      v.advice.empty() ? "" : fmt::format(" Do: {}.", v.advice));
}

std::string stalls_line(const Profile& p) {
  constexpr int kShown = 5;
  const double usual = median(p.step_ns());
  std::string out;
  int slow = 0;
  for (const StepSample& step : p.steps) {
    if (double(step.ns()) <= kSlowStep * usual || ++slow > kShown) continue;
    out += fmt::format(" #{} {}", step.number, us(double(step.ns())));
  }
  if (slow == 0) return "";
  if (slow > kShown) out += fmt::format(" and {} more", slow - kShown);
  return fmt::format(
      "stalls (over {:.0f}x the median of {}, in no median above):{}\n", kSlowStep, us(usual), out);
}

// "20", "2 x 10", "15 of 20": the active steps.
std::string active_steps(const Profile& p) {
  const Schedule& s = p.schedule;
  const int64_t steps = int64_t(p.steps.size()), turns = p.steps.back().round + 1;
  const int64_t planned = int64_t{s.active} * s.repeat;
  std::string out = fmt::format("{}", steps);
  if (turns > 1 && steps == turns * s.active) out = fmt::format("{} x {}", turns, s.active);
  return steps < planned ? out + fmt::format(" of {}", planned) : out;
}

}  // namespace

std::string us(double ns) { return fmt::format("{:.1f}us", ns / 1e3); }

std::string header_line(const Profile& p) {
  const bool cpu = p.device == kCpu;
  const std::string marks =
      str(p.incomplete.empty() ? "" : "INCOMPLETE  ", p.throttled() ? "THROTTLED  " : "");
  return line_of(
      {marks + p.title + (!cpu && p.replayed ? ", replayed as a graph (no host time per row)" : ""),
          fmt::format("step#{}..{} ({} active, {} warmup)", p.steps.front().number,
              p.steps.back().number, active_steps(p), p.schedule.warmup),
          p.threads > 0 && cpu ? count_of(p.threads, "thread") : "",
          cpu ? ""
              : fmt::format("{}  source {}", p.device.str(), name_of(p.source)) +
                    (p.source_why.empty() ? "" : str(" (", p.source_why, ")")),
          p.rules.empty() ? "" : "rules " + p.rules, roofs_part(p)},
      "  ");
}

std::string closing_lines(const Profile& p, const Row& ops) {
  std::string out = p.device == kCpu ? cpu_lines(p, ops) : device_lines(p, ops);
  out += verdict_line(p) + stalls_line(p);
  for (const std::string& note : p.notes) out += "note: " + note + "\n";
  for (const std::string& reason : p.incomplete) out += "INCOMPLETE: " + reason + "\n";
  return out;
}

}  // namespace detail

std::string Candidate::text() const {
  std::string out = rule;
  if (times > 1) out += fmt::format(" x{}", times);
  out += fmt::format(" ({}): {:+} launch{}", ops, -launches_saved, launches_saved == 1 ? "" : "es");
  if (bytes_saved != 0) out += fmt::format(", {:+.1f} kB", -double(bytes_saved) / 1e3);
  return out;
}

}  // namespace sinter::profiler
