#include "capture/pattern.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "capture/rule_kit.h"
#include "ops/fused/reference.h"

namespace sinter::capture {
namespace {

constexpr int kUnbound = -2;

// The fields of attributes as text: {"act", "relu"}; those of their default value are missing.
std::map<std::string, std::string> fields_of(const Attrs& attrs) {
  std::map<std::string, std::string> fields;
  std::istringstream text(attrs.str());
  for (std::string field; text >> field;) {
    const size_t equals = field.find('=');
    fields[field.substr(0, equals)] = field.substr(equals + 1);
  }
  return fields;
}

bool has_field(const AttrType* type, const std::string& name) {
  if (!type) return false;
  std::istringstream names{std::string(type->field_names)};  // "dim, begin, end"
  for (std::string field; std::getline(names >> std::ws, field, ',');) {
    if (field == name) return true;
  }
  return false;
}

// Do they differ in a switch, so that the ops do different things (a product of transposed
// operands), and not only in a number or a type?
bool differ_in_kind(const Attrs& a, const Attrs& b) {
  const std::map<std::string, std::string> x = fields_of(a), y = fields_of(b);
  const auto differs = [](const auto& fields, const auto& others) {
    return std::any_of(fields.begin(), fields.end(), [&](const auto& field) {
      const bool is_switch = field.second == "0" || field.second == "1";
      const auto other = others.find(field.first);
      return is_switch && (other == others.end() || other->second != field.second);
    });
  };
  return differs(x, y) || differs(y, x);
}

bool is_commutative(const OpDef* op) { return op->text() == "mul" || op->text() == "add"; }

int operand_at(const std::vector<int>& in, size_t i) { return i < in.size() ? in[i] : -1; }

// One pattern, and the nodes of a step that its ops are put on.
class Matcher {
 public:
  Matcher(Rewriter& r, const OpDef& op, const Pattern& pattern)
      : r_(r), op_(op), pattern_(pattern) {}

  // Fuses a group whose first op is node `n`. False if there is none.
  bool fuse_from(int n) {
    nodes_.clear();
    values_.assign(static_cast<size_t>(pattern_.values), kUnbound);
    near_miss_.clear();
    refused_ = false;
    return try_node(n);
  }
  // What was nearly a group, and why it is none. "": nothing was near, or fuse() has told.
  const std::string& near_miss() const { return near_miss_; }
  const std::vector<int>& near_members() const { return near_members_; }
  bool refused() const { return refused_; }

 private:
  // Puts the next op on a node that shares a value with those before it.
  bool extend() {
    if (nodes_.size() == pattern_.ops.size()) return complete();
    for (const int in : pattern_.ops[nodes_.size()].in) {
      if (in < 0 || values_[in] < 0) continue;
      const std::vector<int> readers = r_.readers(values_[in]);
      return std::any_of(readers.begin(), readers.end(), [&](int n) { return try_node(n); });
    }
    SINTER_ASSERT(false, op_.text(), ": op ", nodes_.size(), " of its pattern stands alone");
    return false;
  }

  bool try_node(int n) {
    const Pattern::Op& op = pattern_.ops[nodes_.size()];
    const Node& node = r_.node(n);
    const bool taken = std::find(nodes_.begin(), nodes_.end(), n) != nodes_.end();
    if (node.op != op.op || node.out.size() != op.out.size() || taken) return false;
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
        const bool optional = wanted >= op_.min_inputs;
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
    Node fused{.op = &op_, .attrs = attributes(), .role = pattern_.role};
    for (size_t i = 0; i < pattern_.operands; ++i) fused.in.push_back(std::max(values_[i], -1));
    for (const int result : pattern_.results) fused.out.push_back(values_[result]);
    std::string why;
    stays_.assign(nodes_.size(), 0);
    if (!agrees(fused, &why)) return false;
    if (why.empty() && op_.limit) why = op_.limit(r_.graph.metas(fused.in), fused.attrs);
    if (why.empty()) why = read_elsewhere();
    if (why.empty()) {
      refused_ = !r_.fuse(op_.name.c_str(), members(), fused);
      return !refused_;
    }
    if (near_miss_.empty()) {
      near_miss_ = std::move(why);
      near_members_ = members();
    }
    return false;
  }

  std::vector<int> members() const {
    std::vector<int> members;
    for (size_t k = 0; k < nodes_.size(); ++k) {
      if (!stays_[k]) members.push_back(nodes_[k]);
    }
    std::sort(members.begin(), members.end());
    return members;
  }

  // The form's attributes, and what the nodes say of those that they have by the same name.
  Attrs attributes() const {
    if (!op_.attrs) return {};
    Attrs attrs = op_.attrs->defaults();
    for (const auto& [name, value] : fields_of(pattern_.attrs)) {
      const bool of_a_node = std::any_of(pattern_.ops.begin(), pattern_.ops.end(),
          [&](const Pattern::Op& op) { return has_field(op.op->attrs, name); });
      if (!of_a_node) attrs.parse(name, value);
    }
    for (size_t k = nodes_.size(); k-- > 0;) {
      for (const auto& [name, value] : fields_of(r_.node(nodes_[k]).attrs))
        attrs.parse(name, value);
    }
    return attrs;
  }

