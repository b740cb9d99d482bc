// Times attention, forward and with its backward, beside its floor: the multiply-adds that its
// causal half has, at the rate of a matrix product that runs in turn with it, in f32. No [S, T] is
// in memory: the peak is that of the allocator, of one call, beside its operands.
//
//   attention --shape 1,4,1024,64 --dtype f32,bf16 --threads 2 --json >out.json
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <ranges>

#include "autograd/tape.h"
#include "cli/app.h"
#include "cli/step.h"
#include "core/allocator.h"
#include "core/json.h"
#include "core/parallel.h"
#include "measure/comparison.h"
#include "ops/ops.h"

namespace sinter {
namespace {

struct AttentionFlags {
  std::vector<int64_t> shape{1, 4, 1024, 64};
  std::string dtype = "f32,bf16";
  bool full = false;
  int64_t rounds = 15, calls = 5;
};

// What is timed: a call, and the operations of its floor.
struct Timed {
  std::string dtype, what;
  double flops;
  std::function<void()> call;
  std::vector<double> us{};
  int64_t peak_bytes = 0;
  double median() {
    std::ranges::sort(us);
    return us[us.size() / 2];
  }
};

std::vector<Timed> calls_of(const Shape& n, DType dtype, bool causal, Device device) {
  Tensors in;
  for (uint64_t seed = 1; seed <= 4; ++seed)
    in.push_back(cast(sample_tensor(n, seed, -1, 1), dtype).to(device));
  const double pairs = causal ? double(n[2]) * double(n[2] + 1) / 2 : double(n[2]) * double(n[2]),
               forward = 4 * double(n[0] * n[1] * n[3]) * pairs;
  const AttentionAttrs attrs{1 / std::sqrt(double(n[3])), causal};
  const auto both = [in, attrs] {
    const Tensors o = apply(kAttentionOp, {in[0], in[1], in[2]}, attrs);
    apply(kAttentionBackwardOp, {in[3], in[0], in[1], in[2], o[0], o[1]}, attrs);
  };
  const std::string name(name_of(dtype));
  return {{name, "forward", forward,
              [in, attrs] {
                apply(kAttentionOp, {in[0], in[1], in[2]}, attrs);
              }},
      {name, "both", 3.5 * forward, both}};
}

int run(const AttentionFlags& flags, const cli::CommonFlags& common, cli::Output& out) {
  SINTER_CHECK(flags.shape.size() == 4, usage,
      str("usage: --shape has ", flags.shape.size(), " numbers; B,H,S,D are 4"));
  if (common.threads == 0) set_num_threads(available_cores());
  const Device device = cli::choose_device(common.device).first;
  const NoGrad no_grad;
  const Tensor a = cast(sample_tensor({768, 768}, 1), DType::f32).to(device);
  std::deque<Timed> all{{"f32", "product", 2.0 * 768 * 768 * 768, [a] { matmul(a, a); }}};
  for (const std::string& dtype : cli::split("usage: --dtype", flags.dtype)) {
    for (Timed& timed : calls_of(
             Shape(flags.shape), dtype == "bf16" ? DType::bf16 : DType::f32, !flags.full, device))
      all.push_back(std::move(timed));
  }
  for (Timed& t : all) {
    const int64_t before = allocator(device).stats().live_bytes;
    allocator(device).reset_peak();
    t.call();
    t.peak_bytes = allocator(device).stats().peak_bytes - before;
  }
  for (int64_t round = 0; round < flags.rounds; ++round) {
    for (Timed& t : all) {
      const auto us = measure::step_times_us(t.call, device, flags.calls);
      t.us.insert(t.us.end(), us.begin(), us.end());
    }
  }
  const double rate = all[0].flops / all[0].median();  // FLOP a us
  out.result_text(
      fmt::format("product of 768: {:.1f} GFLOP/s on {} threads\n", rate / 1e3, num_threads()));
  Json rows = Json::array();
  for (Timed& t : all | std::views::drop(1)) {
    const double floor = t.flops / rate;
    rows.push_back({{"peer", "sinter"}, {"shape", flags.shape}, {"dtype", t.dtype},
        {"what", t.what}, {"device", device}, {"threads", num_threads()}, {"median_us", t.median()},
        {"floor_us", floor}, {"peak_bytes", t.peak_bytes}});
    out.result_text(
        fmt::format("{} {:4} {:7}  median {:9.1f} us  floor {:9.1f} us  time / floor {:5.2f}  "
                    "peak {:7.2f} MB\n",
            Shape(flags.shape).str(), t.dtype, t.what, t.median(), floor, t.median() / floor,
            double(t.peak_bytes) / 1e6));
  }
  out.json("sinter.attention/1", {{"rows", rows}});
  return 0;
}

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) {
  using namespace sinter;
  restart_with_short_spin(argv);
  AttentionFlags attention;
  cli::App app("attention", "");
  app.common().device = "cpu";  // unless --device says another
  app.add("attention", "", [&attention](cli::App& here, cli::Command& command) {
    cli::Flags& flags = command.flags;
    flags.number("shape", attention.shape, 1, 1'000'000, "B,H,S,D of q, k and v");
    flags.choice("dtype", attention.dtype, {"f32", "bf16", "f32,bf16"}, "");
    flags.toggle("full", attention.full, "each row reads all keys; without: causal");
    flags.number("rounds", attention.rounds, 1, 1'000'000, "");
    flags.number("calls", attention.calls, 1, 1'000'000, "of a round");
    command.run = [&attention, &here](
                      cli::Output& out) { return run(attention, here.common(), out); };
  });
  return app.main(argc, argv);
}
