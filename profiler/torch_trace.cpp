// read_profile_or_trace(): what PyTorch's profiler wrote, as a Profile.
//
// Note [A trace of PyTorch's profiler]
//   Kineto's JSON is one list of events with a begin and a length in us. The `cat` of each says
//   what it is: an op, a mark of the user's, a call of CUDA's runtime, a kernel, a copy. No event
//   says which op holds it. That follows from the times: on its thread it lies within the last
//   event that has begun and not ended. So an op's self time is its own less that of the events
//   directly within it, and PyTorch's key_averages() finds "Self CPU" in the same way:
//
//     aten::linear  |------------------------|   20 us, of which 3 are its own
//       aten::t       |-|                         2
//       aten::addmm       |-----------------|    15
//
//   A kernel has the `correlation` of the runtime's call that launched it, and the op around that
//   call is the kernel's; where the call is not in the trace, the op has the kernel's "External
//   id". The kernels of a CUDA graph share one call: they have rows of their own, by their names.
//
//   Public traces have events whose times cannot be, such as a length of -1 us. They are left out
//   and counted, and so are those that overlap others of their thread without one holding the
//   other, which then count twice. Of more than kMostFaults of all, no time can be trusted.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>

#include "core/error.h"
#include "core/numbers.h"
#include "profiler/profile.h"

namespace sinter::profiler {
namespace {

using TraceJson = nlohmann::json;

// Of a time, and of a length: as ns each fits an int64_t, and so does their sum.
constexpr double kMostUs = 4e15, kLongestUs = 1e12;
constexpr int64_t kRoundingNs = 2000;       // two times in whole us
constexpr double kMostFaults = 0.01;        // of all events
constexpr size_t kMostSamples = 4'000'000;  // rows x steps: 32 MB
constexpr std::string_view kStepMark = "ProfilerStep#";

enum class EventKind : uint8_t { op, annotation, runtime, kernel, copy };
struct NamedKind {
  std::string_view name;
  EventKind kind;
};
constexpr NamedKind kEventKinds[] = {{"cpu_op", EventKind::op},
    {"user_annotation", EventKind::annotation}, {"cuda_runtime", EventKind::runtime},
    {"cuda_driver", EventKind::runtime}, {"kernel", EventKind::kernel},
    {"gpu_memcpy", EventKind::copy}, {"gpu_memset", EventKind::copy}};
constexpr ScopeKind kRowKinds[] = {ScopeKind::op, ScopeKind::annotation, ScopeKind::runtime,
    ScopeKind::op, ScopeKind::runtime};  // of each EventKind

struct NamedType {
  std::string_view name, ours;
};
constexpr NamedType kTypes[] = {{"float", "f32"}, {"double", "f64"}, {"c10::BFloat16", "bf16"},
    {"c10::Half", "f16"}, {"long int", "i64"}, {"long", "i64"}, {"int", "i32"},
    {"unsigned char", "u8"}};

struct Event {
  EventKind kind = EventKind::op;
  int row = 0, thread = 0;
  int64_t t0 = 0, t1 = 0;  // ns
  int64_t correlation = -1, external = -1;
  int64_t self_ns = 0;
  int op = -1;  // the innermost around it, or itself: an index

  int64_t ns() const { return t1 - t0; }
  bool on_host() const { return kind != EventKind::kernel && kind != EventKind::copy; }
};

// The sum, or the largest number: a file of hostile times has sums that no int64_t holds.
void add_to(int64_t& sum, int64_t ns) {
  if (__builtin_add_overflow(sum, ns, &sum)) sum = ns > 0 ? INT64_MAX : INT64_MIN;
}

// NaN and infinities, which Python writes and JSON does not have, as null.
std::string without_nan(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    size_t skipped = 0;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (!quoted && rest.starts_with(word)) skipped = word.size();
    }
    quoted ^= rest[0] == '"';
    out += skipped > 0 ? "null" : rest.substr(0, quoted && rest[0] == '\\' ? 2 : 1);
    at += skipped > 0 ? skipped - 1 : quoted && rest[0] == '\\';
  }
  return out;
}

