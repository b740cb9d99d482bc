// mnist bench: the whole training step of an MLP 784-H-H-10, eager and fused, over batch x hidden:
// a map of the factor, and where it ends. The rounds of a cell run in pairs in one process, A B B A
// as in compare, so that a slow moment of the machine hits both alike.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/allocator.h"
#include "core/atomic_file.h"
#include "core/json.h"
#include "core/parallel.h"
#include "examples/cli/messages.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/trainer.h"
#include "measure/comparison.h"
#include "measure/timer.h"
#include "profiler/exports.h"
#include "profiler/grid.h"

namespace sinter::mnist {
namespace {

struct BenchFlags {
  TrainFlags train;
  std::string mode = "eager,fused";  // what is timed
  std::string batches = "1..1024", widths = "64..1024";
  std::vector<int64_t> batch, hidden;  // the same
  std::string csv;
  double budget = 60;
  ExportFlags files;
  bool times(const char* one) const { return mode.find(one) != std::string::npos; }
  bool is_map() const { return mode == "eager,fused"; }
};

constexpr int64_t kPairs = 9;
constexpr double kRoundSeconds =
    3e-3;  // at least: shorter rounds are the clock's and the scheduler's

struct Cell {
  profiler::SweepCell map;
  std::string csv;      // a row per mode, for other programs
  std::string threads;  // that it had, and how they were found
  std::string factor;   // of both modes
};

std::string csv_row(const profiler::SweepCell& cell, const char* mode,
    const std::vector<double>& us, const capture::Graph& graph, int64_t peak_bytes) {
  const profiler::Estimate median = profiler::median_interval(us);
  return fmt::format("{},{},{},{},{:.2f},{:.2f},{},{},{},{}\n", cell.batch, cell.hidden, mode,
      profiler::time_text(median.value), median.low, median.high, us.size(), graph.nodes.size(),
      cost_of(graph).bytes(), peak_bytes);
}

// A trainer that has been captured, where its mode asks for it; `peak`: the bytes that a step
// takes.
std::unique_ptr<Trainer> warm_trainer(
    TrainFlags flags, const char* mode, Device device, const Batch& batch, int64_t& peak) {
  const int64_t before = allocator(device).stats().live_bytes;
  flags.mode.mode = mode;
  auto trainer = make_trainer(flags, make_model(flags.model, flags.common->seed, device), 1000);
  for (int i = 0; i < 4; ++i) {  // two are recorded
    allocator(device).reset_peak();
    trainer->step(batch);
  }
  peak = allocator(device).stats().peak_bytes - before;
  return trainer;
}

// Nothing after a signal.
std::optional<Cell> measure_cell(
    const BenchFlags& bench, Device device, const Batch& batch, int64_t hidden) {
  TrainFlags flags = bench.train;
  flags.model.hidden = {hidden, hidden};
  int64_t eager_peak = 0, fused_peak = 0;
  const auto eager = warm_trainer(flags, "eager", device, batch, eager_peak),
             fused = warm_trainer(flags, "fused", device, batch, fused_peak);
  const auto eager_step = [&] { eager->step(batch); };
  const std::string threads =
      cli::choose_threads(flags.common->threads, device, [&] { return eager_step; });
  const double one_us = measure::round_us(eager_step, device, 1, 1);
  measure::Comparison comparison{.device = device, .eager = {}, .fused = {}};
  if (bench.times("eager")) comparison.eager = eager_step;
  if (bench.times("fused")) comparison.fused = [&] { fused->step(batch); };
  if (bench.is_map()) {
    comparison.again = [&]() -> measure::Twin {
      int64_t peak = 0;
      const std::shared_ptr<Trainer> a = warm_trainer(flags, "eager", device, batch, peak),
                                     b = warm_trainer(flags, "fused", device, batch, peak);
      return {[a, &batch] { a->step(batch); }, [b, &batch] { b->step(batch); }};
    };
  }
  const measure::RoundTimes us = measure::time_rounds(
      comparison, {.steps = std::clamp<int64_t>(int64_t(1e6 * kRoundSeconds / one_us), 1, 40),
                      .warmup = 1,
                      .rounds = kPairs,
                      .stopped = interrupted});
  if (interrupted()) return {};
  Cell cell{.map = {.batch = batch.labels.numel(), .hidden = hidden},
      .csv = "",
      .threads = threads,
      .factor = ""};
  const capture::Captured& captured = *fused->captured_step()->captured();
  if (comparison.eager) {
    cell.map.eager_us = profiler::four_digits(profiler::median(us.eager_us));
    cell.csv += csv_row(cell.map, "eager", us.eager_us, captured.recorded, eager_peak);
  }
  if (comparison.fused) {
    cell.map.fused_us = profiler::four_digits(profiler::median(us.fused_us));
    cell.csv += csv_row(cell.map, "fused", us.fused_us, captured.fused.graph, fused_peak);
  }
  if (bench.is_map()) {
    cell.map.ratio = us.factor();
    cell.factor = us.factor_text();
  }
  return cell;
}

const profiler::SweepCell* find(const profiler::Sweep& sweep, int64_t batch, int64_t hidden) {
  for (const profiler::SweepCell& c : sweep.cells) {
    if (c.batch == batch && c.hidden == hidden) return &c;
  }
  return nullptr;
}

// "1..8 and 64": the batches, of those measured, at which fusing is shown faster: it may start to
// win at small or at large ones.
std::string faster_batches(const profiler::Sweep& sweep, int64_t hidden) {
  std::vector<std::string> ranges;
  std::vector<int64_t> range;
  bool measured = false;
  const auto end_range = [&] {
    if (range.size() == 1) ranges.push_back(cat(range[0]));
    if (range.size() > 1) ranges.push_back(cat(range.front(), "..", range.back()));
    range.clear();
  };
  for (const int64_t batch : sweep.batch) {
    const profiler::SweepCell* c = find(sweep, batch, hidden);
    if (!c) continue;
    measured = true;
    if (c->ratio.is_shown() && c->ratio.low > 1) {
      range.push_back(batch);
    } else {
      end_range();
    }
  }
  end_range();
  if (!measured) return "not measured";
  return ranges.empty() ? "none" : join(ranges, " and ");
}

std::string crossover(const profiler::Sweep& sweep) {
  std::vector<std::string> parts;
  for (const int64_t hidden : sweep.hidden)
    parts.push_back(cat("hidden ", hidden, ": ", faster_batches(sweep, hidden)));
  return "crossover (batches at which fused is shown faster): " + join(parts);
}

// With both modes the factor, with one its time.
std::string cell_text(const profiler::SweepCell& c) {
  if (c.eager_us > 0 && c.fused_us > 0)
    return c.ratio.is_shown() ? profiler::times_text(c.ratio) : ".";
  return cli::seconds(1e-6 * std::max(c.eager_us, c.fused_us));
}

// Where the terminal is too narrow the widest layers go first.
std::string map_text(const profiler::Sweep& sweep, const BenchFlags& bench) {
  std::vector<std::string> titles{"batch"};
  for (const int64_t hidden : sweep.hidden) titles.push_back(cat("hidden ", hidden));
  profiler::Grid grid(titles);
  for (const int64_t batch : sweep.batch) {
    std::vector<std::string> cells{cat(batch)};
    for (const int64_t hidden : sweep.hidden) {
      const profiler::SweepCell* c = find(sweep, batch, hidden);
      cells.push_back(c ? cell_text(*c) : "-");
    }
    grid.add(std::move(cells));
  }
  grid.fit(table_width(), {titles.begin() + 1, titles.end()});
  std::string legend = cat("a whole step, ", bench.mode, "; - left out\n");
  if (bench.is_map())
    legend =
        "times eager / fused of a whole step; . within noise (the 95 % interval holds 1, or "
        "is too wide); - left out\n" +
        sweep.crossover + "\n";
  return grid.text() + legend;
}

// The cells of the map as far as the time allows.
class SweepRun {
 public:
  SweepRun(const BenchFlags& bench, Device device, Output& out)
      : bench_(bench), device_(device), out_(out) {
    const int64_t largest = bench.batch.back();
    data_ = load_dataset({.what = "synthetic", .val = 0, .limit = largest});
    SINTER_CHECK(data_.train.size() >= largest, usage,
        cat("usage: --batch out of range: ", largest, "; the synthetic digits are ",
            data_.train.size()));
    data_.to(device);
    sweep.title = fmt::format("mlp 784-H-H-10, {}, {}, {}, {}, rules {}, {} pairs of rounds",
        bench.train.model.dtype, bench.train.optimizer.optimizer, device.str(),
        bench.train.common->threads > 0 || device != kCpu ? count_of(num_threads(), "thread")
                                                          : "threads by trial in each cell",
        bench.train.mode.rules, kPairs);
    sweep.batch = bench.batch;
    sweep.hidden = bench.hidden;
  }

