#include "autograd/tape.h"

#include <algorithm>
#include <atomic>

#include "core/context.h"
#include "ops/ops.h"
#include "profiler/backward.h"
#include "profiler/phase.h"

namespace sinter {
namespace {

Tensor saved_copy(const Tensor& t, bool whole) {
  return !t.defined() || whole ? t : Tensor::shape_only(t.shape(), t.dtype(), t.device());
}

uint64_t version_of(const Tensor& t) { return t.defined() ? t.storage()->version() : 0; }

// A tensor of `shape` whose elements are all one constant.
Tensor filled_with(double value, const Shape& shape, DType dtype, Device device) {
  Strides strides = shape;
  for (int i = 0; i < shape.rank(); ++i) strides[i] = 0;
  const Tensor scalar = constant(value, dtype, device);
  Tensor whole = Tensor::view_of(scalar.storage(), dtype, shape, strides, 0);
  whole.autograd().constant = scalar.autograd().constant;
  return whole;
}

[[maybe_unused]] const bool registered = [] {
  Context::on_create([](Context& context) {
    context.recorders.insert(context.recorders.begin(), &Tape::current());
  });
  return true;
}();

}  // namespace

Tape& Tape::current() {
  static thread_local Tape tape;
  return tape;
}

uint64_t Tape::next_generation() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

int64_t Tape::slot_of(const Tensor& t) const {
  if (!t.requires_grad()) return -1;
  const AutogradMeta& meta = t.autograd();
  if (!meta.leaf) return meta.tape_generation == generation_ ? meta.tape_slot : -1;
  const auto known = leaves_.find(t.id());
  return known == leaves_.end() ? -1 : known->second;
}

int64_t Tape::new_slot() {
  if (free_slots_.empty()) {
    slots_.emplace_back();
    return int64_t(slots_.size()) - 1;
  }
  const int64_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

int64_t Tape::slot_for_input(const Tensor& t, const char* op) {
  if (const int64_t slot = slot_of(t); slot >= 0) return slot;
  if (t.autograd().leaf) check_known(t, op);
  const int64_t slot = new_slot();
  if (t.autograd().leaf) {
    slots_[slot].keep = t;
    leaves_.emplace(t.id(), slot);
  } else {
    slots_[slot].used = op;
  }
  return slot;
}

// Note [A parameter that nobody registered], nn/module.h
void Tape::check_known(const Tensor& leaf, const char* op) {
  const Context& context = Context::current();
  const auto& inputs = context.module_inputs;
  if (!*context.module || leaf.autograd().known) return;
  SINTER_CHECK(std::ranges::find(inputs, leaf.id()) != inputs.end(), usage,
      str(op, ": a parameter that was never registered: ", leaf.describe(),
          " requires grad and is used in the forward of ", context.module,
          "; it is no parameter of a module or an optimizer, and no input of the module"),
      "add_parameter(\"NAME\", tensor) in the module's constructor; detach(tensor) if it is no "
      "parameter");
}

// An op that has a backward may change operands beside those that it differentiates: statistics.
void Tape::check_in_place(const OpDef& op, Operands in) const {
  if (!Context::current().grad_enabled) return;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool has_gradient = op.backward && !op.writes_input(i, in.size());
    SINTER_CHECK(has_gradient || !in[i].requires_grad(), state,
        str(op.text(), ": an operand that requires grad in an op that works in place: ",
            in[i].describe(), "; its gradient would be wrong"),
        "do it inside NoGrad");
  }
}

// Where the result is a number, a gradient would end at the op without a word. detach() is there
// for that.
static void check_differentiable(const Call& call) {
  const auto wants = std::ranges::find_if(call.in, &Tensor::requires_grad);
  const auto is_number = [](const Tensor& t) { return is_float(t.dtype()); };
  const bool ends = wants != call.in.end() && std::ranges::any_of(call.out, is_number);
  SINTER_CHECK(!ends || &call.op == &kDetachOp, usage,
      str(call.op.text(), ": an op without a backward takes a tensor that requires grad: ",
          wants->describe(), "; nothing that was before it would be trained"),
      "give its OpDef a .backward; where no gradient is wanted, give it detach(..), or call it "
      "inside NoGrad");
}

void Tape::record(const Call& call) {
  if (!Context::current().grad_enabled) return;
  if (!call.op.backward) return check_differentiable(call);
  const char* name = call.op.name.c_str();
  SINTER_ASSERT(call.in.size() <= 32, name, ": ", call.in.size(), " inputs");
  uint32_t needs = 0;
  for (size_t i = 0; i < call.in.size(); ++i) needs |= uint32_t(call.in[i].requires_grad()) << i;
  if (needs == 0) return;
  check_idle(name);
  const bool looks =
      nodes_.size() >= look_at_ || (nodes_.size() > 2 * kept_ && last_result_dropped());
  if (looks && !on_gradient) drop_unreachable();  // a recorded step knows ops by their numbers
  Node node{.op = &call.op,
      .attrs = call.attrs,
      .inputs = call.in.size(),
      .needs = needs,
      .uid = profiler::last_op_uid(),
      .module = Context::current().module};
  node.values.reserve(call.in.size() + call.out.size());
  node.marks.reserve(call.in.size() + call.out.size());
  const auto add = [&node](const Tensor& t, bool saved, int64_t slot) {
    node.values.push_back(saved_copy(t, saved));
    node.marks.push_back({slot, version_of(node.values.back())});
  };
  for (size_t i = 0; i < call.in.size(); ++i) {
    add(call.in[i], call.op.saves_in >> i & 1,
        needs >> i & 1 ? slot_for_input(call.in[i], name) : -1);
  }
  for (size_t i = 0; i < call.out.size(); ++i) {
    int64_t slot = -1;
    if (is_float(call.out[i].dtype())) {
      AutogradMeta& meta = call.out[i].autograd();
      meta.requires_grad = true;
      meta.leaf = false;
      meta.tape_generation = generation_;
      slot = meta.tape_slot = new_slot();
      slots_[slot].value = call.out[i].watch();
      const int64_t viewed = node.marks[0].slot;
      slots_[slot].computed = !call.op.view || (viewed >= 0 && slots_[viewed].computed);
    }
    add(call.out[i], call.op.saves_out >> i & 1, slot);
  }
  nodes_.push_back(std::move(node));
  ++taken_;
}

// A thread that has used up no tape met a value of another thread's.
const char* Tape::used_hint() const {
  return cleared_ ? "call backward(loss, {.retain_tape = true}) to use it again"
                  : "it is another thread's tape: call backward on that thread";
}

void Tape::check_idle(const char* what) const {
  SINTER_CHECK(!busy_, state,
      str(what, ": called by a hook, inside backward(); a gradient has no gradient"),
      "do it when backward() has returned, or inside NoGrad");
}

bool Tape::last_result_dropped() const {
  const Node& node = nodes_.back();
  const int64_t slot = node.out_marks()[0].slot;
  return slot >= 0 && slots_[slot].value.use_count() <= long(node.op->saves_out & 1);
}

// Note [What nobody can differentiate any more]
void Tape::drop_unreachable() {
  std::vector<long> own(slots_.size(), 0);  // handles of the tape's to what is in a slot
  for (const Node& node : nodes_) {
    for (size_t i = 0; i < node.values.size(); ++i) {
      const bool saved = i < node.inputs ? node.op->saves_in >> i & 1
                                         : node.op->saves_out >> (i - node.inputs) & 1;
      if (saved && node.marks[i].slot >= 0) ++own[node.marks[i].slot];
    }
  }
  std::vector<char> wanted(slots_.size());
  for (size_t s = 0; s < slots_.size(); ++s)
    wanted[s] = slots_[s].value.use_count() > own[s] + slots_[s].keep.defined();
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = nodes_[i];
    const auto is_wanted = [&](const Mark& mark) { return mark.slot >= 0 && wanted[mark.slot]; };
    if (std::ranges::none_of(node.out_marks(), is_wanted)) {
      node.op = nullptr;
      continue;
    }
    for (const Mark& mark : node.marks) {
      if (mark.slot >= 0) wanted[mark.slot] = 1;
    }
  }
  std::erase_if(nodes_, [](const Node& node) { return !node.op; });
  std::erase_if(leaves_, [&](const auto& leaf) { return !wanted[leaf.second]; });
  free_slots_.clear();
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (wanted[s]) continue;
    slots_[s] = {};
    free_slots_.push_back(int64_t(s));
  }
  kept_ = nodes_.size();
  look_at_ = std::max(look_at_, 2 * kept_);
}

