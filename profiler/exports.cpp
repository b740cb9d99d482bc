#include "profiler/exports.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>

#include <zlib.h>

#include "core/atomic_file.h"
#include "core/classic.h"
#include "core/json.h"
#include "profiler/kernel_name.h"
#include "profiler/trace.h"

namespace sinter {
// The files of profiler/page. The page draws; here is only what it draws from.
extern const char report_page[];
}  // namespace sinter

namespace sinter::profiler {

namespace {

namespace fs = std::filesystem;
constexpr std::string_view kFormats[] = {"table", "json", "trace", "stacks", "html"};

constexpr const char* kTraceEnding = ".trace.json.gz";
std::string packed(const std::string& text) {
  z_stream stream{};
  // + 16: with a gzip header, which has no time in it.
  int code =
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  // In pieces: zlib counts a call's bytes in 32 bits, and a trace may have more.
  constexpr size_t kPiece = size_t{1} << 20;
  while (code == Z_OK) {
    const size_t rest = text.size() - stream.total_in;
    stream.avail_in = uInt(std::min(rest, kPiece));
    stream.avail_out = uInt(std::min(out.size() - stream.total_out, 2 * kPiece));
    code = deflate(&stream, rest > kPiece ? Z_NO_FLUSH : Z_FINISH);
  }
  deflateEnd(&stream);
  SINTER_ASSERT(code == Z_STREAM_END, "zlib gave ", code);
  out.resize(stream.total_out);
  return out;
}

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
    check_known(what + ": unknown format", word, kFormats);
    SINTER_CHECK(std::find(out.begin(), out.end(), word) == out.end(), usage,
        str(what, " names ", word, " twice: ", escaped(text)));
    out.emplace_back(word);
  }
  return out;
}

std::string to_json(const Profile& profile) { return json_text(profile, 1) + "\n"; }

Profile read_profile(const std::string& text, const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Error::Kind::data,
        str("profile: not a profile: ", escaped(file), "; ", escaped(why)),
        "a profile is the .json file that a profiled run wrote");
  };
  double sum = 0;  // of all numbers: where it fits an int64_t, so does the sum of some
  const auto add = [&sum](int, Json::parse_event_t what, const Json& value) {
    if (what == Json::parse_event_t::value && value.is_number())
      sum += std::abs(value.get<double>());
    return true;
  };
  const Json json = Json::parse(text, add, false), schema = Json(Profile{})["schema"];
  if (!json.is_object() || !json.contains("schema")) refuse("no JSON object with a schema");
  if (json["schema"] != schema)
    refuse(str("its schema is ", json_text(json["schema"]), ", wanted ", json_text(schema)));
  Profile profile;
  try {
    read_json(json, profile, "profile");
  } catch (const Error& e) {
    refuse(e.message());
  }
  if (profile.steps.empty()) refuse("it has no steps");
  constexpr double kMost = 9e18;
  if (!(sum <= kMost)) refuse(str("its numbers add up to ", sum, ", wanted ", kMost, " at most"));
  for (Row& row : profile.rows) {
    if (!row.samples.empty() && row.samples.size() != profile.steps.size())
      refuse(str("row ", row.name, " has ", row.samples.size(), " samples of ",
          profile.steps.size(), " steps"));
    row.typical_ns = typical(row.samples);
  }
  return profile;
}

std::string html_report(const HtmlParts& parts) {
  Json data = {{"title", parts.title}, {"command", parts.command}, {"profiles", Json::array()},
      {"tables", Json::array()}, {"folded", Json::array()}, {"timelines", Json::array()},
      {"comparison", Json()}, {"opened", parsed(parts.opened)}, {"worst", parsed(parts.worst)},
      {"names", Json::object()}};  // of kernels, read aloud
  if (parts.comparison) data["comparison"] = *parts.comparison;
  for (const Report& report : parts.reports) {
    const Profile profile = profile_of(report, parts.run);
    data["profiles"].push_back(profile);
    data["tables"].push_back(
        table_cells(profile, {.row_limit = -1, .columns = "memory,footprint"}));
    for (const KernelSum& kernel : profile.kernels) {
      if (const auto read = read_kernel_name(kernel.name))
        data["names"][kernel.name] = read->text();
    }
    if (report.device.type == Device::Type::simt) continue;  // its times mean nothing
    data["folded"].push_back(folded_stacks(report));
    data["timelines"].push_back(report.typical_step());
  }
  return fill_page(report_page, json_text(data));
}

Profile profile_of(const Report& report, const RunFacts& run) {
  Profile profile = report.profile();
  static_cast<RunFacts&>(profile) = run;
  return profile;
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

void write_trace(const std::string& base, const std::string& text) {
  write_file(base + kTraceEnding, packed(text));
}

void Exports::write(std::span<const Report> reports, const RunFacts& run, const std::string& table,
    const Comparison* comparison, const std::string& opened) const {
  if (has("table")) write_file(base + ".txt", table);
  for (const Report& report : reports) {
    const std::string name = base + (pair ? &report == reports.data() ? "_eager" : "_fused" : "");
    const Profile profile = profile_of(report, run);
    if (has("json")) write_file(name + ".json", to_json(profile));
    if (has("stacks")) write_file(name + ".folded", folded_stacks(report));
  }
  if (has("trace")) write_trace(base, chrome_trace(reports));
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

}  // namespace sinter::profiler