std::string text_at(const TraceJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
int64_t id_at(const TraceJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
}

bool is_shape(const TraceJson& dims) {
  return dims.is_array() && !dims.empty() &&
         std::ranges::all_of(dims, [](const TraceJson& d) { return d.is_number_integer(); });
}

// "f32[64, 784] f32[784, 256]", of the inputs that are tensors of some dimension and of lists.
std::string shapes_of(const TraceJson& args) {
  const auto dims = args.find("Input Dims"), types = args.find("Input type");
  if (dims == args.end() || !dims->is_array()) return "";
  std::string out;
  const auto add = [&out](std::string_view type, const TraceJson& shape) {
    if (!is_shape(shape)) return;
    out += str(out.empty() ? "" : " ", type, "[");
    for (size_t i = 0; i < shape.size(); ++i) out += str(i > 0 ? ", " : "", shape[i].dump());
    out += "]";
  };
  for (size_t i = 0; i < dims->size(); ++i) {
    const TraceJson& input = (*dims)[i];
    std::string type;
    if (types != args.end() && types->is_array() && i < types->size() && (*types)[i].is_string())
      type = (*types)[i].get<std::string>();
    const auto known = std::ranges::find(kTypes, type, &NamedType::name);
    add(known == std::end(kTypes) ? type : known->ours, input);
    if (!input.is_array()) continue;
    for (const TraceJson& of_list : input) add("", of_list);
  }
  return out;
}

class TraceReader {
 public:
  explicit TraceReader(std::string file) : file_(std::move(file)) {}

  // As the parser's callback: takes each event of the list as it is read, and drops its JSON.
  bool take(int depth, TraceJson::parse_event_t what, TraceJson& json) {
    if (depth == 1 && what == TraceJson::parse_event_t::key) in_events_ = json == "traceEvents";
    is_trace_ = is_trace_ || in_events_;
    if (depth != 2 || what != TraceJson::parse_event_t::object_end || !in_events_) return true;
    add(json);
    ++taken_;
    return false;
  }
  bool is_trace() const { return is_trace_; }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Error::Kind::data,
        str("trace: not one that can be read: ", escaped(file_), "; ", escaped(why)),
        "a trace is what torch.profiler's export_chrome_trace() wrote");
  }

  // `root`: the file without its events.
  Profile profile(const TraceJson& root) {
    if (!root["traceEvents"].is_array() || !root["traceEvents"].empty())
      refuse("traceEvents is not a list of objects");
    Profile out;
    out.steps = find_steps(out.notes);
    note_faults(out, left_out_, "left out", str("their times cannot be; ", first_));
    if (rows_.size() * out.steps.size() > kMostSamples)
      refuse(str("too large: ", rows_.size(), " rows in ", out.steps.size(), " steps"));
    for (Row& row : rows_) row.samples.resize(out.steps.size());
    note_faults(out, nest(), "overlap others of their thread", "that time counts twice");
    count(out);
    std::erase_if(rows_, [](const Row& row) { return row.calls == 0 && row.launches == 0; });
    for (Row& row : rows_) {
      row.on_device = on_card_ && row.kind == ScopeKind::op;
      row.typical_ns = typical(row.samples);
    }
    out.dtype = "";
    out.rows = std::move(rows_);
    out.title = "PyTorch CPU";
    out.source = Source::host;
    if (on_card_) {
      out.title = "PyTorch CUDA";
      out.device = {Device::Type::cuda, 0};
      out.source = Source::cupti;
    }
    return out;
  }

 private:
  void add(const TraceJson& json) {
    const std::string cat_of = text_at(json, "cat"), name = text_at(json, "name");
    const auto kind = std::ranges::find(kEventKinds, cat_of, &NamedKind::name);
    if (text_at(json, "ph") != "X" || kind == std::end(kEventKinds)) return;
    if (name.starts_with("profiler::")) return;  // its own marks, which key_averages() drops too
    Event e{.kind = kind->kind};
    std::string fault = time_at(json, "ts", -kMostUs, kMostUs, e.t0);
    if (fault.empty()) fault = time_at(json, "dur", 0, kLongestUs, e.t1);
    if (!fault.empty()) {
      if (left_out_++ == 0) first_ = str("traceEvents[", taken_, "], ", name, ": ", fault);
      return;
    }
    e.t1 += e.t0;
    if (e.kind == EventKind::annotation && name.starts_with(kStepMark)) {
      StepSample step{.number = int64_t(steps_.size()), .t0 = e.t0, .t1 = e.t1};
      parse_all(std::string_view(name).substr(kStepMark.size()), step.number);
      steps_.push_back(step);
      return;
    }
    static const TraceJson kNone = TraceJson::object();
    const auto found = json.find("args");
    const TraceJson& args = found != json.end() && found->is_object() ? *found : kNone;
    e.correlation = id_at(args, "correlation");
    e.external = id_at(args, "External id");
    e.row = row_of(kRowKinds[size_t(e.kind)], name, e.on_host() ? shapes_of(args) : "");
    if (e.on_host()) {
      const std::string thread =
          str(json.value("pid", kNone).dump(), json.value("tid", kNone).dump());
      e.thread = threads_.try_emplace(thread, int(threads_.size())).first->second;
    }
    on_card_ = on_card_ || !e.on_host();
    events_.push_back(e);
  }

  // What is wrong with the time, or "" and the time in `ns`.
  static std::string time_at(
      const TraceJson& json, const char* key, double least, double most, int64_t& ns) {
    const auto found = json.find(key);
    if (found == json.end()) return str(key, " is missing");
    if (!found->is_number()) return str(key, " is ", found->type_name(), ", wanted a number of us");
    const auto us = found->get<double>();
    if (us < least) return str(key, " is ", us, ", wanted ", least, " or more");
    if (us > most) return str(key, " is ", us, ", wanted ", most, " at most");
    ns = std::llround(us * 1e3);
    return "";
  }

  void note_faults(Profile& out, int64_t faults, const char* what, const std::string& why) const {
    if (faults == 0) return;
    const auto all = int64_t(events_.size() + steps_.size()) + left_out_;
    const std::string text = str(grouped(faults), " of ", count_of(all, "event"), " ", what);
    out.notes.push_back(str(text, ": ", why));
    if (double(faults) > kMostFaults * double(all)) out.incomplete.push_back(text);
  }

  int row_of(ScopeKind kind, const std::string& name, const std::string& shapes) {
    const auto [found, is_new] = row_index_.try_emplace({kind, name, shapes}, int(rows_.size()));
    if (is_new) rows_.push_back({.name = name, .shapes = shapes, .kind = kind});
    return found->second;
  }

  std::vector<StepSample> find_steps(std::vector<std::string>& notes) {
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (const Event& e : events_) {
      if (rows_[e.row].kind != ScopeKind::op) continue;
      begin = std::min(begin, e.t0);
      end = std::max(end, e.t1);
    }
    if (begin > end)
      refuse("it has no ops: no event of cat cpu_op or kernel" +
             (left_out_ > 0 ? str("; ", left_out_, " left out: ", first_) : ""));
    if (steps_.empty()) {
      notes.push_back("no ProfilerStep is marked: the whole trace counts as one step");
      return {{.t0 = begin, .t1 = end}};
    }
    std::ranges::sort(steps_, {}, &StepSample::t0);
    return steps_;
  }

  // Self times and the op around each event, see the note. Returns how many overlap.
  int64_t nest() {
    int64_t overlaps = 0;
    std::vector<std::vector<int>> of_thread(threads_.size());
    for (size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].on_host()) of_thread[events_[i].thread].push_back(int(i));
    }
    for (std::vector<int>& order : of_thread) {
      std::ranges::stable_sort(
          order, {}, [&](int i) { return std::pair(events_[i].t0, -events_[i].t1); });
      std::vector<int> open;
      for (const int i : order) {
        Event& e = events_[i];
        bool overlaps_one = false;
        while (!open.empty() && events_[open.back()].t1 < std::max(e.t1, e.t0 + 1)) {
          const int64_t end = events_[open.back()].t1;
          overlaps_one |= std::min(end - e.t0, e.t1 - end) > kRoundingNs;
          open.pop_back();
        }
        overlaps += overlaps_one;
        e.self_ns = e.ns();
        if (!open.empty()) {
          add_to(events_[open.back()].self_ns, -e.ns());
          e.op = events_[open.back()].op;
        }
        if (e.kind == EventKind::op) e.op = i;
        open.push_back(i);
      }
    }
    return overlaps;
  }

  // Of what a step holds; the rest is left out, and said.
  void count(Profile& out) {
    int64_t outside = 0;
    const auto step_at = [&](int64_t t) -> int64_t {
      const auto after = std::ranges::upper_bound(out.steps, t, {}, &StepSample::t0);
      if (after != out.steps.begin() && t <= std::prev(after)->t1)
        return after - out.steps.begin() - 1;
      ++outside;
      return -1;
    };
    std::unordered_map<int64_t, const Event*> calls, ops;  // by correlation, by external id
    for (const Event& e : events_) {
      if (!e.on_host()) continue;
      if (e.kind == EventKind::runtime && e.correlation >= 0) calls[e.correlation] = &e;
      if (e.kind == EventKind::op && e.external >= 0) ops[e.external] = &e;
      const int64_t step = step_at(e.t0);
      if (step < 0) continue;
      Row& row = rows_[e.row];
      ++row.calls;
      const int64_t self_ns = std::max<int64_t>(e.self_ns, 0);
      add_to(row.self_ns, self_ns);
      if (!on_card_) add_to(row.samples[step], self_ns);
    }
    for (const Event& e : events_) {
      if (e.on_host()) continue;
      const auto call = calls.find(e.correlation), op = ops.find(e.external);
      const Event* launch = call != calls.end() ? call->second
                            : op != ops.end()   ? op->second
                                                : nullptr;
      const int64_t step = step_at(launch ? launch->t0 : e.t0);
      if (step < 0) continue;
      const bool of_op = launch && launch->op >= 0 &&
                         rows_[launch->row].name.find("GraphLaunch") == std::string::npos;
      Row& row = rows_[of_op ? events_[launch->op].row : e.row];
      const bool is_kernel = e.kind == EventKind::kernel;
      row.calls += !of_op;
      row.launches += is_kernel;
      add_to(row.device_ns, e.ns());
      add_to(row.samples[step], e.ns());
      out.steps[step].launches += is_kernel;
      out.steps[step].copies += !is_kernel;
    }
    if (outside > 0)
      out.notes.push_back(count_of(outside, "event") + " outside the steps left out");
  }

  std::string file_;
  bool in_events_ = false, is_trace_ = false;
  size_t taken_ = 0;  // objects of traceEvents so far
  int64_t left_out_ = 0;
  std::string first_;  // of those left out, and why
  bool on_card_ = false;
  std::vector<Event> events_;
  std::vector<StepSample> steps_;
  std::vector<Row> rows_;
  std::map<std::tuple<ScopeKind, std::string, std::string>, int> row_index_;
  std::map<std::string, int> threads_;
};

}  // namespace

