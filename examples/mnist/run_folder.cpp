#include "examples/mnist/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "core/atomic_file.h"
#include "core/json.h"
#include "examples/cli/text.h"

namespace sinter::mnist {
namespace {

namespace fs = std::filesystem;
constexpr const char* kHolder = ".pid";  // of the process that holds the lock, for the message
constexpr const char* kFiles[] = {"config.toml", "metrics.csv", "events.jsonl", "last.safetensors",
    "model.safetensors", "best.safetensors", "profile.txt", "profile.json", "profile.trace.json.gz",
    "profile.folded", "profile.html"};

// "step 2150" of the last row of metrics.csv, else names of what is there; "" for an empty folder.
std::string contents(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (const std::string name = it->path().filename().string(); name != kHolder)
      names.push_back(name);
  }
  if (names.empty()) return "";
  std::ranges::sort(names);
  std::ifstream metrics(folder / "metrics.csv");
  std::string line, last;
  for (int n = 0; std::getline(metrics, line); ++n) last = n ? line : "";
  if (const size_t comma = last.find(','); comma != std::string::npos)
    return "a run at step " +
           escaped(last.substr(comma + 1, last.find(',', comma + 1) - comma - 1));
  return escaped(names[0]) + (names.size() > 1 ? cat(" and ", names.size() - 1, " more") : "");
}

void make_folder(const fs::path& folder) {
  std::error_code error, ignored;
  fs::create_directories(folder, error);
  SINTER_CHECK(fs::is_directory(folder, ignored), checkpoint,
      cat("checkpoint: cannot make the run folder: ", shown(folder), "; ",
          error ? error.message() : "a file is there"),
      "--out DIR takes another place");
}

// A NaN is an empty cell.
std::string metrics_csv(const std::vector<EpochRow>& rows) {
  std::string text = join(kKeysOf<EpochRow>, ",") + "\n";
  for (const EpochRow& row : rows) {
    std::vector<std::string> cells;
    visit_fields(row, [&cells](std::string_view, const auto& value) {
      cells.push_back(std::isnan(double(value)) ? "" : fmt::format("{}", value));
    });
    text += join(cells, ",") + "\n";
  }
  return text;
}

// Floats are written with all their digits, so a row that is read prints as it was.
EpochRow parse_row(const std::string& line) {
  EpochRow row{};
  const std::vector<std::string_view> cells = parts_of(line, ",");
  visit_fields(row, [&, i = size_t{0}](std::string_view, auto& value) mutable {
    if constexpr (std::is_floating_point_v<std::decay_t<decltype(value)>>) value = NAN;
    if (i < cells.size()) std::from_chars(cells[i].begin(), cells[i].end(), value);
    ++i;
  });
  return row;
}

}  // namespace

RunFolder::RunFolder(const std::string& out, Take take) : name_(out) {
  if (take == Take::shared) return;
  while (name_.size() > 1 && name_.ends_with('/')) name_.pop_back();
  if (out.empty()) {
    const std::time_t now = std::time(nullptr);
    std::tm local;
    char text[64];
    std::strftime(text, sizeof text, "runs/%Y%m%d-%H%M%S", localtime_r(&now, &local));
    name_ = text;
    make_folder("runs");
    // Two runs in one second: the first to make a folder has it.
    const std::string base = name_;
    std::error_code error;
    for (int n = 2; !fs::create_directory(name_, error) && !error; ++n)
      name_ = fmt::format("{}-{}", base, n);
  }
  make_folder(name_);
  lock_ = open(name_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  SINTER_CHECK(lock_ >= 0, checkpoint,
      cat("checkpoint: cannot read the run folder: ", shown(name_), "; ", std::strerror(errno)));
  try {
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      std::ifstream in(file(kHolder));
      std::string holder;
      std::getline(in, holder);
      throw Error(Error::Kind::usage,
          cat("usage: run folder is in use: ", shown(name_), "; held by process ", escaped(holder)),
          "--out DIR takes another place");
    }
    const std::string held = take == Take::fresh ? contents(name_) : "";
    SINTER_CHECK(held.empty(), usage,
        cat("usage: run folder is not empty: ", shown(name_), "; holds ", held),
        cat("--resume ", escaped(name_),
            " goes on, --force starts over, --out DIR takes another place"));
    write_file(file(kHolder), std::to_string(getpid()) + "\n");
  } catch (...) {
    close(lock_);
    throw;
  }
  remove_stale_temporaries(name_);
  if (take == Take::resume) return;
  for (const char* name : kFiles) unlink(file(name).c_str());
  // And the trace of each rank, of as many as there were.
  const auto trace = [this](int rank) {
    return file(cat("profile.rank", rank, ".trace.json.gz").c_str());
  };
  for (int rank = 0; unlink(trace(rank).c_str()) == 0; ++rank) {}
}

RunFolder::~RunFolder() {
  if (lock_ < 0) return;
  unlink(file(kHolder).c_str());
  std::error_code holds_something;
  fs::remove(name_, holds_something);  // of a run that wrote nothing
  close(lock_);
}

std::string RunFolder::holds() const {
  std::vector<std::string> files;
  for (const char* name : kFiles) {
    std::error_code missing;
    const uintmax_t size = fs::file_size(file(name), missing);
    if (!missing) files.push_back(cat(name, " ", cli::bytes(int64_t(size))));
  }
  return files.empty() ? "nothing" : join(files);
}

std::string RunFolder::link_last() const {
  std::error_code error;
  fs::create_directories("runs", error);
  remove_stale_temporaries("runs");
  const fs::path temporary = fmt::format("runs/.last.tmp-{}", getpid());
  const fs::path target =
      name_.starts_with("runs/") ? fs::path(name_.substr(5)) : fs::absolute(name_, error);
  fs::remove(temporary, error);
  fs::create_directory_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, "runs/last", error);
  return error ? cat("runs/last does not name this run: ", error.message()) : "";
}

RunLog::RunLog(const std::string& folder, int64_t rows, int64_t events)
    : metrics_(folder + "/metrics.csv"), events_file_(folder + "/events.jsonl") {
  if (folder.empty()) {
    events_file_.clear();
    return;
  }
  std::string line, kept;
  std::ifstream metrics(metrics_);
  std::getline(metrics, line);
  while (int64_t(rows_.size()) < rows && std::getline(metrics, line))
    rows_.push_back(parse_row(line));
  std::ifstream lines(events_file_);
  for (; events_ < events && std::getline(lines, line); ++events_) kept += line + "\n";
  if (lines.is_open()) write_file(events_file_, kept);
  if (metrics.is_open()) write_file(metrics_, metrics_csv(rows_));
}

void RunLog::add(const EpochRow& row) {
  rows_.push_back(row);
  if (!events_file_.empty()) write_file(metrics_, metrics_csv(rows_));
}

void RunLog::add(const nlohmann::ordered_json& event) {
  if (events_file_.empty()) return;
  std::ofstream out(events_file_, std::ios::app);
  out << json_text(event) << '\n' << std::flush;
  SINTER_CHECK(out, checkpoint, cat("checkpoint: cannot write: ", escaped(events_file_)));
  ++events_;
}

}  // namespace sinter::mnist
