// Report::table(): the "CPU eager" table, its header and its footer. Sums are divided by the active steps and rounded once, when printed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "profiler/report.h"
#include "profiler/stats.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

using Key = double (*)(const Row&);
constexpr std::pair<std::string_view, Key> kSortKeys[] = {
    {"self_cpu_time_total", [](const Row& r) { return static_cast<double>(r.self_ns); }},
    {"cpu_time_total", [](const Row& r) { return static_cast<double>(r.total_ns); }},
    {"cpu_time", [](const Row& r) { return static_cast<double>(r.total_ns) / static_cast<double>(std::max<int64_t>(r.calls, 1)); }},
    {"dispatch_time_total", [](const Row& r) { return static_cast<double>(r.dispatch_ns()); }},
    {"count", [](const Row& r) { return static_cast<double>(r.calls); }},
    {"flops", [](const Row& r) { return static_cast<double>(r.cost.flops); }},
    {"bytes", [](const Row& r) { return static_cast<double>(r.cost.bytes()); }},
};

Key sort_key(std::string_view wanted) {
  std::vector<std::string_view> names;
  std::string known;
  for (const auto& [name, key] : kSortKeys) {
    if (name == wanted) return key;
    names.push_back(name);
    known.append(known.empty() ? "" : ", ").append(name);
  }
  const std::string nearest = nearest_word(wanted, names);
  throw Error(Error::Kind::usage, cat("table: unknown sort key '", escaped(wanted), "': known are ", known),
              nearest.empty() ? "" : "nearest is " + nearest);
}

// Cells in columns: text to the left, numbers to the right, two spaces between.
class Grid {
 public:
  // A title that begins with '<' makes a column of text.
  explicit Grid(std::vector<std::string> titles) {
    for (std::string& title : titles) {
      left_.push_back(title.starts_with('<'));
      if (left_.back()) title.erase(0, 1);
    }
    add(std::move(titles));
  }
  void add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  std::string text() const {
    std::vector<size_t> widths(left_.size(), 0);
    for (const auto& line : lines_) {
      for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
    }
    std::string out;
    for (const auto& line : lines_) {
      std::string row;
      for (size_t c = 0; c < line.size(); ++c) {
        const std::string gap(widths[c] - line[c].size(), ' ');
        row += (c > 0 ? "  " : "") + (left_[c] ? line[c] + gap : gap + line[c]);
      }
      row.erase(row.find_last_not_of(' ') + 1);
      out += row + "\n";
    }
    return out;
  }

 private:
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> lines_;
};

std::string us(double ns) { return fmt::format("{:.1f}us", ns / 1e3); }

// 25, or 3.5 where a sum does not divide evenly.
std::string per_step(int64_t sum, double steps) {
  const double value = static_cast<double>(sum) / steps;
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.2f}", value);
}

std::string range(const std::vector<StepSample>& steps, int64_t StepSample::*count) {
  int64_t low = steps.front().*count, high = low;
  for (const StepSample& step : steps) low = std::min(low, step.*count), high = std::max(high, step.*count);
  if (low < 0) return "-";
  return low == high ? fmt::format("{}", low) : fmt::format("{}..{}", low, high);
}

std::string rate(const Row& row) {
  if (row.self_ns <= 0 || row.cost == Cost{}) return "-";
  const double ns = static_cast<double>(row.self_ns), flops = static_cast<double>(row.cost.flops),
               bytes = static_cast<double>(row.cost.bytes());
  return flops >= kFlopRateFrom * bytes ? fmt::format("{:.1f} GF/s", flops / ns) : fmt::format("{:.1f} GB/s", bytes / ns);
}

