#include "profiler/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <zlib.h>

#include "core/atomic_file.h"
#include "core/json.h"

namespace sinter::profiler {
namespace {

// CUPTI's number of the default stream; readers take 0 for "no stream".
constexpr int kStreamBase = 7;

bool on_device(const LaunchRecord& l) { return l.source == Source::cupti; }

// Of each ScopeKind.
constexpr const char* kCategories[] = {"user_annotation", "user_annotation", "user_annotation",
    "cpu_op", "cuda_runtime", "cuda_runtime", "user_annotation", "user_annotation", "overhead"};
// Of each LaunchKind.
constexpr const char* kWork[] = {"kernel", "gpu_memcpy", "gpu_memset", ""};
constexpr const char* kApi[] = {
    "cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaGraphLaunch"};

// [[64, 784], [256, 784]] of "f32[64, 784] f32[256, 784]"
Json dims_of(std::string_view shapes) {
  Json out = Json::array();
  for (size_t at = 0; (at = shapes.find('[', at)) != std::string_view::npos;) {
    const size_t end = shapes.find(']', at);
    if (end == std::string_view::npos) break;
    out.push_back(Json::parse(shapes.substr(at, end + 1 - at), nullptr, false));
    at = end;
  }
  return out;
}

// What Kineto says of a kernel in its own keys; what is not known is left out.
Json footprint_args(const Footprint& f, const Card& card) {
  Json args = {{"grid", f.grid}, {"block", f.block}};
  if (f.registers) args["registers per thread"] = *f.registers;
  if (f.static_shared && f.dynamic_shared)
    args.update({{"shared memory", *f.static_shared + *f.dynamic_shared},
        {"x_static_shared", *f.static_shared}});
  if (card.multiprocessors > 0) {
    const double blocks = double(Footprint::volume(f.grid)) / card.multiprocessors;
    args.update({{"blocks per SM", blocks},
        {"warps per SM", blocks * double(Footprint::volume(f.block)) / 32}});
  }
  if (const auto o = occupancy(f, card))
    args.update(
        {{"est. achieved occupancy %", std::lround(100 * o->filled)}, {"x_occupancy", o->share},
            {"x_limit", o->limit}, {"x_waves", o->waves}, {"x_tail", o->tail}});
  return args;
}

// Writes events with `ts` in us after the first step's begin, from integer ns.
class Events {
 public:
  Events(int64_t base, int64_t first_id)
      : external(first_id), correlation(first_id), arrow(first_id), base_(base) {}

  // What all reports of a trace share: no number of it stands for two things.
  int64_t external, correlation, arrow;

  static double us(int64_t ns) { return double(ns) / 1e3; }
  void slice(const char* cat, std::string_view name, int pid, int64_t tid, int64_t t0, int64_t t1,
      Json args) {
    add({{"ph", "X"}, {"cat", cat}, {"name", name}, {"pid", pid}, {"tid", tid},
        {"ts", us(t0 - base_)}, {"dur", us(t1 - t0)}, {"args", std::move(args)}});
  }
  void flow(const char* cat, int64_t id, int pid0, int64_t tid0, int64_t t0, int pid1, int64_t tid1,
      int64_t t1) {
    add({{"ph", "s"}, {"cat", cat}, {"name", cat}, {"id", id}, {"pid", pid0}, {"tid", tid0},
        {"ts", us(t0 - base_)}});
    add({{"ph", "f"}, {"bp", "e"}, {"cat", cat}, {"name", cat}, {"id", id}, {"pid", pid1},
        {"tid", tid1}, {"ts", us(t1 - base_)}});
  }
  void counter(const char* name, int pid, int64_t t, Json args) {
    add({{"ph", "C"}, {"name", name}, {"pid", pid}, {"tid", 0}, {"ts", us(t - base_)},
        {"args", std::move(args)}});
  }
  void meta(const char* what, int pid, int64_t tid, const std::string& name) {
    add({{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"ts", 0},
        {"args", {{"name", name}}}});
  }
  std::string take() { return std::move(text_); }

 private:
  void add(const Json& event) {
    text_ += text_.empty() ? "" : ",\n";
    text_ += json_text(event);
  }
  int64_t base_;
  std::string text_;
};

// The events of one report, in processes of its own: host and device.
class TraceWriter {
 public:
  TraceWriter(const Report& report, int pair, std::string prefix, Events& events)
      : report_(report),
        host_(2 * pair + 1),
        device_(2 * pair),
        prefix_(std::move(prefix)),
        events_(events) {}

  void write() {
    lanes();
    const auto stepping = std::ranges::find(report_.traces, true, &Trace::steps_here);
    for (const StepSample& s : report_.steps) {
      events_.counter("step ms", host_, s.t0, {{"ms", Events::us(s.ns() / 1000)}});
      if (stepping == report_.traces.end()) continue;
      events_.slice("user_annotation", fmt::format("ProfilerStep#{}", s.number), host_,
          stepping->thread, s.t0, s.t1,
          {{"External id", ++events_.external}, {"x_launches", s.launches}});
    }
    for (const Trace& trace : report_.traces) thread(trace);
    queue_depth();
  }

