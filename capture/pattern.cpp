#include "capture/pattern.h"

#include <deque>
#include <map>

#include "core/numbers.h"
#include "ops/fused/activation.h"
#include "ops/fused/reference.h"

namespace sinter::capture {
namespace {

constexpr int kUnbound = -2;

// Do two ops differ in a switch, so that they do different things (a product of transposed
// operands), and not only in a number or a type?
bool differ_in_kind(const Attrs& a, const Attrs& b) {
  const std::vector<AttrField> x = a.fields(), y = b.fields();
  for (size_t i = 0; i < x.size(); ++i) {
    const bool* on = x[i].as<bool>();
    if (on && *on != *y[i].as<bool>()) return true;
  }
  return false;
}

// The first field of `wanted` that `found` has not, as "out=f32".
std::string different_field(const Attrs& wanted, const Attrs& found) {
  const std::vector<AttrField> x = wanted.fields(), y = found.fields();
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i].text() != y[i].text()) return str(x[i].name, "=", x[i].text());
  }
  return "";
}

bool same_operands(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    if (!x.defined() || !y.defined()) return x.defined() == y.defined();
    return x.dtype() == y.dtype() && x.shape() == y.shape() && x.strides() == y.strides();
  });
}

bool is_commutative(const OpDef* op) { return op->text() == "mul" || op->text() == "add"; }

int operand_at(const std::vector<int>& in, size_t i) { return i < in.size() ? in[i] : -1; }

// One pattern, and the nodes of a step that its ops are put on.
class Matcher {
 public:
  struct NearMiss {
    Obstacle obstacle;
    std::vector<int> members;
  };

  Matcher(Rewriter& r, const Label& label, const Pattern& pattern)
      : r_(r), label_(label), pattern_(pattern) {}

  bool may_begin_at(int n) const { return r_.node(n).op == pattern_.ops[0].op; }
  // Fuses a group whose first op is node `n`. False if there is none.
  bool fuse_from(int n) {
    nodes_.clear();
    values_.assign(size_t(pattern_.values), kUnbound);
    near_miss_ = {};
    refused_ = false;
    return try_node(n);
  }
  // What was nearly a group; without an obstacle: nothing was near, or fuse() has told.
  const NearMiss& near_miss() const { return near_miss_; }
  bool refused() const { return refused_; }

 private:
  // The reference on operands like `in`, or why it refuses them.
  struct Traced {
    Tensors in;
    Attrs attrs;
    std::optional<Trace> trace;
    Obstacle refusal;
  };

  // Puts the next op on a node that shares a value with those before it.
  bool extend() {
    if (nodes_.size() == pattern_.ops.size()) return complete();
    for (const int in : pattern_.ops[nodes_.size()].in) {
      if (in < 0 || values_[in] < 0) continue;
      const std::vector<int> readers = r_.readers(values_[in]);
      return std::ranges::any_of(readers, [&](int n) { return try_node(n); });
    }
    SINTER_ASSERT(false, label_.text(), ": op ", nodes_.size(), " of its pattern stands alone");
    return false;
  }

  bool try_node(int n) {
    const Pattern::Op& op = pattern_.ops[nodes_.size()];
    const Node& node = r_.node(n);
    const bool taken = std::ranges::find(nodes_, n) != nodes_.end();
    if (node.op != op.op || node.out.size() != op.out.size() || taken) return false;
    if (op.op->label && node.text() != op.text()) return false;
    for (const bool swapped : {false, true}) {
      if (swapped && !is_commutative(op.op)) continue;
      const std::vector<int> before = values_;
      if (bind(op, node, swapped)) {
        nodes_.push_back(n);
        if (extend()) return true;
        nodes_.pop_back();
      }
      values_ = before;
    }
    return false;
  }

  bool bind(const Pattern::Op& op, const Node& node, bool swapped) {
    const size_t n = std::max(op.in.size(), node.in.size());
    for (size_t i = 0; i < n; ++i) {
      const int wanted = operand_at(op.in, i), found = operand_at(node.in, swapped ? 1 - i : i);
      if (wanted < 0) {
        if (found >= 0) return false;
        continue;
      }
      if (values_[wanted] == kUnbound) {
        const bool optional = wanted >= label_.op->min_inputs;
        if (found < 0 && !optional) return false;
        values_[wanted] = found;
      }
      if (values_[wanted] != found) return false;
    }
    for (size_t o = 0; o < op.out.size(); ++o) values_[op.out[o]] = node.out[o];
    return true;
  }

