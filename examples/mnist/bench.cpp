// mnist bench: the whole training step of an MLP 784-H-H-10, eager and fused, over batch x hidden: a map of the factor, and where it ends.
// The rounds of a cell run in pairs in one process, A B B A as in compare, so that a slow moment of the machine hits both alike.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>

#include "capture/rules.h"
#include "core/atomic_file.h"
#include "core/device/memory.h"
#include "core/parallel.h"
#include "examples/cli/messages.h"
#include "examples/cli/profile_files.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/trainer.h"
#include "profiler/exports.h"

namespace sinter::mnist {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct BenchFlags {
  TrainFlags train;
  std::vector<int64_t> batch, hidden;
  std::string csv, modes = "eager,fused";
  bool runs(bool fused) const { return modes.find(fused ? "fused" : "eager") != std::string::npos; }
  bool both() const { return runs(false) && runs(true); }
  double budget = 60;
  cli::ExportFlags files;
};

// "1..1024" by doubling, or "1,100,4096".
std::vector<int64_t> parse_sizes(const std::string& what, const std::string& text) {
  constexpr int64_t kLow = 1, kHigh = 1'000'000;
  std::vector<int64_t> out;
  if (const size_t dots = text.find(".."); dots != std::string::npos) {
    const int64_t low = cli::parse_integer(what, text.substr(0, dots), kLow, kHigh);
    const int64_t high = cli::parse_integer(what, text.substr(dots + 2), low, kHigh);
    for (int64_t n = low; n <= high; n *= 2) out.push_back(n);
    return out;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(cli::parse_integer(what, text.substr(begin, end - begin), kLow, kHigh));
    begin = end + 1;
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

double round_us(Trainer& trainer, const Batch& batch, int64_t steps) {
  std::vector<double> times;
  for (int64_t i = -1; i < steps; ++i) {  // the first warms the cache up again
    const auto begin = Clock::now();
    trainer.step(batch);
    synchronize(batch.images.device());
    if (i >= 0) times.push_back(1e6 * seconds_since(begin));
  }
  return profiler::median(times);
}

constexpr int64_t kPairs = 9;
constexpr double kRoundSeconds = 3e-3;  // at least: shorter rounds are the clock's and the scheduler's

profiler::SweepCell measure(const BenchFlags& bench, Device device, const Batch& batch, int64_t hidden) {
  TrainFlags flags = bench.train;
  flags.model.hidden = {hidden, hidden};
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const bool fused : {false, true}) {
    if (!bench.runs(fused)) continue;
    flags.mode.mode = fused ? "fused" : "eager";
    trainers.push_back(std::make_unique<Trainer>(flags, make_model(flags.model, flags.common->seed, device), 1000));
    for (int i = 0; i < 3; ++i) trainers.back()->step(batch);  // two are recorded
  }
  const double one = round_us(*trainers[0], batch, 1) * 1e-6;
  const int64_t steps = std::clamp<int64_t>(static_cast<int64_t>(kRoundSeconds / one), 1, 40);
  std::vector<double> us[2];
  for (int64_t pair = 0; pair < kPairs && !cli::interrupted(); ++pair) {
    for (const bool fused : {pair % 2 == 1, pair % 2 == 0}) {
      if (bench.runs(fused)) us[fused].push_back(round_us(*trainers[bench.both() && fused], batch, steps));
    }
  }
  if (us[0].empty() && us[1].empty()) return {};
  const auto median = [](const std::vector<double>& times) { return times.empty() ? 0 : profiler::median(times); };
  profiler::SweepCell cell{batch.labels.numel(), hidden, median(us[0]), median(us[1])};
  if (bench.both()) cell.ratio = profiler::paired_ratio(us[0], us[1]);
  return cell;
}

const profiler::SweepCell* find(const profiler::Sweep& sweep, int64_t batch, int64_t hidden) {
  for (const profiler::SweepCell& c : sweep.cells) {
    if (c.batch == batch && c.hidden == hidden) return &c;
  }
  return nullptr;
}

// Per hidden size the batch from which fusing no longer shows a gain.
std::string crossover(const profiler::Sweep& sweep) {
  std::string out = "crossover (the batch from which fused is no longer shown faster):";
  for (const int64_t hidden : sweep.hidden) {
    int64_t from = 0, last = 0;
    for (const int64_t batch : sweep.batch) {
      const profiler::SweepCell* c = find(sweep, batch, hidden);
      if (!c) continue;
      last = batch;
      if (c->ratio.has_interval && c->ratio.low > 1)
        from = 0;
      else if (from == 0)
        from = batch;
    }
    const std::string where = last == 0 ? "not measured" : from == 0 ? fmt::format("none up to {}", last) : std::to_string(from);
    out += fmt::format("{} hidden {}: {}", hidden == sweep.hidden.front() ? "" : ",", hidden, where);
  }
  return out;
}

std::string map_text(const profiler::Sweep& sweep, bool both) {
  std::string out = fmt::format("{:>6}", "batch");
  for (const int64_t hidden : sweep.hidden) out += fmt::format("  {:>12}", fmt::format("hidden {}", hidden));
  out += "\n";
  for (const int64_t batch : sweep.batch) {
    out += fmt::format("{:>6}", batch);
    for (const int64_t hidden : sweep.hidden) {
      const profiler::SweepCell* c = find(sweep, batch, hidden);
      out += fmt::format("  {:>12}", !c                     ? "-"
                                     : !both                ? fmt::format("{:.1f} us", c->eager_us + c->fused_us)
                                     : c->ratio.contains(1) ? "."
                                                            : fmt::format("{:.2f}x", c->ratio.value));
    }
    out += "\n";
  }
  if (!both) return out + "a whole step, median of rounds; - left out\n";
  return out + "times eager / fused of a whole step; . within noise (the 95 % interval holds 1); - left out\n" + sweep.crossover + "\n";
}

int run_bench(const cli::CommonFlags& common, BenchFlags& bench, cli::Output& out) {
  const Device device = choose_device(common.device).first;
  SINTER_CHECK(device.type != Device::Type::simt, usage, "usage: bench needs a device whose times mean something: the device is simt",
               "mnist compare --device simt counts launches and bytes");
  const profiler::Exports files = bench.files.exports("bench", false);
  SINTER_CHECK(bench.both() || files.formats.empty(), usage, cat("usage: --profile needs --mode eager,fused: the mode is ", bench.modes));
  if (!files.formats.empty()) files.check(bench.files.force);
  if (!bench.csv.empty()) cli::check_writable(bench.csv, "--csv", bench.files.force);
  cli::catch_signals();
  if (common.threads > 0) set_num_threads(static_cast<int>(common.threads));
  const int64_t largest = bench.batch.back();
  Dataset data = load_dataset({.what = "synthetic", .val = 0, .limit = largest});
  SINTER_CHECK(data.train.size() >= largest, usage,
               cat("usage: --batch out of range: ", largest, "; the synthetic digits are ", data.train.size()));
  data.to(device);

  profiler::Sweep sweep{.title = fmt::format("mlp 784-H-H-10, {}, {}, {}, {}, rules {}, {} pairs of rounds", bench.train.model.dtype,
                                             bench.train.optimizer.optimizer, device.str(), count_of(num_threads(), "thread"),
                                             bench.train.mode.rules, kPairs),
                        .batch = bench.batch,
                        .hidden = bench.hidden};
  const auto flops = [](int64_t batch, int64_t hidden) {
    return 6.0 * static_cast<double>(batch * hidden) * static_cast<double>(794 + hidden);
  };
  std::vector<std::pair<int64_t, int64_t>> order;  // the cheap cells first, so that what the budget leaves out are few and large
  for (const int64_t b : bench.batch) {
    for (const int64_t h : bench.hidden) order.emplace_back(b, h);
  }
  std::stable_sort(order.begin(), order.end(), [&](auto x, auto y) { return flops(x.first, x.second) < flops(y.first, y.second); });
  const auto begin = Clock::now();
  double seconds_per_flop = 0;
  int64_t left_out = 0;
  for (const auto& [size, hidden] : order) {
    if (cli::interrupted()) break;
    if (seconds_since(begin) + (4 * kPairs + 16) * seconds_per_flop * flops(size, hidden) > bench.budget) {
      ++left_out;
      continue;
    }
    Batches batches(data.train, {.size = size, .seed = common.seed, .dtype = bench.train.model.batch_dtype()});
    const profiler::SweepCell cell = measure(bench, device, batches.next(), hidden);
    if (cell.batch == 0) break;
    out.detail(bench.both() ? fmt::format("batch {} hidden {}: {:.1f} -> {:.1f} us, {}", size, hidden, cell.eager_us, cell.fused_us,
                                          profiler::factor_text(cell.ratio, kPairs))
                            : fmt::format("batch {} hidden {}: {:.1f} us", size, hidden, cell.eager_us + cell.fused_us));
    seconds_per_flop = std::max(cell.eager_us, cell.fused_us) * 1e-6 / flops(size, hidden);
    sweep.cells.push_back(cell);
  }
  sweep.crossover = crossover(sweep);
  if (left_out > 0) {
    out.note("bench", fmt::format("{} of {} left out, the largest: --budget {} s is used up", count_of(left_out, "cell"), order.size(),
                                  bench.budget));
  }
  out.result("bench", sweep.title);
  out.result_text("\n" + map_text(sweep, bench.both()));
  std::string csv = "batch,hidden,eager_us,fused_us,ratio,low,high\n";  // 0: not measured
  nlohmann::ordered_json cells = nlohmann::ordered_json::array();
  for (const profiler::SweepCell& c : sweep.cells) {
    csv += fmt::format("{},{},{:.2f},{:.2f},{:.4f},{:.4f},{:.4f}\n", c.batch, c.hidden, c.eager_us, c.fused_us, c.ratio.value, c.ratio.low,
                       c.ratio.high);
    cells.push_back({{"batch", c.batch},
                     {"hidden", c.hidden},
                     {"eager_us", c.eager_us},
                     {"fused_us", c.fused_us},
                     {"ratio", c.ratio.value},
                     {"low", c.ratio.low},
                     {"high", c.ratio.high}});
  }
  if (!bench.csv.empty()) write_file(bench.csv, csv);
  if (files.has("html"))
    write_file(files.base + ".html", profiler::html_report({.title = "mnist bench", .command = common.command, .sweep = &sweep}));
  out.json({{"schema", "sinter.bench/1"}, {"title", sweep.title}, {"left_out", left_out}, {"cells", std::move(cells)}});
  return cli::interrupted() ? cli::exit_code(Error::Kind::interrupted) : 0;
}

void add_sizes(cli::Flags& flags, const char* name, std::vector<int64_t>& target, const std::string& standard, const std::string& help) {
  static std::deque<std::string> texts;  // a flag's own text, as it was given
  std::string& text = texts.emplace_back(standard);
  target = parse_sizes("", standard);
  cli::Flag& flag = flags.word(name, text, "SIZES", help);
  flag.once = true;
  flag.set = [&text, &target, name](const std::string& given, const std::string&) {
    target = parse_sizes(cat("usage: --", name), given);
    text = given;
  };
}

}  // namespace

void add_bench(cli::App& app) {
  static BenchFlags bench;
  cli::Command& command = app.add(
      "bench", "Times the whole step of an MLP 784-H-H-10, eager against fused, over batch and hidden sizes, and draws a map of it.");
  bench.train.common = &app.common();
  bench.train.mode.measure = "on";
  cli::Flags& flags = command.flags;
  flags.topic("sweep");
  add_sizes(flags, "batch", bench.batch, "1..1024", "by doubling, or a list 1,100,4096");
  add_sizes(flags, "hidden", bench.hidden, "64..1024", "widths H, alike");
  flags.choice("dtype", bench.train.model.dtype, {"f32", "bf16"}, "bf16: activations and copies of the weights");
  flags.choice("optimizer", bench.train.optimizer.optimizer, {"adam", "adamw", "sgd"}, "");
  flags.choice("mode", bench.modes, {"eager,fused", "eager", "fused"}, "one by itself gives times and no factor");
  cli::Flag& rules = flags.word("rules", bench.train.mode.rules, "LIST", "fusion rules: all, none, or NAME and -NAME from left to right");
  rules.once = true;
  rules.set = [](const std::string& text, const std::string&) { bench.train.mode.rules = capture::RuleSet(text).text(); };
  flags.number("budget", bench.budget, 1, 1e6, "seconds; what does not fit is left out, the largest cells first, and said");
  flags.word("csv", bench.csv, "FILE", "write the cells as a table for other programs");
  cli::add_export_flags(flags, bench.files, {"html"}, "the map as a page: html");
  command.check = [] { resolve_step(bench.train); };
  command.run = [&app](cli::Output& out) { return run_bench(app.common(), bench, out); };
}

}  // namespace sinter::mnist
