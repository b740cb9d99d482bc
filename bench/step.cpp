// Times one training step of an MLP 784-H..-10, eager or fused, on a resident batch of random data:
// the figure that docs/results/ compare.
//
//   step --batch 1,16,64,128,1024 --hidden 256,128 --mode fused --threads 2 --json out.json
//
// Rounds of every case run interleaved (all batches and modes in turn), so that a slow moment of
// the machine hits them alike; the figure is the median over all steps. --json - prints one object
// (an array of them if there are several cases) with median_us.
#include <fmt/format.h>

#include "autograd/autograd.h"
#include "bench/harness.h"
#include "capture/step.h"
#include "core/device/cpu_gemm.h"
#include "core/parallel.h"
#include "core/rng.h"
#include "nn/loss.h"
#include "nn/mlp.h"
#include "nn/optim.h"
#include "ops/gemm_library.h"

namespace sinter {
namespace {

struct Case {
  int64_t batch;
  std::string mode;
  std::shared_ptr<nn::Mlp> net;
  std::unique_ptr<nn::Optimizer> optimizer;
  capture::Step::Function function;
  std::unique_ptr<capture::Step> step;  // fused only
  Tensors inputs;
  std::vector<double> times;
  int64_t launches = 0;  // of a step, counted in its captured graph

  void run() {
    if (step) {
      (*step)(inputs);
    } else {
      function(inputs);
    }
  }
};

Tensor random_batch(int64_t rows, int64_t cols, DType dtype) {
  Tensor x = Tensor::empty({rows, cols});
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = uniform_from_bits(philox_word(3, 0, static_cast<uint64_t>(i)));
  return cast(x, dtype);
}

int run(int argc, char** argv) {
  std::vector<int64_t> batches{128}, hidden{256, 128};
  std::string mode = "eager", dtype = "f32", optimizer = "adam", json, rules = "all",
              products = "onednn", where = "cpu";
  int64_t threads = available_cores(), rounds = 9, steps = 20, warmup = 30;
  cli::Flags flags;
  flags.integers("batch", batches, 1, 1'000'000, "batch sizes");
  flags.integers("hidden", hidden, 1, 1'000'000, "hidden widths");
  flags.choice("dtype", dtype, {"f32", "tf32", "bf16"}, "");
  flags.choice("optimizer", optimizer, {"adam", "sgd"}, "");
  flags.choice("mode", mode, {"eager", "fused", "eager,fused", "fused,eager"}, "in this order");
  flags.word("rules", rules, "LIST", "fusion rules");
  flags.choice("gemm", products, {"onednn", "eigen"}, "who multiplies matrices");
  flags.integer("threads", threads, 1, 1024, "");
  flags.integer("rounds", rounds, 1, 1'000'000, "");
  flags.integer("steps", steps, 1, 1'000'000, "of a round");
  flags.integer("warmup", warmup, 0, 1'000'000, "steps before the first round");
  flags.word("device", where, "NAME",
      "cpu, simt (to look for mistakes: its times mean nothing), cuda, cuda:N");
  flags.word("json", json, "FILE", "or - for stdout");
  if (!bench::read_flags("step", flags, argc, argv)) return 0;
  const std::vector<std::string> modes = cli::split("usage: --mode", mode);
  set_num_threads(static_cast<int>(threads));
  const Device device = Device::parse(where);
  set_allow_tf32(dtype == "tf32");
  set_gemm_backend(products == "eigen" || !has_onednn() ? GemmBackend::eigen : GemmBackend::onednn);

  std::vector<int64_t> sizes{784};
  sizes.insert(sizes.end(), hidden.begin(), hidden.end());
  sizes.push_back(10);
  std::vector<Case> cases;
  for (const int64_t batch : batches) {
    for (const std::string& one : modes) {
      Case c{.batch = batch, .mode = one};
      c.net = std::make_shared<nn::Mlp>(sizes);
      c.net->init_parameters(1);
      if (dtype == "bf16") c.net->enable_bf16();
      c.net->to(device);
      if (optimizer == "adam") {
        c.optimizer = std::make_unique<nn::Adam>(c.net->named_parameters());
      } else {
        c.optimizer =
            std::make_unique<nn::Sgd>(c.net->named_parameters(), nn::SgdOptions{.lr = 0.01});
      }
      nn::Mlp* net = c.net.get();
      nn::Optimizer* opt = c.optimizer.get();
      c.function = [net, opt](const Tensors& in) {
        opt->zero_grad();
        const Tensor losses = cross_entropy((*net)(in[0]), in[1]);
        backward(losses);
        opt->step(losses);
        return Tensors{losses};
      };
      Tensor labels = Tensor::empty({batch}, DType::i32);
      for (int64_t i = 0; i < batch; ++i)
        labels.data<int32_t>()[i] =
            static_cast<int32_t>(philox_word(4, 0, static_cast<uint64_t>(i)) % 10);
      c.inputs = {random_batch(batch, 784, dtype == "bf16" ? DType::bf16 : DType::f32).to(device),
          labels.to(device)};
      c.step = std::make_unique<capture::Step>(c.function,
          capture::StepOptions{.rules = capture::RuleSet(one == "fused" ? rules : "none"),
              .parameters = nn::parameter_visitor(*net)});
      for (int i = 0; i < 2; ++i) (*c.step)(c.inputs);
      c.launches = static_cast<int64_t>(c.step->captured()->executor->launches());
      if (one == "eager") c.step.reset();
      cases.push_back(std::move(c));
    }
  }
  for (Case& c : cases) {
    for (int64_t i = 0; i < warmup; ++i) c.run();
  }
  bench::time_rounds(cases, static_cast<int>(rounds), static_cast<int>(steps), device);
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (Case& c : cases) {
    const double median = c.times[c.times.size() / 2];
    out.push_back({{"peer", "sinter"}, {"mode", c.mode}, {"dtype", dtype}, {"optim", optimizer},
        {"layers", sizes}, {"batch", c.batch}, {"device", device.str()}, {"threads", threads},
        {"steps", c.times.size()}, {"median_us", median}, {"min_us", c.times.front()},
        {"launches", c.launches}});
    if (json != "-") {
      fmt::print("sinter {} {} {:6} B={:5d} median {:9.1f} us  min {:9.1f} us  {:11.0f} rows/s\n",
          dtype, optimizer, c.mode, c.batch, median, c.times.front(),
          1e6 * static_cast<double>(c.batch) / median);
    }
  }
  bench::write_json(out, json);
  return 0;
}

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) {
  sinter::restart_with_short_spin(argv);
  return sinter::bench::run_reporting_errors(sinter::run, argc, argv);
}
