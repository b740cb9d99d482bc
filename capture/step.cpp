#include "capture/step.h"

#include <algorithm>
#include <chrono>

#include "autograd/tape.h"
#include "capture/measure.h"
#include "core/context.h"
#include "core/training_flag.h"
#include "ops/gemm_library.h"

namespace sinter::capture {
namespace {

using Need = Captured::Gradient::Need;

// Never used again, unlike std::thread::id.
uint64_t this_thread() {
  static std::atomic<uint64_t> next{1};
  static thread_local const uint64_t mine = next++;
  return mine;
}

// Holds a step for its thread during a call; calls of the same thread may nest.
class OneCaller {
 public:
  explicit OneCaller(std::atomic<uint64_t>& caller) : caller_(caller) {
    uint64_t nobody = 0;
    outermost_ = caller.compare_exchange_strong(nobody, this_thread());
    SINTER_CHECK(outermost_ || nobody == this_thread(), usage,
        "capture: one step is called on two threads at once",
        "give each thread a step of its own, or lock around the call");
  }
  ~OneCaller() {
    if (outermost_) caller_.store(0, std::memory_order_release);
  }
  OneCaller(const OneCaller&) = delete;
  OneCaller& operator=(const OneCaller&) = delete;

 private:
  std::atomic<uint64_t>& caller_;
  bool outermost_;
};

// An outer recording, anomaly mode: a replay would tell them nothing.
bool somebody_listens() {
  const std::vector<Recorder*>& recorders = Context::current().recorders;
  return std::any_of(
      recorders.begin(), recorders.end(), [](Recorder* r) { return r != &Tape::current(); });
}

Tensor gradient_of(const Tensor& t) { return t.has_autograd() ? t.autograd().grad : Tensor(); }
bool has_memory(const Tensor& gradient) { return gradient.defined() && !gradient.is_meta(); }
Tensor without_memory(const Tensor& t) {
  return Tensor::meta(t.shape(), t.dtype(), t.device()).with_layout(t.strides(), 0);
}
bool same_layout(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides();
}

std::string name_of_leaf(const Leaf& leaf) {
  const std::string name = leaf.tensor.has_autograd() ? leaf.tensor.autograd().name : "";
  if (!name.empty()) return name;
  return leaf.input >= 0 ? cat("input ", leaf.input) : cat("a leaf ", leaf.tensor.describe());
}

const Leaf* find_leaf(const Recorded& recorded, const Leaf& wanted) {
  for (const Leaf& leaf : recorded.leaves) {
    const bool same = leaf.parameter == wanted.parameter && leaf.input == wanted.input;
    if (same && (leaf.parameter >= 0 || leaf.input >= 0 || leaf.tensor.is_same(wanted.tensor)))
      return &leaf;
  }
  return nullptr;
}

// What a gradient was when the call began: a recording is of one such state. (One that a rule took
// has no memory.)
bool same_before(const Leaf& a, const Tensor& now) {
  return a.before.defined() == now.defined() && has_memory(a.before) == has_memory(now);
}

bool began_alike(const Recorded& a, const Recorded& b) {
  return std::all_of(a.leaves.begin(), a.leaves.end(), [&](const Leaf& leaf) {
    const Leaf* other = find_leaf(b, leaf);
    return !other || same_before(leaf, other->before);
  });
}

// "" if both recordings do the same to the gradients, else the first difference. Where one began
// without a gradient, nobody can tell whether it would have cleared one, so the other decides.
std::string gradient_difference(const Recorded& a, const Recorded& b) {
  static constexpr const char* kWords[] = {"kept", "cleared", "set"};
  for (const Leaf& x : a.leaves) {
    const Leaf* y = find_leaf(b, x);
    if (!y) continue;
    const bool either_set = x.after == Leaf::After::set || y->after == Leaf::After::set;
    if (x.before.defined() != y->before.defined() && !either_set) continue;
    if (x.after == y->after && x.grad == y->grad && x.read == y->read) continue;
    return cat("the gradient of ", name_of_leaf(x), " is ", kWords[static_cast<int>(x.after)],
        " in the first recording, ", kWords[static_cast<int>(y->after)], " in the second");
  }
  return "";
}

bool writes_buffer(const Graph& graph, int buffer) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (node.in[i] < 0 || !node.op->writes_input(i, node.in.size())) continue;
      if (graph.values[node.in[i]].buffer == buffer) return true;
    }
    return false;
  });
}

