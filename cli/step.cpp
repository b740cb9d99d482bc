#include "cli/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "autograd/autograd.h"
#include "core/atomic_file.h"
#include "core/parallel.h"
#include "measure/calibrate.h"
#include "measure/threads.h"
#include "profiler/thresholds.h"

namespace sinter::cli {

void add_rules_flag(Flags& flags, std::string& rules) {
  flags
      .word("rules", rules, "LIST", "fusion rules: all, none, or NAME and -NAME from left to right",
          [&rules](const std::string& text) { rules = capture::RuleSet(text).text(); })
      .once = true;
}

void add_fusion_flags(Flags& flags, FusionFlags& fusion) {
  add_rules_flag(flags, fusion.rules);
  flags.choice("measure", fusion.measure, {"auto", "on", "off"},
      "on: a group goes where the whole step is shown to be faster without it; auto: on cuda");
  not_saved(flags.toggle("explain", fusion.explain, "print what was fused, what was not, and why"));
  not_saved(flags.word("dump-graph", fusion.dump_graph, "FILE",
      "write the step's graph as JSON; compare writes FILE_eager and FILE_fused"));
}

std::pair<Device, std::string> choose_device(const std::string& name) {
  if (name != "auto") return {Device::parse(name), ""};
  try {
    return {Device::parse("cuda"), "auto"};
  } catch (const Error& error) {
    // In short: `--device cuda` says all of it.
    const std::string& why = error.message();
    return {kCpu,
        str("auto: ", error.kind() == Error::Kind::not_built ? "this build has no CUDA"
                                                             : why.substr(0, why.find(" (")))};
  }
}

std::string choose_threads(int64_t asked, Device device, const std::string& work,
    const std::function<std::function<void()>()>& make_step) {
  std::string tried;
  if (asked > 0) {
    set_num_threads(int(asked));
    if (asked > available_cores()) tried = "on " + count_of(available_cores(), "core");
  } else if (device != kCpu) {
    set_num_threads(available_cores());
  } else {
    const measure::Tried all =
        work.empty() ? measure::try_threads(make_step()) : measure::choose_threads(work, make_step);
    if (all.empty() && available_cores() > 1) tried = "kept";
    for (const auto& [n, us] : all)
      tried += fmt::format("{}{}: {}{}", tried.empty() ? "tried " : ", ", n,
          cli::seconds(1e-6 * us), tried.empty() ? "/step" : "");
  }
  const std::string threads = count_of(num_threads(), "thread");
  return tried.empty() ? threads : fmt::format("{} ({})", threads, tried);
}

void note_emulator(Device device, Output& out) {
  if (device.type == Device::Type::simt)
    out.note("note", "simt runs CUDA kernels thread by thread on the CPU: its times mean nothing");
}

void write_graph(const std::string& path, const capture::Graph& graph) {
  write_file(path, capture::to_json(graph));
}

std::vector<std::string> graph_files(const std::string& path) {
  const std::filesystem::path p(path);
  const auto named = [&](const char* suffix) {
    return (p.parent_path() / (p.stem().string() + suffix + p.extension().string())).string();
  };
  return {named("_eager"), named("_fused")};
}

// The profiler's flags, and what they ask of a report.
namespace {

using profiler::Report;
using profiler::StepSample;

const std::vector<std::string> kKeys = {
    "launches", "api_calls", "memcpy", "allocs", "flops", "bytes", "speedup"};
const std::vector<std::string> kRowKeys = {"launches", "calls", "flops", "bytes"};
const std::vector<std::string> kRelations = {"==", "!=", "<=", ">=", "<", ">"};
const std::vector<std::string> kDistrust = {
    "incomplete", "distortion", "noise", "throttle", "roof"};

std::vector<std::string> items(const char* what, const std::string& text) {
  return text.empty() ? std::vector<std::string>{} : split(what, text);
}

bool holds(double found, const std::string& relation, double wanted) {
  if (relation == "==") return found == wanted;
  if (relation == "!=") return found != wanted;
  if (relation == "<=") return found <= wanted;
  if (relation == ">=") return found >= wanted;
  return relation == "<" ? found < wanted : found > wanted;
}

// What a call of the row counts for. All calls of a row are of one kind: an equal share each.
double share_of_call(const profiler::Row& row, const std::string& key) {
  if (key == "calls") return 1;
  const int64_t all = key == "launches" ? row.launches
                      : key == "flops"  ? row.cost.flops
                                        : row.cost.bytes();
  return double(all) / double(row.calls);
}

// The value in every step.
std::vector<double> values_of(const Report& report, const Expectation& e) {
  static const std::map<std::string, int64_t StepSample::*> of_step = {
      {"launches", &StepSample::launches}, {"api_calls", &StepSample::api_calls},
      {"memcpy", &StepSample::copies}, {"allocs", &StepSample::allocs}};
  std::vector<double> out;
  if (const auto member = of_step.find(e.key); e.row.empty() && member != of_step.end()) {
    for (const StepSample& step : report.steps) out.push_back(double(step.*member->second));
    return out;
  }
  out.resize(report.steps.size());
  const profiler::Rows rows = report.rows();
  for (const profiler::OpCall& call : rows.calls) {
    const profiler::Row& row = rows.rows[call.row];
    if (e.row.empty() || row.name == e.row) out[call.step_index] += share_of_call(row, e.key);
  }
  for (double& value : out) value = std::round(value);
  return out;
}

}  // namespace

std::vector<Expectation> parse_expectations(const std::string& text) {
  std::vector<Expectation> out;
  for (const std::string& item : items("usage: --expect", text)) {
    const size_t at = item.find_first_of("=!<>"), value = item.find_first_not_of("=!<>", at);
    SINTER_CHECK(value != std::string::npos && at > 0, usage,
        str("usage: --expect is not KEY RELATION NUMBER: ", escaped(item)),
        "--expect 'launches==9,speedup>=1.1'");
    Expectation e{.text = item, .key = item.substr(0, at), .relation = item.substr(at, value - at)};
    check_word("--expect: unknown relation", e.relation, kRelations, " in " + escaped(item));
    e.wanted = parse("usage: --expect " + escaped(e.key), item.substr(value), -1e300, 1e300);
    e.eager = e.key.starts_with("eager.");
    if (e.eager) e.key.erase(0, 6);
    if (e.key.starts_with("row:")) {
      const size_t dot = e.key.rfind('.');
      SINTER_CHECK(dot != std::string::npos && dot > 4, usage,
          str("usage: --expect: what to count of the row is missing: ", escaped(item)),
          "--expect 'row:linear_act.launches==2'");
      e.row = e.key.substr(4, dot - 4);
      e.key.erase(0, dot + 1);
    }
    const std::vector<std::string>& known = e.row.empty() ? kKeys : kRowKeys;
    check_word("--expect: unknown key", e.key, known);
    out.push_back(std::move(e));
  }
  return out;
}

std::vector<Distrust> parse_distrust(const std::string& text) {
  std::vector<Distrust> out;
  for (const std::string& item : items("usage: --fail-on", text)) {
    const size_t at = item.find('>');
    Distrust d{.text = item, .what = item.substr(0, at)};
    check_word("--fail-on: unknown condition", d.what, kDistrust);
    const bool wants = d.what == "distortion" || d.what == "noise";
    SINTER_CHECK(wants == (at != std::string::npos), usage,
        str("usage: --fail-on: ", d.what, wants ? " needs a limit" : " takes no limit", ": ",
            escaped(item)),
        "--fail-on 'incomplete,distortion>5%,noise>2%'");
    if (wants) {
      std::string limit = item.substr(at + 1);
      if (limit.ends_with('%')) limit.pop_back();
      d.percent = parse("usage: --fail-on " + d.what, limit, 0.0, 1e6);
    }
    out.push_back(std::move(d));
  }
  return out;
}

void add_view_flags(Flags& flags, ViewFlags& view) {
  flags.topic("table");
  view.table.width = table_width();
  const auto check_table = [&view](const std::string&) { profiler::check(view.table); };
  flags
      .word("sort", view.table.sort_by, "KEY",
          "self_cpu_time_total, self_cuda_time_total, count, flops, bytes, xpred, ..", check_table)
      .standard = "self time";
  flags.number(
      "rows", view.table.row_limit, -1, 1'000'000, "of the table, small ones folded; -1 all");
  flags.toggle("no-meta", view.table.no_meta, "leave out what launches nothing");
  flags.word("filter", view.table.filter, "REGEX", "only rows whose name it matches", check_table);
  flags.toggle("group-by-input-shape", view.table.group_by_input_shape, "a row per shape");
  flags.number(
      "group-by-module", view.table.group_by_module, 0, 100, "a row per path of so many modules");
  flags.word("columns", view.table.columns, "LIST",
      "more of them: all, memory (bytes allocated, freed, at most in use, kept), footprint (grid, "
      "registers, occupancy ..), or titles: 'p95,Disp,xpred'",
      check_table);
  flags.word("expect", view.expect, "LIST",
      "counts that must hold, e.g. 'launches==9,row:linear.launches==1'; else exit 7",
      [](const std::string& text) { parse_expectations(text); });
  flags.word("fail-on", view.fail_on, "LIST",
      "incomplete, distortion>5%, noise>2%, throttle, roof: not to be trusted, exit 8",
      [](const std::string& text) { parse_distrust(text); });
}

Flag& add_profile_flag(Flags& flags, ExportFlags& files) {
  Flag& flag = flags.word("profile", files.text, "FORMATS",
      "where the time goes, a list of: table, json, trace, stacks, html",
      [&files](const std::string& text) {
        files.formats = measure::parse_formats(text, "usage: --profile");
      });
  flag.once = true;
  flag.bare_value = "table";
  return flag;
}

void check_table_flags(
    const Flags& flags, const ExportFlags& profile, const std::vector<std::string>& others) {
  for (const Flag& flag : flags.all()) {
    const bool of_a_profile = flag.topic == "table" || flag.name == "profile-steps",
               has_use = !profile.formats.empty() || std::ranges::count(others, flag.name) > 0;
    SINTER_CHECK(!of_a_profile || has_use || flag.source != Source::command_line, usage,
        str("usage: ", flag.shown(), " needs --profile: none is given"),
        "--profile prints the table");
  }
}

void add_output_flags(Flags& flags, ExportFlags& files) {
  not_saved(
      flags.word("output,o", files.name, "NAME", "how the names of the profile's files begin"));
  not_saved(flags.toggle("force", files.force, "write over files that are there"));
}

void check_writable(const std::string& file, const char* flag, bool force) {
  measure::check_writable(file, str("usage: ", flag), force,
      str("--force writes over it, ", flag, " NAME takes another name"));
}

namespace {

std::string why_incomplete(const Measured& m) {
  for (const Report* report : {m.only, m.eager}) {
    if (report && !report->incomplete.empty()) return report->incomplete.front();
  }
  return "";
}

std::string why_throttled(const Measured& m) {
  for (const Report* r : {m.only, m.eager}) {
    if (!r || r->device.type != Device::Type::cuda) continue;
    if (r->sm_mhz == 0) return "the clock was not read";
    if (r->throttled())
      return fmt::format("the SM clock was {:.0f} of {:.0f} MHz", r->sm_mhz, r->sm_standard_mhz);
  }
  return "";
}

std::string why_above_roof(const Measured& m) {
  std::vector<std::string> rows;
  for (const Report* report : {m.only, m.eager}) {
    if (!report) continue;
    for (const profiler::Row& row : report->rows().rows) {
      if (row.roof > profiler::kAboveRoof) rows.push_back(escaped(row.name));
    }
  }
  return rows.empty() ? "" : join(rows) + " above it";
}

// Why a --fail-on condition holds, or "".
std::string why_distrusted(const Distrust& condition, const Measured& m) {
  if (condition.what == "incomplete") return why_incomplete(m);
  if (condition.what == "throttle") return why_throttled(m);
  if (condition.what == "roof") return why_above_roof(m);
  const std::optional<double>& percent = condition.what == "noise" ? m.noise : m.distortion;
  if (!percent) return "it was not measured";
  if (std::abs(*percent) <= condition.percent) return "";
  // Away from zero, so that it never reads as what is allowed.
  const double tenths = std::ceil(10 * std::abs(*percent) - 1e-9);
  return fmt::format("it is {:.1f} %", std::copysign(tenths / 10, *percent));
}

// Why an expectation cannot be decided, or "".
std::string why_undecided(const Expectation& e, const Measured& m) {
  const Report& report = e.eager ? *m.eager : *m.only;
  if (e.key == "speedup" && !why_incomplete(m).empty()) return "the run is INCOMPLETE";
  if (e.key == "speedup" && !m.speedup) return "there is no interval";
  if (e.key == "launches" && report.unproved > 0)
    return "library calls may have run more kernels than they are counted for";
  return "";
}

// What was found in place of an expectation, or "".
std::string why_failed(const Expectation& e, const Measured& m) {
  if (e.key == "speedup") {
    if (holds(m.speedup->low, e.relation, e.wanted)) return "";
    return fmt::format("the interval is [{:.2f},{:.2f}]", m.speedup->low, m.speedup->high);
  }
  const Report& report = e.eager ? *m.eager : *m.only;
  const std::vector<double> values = values_of(report, e);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const bool same = *low == *high;
  if (same && holds(*low, e.relation, e.wanted)) return "";
  std::vector<std::string> names;
  for (const profiler::Row& row : report.rows().rows) names.push_back(row.name);
  const bool is_there = e.row.empty() || std::ranges::count(names, e.row) > 0;
  const std::string nearest = is_there ? "" : nearest_word(e.row, names);
  return fmt::format("counted {}{} ({}){}{}", *low, same ? "" : fmt::format("..{}", *high),
      report.rules.empty() ? report.mode : "rules " + report.rules,
      is_there ? "" : ", no row has this name", nearest.empty() ? "" : "; nearest is " + nearest);
}

}  // namespace

void check_view(const std::string& who, const ViewFlags& view, const Measured& m) {
  std::vector<std::string> failed, untrusted;
  const auto note = [](std::vector<std::string>& to, const std::string& what, std::string why) {
    if (!why.empty()) to.push_back(what + "; " + why);
  };
  for (const Distrust& condition : parse_distrust(view.fail_on))
    note(untrusted, condition.text, why_distrusted(condition, m));
  for (const Expectation& e : parse_expectations(view.expect)) {
    SINTER_CHECK(!e.eager || m.eager, usage, str("usage: --expect: ", e.text, " needs two runs"),
        "a program that compares has both: --mode both, or its command compare");
    const std::string undecided = why_undecided(e, m);
    note(untrusted, "--expect not decided: " + e.text, undecided);
    if (undecided.empty()) note(failed, e.text, why_failed(e, m));
  }
  const std::string misses = failed.empty() ? "" : who + ": --expect failed: " + join(failed, "; ");
  SINTER_CHECK(untrusted.empty(), untrusted,
      str(who, untrusted[0].starts_with("--expect") ? ": " : ": untrusted by --fail-on: ",
          join(untrusted, "; "), misses.empty() ? "" : "; " + misses));
  SINTER_CHECK(failed.empty(), check, misses);
}

std::string first_nan(const std::function<void()>& run) {
  const AnomalyMode anomaly;
  try {
    run();
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::numeric) throw;
    clear_tape();
    std::string text = error.what();  // the message, the module's path, the hint: a line each
    text.resize(std::min(text.size(), text.find("\n    hint: ")));
    if (const size_t path = text.find("\n    in "); path != text.npos) text.replace(path, 5, ", ");
    return text;
  }
  return "";
}

std::optional<profiler::Roofs> roofs_for(Device device, Output& out) {
  if (device.type == Device::Type::simt) return {};
  bool fresh = false;
  const profiler::Roofs roofs = measure::calibrated(device, &fresh);
  if (fresh)
    out.note("roofs", "this machine's peak rates were measured once, and are kept in {}",
        escaped(profiler::roofs_file(device)));
  if (roofs.loaded) {
    out.note("roofs", "measured while other programs kept {:.1f} cores busy: for this run only",
        roofs.others_cores);
  }
  return roofs;
}

}  // namespace sinter::cli
