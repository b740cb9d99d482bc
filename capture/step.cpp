#include "capture/step.h"

#include <algorithm>
#include <chrono>

#include "autograd/tape.h"
#include "capture/listener.h"
#include "core/communicator.h"
#include "core/context.h"
#include "ops/ops.h"
#include "ops/optim/step_state.h"
#include "ops/product/gemm_library.h"
#include "profiler/scope.h"

namespace sinter::capture {
namespace {

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

// What the function sets holds inside: a replay would not set it for the caller either.
struct KeepsFirstRow {
  const int64_t row = first_row();
  ~KeepsFirstRow() { set_first_row(row); }
};

// An outer recording, anomaly mode: a replay would tell them nothing.
bool somebody_listens() {
  const std::vector<Recorder*>& recorders = Context::current().recorders;
  return std::ranges::any_of(
      recorders, [](Recorder* r) { return r != &Tape::current() && r != Listener::current; });
}

}  // namespace

struct Step::Key {
  int64_t mode;
  int64_t first_row;       // part of dropout's attributes
  uint64_t thread, ranks;  // ranks: Communicator::uid()
  bool grad_enabled, tf32;
  bool operator==(const Key&) const = default;
};

struct Step::Entry {
  struct Input {
    Tensor like;  // without memory
    bool requires_grad;
    uint64_t storage;  // at call 1
    const void* at;
  };
  Key key;
  std::vector<Input> inputs;
  uint64_t used = 0;
  int64_t calls = 0, recheck_at = 0;  // the call that is recorded once more next
  std::optional<Recorded> first;      // of call 1, until it is captured
  bool adopted = false;               // the graph reads the inputs where they were
  std::unique_ptr<Captured> captured;
  const Recorded& recorded() const { return captured ? *captured : *first; }
};

Step::Step(Function function, StepOptions options)
    : function_(std::move(function)), options_(std::move(options)) {
  SINTER_CHECK(function_, usage, "capture: a Step of no function: it is null",
      "give it what takes the inputs and returns the results");
  SINTER_CHECK(options_.cache_size >= 1, usage, "capture: the cache needs room for one key");
  SINTER_CHECK(options_.recheck_every.value_or(0) >= 0, usage,
      str("capture: recheck_every out of range: ", *options_.recheck_every, "; at least 0"));
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
  const bool fresh = guarded_.empty();
  size_t seen = 0;
  std::string failed;
  const auto see = [&](const Tensor& t) {
    const size_t n = seen++;
    const bool has_copy = t.has_autograd() && t.autograd().bf16_copy.defined();
    const uint64_t storage = t.storage()->uid(),
                   bf16_copy = has_copy ? t.autograd().bf16_copy.storage()->uid() : 0;
    if (fresh) guarded_.push_back({t, storage, bf16_copy, t.requires_grad()});
    Guarded* const known = n < guarded_.size() ? &guarded_[n] : nullptr;
    const bool another = known && !known->tensor.is_same(t);
    const char* const what =
        !known                                      ? "parameter list: one more"
        : known->storage != storage                 ? "storage address"
        : known->requires_grad != t.requires_grad() ? "requires_grad"
        : known->bf16_copy != bf16_copy             ? "bf16 copy"
        : another && (known->tensor.offset() != t.offset() || !same_layout(known->tensor, t))
            ? "layout"
            : nullptr;
    // Another tensor on the same memory: its gradient is what counts from now on.
    if (!what && another) known->tensor = t;
    if (!what || !failed.empty()) return;
    const std::string name = t.has_autograd() ? t.autograd().name : "";
    failed = str(what, name.empty() ? "" : " of ", name);
  };
  options_.parameters(std::ref(see));  // one pointer: std::function keeps it without allocating
  return failed.empty() && seen < guarded_.size() ? "parameter list: fewer" : failed;
}

void Step::note_miss(std::string text) {
  if (stats_.misses.size() == 16) stats_.misses.erase(stats_.misses.begin());
  stats_.misses.push_back(std::move(text));
}

void Step::note_guard_miss(const std::string& guard) {
  if (!told_of_keys_)  // which is to stay among the last
    note_miss(str("guard ", guard, " changed at call ", stats_.calls, ": captured again"));
  note_change(str("guard ", guard, " changed"));
}

// A step that forgets eight recordings and has not three calls of each is slower than without
// capture. One that has a key for each shape of a few, or is replayed between, is not.
void Step::note_change(const std::string& what) {
  if (changes_.size() == 3) changes_.erase(changes_.begin());
  changes_.push_back(str("at call ", stats_.calls, " ", what));
  const int64_t begun = stats_.recordings, forgotten = begun - std::ssize(entries_);
  if (told_of_keys_ || forgotten < 8 || stats_.calls >= 3 * begun) return;
  told_of_keys_ = true;
  note_miss(str("recorded ", begun, " times in ", stats_.calls, " calls, and replayed in ",
      stats_.replays, ": ", join(changes_, "; "),
      "; pad the inputs to fewer shapes, raise StepOptions::cache_size, let parameters stay in "
      "their memory, or run the step op by op"));
}

void Step::check_inputs(const Tensors& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    SINTER_CHECK(t.defined(), state, str("capture: input ", i, " of the step is undefined"));
    if (!t.requires_grad() || !Context::current().grad_enabled) continue;
    SINTER_CHECK(t.autograd().leaf, state,
        str("capture: input ", i, " of the step requires grad and is the result of an op: ",
            t.describe(), "; a replay could not pass its gradient on"),
        "give detach(..) of it; .set_requires_grad(true) on that to get its gradient");
    SINTER_CHECK(!shares_memory(inputs, i), state,
        str("capture: input ", i,
            " of the step requires grad and shares memory with another input ",
            "or a parameter: ", t.describe(), "; a replay could not tell their gradients apart"),
        "give a copy(..) of it");
  }
}

