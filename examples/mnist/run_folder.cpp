#include "examples/mnist/run_folder.h"

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

#include "core/atomic_file.h"
#include "core/classic.h"
#include "core/json.h"
#include "examples/cli/output.h"

namespace sinter::mnist {
namespace {

namespace fs = std::filesystem;
constexpr const char* kHolder = ".pid";  // of the process that holds the lock, for the message
constexpr const char* kFiles[] = {"config.toml", "metrics.csv", "events.jsonl", "last.safetensors",
    "model.safetensors", "best.safetensors", "profile.txt", "profile.json", "profile.trace.json.gz",
    "profile.folded", "profile.html"};

// "a run at step 2150" by the last line of its log, else names of what is there; "" for an empty
// folder.
std::string contents(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (const std::string name = it->path().filename().string(); name != kHolder)
      names.push_back(name);
  }
  if (names.empty()) return "";
  std::ranges::sort(names);
  ClassicStream<std::ifstream> log(folder / "events.jsonl");
  std::string line;
  long long step = 0;
  while (std::getline(log, line)) std::sscanf(line.c_str(), "{\"step\":%lld", &step);
  if (step > 0) return cat("a run at step ", step);
  return escaped(names[0]) + (names.size() > 1 ? cat(" and ", names.size() - 1, " more") : "");
}

void make_folder(const fs::path& folder) {
  std::error_code error, ignored;
  fs::create_directories(folder, error);
  SINTER_CHECK(fs::is_directory(folder, ignored), checkpoint,
      cat("checkpoint: cannot make the run folder: ", shown(folder), "; ",
          error ? error_text(error.value()) : "a file is there"),
      "--out DIR takes another place");
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
      cat("checkpoint: cannot read the run folder: ", shown(name_), "; ", error_text(errno)));
  try {
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      ClassicStream<std::ifstream> in(file(kHolder));
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

RunLog::RunLog(const std::string& folder, int64_t events)
    : file_(folder.empty() ? "" : folder + "/events.jsonl") {
  ClassicStream<std::ifstream> lines(file_);
  std::string line, kept;
  for (; events_ < events && std::getline(lines, line); ++events_) {
    kept += line + "\n";
    EpochRow row;
    const Json event = Json::parse(line, nullptr, false);
    if (!event.contains("epoch")) continue;
    read_json(event, row, "events.jsonl");
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
  add(Json(row));
}

void RunLog::add(const nlohmann::ordered_json& event) {
  if (file_.empty()) return;
  ClassicStream<std::ofstream> out(file_, std::ios::app);
  out << json_text(event) << '\n' << std::flush;
  SINTER_CHECK(out, checkpoint, cat("checkpoint: cannot write: ", escaped(file_)));
  ++events_;
}

}  // namespace sinter::mnist
