// What cuBLASLt's epilogues are worth on this card, for scripts/gpu_report: one JSON object on
// stdout, its rows and all plans. A row per fused op, type and shape: what was measured and chosen
// (ops/gemm_plans.h), the time of what was chosen, and that of the plain ops it stands for. Times
// are those of a captured graph of repetitions; data is random.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/device/cuda_graph.h"
#include "core/device/kept_choices.h"
#include "core/error.h"
#include "core/rng.h"
#include "ops/fused/fused.h"
#include "ops/gemm_library.h"
#include "ops/ops.h"
#include "ops/relu_mask.h"

namespace sinter {
namespace {

constexpr int kRepetitions = 8, kRounds = 9;

Tensor random(const Shape& shape, DType dtype, Device device) {
  Tensor t = Tensor::empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = uniform_from_bits(philox_word(5, 0, uint64_t(i))) - 0.5f;
  return cast(t, dtype).to(device);
}

// us of one f(); what the plan of its product says goes to `choice`.
template <class F> double time_of(F&& f, std::string& choice) {
  f();  // makes plans, outside of everything
  cuda::GraphBuilder builder(0, false);
  std::unique_ptr<cuda::DeviceGraph> graph;
  for (const auto pass : {cuda::Pass::rehearsal, cuda::Pass::capture}) {
    builder.begin(pass);
    for (int i = 0; i < kRepetitions; ++i) f();
    graph = builder.end();
  }
  choice = take_gemm_choice();
  return graph->milliseconds(kRounds) * 1e3 / kRepetitions;
}

nlohmann::json rows(Device device) {
  nlohmann::json all = nlohmann::json::array();
  set_keep_choices(false);  // the times of this run are wanted
  set_gemm_choice(GemmChoice::measured);
  for (const auto& [dtype, tf32, name] : {std::tuple(DType::f32, false, "f32"),
           {DType::f32, true, "tf32"}, {DType::bf16, false, "bf16"}}) {
    set_allow_tf32(tf32);
    for (const auto& [b, i, o] : {std::tuple<int64_t, int64_t, int64_t>(128, 784, 256),
             {1024, 784, 512}, {8192, 784, 512}, {8192, 768, 3072}}) {
      const Tensor x = random({b, i}, dtype, device), w = random({o, i}, dtype, device),
                   bias = random({o}, DType::f32, device), dy = random({b, o}, dtype, device),
                   mask = Tensor::zeros({b, relu_mask_row(i)}, DType::u8).to(device);
      const auto row = [&](const OpDef& op, const Tensors& in, const Attrs& attrs,
                           const char* form) {
        std::string choice, none;
        const double us = time_of([&] { apply(op, in, attrs); }, choice);
        const double unfused = time_of([&] { op.reference(in, attrs); }, none);
        all.push_back({{"op", op.text()}, {"form", form}, {"dtype", name}, {"rows", b}, {"in", i},
            {"out", o}, {"us", us}, {"unfused_us", unfused}, {"choice", choice}});
      };
      row(kLinearActOp, {x, w, bias}, LinearActAttrs{Act::relu, Keep::mask, dtype},
          "relu and mask");
      row(kLinearActOp, {x, w, bias}, LinearActAttrs{Act::gelu_tanh, Keep::pre, dtype},
          "gelu_tanh");
      row(kInputGradActOp, {dy, w, mask}, InputGradActAttrs{Act::relu}, "relu backward");
      row(kInputGradActOp, {dy, w, x}, InputGradActAttrs{Act::gelu_tanh}, "gelu_tanh backward");
      row(kWeightBiasGradOp, {dy, x}, {}, "bias gradient");
    }
  }
  return all;
}

}  // namespace
}  // namespace sinter

int main() {
  try {
    const nlohmann::json all = sinter::rows(sinter::Device::parse("cuda"));
    fmt::print("{}\n", nlohmann::json{{"rows", all}, {"plans", sinter::gemm_plan_lines()}}.dump(1));
  } catch (const sinter::Error& error) {
    fmt::print(stderr, "gpu_epilogues: {}\n", error.what());
    return 1;
  }
}
