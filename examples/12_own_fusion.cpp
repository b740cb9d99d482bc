// 11: a fusion of your own. A fused op is a name for a subgraph, and a faster kernel for it. You
// say what it means in plain ops, once; its shapes, its cost, the pattern that is looked for in a
// step, and whether it may stand there, all follow from that (Note [A fused op is a named
// subgraph]).
//
// Here: the squared distance of each row from a centre, three launches that become one.
#include <cstdio>

#include "capture/explain.h"
#include "core/parallel.h"
#include "ops/fused/reference.h"
#include "ops/ops.h"

using namespace sinter;

// ---- 1. The meaning: x[B, I], centre[I] -> [B].
Tensors reference(Operands in, const Attrs&) { return {sum(pow(in[0] - in[1], 2), 1)}; }

// ---- 2. A form in which it appears in a step. The sizes are examples; others are found, too.
std::vector<Form> forms() { return {{{Tensor::meta({2, 3}), Tensor::meta({3})}, {}}}; }

// ---- 3. What this kernel cannot do, in words for explain(); "" where it can.
std::string limit(Operands in, const Attrs&) {
  const bool fits = in[0].dtype() == DType::f32 && in[1].rank() == 1;
  return fits ? "" : "rows of f32 and one centre are wanted: x is " + in[0].describe();
}

// ---- 4. The kernel: reads every row once; what lies between stays in registers.
void kernel(const Call& call) {
  const float *x = call.in[0].data<float>(), *centre = call.in[1].data<float>();
  const int64_t cols = call.in[1].numel();
  parallel_for(call.out[0].numel(), grain_of(4 * cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float distance = 0;
      for (int64_t i = 0; i < cols; ++i) {
        const float d = x[row * cols + i] - centre[i];
        distance += d * d;
      }
      call.out[0].data<float>()[row] = distance;
    }
  });
}

extern const OpDef kSquaredDistance;
const OpDef kSquaredDistance{.name = "squared_distance",
    .min_inputs = 2,
    .infer = infer_of<kSquaredDistance>,
    .cost = cost_of_reference<kSquaredDistance>,
    .cpu = kernel,
    .reference = reference,
    .limit = limit,
    .forms = forms};

// ---- 5. A step that knows nothing of it.
Tensors weights(const Tensors& in) { return {exp(-0.5 * sum(pow(in[0] - in[1], 2), 1))}; }

int main() {
  capture::add_rule(kSquaredDistance);
  const Tensor points = cast(sample_tensor({1000, 16}, 1), DType::f32);
  const Tensors in{points, mean(points, 0)};
  capture::Step step(weights);
  for (int i = 0; i < 3; ++i) step(in);

  std::printf("recorded %zu launches; replayed:\n", step.captured()->recorded.nodes.size());
  for (const capture::Node& node : step.captured()->fused.graph.nodes)
    std::printf("  %s\n", node.op->name.c_str());
  const double difference = max(abs(step(in)[0] - weights(in)[0])).item();
  std::printf("the results agree: %s\n\n", difference < 1e-6 ? "yes" : "no");
  std::printf("%s", capture::explain(*step.captured(), capture::RuleSet()).c_str());
}