bool Step::shares_memory(const Tensors& inputs, size_t i) const {
  const auto lies_in = [&](const Tensor& t) {
    return t.defined() && t.storage() == inputs[i].storage();
  };
  return std::any_of(inputs.begin(), inputs.begin() + std::ptrdiff_t(i), lies_in) ||
         std::ranges::any_of(guarded_,
             [&](const Guarded& g) { return lies_in(g.tensor) || lies_in(gradient_of(g.tensor)); });
}

const Tensor& Step::tensor_of(const Leaf& leaf, const Tensors& inputs) const {
  if (leaf.parameter >= 0) return guarded_[leaf.parameter].tensor;
  return leaf.input >= 0 ? inputs[leaf.input] : leaf.tensor;
}

bool Step::gradients_fit(const Captured& captured, const Tensors& inputs) const {
  return std::ranges::all_of(captured.leaves, [&](const Leaf& g) {
    if (g.any) return true;
    const Tensor now = gradient_of(tensor_of(g, inputs));
    if (!g.read) return now.defined() == g.before.defined();
    return has_memory(now) && same_layout(now, g.before) && now.offset() == g.before.offset() &&
           (!has_memory(g.before) || now.storage() == g.before.storage());
  });
}

bool Step::matches(const Entry& entry, const Tensors& inputs, const Key& key, bool anywhere) const {
  if (!(entry.key == key) || entry.inputs.size() != inputs.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Entry::Input& in = entry.inputs[i];
    const Tensor& t = inputs[i];
    if (!same_layout(in.like, t) || in.like.device() != t.device() ||
        in.requires_grad != t.requires_grad() || (entry.adopted && !anywhere && in.at != t.raw()))
      return false;
  }
  if (!entry.recorded().flags_fit()) return false;
  return !entry.captured || gradients_fit(*entry.captured, inputs);
}

Step::Entry* Step::find(const Tensors& inputs, const Key& key) {
  Entry* recorded = nullptr;  // of call 1, whatever gradients that began with
  for (const auto& entry : entries_) {
    if (!matches(*entry, inputs, key)) continue;
    if (entry->captured) return entry.get();
    recorded = entry.get();
  }
  return recorded;
}

void Step::forget(const Entry& entry) {
  std::erase_if(entries_, [&](const auto& e) { return e.get() == &entry; });
}

