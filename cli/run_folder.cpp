#include "cli/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "cli/output.h"
#include "core/atomic_file.h"
#include "core/classic.h"
#include "core/json.h"

namespace sinter::cli {
namespace {

namespace fs = std::filesystem;
constexpr const char* kHolder = ".pid";  // of the process that holds the lock, for the message
constexpr const char* kFiles[] = {"config.toml", "metrics.csv", "events.jsonl", "last.safetensors",
    "model.safetensors", "best.safetensors", "profile.txt", "profile.json", "profile.trace.json.gz",
    "profile.folded", "profile.html", "fingerprints.jsonl"};

// Is the file one that a run writes? The first line tells.
bool is_log(const std::string& file) {
  std::string line;
  ClassicStream<std::ifstream> in(file);
  return std::getline(in, line) && line.starts_with("{\"step\":");
}
bool is_config(const std::string& file) {
  std::string line;
  ClassicStream<std::ifstream> in(file);
  return std::getline(in, line) && line == kConfigOfRun;
}

// "a run at step 2150" by the last line of its log, else names of what is there; "" for an empty
// folder, and for one that holds no more than the config of a run that failed.
std::string contents(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (const std::string name = it->path().filename().string(); name != kHolder)
      names.push_back(name);
  }
  if (names.empty()) return "";
  if (names == std::vector<std::string>{"config.toml"} && is_config(folder / names[0])) return "";
  std::ranges::sort(names);
  ClassicStream<std::ifstream> log(folder / "events.jsonl");
  std::string line;
  long long step = 0;
  while (std::getline(log, line)) std::sscanf(line.c_str(), "{\"step\":%lld", &step);
  if (step > 0) return str("a run at step ", step);
  return escaped(names[0]) + (names.size() > 1 ? str(" and ", names.size() - 1, " more") : "");
}

// runs/last is a link to the newest run, which a run of that name would make one to itself.
void check_name(const fs::path& out) {
  const fs::path full = fs::absolute(out).lexically_normal(),
                 name = full.has_filename() ? full : full.parent_path();
  std::error_code missing;
  const bool is_last = name.filename() == "last" &&
                       fs::equivalent(name.parent_path(), fs::current_path() / "runs", missing);
  SINTER_CHECK(!is_last && name != fs::absolute("runs/last"), usage,
      str("usage: --out ", escaped(out.string()),
          " is no folder: a link to the newest run has its "
          "place"),
      "--out runs/NAME takes another name, --resume goes on with the newest run");
}

void make_folder(const fs::path& folder) {
  std::error_code error, ignored;
  fs::create_directories(folder, error);
  SINTER_CHECK(fs::is_directory(folder, ignored), checkpoint,
      str("checkpoint: cannot make the run folder: ", shown(folder), "; ",
          error ? error_text(error.value()) : "a file is there"),
      "--out DIR takes another place");
}

}  // namespace

RunFolder::RunFolder(const std::string& out, Take take) : name_(out) {
  if (take == Take::shared) return;
  while (name_.size() > 1 && name_.ends_with('/')) name_.pop_back();
  if (take != Take::resume && !out.empty()) check_name(name_);
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
  // A link on the way may be runs/last, which this run will change.
  const fs::path real = fs::canonical(name_);
  if (real != fs::absolute(name_).lexically_normal()) name_ = fs::proximate(real).string();
  lock_ = open(name_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  SINTER_CHECK(lock_ >= 0, checkpoint,
      str("checkpoint: cannot read the run folder: ", shown(name_), "; ", error_text(errno)));
  try {
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      ClassicStream<std::ifstream> in(file(kHolder));
      std::string holder;
      std::getline(in, holder);
      throw Error(Error::Kind::usage,
          str("usage: run folder is in use: ", shown(name_), "; held by process ", escaped(holder)),
          "--out DIR takes another place");
    }
    remove_stale_temporaries(name_);
    const std::string held = take == Take::resume ? "" : contents(name_);
    // What no run wrote is not a run's to delete: the folder may be anybody's.
    const bool is_run = is_log(file("events.jsonl")) || is_config(file("config.toml"));
    std::error_code missing;
    SINTER_CHECK(held.empty() || (take == Take::force && is_run), usage,
        str("usage: run folder is not empty: ", shown(name_), "; holds ", held),
        str(fs::exists(file("last.safetensors"), missing)
                ? str("--resume ", as_word(name_), " goes on, ")
                : "",
            is_run ? "--force starts over, " : "", "--out DIR takes another place"));
    write_file(file(kHolder), std::to_string(getpid()) + "\n");
  } catch (...) {
    close(lock_);
    throw;
  }
  if (take == Take::resume) return;
  for (const char* name : kFiles) unlink(file(name).c_str());
  // And the trace of each rank, of as many as there were.
  const auto trace = [this](int rank) {
    return file(str("profile.rank", rank, ".trace.json.gz").c_str());
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
    if (!missing) files.push_back(str(name, " ", bytes(int64_t(size))));
  }
  return files.empty() ? "nothing" : join(files);
}

std::string RunFolder::link_last() const {
  std::error_code error;
  fs::create_directories("runs", error);
  remove_stale_temporaries("runs");
  const fs::path temporary = fmt::format("runs/.last.tmp-{}", getpid());
  // Without links on the way: one of them may be runs/last itself.
  const fs::path runs = fs::canonical("runs", error), folder = fs::canonical(name_, error),
                 below = folder.lexically_relative(runs),
                 target = *below.begin() == ".." ? folder : below;
  fs::remove(temporary, error);
  fs::create_directory_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, "runs/last", error);
  return error ? str("runs/last does not name this run: ", error.message()) : "";
}

namespace {
// The row with another name for one of its keys, in its place.
Json renamed(const Json& row, const std::string& from, const std::string& to) {
  Json out;
  for (const auto& [key, value] : row.items()) out[key == from ? to : key] = value;
  return out;
}
}  // namespace

Json json_of(const EpochRow& row, const std::string& metric) {
  return renamed(row, "val_metric", "val_" + metric);
}

RunLog::RunLog(const std::string& folder, int64_t events, std::string metric)
    : file_(folder.empty() ? "" : folder + "/events.jsonl"), metric_(std::move(metric)) {
  ClassicStream<std::ifstream> lines(file_);
  std::string line, kept;
  for (; events_ < events && std::getline(lines, line); ++events_) {
    kept += line + "\n";
    EpochRow row;
    const Json event = Json::parse(line, nullptr, false);
    if (!event.contains("epoch")) continue;
    read_json(renamed(event, "val_" + metric_, "val_metric"), row, "events.jsonl");
    take(row);
  }
  if (lines.is_open()) write_file(file_, kept);
}

// An epoch in which an earlier run ended has two lines, and the row of the later one.
void RunLog::take(const EpochRow& row) {
  if (!rows_.empty() && rows_.back().number == row.number) rows_.pop_back();
  rows_.push_back(row);
}

void RunLog::add(const EpochRow& row) {
  take(row);
  add(json_of(row, metric_));
}

void RunLog::add(const nlohmann::ordered_json& event) {
  if (file_.empty()) return;
  ClassicStream<std::ofstream> out(file_, std::ios::app);
  out << json_text(event) << '\n' << std::flush;
  SINTER_CHECK(out, checkpoint, str("checkpoint: cannot write: ", escaped(file_)));
  ++events_;
}

}  // namespace sinter::cli