  void measure_all() {
    const std::vector<Size> sizes = by_cost();
    for (const Size& size : sizes) {
      if (interrupted()) break;
      if (timer_.seconds() + (4 * kPairs + 32) * seconds_per_flop_ * size.flops() > bench_.budget) {
        ++left_out;
      } else {
        measure_one(size);
      }
    }
    sweep.crossover = crossover(sweep);
    if (left_out > 0) {
      out_.note("bench", "{} of {} left out, the largest: --budget {} s is used up",
          count_of(left_out, "cell"), sizes.size(), bench_.budget);
    }
  }

  profiler::Sweep sweep;
  int64_t left_out = 0;
  std::string no_memory;  // the cells that did not fit
  std::string csv = "batch,hidden,mode,median_us,low_us,high_us,rounds,launches,bytes,peak_bytes\n";

 private:
  struct Size {
    int64_t batch, hidden;
    double flops() const { return 6.0 * double(batch * hidden) * double(794 + hidden); }
  };
  // The cheap cells first, so that what the budget leaves out are few and large.
  std::vector<Size> by_cost() const {
    std::vector<Size> sizes;
    for (const int64_t b : bench_.batch) {
      for (const int64_t h : bench_.hidden) sizes.push_back({b, h});
    }
    std::ranges::stable_sort(sizes, {}, &Size::flops);
    return sizes;
  }

