// The fusion rules: one for each fused op, in the order of their list (ops/fused/fused.h). Most
// need no more than the op: its reference is the pattern that capture looks for (Note [Finding a
// fused op in a step], pattern.h), and OpDef::limit what its kernels cannot do. A rule has code
// where a pattern cannot say it: lists of any length, and values that move to other memory. A rule
// is on where its op has a kernel. Each finds all its groups before the next one runs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capture/rewrite.h"

namespace sinter::capture {

struct Rule {
  Rule(const OpDef& op, void (*code)(Rewriter&) = nullptr) : op(&op), code(code) {}
  const char* name() const { return op->name.c_str(); }
  bool on(Device::Type device) const { return op->kernel(device) != nullptr; }
  void apply(Rewriter& r) const;

  const OpDef* op;
  void (*code)(Rewriter&);  // runs after the op's patterns, if it has any
};

std::span<const Rule> rules();
// Adds a row, before all others, for a fused op of the program's own: one with a reference, forms
// and a kernel (examples/11_own_fusion.cpp). The op must live as long as the program. Call it
// before the first Step is made; not thread-safe. Throws usage for a name that a rule has already.
void add_rule(const OpDef& op);

// Which rules are on: `all`, `none`, or a list read from left to right: NAME adds, -NAME removes,
// from all if the first item is -NAME.
class RuleSet {
 public:
  RuleSet() : RuleSet("all") {}
  // Throws usage: an unknown name (the nearest is named), an empty item.
  explicit RuleSet(std::string_view text);
  bool has(std::string_view rule) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::vector<std::string> on_;
};

// Rewrites a recorded graph for `device`: dead and duplicate nodes go, then the rules. Verified
// after each pass.
Rewriter rewrite(
    const Graph& recorded, const RuleSet& set, Device::Type device, Refused refused = {});

}  // namespace sinter::capture