// External memory that no input may share: what the graph writes; if it writes an input, all.
std::vector<const Storage*> written_memory(const Graph& graph) {
  const bool writes_input = std::any_of(graph.inputs.begin(), graph.inputs.end(),
      [&](int in) { return writes_buffer(graph, graph.values[in].buffer); });
  std::vector<const Storage*> out;
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const Buffer& buffer = graph.buffers[b];
    if (buffer.kind != Buffer::Kind::external) continue;
    if (writes_input || writes_buffer(graph, static_cast<int>(b)))
      out.push_back(buffer.storage.get());
  }
  return out;
}

void check_shares_nothing(
    const std::vector<const Storage*>& written, const Tensors& inputs, size_t i) {
  for (const Storage* storage : written) {
    SINTER_CHECK(inputs[i].storage().get() != storage, state,
        cat("capture: input ", i, ", ", inputs[i].describe(),
            ", shares memory with a tensor of the closure, and the step changes one of them"),
        "give a copy(..) of it");
  }
}

void check_result(const Tensor& t, size_t i) {
  SINTER_CHECK(t.defined(), state, cat("capture: result ", i, " of the step is undefined"),
      "return only what the step made");
  if (!t.requires_grad()) return;
  const bool on_tape = t.autograd().leaf || Tape::current().slot_of(t) >= 0;
  SINTER_CHECK(!on_tape, state,
      cat("capture: result ", i, " of the step requires grad: ", t.describe(),
          "; a replay is not on the tape, so no gradient would flow through it"),
      "return detach(..), or call backward inside the step");
  SINTER_CHECK(!t.autograd().grad.defined(), state,
      cat("capture: result ", i, " of the step keeps its gradient: ", t.describe(),
          "; a replay would not set it"),
      "return its grad() as a result");
}

}  // namespace

struct Step::Key {
  int64_t mode;
  uint64_t training_flags, thread;
  bool grad_enabled, tf32;
  bool operator==(const Key&) const = default;
};

struct Step::Entry {
  struct Input {
    Shape shape;
    Strides strides;
    DType dtype;
    Device device;
    bool requires_grad;
  };
  Key key;
  std::vector<Input> inputs;
  std::vector<Tie> ties;
  uint64_t used = 0;
  int64_t calls = 0;
  std::optional<Recorded> first;  // until it is captured
  bool strict = false;            // another entry is for other gradients at entry
  std::unique_ptr<Captured> captured;
};

Step::Step(Function function, StepOptions options)
    : function_(std::move(function)), options_(std::move(options)) {
  SINTER_CHECK(options_.cache_size >= 1, usage, "capture: the cache needs room for one key");
}
Step::~Step() = default;

void Step::reset() {
  SINTER_CHECK(caller_ == 0, usage, "capture: reset() of a step while it is called",
      "reset it after the call");
  forget_all();
}

void Step::forget_all() {
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
      const size_t n = seen++;
      if (fresh) {
        guarded.push_back({t, t.storage()->uid(), t.requires_grad()});
      } else if (n >= guarded.size()) {
        fail("parameter list: one more", t);
      } else if (guarded[n].storage != t.storage()->uid()) {
        fail("storage address", t);
      } else if (guarded[n].requires_grad != t.requires_grad()) {
        fail("requires_grad", t);
      } else if (Tensor& known = guarded[n].tensor; !known.is_same(t)) {
        // Another tensor on the same memory: its gradient is what counts from now on.
        if (known.offset() != t.offset() || !same_layout(known, t)) return fail("layout", t);
        known = t;
      }
    }
    void fail(const char* what, const Tensor& t) {
      if (!failed) failed = what, culprit = t;
    }
  } check{guarded_};
  options_.parameters([&check](const Tensor& t) {
    check.see(t);
  });  // one pointer: std::function keeps it without allocating
  if (!check.failed && check.seen < guarded_.size()) return "parameter list: fewer";
  if (!check.failed) return "";
  const std::string name = check.culprit.has_autograd() ? check.culprit.autograd().name : "";
  return cat(check.failed, name.empty() ? "" : " of ", name);
}

