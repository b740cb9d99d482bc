// table(): the rows of a profile in columns, between its header and its closing lines
// (table_lines.cpp). Sums are divided by the active steps and rounded once, when printed. What was
// not measured is "-", an estimate "est".
#include "profiler/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <regex>
#include <span>

#include "core/error.h"
#include "core/numbers.h"
#include "core/text_grid.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

using detail::kNoTerminal, detail::us;

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

// "p95, Disp" is two.
std::vector<std::string_view> columns_of(const TableOptions& options) {
  std::vector<std::string_view> out;
  for (std::string_view word : parts_of(options.columns, ",")) {
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    if (!options.columns.empty()) out.push_back(word.substr(0, word.find_last_not_of(' ') + 1));
  }
  return out;
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
      if (row.kind == ScopeKind::op || row.role == Role::data) op_memory_ += row.memory;
    }
  }

  TextGrid grid() const;
  // What `columns` may hold.
  static std::vector<std::string_view> words();

  std::string text() const {
    const TextGrid rows = grid();
    return wrapped(detail::header_line(profile_), width()) + rows.text() +
           wrapped(detail::closing_lines(profile_, ops_) + memory_line() + footprint_note() +
                       filter_note() + width_note(rows),
               width()) +
           (options_.scopes ? scope_block() : "");
  }

 private:
  struct Cell;
  using C = const Cell&;
  struct Column {
    const char *title, *group;   // '<': text; which word of `columns` asks for it, "": none need
    bool (*when)(const Table&);  // has a profile of this kind such a column?
    std::string (*cell)(C);
  };
  static const Column kColumns[];
  static bool always(const Table&) { return true; }
  static bool on_cpu(const Table& t) { return t.cpu_; }
  static bool on_device(const Table& t) { return !t.cpu_; }
  static bool on_host_too(const Table& t) { return !t.cpu_ && !t.profile_.replayed; }

  std::vector<const Column*> columns() const;
  static std::string_view title_of(const Column& column) {
    return column.title + (*column.title == '<');
  }
  bool stands(const Column& column) const {
    return !*column.group || asks("all") || asks(column.group) || asks(title_of(column));
  }

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

  size_t width() const { return options_.width > 0 ? options_.width : kNoTerminal; }
  bool asks(std::string_view word) const {
    return std::ranges::count(columns_of(options_), word) > 0;
  }

  // What other scopes and the loop took and gave back is the rest. The rows of a replay are of the
  // arena, beside what the allocator says. Here the op that draws a batch is one of the ops.
  std::string memory_line() const {
    if (!asks("memory") && !asks("all")) return "";
    const auto kB = [this](int64_t bytes) { return fixed(double(bytes) / steps_ / 1e3, 1); };
    const auto sum = [&](const char* what, int64_t MemoryUse::*bytes) {
      const int64_t all = profile_.memory.*bytes, ops = op_memory_.*bytes - profile_.arena.*bytes;
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
    if (!asks("footprint") && !(asks("all") && !cpu_)) return "";
    if (cpu_) return "note: a row of the CPU has no footprint\n";
    size_t all = 0, without = 0;
    for (const Row& row : profile_.rows) {
      all += row.kernels.size();
      without += std::ranges::count_if(row.kernels, [](const auto& k) { return !k.occupancy; });
    }
    const char* why = emulated_ ? "the emulator runs no machine code, and nvcc's is not known: "
                                  "-DSINTER_CUDA=ON compiles it"
                                : "their registers, or what this card has room for, is not known";
    return without == 0
               ? ""
               : fmt::format("note: {} of {} kernels without occupancy: {}\n", without, all, why);
  }

  // What there is, where a filter leaves nothing of it.
  std::string filter_note() const {
    if (options_.filter.empty()) return "";
    const std::regex filter = filter_of(options_.filter);
    std::vector<std::string> names;
    for (const Row& row : profile_.rows) {
      if (!row.in_table()) continue;
      if (std::regex_search(row.name, filter)) return "";
      names.push_back(escaped(row.name));
    }
    return str(
        "note: no row matches ", escaped(options_.filter), "; there are ", join(names), "\n");
  }

  // A table that nobody asked more of says nothing of what a narrow terminal leaves out.
  std::string width_note(const TextGrid& shown) const {
    std::vector<std::string_view> left_out;
    for (const Column* column : columns()) {
      if (std::ranges::count(shown.lines()[0], title_of(*column)) == 0)
        left_out.push_back(title_of(*column));
    }
    if (left_out.empty() || options_.columns.empty()) return "";
    return str("note: no room in ", options_.width, " columns for ", join(left_out),
        "; a wider terminal, a pipe or a file has it, and what is asked for by its title stays\n");
  }

  std::string scope_block() const {
    std::vector<Row> rows = profile_.rows;
    std::erase_if(rows, [](const Row& row) { return row.in_table(); });
    if (rows.empty() || emulated_) return "";
    std::ranges::stable_sort(rows, std::greater(), &Row::typical_total_ns);
    const auto total_ns = [this](const Row& row) { return host_total_ns(row, cpu_); };
    std::ranges::stable_sort(rows, std::greater(), total_ns);
    // Small ones are only counted, as small rows are.
    size_t shown = rows.size();
    const auto is_small = [&](const Row& row) {
      return options_.row_limit >= 0 && total_ns(row) < kSmallRow * total_ns(rows[0]) &&
             row.typical_total_ns < kSmallRow * rows[0].typical_total_ns;
    };
    while (shown > 1 && is_small(rows[shown - 1])) --shown;
    if (rows.size() - shown == 1) ++shown;
    TextGrid grid({"CPU total", "Self CPU", "CUDA total", "Calls", "Launch", "<Kind", "<Scope"});
    for (const Row& row : std::span(rows).first(shown)) {
      const bool on_host = row.total_ns > 0, on_device = row.device_total_ns > 0 && timed_;
      grid.add({or_dash(on_host, us(total_ns(row) / steps_)),
          or_dash(on_host, us((cpu_ ? row.typical_ns : double(row.self_ns)) / steps_)),
          or_dash(on_device, us(row.typical_total_ns / steps_)), per_step(row.calls),
          or_dash(row.launches > 0, per_step(row.launches)), std::string(name_of(row.kind)),
          escaped(row.name)});
    }
    if (shown < rows.size())
      grid.add({"-", "-", "-", "-", "-", "-", str(rows.size() - shown, " small scopes")});
    if (cpu_) grid.drop("CUDA total");
    if (cpu_) grid.drop("Launch");
    grid.fit(width(), {"Self CPU", "Launch", "Calls"});
    return grid.text();
  }

  const Profile& profile_;
  const TableOptions& options_;
  const bool cpu_, emulated_, timed_;
  const double steps_;
  Row ops_;  // the sum of all op rows
  MemoryUse op_memory_;
};