void Tape::clear() {
  cleared_ = true;
  nodes_.clear();
  kept_ = 0;
  outside_ = 0;
  slots_.clear();
  free_slots_.clear();
  leaves_.clear();
  generation_ = next_generation();
}

void Tape::check_usable(const Node& node) const {
  for (const auto [slot, version] : node.in_marks()) {
    SINTER_CHECK(slot < 0 || !slots_[slot].used, state,
        str("backward: this tensor's tape was already used: an input of ", node.op->text(),
            " comes from it"),
        used_hint());
  }
  for (size_t i = 0; i < node.values.size(); ++i) {
    const Tensor& t = node.values[i];
    if (version_of(t) == node.marks[i].version) continue;
    const bool input = i < node.inputs;
    const size_t n = input ? i : i - node.inputs;
    const char* writer = t.storage()->last_writer();
    throw Error(Error::Kind::state,
        str("backward: ", node.op->text(), " needs its ", input ? "input " : "output ", n, ", ",
            t.describe(), ", but ", writer ? writer : "something", " changed it in place since"),
        "call backward before the change, or change a copy");
  }
}

Tensors Tape::run_backward(const Node& node, const Tensors& grads) {
  const profiler::BackwardOf profiled(node.uid);
  const ModulePath module(node.module);
  const Operands values = node.values;
  return node.op->backward(
      {values.first(node.inputs), values.subspan(node.inputs), node.attrs, node.needs}, grads);
}

