#include "measure/exports.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "core/atomic_file.h"
#include "core/classic.h"
#include "core/json.h"
#include "profiler/kernel_name.h"
#include "profiler/trace.h"

namespace sinter {
// The files of measure/page. The page draws; here is only what it draws from.
extern const char report_page[];
}  // namespace sinter

namespace sinter::measure {

namespace {

using profiler::kTraceEnding, profiler::Profile, profiler::Report;

namespace fs = std::filesystem;
constexpr std::string_view kFormats[] = {"table", "json", "trace", "stacks", "html"};

Json parsed(const std::string& json) { return json.empty() ? Json() : Json::parse(json); }

// The template with its data, a JSON text, where its mark stands.
std::string fill_page(std::string page, std::string json) {
  for (size_t at = 0; (at = json.find("</", at)) != std::string::npos; at += 3)
    json.replace(at, 2, "<\\/");
  for (size_t at = 0; (at = json.find("<!--", at)) != std::string::npos; at += 9)
    json.replace(at, 1, "\\u003c");
  constexpr std::string_view kMark = "@DATA@";
  return page.replace(page.find(kMark), kMark.size(), json);
}

}  // namespace

std::vector<std::string> parse_formats(const std::string& text, const std::string& what) {
  std::vector<std::string> out;
  for (const std::string_view word : parts_of(text, ",")) {
    SINTER_CHECK(!word.empty(), usage,
        str(what, " has an empty item: ", escaped(text), "; item ", out.size() + 1));
    profiler::check_known(what + ": unknown format", word, kFormats);
    SINTER_CHECK(std::find(out.begin(), out.end(), word) == out.end(), usage,
        str(what, " names ", word, " twice: ", escaped(text)));
    out.emplace_back(word);
  }
  return out;
}

std::string html_report(const HtmlParts& parts) {
  Json data = {{"title", parts.title}, {"command", parts.command}, {"profiles", Json::array()},
      {"kept", Json::array()}, {"tables", Json::array()}, {"folded", Json::array()},
      {"timelines", Json::array()}, {"comparison", Json()}, {"opened", parsed(parts.opened)},
      {"worst", parsed(parts.worst)}, {"names", Json::object()}};  // of kernels, read aloud
  if (parts.comparison) data["comparison"] = *parts.comparison;
  for (const Report& report : parts.reports) {
    const Profile profile = profile_of(report, parts.run);
    data["profiles"].push_back(profile);
    data["kept"].push_back(  // a comparison has its own
        parts.comparison ? "" : profiler::kept_lines(profiler::kept_of(report)));
    data["tables"].push_back(profiler::table_cells(profile, {.row_limit = -1, .columns = "all"}));
    for (const profiler::KernelSum& kernel : profile.kernels) {
      if (const auto read = profiler::read_kernel_name(kernel.name))
        data["names"][kernel.name] = read->text();
    }
    if (report.device.type == Device::Type::simt) continue;  // its times mean nothing
    data["folded"].push_back(profiler::folded_stacks(report));
    data["timelines"].push_back(report.typical_step());
  }
  return fill_page(report_page, json_text(data));
}

bool Exports::has(std::string_view format) const {
  return std::find(formats.begin(), formats.end(), format) != formats.end();
}

std::vector<std::string> Exports::files() const {
  std::vector<std::string> out;
  if (has("table")) out.push_back(base + ".txt");
  if (has("html")) out.push_back(base + ".html");
  if (has("trace")) out.push_back(base + kTraceEnding);
  const std::pair<std::string_view, const char*> endings[] = {
      {"json", ".json"}, {"stacks", ".folded"}};
  for (const char* mode : pair ? std::vector{"_eager", "_fused"} : std::vector{""}) {
    for (const auto& [format, ending] : endings) {
      if (has(format)) out.push_back(base + mode + ending);
    }
  }
  return out;
}

void check_writable(
    const std::string& file, const std::string& what, bool force, const std::string& hint) {
  std::error_code error;
  const fs::path folder = fs::absolute(file, error).parent_path();
  SINTER_CHECK(fs::is_directory(folder, error), usage,
      str(what, ": no such folder: ", escaped(folder.string()), "; wanted for ", escaped(file)));
  SINTER_CHECK(access(folder.c_str(), W_OK) == 0, checkpoint,
      str("checkpoint: cannot write: ", escaped(file), "; the folder is ", escaped(folder.string()),
          ", ", error_text(errno)));
  SINTER_CHECK(
      !fs::is_directory(file, error), usage, str(what, ": a folder is there: ", escaped(file)));
  SINTER_CHECK(!fs::is_other(file, error), usage,
      str(what, ": a device or a pipe is there: ", escaped(file), "; a plain file is wanted"));
  SINTER_CHECK(force || !fs::exists(file, error), usage,
      str(what, ": a file is there: ", escaped(file)), hint);
}

void Exports::check(bool force) const {
  for (const std::string& file : files()) check_writable(file, what, force, hint);
}

void Exports::write(std::span<const Report> reports, const profiler::RunFacts& run,
    const std::string& table, const PageComparison* comparison, const std::string& opened) const {
  if (has("table")) write_file(base + ".txt", table);
  for (const Report& report : reports) {
    const std::string name = base + (pair ? &report == reports.data() ? "_eager" : "_fused" : "");
    const Profile profile = profile_of(report, run);
    if (has("json")) write_file(name + ".json", profiler::to_json(profile));
    if (has("stacks")) write_file(name + ".folded", profiler::folded_stacks(report));
  }
  if (has("trace")) profiler::write_trace(base, profiler::chrome_trace(reports));
  if (has("html")) {
    write_file(base + ".html",
        html_report({.title = (run.workload.empty() ? "sinter" : run.workload) +
                              (run.batch > 0 ? fmt::format(", batch {}", run.batch) : ""),
            .command = run.command,
            .reports = reports,
            .run = run,
            .comparison = comparison,
            .opened = opened}));
  }
}

void save(const Report& report, const std::string& file, const profiler::RunFacts& run) {
  Exports one{.formats = {""}};
  for (const std::string_view format : kFormats) {
    one.formats[0] = format;
    const size_t ending = one.files()[0].size();
    if (file.size() <= ending || !file.ends_with(one.files()[0])) continue;
    one.base = file.substr(0, file.size() - ending);
    return one.write({&report, 1}, run, report.table());
  }
  SINTER_CHECK(false, usage,
      str("save: unknown ending: ", escaped(file),
          "; allowed .txt, .json, .trace.json.gz, .folded, .html"));
}

}  // namespace sinter::measure