  // Every op has a node: see Note [Finding a fused op in a step].
  bool complete() {
    Node fused{.op = label_.op, .attrs = attributes(), .role = pattern_.role};
    for (size_t i = 0; i < pattern_.operands; ++i) fused.in.push_back(std::max(values_[i], -1));
    for (const int result : pattern_.results) fused.out.push_back(values_[result]);
    Obstacle obstacle;
    stays_.assign(nodes_.size(), 0);
    if (!agrees(fused, &obstacle)) return false;
    if (!obstacle && label_.limit) {
      const std::string limit = label_.limit(r_.graph.metas(fused.in), fused.attrs);
      if (!limit.empty()) obstacle = over_limit(limit);
    }
    if (!obstacle) obstacle = read_elsewhere();
    if (!obstacle) {
      refused_ = !r_.fuse(label_.name.c_str(), members(), fused);
      return !refused_;
    }
    if (!near_miss_.obstacle) near_miss_ = {std::move(obstacle), members()};
    return false;
  }

  std::vector<int> members() const {
    std::vector<int> members;
    for (size_t k = 0; k < nodes_.size(); ++k) {
      if (!stays_[k]) members.push_back(nodes_[k]);
    }
    std::ranges::sort(members);
    return members;
  }

  // Those of the first node with attributes of the same kind; else the form's, and what the nodes
  // say of those that they have by the same name, or by their program.
  Attrs attributes() const {
    for (const int n : nodes_) {
      if (pattern_.attrs.type() && r_.node(n).attrs.type() == pattern_.attrs.type())
        return r_.node(n).attrs;
    }
    Attrs attrs = pattern_.attrs;
    for (size_t k = nodes_.size(); k-- > 0;) {
      const Node& node = r_.node(nodes_[k]);
      for (const AttrField& field : node.attrs.fields()) attrs.set(field);
      if (node.op == &kProductChainOp)
        attrs.set("act", act_of(node.attrs.as<ProductChainAttrs>().program));
    }
    return attrs;
  }

  // Layers of one shape ask the same thing: each is traced once.
  const Traced& traced(const Node& fused) {
    Tensors in = r_.graph.metas(fused.in);
    for (const Traced& known : traced_) {
      if (known.attrs == fused.attrs && same_operands(known.in, in)) return known;
    }
    Traced made{.in = std::move(in), .attrs = fused.attrs};
    try {
      made.trace = trace_reference(*label_.op, made.in, made.attrs);
    } catch (const Error& error) {
      made.refusal = {error.message(), error.hint()};
    }
    return traced_.emplace_back(std::move(made));
  }

  // Is the step's every attribute and result what the reference has? False: these are other ops.
  // `obstacle`: they are these, but for a type or a number.
  bool agrees(const Node& fused, Obstacle* obstacle) {
    const auto& [in, attrs, trace, refusal] = traced(fused);
    if (trace && trace->ops.size() != nodes_.size()) return false;
    for (size_t k = 0; k < nodes_.size(); ++k) {
      const Node& node = r_.node(nodes_[k]);
      if (trace && trace->ops[k].op != node.op) return false;
      if (differ_in_kind(trace ? trace->ops[k].attrs : pattern_.ops[k].attrs, node.attrs))
        return false;
    }
    *obstacle = refusal;
    for (size_t k = 0; trace && !*obstacle && k < nodes_.size(); ++k)
      *obstacle = disagreement(trace->ops[k], r_.node(nodes_[k]));
    return true;
  }

  Obstacle disagreement(const TracedOp& traced, const Node& node) const {
    for (size_t o = 0; o < traced.out.size(); ++o) {
      const Tensor &wanted = traced.out[o], found = r_.graph.meta(node.out[o]);
      if (found.shape() != wanted.shape() || found.dtype() != wanted.dtype())
        return {str(node.text(), " gives ", found.describe(), ", ", label_.text(), " makes ",
                    wanted.describe()),
            str("make %", node.out[o], " ", name_of(wanted.dtype()), wanted.shape().str())};
    }
    if (traced.attrs == node.attrs) return {};
    return {str(node.text(), " has ", node.attrs.str(), ", ", label_.text(), " takes ",
                traced.attrs.str()),
        str("give ", node.text(), " ", different_field(traced.attrs, node.attrs))};
  }

  // Who outside needs what would be in no memory. Marks what stays in the step for those readers
  // and is computed twice.
  Obstacle read_elsewhere() {
    Obstacle obstacle;
    for (size_t k = 0; k < nodes_.size(); ++k) {
      Obstacle other = outside_reader(k);
      if (!other) continue;
      obstacle = std::move(other);
      if (!is_cheap(k)) return obstacle;
      stays_[k] = 1;
    }
    if (members().size() > 1 && stay_unchanged()) return {};
    stays_.assign(nodes_.size(), 0);
    return obstacle;
  }

  Obstacle outside_reader(size_t k) const {
    for (const int out : pattern_.ops[k].out) {
      const std::vector<int>& results = pattern_.results;
      if (std::ranges::find(results, out) != results.end()) continue;
      const int value = values_[out];
      const bool gradient = r_.is_gradient(value);
      if (!gradient && !r_.read_elsewhere(value, nodes_)) continue;
      const std::string what = str("what ", pattern_.ops[k].text(), " gives");
      if (!gradient) return r_.other_reader(what, value, nodes_);
      return {str(what, " is also read by the caller: a parameter's gradient"),
          str("clear the gradient %", value, " in the step")};
    }
    return {};
  }