std::string Step::key_difference(const Entry& entry, const Tensors& inputs, const Key& key) const {
  if (entry.inputs.size() != inputs.size())
    return str("there are ", inputs.size(), " inputs, before ", entry.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Entry::Input& in = entry.inputs[i];
    const std::string now = inputs[i].describe(), before = in.like.describe();
    if (now != before) return str("input ", i, " is ", now, ", before ", before);
    if (!same_layout(in.like, inputs[i]))
      return str("input ", i, " has strides ", inputs[i].strides().str(), ", before ",
          in.like.strides().str());
    if (in.requires_grad != inputs[i].requires_grad())
      return str("input ", i, in.requires_grad ? " no longer requires grad" : " requires grad");
  }
  if (entry.key.mode != key.mode) return str("mode is ", key.mode, ", before ", entry.key.mode);
  if (!entry.recorded().flags_fit()) return "another module trains";
  if (entry.key.thread != key.thread) return "it is another thread";
  if (entry.key.first_row != key.first_row) return "set_first_row() is another";
  if (entry.key.ranks != key.ranks) return "the ranks are those of another Communicator";
  if (!(entry.key == key)) return "grad mode or TF32 is another";
  return "another gradient is there at entry";
}

// The entry that was not used for longest goes. By the time that as many went as there is room for,
// and calls were replayed less often, the step is slower than without capture.
void Step::evict(const Tensors& inputs, const Key& key) {
  const auto used = [](const auto& entry) { return entry->used; };
  ++stats_.evictions;
  const auto evictions = uint64_t(stats_.evictions);
  if (!told_of_keys_ && evictions >= options_.cache_size && stats_.replays < stats_.evictions) {
    told_of_keys_ = true;
    const Entry& last = **std::ranges::max_element(entries_, {}, used);
    note_miss(str("the keys of the step keep changing: of ", stats_.calls, " calls ",
        stats_.replays, " were replayed; ", evictions + entries_.size(),
        " times a key was captured or begun, ", evictions, " were evicted, with room for ",
        options_.cache_size, "; at call ", stats_.calls, " ", key_difference(last, inputs, key),
        "; use fewer shapes and modes (pad the inputs), or raise StepOptions::cache_size"));
  }
  forget(**std::ranges::min_element(entries_, {}, used));
}

Step::Entry& Step::add_entry(const Tensors& inputs, const Key& key, Recorded first) {
  if (entries_.size() >= options_.cache_size) evict(inputs, key);
  auto entry = std::make_unique<Entry>(Entry{.key = key, .first = std::move(first)});
  for (const Tensor& t : inputs)
    entry->inputs.push_back({without_memory(t), t.requires_grad(), t.storage()->uid(), t.raw()});
  entries_.push_back(std::move(entry));
  return *entries_.back();
}

const Tensors& Step::operator()(const Tensors& inputs) {
  const OneCaller one(caller_);
  const KeepsFirstRow keeps_first_row;
  ++stats_.calls;
  if (somebody_listens()) {
    ++stats_.eager;
    Tensors results = function_(inputs);
    return results_ = std::move(results);
  }
  if (const std::string failed = failed_guard(); !failed.empty()) {
    forget_all();
    note_guard_miss(failed);
    failed_guard();
  }
  check_inputs(inputs);
  const Key key{.mode = options_.mode ? options_.mode() : 0,
      .first_row = first_row(),
      .thread = this_thread(),
      .ranks = Communicator::current() ? Communicator::current()->uid() : 0,
      .grad_enabled = Context::current().grad_enabled,
      .tf32 = allow_tf32()};
  Entry* entry = find(inputs, key);
  const auto moved = [&](const auto& e) { return e->adopted && matches(*e, inputs, key, true); };
  if (!entry && std::erase_if(entries_, moved) > 0) {
    note_guard_miss("address of an input");
    adopts_ = false;
  }
  if (entry) {
    if (!entry->captured) entry = &capture(*entry, inputs, key);
    if (entry->calls + 1 == entry->recheck_at) recheck(*entry, inputs);
    replay(*entry->captured, inputs);
  } else {
    if (!entries_.empty()) {
      const auto used = [](const auto& e) { return e->used; };
      note_change(key_difference(**std::ranges::max_element(entries_, {}, used), inputs, key));
    }
    entry = &add_entry(inputs, key, record(inputs, How::run));
  }
  entry->used = ++clock_;
  ++entry->calls;
  return results_;
}

