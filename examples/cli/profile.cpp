#include "examples/cli/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "measure/calibrate.h"
#include "profiler/report.h"

namespace sinter::cli {
namespace {

using profiler::Report;
using profiler::StepSample;

const std::vector<std::string> kKeys = {
    "launches", "api_calls", "memcpy", "allocs", "flops", "bytes", "speedup"};
const std::vector<std::string> kRowKeys = {"launches", "calls", "flops", "bytes"};
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

// The value in every step.
std::vector<double> values_of(const Report& report, const Expectation& e) {
  std::vector<double> out(report.steps.size(), 0);
  const std::map<std::string, int64_t StepSample::*> of_step = {{"launches", &StepSample::launches},
      {"api_calls", &StepSample::api_calls}, {"memcpy", &StepSample::copies},
      {"allocs", &StepSample::allocs}};
  if (const auto member = of_step.find(e.key); e.row.empty() && member != of_step.end()) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<double>(report.steps[i].*(member->second));
    return out;
  }
  const profiler::Rows rows = report.rows();
  for (const profiler::OpCall& call : rows.calls) {
    const profiler::Row& row = rows.rows[call.row];
    if (!e.row.empty() && row.name != e.row) continue;
    const double calls =
        static_cast<double>(row.calls);  // all calls of a row are of one kind: an equal share each
    out[call.step_index] += e.key == "calls"      ? 1
                            : e.key == "launches" ? static_cast<double>(row.launches) / calls
                            : e.key == "flops"    ? static_cast<double>(row.cost.flops) / calls
                                                  : static_cast<double>(row.cost.bytes()) / calls;
  }
  for (double& value : out) value = std::round(value);
  return out;
}

}  // namespace

std::vector<Expectation> parse_expectations(const std::string& text) {
  std::vector<Expectation> out;
  for (const std::string& item : items("usage: --expect", text)) {
    const size_t at = item.find_first_of("=!<>"),
                 value = at == std::string::npos ? at : item.find_first_not_of("=!<>", at);
    SINTER_CHECK(value != std::string::npos && at > 0, usage,
        cat("usage: --expect is not KEY RELATION NUMBER: ", escaped(item)),
        "--expect 'launches==9,speedup>=1.1'");
    Expectation e{.text = item, .key = item.substr(0, at), .relation = item.substr(at, value - at)};
    const std::vector<std::string> relations = {"==", "!=", "<=", ">=", "<", ">"};
    SINTER_CHECK(std::find(relations.begin(), relations.end(), e.relation) != relations.end(),
        usage,
        cat("usage: --expect: unknown relation: ", escaped(e.relation), " in ", escaped(item),
            "; allowed == != <= >= < >"));
    e.wanted = parse_number("usage: --expect " + escaped(e.key), item.substr(value), -1e300, 1e300);
    e.eager = e.key.starts_with("eager.");
    if (e.eager) e.key.erase(0, 6);
    if (e.key.starts_with("row:")) {
      const size_t dot = e.key.rfind('.');
      SINTER_CHECK(dot != std::string::npos && dot > 4, usage,
          cat("usage: --expect: row without what of it: ", escaped(item)),
          "--expect 'row:linear_act.launches==2'");
      e.row = e.key.substr(4, dot - 4);
      e.key.erase(0, dot + 1);
    }
    const std::vector<std::string>& known = e.row.empty() ? kKeys : kRowKeys;
    SINTER_CHECK(std::find(known.begin(), known.end(), e.key) != known.end(), usage,
        cat("usage: --expect: unknown key: ", escaped(e.key), "; ", nearest_or_all(e.key, known)));
    out.push_back(std::move(e));
  }
  return out;
}