  // Is the step's every attribute and result what the reference has? False: these are other ops.
  // `why`: they are these, but for a type or a number.
  bool agrees(const Node& fused, std::string* why) const {
    Trace trace;
    try {
      trace = trace_reference(op_, r_.graph.metas(fused.in), fused.attrs);
    } catch (const Error& error) {
      *why = error.message();
      for (size_t k = 0; k < nodes_.size(); ++k) {
        if (differ_in_kind(pattern_.ops[k].attrs, r_.node(nodes_[k]).attrs)) return false;
      }
      return true;
    }
    if (trace.ops.size() != nodes_.size()) return false;
    for (size_t k = 0; k < nodes_.size(); ++k) {
      const TracedOp& traced = trace.ops[k];
      const Node& node = r_.node(nodes_[k]);
      if (traced.op != node.op || differ_in_kind(traced.attrs, node.attrs)) return false;
      if (!why->empty()) continue;
      for (size_t o = 0; o < traced.out.size(); ++o) {
        const Tensor &wanted = traced.out[o], found = r_.graph.meta(node.out[o]);
        if (found.shape() != wanted.shape() || found.dtype() != wanted.dtype())
          *why = cat(node.op->text(), " gives ", found.describe(), ", ", op_.text(), " makes ",
              wanted.describe());
      }
      if (why->empty() && !(traced.attrs == node.attrs))
        *why = cat(node.op->text(), " has ", node.attrs.str(), ", ", op_.text(), " takes ",
            traced.attrs.str());
    }
    return true;
  }

  // Who outside needs what would be in no memory, in words, or "". Marks what stays in the step
  // for those readers and is computed twice.
  std::string read_elsewhere() {
    std::string why;
    for (size_t k = 0; k < nodes_.size(); ++k) {
      const std::string other = outside_reader(k);
      if (other.empty()) continue;
      why = cat("what ", pattern_.ops[k].op->text(), " gives is also read by ", other);
      if (!is_cheap(k)) return why;
      stays_[k] = 1;
    }
    if (members().size() > 1 && stay_unchanged()) return "";
    stays_.assign(nodes_.size(), 0);
    return why;
  }

  std::string outside_reader(size_t k) const {
    for (const int out : pattern_.ops[k].out) {
      const std::vector<int>& results = pattern_.results;
      if (std::find(results.begin(), results.end(), out) != results.end()) continue;
      if (r_.is_gradient(values_[out])) return "the caller: a parameter's gradient";
      const std::string other = rule::others(r_, values_[out], nodes_);
      if (!other.empty()) return other;
    }
    return "";
  }

  // A pointwise op of the fused op's own operands: to compute it again costs no memory traffic.
  bool is_cheap(size_t k) const {
    const Pattern::Op& op = pattern_.ops[k];
    return chain_op_number(op.op) >= 0 && std::all_of(op.in.begin(), op.in.end(), [&](int in) {
      return in < static_cast<int>(pattern_.operands);
    });
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
  const OpDef& op_;
  const Pattern& pattern_;
  std::vector<int> nodes_;   // of each op so far
  std::vector<int> values_;  // of each value of the pattern
  std::vector<char> stays_;  // for each op: is it computed again, for the group alone?
  std::string near_miss_;
  std::vector<int> near_members_;
  bool refused_ = false;
};

Pattern pattern_of(const OpDef& op, const Form& form) {
  const Trace trace = trace_reference(op, form.in, form.attrs);
  std::map<const void*, int> numbers;
  const auto number = [&](const Tensor& t) {
    if (!t.defined()) return -1;
    return numbers.try_emplace(t.id(), static_cast<int>(numbers.size())).first->second;
  };
  Pattern pattern{.attrs = form.attrs,
      .operands = form.in.size(),
      .values = 0,
      .ops = {},
      .results = {},
      .role = trace.ops[0].role};
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
  pattern.values = static_cast<int>(numbers.size());
  return pattern;
}

}  // namespace

const std::vector<Pattern>& patterns_of(const OpDef& op) {
  static thread_local std::map<const OpDef*, std::vector<Pattern>> traced;
  if (const auto known = traced.find(&op); known != traced.end()) return known->second;
  std::vector<Pattern> patterns;
  for (const Form& form : op.forms()) patterns.push_back(pattern_of(op, form));
  return traced.emplace(&op, std::move(patterns)).first->second;
}

void fuse_patterns(Rewriter& r, const OpDef& op) {
  const std::vector<Pattern>& patterns = patterns_of(op);
  rule::each_node(r, [&](int i) {
    std::string why;
    std::vector<int> members;
    for (const Pattern& pattern : patterns) {
      if (r.node(i).op != pattern.ops[0].op) continue;
      Matcher matcher(r, op, pattern);
      if (matcher.fuse_from(i)) return true;
      if (matcher.refused()) return false;
      if (!why.empty() || matcher.near_miss().empty()) continue;
      why = matcher.near_miss();
      members = matcher.near_members();
    }
    if (!why.empty()) r.miss(op.name.c_str(), members, why, static_cast<int>(members.size()) - 1);
    return false;
  });
}

}  // namespace sinter::capture