void Step::check_inputs(const Tensors& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    SINTER_CHECK(t.defined(), state, cat("capture: input ", i, " of the step is undefined"));
    const bool on_tape = t.requires_grad() && !t.autograd().leaf && Context::current().grad_enabled;
    SINTER_CHECK(!on_tape, state,
        cat("capture: input ", i, " of the step requires grad and is the result of an op: ",
            t.describe(), "; a replay could not pass its gradient on"),
        "give detach(..) of it; .set_requires_grad(true) on that to get its gradient");
  }
}

void Step::find_ties(const Tensors& inputs) {
  ties_.clear();
  const auto add = [&](Tie::With with, size_t i, size_t other, const Tensor& a, const Tensor& b) {
    ties_.push_back({with, i, other, extent_of(a).begin - extent_of(b).begin, a.is_same(b)});
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    const Storage* storage = t.storage().get();
    for (size_t j = 0; j < i; ++j) {
      const bool shared =
          storage == inputs[j].storage().get() && extent_of(t).overlaps(extent_of(inputs[j]));
      if (shared) add(Tie::With::input, i, j, t, inputs[j]);
    }
    for (size_t p = 0; p < guarded_.size(); ++p) {
      const Tensor& parameter = guarded_[p].tensor;
      if (storage == parameter.storage().get()) add(Tie::With::parameter, i, p, t, parameter);
      if (!parameter.has_autograd()) continue;
      const Tensor& gradient = parameter.autograd().grad;
      if (gradient.defined() && storage == gradient.storage().get())
        add(Tie::With::gradient, i, p, t, gradient);
    }
  }
}

bool Step::is_parameter(size_t input) const {
  return std::any_of(ties_.begin(), ties_.end(),
      [&](const Tie& tie) { return tie.with == Tie::With::parameter && tie.input == input; });
}

const Tensor& Step::tensor_of(const Leaf& leaf, const Tensors& inputs) const {
  if (leaf.parameter >= 0) return guarded_[static_cast<size_t>(leaf.parameter)].tensor;
  return leaf.input >= 0 ? inputs[static_cast<size_t>(leaf.input)] : leaf.tensor;
}

bool Step::gradients_fit(const Captured& captured, const Tensors& inputs) const {
  return std::all_of(
      captured.gradients.begin(), captured.gradients.end(), [&](const Captured::Gradient& g) {
        if (g.need == Need::any) return true;
        const Tensor now = gradient_of(tensor_of(g.leaf, inputs));
        if (g.need == Need::absent) return !now.defined();
        const Tensor& wanted = g.leaf.before;
        const bool there =
            !has_memory(wanted) ||
            (now.defined() && now.storage() == wanted.storage() && now.offset() == wanted.offset());
        return has_memory(now) && same_layout(now, wanted) && there;
      });
}

bool Step::matches(const Entry& entry, const Tensors& inputs, const Key& key) const {
  if (!(entry.key == key) || entry.inputs.size() != inputs.size() || entry.ties != ties_)
    return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Entry::Input& in = entry.inputs[i];
    const Tensor& t = inputs[i];
    if (in.dtype != t.dtype() || !(in.shape == t.shape()) || !(in.strides == t.strides()) ||
        in.device != t.device() || in.requires_grad != t.requires_grad())
      return false;
  }
  return !entry.captured || gradients_fit(*entry.captured, inputs);
}

Step::Entry* Step::find(const Tensors& inputs, const Key& key) {
  if (last_ && last_->captured && matches(*last_, inputs, key)) return last_;
  Entry* recorded = nullptr;  // once; rather one that began with gradients like these
  for (const auto& entry : entries_) {
    if (!matches(*entry, inputs, key)) continue;
    if (entry->captured) return entry.get();
    const bool alike = std::all_of(entry->first->leaves.begin(), entry->first->leaves.end(),
        [&](const Leaf& leaf) { return same_before(leaf, gradient_of(tensor_of(leaf, inputs))); });
    if (alike || (!entry->strict && !recorded)) recorded = entry.get();
  }
  return recorded;
}