void Tape::deliver(Slot& slot, Tensor gradient) const {
  AutogradMeta& meta = slot.keep.autograd();
  if (on_gradient && meta.leaf) on_gradient(slot.keep);
  slot.keep.grad();  // throws if there is one that a fused rule took: nothing is left to add to
  meta.grad_taken_by = nullptr;
  if (meta.grad.defined()) {
    accumulate(meta.grad, gradient);
  } else {
    // A gradient that shares its memory (the sum's dy goes to both operands) must be its owner's
    // alone before anyone adds to it.
    const bool own = gradient.is_sole_owner() && gradient.is_contiguous();
    meta.grad = own ? std::move(gradient) : copy(gradient);
  }
  if (on_complete && meta.leaf) on_complete(slot.keep);
}

// Parts of one gradient. Of a bf16 parameter a product gives f32, another op its own type.
static Tensor sum_of_parts(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return add(a, b);
  const auto widened = [](const Tensor& t) {
    return t.dtype() == wide(t.dtype()) ? t : cast(t, wide(t.dtype()));
  };
  return add(widened(a), widened(b));
}

static void check_fits(const char* what, const Tensor& given, const char* name, const Tensor& t) {
  SINTER_CHECK(given.shape() == t.shape() && given.dtype() == t.dtype(), shape,
      str("backward: the ", what, " does not fit the ", name, ": ",
          describe({{what, &given}, {name, &t}})));
}