Profile read_profile_or_trace(const std::string& text, const std::string& file) {
  TraceReader reader(file);
  TraceJson root;
  try {
    root = TraceJson::parse(text, [&reader](int depth, TraceJson::parse_event_t what,
                                      TraceJson& json) { return reader.take(depth, what, json); });
  } catch (const TraceJson::parse_error& e) {
    if (const std::string other = without_nan(text); reader.is_trace() && other != text)
      return read_profile_or_trace(other, file);
    if (reader.is_trace() && e.byte > text.size())
      reader.refuse(str("it is cut off: its JSON ends at byte ", text.size()));
    if (reader.is_trace()) reader.refuse(str("its JSON is broken at byte ", e.byte));
  } catch (const TraceJson::exception& e) {
    if (reader.is_trace()) reader.refuse(e.what());
  }
  SINTER_CHECK(!root.is_object() || !root.contains("x_schema"), data,
      str("profile: a trace of our own: ", escaped(file), "; what it traced is read off a profile"),
      "a profile is the .json file that such a run writes beside it, where it is asked to");
  if (reader.is_trace()) return reader.profile(root);
  SINTER_CHECK(root.is_object() && root.contains("schema"), data,
      str("profile: neither a profile nor a trace: ", escaped(file),
          "; it is no JSON object with a schema or traceEvents"),
      "a profile is the .json file that a profiled run wrote, a trace what torch.profiler's "
      "export_chrome_trace() wrote");
  return read_profile(text, file);
}

}  // namespace sinter::profiler