void Step::forget(const Entry& entry) {
  if (last_ == &entry) last_ = nullptr;
  std::erase_if(entries_, [&](const auto& e) { return e.get() == &entry; });
}

Step::Entry& Step::add_entry(const Tensors& inputs, const Key& key, Recorded first) {
  if (entries_.size() >= options_.cache_size) {
    forget(**std::min_element(entries_.begin(), entries_.end(),
        [](const auto& a, const auto& b) { return a->used < b->used; }));
    ++stats_.evictions;
  }
  auto entry = std::make_unique<Entry>(Entry{
      .key = key, .inputs = {}, .ties = ties_, .first = std::move(first), .captured = nullptr});
  for (const Tensor& t : inputs)
    entry->inputs.push_back({t.shape(), t.strides(), t.dtype(), t.device(), t.requires_grad()});
  entries_.push_back(std::move(entry));
  return *entries_.back();
}

const Tensors& Step::operator()(const Tensors& inputs) {
  const OneCaller one(caller_);
  ++stats_.calls;
  if (somebody_listens()) {
    ++stats_.eager;
    Tensors results = function_(inputs);
    return results_ = std::move(results);
  }
  check_inputs(inputs);
  if (const std::string failed = failed_guard(); !failed.empty()) {
    if (stats_.misses.size() == 16) stats_.misses.erase(stats_.misses.begin());
    stats_.misses.push_back(
        cat("guard ", failed, " changed at call ", stats_.calls, ": captured again"));
    forget_all();
    failed_guard();
  }
  find_ties(inputs);
  const Key key{.mode = options_.mode ? options_.mode() : 0,
      .training_flags = TrainingFlag::all_off(),
      .thread = this_thread(),
      .grad_enabled = Context::current().grad_enabled,
      .tf32 = allow_tf32()};
  Entry* entry = find(inputs, key);
  if (!entry || !entry->captured) {
    entry = &run_recorded(entry, inputs, key);
  } else if (options_.recheck_every > 0 && entry->calls % options_.recheck_every == 0) {
    recheck(*entry, inputs);
  } else {
    replay(*entry->captured, inputs);
  }
  last_ = entry;
  entry->used = ++clock_;
  ++entry->calls;
  return results_;
}

void Step::replay(Captured& c, const Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) check_shares_nothing(c.written, inputs, i);
  // The graph's inputs: those that are no parameter, then gradients that it reads.
  bound_.clear();
  const bool as_given = ties_.empty() && c.executor->num_inputs() == inputs.size();
  if (!as_given) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!is_parameter(i)) bound_.push_back(inputs[i]);
    }
    for (const Captured::Gradient& g : c.gradients) {
      if (g.need == Need::present && !has_memory(g.leaf.before))
        bound_.push_back(gradient_of(tensor_of(g.leaf, inputs)));
    }
  }
  {
    std::optional<RandomOpsOfStep> random_ops;
    if (c.draws.ops > 0 || c.draws.restarted) random_ops.emplace();
    c.executor->run(as_given ? inputs : bound_);
    RandomOpsOfStep::count(c.draws);
  }
  ++stats_.replays;
  for (Captured::Gradient& g : c.gradients) {
    if (g.leaf.after == Leaf::After::kept) continue;
    AutogradMeta& meta = tensor_of(g.leaf, inputs).autograd();
    if (g.grad.defined() && g.grad.has_autograd()) {
      g.grad = Tensor::view_of(
          g.grad.storage(), g.grad.dtype(), g.grad.shape(), g.grad.strides(), g.grad.offset());
    }
    meta.grad = g.grad;
    meta.grad_taken_by = g.taken_by;
  }
  if (c.clears_tape) clear_tape();
  results_ = c.executor->outputs();
}

