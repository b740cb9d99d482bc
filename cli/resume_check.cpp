// resume-check RUN: does the checkpoint of a run hold what the run came to, and does it go on as
// the run would have?
//
// Note [A resume that is proved]
//   The run is repeated from its start to the step of its checkpoint, and what it comes to is
//   compared with the file to the bit: so a file is found that was written amid a step, or changed.
//   Then both go on for some steps: what a file lacks shows only there. Nothing is written in the
//   run's folder. No epoch is evaluated, which changes nothing of what is compared. Repeating does
//   not begin at best.safetensors: from weights alone no run goes on to the bit.
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "cli/commands.h"
#include "cli/process.h"
#include "cli/run.h"
#include "core/json.h"

namespace sinter::cli {
namespace {

constexpr int64_t kStepsOn = 10;

// Of a run that ends there; what a checkpoint would hold then, by way of a file.
nn::Checkpoint train_to(Run& run, int64_t step) {
  run.steps = step;
  run.data.val = 0;
  run.at().ended = false;
  StepProfile none(run);
  train_steps(run, none);
  const std::string file =
      std::filesystem::temp_directory_path() / str("sinter-check-", getpid(), ".safetensors");
  run.trainer->save(file, run.config);
  nn::Checkpoint state = nn::read_checkpoint(file);
  std::filesystem::remove(file);
  return state;
}

// "", or the first thing that differs: "0.weight, element 5 of 400, is 0.25 there, 0.5 here".
std::string difference(const nn::Checkpoint& there, const nn::Checkpoint& here) {
  const auto compare = [](const std::string& what, const auto& a, const auto& b) {
    return a == b ? "" : str(what, " is ", a, " there, ", b, " here");
  };
  for (const auto& [name, b] : here.tensors) {
    const Tensor* const a = nn::find(there.tensors, name);
    const std::string differs =
        compare(escaped(name), a ? a->describe() : std::string("missing"), b.describe());
    if (!differs.empty()) return differs;
    const size_t size = size_of(b.dtype());
    for (size_t at = 0; at < size_t(b.numel()) * size; at += size) {
      const char* const x = static_cast<const char*>(a->raw()) + at;
      const char* const y = static_cast<const char*>(b.raw()) + at;
      if (std::memcmp(x, y, size) == 0) continue;
      const auto number = [n = at / size](const Tensor& t) {
        return fmt::format("{:.9g}", t.to_vector<double>()[n]);
      };
      return compare(str(escaped(name), ", element ", at / size, " of ", b.numel(), ","),
          number(*a), number(b));
    }
  }
  const Json s = there.state, t = here.state;
  for (const char* key :
      {"step", "optimizer_step", "rng_seed", "rng_offset", "rng_ops", "last_loss"}) {
    if (s[key] != t[key]) return compare(key, json_text(s[key]), json_text(t[key]));
  }
  return "";
}

int resume_check(const std::string& name, CommonFlags& common, const JobMaker& make, Output& out) {
  catch_signals();
  const std::string file = find_checkpoint(name, {kLastFile});
  Resumed resumed{.folder = name, .file = file, .checkpoint = nn::read_checkpoint(file)};
  const nn::Checkpoint& saved = resumed.checkpoint;
  const int64_t step = saved.state.step;
  Output::Options no_notes = common;
  no_notes.quiet = true;
  Output silent(no_notes);
  // A run of the flags of the checkpoint: one that begins, or one that goes on from there.
  const auto begin = [&](Job& job, Flags& flags, const Resumed* from, Ranks& alone) {
    flags = saved_flags(saved.config, saved.path, job);
    check_flags(flags, job, Use::run);
    auto run = std::make_unique<Run>(job, flags, from, alone, silent);
    run->log.emplace("", 0, run->metric.name);
    return run;
  };
  Ranks alone(60);
  nn::Checkpoint again, on, on_from_file;
  {
    const auto job = make(common);
    Flags flags;
    const auto run = begin(*job, flags, nullptr, alone);
    const auto note = [&](const char* what, const auto& then, const auto& now) {
      if (then != now) out.note("note", "{} was {}, now {}", what, then, now);
    };
    note("device", escaped(saved.state.device), run->at().device);
    note("--threads", saved.state.threads, run->at().threads);
    note("the build", escaped(saved.state.build), run->at().build);
    again = train_to(*run, step);
    if (!interrupted()) on = train_to(*run, step + kStepsOn);
  }
  if (!interrupted()) {
    const auto job = make(common);
    resumed.then = make(resumed.common);
    saved_flags(saved.config, saved.path, *resumed.then);
    Flags flags;
    const auto run = begin(*job, flags, &resumed, alone);
    job->resume(*run->trainer, saved, *resumed.then);
    on_from_file = train_to(*run, step + kStepsOn);
  }
  if (interrupted()) return out.stopped("before the steps were done again");
  const std::string there = difference(saved, again),
                    later = there.empty() ? difference(on_from_file, on) : there;
  out.json("sinter.resume-check/1", {{"run", name}, {"step", step}, {"steps_on", kStepsOn},
                                        {"resumes", later.empty()}, {"differs", later}});
  SINTER_CHECK(later.empty(), check,
      str("resume-check: does not resume to the bit: ", escaped(file), " of step ", step, "; ",
          there.empty() ? str("from there, and from the start, ", kStepsOn, " steps on: ")
                        : "of the steps done again: ",
          later),
      "a changed file, or a run of another build, device or number of threads");
  out.result("resume",
      "{} resumes to the bit: steps 1 to {} done again come to its checkpoint, and steps {} to {} "
      "are the same from there",
      escaped(name), grouped(step), grouped(step + 1), grouped(step + kStepsOn));
  return 0;
}

}  // namespace

void add_resume_check(App& app, const JobMaker& make) {
  app.add("resume-check",
      "Repeats a run up to its checkpoint and compares to the bit, then goes on from both: is what "
      "--resume goes on with the run that it was?",
      [make](App& here, Command& command) {
        static std::vector<std::string> inputs;
        command.inputs = &inputs;
        command.inputs_name = "RUN";
        command.run = [&here, make](Output& out) {
          SINTER_CHECK(inputs.size() == 1, usage,
              str("usage: resume-check takes a run, given ", inputs.size()),
              program_name() + " resume-check runs/last");
          return resume_check(inputs[0], here.common(), make, out);
        };
      });
}

}  // namespace sinter::cli
