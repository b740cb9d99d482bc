#include "capture/step.h"

#include <algorithm>
#include <chrono>

#include "autograd/autograd.h"
#include "capture/measure.h"
#include "capture/recording.h"
#include "core/context.h"
#include "ops/gemm_library.h"
#include "ops/step_state.h"

namespace sinter::capture {

struct Step::Entry {
  struct Input {
    Shape shape;
    Strides strides;
    DType dtype;
    Device device;
    bool requires_grad;
  };
  std::vector<Input> inputs;
  int64_t mode = 0;
  bool grad_enabled = true;
  uint64_t used = 0;
  int64_t calls = 0;
  std::unique_ptr<Graph> first;  // after call 1
  std::unique_ptr<Captured> captured;

  bool matches(const Tensors& given, int64_t given_mode) const {
    if (given_mode != mode || given.size() != inputs.size() || grad_enabled != Context::current().grad_enabled) return false;
    for (size_t i = 0; i < given.size(); ++i) {
      const Input& in = inputs[i];
      const Tensor& t = given[i];
      if (in.dtype != t.dtype() || !(in.shape == t.shape()) || !(in.strides == t.strides()) || in.device != t.device() ||
          in.requires_grad != t.requires_grad())
        return false;
    }
    return true;
  }
};

Step::Step(Function function, StepOptions options) : function_(std::move(function)), options_(std::move(options)) {
  SINTER_CHECK(options_.cache_size >= 1, usage, "capture: the cache needs room for one key");
}
Step::~Step() = default;

void Step::reset() {
  entries_.clear();
  guarded_.clear();
  last_ = nullptr;
}

const Captured* Step::captured() const {
  const Entry* best = nullptr;
  for (const auto& entry : entries_) {
    if (entry->captured && (!best || entry->calls > best->calls)) best = entry.get();
  }
  return best ? best->captured.get() : nullptr;
}

std::string Step::failed_guard() {
  if (!options_.parameters) return "";
  struct Check {
    std::vector<Guarded>& guarded;
    const bool fresh = guarded.empty();
    size_t seen = 0;
    const char* failed = nullptr;
    Tensor culprit{};

    void see(const Tensor& t) {
      const Guarded now{t, t.storage()->uid(), t.requires_grad()};
      const size_t n = seen++;
      if (fresh) {
        guarded.push_back(now);
      } else if (n >= guarded.size()) {
        fail("parameter list: one more", t);
      } else if (guarded[n].storage != now.storage) {
        fail("storage address", t);
      } else if (guarded[n].requires_grad != now.requires_grad) {
        fail("requires_grad", t);
      }
    }
    void fail(const char* what, const Tensor& t) {
      if (!failed) failed = what, culprit = t;
    }
  } check{guarded_};
  options_.parameters([&check](const Tensor& t) { check.see(t); });  // one pointer: std::function keeps it without allocating
  if (!check.failed && check.seen < guarded_.size()) return "parameter list: fewer";
  if (!check.failed) return "";
  const std::string name = check.culprit.has_autograd() ? check.culprit.autograd().name : "";
  return cat(check.failed, name.empty() ? "" : " of ", name);
}

Step::Entry& Step::entry_for(const Tensors& inputs) {
  const int64_t mode = options_.mode ? options_.mode() : 0;
  if (last_ && last_->matches(inputs, mode)) return *last_;
  for (const auto& entry : entries_) {
    if (entry->matches(inputs, mode)) return *entry;
  }
  if (entries_.size() >= options_.cache_size) {
    const auto oldest = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a->used < b->used; });
    entries_.erase(oldest);
    ++stats_.evictions;
  }
  auto entry = std::make_unique<Entry>();
  for (const Tensor& t : inputs) entry->inputs.push_back({t.shape(), t.strides(), t.dtype(), t.device(), t.requires_grad()});
  entry->mode = mode;
  entry->grad_enabled = Context::current().grad_enabled;
  entries_.push_back(std::move(entry));
  return *entries_.back();
}