Recorded Step::record(const Tensors& inputs, const std::vector<Leaf>& known_leaves) {
  Recorded r;
  const auto follow = [&](const Tensor& t, int parameter, int input) {
    const bool known = std::any_of(
        r.leaves.begin(), r.leaves.end(), [&](const Leaf& leaf) { return leaf.tensor.is_same(t); });
    if (!known)
      r.leaves.push_back(
          {.parameter = parameter, .input = input, .tensor = t, .before = gradient_of(t)});
  };
  for (size_t p = 0; p < guarded_.size(); ++p) follow(guarded_[p].tensor, static_cast<int>(p), -1);
  Tensors free;  // a parameter among the inputs is one still
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad() || gradient_of(inputs[i]).defined())
      follow(inputs[i], -1, static_cast<int>(i));
    if (!is_parameter(i)) free.push_back(inputs[i]);
  }
  for (const Leaf& leaf : known_leaves) {
    if (leaf.parameter < 0 && leaf.input < 0) follow(leaf.tensor, -1, -1);
  }
  Tensors results;
  {
    Recording recording(free);
    results = function_(inputs);
    for (size_t i = 0; i < results.size(); ++i) check_result(results[i], i);
    for (const auto& [leaf, before] : recording.reached()) {
      const size_t known = r.leaves.size();
      follow(leaf, -1, -1);
      if (r.leaves.size() > known) r.leaves.back().before = before;
    }
    Tensors with_gradient, before;
    for (Leaf& leaf : r.leaves) {
      const Tensor now = gradient_of(leaf.tensor);
      leaf.after = !now.defined()             ? Leaf::After::cleared
                   : now.is_same(leaf.before) ? Leaf::After::kept
                                              : Leaf::After::set;
      if (leaf.after == Leaf::After::set) with_gradient.push_back(leaf.tensor);
      before.push_back(has_memory(leaf.before) ? leaf.before : Tensor());
    }
    r.draws = recording.draws();
    r.clears_tape = !recording.reached().empty() && Tape::current().size() == 0;
    r.graph = recording.finish(results, with_gradient, &before);
    size_t set = 0;
    for (size_t l = 0; l < r.leaves.size(); ++l) {
      Leaf& leaf = r.leaves[l];
      leaf.read = before[l].defined();
      if (leaf.after != Leaf::After::set) continue;
      leaf.value = r.graph.gradients[set].param;
      leaf.grad = r.graph.gradients[set++].grad;
    }
  }
  ++stats_.recordings;
  const std::vector<const Storage*> written = written_memory(r.graph);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_parameter(i)) check_shares_nothing(written, inputs, i);
  }
  for (Tensor& t : results) {  // as those of a replay
    if (t.requires_grad())
      t = Tensor::view_of(t.storage(), t.dtype(), t.shape(), t.strides(), t.offset());
  }
  results_ = std::move(results);
  return r;
}

Step::Entry& Step::run_recorded(Entry* entry, const Tensors& inputs, const Key& key) {
  Recorded recorded = record(inputs, entry ? entry->first->leaves : std::vector<Leaf>());
  if (!entry) return add_entry(inputs, key, std::move(recorded));
  std::string differs = difference(entry->first->graph, recorded.graph);
  if (differs.empty()) differs = gradient_difference(*entry->first, recorded);
  if (!differs.empty() && !began_alike(*entry->first, recorded)) {
    // One graph for a gradient that is there, another for none: each waits for its second
    // recording.
    entry->strict = true;
    Entry& other = add_entry(inputs, key, std::move(recorded));
    other.strict = true;
    return other;
  }
  if (!differs.empty()) {
    entry->first = std::move(recorded);
    throw Error(Error::Kind::state,
        cat("capture: two runs of the step recorded different graphs: ", differs),
        "a value that changes from call to call must be a tensor or an input, not a number "
        "or a branch in the step");
  }
  entry->captured = capture(*entry->first, std::move(recorded), inputs);
  entry->first.reset();
  return *entry;
}

void Step::recheck(Entry& entry, const Tensors& inputs) {
  const Recorded now = record(inputs, {});
  const std::string differs = difference(entry.captured->recorded, now.graph);
  if (differs.empty()) return;
  forget(entry);
  throw Error(Error::Kind::state,
      cat("capture: at call ", stats_.calls,
          " the step is another than the captured one: ", differs),
      "results since the change are those of the old step; what changes from call to call "
      "must be a tensor or an input");
}

