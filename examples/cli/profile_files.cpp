#include "examples/cli/profile_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "examples/cli/text.h"

namespace sinter::cli {

namespace {

// The ledger as the HTML page draws it.
profiler::Comparison comparison_of(
    const measure::Ledger& ledger, std::string headline, std::vector<std::string> proof) {
  profiler::Comparison out{.headline = std::move(headline), .proof = std::move(proof)};
  const auto name_only = [](std::string text) {  // "linear_act x2" -> "linear_act"
    const size_t times = text.rfind(" x");
    return times != std::string::npos &&
                   text.find_first_not_of("0123456789", times + 2) == std::string::npos
               ? text.substr(0, times)
               : text;
  };
  for (const measure::LedgerRow& row : ledger.rows) {
    const bool timed = !row.eager_us.empty();
    profiler::ComparedRow r{.fused = row.fused,
        .row = name_only(row.fused),
        .eager = row.eager,
        .ratio = row.verdict,
        .eager_launches = row.eager_launches,
        .fused_launches = row.fused_launches,
        .eager_bytes = row.eager_bytes,
        .fused_bytes = row.fused_bytes};
    for (size_t begin = 0; begin < row.eager.size();) {
      const size_t end = std::min(row.eager.find(", ", begin), row.eager.size());
      r.from.push_back(name_only(row.eager.substr(begin, end - begin)));
      begin = end + 2;
    }
    if (timed) {
      r.eager_us = profiler::median(row.eager_us);
      if (row.fused_launches > 0) r.fused_us = profiler::median(row.fused_us);
    }
    if (timed && row.verdict.empty() && row.fused_launches > 0)
      r.ratio = profiler::factor_text(
          profiler::paired_ratio(row.eager_us, row.fused_us), row.eager_us.size());
    out.rows.push_back(std::move(r));
  }
  return out;
}

}  // namespace

void add_export_flags(
    Flags& flags, ExportFlags& files, std::vector<std::string> allowed, std::string help) {
  if (help.empty()) help = "where the time goes, a list of: table, json, csv, trace, stacks, html";
  Flag& flag = flags.word("profile", files.text, "FORMATS", std::move(help));
  flag.once = true;
  flag.saved = false;
  flag.bare_value = allowed.empty() ? "table" : allowed[0];
  flag.set = [&files, allowed](const std::string& given, const std::string&) {
    files.formats = profiler::parse_formats(given, "usage: --profile");
    for (const std::string& word : files.formats) {
      SINTER_CHECK(
          allowed.empty() || std::find(allowed.begin(), allowed.end(), word) != allowed.end(),
          usage, cat("usage: --profile: not of this command: ", word, "; allowed ", join(allowed)));
    }
    files.text = given;
  };
  flags.word("output,o", files.name, "NAME", "begins the names of the profile's files").saved =
      false;
  flags.toggle("force", files.force, "write over files that are there").saved = false;
}

void check_writable(const std::string& file, const char* flag, bool force) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(file, error).parent_path();
  SINTER_CHECK(std::filesystem::is_directory(folder, error) && access(folder.c_str(), W_OK) == 0,
      usage,
      cat("usage: ", flag, ": cannot write: ", escaped(file),
          "; its folder is not there, or closed"));
  SINTER_CHECK(!std::filesystem::is_directory(file, error), usage,
      cat("usage: ", flag, ": a folder is there: ", escaped(file)));
  SINTER_CHECK(force || !std::filesystem::exists(file, error), usage,
      cat("usage: ", flag, ": a file is there: ", escaped(file)), "--force writes over it");
}

void write_files(const profiler::Exports& files, const Outcome& outcome, const ContestFlags& flags,
    const profiler::RunFacts& run, Output& out) {
  if (files.formats.empty()) return;
  const profiler::Comparison comparison =
      comparison_of(outcome.ledger, outcome.headline, outcome.proof);
  const std::string text = fmt::format("{}\n{}\n{}\nstep {}\n{}\n",
      outcome.eager.table(flags.view.table), outcome.fused.table(flags.view.table),
      outcome.ledger.table(), outcome.headline, fmt::join(outcome.proof, "\n"));
  for (const std::string& what :
      files.write(std::vector{outcome.eager, outcome.fused}, run, text, &comparison))
    out.note("profile", what);
  out.note("files", join(files.files()));
}

}  // namespace sinter::cli
