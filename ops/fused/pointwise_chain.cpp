// pointwise_chain: a program of pointwise ops in one pass: every operand is read once and every
// result written once (ops/pointwise/chain.h). glu and glu_backward are two such programs with
// names: h = act(g) * u, and du = dh act(g), dg = (dh u) act'(g), act(g) made again instead of
// read. Their operands may be the halves of wider rows.
#include <array>

#include "ops/fused/product_chain.h"
#include "ops/kernels.h"

namespace sinter {
namespace {

Tensors infer(Operands in, const Attrs& attrs) {
  const ChainProgram& p = attrs.as<ChainAttrs>().program;
  SINTER_CHECK(is_valid(p) && p.n_inputs == int(in.size()), shape,
      cat("pointwise_chain: ", in.size(), " inputs given; not a program for them: it has ",
          p.n_inputs, " inputs, ", p.n_steps, " steps, ", p.n_outputs, " results; allowed 1..",
          kChainInputs, ", 1..", kChainSteps, ", 1..", kChainOutputs,
          ", each value made before it is read"));
  SINTER_CHECK(code_of(p).registers <= kChainRegisters, shape,
      cat("pointwise_chain: the steps need ", code_of(p).registers, " values at once; at most ",
          kChainRegisters));
  check_floating("pointwise_chain", "the first operand", in[0]);
  Shape shape;
  for (const Tensor& t : in) {
    SINTER_CHECK(t.defined(), shape, "pointwise_chain: an operand is undefined");
    shape = broadcast_shapes("pointwise_chain", shape, t.shape());
  }
  for (const Tensor& t : in) {
    check_same_dtype("pointwise_chain", "the first operand", in[0], "a later one", t);
    SINTER_CHECK(broadcast_of(t, shape), shape,
        cat("pointwise_chain: an operand does not fit: it is ", t.describe(), ", the result is ",
            shape.str(), "; it must be dense, with dims of 1 at its ends only"));
  }
  return Tensors(size_t(p.n_outputs), Tensor::shape_only(shape, in[0].dtype(), in[0].device()));
}

Cost cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(chain_flops(attrs.as<ChainAttrs>().program) * out[0].numel(), in, out);
}

void cpu(const Call& call) {
  const ChainProgram& p = call.as<ChainAttrs>().program;
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    const ChainLoop<T, T> loop(p);
    const DenseRow row = [](const void* chain, char* const* at, int64_t n) {
      (*static_cast<const ChainLoop<T, T>*>(chain))(at, n);
    };
    run_on_cpu(call, row, &loop, chain_flops(p));
  });
}

Tensors reference(Operands in, const Attrs& attrs) {
  return chain_results(attrs.as<ChainAttrs>().program, Tensors(in.begin(), in.end()));
}

// ---- glu and glu_backward. B batch, H hidden

// The plain ops broadcast; the kernels do not.
std::string gate_limit(Operands in, const Attrs&) {
  for (const Tensor& t : in) {
    if (t.rank() != 2 || t.shape() != in[0].shape())
      return cat("an operand is ", t.describe(), " beside ", in[0].describe(),
          "; all must be of one shape [B, H]");
  }
  return "";
}

template <size_t N> std::vector<Form> gate_forms() {
  std::vector<Form> all;
  for (const Act act : kActivations) {  // others are no gates of the models that we know
    if (act_saves(act) == pointwise::Saves::inputs)
      all.push_back({Tensors(N, Tensor()), GluAttrs{act}});
  }
  for (Form& form : all) {
    for (Tensor& t : form.in) t = Tensor::meta({2, 3});
  }
  return all;
}

// Not the reference's: to lay dg and du side by side adds nothing up.
Cost gate_backward_cost(Operands in, Operands out, const Attrs& attrs) {
  const ChainProgram program = gate_grad_program(attrs.as<GluAttrs>().act);
  return cost_of(in[0].numel() * chain_flops(program), in, out);
}

// Row by row: rows of operands may lie apart, and so may those of the halves of a result.
void gate_cpu(const Call& call, const ChainProgram& p) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    const RowsOf<T> first(call.in[0]);
    const RowSteps<T, T> steps(p, call.in.subspan(1), call.out, call.as<GluAttrs>().merged);
    steps(first.data, first.step, 0, call.in[0].size(0));
  });
}

Tensors glu_reference(Operands in, const Attrs& attrs) {
  return chain_results(gate_program(attrs.as<GluAttrs>().act), {in[0], in[1]});
}
Tensors glu_backward_reference(Operands in, const Attrs& attrs) {
  const auto& [act, merged] = attrs.as<GluAttrs>();
  const Tensors grads = chain_results(gate_grad_program(act), {in[0], in[1], in[2]});
  if (!merged) return grads;
  return {side_by_side(grads[0], grads[1])};
}

}  // namespace

const OpDef kPointwiseChainOp = listed<kPointwiseChainOp>(
    {.formula = "a program of pointwise ops, each input read and each output written once",
        .min_inputs = 1,
        .max_inputs = kChainInputs,
        .attrs = attr_type<ChainAttrs>(),
        .infer = infer,
        .cost = cost,
        .cpu = cpu,
        .reference = reference});
const OpDef kGluOp = listed<kGluOp>({.formula = "h = act(g) u",
    .min_inputs = 2,
    .attrs = attr_type<GluAttrs>(),
    .cpu = [](const Call& call) { gate_cpu(call, gate_program(call.as<GluAttrs>().act)); },
    .strided = 0b11,
    .reference = glu_reference,
    .limit = gate_limit,
    .forms = gate_forms<2>});
const OpDef kGluBackwardOp = listed<kGluBackwardOp>({.formula = "du = dh act(g), dg = dh u act'(g)",
    .min_inputs = 3,
    .attrs = attr_type<GluAttrs>(),
    .cost = gate_backward_cost,
    .cpu = [](const Call& call) { gate_cpu(call, gate_grad_program(call.as<GluAttrs>().act)); },
    .strided = 0b111,
    .reference = glu_backward_reference,
    .limit = gate_limit,
    .forms = gate_forms<3>});

}  // namespace sinter
