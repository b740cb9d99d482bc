// memory_of_records(): whose the blocks are that the device's allocator gave, by the scope in which
// they were taken and given back.
#include <algorithm>
#include <map>

#include "profiler/phase.h"
#include "profiler/report.h"

namespace sinter::profiler {
namespace {

// A block was taken or given back, a step began, or a backward pass.
struct Event {
  int64_t t, live_bytes = 0;
  const MemorySample* sample = nullptr;
  MemoryUse* owner = nullptr;      // of the scope; null: outside
  const Record* record = nullptr;  // that scope; of a backward pass itself
  bool backward = false;
};

// A block is kept if its step comes to a backward pass before it is given back. What backward takes
// itself, as a gradient that the next part of a batch adds to, is not.
void find_kept(std::vector<Event>& events, std::vector<KeptBlock>& kept) {
  std::map<const void*, const Event*> held;
  std::map<const void*, size_t> kept_at;  // numbers in `kept`
  int64_t live = 0, backward_end = INT64_MIN;
  for (Event& event : events) {
    if (event.backward) {
      for (const auto& [block, taken] : held) {
        taken->owner->kept += taken->sample->change;
        kept_at[block] = kept.size();
        kept.push_back({.by = taken->record, .bytes = taken->sample->change});
      }
      backward_end = event.record->t1;
      event.live_bytes = live;
    }
    if (!event.sample) {
      held.clear();
      if (!event.backward) kept_at.clear();
    } else {
      held.erase(event.sample->block);
      if (const auto of = kept_at.find(event.sample->block); of != kept_at.end()) {
        kept[of->second].until = event.record;
        kept_at.erase(of);
      }
      const bool may_be_kept = event.owner && event.sample->change > 0 && event.t > backward_end;
      if (may_be_kept) held[event.sample->block] = &event;
    }
    live = event.live_bytes;
  }
}

// The op that began last before then; null: none has.
const Record* last_op(const Trace& trace, int64_t t) {
  auto at = std::ranges::upper_bound(trace.records, t, {}, &Record::t0);
  while (at != trace.records.begin()) {
    if ((--at)->kind == ScopeKind::op) return &*at;
  }
  return nullptr;
}

int64_t peak_of(const Record& record, const std::vector<Event>& events) {
  auto at = std::ranges::upper_bound(events, record.t0, {}, &Event::t);
  if (at != events.begin()) --at;  // what was in use when it began
  int64_t peak = 0;
  for (; at != events.end() && at->t <= record.t1; ++at) peak = std::max(peak, at->live_bytes);
  return peak;
}

}  // namespace

MemoryUse use_of(const MemorySample& sample) {
  return {.allocated = std::max<int64_t>(sample.change, 0),
      .freed = std::max<int64_t>(-sample.change, 0),
      .peak = sample.live_bytes};
}

std::vector<std::vector<MemoryUse>> memory_of_records(
    const Report& report, std::vector<KeptBlock>* kept) {
  std::vector<std::vector<MemoryUse>> out;
  std::vector<Event> events;  // of all threads, in the order in which it was
  for (const StepSample& step : report.steps) events.push_back({step.t0, step.live_bytes});
  for (const Trace& trace : report.traces) {
    std::vector<MemoryUse>& of = out.emplace_back(trace.records.size());
    for (const MemorySample& sample : trace.memory) {
      if (sample.planned || !report.counts(trace, sample)) continue;
      MemoryUse* const owner = sample.record < 0 ? nullptr : &of[sample.record];
      if (owner) *owner += use_of(sample);
      const Record* const record =
          owner && sample.change > 0 ? &trace.records[sample.record] : last_op(trace, sample.t);
      events.push_back({sample.t, sample.live_bytes, &sample, owner, record});
    }
    for (const Record& r : trace.records) {
      if (r.name == kPhaseNames[size_t(Phase::backward)] && report.counts(trace, r))
        events.push_back({.t = r.t0, .record = &r, .backward = true});
    }
  }
  std::ranges::stable_sort(events, {}, &Event::t);
  std::vector<KeptBlock> blocks;
  find_kept(events, blocks);
  if (kept) *kept = std::move(blocks);
  for (size_t i = 0; i < out.size(); ++i) {
    const Trace& trace = report.traces[i];
    for (size_t r = 0; r < out[i].size(); ++r) {
      if (report.counts(trace, trace.records[r]))
        out[i][r].peak = peak_of(trace.records[r], events);
    }
    for (const MemorySample& sample : trace.memory) {
      if (!sample.planned || !report.counts(trace, sample)) continue;
      out[i][sample.record].peak = 0;  // it is that of the arena
      out[i][sample.record] += *sample.planned;
    }
  }
  return out;
}

}  // namespace sinter::profiler
