// pointwise_chain: a program of pointwise ops in one pass: every operand is read once and every
// result written once (ops/pointwise/chain.h). Two such programs are gates: h = act(g) * u, and
// du = dh act(g), dg = (dh u) act'(g), act(g) made again instead of read. Their operands may be the
// halves of wider rows.
#include <array>

#include "ops/fused/product_chain.h"
#include "ops/kernels.h"

namespace sinter {
namespace {

// Of matrices rows may lie apart, and so may those of the halves of a result.
bool by_rows(Operands in, bool merged) {
  return merged || std::ranges::any_of(in, [](const auto& t) { return !t.is_contiguous(); });
}

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& [p, merged] = attrs.as<ChainAttrs>();
  const char* const name = label_of_chain(attrs).c_str();
  SINTER_CHECK(is_valid(p) && p.n_inputs == int(in.size()), shape,
      str(name, ": ", in.size(), " inputs given; not a program for them: it has ", p.n_inputs,
          " inputs, ", p.n_steps, " steps, ", p.n_outputs, " results; allowed 1..", kChainInputs,
          ", 1..", kChainSteps, ", 1..", kChainOutputs, ", each value made before it is read"));
  SINTER_CHECK(code_of(p).registers <= kChainRegisters, shape,
      str(name, ": the steps need ", code_of(p).registers, " values at once; at most ",
          kChainRegisters));
  check_floating(name, "the first operand", in[0]);
  Shape shape;
  for (const Tensor& t : in) {
    SINTER_CHECK(t.defined(), shape, str(name, ": an operand is undefined"));
    shape = broadcast_shapes(name, shape, t.shape());
  }
  const bool rows = by_rows(in, merged);
  for (const Tensor& t : in) {
    check_same_dtype(name, "the first operand", in[0], "a later one", t);
    SINTER_CHECK(rows ? t.rank() == 2 && t.shape() == shape : bool(broadcast_of(t, shape)), shape,
        str(name, ": an operand does not fit: it is ", t.describe(), ", the result is ",
            shape.str(),
            rows ? "; all must be matrices of one shape"
                 : "; it must be dense, with dims of 1 at its ends only"));
  }
  SINTER_CHECK(!merged || p.n_outputs == 2, shape,
      str(name, ": ", p.n_outputs, " results given; of halves there must be 2"));
  if (merged) shape[1] *= 2;
  return Tensors(
      size_t(merged ? 1 : p.n_outputs), Tensor::shape_only(shape, in[0].dtype(), in[0].device()));
}

Cost cost(Operands in, Operands out, const Attrs& attrs) {
  const auto& [program, merged] = attrs.as<ChainAttrs>();
  return cost_of(chain_flops(program) * out[0].numel() / (merged ? 2 : 1), in, out);
}

template <class T> void run_rows(const Call& call) {
  const auto& [program, merged] = call.as<ChainAttrs>();
  const RowsOf<T> first(call.in[0]);
  const RowSteps<T, T> steps(program, call.in.subspan(1), call.out, merged);
  steps(first.data, first.step, 0, call.in[0].size(0));
}

void cpu(const Call& call) {
  const auto& [program, merged] = call.as<ChainAttrs>();
  const bool rows = by_rows(call.in, merged);
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    if (rows) return run_rows<T>(call);
    const ChainLoop<T, T> loop(program);
    const DenseRow row = [](const void* chain, char* const* at, int64_t n) {
      (*static_cast<const ChainLoop<T, T>*>(chain))(at, n);
    };
    run_on_cpu(call, row, &loop, chain_flops(program));
  });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [program, merged] = attrs.as<ChainAttrs>();
  const Tensors results = chain_results(program, Tensors(in.begin(), in.end()));
  return merged ? Tensors{side_by_side(results[0], results[1])} : results;
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
        .strided_of =
            [](size_t, size_t, const Attrs& attrs) {
              return !(label_of_chain(attrs) == kPointwiseChainOp.name);
            },
        .reference = reference,
        .label = label_of_chain});

}  // namespace sinter
