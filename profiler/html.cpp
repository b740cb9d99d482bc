// html_report(): the data of profiler/report.html, which the build puts into kReportHtml. The page
// draws; here is only what it draws from.
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "profiler/exports.h"
#include "profiler/trace.h"

namespace sinter::profiler {

extern const char kReportHtml[];  // report_html.cpp.in

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Comparison& c) {
  Json rows = Json::array();
  for (const ComparedRow& r : c.rows) {
    const bool timed = !r.eager_us.empty(), both = timed && r.fused_launches > 0;
    std::string ratio = r.verdict;
    if (both && ratio.empty())
      ratio = factor_text(paired_ratio(r.eager_us, r.fused_us), r.eager_us.size());
    rows.push_back({{"fused", r.fused}, {"row", r.row}, {"eager", r.eager}, {"ratio", ratio},
        {"from", r.from}, {"eager_us", timed ? Json(median(r.eager_us)) : Json()},
        {"fused_us", both ? Json(median(r.fused_us)) : Json()},
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
      {"folded", Json::array()},
      {"comparison", parts.comparison ? to_json(*parts.comparison) : Json()},
      {"sweep", parts.sweep ? to_json(*parts.sweep) : Json()}};
  for (const Report& report : parts.reports) {
    data["profiles"].push_back(Json::parse(to_json(profile_of(report, parts.run))));
    const bool timed = report.device.type != Device::Type::simt;  // the emulator's mean nothing
    if (timed) data["folded"].push_back(folded_stacks(report));
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
