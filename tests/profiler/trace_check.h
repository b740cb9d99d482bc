// validate_trace(): what any reader of a Chrome trace in Kineto's keys may rely on, one rule at a
// time. The tests check with it every trace that our writer makes.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"

namespace sinter::profiler {

// What is wrong with a trace: rule and place. Rules: schema, duration, nesting, flow-pairs,
// flow-ends, launch-order, unique-ids, backward.
struct TraceProblem {
  std::string rule, what;
};
struct TraceCheck {
  int64_t events = 0, slices = 0, flows = 0, lanes = 0;
  std::vector<TraceProblem> problems{};  // at most 20; the text of the last says how many more
};

class TraceValidator {
 public:
  TraceCheck check(const std::string& text) {
    const TraceJson trace = TraceJson::parse(text, nullptr, false);
    if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
      problem("schema", "no JSON object with an array traceEvents");
      return std::move(out_);
    }
    if (!trace.contains("schemaVersion")) problem("schema", "schemaVersion is missing");
    if (!trace.contains("baseTimeNanoseconds")) problem("schema", "baseTimeNanoseconds is missing");
    for (const TraceJson& event : trace["traceEvents"]) read(event);
    nesting();
    flows();
    launches();
    backwards();
    out_.lanes = int64_t(lanes_.size());
    if (more_ > 0) out_.problems.back().what += str("; and ", more_, " more problems");
    return std::move(out_);
  }

 private:
  using TraceJson = nlohmann::json;
  struct Slice {
    int64_t t0, t1;
    std::string cat, name;
    int64_t external, correlation, forward;  // -1: none
  };
  struct FlowEnd {
    std::pair<int64_t, int64_t> lane;
    int64_t t;
  };

  static constexpr size_t kShown = 20;
  void problem(const char* rule, std::string what) {
    if (out_.problems.size() < kShown) {
      out_.problems.push_back({rule, std::move(what)});
    } else {
      ++more_;
    }
  }
  static int64_t ns(const TraceJson& us) { return std::llround(us.get<double>() * 1000); }
  static int64_t id_of(const TraceJson& event, const char* key) {
    const auto args = event.find("args");
    if (args == event.end() || !args->is_object()) return -1;
    const auto found = args->find(key);
    return found != args->end() && found->is_number_integer() ? found->get<int64_t>() : -1;
  }

  void read(const TraceJson& event) {
    ++out_.events;
    const std::string place = str("event ", out_.events);
    const auto has = [&](const char* key, auto&& is) {
      return event.contains(key) && is(event[key]);
    };
    const auto text = [](const TraceJson& j) { return j.is_string(); };
    constexpr double kLongest = 1e15;  // us, of a time or a duration: 31 years
    const auto number = [](const TraceJson& j) {
      return j.is_number() && std::abs(j.get<double>()) <= kLongest;
    };
    const auto integer = [](const TraceJson& j) { return j.is_number_integer(); };
    if (!event.is_object() || !has("ph", text) || !has("name", text) || !has("pid", integer) ||
        !has("tid", integer) || !has("ts", number)) {
      return problem("schema",
          place + " lacks one of ph, name, pid, tid, ts, or it is of another type or size");
    }
    const std::string ph = event["ph"];
    const std::pair<int64_t, int64_t> lane{event["pid"], event["tid"]};
    if (ph == "X") {
      static const std::set<std::string> kKnown = {"cpu_op", "user_annotation",
          "gpu_user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset", "overhead"};
      if (!has("cat", text) || !has("dur", number))
        return problem(
            "schema", place + " is a slice without cat and dur, or dur is of another size");
      if (!kKnown.contains(event["cat"]))
        return problem(
            "schema", place + " has the unknown category " + event["cat"].get<std::string>());
      const int64_t t0 = ns(event["ts"]), dur = ns(event["dur"]);
      const Slice slice{t0, t0 + dur, event["cat"], event["name"], id_of(event, "External id"),
          id_of(event, "correlation"), id_of(event, "x_forward")};
      ++out_.slices;
      if (dur < 0) return problem("duration", str(place, ", ", slice.name, ", takes ", dur, " ns"));
      lanes_[lane].push_back(slice);
    } else if (ph == "s" || ph == "f") {
      if (!has("cat", text) || !has("id", integer))
        return problem("schema", place + " is a flow without cat and id");
      auto& [starts, ends] = flows_[{event["cat"], event["id"]}];
      (ph == "s" ? starts : ends).push_back({lane, ns(event["ts"])});
      ++out_.flows;
    } else if (ph != "C" && ph != "M") {
      problem("schema", place + " has the unknown phase " + ph);
    }
  }