  // A pointwise op of the fused op's own operands: to compute it again costs no memory traffic.
  bool is_cheap(size_t k) const {
    const Pattern::Op& op = pattern_.ops[k];
    return chain_op_number(op.op) >= 0 &&
           std::ranges::all_of(op.in, [&](int in) { return in < int(pattern_.operands); });
  }

  // The kernel reads the operands of what stays later than that did: nobody may write them, or what
  // was made of them, in between.
  bool stay_unchanged() const {
    const int last = members().back();
    for (size_t k = 0; k < nodes_.size(); ++k) {
      if (!stays_[k]) continue;
      const Node& node = r_.node(nodes_[k]);
      for (const std::vector<int>* list : {&node.in, &node.out}) {
        for (const int value : *list) {
          if (r_.written_between(value, nodes_[k] + 1, last + 1)) return false;
        }
      }
    }
    return true;
  }

  Rewriter& r_;
  const Label& label_;
  const Pattern& pattern_;
  std::vector<int> nodes_;     // of each op so far
  std::vector<int> values_;    // of each value of the pattern
  std::vector<char> stays_;    // for each op: is it computed again, for the group alone?
  std::deque<Traced> traced_;  // of all groups so far
  NearMiss near_miss_;
  bool refused_ = false;
};

Pattern pattern_of(const OpDef& op, const Form& form) {
  const Trace trace = trace_reference(op, form.in, form.attrs);
  std::map<const void*, int> numbers;
  const auto number = [&](const Tensor& t) {
    if (!t.defined()) return -1;
    return numbers.try_emplace(t.id(), int(numbers.size())).first->second;
  };
  Pattern pattern{
      .attrs = form.attrs, .operands = form.in.size(), .values = 0, .role = trace.ops[0].role};
  // Absent operands have numbers, too, so that operand i is value i.
  Tensors operands = trace.operands;
  for (Tensor& t : operands) {
    if (!t.defined()) t = Tensor::meta({});
    number(t);
  }
  for (const TracedOp& traced : trace.ops) {
    Pattern::Op added{traced.op, traced.attrs, {}, {}};
    for (const Tensor& t : traced.in) added.in.push_back(number(t));
    for (const Tensor& t : traced.out) added.out.push_back(number(t));
    pattern.ops.push_back(std::move(added));
  }
  for (const Tensor& t : trace.results) pattern.results.push_back(number(t));
  pattern.values = int(numbers.size());
  return pattern;
}

}  // namespace

const std::vector<Pattern>& patterns_of(const Label& label) {
  using Key = std::pair<const OpDef*, std::string_view>;
  static thread_local std::map<Key, std::vector<Pattern>> traced;
  const Key key{label.op, label.text()};
  if (const auto known = traced.find(key); known != traced.end()) return known->second;
  std::vector<Pattern> patterns;
  for (const Form& form : label.forms()) patterns.push_back(pattern_of(*label.op, form));
  return traced.emplace(key, std::move(patterns)).first->second;
}

std::string stands_for(const Label& label) {
  if (!label.forms) return "";
  std::map<size_t, std::vector<std::vector<std::string>>, std::greater<>> by_length;
  for (const Pattern& pattern : patterns_of(label)) {
    std::vector<std::vector<std::string>>& places = by_length[pattern.ops.size()];
    places.resize(pattern.ops.size());
    for (size_t k = 0; k < places.size(); ++k) {
      const std::string name(pattern.ops[k].text());
      if (std::find(places[k].begin(), places[k].end(), name) == places[k].end())
        places[k].push_back(name);
    }
  }
  std::string out;
  for (const auto& [length, places] : by_length) {
    std::vector<std::string> choices;
    for (const std::vector<std::string>& names : places) choices.push_back(join(names, " / "));
    out += (out.empty() ? "" : "; or ") + join(choices);
  }
  return out;
}

void fuse_patterns(Rewriter& r, const Label& label) {
  std::vector<Matcher> matchers;
  for (const Pattern& pattern : patterns_of(label)) matchers.emplace_back(r, label, pattern);
  r.each_node([&](int i) {
    const Matcher::NearMiss* near = nullptr;
    for (Matcher& matcher : matchers) {
      if (!matcher.may_begin_at(i)) continue;
      if (matcher.fuse_from(i)) return true;
      if (matcher.refused()) return false;
      if (!near && matcher.near_miss().obstacle) near = &matcher.near_miss();
    }
    return near && r.miss(label.name.c_str(), near->members, near->obstacle);
  });
}

}  // namespace sinter::capture
