#include "ops/fused/activation.h"

namespace sinter {

using namespace chain_detail;
using pointwise::Mul, pointwise::Saves;

ChainProgram act_program(Act which, bool keep) {
  return visit_act(which, [&]<class Op>(Op) -> ChainProgram {
    if constexpr (std::is_same_v<Op, Identity>)
      return {.n_inputs = 1, .n_outputs = 1};
    else
      return keep ? act_kept<Op>() : act<Op>();
  });
}
ChainProgram act_grad_program(Act which) {
  return visit_act(which, []<class Op>(Op) -> ChainProgram {
    if constexpr (std::is_same_v<Op, Identity>)
      return {.n_inputs = 2, .n_outputs = 1};
    else
      return act_grad<Op>();
  });
}
ChainProgram gate_program(Act which) {
  return visit_act(which, []<class Op>(Op) -> ChainProgram {
    if constexpr (std::is_same_v<Op, Identity>)
      return program(2, {step<Mul>(0, 1)}, {2});
    else
      return gate<Op>();
  });
}
ChainProgram gate_grad_program(Act which) {
  return visit_act(which, []<class Op>(Op) -> ChainProgram {
    if constexpr (std::is_same_v<Op, Identity>) {
      return program(3, {step<Mul>(0, 2), step<Mul>(0, 1)}, {3, 4});
    } else if constexpr (Op::saves == Saves::output) {
      return program(
          3, {step<Mul>(0, 2), step<Op>(1), step<Op, Part::first>(3, 4), step<Mul>(0, 4)}, {5, 6});
    } else {
      return gate_grad<Op>();
    }
  });
}
Act act_of(const ChainProgram& program) {
  for (int s = 0; s < program.n_steps; ++s) {
    for (const Act act : kActivations) {
      const bool is_act = visit_act(act, [&]<class Op>(Op) {
        if constexpr (std::is_same_v<Op, Identity>)
          return false;
        else
          return program.steps[size_t(s)].op == kStepNumber<Op, Part::value> ||
                 program.steps[size_t(s)].op == kStepNumber<Op, Part::first>;
      });
      if (is_act) return act;
    }
  }
  return Act::none;
}

}  // namespace sinter