 private:
  bool wanted(uint32_t step) const { return report_.step_index(step) >= 0; }

  void lanes() {
    std::map<int, bool> threads;
    std::map<uint32_t, int> streams;
    for (const Trace& trace : report_.traces) {
      threads[trace.thread] |= trace.steps_here;
      for (const LaunchRecord& l : trace.launches) {
        if (on_device(l)) ++streams[l.stream];
      }
    }
    events_.meta("process_name", host_, 0, prefix_ + "host");
    for (const auto& [thread, steps] : threads)
      events_.meta("thread_name", host_, thread, str("thread ", thread, steps ? " (steps)" : ""));
    if (streams.empty()) return;
    events_.meta("process_name", device_, 0, prefix_ + report_.device.str());
    for (const auto& [stream, launches] : streams)
      events_.meta(
          "thread_name", device_, stream + kStreamBase, str("stream ", stream + kStreamBase));
  }

  void thread(const Trace& trace) {
    std::vector<int64_t> kernel_ns(trace.records.size()), launched(trace.records.size()),
        id(trace.records.size());
    for (const LaunchRecord& l : trace.launches) {
      if (l.record < 0) continue;
      kernel_ns[l.record] += l.api_t1 - l.api_t0;
      launched[l.record] += l.kind == LaunchKind::kernel ? l.at_least() : 0;
    }
    // The records of this step's ops by op number: no arrow crosses steps.
    std::map<uint64_t, size_t> forward;
    uint32_t step = 0;
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const Record& r = trace.records[i];
      if (!report_.counts(trace, r)) continue;
      if (r.step != step) forward.clear();
      step = r.step;
      id[i] = ++events_.external;
      Json args = {{"External id", id[i]}, {"x_kind", r.kind}};
      if (r.kind == ScopeKind::op) {
        const OpInfo& info = r.info;
        args.update({{"Input Dims", dims_of(info.shapes)}, {"x_shapes", info.shapes.view()},
            {"x_role", info.role}, {"x_flops", info.cost.flops},
            {"x_bytes_read", info.cost.bytes_read}, {"x_bytes_written", info.cost.bytes_written},
            {"x_launches", launched[i]}, {"x_kernel_ns", kernel_ns[i]}});
        if (!info.module.view().empty()) args["x_module"] = info.module.view();
        if (info.uid != 0) forward[info.uid] = i;
        if (const auto from = forward.find(info.forward_uid);
            info.forward_uid != 0 && info.forward_uid != info.uid && from != forward.end()) {
          args["x_forward"] = id[from->second];
          events_.flow("fwdbwd", ++events_.arrow, host_, trace.thread,
              trace.records[from->second].t0, host_, trace.thread, r.t0);
        }
      }
      events_.slice(kCategories[size_t(r.kind)], r.name.view(), host_, trace.thread, r.t0, r.t1,
          std::move(args));
    }
    phases(trace);
    launches(trace, id);
    for (const MemorySample& m : trace.memory) {
      if (wanted(m.step) && !m.planned)
        events_.counter("memory in use", host_, m.t, {{"bytes", m.live_bytes}});
    }
  }

  // What a replay ran of each phase, on each stream: the host has no spans of it.
  void phases(const Trace& trace) {
    struct Span {
      std::string_view phase;
      int64_t call, t0, t1;
    };
    std::map<uint32_t, Span> spans;  // the last one of a stream
    const auto write = [this](uint32_t stream, const Span& s) {
      if (s.phase.empty()) return;
      events_.slice("gpu_user_annotation", s.phase, device_, int64_t{stream} + kStreamBase, s.t0,
          s.t1, {{"External id", ++events_.external}});
    };
    for (const LaunchRecord& l : trace.launches) {
      const GraphNode* node = report_.node_of(l);
      if (!node || !on_device(l) || !wanted(l.step) || l.device_ns() <= 0) continue;
      const Span span{node->phase, l.api_t0, l.dev_t0, l.dev_t1};
      const auto [last, is_new] = spans.try_emplace(l.stream, span);
      if (last->second.phase == span.phase && last->second.call == span.call) {
        last->second.t1 = span.t1;
      } else {
        write(l.stream, std::exchange(last->second, span));
      }
    }
    for (const auto& [stream, span] : spans) write(stream, span);
  }