// A row, and what its cells are made of.
struct Table::Cell {
  const Table& t;
  const Row& r;
  const KernelSum kernel = r.kernels.empty() ? KernelSum{} : r.kernels[0];  // the longest
  const std::optional<Footprint>& f = kernel.footprint;
  const std::optional<Occupancy>& o = kernel.occupancy;
  double flops = double(r.cost.flops) / t.steps_, bytes = double(r.cost.bytes()) / t.steps_;
  bool has_work = r.cost != Cost{};
  double p95_ns = p95(std::vector<double>(r.samples.begin(), r.samples.end()));

  // "-" where it is not known.
  static std::string number(bool known, double value, int digits, const char* unit = "") {
    return known ? fixed(value, digits) + unit : "-";
  }
  std::string share() const { return number(!!r.share, 100 * r.share.value_or(0), 1); }
  std::string time(double ns) const {
    return number(t.is_timed(r, ns), ns / 1e3 / t.steps_, 1, "us");
  }
  std::string kB(int64_t sum) const {
    const double value = double(sum) / 1e3 / t.steps_;
    return fixed(value, value < 100 ? 1 : 0);
  }
  std::string launches() const { return (r.unproved > 0 ? ">=" : "") + t.per_step(r.launches); }
  std::string rate() const {
    const bool by_flops = flops >= kFlopRateFrom * bytes;
    return number(has_work && r.typical_ns > 0,
        (by_flops ? flops : bytes) * t.steps_ / r.typical_ns, 1, by_flops ? " GF/s" : " GB/s");
  }
  std::string verdict() const {
    if (r.kind != ScopeKind::op) return std::string(name_of(r.kind));  // "data", "runtime"
    return or_dash(r.verdict.code != RowCode::unknown, std::string(name_of(r.verdict.code)));
  }
  static std::string told(std::optional<int> n) { return n ? std::to_string(*n) : "?"; }
  std::string kernels() const {
    const std::string more = r.kernels.size() > 1 ? str("(+", r.kernels.size() - 1, ") ") : "";
    return or_dash(!r.kernels.empty(), more + escaped(kernel.name));
  }
};

