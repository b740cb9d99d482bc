// Report::table(): the tables "CPU", "CUDA eager" and "CUDA fused, replayed as a graph", with
// header and closing lines. Sums are divided by the active steps and rounded once, when printed.
// What was not measured is "-", an upper bound "<=", an estimate "est".
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <regex>

#include "core/error.h"
#include "profiler/grid.h"
#include "profiler/report.h"
#include "profiler/stats.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

double to_double(int64_t n) { return static_cast<double>(n); }
std::string us(double ns) { return fmt::format("{:.1f}us", ns / 1e3); }

// 25, or 3.5 where a sum does not divide evenly.
std::string per_step(int64_t sum, double steps) {
  const double value = to_double(sum) / steps;
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.2f}", value);
}

std::string range(const std::vector<StepSample>& steps, int64_t StepSample::*count) {
  int64_t low = steps.front().*count, high = low;
  for (const StepSample& step : steps)
    low = std::min(low, step.*count), high = std::max(high, step.*count);
  return low == high ? fmt::format("{}", low) : fmt::format("{}..{}", low, high);
}

std::string interval(const Estimate& e) {
  return e.has_interval ? fmt::format(" [{:.1f},{:.1f}]", e.low, e.high) : "";
}

void add_to(Row& sum, const Row& row) {
  sum.calls += row.calls, sum.launches += row.launches, sum.cost += row.cost,
      sum.untimed += row.untimed, sum.unproved += row.unproved;
  sum.self_ns += row.self_ns, sum.total_ns += row.total_ns, sum.kernel_ns += row.kernel_ns;
  sum.device_ns += row.device_ns, sum.device_total_ns += row.device_total_ns;
  sum.typical_ns += row.typical_ns;
}

using Key = std::function<double(const Report&, const Row&)>;
// torch's keys; `device` says the same as `cuda`.
const std::vector<std::pair<std::string, Key>>& sort_keys() {
  static const std::vector<std::pair<std::string, Key>> keys = {
      {"self_cuda_time_total", [](const Report&, const Row& r) { return to_double(r.device_ns); }},
      {"cuda_time_total", [](const Report&, const Row& r) { return to_double(r.device_total_ns); }},
      {"self_cpu_time_total", [](const Report&, const Row& r) { return to_double(r.self_ns); }},
      {"cpu_time_total", [](const Report&, const Row& r) { return to_double(r.total_ns); }},
      {"cpu_time",
          [](const Report&, const Row& r) {
            return to_double(r.total_ns) / to_double(std::max<int64_t>(r.calls, 1));
          }},
      {"dispatch_time_total",
          [](const Report&, const Row& r) { return to_double(r.dispatch_ns()); }},
      {"count", [](const Report&, const Row& r) { return to_double(r.calls); }},
      {"flops", [](const Report&, const Row& r) { return to_double(r.cost.flops); }},
      {"bytes", [](const Report&, const Row& r) { return to_double(r.cost.bytes()); }},
      {"xpred",
          [](const Report& report, const Row& r) {
            const double predicted = report.predicted_ns(r);
            return predicted > 0 ? report.judged_ns(r) / predicted : 0;
          }},
  };
  return keys;
}

Key sort_key(std::string wanted) {
  std::string as_cuda = wanted;
  if (const size_t at = as_cuda.find("device"); at != std::string::npos)
    as_cuda.replace(at, 6, "cuda");
  std::vector<std::string_view> names;
  std::string known;
  for (const auto& [name, key] : sort_keys()) {
    if (name == as_cuda) return key;
    names.push_back(name);
    known.append(known.empty() ? "" : ", ").append(name);
  }
  const std::string nearest = nearest_word(wanted, names);
  throw Error(Error::Kind::usage,
      cat("table: unknown sort key '", escaped(wanted), "': known are ", known),
      nearest.empty() ? "" : "nearest is " + nearest);
}

std::regex filter_of(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error&) {
    throw Error(Error::Kind::usage, cat("table: not a regular expression: ", escaped(text)),
        "matmul|linear");
  }
}

class Table {
 public:
  Table(const Report& report, const TableOptions& options)
      : report_(report),
        options_(options),
        cpu_(report.device == kCpu),
        timed_(cpu_ || report.source == Source::cupti || report.source == Source::graph ||
               report.source == Source::event),
        steps_(to_double(static_cast<int64_t>(report.steps.size()))),
        busy_(!report.busy().empty()),
        ceiling_(report.ceiling()),
        all_(report.rows(options.group_by_input_shape, options.group_by_module)) {}