std::vector<Distrust> parse_distrust(const std::string& text) {
  std::vector<Distrust> out;
  for (const std::string& item : items("usage: --fail-on", text)) {
    const size_t at = item.find('>');
    Distrust d{.text = item, .what = item.substr(0, at)};
    SINTER_CHECK(std::find(kDistrust.begin(), kDistrust.end(), d.what) != kDistrust.end(), usage,
        cat("usage: --fail-on: unknown condition: ", escaped(d.what), "; ",
            nearest_or_all(d.what, kDistrust)));
    const bool wants = d.what == "distortion" || d.what == "noise";
    SINTER_CHECK(wants == (at != std::string::npos), usage,
        cat("usage: --fail-on: ", d.what, wants ? " needs a limit" : " takes no limit", ": ",
            escaped(item)),
        "--fail-on 'incomplete,distortion>5%,noise>2%'");
    if (wants) {
      std::string limit = item.substr(at + 1);
      if (limit.ends_with('%')) limit.pop_back();
      d.percent = parse_number("usage: --fail-on " + d.what, limit, 0, 1e6);
    }
    out.push_back(std::move(d));
  }
  return out;
}

void add_view_flags(Flags& flags, ViewFlags& view) {
  flags.topic("table");
  const auto check_table = [&view](const std::string&) { profiler::check(view.table); };
  flags
      .word("sort", view.table.sort_by, "KEY",
          "self_cpu_time_total, self_cuda_time_total, count, flops, bytes, xpred, ..", check_table)
      .standard = "self time";
  flags.integer("rows", view.rows, -1, 1'000'000, "of the table, small ones folded; -1 all",
      [&view](const std::string&) { view.table.row_limit = static_cast<int>(view.rows); });
  flags.toggle("no-meta", view.table.no_meta, "leave out what launches nothing");
  flags.word("filter", view.table.filter, "REGEX", "only rows whose name it matches", check_table);
  flags.toggle("group-by-input-shape", view.table.group_by_input_shape, "a row per shape");
  flags.integer("group-by-module", view.module_depth, 0, 100, "a row per path of so many modules",
      [&view](const std::string&) {
        view.table.group_by_module = static_cast<int>(view.module_depth);
      });
  flags.toggle("guess", view.guess, "asks for your guess before the table").saved = false;
  flags.word("expect", view.expect, "LIST",
      "counts that must hold, e.g. 'launches==9,row:linear.launches==1'; else exit 7",
      [](const std::string& text) { parse_expectations(text); });
  flags.word("fail-on", view.fail_on, "LIST",
      "incomplete, distortion>5%, noise>2%, throttle, roof: not to be trusted, exit 8",
      [](const std::string& text) { parse_distrust(text); });
}

void judge(const std::string& who, const ViewFlags& view, const Measured& m) {
  std::string failed, untrusted;
  const auto add = [](std::string& to, const std::string& what) {
    to += (to.empty() ? "" : "; ") + what;
  };
  const bool incomplete = !m.only->incomplete.empty() || (m.eager && !m.eager->incomplete.empty());
  for (const Distrust& d : parse_distrust(view.fail_on)) {
    const auto over = [&](const std::optional<double>& percent) {
      if (!percent)
        add(untrusted, d.text + "; it was not measured");
      else if (std::abs(*percent) > d.percent)
        add(untrusted, fmt::format("{}; it is {:.1f} %", d.text, *percent));
    };
    if (d.what == "incomplete" && incomplete)
      add(untrusted,
          "incomplete; " +
              (m.only->incomplete.empty() ? m.eager->incomplete : m.only->incomplete).front());
    if (d.what == "distortion") over(m.distortion);
    if (d.what == "noise") over(m.noise);
    if (d.what == "throttle" && m.only->device.type == Device::Type::cuda) {
      const Report& r =
          m.eager && (m.only->sm_mhz == 0 || m.eager->throttled()) ? *m.eager : *m.only;
      if (r.sm_mhz == 0)
        add(untrusted, "throttle; the clock was not read");
      else if (r.throttled())
        add(untrusted, fmt::format("throttle; the SM clock was {:.0f} of {:.0f} MHz", r.sm_mhz,
                           r.sm_standard_mhz));
    }
    for (const Report* report : {m.only, m.eager}) {
      if (d.what != "roof" || !report) continue;
      for (const profiler::Row& row : report->rows().rows) {
        if (row.verdict.code == profiler::RowCode::above_roof)
          add(untrusted, cat("roof; ", escaped(row.name), " is above it"));
      }
    }
  }
  for (const Expectation& e : parse_expectations(view.expect)) {
    if (e.key == "speedup" && e.row.empty()) {
      if (!m.speedup || incomplete)
        add(untrusted, cat("--expect not decided: ", e.text, "; ",
                           incomplete ? "the run is INCOMPLETE" : "there is no interval"));
      else if (!holds(m.speedup->low, e.relation, e.wanted))
        add(failed, fmt::format("{}; the interval is [{:.2f},{:.2f}]", e.text, m.speedup->low,
                        m.speedup->high));
      continue;
    }
    SINTER_CHECK(!e.eager || m.eager, usage, cat("usage: --expect: ", e.text, " needs two runs"),
        "mnist compare");
    const Report& report = e.eager ? *m.eager : *m.only;
    if (report.unproved > 0 && e.key == "launches") {
      add(untrusted, cat("--expect not decided: ", e.text,
                         "; library calls may have run more kernels than they are counted for"));
      continue;
    }
    const std::vector<double> values = values_of(report, e);
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    if (*low == *high && holds(*low, e.relation, e.wanted)) continue;
    const std::string found =
        *low == *high ? fmt::format("{}", *low) : fmt::format("{}..{}", *low, *high);
    add(failed, fmt::format("{}; counted {} ({})", e.text, found,
                    report.rules.empty() ? report.mode : "rules " + report.rules));
  }
  const std::string misses = failed.empty() ? "" : cat(who, ": --expect failed: ", failed);
  SINTER_CHECK(untrusted.empty(), untrusted,
      cat(who, untrusted.starts_with("--expect") ? ": " : ": --fail-on holds: ", untrusted,
          misses.empty() ? "" : "; " + misses));
  SINTER_CHECK(failed.empty(), check, misses);
}

