// The pattern of a fused op, and the one matcher that finds it in a step. A pattern is the op's
// reference traced on meta tensors (ops/fused/reference.h), one for each of its forms.
//
// Note [Finding a fused op in a step]
//   The pattern is a list of ops in the order of the reference, over numbered values: the fused
//   op's operands first, then what its ops make. input_grad_act, for one:
//
//       pattern                                     a step
//       %3 = matmul(%0, %1)                         %36 = matmul(%35, 4.weight)
//       %4 = relu_backward(%3, %2); result %4       %37 = relu_backward(%36, %21)
//
//   The matcher puts the pattern's first op on each node of the step in turn. Each later op shares
//   a value with those before it, so it must be one of that value's readers: they are tried in
//   order, and the last choice that has another is changed where nothing fits. When every op has a
//   node, the operands are known. Then
//     1. the reference is traced again, on operands of the shapes and types found: every attribute
//        and every result must be what the step has, down to the type. This is why the kernel may
//        stand in for the nodes: it does what the reference does with just these operands;
//     2. the kernel's own limit (OpDef::limit) must hold;
//     3. no memory of what lies between may be read, or returned, elsewhere. Memory, not values: a
//        view is another value of the same memory. A pointwise op of the operands may have other
//        readers: it stays for them, and the kernel computes it again (glu_backward, whose act(g)
//        forward reads, too);
//     4. Rewriter::fuse finds a place where no other node is overtaken that must not be.
//   If 1 to 3 fail although all ops are there, this is a near miss, and explain() tells the reason
//   of the largest form.
//   Cost: readers are looked up in an index, so a step's graph is walked once for each form.
#pragma once

#include "capture/rewrite.h"
#include "ops/fused/fused.h"

namespace sinter::capture {

struct Pattern {
  struct Op {
    const OpDef* op;
    Attrs attrs;               // in this form
    std::vector<int> in, out;  // values; -1: absent
    std::string_view text() const { return op->label_of(attrs); }
  };
  Attrs attrs;  // of the form. An attribute that an op of the pattern has by the same name is its
  size_t operands;
  int values;  // operands and results of all ops
  std::vector<Op> ops;
  std::vector<int> results;
  Role role;  // that of the first op
};

// One for each form, traced when a thread first asks for them.
const std::vector<Pattern>& patterns_of(const Label& label);
// The ops that its patterns find, by name: "linear, relu / gelu", one list for all patterns of as
// many ops; "" of one that only code looks for.
std::string stands_for(const Label& label);
// Fuses every group that the patterns find.
void fuse_patterns(Rewriter& r, const Label& label);

}  // namespace sinter::capture