// In the order in which they stand.
const Table::Column Table::kColumns[] = {{"Self%", "", on_cpu, [](C c) { return c.share(); }},
    {"CUDA%", "", on_device, [](C c) { return c.share(); }},
    {"Self CPU", "", on_cpu, [](C c) { return c.time(c.r.typical_ns); }},
    {"CPU total", "all", on_cpu, [](C c) { return c.time(c.r.typical_total_ns); }},
    {"Self CUDA", "", on_device, [](C c) { return c.time(c.r.typical_ns); }},
    {"CUDA total", "all", on_host_too, [](C c) { return c.time(c.r.typical_total_ns); }},
    {"p95", "all", always,
        [](C c) {
          const bool known = !c.r.samples.empty() && c.t.is_timed(c.r, c.p95_ns);
          return c.number(known, c.p95_ns / 1e3, 1, "us");
        }},
    {"Disp", "all", on_cpu,
        [](C c) { return c.number(c.r.launches > 0, c.r.dispatch_ns() / 1e3 / c.t.steps_, 1); }},
    {"Self CPU", "all", on_host_too,
        [](C c) {
          return c.number(!c.t.emulated_, double(c.r.self_ns) / 1e3 / c.t.steps_, 1, "us");
        }},
    {"Calls", "", always, [](C c) { return c.t.per_step(c.r.calls); }},
    {"Launch", "", always, [](C c) { return or_dash(c.r.launches > 0, c.launches()); }},
    {"MFLOP", "all", always, [](C c) { return c.number(c.has_work, c.flops / 1e6, 2); }},
    {"kB", "", always, [](C c) { return or_dash(c.has_work, c.kB(c.r.cost.bytes())); }},
    {"FLOP/B", "", always, [](C c) { return c.number(c.bytes > 0, c.flops / c.bytes, 2); }},
    {"Alloc kB", "memory", always, [](C c) { return c.kB(c.r.memory.allocated); }},
    {"Freed kB", "memory", always, [](C c) { return c.kB(c.r.memory.freed); }},
    {"Peak kB", "memory", always, [](C c) { return fixed(double(c.r.memory.peak) / 1e3, 1); }},
    {"Kept kB", "memory", always, [](C c) { return c.kB(c.r.memory.kept); }},
    {"Rate", "all", on_cpu, [](C c) { return c.rate(); }},
    {"%roof", "all", always,
        [](C c) { return c.number(!!c.r.roof, 100 * c.r.roof.value_or(0), c.t.cpu_ ? 0 : 1); }},
    {"Pred", "all", always,
        [](C c) {
          const double ns = c.r.pred_ns.value_or(0);
          return c.number(ns > 0, ns / 1e3 / c.t.steps_, 1, "us");
        }},
    {"xpred", "all", always, [](C c) { return c.number(c.r.xpred() > 0, c.r.xpred(), 1, "x"); }},
    {"<Verdict", "", always, [](C c) { return c.verdict(); }},
    {"<Name", "", always, [](C c) { return escaped(c.r.name); }},
    {"<Flags", "all", always, [](C c) { return c.r.flags; }},
    {"<Made of", "all", [](const Table& t) { return !t.cpu_ && t.profile_.replayed; },
        [](C c) { return or_dash(!c.r.made_of.empty(), c.r.made_of); }},
    {"<Shapes", "", [](const Table& t) { return t.options_.group_by_input_shape; },
        [](C c) { return c.r.shapes; }},
    {"Grid", "footprint", on_device, [](C c) { return c.f ? shape_text(c.f->grid) : "-"; }},
    {"Block", "footprint", on_device, [](C c) { return c.f ? shape_text(c.f->block) : "-"; }},
    {"Regs", "footprint", on_device, [](C c) { return c.f ? c.told(c.f->registers) : "-"; }},
    {"Shared", "footprint", on_device,
        [](C c) {
          return c.f ? c.told(c.f->static_shared) + "+" + c.told(c.f->dynamic_shared) : "-";
        }},
    {"Occ%", "footprint", on_device, [](C c) { return c.o ? fixed(100 * c.o->share, 1) : "-"; }},
    {"<Limit", "footprint", on_device, [](C c) { return c.o ? c.o->limit : "-"; }},
    {"Waves", "footprint", on_device, [](C c) { return c.o ? fixed(c.o->waves, 2) : "-"; }},
    {"Tail%", "footprint", on_device, [](C c) { return c.o ? fixed(100 * c.o->tail, 0) : "-"; }},
    {"<Kernel", "footprint", on_device, [](C c) { return c.kernels(); }}};

std::vector<const Table::Column*> Table::columns() const {
  std::vector<const Column*> out;
  for (const Column& column : kColumns) {
    if (column.when(*this) && stands(column)) out.push_back(&column);
  }
  return out;
}

TextGrid Table::grid() const {
  const std::vector<const Column*> columns = this->columns();
  std::vector<std::string> titles;
  for (const Column* column : columns) titles.emplace_back(column->title);
  TextGrid grid(titles);
  const auto add = [&](const Row& row) {
    std::vector<std::string> line;
    for (const Column* column : columns) line.push_back(column->cell({*this, row}));
    grid.add(std::move(line));
  };
  std::vector<Row> folded, apart;
  for (const Row& row : shown_rows(folded, apart)) add(row);
  if (!folded.empty()) add(fold(folded));
  for (const Row& row : apart) add(row);
  // What a narrow table can do without, the most wanted first. What was asked for by name stays.
  std::vector<std::string> droppable{"Verdict", "Calls", "kB", "Launch", "FLOP/B"};
  for (const Column* column : columns) {
    if (*column->group && asks("all")) droppable.emplace_back(title_of(*column));
  }
  std::erase_if(droppable, [this](const std::string& title) { return asks(title); });
  const bool asked = !options_.columns.empty() || options_.group_by_input_shape;
  grid.fit(asked ? options_.width : width(), droppable);
  return grid;
}

std::vector<std::string_view> Table::words() {
  std::vector<std::string_view> out{"all", "memory", "footprint"};
  for (const Column& column : kColumns) {
    // "Self CPU" is two columns, of a CPU's profile and of a card's.
    if (std::ranges::count(out, title_of(column)) == 0) out.push_back(title_of(column));
  }
  return out;
}

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
  for (const std::string_view word : columns_of(options))
    check_known("table: unknown columns", word, Table::words());
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