  void measure_one(const Size& size) {
    BatchOptions options = bench_.train.batches(device_);
    options.size = size.batch;
    const Batch batch = Batches(data_.train, options).next();
    const std::string where = fmt::format("batch {} hidden {}", size.batch, size.hidden);
    std::optional<Cell> cell;
    try {
      cell = measure_cell(bench_, device_, batch, size.hidden);
    } catch (const Error& error) {
      if (error.kind() != Error::Kind::memory) throw;
      no_memory += (no_memory.empty() ? "" : ", ") + where;
      return;
    }
    if (!cell) return;
    const profiler::SweepCell& map = cell->map;
    std::string found = cell_text(map);
    if (bench_.is_map())
      found = fmt::format("{} -> {} us, {}", profiler::time_text(map.eager_us),
          profiler::time_text(map.fused_us), cell->factor);
    out_.note("cell", "{}: {}, {}", where, found, cell->threads);
    seconds_per_flop_ = std::max(map.eager_us, map.fused_us) * 1e-6 / size.flops();
    sweep.cells.push_back(map);
    csv += cell->csv;
  }

  const BenchFlags& bench_;
  Device device_;
  Output& out_;
  Dataset data_;
  measure::Timer timer_;
  double seconds_per_flop_ = 0;  // of the cell before
};

int run_bench(const BenchFlags& bench, Output& out) {
  const CommonFlags& common = *bench.train.common;
  const Device device = choose_device(common.device).first;
  SINTER_CHECK(device.type != Device::Type::simt, usage,
      "usage: bench needs a device whose times mean something: the device is simt",
      "mnist compare --device simt counts launches and bytes");
  const profiler::Exports files = bench.files.exports("bench", false);
  if (!files.formats.empty()) files.check(bench.files.force);
  if (!bench.csv.empty()) check_writable(bench.csv, "--csv", bench.files.force);
  catch_signals();
  SweepRun run(bench, device, out);
  run.measure_all();
  out.result("bench", run.sweep.title);
  if (!run.no_memory.empty()) out.note("bench", "memory limit reached: " + run.no_memory);
  out.result_text("\n" + map_text(run.sweep, bench));
  if (!bench.csv.empty()) write_file(bench.csv, run.csv);
  if (files.has("html")) {
    write_file(files.base + ".html",
        profiler::html_report(
            {.title = "mnist bench", .command = common.command, .sweep = &run.sweep}));
  }
  out.json("sinter.bench/1",
      {{"title", run.sweep.title}, {"left_out", run.left_out}, {"cells", run.sweep.cells}});
  return interrupted() ? exit_code(Error::Kind::interrupted) : 0;
}

}  // namespace

void add_bench(App& app) {
  static BenchFlags bench;
  Command& command = app.add("bench",
      "Times the whole step of an MLP 784-H-H-10, eager against fused, over batch and hidden "
      "sizes, and draws a map of it.");
  bench.train.common = &app.common();
  Flags& flags = command.flags;
  flags.topic("sweep");
  flags.word("batch", bench.batches, "SIZES", "by doubling, or a list 1,100,4096").once = true;
  flags.word("hidden", bench.widths, "SIZES", "widths H, alike").once = true;
  flags.choice("dtype", bench.train.model.dtype, {"f32", "bf16"},
      "bf16: activations and copies of the weights");
  add_optimizer_flag(flags, bench.train.optimizer.optimizer);
  flags.choice(
      "mode", bench.mode, {"eager,fused", "eager", "fused"}, "what is timed; both give the map");
  add_rules_flag(flags, bench.train.mode.rules);
  flags.number("budget", bench.budget, 1, 1e6,
      "seconds; what does not fit is left out, the largest cells first, and said");
  flags.word("csv", bench.csv, "FILE", "write the cells as a table for other programs");
  not_saved(add_profile_flag(flags, bench.files, {"html"}, "the map as a page: html"));
  add_output_flags(flags, bench.files);
  command.check = [&flags] {
    bench.batch = parse_sizes("usage: --batch", bench.batches);
    bench.hidden = parse_sizes("usage: --hidden", bench.widths);
    resolve_step(flags, bench.train);
    SINTER_CHECK(bench.is_map() || bench.files.formats.empty(), usage,
        cat("usage: --profile=html draws the map of both modes: --mode is ", bench.mode),
        "--mode eager,fused");
  };
  command.run = [](Output& out) { return run_bench(bench, out); };
}

}  // namespace sinter::mnist