const Tensors& Step::operator()(const Tensors& inputs) {
  for (const Tensor& t : inputs) SINTER_CHECK(t.defined(), state, "capture: an input of the step is undefined");
  ++stats_.calls;
  if (const std::string failed = failed_guard(); !failed.empty()) {
    if (stats_.misses.size() == 16) stats_.misses.erase(stats_.misses.begin());
    stats_.misses.push_back(cat("guard ", failed, " changed at call ", stats_.calls, ": captured again"));
    reset();
    failed_guard();
  }
  Entry& entry = entry_for(inputs);
  last_ = &entry;
  entry.used = ++clock_;
  ++entry.calls;
  if (!entry.captured) {
    run_recorded(entry, inputs);
    return results_;
  }
  entry.captured->executor->run(inputs);
  ++stats_.replays;
  for (const Captured::Gradient& g : entry.captured->gradients) {
    AutogradMeta& meta = g.param.autograd();
    meta.grad = g.grad;
    meta.grad_taken_by = g.taken_by;
  }
  return entry.captured->executor->outputs();
}

void Step::run_recorded(Entry& entry, const Tensors& inputs) {
  Tensors parameters;
  if (options_.parameters) options_.parameters([&](const Tensor& t) { parameters.push_back(t); });
  Graph graph;
  {
    Recording recording(inputs);
    results_ = function_(inputs);
    graph = recording.finish(results_, parameters);
  }
  ++stats_.recordings;
  if (!entry.first) {
    entry.first = std::make_unique<Graph>(std::move(graph));
    return;
  }
  const std::string differs = difference(*entry.first, graph);
  if (!differs.empty()) {
    entry.first.reset();
    throw Error(Error::Kind::state, cat("capture: two runs of the step recorded different graphs: ", differs),
                "a value that changes from call to call must be a tensor or an input, not a number or a branch in the step");
  }
  entry.first.reset();
  entry.captured = std::make_unique<Captured>(Captured{.recorded = std::move(graph), .fused = Rewriter({}, {}, {}), .executor = nullptr, .gradients = {}});
  capture(entry);
}

void Step::capture(Entry& entry) {
  const auto start = std::chrono::steady_clock::now();
  Captured& c = *entry.captured;
  const Device::Type device = entry.inputs.empty() ? Device::Type::cpu : entry.inputs[0].device.type;
  // The emulator's times mean nothing: there fewer launches always win.
  const bool measure = options_.measure && device != Device::Type::simt, known = measure && choices_.size() < options_.choices.size();
  const struct Restore {
    GemmChoice before = gemm_choice();
    ~Restore() { set_gemm_choice(before); }
  } restore;
  if (measure && !known && restore.before == GemmChoice::model) set_gemm_choice(GemmChoice::measured);
  if (known) choices_.push_back(options_.choices[choices_.size()]);
  c.fused = measure && !known ? rewrite_measured(c.recorded, options_.rules, device)
                              : rewrite(c.recorded, options_.rules, device, known ? choices_.back() : Refused{});
  if (measure && !known) {
    choices_.emplace_back();
    for (const Group& group : c.fused.groups) {
      if (group.kept_unfused) choices_.back().emplace(group.rule, group.origin.front());
    }
  }
  const Graph& graph = c.fused.graph;
  c.executor = std::make_unique<Executor>(graph, options_.cuda_graph);
  const auto parameter = [&](int value) {
    const Value& v = graph.values[value];
    for (const Guarded& g : guarded_) {
      if (g.tensor.storage() == graph.buffers[v.buffer].storage && g.tensor.offset() == v.offset) return g.tensor;
    }
    SINTER_ASSERT(false, "%", value, " is no parameter");
    return Tensor{};
  };
  for (const Graph::Gradient& g : graph.gradients) c.gradients.push_back({parameter(g.param), c.executor->tensor(g.grad), nullptr});
  for (const auto& [param, rule] : graph.taken) c.gradients.push_back({parameter(param), {}, rule});
  ++stats_.captures;
  stats_.capture_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace sinter::capture