  void nesting() {
    for (auto& [lane, slices] : lanes_) {
      // Parents before children: by start, the longer first; equal ones as they were written.
      std::stable_sort(slices.begin(), slices.end(),
          [](const Slice& a, const Slice& b) { return a.t0 != b.t0 ? a.t0 < b.t0 : a.t1 > b.t1; });
      std::vector<const Slice*> open;
      for (const Slice& s : slices) {
        while (!open.empty() && open.back()->t1 <= s.t0) open.pop_back();
        if (!open.empty() && s.t1 > open.back()->t1)
          problem("nesting", str(s.name, " at ", s.t0, " ns ends behind ", open.back()->name,
                                 ", in which it began"));
        open.push_back(&s);
      }
      std::vector<int64_t>& ends = furthest_[lane];
      for (const Slice& s : slices)
        ends.push_back(std::max(s.t1, ends.empty() ? s.t1 : ends.back()));
    }
  }

  bool in_slice(const FlowEnd& end) const {
    const auto lane = lanes_.find(end.lane);
    if (lane == lanes_.end()) return false;
    const auto later = std::upper_bound(lane->second.begin(), lane->second.end(), end.t,
        [](int64_t t, const Slice& s) { return t < s.t0; });
    const auto begun = size_t(later - lane->second.begin());
    return begun > 0 && end.t <= furthest_.at(end.lane)[begun - 1];
  }
  void flows() {
    for (const auto& [id, flow] : flows_) {
      const auto& [starts, ends] = flow;
      const std::string name = str(id.first, " ", id.second);
      if (starts.size() != 1 || ends.size() != 1)
        problem(
            "flow-pairs", str(name, " has ", starts.size(), " starts and ", ends.size(), " ends"));
      for (const auto* side : {&starts, &ends}) {
        for (const FlowEnd& end : *side) {
          if (!in_slice(end))
            problem("flow-ends",
                str(name, " has an end at ", end.t, " ns outside every slice of its lane"));
        }
      }
    }
  }

  void launches() {
    std::map<int64_t, const Slice*> calls;
    std::set<int64_t> externals;
    const auto for_all = [this](auto&& f) {
      for (const auto& [lane, slices] : lanes_) {
        for (const Slice& s : slices) f(s);
      }
    };
    for_all([&](const Slice& s) {
      if (s.cat == "cuda_runtime" && s.correlation >= 0 && !calls.emplace(s.correlation, &s).second)
        problem("unique-ids", str("correlation ", s.correlation, " stands for two API calls"));
      if (s.cat == "cpu_op" && s.external >= 0 && !externals.insert(s.external).second)
        problem("unique-ids", str("External id ", s.external, " stands for two ops"));
    });
    for_all([&](const Slice& s) {
      if (s.cat != "kernel" && s.cat != "gpu_memcpy" && s.cat != "gpu_memset") return;
      const auto call = calls.find(s.correlation);
      if (call == calls.end())
        problem("launch-order", str(s.name, " at ", s.t0, " ns has no API call"));
      else if (s.t0 < call->second->t0)
        problem("launch-order", str(s.name, " starts ", call->second->t0 - s.t0,
                                    " ns before the API call that launched it"));
    });
  }

  // Each op of a backward pass has one forward op, with a fwdbwd flow from it.
  void backwards() {
    std::map<int64_t, std::pair<std::pair<int64_t, int64_t>, int64_t>>
        begins;  // External id -> lane, t0
    for (const auto& [lane, slices] : lanes_) {
      for (const Slice& s : slices) {
        if (s.cat == "cpu_op") begins[s.external] = {lane, s.t0};
      }
    }
    std::multiset<std::pair<std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>>>
        arrows;  // (t from, lane), (t to, lane's tid)
    for (const auto& [id, flow] : flows_) {
      if (id.first != "fwdbwd" || flow.first.size() != 1 || flow.second.size() != 1) continue;
      arrows.insert({{flow.first[0].t, flow.first[0].lane.second},
          {flow.second[0].t, flow.second[0].lane.second}});
    }
    for (const auto& [lane, slices] : lanes_) {
      for (const Slice& s : slices) {
        if (s.forward < 0) continue;
        const auto from = begins.find(s.forward);
        if (from == begins.end() || arrows.count({{from->second.second, from->second.first.second},
                                        {s.t0, lane.second}}) < 1)
          problem("backward",
              str(s.name, " at ", s.t0, " ns has no arrow from its forward op ", s.forward));
      }
    }
  }

  TraceCheck out_;
  int64_t more_ = 0;
  std::map<std::pair<int64_t, int64_t>, std::vector<Slice>>
      lanes_;  // from nesting() on by their begin
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>>
      furthest_;  // where the last of the slices up to each ends
  std::map<std::pair<std::string, int64_t>, std::pair<std::vector<FlowEnd>, std::vector<FlowEnd>>>
      flows_;
};

inline TraceCheck validate_trace(const std::string& text) { return TraceValidator().check(text); }

}  // namespace sinter::profiler
