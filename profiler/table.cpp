// table(): the rows of a profile in columns, between its header and its closing lines
// (table_lines.cpp). Sums are divided by the active steps and rounded once, when printed. What was
// not measured is "-", an estimate "est".
#include "profiler/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <regex>

#include "core/error.h"
#include "core/numbers.h"
#include "core/text_grid.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

using detail::us;

std::string fixed(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }
std::string or_dash(bool is_there, const std::string& text) { return is_there ? text : "-"; }

void add_to(Row& sum, const Row& row) {
  sum.calls += row.calls;
  sum.launches += row.launches;
  sum.untimed += row.untimed;
  sum.unproved += row.unproved;
  sum.cost += row.cost;
  sum.memory += row.memory;
  sum.self_ns += row.self_ns;
  sum.total_ns += row.total_ns;
  sum.kernel_ns += row.kernel_ns;
  sum.device_ns += row.device_ns;
  sum.device_total_ns += row.device_total_ns;
  sum.typical_ns += row.typical_ns;
  sum.typical_total_ns += row.typical_total_ns;
  sum.typical_kernel_ns += row.typical_kernel_ns;
  if (row.share) sum.share = sum.share.value_or(0) + *row.share;
}

double host_total_ns(const Row& r, bool cpu) {
  return cpu ? r.typical_total_ns : double(r.total_ns);
}

struct SortKey {
  const char* name;
  double (*value)(const Row&, bool cpu);
};
// torch's keys; `device` says the same as `cuda`. On the CPU times are those of a typical step, as
// they are shown; beside a device's the host's are sums.
constexpr SortKey kSortKeys[] = {
    {"self_cuda_time_total", [](const Row& r, bool) { return r.typical_ns; }},
    {"cuda_time_total", [](const Row& r, bool) { return r.typical_total_ns; }},
    {"self_cpu_time_total",
        [](const Row& r, bool cpu) { return cpu ? r.typical_ns : double(r.self_ns); }},
    {"cpu_time_total", [](const Row& r, bool cpu) { return host_total_ns(r, cpu); }},
    {"cpu_time",
        [](const Row& r, bool cpu) {
          return host_total_ns(r, cpu) / double(std::max<int64_t>(r.calls, 1));
        }},
    {"dispatch_time_total", [](const Row& r, bool) { return r.dispatch_ns(); }},
    {"count", [](const Row& r, bool) { return double(r.calls); }},
    {"flops", [](const Row& r, bool) { return double(r.cost.flops); }},
    {"bytes", [](const Row& r, bool) { return double(r.cost.bytes()); }},
    {"xpred", [](const Row& r, bool) { return r.xpred(); }},
};

SortKey sort_key(std::string wanted) {
  if (const size_t at = wanted.find("device"); at != std::string::npos)
    wanted.replace(at, 6, "cuda");
  std::vector<std::string_view> names;
  for (const SortKey& key : kSortKeys) names.emplace_back(key.name);
  check_known("table: unknown sort key", wanted, names);
  return *std::ranges::find(kSortKeys, wanted, [](const SortKey& key) { return key.name; });
}

// "12x8"
std::string shape_text(const std::array<int, 3>& n) {
  std::string out = std::to_string(n[0]);
  if (n[1] > 1 || n[2] > 1) out += fmt::format("x{}", n[1]);
  return n[2] > 1 ? out + fmt::format("x{}", n[2]) : out;
}

std::regex filter_of(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error&) {
    throw Error(Error::Kind::usage, str("table: not a regular expression: ", escaped(text)),
        "matmul|linear");
  }
}

class Table {
 public:
  Table(const Profile& profile, const TableOptions& options)
      : profile_(profile),
        options_(options),
        cpu_(profile.device == kCpu),
        emulated_(profile.device.type == Device::Type::simt),
        timed_(cpu_ || profile.source == Source::cupti),
        steps_(double(profile.steps.size())) {
    for (const Row& row : profile.rows) {
      if (row.kind == ScopeKind::op) add_to(ops_, row);
    }
  }