std::string guess(const Report& report, Output& out) {
  const profiler::Rows rows = report.rows();
  const profiler::Row* slowest = nullptr;
  for (const profiler::Row& row : rows.rows) {
    if (row.kind == profiler::ScopeKind::op && (!slowest || row.typical_ns > slowest->typical_ns))
      slowest = &row;
  }
  const std::string kNoAnswer = "nothing";  // the end of a pipe
  const auto ask = [&](const std::string& question) {
    out.note("guess", question);
    std::string answer;
    return std::getline(std::cin, answer) ? escaped(answer) : kNoAnswer;
  };
  const std::string launches = ask("how many launches has a step?"),
                    row = ask("which row takes longest?"),
                    verdict = ask(
                        "what bounds the step: compute, memory, overhead, input, latency, mixed?");
  std::string code(profiler::name_of(report.verdict().code));
  std::transform(code.begin(), code.end(), code.begin(),
      [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string longest = slowest ? slowest->name : "none";
  if (launches == kNoAnswer && row == kNoAnswer && verdict == kNoAnswer) {
    return fmt::format(
        "no answers to grade: it ran {:.0f} launches, {} takes longest, the step is {}\n",
        report.launches_per_step(), longest, code);
  }
  const auto grade = [](bool right) { return right ? "right" : "wrong"; };
  return fmt::format(
      "you said {} launches, it ran {:.0f}: {}\nyou said {} takes longest, it is {}: {}\nyou said "
      "{}, it is {}: {}\n",
      launches, report.launches_per_step(),
      grade(launches == fmt::format("{:.0f}", report.launches_per_step())), row, longest,
      grade(row == longest), verdict, code, grade(!verdict.empty() && code.starts_with(verdict)));
}

std::optional<profiler::Roofs> roofs_for(Device device, Output& out) {
  if (device.type == Device::Type::simt) return {};
  bool fresh = false;
  const profiler::Roofs roofs = measure::calibrated(device, &fresh);
  if (fresh)
    out.note(
        "roofs", fmt::format("measured once, kept in {}", escaped(profiler::roofs_file(device))));
  if (roofs.loaded) {
    out.note("roofs",
        fmt::format(
            "measured beside other programs, which kept {:.1f} cores busy: for this run only",
            roofs.others_cores));
  }
  return roofs;
}

void check_roofs(const Report& report, Output& out) {
  if (const std::string row = measure::faster_than(report);
      !row.empty() && measure::calibrate_beaten(report))
    out.note("roofs",
        fmt::format(
            "{} ran above its roof: measured again, the better ones are kept for the next run",
            escaped(row)));
}

}  // namespace sinter::cli
