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
#include "profiler/grid.h"
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

SortKey sort_key(const std::string& wanted) {
  std::string as_cuda = wanted;
  if (const size_t at = as_cuda.find("device"); at != std::string::npos)
    as_cuda.replace(at, 6, "cuda");
  std::vector<std::string_view> names;
  for (const SortKey& key : kSortKeys) {
    if (key.name == as_cuda) return key;
    names.push_back(key.name);
  }
  const std::string nearest = nearest_word(wanted, names);
  throw Error(Error::Kind::usage,
      cat("table: unknown sort key: ", escaped(wanted),
          nearest.empty() ? "" : "; nearest is " + nearest, "; allowed ", join(names)));
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
    throw Error(Error::Kind::usage, cat("table: not a regular expression: ", escaped(text)),
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
        timed_(cpu_ || profile.source == Source::cupti || profile.source == Source::graph),
        steps_(double(profile.steps.size())) {
    for (const Row& row : profile.rows) {
      if (row.kind == ScopeKind::op) add_to(ops_, row);
    }
  }

  std::string text() const {
    std::vector<Row> folded;
    const std::vector<Row> shown = shown_rows(folded);
    std::vector<Column> columns = all_columns();
    std::erase_if(columns, [](const Column& column) { return !column.shown; });
    std::vector<std::string> titles;
    for (const Column& column : columns) titles.push_back(column.title);
    Grid grid(titles);
    const auto add = [&](const Row& row, bool is_fold) {
      std::vector<std::string> cells;
      for (const Column& column : columns)
        cells.push_back(is_fold && column.folded ? column.folded : column.cell(row));
      grid.add(std::move(cells));
    };
    for (const Row& row : shown) add(row, false);
    if (!folded.empty()) add(fold(folded), true);
    grid.fit(options_.width, droppable());
    return wrapped(detail::header_line(profile_), options_.width) + grid.text() +
           wrapped(detail::closing_lines(profile_, ops_) + memory_line() + footprint_note(),
               options_.width) +
           (options_.scopes ? scope_block() : "");
  }

 private:
  struct Column {
    const char* title;  // '<': text
    bool shown;
    std::function<std::string(const Row&)> cell;
    const char* folded = nullptr;  // what stands there for several rows as one; null: cell() knows
  };

  // What a narrow table can do without, the most wanted first.
  static std::vector<std::string> droppable() {
    return {"Flags", "xpred", "MFLOP", "kB", "Rate", "Launch", "CPU total", "CUDA total", "p95",
        "Disp", "Pred", "Made of", "FLOP/B"};
  }

  bool is_small(const Row& row) const {
    return timed_ && row.kind != ScopeKind::data && row.share.value_or(0) < kSmallRow;
  }

  // In order; `folded` gets the small ones and what the limit cuts off, but never a single small
  // one.
  std::vector<Row> shown_rows(std::vector<Row>& folded) const {
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
  std::string device_us(const Row& row, double ns) const {
    const bool launches_nothing = row.launches == 0 && row.kind == ScopeKind::op && ns == 0;
    return or_dash(timed_ && !launches_nothing && row.untimed == 0, us(ns));
  }
  std::string p95_us(const Row& row) const {
    const double ns = p95(std::vector<double>(row.samples.begin(), row.samples.end()));
    return cpu_ ? us(ns) : device_us(row, ns);
  }
  std::string rate(const Row& row) const {
    if (row.typical_ns <= 0 || row.cost == Cost{}) return "-";
    const double flops = double(row.cost.flops), bytes = double(row.cost.bytes());
    return flops >= kFlopRateFrom * bytes ? fixed(flops / row.typical_ns, 1) + " GF/s"
                                          : fixed(bytes / row.typical_ns, 1) + " GB/s";
  }

  std::vector<Column> all_columns() const {
    const bool cuda = !cpu_, host_per_row = !profile_.replayed;
    const auto host_us = [this](int64_t Row::*sum) {
      return [this, sum](const Row& r) { return or_dash(!emulated_, us(double(r.*sum) / steps_)); };
    };
    const auto typical_us = [this](double Row::*sum) {
      return [this, sum](const Row& r) {
        return cpu_ ? us(r.*sum / steps_) : device_us(r, r.*sum / steps_);
      };
    };
    const auto share = [](const Row& r) {
      return or_dash(r.share.has_value(), fixed(100 * r.share.value_or(0), 1));
    };
    const auto dispatch = [this](const Row& r) {
      return or_dash(r.launches > 0, fixed(r.dispatch_ns() / steps_ / 1e3, 1));
    };
    const auto launches = [this](const Row& r) {
      return or_dash(r.launches > 0, (r.unproved > 0 ? ">=" : "") + per_step(r.launches));
    };
    const auto mflop = [this](const Row& r) {
      return or_dash(r.cost != Cost{}, fixed(double(r.cost.flops) / steps_ / 1e6, 2));
    };
    const auto kilobytes = [this](const Row& r) {
      return or_dash(r.cost != Cost{}, fixed(double(r.cost.bytes()) / steps_ / 1e3, 1));
    };
    const auto intensity = [](const Row& r) {
      return or_dash(r.cost.bytes() > 0, fixed(double(r.cost.flops) / double(r.cost.bytes()), 2));
    };
    const auto roof = [this](const Row& r) {
      return or_dash(r.roof.has_value(), fixed(100 * r.roof.value_or(0), cpu_ ? 0 : 1));
    };
    const auto predicted = [this](const Row& r) {
      return or_dash(r.pred_ns > 0, us(r.pred_ns.value_or(0) / steps_));
    };
    const auto factor = [](const Row& r) {
      return or_dash(r.xpred() > 0, fixed(r.xpred(), 1) + "x");
    };
    const auto verdict = [](const Row& r) {
      return or_dash(r.verdict.code != RowCode::unknown, std::string(name_of(r.verdict.code)));
    };
    const auto made_of = [](const Row& r) { return or_dash(!r.made_of.empty(), r.made_of); };
    const bool memory = asks("memory");
    const auto used = [](int64_t MemoryUse::*bytes, double steps) {
      return
          [bytes, steps](const Row& r) { return fixed(double(r.memory.*bytes) / steps / 1e3, 1); };
    };
    const auto number = [](std::optional<int> n) { return n ? std::to_string(*n) : "?"; };
    // Of the row's longest kernel.
    const auto of_kernel = [](auto part, auto text) {
      return [part, text](const Row& r) {
        const bool is_known = !r.kernels.empty() && r.kernels[0].*part;
        return is_known ? text(*(r.kernels[0].*part)) : std::string("-");
      };
    };
    const auto footprint = [&](auto text) { return of_kernel(&KernelSum::footprint, text); };
    const auto occupied = [&](auto text) { return of_kernel(&KernelSum::occupancy, text); };
    const auto kernel = [](const Row& r) {
      if (r.kernels.empty()) return std::string("-");
      const size_t others = r.kernels.size() - 1;
      return (others > 0 ? fmt::format("(+{}) ", others) : "") + escaped(r.kernels[0].name);
    };
    const bool is_asked = asks("footprint");
    return {
        {"Self%", cpu_, share},
        {"CUDA%", cuda, share},
        {"Self CPU", cpu_, typical_us(&Row::typical_ns)},
        {"CPU total", cpu_, typical_us(&Row::typical_total_ns)},
        {"Self CUDA", cuda, typical_us(&Row::typical_ns)},
        {"CUDA total", cuda && host_per_row, typical_us(&Row::typical_total_ns)},
        {"p95", true, [this](const Row& r) { return p95_us(r); }, "-"},
        {"Disp", cpu_, dispatch},
        {"Self CPU", cuda && host_per_row, host_us(&Row::self_ns)},
        {"Calls", true, [this](const Row& r) { return per_step(r.calls); }},
        {"Launch", cuda, launches},
        {"MFLOP", true, mflop},
        {"kB", true, kilobytes},
        {"FLOP/B", true, intensity, "-"},
        {"Alloc kB", memory, used(&MemoryUse::allocated, steps_)},
        {"Freed kB", memory, used(&MemoryUse::freed, steps_)},
        {"Peak kB", memory, used(&MemoryUse::peak, 1)},
        {"Kept kB", memory, used(&MemoryUse::kept, steps_)},
        {"Rate", cpu_, [this](const Row& r) { return rate(r); }, "-"},
        {"%roof", true, roof, "-"},
        {"Pred", true, predicted},
        {"xpred", true, factor},
        {"<Verdict", true, verdict, "-"},
        {"<Name", true, [](const Row& r) { return escaped(r.name); }},
        {"<Flags", true, [](const Row& r) { return r.flags; }, ""},
        {"<Made of", cuda && profile_.replayed, made_of},
        {"<Shapes", options_.group_by_input_shape, [](const Row& r) { return r.shapes; }},
        {"Grid", is_asked, footprint([](const Footprint& f) { return shape_text(f.grid); })},
        {"Block", is_asked, footprint([](const Footprint& f) { return shape_text(f.block); })},
        {"Regs", is_asked, footprint([number](const Footprint& f) { return number(f.registers); })},
        {"Shared", is_asked, footprint([number](const Footprint& f) {
           return number(f.static_shared) + "+" + number(f.dynamic_shared);
         })},
        {"Occ%", is_asked, occupied([](const Occupancy& o) { return fixed(100 * o.share, 1); })},
        {"<Limit", is_asked, occupied([](const Occupancy& o) { return o.limit; })},
        {"Waves", is_asked, occupied([](const Occupancy& o) { return fixed(o.waves, 2); })},
        {"Tail%", is_asked, occupied([](const Occupancy& o) { return fixed(100 * o.tail, 0); })},
        {"<Kernel", is_asked, kernel},
    };
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
      return cat(what, kB(all), " = ops ", kB(ops), " + rest of step ", kB(all - ops), " kB");
    };
    const MemoryUse& arena = profile_.arena;
    const std::string plan = cat("arena: allocated ", kB(arena.allocated), " kB by its plan, peak ",
        fixed(double(arena.peak) / 1e3, 1), " kB\n");
    return cat("memory: ", sum("allocated ", &MemoryUse::allocated),
        sum(", freed ", &MemoryUse::freed), "\n", arena.peak > 0 ? plan : "");
  }

  // Why there is no occupancy where there is none.
  std::string footprint_note() const {
    if (!asks("footprint")) return "";
    if (cpu_) return "note: a row of the CPU has no footprint\n";
    size_t all = 0, without = 0, told = 0;  // told: of those without, their registers
    for (const Row& row : profile_.rows) {
      all += row.kernels.size();
      for (const KernelSum& kernel : row.kernels) {
        without += !kernel.occupancy;
        told += !kernel.occupancy && kernel.footprint && kernel.footprint->registers;
      }
    }
    if (without == 0) return "";
    std::string why = "the emulator runs no machine code, and nvcc's is not known";
    if (!emulated_) why = "no record of the card tells their registers";
    if (told == without) why = "what this card has room for is not known";
    return fmt::format("note: {} of {} kernels without occupancy: {}\n", without, all, why);
  }

  std::string scope_block() const {
    std::vector<Row> rows = profile_.rows;
    std::erase_if(rows, [](const Row& row) { return row.in_table(); });
    if (rows.empty() || emulated_) return "";
    std::ranges::stable_sort(rows, std::greater(), &Row::typical_total_ns);
    const auto total_ns = [this](const Row& row) { return host_total_ns(row, cpu_); };
    std::ranges::stable_sort(rows, std::greater(), total_ns);
    Grid grid({"CPU total", "Self CPU", "CUDA total", "Calls", "Launch", "<Kind", "<Scope"});
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

void check(const TableOptions& options) {
  if (!options.sort_by.empty()) sort_key(options.sort_by);
  SINTER_CHECK(options.row_limit >= -1, usage,
      cat("table: row limit ", options.row_limit, " is out of range; -1 (all rows) or at least 0"));
  filter_of(options.filter);
  for (const std::string_view word : parts_of(options.columns, ",")) {
    const bool known = std::ranges::count(kMoreColumns, word) > 0;
    SINTER_CHECK(known || options.columns.empty(), usage,
        fmt::format(
            "table: unknown columns '{}': known are {}", escaped(word), join(kMoreColumns)));
  }
}

std::string table(const Profile& profile, const TableOptions& options) {
  check(options);
  return Table(profile, options).text();
}

}  // namespace sinter::profiler