  TextGrid grid() const {
    std::vector<Row> folded, apart;
    const std::vector<Row> shown = shown_rows(folded, apart);
    std::vector<std::string> titles;
    for (const Cell& cell : cells_of({}, false)) titles.emplace_back(cell.title);
    TextGrid grid(titles);
    const auto add = [&](const Row& row, bool is_fold) {
      std::vector<std::string> line;
      for (Cell& cell : cells_of(row, is_fold)) line.push_back(std::move(cell.text));
      grid.add(std::move(line));
    };
    for (const Row& row : shown) add(row, false);
    if (!folded.empty()) add(fold(folded), true);
    for (const Row& row : apart) add(row, false);
    // What a narrow table can do without, the most wanted first.
    grid.fit(options_.width, {"Flags", "xpred", "MFLOP", "kB", "Rate", "Launch", "CPU total",
                                 "CUDA total", "p95", "Disp", "Pred", "Made of", "FLOP/B"});
    return grid;
  }

  std::string text() const {
    return wrapped(detail::header_line(profile_), options_.width) + grid().text() +
           wrapped(detail::closing_lines(profile_, ops_) + memory_line() + footprint_note(),
               options_.width) +
           (options_.scopes ? scope_block() : "");
  }

 private:
  struct Cell {
    const char* title;  // '<': text
    std::string text;
  };

  bool is_small(const Row& row) const { return timed_ && row.share.value_or(0) < kSmallRow; }

  // In order; `folded` gets the small ones and what the limit cuts off, but never a single small
  // one; `apart` what is no op.
  std::vector<Row> shown_rows(std::vector<Row>& folded, std::vector<Row>& apart) const {
    SortKey key{"", [](const Row& row, bool) { return row.typical_ns; }};
    if (emulated_) key = sort_key("count");
    if (!options_.sort_by.empty()) key = sort_key(options_.sort_by);
    const std::regex filter = filter_of(options_.filter);
    std::vector<Row> rows;
    for (const Row& row : profile_.rows) {
      const bool left_out = options_.no_meta && row.kind == ScopeKind::op && row.launches == 0;
      if (row.in_table() && !left_out && std::regex_search(row.name, filter)) rows.push_back(row);
    }
    std::ranges::stable_sort(
        rows, std::greater(), [&](const Row& row) { return key.value(row, cpu_); });

    const bool no_limit = options_.row_limit < 0;
    const size_t limit = no_limit ? rows.size() : size_t(options_.row_limit);
    std::vector<Row> shown;
    for (Row& row : rows) {
      if (row.kind != ScopeKind::op) {
        apart.push_back(std::move(row));
        continue;
      }
      const bool fits = shown.size() < limit && (no_limit || !is_small(row));
      (fits ? shown : folded).push_back(std::move(row));
    }
    if (folded.size() == 1 && shown.size() < limit) {
      shown.push_back(std::move(folded.back()));
      folded.clear();
    }
    return shown;
  }

  Row fold(const std::vector<Row>& rows) const {
    Row rest;
    for (const Row& row : rows) add_to(rest, row);
    if (profile_.roofline && rest.launches > 0) {
      rest.pred_ns = profile_.roofline->predicted_ns(rest.launches, rest.cost);
      if (rest.cost != Cost{}) rest.roof = profile_.roofline->share(rest.cost, rest.typical_ns);
    }
    const bool all_small =
        std::all_of(rows.begin(), rows.end(), [this](const Row& row) { return is_small(row); });
    rest.name = fmt::format(
        "{} {} row{}", rows.size(), all_small ? "small" : "other", rows.size() == 1 ? "" : "s");
    return rest;
  }

  // 25, or 3.5 where a sum does not divide evenly.
  std::string per_step(int64_t sum) const {
    const double value = double(sum) / steps_;
    return fixed(value, value == std::floor(value) ? 0 : 2);
  }
  // Is so much time of the row one that was measured?
  bool is_timed(const Row& row, double ns) const {
    const bool launches_nothing = row.launches == 0 && row.kind == ScopeKind::op && ns == 0;
    return cpu_ || (timed_ && !launches_nothing && row.untimed == 0);
  }

