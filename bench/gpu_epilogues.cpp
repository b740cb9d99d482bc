// What this card can do at all, and what the ends of products in cuBLASLt and cuDNN are worth on
// it, for scripts/gpu_report: one JSON object on stdout, the roofs (as `mnist calibrate` measures
// them), us of large products, and rows. A row per fused op, type and shape: what was measured and
// chosen (core/device/chooser.h), the time of what was chosen, and that of the plain ops it
// stands for. Times are those of a captured graph of repetitions; data is random.
#include <fmt/format.h>

#include "core/device/cuda_graph.h"
#include "core/device/kept_choices.h"
#include "core/json.h"
#include "core/rng.h"
#include "measure/calibrate.h"
#include "ops/fused/fused.h"
#include "ops/ops.h"
#include "ops/product/gemm_library.h"
#include "profiler/stats.h"

namespace sinter {
namespace {

constexpr int kRepetitions = 8, kRounds = 9;

Tensor random(const Shape& shape, DType dtype, Device device) {
  constexpr int64_t kDrawn = 1 << 16;  // it repeats: drawing takes longer than measuring
  Tensor t = Tensor::empty(shape);
  float* const p = t.data<float>();
  for (int64_t i = 0; i < t.numel(); ++i)
    p[i] = i < kDrawn ? uniform_from_bits(philox_word(5, 0, uint64_t(i))) - 0.5f : p[i - kDrawn];
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
  choice = take_choice_text();
  std::vector<double> ms;
  for (int round = 0; round < kRounds; ++round)
    ms.push_back(cuda::milliseconds([&] { graph->launch(); }));
  return 1e3 * profiler::median(ms) / kRepetitions;
}

Json constants(Device device) {
  Json us;
  set_allow_tf32(true);
  for (const auto& [name, dtype] :
      {std::pair("8192^3 bf16", DType::bf16), {"8192^3 tf32", DType::f32}}) {
    const Tensor a = random({8192, 8192}, dtype, device), b = copy(a);
    std::string choice;
    us[name] = time_of([&] { matmul(a, b, false, true); }, choice);
  }
  return {{"roofs", measure::calibrate(device)}, {"products_us", us}};
}

Json rows(Device device) {
  Json all = Json::array();
  for (const auto& [dtype, tf32, name] : {std::tuple(DType::f32, false, "f32"),
           {DType::f32, true, "tf32"}, {DType::bf16, false, "bf16"}}) {
    set_allow_tf32(tf32);
    for (const auto& [b, i, o] : {std::tuple<int64_t, int64_t, int64_t>(128, 784, 256),
             {1024, 784, 512}, {8192, 784, 512}, {8192, 768, 3072}, {8192, 3072, 768}}) {
      const Tensor x = random({b, i}, dtype, device), w = random({o, i}, dtype, device),
                   bias = random({o}, DType::f32, device), dy = random({b, o}, dtype, device),
                   up = random({b, i}, dtype, device), w_up = random({o, i}, dtype, device);
      const auto row = [&](const OpDef& op, const Tensors& in, const Attrs& attrs,
                           const char* form) {
        std::string choice, none;
        const double us = time_of([&] { apply(op, in, attrs); }, choice);
        const double unfused = op.reference ? time_of([&] { op.reference(in, attrs); }, none) : us;
        all.push_back({{"op", op.text()}, {"form", form}, {"dtype", name}, {"rows", b}, {"in", i},
            {"out", o}, {"us", us}, {"unfused_us", unfused}, {"choice", choice}});
      };
      row(kLinearActOp, {x, w, bias}, LinearActAttrs{Act::relu, false, dtype}, "relu");
      row(kLinearActOp, {x, w, bias}, LinearActAttrs{Act::gelu_tanh, true, dtype}, "gelu_tanh");
      row(kInputGradActOp, {dy, w, x}, InputGradActAttrs{Act::relu}, "relu backward");
      row(kInputGradActOp, {dy, w, x}, InputGradActAttrs{Act::gelu_tanh}, "gelu_tanh backward");
      row(kWeightBiasGradOp, {dy, x}, {}, "bias gradient");
      row(kLinearOp, {x, w, bias}, LinearAttrs{dtype}, "f32 bias");
      for (const bool keep : {false, true})
        row(kGatedLinearOp, {x, w, w_up}, GatedLinearAttrs{Act::gelu_tanh, keep},
            keep ? "gate, kept" : "gate");
      row(kGatedLinearBackwardOp, {dy, w, x, up}, GluAttrs{.act = Act::gelu_tanh}, "gate backward");
    }
  }
  return all;
}

}  // namespace
}  // namespace sinter

int main() {
  try {
    const sinter::Device device = sinter::Device::parse("cuda");
    sinter::set_keep_choices(false);  // the times of this run are wanted
    sinter::set_choice_rule(sinter::ChoiceRule::measured);
    sinter::Json all = sinter::constants(device);
    all["rows"] = sinter::rows(device);
    fmt::print("{}\n", sinter::json_text(all, 1));
  } catch (const sinter::Error& error) {
    fmt::print(stderr, "gpu_epilogues: {}\n", error.what());
    return 1;
  }
}
