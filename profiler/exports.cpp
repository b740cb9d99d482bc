#include "profiler/exports.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <zlib.h>

#include "core/atomic_file.h"
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
  // In pieces: zlib counts a call's bytes in 32 bits, and a trace may have more.
  constexpr size_t kPiece = size_t{1} << 20;
  std::string out, piece(deflateBound(&stream, kPiece), '\0');
  for (size_t at = 0; code == Z_OK; at += kPiece) {
    const bool last = at + kPiece >= text.size();
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data() + at));
    stream.avail_in = static_cast<uInt>(last ? text.size() - at : kPiece);
    do {
      stream.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_out = static_cast<uInt>(piece.size());
      code = deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
      out.append(piece, 0, piece.size() - stream.avail_out);
    } while (code == Z_OK && (last || stream.avail_in > 0));
  }
  deflateEnd(&stream);
  SINTER_ASSERT(code == Z_STREAM_END, "zlib gave ", code);
  return out;
}

Json page_json(const StepCalls& calls) {
  Json slices = Json::array();
  for (const StepCalls::Slice& s : calls.slices)
    slices.push_back({s.lane, s.depth, s.t0, s.ns, s.name, s.kernel});
  return {{"step", calls.step}, {"ns", calls.ns}, {"end", calls.end}, {"lanes", calls.lanes},
      {"slices", std::move(slices)}, {"left_out", calls.left_out}};
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
        cat(what, " has an empty item: ", escaped(text), "; item ", out.size() + 1));
    if (std::ranges::find(kFormats, word) == std::end(kFormats)) {
      const std::string nearest = nearest_word(word, kFormats);
      throw Error(Error::Kind::usage,
          fmt::format("{}: unknown format: {}{}; allowed {}", what, escaped(word),
              nearest.empty() ? "" : "; nearest is " + nearest, join(kFormats)));
    }
    SINTER_CHECK(std::find(out.begin(), out.end(), word) == out.end(), usage,
        cat(what, " names ", word, " twice: ", escaped(text)));
    out.emplace_back(word);
  }
  return out;
}

std::string html_report(const HtmlParts& parts) {
  Json data = {{"title", parts.title}, {"command", parts.command}, {"profiles", Json::array()},
      {"folded", Json::array()}, {"timelines", Json::array()}, {"comparison", Json()},
      {"opened", parsed(parts.opened)}, {"worst", parsed(parts.worst)},
      {"names", Json::object()}};  // of kernels, read aloud
  if (parts.comparison) data["comparison"] = *parts.comparison;
  for (const Report& report : parts.reports) {
    const Profile profile = profile_of(report, parts.run);
    data["profiles"].push_back(profile);
    for (const KernelSum& kernel : profile.kernels) {
      if (const auto read = read_kernel_name(kernel.name))
        data["names"][kernel.name] = read->text();
    }
    if (report.device.type == Device::Type::simt) continue;  // its times mean nothing
    data["folded"].push_back(folded_stacks(report));
    data["timelines"].push_back(page_json(report.typical_step()));
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
      cat(what, ": no such folder: ", escaped(folder.string()), "; wanted for ", escaped(file)));
  SINTER_CHECK(access(folder.c_str(), W_OK) == 0, usage,
      cat(what, ": cannot write to ", escaped(folder.string()), "; wanted for ", escaped(file)));
  SINTER_CHECK(
      !fs::is_directory(file, error), usage, cat(what, ": a folder is there: ", escaped(file)));
  SINTER_CHECK(force || !fs::exists(file, error), usage,
      cat(what, ": a file is there: ", escaped(file)), hint);
}

void Exports::check(bool force) const {
  for (const std::string& file : files()) check_writable(file, what, force, hint);
}

void write_trace(const std::string& base, const std::string& text) {
  write_file(base + kTraceEnding, packed(text));
}

std::vector<std::string> Exports::write(std::span<const Report> reports, const RunFacts& run,
    const std::string& table, const Comparison* comparison, const std::string& opened) const {
  std::vector<std::string> said;
  if (has("table")) write_file(base + ".txt", table);
  for (const Report& report : reports) {
    const std::string name = base + (pair ? &report == reports.data() ? "_eager" : "_fused" : "");
    const Profile profile = profile_of(report, run);
    if (has("json")) write_file(name + ".json", to_json(profile));
    if (has("stacks")) write_file(name + ".folded", folded_stacks(report));
  }
  if (has("trace")) {
    const ChromeTrace trace = chrome_trace(reports);
    if (!trace.text.empty()) write_trace(base, trace.text);
    if (!trace.note.empty()) said.push_back(trace.note);
  }
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
  return said;
}

}  // namespace sinter::profiler
