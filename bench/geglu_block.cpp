// Times forward and backward of a gated block (GeGLU, tanh form) from a resident output gradient, eager or fused: the figure of a
// transformer's feed-forward layer that docs/results/ compare with the peers' --block geglu.
//
//   geglu_block --rows 2048 --dim 768 --hidden 3072 --mode eager,fused --threads 2 --json out.json
//
// Rounds of all modes run interleaved, so that a slow moment of the machine hits them alike; the figure is the median over all steps.
// --json - prints one object (an array of them if there are several modes).
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "autograd/autograd.h"
#include "bench/harness.h"
#include "capture/step.h"
#include "core/parallel.h"
#include "core/rng.h"
#include "nn/glu.h"
#include "ops/ops.h"

namespace sinter {
namespace {

Tensor random(int64_t rows, int64_t cols, uint64_t seed, DType dtype) {
  Tensor x = Tensor::empty({rows, cols});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = 2 * uniform_from_bits(philox_word(seed, 0, static_cast<uint64_t>(i))) - 1;
  return cast(x, dtype);
}

struct Case {
  std::string mode;
  std::unique_ptr<nn::Glu> block;
  std::unique_ptr<capture::Step> step;  // fused only
  Tensors inputs;
  std::vector<double> times;
  int64_t launches = 0;

  static Tensors forward_backward(nn::Glu& block, const Tensors& in) {
    block.zero_grad();
    in[0].autograd().grad = {};
    const Tensor y = block(in[0]);
    backward(y, {.gradient = in[1]});
    return {y, in[0].grad()};
  }
  void run() { mode == "fused" ? (void)(*step)(inputs) : (void)forward_backward(*block, inputs); }
};

int run(int argc, char** argv) {
  int64_t rows = 2048, dim = 768, hidden = 3072;
  std::vector<std::string> modes{"eager", "fused"};
  std::string dtype = "f32", json, rules = "all", where = "cpu";
  int threads = available_cores(), rounds = 5, steps = 3, warmup = 3;
  CLI::App app("Times forward and backward of a gated block");
  app.add_option("--rows", rows)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--dim", dim)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--hidden", hidden)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--dtype", dtype)->check(CLI::IsMember({"f32", "bf16"}))->capture_default_str();
  app.add_option("--mode", modes, "eager, fused, or both")->delimiter(',')->check(CLI::IsMember({"eager", "fused"}))->capture_default_str();
  app.add_option("--rules", rules)->capture_default_str();
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--rounds", rounds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", steps, "steps of a round")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warmup", warmup)->capture_default_str();
  app.add_option("--device", where, "cpu, simt (to look for mistakes: its times mean nothing), cuda, cuda:N")->capture_default_str();
  app.add_option("--json", json, "file, or - for stdout");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);
  const Device device = Device::parse(where);

  const DType type = dtype == "bf16" ? DType::bf16 : DType::f32;
  std::vector<Case> cases;
  for (const std::string& mode : modes) {
    Case c{.mode = mode};
    c.block = std::make_unique<nn::Glu>(dim, hidden, dim);
    c.block->init_parameters(1);
    c.block->to(type);
    c.block->to(device);
    c.inputs = {random(rows, dim, 3, type).to(device), random(rows, dim, 4, type).to(device)};
    c.inputs[0].set_requires_grad(true);
    c.step = std::make_unique<capture::Step>(
        [block = c.block.get()](const Tensors& in) { return Case::forward_backward(*block, in); },
        capture::StepOptions{.rules = capture::RuleSet(mode == "fused" ? rules : "none"), .parameters = nn::parameter_visitor(*c.block)});
    for (int i = 0; i < 2; ++i) (*c.step)(c.inputs);
    c.launches = static_cast<int64_t>(c.step->captured()->executor->launches());
    if (mode == "eager") c.step.reset();
    for (int i = 0; i < warmup; ++i) c.run();
    cases.push_back(std::move(c));
  }
  bench::time_rounds(cases, rounds, steps, device);
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (Case& c : cases) {
    const double median = c.times[c.times.size() / 2];
    out.push_back({{"peer", "sinter"},
                   {"block", "geglu"},
                   {"mode", c.mode},
                   {"dtype", dtype},
                   {"dim", dim},
                   {"hidden", hidden},
                   {"batch", rows},
                   {"device", device.str()},
                   {"threads", threads},
                   {"steps", c.times.size()},
                   {"median_us", median},
                   {"min_us", c.times.front()},
                   {"launches", c.launches}});
    if (json != "-") {
      fmt::print("sinter geglu {} {:6} rows={:5d} median {:9.1f} us  min {:9.1f} us  {:2} launches\n", dtype, c.mode, rows, median,
                 c.times.front(), c.launches);
    }
  }
  bench::write_json(out, json);
  return 0;
}

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) { return sinter::bench::run_reporting_errors(sinter::run, argc, argv); }