std::string flags(const Row& row, double self_sum, double steps) {
  std::string out;
  auto flag = [&out](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (static_cast<double>(row.self_ns) >= kHotShare * self_sum) flag("HOT");
  if (static_cast<double>(row.calls) >= kManyCalls * steps) flag("MANY -");
  if (!row.heaviest_child.empty() && static_cast<double>(row.total_ns) >= kDrillFactor * static_cast<double>(row.self_ns)) {
    flag("DRILL " + escaped(row.heaviest_child));
  }
  return out;
}

// The cells of one op row. `folded` stands for several rows, whose medians and rates would mean nothing.
std::vector<std::string> op_cells(const Row& row, double self_sum, double steps, bool folded) {
  const std::vector<double> samples(row.samples.begin(), row.samples.end());
  const bool no_cost = row.cost == Cost{};
  const double flops = static_cast<double>(row.cost.flops), bytes = static_cast<double>(row.cost.bytes());
  return {
      self_sum > 0 ? fmt::format("{:.1f}", 100 * static_cast<double>(row.self_ns) / self_sum) : "-",
      us(static_cast<double>(row.self_ns) / steps),
      us(static_cast<double>(row.total_ns) / steps),
      folded ? "-" : us(median(samples)),
      folded ? "-" : us(p95(samples)),
      row.launches == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(row.dispatch_ns()) / steps / 1e3),
      per_step(row.calls, steps),
      no_cost ? "-" : fmt::format("{:.2f}", flops / steps / 1e6),
      no_cost ? "-" : fmt::format("{:.1f}", bytes / steps / 1e3),
      folded || bytes == 0 ? "-" : fmt::format("{:.2f}", flops / bytes),
      folded ? "-" : rate(row),
      escaped(row.name),
      folded ? "" : flags(row, self_sum, steps),
      row.shapes,
  };
}

void add_to(Row& sum, const Row& row) {
  sum.calls += row.calls, sum.launches += row.launches, sum.cost += row.cost;
  sum.self_ns += row.self_ns, sum.total_ns += row.total_ns, sum.kernel_ns += row.kernel_ns;
}

std::string header(const Report& report) {
  const Schedule& s = report.schedule;
  const size_t planned = static_cast<size_t>(s.active) * static_cast<size_t>(s.repeat), steps = report.steps.size();
  const int64_t turns = report.steps.back().round + 1;
  std::string active = fmt::format("{}", steps);
  if (turns > 1 && steps == static_cast<size_t>(turns * s.active)) active = fmt::format("{} x {}", turns, s.active);
  if (steps < planned) active += fmt::format(" of {}", planned);
  std::string out = fmt::format("{}{}  step#{}..{} ({} active, {} warmup)", report.incomplete.empty() ? "" : "INCOMPLETE  ", report.title,
                                report.steps.front().number, report.steps.back().number, active, s.warmup);
  if (report.threads > 0) out += fmt::format("  {} thread{}", report.threads, report.threads == 1 ? "" : "s");
  return out + "  self excludes children\n";
}

std::string slow_steps(const Report& report) {
  std::vector<double> ns;
  for (const StepSample& step : report.steps) ns.push_back(static_cast<double>(step.ns()));
  const double typical = median(ns);
  std::string out;
  int slow = 0;
  for (size_t i = 0; i < ns.size(); ++i) {
    if (ns[i] <= kSlowStep * typical || ++slow > 5) continue;
    out += fmt::format(" #{} {}", report.steps[i].number, us(ns[i]));
  }
  if (slow == 0) return "";
  if (slow > 5) out += fmt::format(" and {} more", slow - 5);
  return fmt::format("slow steps (over {:.0f}x the median of {}):{}\n", kSlowStep, us(typical), out);
}

std::string scope_block(std::vector<Row> rows, double steps) {
  std::erase_if(rows, [](const Row& r) { return r.kind == ScopeKind::op; });
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.total_ns > b.total_ns; });
  Grid grid({"CPU total", "Self CPU", "med", "p95", "Calls", "<Kind", "<Scope"});
  for (const Row& row : rows) {
    const std::vector<double> samples(row.samples.begin(), row.samples.end());
    grid.add({us(static_cast<double>(row.total_ns) / steps), us(static_cast<double>(row.self_ns) / steps), us(median(samples)),
              us(p95(samples)), per_step(row.calls, steps), std::string(name_of(row.kind)), escaped(row.name)});
  }
  return rows.empty() ? "" : grid.text();
}

}  // namespace