  // What stands in each column for a row, or for several as one.
  std::vector<Cell> cells_of(const Row& r, bool folded) const {
    const bool cuda = !cpu_, host_per_row = !profile_.replayed;
    const bool memory = asks("memory"), footprint = asks("footprint");
    const bool has_work = r.cost != Cost{}, has_kernel = !r.kernels.empty();
    const double us = 1e3 * steps_, kB = 1e3 * steps_;
    std::vector<Cell> out;
    const auto text = [&](const char* title, bool shown, bool known, std::string cell) {
      if (shown) out.push_back({title, known ? std::move(cell) : "-"});
    };
    const auto number = [&](const char* title, bool shown, bool known, double value, int digits,
                            const char* unit = "") {
      text(title, shown, known, fixed(value, digits) + unit);
    };
    const auto time = [&](const char* title, bool shown, double ns) {
      number(title, shown, is_timed(r, ns), ns / us, 1, "us");
    };
    number("Self%", cpu_, r.share.has_value(), 100 * r.share.value_or(0), 1);
    number("CUDA%", cuda, r.share.has_value(), 100 * r.share.value_or(0), 1);
    time("Self CPU", cpu_, r.typical_ns);
    time("CPU total", cpu_, r.typical_total_ns);
    time("Self CUDA", cuda, r.typical_ns);
    time("CUDA total", cuda && host_per_row, r.typical_total_ns);
    const double p95_ns = p95(std::vector<double>(r.samples.begin(), r.samples.end()));
    number("p95", true, !folded && is_timed(r, p95_ns), p95_ns / 1e3, 1, "us");
    number("Disp", cpu_, r.launches > 0, r.dispatch_ns() / us, 1);
    number("Self CPU", cuda && host_per_row, !emulated_, double(r.self_ns) / us, 1, "us");
    text("Calls", true, true, per_step(r.calls));
    text("Launch", cuda, r.launches > 0, (r.unproved > 0 ? ">=" : "") + per_step(r.launches));
    const double flops = double(r.cost.flops), bytes = double(r.cost.bytes());
    number("MFLOP", true, has_work, flops / steps_ / 1e6, 2);
    number("kB", true, has_work, bytes / kB, 1);
    number("FLOP/B", true, !folded && bytes > 0, flops / bytes, 2);
    number("Alloc kB", memory, true, double(r.memory.allocated) / kB, 1);
    number("Freed kB", memory, true, double(r.memory.freed) / kB, 1);
    number("Peak kB", memory, true, double(r.memory.peak) / 1e3, 1);
    number("Kept kB", memory, true, double(r.memory.kept) / kB, 1);
    const bool by_flops = flops >= kFlopRateFrom * bytes;
    number("Rate", cpu_, !folded && has_work && r.typical_ns > 0,
        (by_flops ? flops : bytes) / r.typical_ns, 1, by_flops ? " GF/s" : " GB/s");
    number("%roof", true, !folded && r.roof, 100 * r.roof.value_or(0), cpu_ ? 0 : 1);
    number("Pred", true, r.pred_ns > 0, r.pred_ns.value_or(0) / us, 1, "us");
    number("xpred", true, r.xpred() > 0, r.xpred(), 1, "x");
    const RowCode code = r.verdict.code;
    const bool apart = r.kind != ScopeKind::op;  // "data", "runtime"
    text("<Verdict", true, apart || code != RowCode::unknown,
        std::string(apart ? name_of(r.kind) : name_of(code)));
    text("<Name", true, true, escaped(r.name));
    text("<Flags", true, true, r.flags);
    text("<Made of", cuda && profile_.replayed, !r.made_of.empty(), r.made_of);
    text("<Shapes", options_.group_by_input_shape, true, r.shapes);
    // Of its longest kernel.
    const KernelSum kernel = has_kernel ? r.kernels[0] : KernelSum{};
    const Footprint f = kernel.footprint.value_or(Footprint{});
    const Occupancy o = kernel.occupancy.value_or(Occupancy{});
    const auto told = [](std::optional<int> n) { return n ? std::to_string(*n) : "?"; };
    text("Grid", footprint, !!kernel.footprint, shape_text(f.grid));
    text("Block", footprint, !!kernel.footprint, shape_text(f.block));
    text("Regs", footprint, !!kernel.footprint, told(f.registers));
    text("Shared", footprint, !!kernel.footprint,
        told(f.static_shared) + "+" + told(f.dynamic_shared));
    number("Occ%", footprint, !!kernel.occupancy, 100 * o.share, 1);
    text("<Limit", footprint, !!kernel.occupancy, o.limit);
    number("Waves", footprint, !!kernel.occupancy, o.waves, 2);
    number("Tail%", footprint, !!kernel.occupancy, 100 * o.tail, 0);
    const std::string others = r.kernels.size() > 1 ? str("(+", r.kernels.size() - 1, ") ") : "";
    text("<Kernel", footprint, has_kernel, others + escaped(kernel.name));
    return out;
  }

  bool asks(std::string_view columns) const {
    return std::ranges::count(parts_of(options_.columns, ","), columns) > 0;
  }