  std::string text() {
    check(options_);
    const bool simt = report_.device.type == Device::Type::simt;
    const Key key = options_.sort_by.empty() && !simt
                        ? [](const Report& report, const Row& row) { return report.judged_ns(row); }
                        : sort_key(options_.sort_by.empty() ? "count" : options_.sort_by);
    const std::regex filter = filter_of(options_.filter);
    std::vector<Row> rows;
    for (const Row& row : all_.rows) {
      if (row.kind == ScopeKind::op) add_to(sum_, row);
      if (row.kind == ScopeKind::op || row.kind == ScopeKind::runtime)
        self_sum_ += report_.judged_ns(row);
      const bool shown = row.kind == ScopeKind::op ? !(options_.no_meta && row.launches == 0)
                                                   : row.kind == ScopeKind::runtime;
      if (shown && std::regex_search(row.name, filter)) rows.push_back(row);
    }
    std::stable_sort(rows.begin(), rows.end(),
        [&](const Row& a, const Row& b) { return key(report_, a) > key(report_, b); });

    // Folded: small rows, and what the limit cuts off; but never a single small row.
    const auto is_small = [this](const Row& row) {
      return timed_ && report_.judged_ns(row) < kSmallRow * self_sum_;
    };
    const size_t limit =
        options_.row_limit < 0 ? rows.size() : static_cast<size_t>(options_.row_limit);
    std::vector<Row> shown, folded;
    for (Row& row : rows)
      (shown.size() == limit || (options_.row_limit >= 0 && is_small(row)) ? folded : shown)
          .push_back(std::move(row));
    if (folded.size() == 1 && shown.size() < limit)
      shown.push_back(std::move(folded.back())), folded.clear();

    std::vector<std::string> titles;
    for (const Column& column : columns()) titles.push_back(column.title);
    Grid grid(titles);
    const auto add = [&](const Row& row, bool is_fold) {
      std::vector<std::string> cells;
      for (const Column& column : columns()) cells.push_back(column.cell(row, is_fold));
      grid.add(std::move(cells));
    };
    for (const Row& row : shown) add(row, false);
    if (!folded.empty()) {
      Row rest;
      for (const Row& row : folded) add_to(rest, row);
      const bool all_small = std::all_of(folded.begin(), folded.end(), is_small);
      rest.name = fmt::format("{} {} row{}", folded.size(), all_small ? "small" : "other",
          folded.size() == 1 ? "" : "s");
      add(rest, true);
    }
    std::string out = header() + grid.text() + (cpu_ ? cpu_lines() : device_lines()) +
                      verdict_line() + slow_steps();
    for (const std::string& note : report_.notes) out += "note: " + note + "\n";
    for (const std::string& reason : report_.incomplete) out += "INCOMPLETE: " + reason + "\n";
    return out + (options_.scopes ? scope_block() : "");
  }

 private:
  struct Column {
    std::string title;  // '<': text
    std::function<std::string(const Row&, bool folded)> cell;
  };

  // A time of the device: measured, bounded, or not measured.
  std::string device_us(const Row& row, double ns) const {
    if (!timed_ || (row.launches == 0 && row.kind == ScopeKind::op && ns == 0) || row.untimed > 0)
      return "-";
    return (report_.source == Source::event ? "<=" : "") + us(ns);
  }
  std::string sample_us(
      const Row& row, bool folded, double (*statistic)(std::span<const double>)) const {
    if (folded) return "-";
    const std::vector<double> samples(row.samples.begin(), row.samples.end());
    return cpu_ ? us(statistic(samples)) : device_us(row, statistic(samples));
  }
  double roof_share(const Row& row) const {
    const double ns = report_.judged_ns(row);
    return std::max(ceiling_.compute_share(row.cost, ns), ceiling_.memory_share(row.cost, ns));
  }
  // Bounds and emulated times are measured against no roof.
  bool judged(const Row& row) const {
    return ceiling_.known() && timed_ && report_.source != Source::event && row.untimed == 0 &&
           row.launches > 0 && row.cost != Cost{};
  }
  double xpred(const Row& row) const {
    return judged(row) ? report_.judged_ns(row) / report_.predicted_ns(row) : 0;
  }

