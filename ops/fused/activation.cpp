#include "ops/fused/activation.h"

namespace sinter {
namespace {

// Adds a step to the program; its value.
int8_t add_step(ChainProgram& p, std::string_view op, std::initializer_list<int> in) {
  ChainProgram::Step& step = p.steps[p.n_steps++];
  step.op = int16_t(chain_op_number(find_op(op)));
  std::copy(in.begin(), in.end(), step.in.begin());
  return int8_t(p.n_inputs + p.n_steps - 1);
}
int8_t add_act(ChainProgram& p, Act act, int z) {
  return act == Act::none ? int8_t(z) : add_step(p, print_value(act), {z});
}
int8_t add_act_grad(ChainProgram& p, Act act, int dy, int saved) {
  return act == Act::none ? int8_t(dy) : add_step(p, print_value(act) + "_backward", {dy, saved});
}
ChainProgram with_results(ChainProgram p, std::initializer_list<int> values) {
  std::copy(values.begin(), values.end(), p.outputs.begin());
  p.n_outputs = int(values.size());
  return p;
}
ChainProgram of_act(Act act) {
  ChainProgram p{.n_inputs = 1};
  return with_results(p, {add_act(p, act, 0)});
}
ChainProgram of_act_kept(Act act) {
  ChainProgram p{.n_inputs = 1};
  const int y = add_act(p, act, 0);
  return with_results(p, {y, 0});
}
ChainProgram of_act_grad(Act act) {
  ChainProgram p{.n_inputs = 2};
  return with_results(p, {add_act_grad(p, act, 0, 1)});
}
ChainProgram of_gate(Act act) {
  ChainProgram p{.n_inputs = 2};
  const int a = add_act(p, act, 0);
  return with_results(p, {add_step(p, "mul", {a, 1})});
}
ChainProgram of_gate_grad(Act act) {
  ChainProgram p{.n_inputs = 3};
  const bool of_output = act_saves(act) == pointwise::Saves::output;
  const int da = add_step(p, "mul", {0, 2}), first = of_output ? add_act(p, act, 1) : -1,
            dg = add_act_grad(p, act, da, of_output ? first : 1),
            a = of_output ? first : add_act(p, act, 1);
  return with_results(p, {dg, add_step(p, "mul", {0, a})});
}

// Of every activation, made once: kernels ask at each call.
using Table = std::array<ChainProgram, std::size(kActNames)>;
Table table_of(ChainProgram (*make)(Act)) {
  Table table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = make(static_cast<Act>(i));
  return table;
}

}  // namespace

ChainProgram act_program(Act act, bool keep) {
  static const Table plain = table_of(of_act), kept = table_of(of_act_kept);
  return (keep ? kept : plain)[size_t(act)];
}
ChainProgram act_grad_program(Act act) {
  static const Table table = table_of(of_act_grad);
  return table[size_t(act)];
}
ChainProgram gate_program(Act act) {
  static const Table table = table_of(of_gate);
  return table[size_t(act)];
}
ChainProgram gate_grad_program(Act act) {
  static const Table table = table_of(of_gate_grad);
  return table[size_t(act)];
}

}  // namespace sinter