void Step::replay(Captured& c, const Tensors& inputs) {
  for (const auto& [weight, copy] : c.bf16_copies) renew_bf16_copy(weight, copy);
  bound_.clear();
  // The graph's inputs: those of the step, then gradients that it reads.
  const bool reads_gradients = c.executor->num_inputs() > inputs.size();
  if (reads_gradients) {
    bound_ = inputs;
    for (const Leaf& g : c.leaves) {
      if (g.read && !has_memory(g.before)) bound_.push_back(gradient_of(tensor_of(g, inputs)));
    }
  }
  const Tensors& bound = reads_gradients ? bound_ : inputs;
  c.written.check_apart(bound, inputs.size(), c.leaves);
  {
    std::optional<RandomOpsOfStep> random_ops;
    if (!c.draws.empty()) random_ops.emplace();
    c.executor->replay(bound, inputs.size());
    RandomOpsOfStep::count(c.draws);
  }
  ++stats_.replays;
  for (Leaf& g : c.leaves) {
    if (g.after == Leaf::After::kept) continue;
    AutogradMeta& meta = tensor_of(g, inputs).autograd();
    if (g.given.has_autograd()) g.given = off_tape(g.given);
    meta.grad = g.given;
    meta.grad_taken_by = g.taken_by;
  }
  if (c.clears_tape) clear_tape();
  results_ = c.executor->outputs();
  for (const size_t i : c.constants) results_[i] = copy(off_tape(results_[i]));
}

// Call 2 of a key. Where it begins with other gradients than call 1 did, these may be why it does
// something else: then it is traced as it would have been with those of call 1. If that is what
// call 1 did, there are two graphs of one key, and no mistake of the caller's: this one gets an
// entry of its own, and that of call 1 waits for a call that begins as it did.
Step::Entry& Step::capture(Entry& first, const Tensors& inputs, const Key& key) {
  Recorded now = record(inputs, How::trace, first.first->leaves);
  std::string differs = difference(*first.first, now);
  const bool same = differs.empty();
  if (!same && !began_alike(*first.first, now))
    differs = difference(*first.first, record(inputs, How::trace_as_it_was, first.first->leaves));
  if (!differs.empty()) {
    first.first = std::move(now);
    throw Error(Error::Kind::state,
        str("capture: two runs of the step recorded different graphs: ", differs),
        "a value that changes from call to call must be a tensor or an input, not a number "
        "or a branch in the step");
  }
  const auto start = std::chrono::steady_clock::now();
  const Tensors adopted = adopted_inputs(first, inputs);
  auto captured =
      make_captured(same ? &*first.first : nullptr, std::move(now), options_, choices_, adopted);
  Entry& entry = same ? first : add_entry(inputs, key, {});
  entry.captured = std::move(captured);
  entry.first.reset();
  entry.adopted = !adopted.empty();
  const int64_t every = options_.recheck_every.value_or(10);
  entry.recheck_at = every > 0 ? (entry.calls + 1) / every * every + every : 0;
  ++stats_.captures;
  stats_.capture_ms +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return entry;
}

void Step::recheck(Entry& entry, const Tensors& inputs) {
  const profiler::Scope scope("recheck");
  const Recorded now = record(inputs, How::trace, entry.captured->leaves);
  ++stats_.rechecks;
  entry.recheck_at =
      options_.recheck_every ? entry.recheck_at + *options_.recheck_every : 10 * entry.recheck_at;
  const auto differs = difference(*entry.captured, now, {"as it was captured", "at this call"});
  if (differs.empty()) return;
  forget(entry);
  throw Error(Error::Kind::state,
      str("capture: at call ", stats_.calls,
          " the step is another than the captured one, which earlier calls replayed: ", differs),
      "make what changes from call to call a tensor, an input or part of `mode`; or a new Step "
      "where it changes: the next call captures the step as it is now");
}

// Those that are the caller's own from call to call: what a copy would cost, and never change.
Tensors Step::adopted_inputs(const Entry& entry, const Tensors& inputs) const {
  Tensors adopted;
  for (size_t i = 0; adopts_ && i < inputs.size(); ++i) {
    const Entry::Input& first = entry.inputs[i];
    const bool same = first.storage == inputs[i].storage()->uid() && first.at == inputs[i].raw();
    if (!same || inputs[i].device().type != Device::Type::cuda) return {};
    adopted.push_back(inputs[i]);
  }
  return adopted;
}

}  // namespace sinter::capture
