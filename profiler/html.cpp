// html_report(): the data of profiler/report.html, which the build puts into kReportHtml. The page
// draws; here is only what it draws from.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "profiler/exports.h"
#include "profiler/trace.h"

namespace sinter::profiler {

extern const char kReportHtml[];  // report_html.cpp.in

namespace {

using Json = nlohmann::ordered_json;

// The first steps as lanes of slices [name, t0, ns, depth, info]; times from the first step on,
// names and infos as indices.
class Lanes {
 public:
  Lanes(const Report& report, const TracePlan& plan)
      : report_(report), base_(report.steps.front().t0) {
    last_ = report.steps[static_cast<size_t>(plan.steps) - 1].number;
    json_ = {{"title", report.title}, {"left_out", plan.note}, {"peak", nullptr},
        {"steps", Json::array()}, {"lanes", Json::array()}, {"memory", Json::array()},
        {"infos", Json::array()}, {"names", Json::array()}};
    for (const StepSample& s : report.steps) {
      if (s.number <= last_) json_["steps"].push_back({s.number, s.t0 - base_, s.t1 - base_});
    }
    for (const Trace& trace : report.traces) host(trace);
    for (const auto& [thread, slices] : threads_)
      json_["lanes"].push_back({{"name", cat("thread ", thread)}, {"slices", slices}});
    for (const auto& [stream, slices] : streams_)
      json_["lanes"].push_back(
          {{"name", cat(report.device.str(), " stream ", stream)}, {"slices", slices}});
  }
  Json take() { return std::move(json_); }

 private:
  bool wanted(uint32_t step) const { return report_.step_index(step) >= 0 && step <= last_; }
  int name(std::string_view text) {
    const auto [found, is_new] =
        names_.try_emplace(std::string(text), static_cast<int>(names_.size()));
    if (is_new) json_["names"].push_back(text);
    return found->second;
  }
  int info(const OpInfo& op, uint32_t launches, std::string_view kernel = "",
      std::string_view footprint = "") {
    Json one = {{"role", name_of(op.role)}, {"shapes", shape_text(op.shape_key)},
        {"flops", op.cost.flops}, {"bytes_read", op.cost.bytes_read},
        {"bytes_written", op.cost.bytes_written}, {"launches", launches}, {"kernel", kernel},
        {"footprint", footprint}};
    const auto [found, is_new] = infos_.try_emplace(
        one.dump(-1, ' ', false, Json::error_handler_t::replace), static_cast<int>(infos_.size()));
    if (is_new) json_["infos"].push_back(std::move(one));
    return found->second;
  }

  void host(const Trace& trace) {
    Json& slices = threads_.try_emplace(trace.thread, Json::array()).first->second;
    for (const Record& r : trace.records) {
      if (!wanted(r.step) || !report_.counts(trace, r)) continue;
      slices.push_back({name(r.name), r.t0 - base_, r.t1 - r.t0, r.depth,
          r.kind == ScopeKind::op ? info(r.info, r.n_launches) : -1});
    }
    for (const LaunchRecord& l : trace.launches) {
      if (report_.device == kCpu || !wanted(l.step) || l.kind == LaunchKind::graph ||
          l.device_ns() <= 0)
        continue;
      const GraphNode* node = l.graph_node > 0 && l.graph_node <= report_.nodes.size()
                                  ? &report_.nodes[l.graph_node - 1]
                                  : nullptr;
      const Record* op = l.record >= 0 ? &trace.records[static_cast<size_t>(l.record)] : nullptr;
      const OpInfo what = node ? OpInfo{.cost = node->cost, .role = node->role}
                          : op ? op->info
                               : OpInfo{};
      const std::string_view shown = node ? std::string_view(node->name)
                                     : op ? op->name.view()
                                          : l.kernel.view();
      streams_.try_emplace(l.stream, Json::array())
          .first->second.push_back({name(shown), l.dev_t0 - base_, l.device_ns(), 0,
              info(what, l.at_least(), l.kernel.view(), l.footprint.view())});
    }
    for (const MemorySample& m : trace.memory) {
      if (wanted(m.step)) json_["memory"].push_back({m.t - base_, m.live_bytes});
    }
  }

  const Report& report_;
  const int64_t base_;
  int64_t last_;
  Json json_;
  std::map<std::string, int> names_, infos_;
  std::map<int, Json> threads_;
  std::map<uint32_t, Json> streams_;
};

Json to_json(const Comparison& c) {
  Json rows = Json::array();
  const auto us = [](const std::optional<double>& x) { return x ? Json(*x) : Json(); };
  for (const ComparedRow& r : c.rows) {
    rows.push_back({{"fused", r.fused}, {"row", r.row}, {"eager", r.eager}, {"ratio", r.ratio},
        {"from", r.from}, {"eager_us", us(r.eager_us)}, {"fused_us", us(r.fused_us)},
        {"eager_launches", r.eager_launches}, {"fused_launches", r.fused_launches},
        {"eager_bytes", r.eager_bytes}, {"fused_bytes", r.fused_bytes}});
  }
  return {{"headline", c.headline}, {"rows", std::move(rows)}, {"proof", c.proof}};
}

Json to_json(const Sweep& s) {
  Json cells = Json::array();
  for (const SweepCell& c : s.cells) {
    cells.push_back({{"batch", c.batch}, {"hidden", c.hidden}, {"eager_us", c.eager_us},
        {"fused_us", c.fused_us}, {"ratio", c.ratio.has_interval ? Json(c.ratio.value) : Json()},
        {"low", c.ratio.low}, {"high", c.ratio.high}});
  }
  return {{"title", s.title}, {"crossover", s.crossover}, {"batch", s.batch}, {"hidden", s.hidden},
      {"cells", std::move(cells)}};
}

}  // namespace

std::string html_report(const HtmlParts& parts) {
  Json data = {{"title", parts.title}, {"command", parts.command}, {"profiles", Json::array()},
      {"timelines", Json::array()}, {"folded", Json::array()},
      {"comparison", parts.comparison ? to_json(*parts.comparison) : Json()},
      {"sweep", parts.sweep ? to_json(*parts.sweep) : Json()}};
  for (const Report& report : parts.reports) {
    const Profile profile = make_profile(report, parts.run);
    data["profiles"].push_back(Json::parse(to_json(profile)));
    if (report.device.type == Device::Type::simt) continue;  // no times: nothing to draw over time
    if (const TracePlan plan = plan_trace(report, {.bytes = int64_t{16} << 20}); plan.steps > 0) {
      Json lanes = Lanes(report, plan).take();
      if (profile.memory_peak > 0)
        lanes["peak"] = {{"bytes", profile.memory_peak}, {"op", profile.memory_peak_op}};
      data["timelines"].push_back(std::move(lanes));
    }
    data["folded"].push_back(folded_stacks(report));
  }
  std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3)
    text.replace(at, 2, "<\\/");
  for (size_t at = 0; (at = text.find("<!--", at)) != std::string::npos; at += 9)
    text.replace(at, 1, "\\u003c");
  std::string page = kReportHtml;
  constexpr std::string_view kMark =
      "@"
      "DATA@</script>";
  return page.replace(page.find(kMark), kMark.size() - 9, text);
}

}  // namespace sinter::profiler