void Tape::finish(Slot& slot, Tensor& gradient) const {
  const auto run = [&](const auto& hooks) {
    for (const auto& hook : hooks) {
      const Tensor replaced = hook(gradient);
      if (!replaced.defined()) continue;
      check_fits("result of a hook", replaced, "gradient", gradient);
      gradient = replaced;
    }
  };
  run(slot.hooks);
  if (!slot.keep.defined()) return;
  run(slot.keep.autograd().hooks);
  const bool leaf = slot.keep.autograd().leaf;
  deliver(slot, leaf ? std::move(gradient) : gradient);
}

// Of a root that is all there is, over the rows of it that count.
static Tensor gradient_of_mean(const Tensor& root, int64_t rows_of_all) {
  const int64_t rows = rows_of_all > 0 ? rows_of_all : root.numel();
  const Tensor& counted = root.autograd().counted;
  if (rows_of_all > 0 || !counted.defined())
    return filled_with(
        rows > 0 ? 1.0 / double(rows) : 0, root.shape(), root.dtype(), root.device());
  const Tensor n = counted.dtype() == root.dtype() ? counted : cast(counted, root.dtype());
  return broadcast_to(1 / maximum(n, constant_like(n, 1)), root.shape());
}

void Tape::backward(const Tensor& root, const BackwardOptions& options) {
  check_idle("backward");
  SINTER_CHECK(root.defined() && root.requires_grad(), state,
      str("backward: nothing to differentiate: the root, ", root.describe(),
          ", does not depend on a tensor that requires grad"),
      "set_requires_grad(true) on the parameters, outside NoGrad; ops on the way need a backward");
  const int64_t root_slot = slot_of(root);
  SINTER_CHECK(root_slot >= 0 || root.autograd().leaf, state,
      "backward: this tensor's tape was already used", used_hint());
  const struct Busy {
    bool& on;
    ~Busy() { on = false; }
  } busy{busy_ = true};
  const NoGrad no_grad;
  const profiler::PhaseScope phase(Phase::backward);
  Tensor grad_output = options.gradient;
  if (grad_output.defined()) {
    check_fits("gradient", grad_output, "root", root);
  } else {
    grad_output = gradient_of_mean(root, options.rows);
  }
  if (root_slot < 0) {  // a leaf that no op has used
    Slot slot;
    slot.keep = root;
    return finish(slot, grad_output);
  }

  // First find which slots are reached and check all they need, so that nothing is half done when a
  // check fails.
  std::vector<char> reached(slots_.size(), 0);
  std::vector<size_t> last_to_add(slots_.size(), nodes_.size());  // the first op that used a slot
  reached[root_slot] = 1;
  for (size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    const auto wanted = [&](const Mark& mark) { return mark.slot >= 0 && reached[mark.slot]; };
    if (std::ranges::none_of(node.out_marks(), wanted)) continue;
    SINTER_CHECK(i >= outside_, state,
        str("backward: inside a captured step, through ", node.op->text(),
            ", which ran before the step began; a replay would not see it run again"),
        "run the whole forward pass inside the step, or backward() outside of it");
    check_usable(node);
    for (const auto [slot, version] : node.in_marks()) {
      if (slot < 0) continue;
      reached[slot] = 1;
      last_to_add[slot] = i;
    }
  }

  // From here on the tape is used up, even if an op or a hook throws.
  const struct UsedUp {
    Tape& tape;
    const bool keep;
    ~UsedUp() {
      tape.running_ = -1;
      if (!keep) tape.clear();
    }
  } used_up{*this, options.retain_tape};

  Tensors grads(slots_.size());
  grads[root_slot] = grad_output;
  grad_output = {};
  const auto complete = [&](int64_t slot) { finish(slots_[slot], grads[slot]); };
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = nodes_[i];
    const auto has_gradient = [&](const Mark& m) { return m.slot >= 0 && grads[m.slot].defined(); };
    const std::span<const Mark> outs = node.out_marks();
    if (std::ranges::none_of(outs, has_gradient)) continue;
    Tensors out_grads(outs.size());
    for (size_t o = 0; o < outs.size(); ++o) {
      const Tensor& out = node.values[node.inputs + o];
      if (has_gradient(outs[o])) {
        complete(outs[o].slot);
        out_grads[o] = std::exchange(grads[outs[o].slot], {});
      } else if (outs[o].slot >= 0) {
        out_grads[o] = filled_with(0, out.shape(), out.dtype(), out.device());
      }
    }
    running_ = int64_t(i);
    Tensors in_grads = run_backward(node, out_grads);
    running_ = -1;
    out_grads.clear();
    SINTER_ASSERT(in_grads.size() == node.inputs, node.op->text(), " gave ", in_grads.size(),
        " gradients for ", node.inputs, " inputs");
    for (size_t n = 0; n < node.inputs; ++n) {
      const int64_t slot = node.marks[n].slot;
      if (slot < 0 || !in_grads[n].defined()) continue;
      SINTER_ASSERT(in_grads[n].shape() == node.values[n].shape(), node.op->text(), " gave input ",
          n, " a gradient of ", in_grads[n].describe());
      if (const DType type = node.values[n].dtype();
          slots_[slot].computed && in_grads[n].dtype() != type)
        in_grads[n] = cast(in_grads[n], type);
      grads[slot] =
          grads[slot].defined() ? sum_of_parts(grads[slot], in_grads[n]) : std::move(in_grads[n]);
    }
    if (!options.retain_tape) node.values.clear();  // memory for the gradients to come
    // Else at the end: by then nobody shares a leaf's gradient, so it needs no copy.
    if (!on_complete) continue;
    in_grads.clear();
    for (const auto [slot, version] : node.in_marks()) {
      const bool leaf = slot >= 0 && slots_[slot].keep.defined() &&
                        slots_[slot].keep.autograd().leaf && grads[slot].defined();
      if (leaf && last_to_add[slot] == i) complete(slot);
    }
  }
  // In the order in which the ops that were gone through first used them. Their slots may be of
  // another order, as they tell of all that is on the tape.
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (const auto [slot, version] : nodes_[i].in_marks()) {
      if (slot >= 0 && last_to_add[slot] == i && grads[slot].defined()) complete(slot);
    }
  }
  if (grads[root_slot].defined()) complete(root_slot);  // the root is a leaf
}

