#include "profiler/report.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace sinter::profiler {
namespace {

bool is_open(const Record& record) { return record.t1 == Record::kOpen; }

}  // namespace

std::vector<int64_t> self_times(const Trace& trace) {
  const auto& records = trace.records;
  std::vector<int64_t> self(records.size(), 0);
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& r = records[i];
    if (is_open(r)) continue;
    self[i] += r.t1 - r.t0;
    if (r.parent >= 0 && !is_open(records[r.parent])) self[r.parent] -= r.t1 - r.t0;
  }
  return self;
}

double Report::launches_per_step() const {
  int64_t sum = 0;
  for (const StepSample& step : steps) sum += step.launches;
  return steps.empty() ? 0.0 : static_cast<double>(sum) / static_cast<double>(steps.size());
}

int64_t Report::step_index(uint32_t number) const {
  const auto found =
      std::lower_bound(steps.begin(), steps.end(), int64_t{number}, [](const StepSample& s, int64_t n) { return s.number < n; });
  return found != steps.end() && found->number == number ? found - steps.begin() : -1;
}

bool Report::counts(const Trace& trace, const Record& record) const {
  const int64_t step = step_index(record.step);
  return step >= 0 && !is_open(record) && !(trace.steps_here && record.t1 > steps[step].t1);
}

void Report::judge() {
  int64_t violations = 0;
  std::string first_violation;
  std::vector<int64_t> roots(steps.size(), 0);  // ns of the stepping thread's outermost scopes
  std::map<std::string, int64_t> crossing;
  auto violated = [&](std::string what) {
    if (violations++ == 0) first_violation = std::move(what);
  };
  for (const Trace& trace : traces) {
    const std::vector<int64_t> self = self_times(trace);
    std::vector<int64_t> kernel(trace.records.size(), 0);
    for (const LaunchRecord& launch : trace.launches) kernel[launch.record] += launch.t1 - launch.t0;
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const Record& r = trace.records[i];
      if (is_open(r)) incomplete.push_back(cat("a scope was still open at the end: ", escaped(r.name), ", begun in step ", r.step));
      const int64_t step = step_index(r.step);
      if (step < 0 || is_open(r)) continue;
      if (!counts(trace, r)) {
        ++crossing[escaped(r.name)];
        continue;
      }
      steps[step].launches += r.n_launches;
      const Record* parent = r.parent >= 0 ? &trace.records[r.parent] : nullptr;
      if (self[i] < 0 || self[i] < kernel[i] || r.t1 < r.t0)
        violated(cat(escaped(r.name), " has self time ", self[i], " ns in step ", r.step));
      if (parent && (r.t0 < parent->t0 || (!is_open(*parent) && r.t1 > parent->t1)))
        violated(cat(escaped(r.name), " lies outside its parent"));
      if (trace.steps_here && (!parent || !counts(trace, *parent))) roots[step] += r.t1 - r.t0;
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (roots[i] > steps[i].ns()) violated(cat("scopes fill ", roots[i], " ns of the ", steps[i].ns(), " ns of step ", steps[i].number));
  }
  for (const auto& [name, times] : crossing) notes.push_back(cat("open across step(), so left out: ", name, ", ", times, " times"));
  if (violations > 0) incomplete.push_back(cat("times do not add up, ", violations, " times; the first: ", first_violation));
}

}  // namespace sinter::profiler