  void launches(const Trace& trace, const std::vector<int64_t>& id) {
    // Whose API call is written already: the nodes of a graph share one.
    const LaunchRecord* call = nullptr;
    for (const LaunchRecord& l : trace.launches) {
      if (!on_device(l) || !wanted(l.step)) continue;
      const int64_t external = l.record >= 0 ? id[size_t(l.record)] : 0;
      if (!call || call->api_t0 != l.api_t0 || call->api_t1 != l.api_t1) {
        call = &l;
        const char* name = kApi[size_t(l.graph_node > 0 ? LaunchKind::graph : l.kind)];
        events_.slice("cuda_runtime", name, host_, trace.thread, l.api_t0, l.api_t1,
            {{"External id", external}, {"correlation", ++events_.correlation}});
      }
      if (l.kind == LaunchKind::graph || l.device_ns() <= 0) continue;
      depth_.emplace_back(l.api_t0, 1);
      depth_.emplace_back(l.dev_t1, -1);
      const GraphNode* node = report_.node_of(l);
      std::string_view name = node ? std::string_view(node->name) : name_of(l.kind);
      if (!l.kernel.view().empty()) name = l.kernel.view();
      const int64_t tid = int64_t{l.stream} + kStreamBase;
      Json args = {{"External id", external}, {"correlation", events_.correlation}, {"device", 0},
          {"context", 1}, {"stream", tid}, {"x_source", l.source}};
      if (l.bytes > 0) args["bytes"] = l.bytes;
      if (node)
        args.update({{"x_op", node->name}, {"x_module", node->module}, {"x_phase", node->phase}});
      if (l.graph_node > 0) args["graph node id"] = l.graph_node;
      if (l.footprint.has_shape()) args.update(footprint_args(l.footprint, report_.card));
      events_.slice(kWork[size_t(l.kind)], name, device_, tid, l.dev_t0, l.dev_t1, std::move(args));
      events_.flow("ac2g", ++events_.arrow, host_, trace.thread, l.api_t0, device_, tid, l.dev_t0);
    }
  }

  void queue_depth() {
    std::sort(depth_.begin(), depth_.end());
    int64_t depth = 0;
    for (const auto& [t, change] : depth_) {
      depth += change;
      events_.counter("queue depth", device_, t, {{"launches", depth}});
    }
  }

  const Report& report_;
  const int host_, device_;   // pids
  const std::string prefix_;  // of their names
  Events& events_;
  std::vector<std::pair<int64_t, int>> depth_;
};

constexpr int64_t kIdsOfRank = 1'000'000'000;  // no two ranks share one
constexpr std::string_view kEventsBegin = ",\"traceEvents\":[\n", kEventsEnd = "\n]}\n";

std::string packed(const std::string& text) {
  z_stream stream{};
  // + 16: with a gzip header, which has no time in it.
  int code =
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  // In pieces: zlib counts a call's bytes in 32 bits, and a trace may have more.
  constexpr size_t kPiece = size_t{1} << 20;
  while (code == Z_OK) {
    const size_t rest = text.size() - stream.total_in;
    stream.avail_in = uInt(std::min(rest, kPiece));
    stream.avail_out = uInt(std::min(out.size() - stream.total_out, 2 * kPiece));
    code = deflate(&stream, rest > kPiece ? Z_NO_FLUSH : Z_FINISH);
  }
  deflateEnd(&stream);
  SINTER_ASSERT(code == Z_STREAM_END, "zlib gave ", code);
  out.resize(stream.total_out);
  return out;
}

}  // namespace

std::string chrome_trace(std::span<const Report> reports, const TraceOptions& options) {
  int64_t base = INT64_MAX;
  bool incomplete = false;
  for (const Report& report : reports) {
    base = std::min(base, report.steps.front().t0);
    incomplete = incomplete || !report.incomplete.empty();
  }
  if (options.base) base = options.base;
  Events events(base, options.rank * kIdsOfRank);
  for (size_t i = 0; i < reports.size(); ++i) {
    std::string prefix = reports.size() > 1 ? reports[i].mode + ": " : "";
    if (options.ranks > 1) prefix = fmt::format("rank {}: ", options.rank);
    TraceWriter(reports[i], options.rank + int(i), prefix, events).write();
  }
  const Report& first = reports[0];
  Json head = {{"schemaVersion", 1}, {"displayTimeUnit", "ms"}, {"baseTimeNanoseconds", base},
      {"traceName", first.title}, {"distributedInfo", {{"rank", options.rank}}},
      {"deviceProperties", Json::array()}, {"x_schema", "sinter.trace/1"},
      {"x_source", first.source}, {"x_incomplete", incomplete}};
  if (options.ranks > 1) head["distributedInfo"]["world_size"] = options.ranks;
  if (first.device != kCpu) head["deviceProperties"].push_back({{"id", 0}, {"name", first.device}});
  if (first.card != Card{})
    head["deviceProperties"][0].update({{"computeMajor", first.card.capability / 10},
        {"computeMinor", first.card.capability % 10}, {"numSms", first.card.multiprocessors}});
  std::string text = json_text(head);
  text.pop_back();  // its }
  return text.append(kEventsBegin).append(events.take()).append(kEventsEnd);
}

std::string joined_traces(const std::vector<std::string>& traces) {
  std::string all;
  for (const std::string& text : traces) {
    const size_t begin = text.find(kEventsBegin) + kEventsBegin.size();
    all += all.empty() ? text.substr(0, begin) : ",\n";
    all += text.substr(begin, text.size() - kEventsEnd.size() - begin);
  }
  return all.append(kEventsEnd);
}

void write_trace(const std::string& base, const std::string& text) {
  write_file(base + kTraceEnding, packed(text));
}

}  // namespace sinter::profiler