void backward(const Tensor& root, const BackwardOptions& options) {
  Tape::current().backward(root, options);
}
void Tensor::backward() const { sinter::backward(*this); }
void clear_tape() {
  Tape::current().check_idle("clear_tape");
  Tape::current().clear();
}

GradMode::GradMode(bool on) : before_(Context::current().grad_enabled) {
  Context::current().grad_enabled = on;
}
GradMode::~GradMode() { Context::current().grad_enabled = before_; }

void register_hook(const Tensor& t, std::function<Tensor(const Tensor&)> hook) {
  SINTER_CHECK(hook, usage, "register_hook: a hook of no function: it is null",
      "a hook takes the gradient and returns its replacement, or an undefined tensor");
  SINTER_CHECK(t.requires_grad(), state,
      str("register_hook: the tensor does not require grad: ", t.describe()));
  Tape::current().check_idle("register_hook");
  if (t.autograd().leaf) return t.autograd().hooks.push_back(std::move(hook));
  const int64_t slot = Tape::current().slot_of(t);
  SINTER_CHECK(slot >= 0, state, "register_hook: this tensor's tape was already used",
      Tape::current().used_hint());
  Tape::current().add_hook(slot, std::move(hook));
}

void retain_grad(const Tensor& t) {
  SINTER_CHECK(t.requires_grad(), state,
      str("retain_grad: the tensor does not require grad: ", t.describe()));
  const int64_t slot = Tape::current().slot_of(t);
  if (slot >= 0) Tape::current().retain(slot, t);
}

}  // namespace sinter