  std::string rate(const Row& row) const {
    const double ns = report_.judged_ns(row);
    if (ns <= 0 || row.cost == Cost{}) return "-";
    const double flops = to_double(row.cost.flops), bytes = to_double(row.cost.bytes());
    return flops >= kFlopRateFrom * bytes ? fmt::format("{:.1f} GF/s", flops / ns)
                                          : fmt::format("{:.1f} GB/s", bytes / ns);
  }

  std::string flags(const Row& row) const {
    std::string out;
    const auto flag = [&out](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
    if (timed_ && report_.judged_ns(row) >= kHotShare * self_sum_) flag("HOT");
    if (to_double(row.calls) >= kManyCalls * steps_) {
      const auto rule = std::find_if(
          report_.candidates.begin(), report_.candidates.end(), [&](const Candidate& c) {
            return std::find(c.rows.begin(), c.rows.end(), row.name) != c.rows.end();
          });
      flag("MANY " + (rule == report_.candidates.end() ? "-" : rule->rule));
    }
    if (!row.heaviest_child.empty() &&
        to_double(row.total_ns) >= kDrillFactor * to_double(row.self_ns))
      flag("DRILL " + escaped(row.heaviest_child));
    if (xpred(row) > kSurprise && !busy_) flag("SURPRISE");
    return out;
  }

  std::vector<Column> columns() const {
    const auto counted = [this](int64_t Row::*member) {
      return [this, member](const Row& row, bool) { return per_step(row.*member, steps_); };
    };
    const std::string device = "CUDA";
    std::vector<Column> out;
    const auto add = [&out](const char* title, std::function<std::string(const Row&, bool)> cell) {
      out.push_back({title, std::move(cell)});
    };
    const auto share = [this](const Row& row, bool) {
      return timed_ && self_sum_ > 0
                 ? fmt::format("{:.1f}", 100 * report_.judged_ns(row) / self_sum_)
                 : "-";
    };
    const auto self_cpu = [this](const Row& row, bool) {
      return report_.device.type == Device::Type::simt ? "-" : us(to_double(row.self_ns) / steps_);
    };
    if (cpu_) {
      add("Self%", share);
      add("Self CPU", self_cpu);
      add("CPU total",
          [this](const Row& row, bool) { return us(to_double(row.total_ns) / steps_); });
    } else {
      add("CUDA%", share);
      add("Self CUDA", [this](const Row& row, bool) {
        return device_us(row, to_double(row.device_ns) / steps_);
      });
      if (!report_.replayed)
        add("CUDA total", [this](const Row& row, bool) {
          return device_us(row, to_double(row.device_total_ns) / steps_);
        });
    }
    add("med", [this](const Row& row, bool folded) { return sample_us(row, folded, median); });
    add("p95", [this](const Row& row, bool folded) { return sample_us(row, folded, p95); });
    if (cpu_) {
      add("Disp", [this](const Row& row, bool) {
        return row.launches == 0
                   ? "-"
                   : fmt::format("{:.1f}", to_double(row.dispatch_ns()) / steps_ / 1e3);
      });
    } else if (!report_.replayed) {
      add("Self CPU", self_cpu);
    }
    add("Calls", counted(&Row::calls));
    if (!cpu_)
      add("Launch", [this](const Row& row, bool) {
        return row.launches == 0 ? "-"
                                 : (row.unproved > 0 ? ">=" : "") + per_step(row.launches, steps_);
      });
    add("MFLOP", [this](const Row& row, bool) {
      return row.cost == Cost{} ? "-"
                                : fmt::format("{:.2f}", to_double(row.cost.flops) / steps_ / 1e6);
    });
    add("kB", [this](const Row& row, bool) {
      return row.cost == Cost{} ? "-"
                                : fmt::format("{:.1f}", to_double(row.cost.bytes()) / steps_ / 1e3);
    });
    add("FLOP/B", [](const Row& row, bool folded) {
      return folded || row.cost.bytes() == 0
                 ? "-"
                 : fmt::format("{:.2f}", to_double(row.cost.flops) / to_double(row.cost.bytes()));
    });
    if (cpu_) add("Rate", [this](const Row& row, bool folded) { return folded ? "-" : rate(row); });
    add("%roof", [this](const Row& row, bool folded) {
      return folded || !judged(row) ? "-"
                                    : fmt::format("{:.{}f}", 100 * roof_share(row), cpu_ ? 0 : 1);
    });
    add("Pred", [this](const Row& row, bool) {
      const double predicted = report_.predicted_ns(row);
      return predicted > 0 ? us(predicted / steps_) : "-";
    });
    add("xpred", [this](const Row& row, bool) {
      return xpred(row) > 0 ? fmt::format("{:.1f}x", xpred(row)) : "-";
    });
    add("<Verdict", [this](const Row& row, bool folded) {
      return folded || row.kind != ScopeKind::op ? "-"
                                                 : std::string(name_of(report_.verdict(row).code));
    });
    add("<Name", [](const Row& row, bool) { return escaped(row.name); });
    add("<Flags", [this](const Row& row, bool folded) { return folded ? "" : flags(row); });
    if (report_.replayed && !cpu_)
      add("<Made of", [](const Row& row, bool) { return row.made_of.empty() ? "-" : row.made_of; });
    if (options_.group_by_input_shape)
      add("<Shapes", [](const Row& row, bool) { return row.shapes; });
    return out;
  }

  std::string roofs() const {
    if (!ceiling_.known())
      return cpu_ || report_.device.type == Device::Type::cuda
                 ? "  roofs: not measured (mnist calibrate)"
                 : "";
    const Roofs& r = *report_.roofs;
    const std::string gemm = ceiling_.flops_per_ns >= 1e4
                                 ? fmt::format("{:.0f} TFLOP/s", ceiling_.flops_per_ns / 1e3)
                                 : fmt::format("{:.0f} GFLOP/s", ceiling_.flops_per_ns);
    const std::string copy = ceiling_.bytes_per_ns >= 1e3
                                 ? fmt::format("{:.1f} TB/s", ceiling_.bytes_per_ns / 1e3)
                                 : fmt::format("{:.0f} GB/s", ceiling_.bytes_per_ns);
    std::string fits =
        report_.working_set == 0
            ? "working set unknown: DRAM"
            : fmt::format("{:.1f} MB {} {} {:.0f} MB", to_double(report_.working_set) / 1e6,
                  ceiling_.in_cache ? "fits" : "over", cpu_ ? "LLC" : "L2",
                  to_double(r.cache_bytes) / 1e6);
    const std::string dtype = cpu_ && report_.dtype == "f32" ? "" : " " + report_.dtype;
    const std::string spread = r.spread > 0 ? fmt::format(", spread {:.0f} %", 100 * r.spread) : "";
    return fmt::format("  roofs: GEMM {}{}, copy {} ({}){}, {}", gemm, dtype, copy, fits,
        r.loaded ? ", under load" : spread,
        cpu_ ? fmt::format("op {:.2f} us", r.op_ns / 1e3)
             : fmt::format("floor {:.1f}us, host {:.1f}us/op{}", r.floor_ns / 1e3, r.op_ns / 1e3,
                   r.node_gap_ns > 0 ? fmt::format(", node gap {:.1f}us", r.node_gap_ns / 1e3)
                                     : ""));
  }

  std::string header() const {
    const Schedule& s = report_.schedule;
    const size_t planned = static_cast<size_t>(s.active) * static_cast<size_t>(s.repeat),
                 steps = report_.steps.size();
    const int64_t turns = report_.steps.back().round + 1;
    std::string active = fmt::format("{}", steps);
    if (turns > 1 && steps == static_cast<size_t>(turns * s.active))
      active = fmt::format("{} x {}", turns, s.active);
    if (steps < planned) active += fmt::format(" of {}", planned);
    std::string out = report_.incomplete.empty() ? "" : "INCOMPLETE  ";
    if (report_.throttled()) out += "THROTTLED  ";
    out += report_.title;
    if (!cpu_ && report_.replayed) out += ", replayed as a graph (no host time per row)";
    out += fmt::format("  step#{}..{} ({} active, {} warmup)", report_.steps.front().number,
        report_.steps.back().number, active, s.warmup);
    if (report_.threads > 0 && cpu_)
      out += fmt::format("  {} thread{}", report_.threads, report_.threads == 1 ? "" : "s");
    if (!cpu_) out += fmt::format("  {}  source {}", report_.device.str(), name_of(report_.source));
    if (!report_.source_why.empty()) out += fmt::format(" ({})", report_.source_why);
    if (!report_.rules.empty()) out += "  rules " + report_.rules;
    return out + roofs() + (cpu_ ? "  self excludes children" : "") + "\n";
  }

  std::string clean() const {
    if (report_.clean_us.empty()) return "";
    const Estimate e = median_interval(report_.clean_us);
    return fmt::format("   clean median {:.1f}us{}, distortion {:+.1f} %", e.value, interval(e),
        report_.distortion());
  }
  std::string ok() const { return report_.incomplete.empty() ? "OK" : "INCOMPLETE"; }

  // Host time of the stepping thread in ops; the others work beside it.
  int64_t ops_here() const {
    int64_t here = 0;
    for (const OpCall& call : all_.calls) here += call.in_step_thread ? call.self_ns : 0;
    return here;
  }
  int64_t step_sum() const {
    int64_t sum = 0;
    for (const StepSample& step : report_.steps) sum += step.ns();
    return sum;
  }

  std::string cpu_lines() const {
    const int64_t here = ops_here(), step_ns = step_sum();
    std::string out = fmt::format("ops {:.1f} + rest of step {:.1f} = profiled step {} ({})",
        to_double(here) / steps_ / 1e3, to_double(step_ns - here) / steps_ / 1e3,
        us(to_double(step_ns) / steps_), ok());
    if (sum_.self_ns != here)
      out += fmt::format("   other threads {}", us(to_double(sum_.self_ns - here) / steps_));
    out += clean();
    return out + fmt::format("   {:.3f} MFLOP  {:.1f} kB  launches {}  allocs {}\n",
                     to_double(sum_.cost.flops) / steps_ / 1e6,
                     to_double(sum_.cost.bytes()) / steps_ / 1e3,
                     range(report_.steps, &StepSample::launches),
                     range(report_.steps, &StepSample::allocs));
  }

  std::string device_lines() const {
    const auto us1 = [this](int64_t ns) {
      return fmt::format("{:.1f}", to_double(ns) / steps_ / 1e3);
    };
    const int64_t here = ops_here(), step_ns = step_sum(), drain = report_.drain_ns();
    const std::string launches = range(report_.steps, &StepSample::launches);
    int64_t calls_ns = 0;
    for (const Trace& trace : report_.traces) {
      for (const LaunchRecord& l : trace.launches)
        calls_ns +=
            report_.counts(trace, l) && l.kind == LaunchKind::graph ? l.api_t1 - l.api_t0 : 0;
    }
    std::string out = report_.replayed
                          ? fmt::format("host: replay {} + rest of step {}", us1(calls_ns),
                                us1(step_ns - calls_ns))
                          : fmt::format("ops {} + rest of step {}", us1(here), us1(step_ns - here));
    const bool emulated = report_.device.type == Device::Type::simt;
    if (emulated)
      out = "times are the emulator's and mean nothing";
    else
      out += fmt::format(" + drain {} = profiled step {} ({})", us1(drain),
          us(to_double(step_ns + drain) / steps_), ok());
    const Timeline t = report_.timeline();
    if (t.known || t.estimated) {
      const char* est = t.estimated ? "est " : "";
      out += fmt::format("{}busy {}us {:.1f} %   idle {}{}us = ", report_.replayed ? "\n" : "   ",
          us1(t.busy_ns), 100 * to_double(t.busy_ns) / to_double(std::max<int64_t>(t.window_ns, 1)),
          est, us1(t.idle_ns()));
      std::vector<std::pair<int64_t, const char*>> parts = {
          {t.host_ns, "host"}, {t.gap_ns, "gap"}, {t.sync_ns, "sync"}, {t.data_ns, "data"}};
      std::stable_sort(parts.begin(), parts.end(),
          [](const auto& a, const auto& b) { return a.first > b.first; });
      for (size_t i = 0; i < parts.size(); ++i)
        out += fmt::format("{}{} {}", i ? " + " : "", parts[i].second,
            parts[i].first == 0 ? "0" : us1(parts[i].first));
      out += t.idle_ns() == t.window_ns - t.busy_ns ? " (OK)" : " (INCOMPLETE)";
    } else if (!emulated) {
      out += "   busy -   idle -";
    }
    out += "\n";
    std::string second = clean();
    if (!second.empty()) second.erase(0, 3), second += "   ";
    const bool complete = report_.incomplete.empty() && timed_;
    if (report_.replayed)
      second += fmt::format("API calls {}   ", range(report_.steps, &StepSample::api_calls));
    second += emulated ? fmt::format("launched {}   ", launches)
              : report_.unproved > 0
                  ? fmt::format("launched >= {}, not proved   ", launches)
                  : fmt::format("launched {} {} timed {}   ", launches,
                        complete ? "=" : "!=", range(report_.steps, &StepSample::timed));
    second += fmt::format("memcpy {}   allocs {}", range(report_.steps, &StepSample::copies),
        range(report_.steps, &StepSample::allocs));
    if (report_.overheads.axis_ns >= 0)
      second += fmt::format("   axis +-{:.1f}us", to_double(report_.overheads.axis_ns) / 1e3);
    if (report_.sm_mhz > 0) {
      second += report_.throttled()
                    ? fmt::format("   SM {:.0f} of {:.0f} MHz, THROTTLED", report_.sm_mhz,
                          report_.sm_standard_mhz)
                    : fmt::format("   SM {:.0f} MHz, not throttled", report_.sm_mhz);
    }
    second += fmt::format("   {:.3f} MFLOP  {:.1f} kB", to_double(sum_.cost.flops) / steps_ / 1e6,
        to_double(sum_.cost.bytes()) / steps_ / 1e3);
    return out + second + "\n";
  }

  std::string verdict_line() const {
    const StepVerdict v = report_.verdict();
    if (v.code == StepCode::undecided && !report_.roofs && cpu_ && !busy_) return "";
    std::string advice = v.advice;
    if (!report_.candidates.empty() && !busy_)
      advice += (advice.empty() ? "" : "; ") + report_.candidates.front().text(report_);
    return fmt::format("STEP: {} - {}{}\n", name_of(v.code), v.evidence,
        advice.empty() ? "" : " Do: " + advice + ".");
  }

  std::string slow_steps() const {
    std::vector<double> ns;
    for (const StepSample& step : report_.steps) ns.push_back(to_double(step.ns()));
    const double typical = median(ns);
    std::string out;
    int slow = 0;
    for (size_t i = 0; i < ns.size(); ++i) {
      if (ns[i] <= kSlowStep * typical || ++slow > 5) continue;
      out += fmt::format(" #{} {}", report_.steps[i].number, us(ns[i]));
    }
    if (slow == 0 || report_.device.type == Device::Type::simt) return "";
    if (slow > 5) out += fmt::format(" and {} more", slow - 5);
    return fmt::format(
        "stalls (steps over {:.0f}x the median of {}; in sums, not in shares and verdicts):{}\n",
        kSlowStep, us(typical), out);
  }

  std::string scope_block() {
    std::vector<Row> rows = std::move(all_.rows);
    std::erase_if(
        rows, [](const Row& r) { return r.kind == ScopeKind::op || r.kind == ScopeKind::runtime; });
    if (rows.empty() || report_.device.type == Device::Type::simt) return "";
    std::stable_sort(rows.begin(), rows.end(),
        [](const Row& a, const Row& b) { return a.total_ns > b.total_ns; });
    Grid grid({"CPU total", "Self CPU", "Calls", "Launch", "<Kind", "<Scope"});
    for (const Row& row : rows) {
      grid.add({us(to_double(row.total_ns) / steps_), us(to_double(row.self_ns) / steps_),
          per_step(row.calls, steps_), row.launches == 0 ? "-" : per_step(row.launches, steps_),
          std::string(name_of(row.kind)), escaped(row.name)});
    }
    return grid.text();
  }

  const Report& report_;
  const TableOptions& options_;
  const bool cpu_, timed_;
  const double steps_;
  const bool busy_;
  const Ceiling ceiling_;
  Rows all_;
  Row sum_;
  double self_sum_ = 0;
};

}  // namespace

void check(const TableOptions& options) {
  if (!options.sort_by.empty()) sort_key(options.sort_by);
  SINTER_CHECK(options.row_limit >= -1, usage,
      cat("table: row limit ", options.row_limit, " is out of range; -1 (all rows) or at least 0"));
  filter_of(options.filter);
}

std::string Candidate::text(const Report& report) const {
  const Ceiling c = report.ceiling();
  const double saved =
      c.known() ? to_double(launches_saved) * c.floor_ns + to_double(bytes_saved) / c.bytes_per_ns
                : 0;
  return fmt::format("{}{} ({}): {:+} launch{}{}{}", rule,
      times > 1 ? fmt::format(" x{}", times) : "", ops, -launches_saved,
      launches_saved == 1 ? "" : "es",
      bytes_saved ? fmt::format(", {:+.1f} kB", -to_double(bytes_saved) / 1e3) : "",
      saved > 0 ? fmt::format(", about -{:.1f} us", saved / 1e3) : "");
}

std::string Report::table(const TableOptions& options) const {
  return Table(*this, options).text();
}

}  // namespace sinter::profiler