std::unique_ptr<Captured> Step::capture(
    const Recorded& first, Recorded second, const Tensors& inputs) {
  const auto start = std::chrono::steady_clock::now();
  auto result = std::make_unique<Captured>(Captured{.recorded = std::move(second.graph),
      .fused = Rewriter({}, {}, {}),
      .executor = nullptr,
      .gradients = {},
      .draws = second.draws,
      .clears_tape = second.clears_tape,
      .written = {}});
  Captured& c = *result;
  // Leaves that only one recording knows were made by the step itself, and nobody else sees their
  // gradients.
  for (const Leaf& leaf : second.leaves) {
    const Leaf* other = find_leaf(first, leaf);
    if (!other) {
      SINTER_CHECK(!leaf.read, state,
          cat("capture: a leaf made in the step has a gradient from outside: ", name_of_leaf(leaf)),
          "give it as an input");
      std::erase_if(
          c.recorded.gradients, [&](const Graph::Gradient& g) { return g.param == leaf.value; });
      continue;
    }
    const bool any =
        (leaf.before.defined() && !leaf.read) || (other->before.defined() && !other->read);
    const Need need = any ? Need::any : leaf.read ? Need::present : Need::absent;
    Leaf kept = leaf;
    if (!leaf.before.defined() && other->before.defined()) kept.after = other->after;
    const bool pinned =
        leaf.read &&
        std::any_of(c.recorded.buffers.begin(), c.recorded.buffers.end(), [&](const Buffer& b) {
          return b.kind == Buffer::Kind::external && b.storage == leaf.before.storage();
        });
    if (!pinned) kept.before = leaf.read ? without_memory(leaf.before) : Tensor();
    if (leaf.input >= 0) kept.tensor = {};
    c.gradients.push_back({std::move(kept), need, {}, nullptr});
  }
  for (const Captured::Gradient& a : c.gradients) {
    for (const Captured::Gradient& b : c.gradients) {
      SINTER_CHECK(&a == &b || a.leaf.value < 0 || a.leaf.value != b.leaf.value, state,
          cat("capture: ", name_of_leaf(a.leaf), " and ", name_of_leaf(b.leaf),
              " lie in the same memory, and each gets a gradient"),
          "use one tensor for both");
    }
  }

  const Device::Type device = inputs.empty() ? Device::Type::cpu : inputs[0].device().type;
  // The emulator's times mean nothing: there fewer launches always win.
  const bool measure = options_.measure && device != Device::Type::simt,
             known = measure && choices_.size() < options_.choices.size();
  const struct Restore {
    GemmChoice before = gemm_choice();
    ~Restore() { set_gemm_choice(before); }
  } restore;
  if (measure && !known && restore.before == GemmChoice::model)
    set_gemm_choice(GemmChoice::measured);
  Refused chosen = known ? options_.choices[choices_.size()] : Refused{};
  c.fused = measure && !known ? rewrite_measured(c.recorded, options_.rules, device)
                              : rewrite(c.recorded, options_.rules, device, chosen);
  for (const Group& group : c.fused.groups) {
    if (measure && !known && group.kept_unfused) chosen.emplace(group.rule, group.origin.front());
  }
  const Graph& graph = c.fused.graph;
  c.executor = std::make_unique<Executor>(graph, options_.cuda_graph);
  c.written = written_memory(graph);
  std::erase_if(
      c.written, [&](const Storage* storage) {  // whether an input shares it belongs to the key
        return std::any_of(guarded_.begin(), guarded_.end(),
            [&](const Guarded& g) { return g.tensor.storage().get() == storage; });
      });
  for (Captured::Gradient& g : c.gradients) {
    if (g.leaf.after != Leaf::After::set) continue;
    SINTER_CHECK(graph.buffers[graph.values[g.leaf.grad].buffer].kind != Buffer::Kind::input, state,
        cat("capture: the gradient of ", name_of_leaf(g.leaf), " is set to an input"),
        "set it to a copy(..)");
    g.grad = c.executor->tensor(g.leaf.grad);
    for (const auto& [parameter, rule] : graph.taken) {
      if (parameter != g.leaf.value) continue;
      g.grad = without_memory(g.grad);
      g.taken_by = rule;
    }
  }
  if (measure) choices_.push_back(std::move(chosen));
  ++stats_.captures;
  stats_.capture_ms +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace sinter::capture