std::string Report::table(const TableOptions& options) const {
  const Key key = sort_key(options.sort_by);
  SINTER_CHECK(options.row_limit >= -1, usage,
               cat("table: row limit ", options.row_limit, " is out of range; -1 (all rows) or at least 0"));
  Rows all = rows(options.group_by_input_shape);
  std::vector<Row> ops;
  std::copy_if(all.rows.begin(), all.rows.end(), std::back_inserter(ops), [](const Row& r) { return r.kind == ScopeKind::op; });
  const auto by_key = [key](const Row& a, const Row& b) { return key(a) > key(b); };
  std::stable_sort(ops.begin(), ops.end(), by_key);
  Row sum;
  for (const Row& row : ops) add_to(sum, row);
  const double n = static_cast<double>(steps.size()), self_sum = static_cast<double>(sum.self_ns);

  // Folded: small rows, and what the limit cuts off; but never a single small row.
  auto is_small = [self_sum](const Row& row) { return static_cast<double>(row.self_ns) < kSmallRow * self_sum; };
  const size_t limit = options.row_limit < 0 ? ops.size() : static_cast<size_t>(options.row_limit);
  std::vector<Row> shown, folded;
  for (Row& row : ops) (shown.size() == limit || (options.row_limit >= 0 && is_small(row)) ? folded : shown).push_back(std::move(row));
  if (folded.size() == 1 && shown.size() < limit) shown.push_back(std::move(folded.back())), folded.clear();
  std::stable_sort(shown.begin(), shown.end(), by_key);

  std::vector<std::string> titles = {"Self%", "Self CPU", "CPU total", "med",  "p95",   "Disp",   "Calls",
                                     "MFLOP", "kB",       "FLOP/B",    "Rate", "<Name", "<Flags", "<Shapes"};
  if (!options.group_by_input_shape) titles.pop_back();
  Grid grid(titles);
  auto add_row = [&](const Row& row, bool folded) {
    std::vector<std::string> cells = op_cells(row, self_sum, n, folded);
    cells.resize(titles.size());
    grid.add(std::move(cells));
  };
  for (const Row& row : shown) add_row(row, false);
  if (!folded.empty()) {
    Row rest;
    for (const Row& row : folded) add_to(rest, row);
    const bool all_small = std::all_of(folded.begin(), folded.end(), is_small);
    rest.name = fmt::format("{} {} row{}", folded.size(), all_small ? "small" : "other", folded.size() == 1 ? "" : "s");
    add_row(rest, true);
  }

  int64_t here = 0, step_ns = 0;  // op self time of the stepping thread; the others work beside it
  for (const OpCall& call : all.calls) here += call.in_step_thread ? call.self_ns : 0;
  for (const StepSample& step : steps) step_ns += step.ns();
  std::string out = header(*this) + grid.text();
  out += fmt::format("ops {:.1f} + rest of step {:.1f} = profiled step {} ({})", static_cast<double>(here) / n / 1e3,
                     static_cast<double>(step_ns - here) / n / 1e3, us(static_cast<double>(step_ns) / n),
                     incomplete.empty() ? "OK" : "INCOMPLETE");
  if (sum.self_ns != here) out += fmt::format("   other threads {}", us(static_cast<double>(sum.self_ns - here) / n));
  out +=
      fmt::format("   {:.3f} MFLOP  {:.1f} kB  launches {}  allocs {}\n", static_cast<double>(sum.cost.flops) / n / 1e6,
                  static_cast<double>(sum.cost.bytes()) / n / 1e3, range(steps, &StepSample::launches), range(steps, &StepSample::allocs));
  out += slow_steps(*this);
  for (const std::string& note : notes) out += "note: " + note + "\n";
  for (const std::string& reason : incomplete) out += "INCOMPLETE: " + reason + "\n";
  if (options.scopes) out += scope_block(std::move(all.rows), n);
  return out;
}

}  // namespace sinter::profiler