  // What other scopes and the loop took and gave back is the rest. The rows of a replay are of the
  // arena, beside what the allocator says.
  std::string memory_line() const {
    if (!asks("memory")) return "";
    const auto kB = [this](int64_t bytes) { return fixed(double(bytes) / steps_ / 1e3, 1); };
    const auto sum = [&](const char* what, int64_t MemoryUse::*bytes) {
      const int64_t all = profile_.memory.*bytes, ops = ops_.memory.*bytes - profile_.arena.*bytes;
      return str(what, kB(all), " = ops ", kB(ops), " + rest of step ", kB(all - ops), " kB");
    };
    const MemoryUse& arena = profile_.arena;
    const std::string plan = str("arena: allocated ", kB(arena.allocated), " kB by its plan, peak ",
        fixed(double(arena.peak) / 1e3, 1), " kB\n");
    return str("memory: ", sum("allocated ", &MemoryUse::allocated),
        sum(", freed ", &MemoryUse::freed), "\n", arena.peak > 0 ? plan : "");
  }

  // Why there is no occupancy where there is none.
  std::string footprint_note() const {
    if (!asks("footprint")) return "";
    if (cpu_) return "note: a row of the CPU has no footprint\n";
    size_t all = 0, without = 0;
    for (const Row& row : profile_.rows) {
      all += row.kernels.size();
      without += std::ranges::count_if(row.kernels, [](const auto& k) { return !k.occupancy; });
    }
    const char* why = emulated_ ? "the emulator runs no machine code, and nvcc's is not known"
                                : "their registers, or what this card has room for, is not known";
    return without == 0
               ? ""
               : fmt::format("note: {} of {} kernels without occupancy: {}\n", without, all, why);
  }

  std::string scope_block() const {
    std::vector<Row> rows = profile_.rows;
    std::erase_if(rows, [](const Row& row) { return row.in_table(); });
    if (rows.empty() || emulated_) return "";
    std::ranges::stable_sort(rows, std::greater(), &Row::typical_total_ns);
    const auto total_ns = [this](const Row& row) { return host_total_ns(row, cpu_); };
    std::ranges::stable_sort(rows, std::greater(), total_ns);
    TextGrid grid({"CPU total", "Self CPU", "CUDA total", "Calls", "Launch", "<Kind", "<Scope"});
    for (const Row& row : rows) {
      const bool on_host = row.total_ns > 0, on_device = row.device_total_ns > 0 && timed_;
      grid.add({or_dash(on_host, us(total_ns(row) / steps_)),
          or_dash(on_host, us((cpu_ ? row.typical_ns : double(row.self_ns)) / steps_)),
          or_dash(on_device, us(row.typical_total_ns / steps_)), per_step(row.calls),
          or_dash(row.launches > 0, per_step(row.launches)), std::string(name_of(row.kind)),
          escaped(row.name)});
    }
    if (cpu_) grid.drop("CUDA total");
    grid.fit(options_.width, {"Self CPU", "Launch", "Calls"});
    return grid.text();
  }

  const Profile& profile_;
  const TableOptions& options_;
  const bool cpu_, emulated_, timed_;
  const double steps_;
  Row ops_;  // the sum of all op rows
};

}  // namespace

void check_known(
    const std::string& what, std::string_view word, std::span<const std::string_view> known) {
  if (std::ranges::find(known, word) != known.end()) return;
  const std::string nearest = nearest_word(word, known);
  throw Error(Error::Kind::usage,
      str(what, ": ", escaped(word), nearest.empty() ? "" : "; nearest is " + nearest, "; allowed ",
          join(known)));
}

void check(const TableOptions& options) {
  if (!options.sort_by.empty()) sort_key(options.sort_by);
  SINTER_CHECK(options.row_limit >= -1, usage,
      str("table: row limit ", options.row_limit, " is out of range; -1 (all rows) or at least 0"));
  filter_of(options.filter);
  for (const std::string_view word : parts_of(options.columns, ",")) {
    if (!options.columns.empty()) check_known("table: unknown columns", word, kMoreColumns);
  }
}

std::string table(const Profile& profile, const TableOptions& options) {
  check(options);
  return Table(profile, options).text();
}

std::vector<std::vector<std::string>> table_cells(
    const Profile& profile, const TableOptions& options) {
  return Table(profile, options).grid().lines();
}

}  // namespace sinter::profiler
