#include "core/device/chooser.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cmath>
#include <memory>
#include <sstream>
#include <utility>

#include "core/classic.h"
#include "core/device/cuda.h"
#include "core/device/cuda_graph.h"
#include "core/device/cuda_stream.h"
#include "core/device/kept_choices.h"
#include "core/device/launch_hook.h"
#include "core/device/launch_log.h"

namespace sinter {
namespace {

std::atomic<ChoiceRule> the_rule{ChoiceRule::model};
thread_local std::string choice_text;

#if SINTER_HAS_CUDA
using cuda::Aside;
bool capturing() { return cuda::capturing(); }
#else
struct Aside {};
bool capturing() { return false; }
#endif

// Runs it, so that its kernels are loaded and its plans made, which a capture may not do, and
// counts them if they are limited. False: it does not run, or takes too many.
bool starts(Candidate& c, Device::Type device, const std::function<void()>& run) {
  const bool counts = c.most_launches > 0;
  if (c.fails.empty() && (!counts || c.launches < 0)) {
    const auto error = failure_of(device, [&] {
      run();
      if (!counts) return;
      cuda::GraphBuilder builder(0, false);
      builder.begin(cuda::Pass::capture);
      run();
      c.launches = int(builder.count());
    });
    if (error) c.fails = error->message();
    c.lacks_memory = error && error->kind() == Error::Kind::memory;
  }
  return c.fails.empty() && (!counts || c.launches <= c.most_launches);
}

// So many runs are one timing on a card, of replays as many as take kTimingUs. A candidate is timed
// at least 6 times: with fewer pairs of rounds no interval exists (profiler/thresholds.h).
constexpr int kRepetitions = 10;
constexpr size_t kFewestRounds = 6;
constexpr double kEnoughUs = 3e5;

// Times of the candidates that run, if they are two or more. Rounds go to and fro, A B B A, so that
// a slow moment of the machine hits all alike. The first run of each warms up.
std::vector<std::vector<double>> time_all(
    Choice& choice, Device::Type device, const RunCandidate& run) {
  std::vector<std::vector<double>> us(choice.candidates.size());
  std::vector<size_t> running;
  for (size_t i = 0; i < us.size(); ++i) {
    if (starts(choice.candidates[i], device, [&] { run(i); })) running.push_back(i);
  }
  if (running.size() == 1) choice.chosen = int(running[0]);
  if (running.size() < 2) {
    for (const Candidate& c : choice.candidates) {
      if (!c.fails.empty()) choice.note = str(c.name, " does not run: ", c.fails);
    }
    return us;
  }
  std::vector<std::unique_ptr<cuda::DeviceGraph>> graphs(us.size());
  int repetitions = choice.of_replays ? 1 : kRepetitions;
  const auto time_of = [&](size_t i) {
    const auto repeat = [&] {
      for (int turn = 0; turn < repetitions; ++turn) run(i);
    };
    if (device == Device::Type::cuda) {
      if (!choice.of_replays && !graphs[i]) {
        cuda::GraphBuilder builder(0, false);
        builder.begin(cuda::Pass::capture);
        repeat();
        graphs[i] = builder.end();
      }
      // Behind another launch of the graph, so that the card does not wait for the host's.
      if (graphs[i]) graphs[i]->launch();
      const double ms =
          graphs[i] ? cuda::milliseconds([&] { graphs[i]->launch(); }) : cuda::milliseconds(repeat);
      return 1e3 * ms / repetitions;
    }
    const auto start = std::chrono::steady_clock::now();
    run(i);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
        .count();
  };
  double spent = 0;
  for (const size_t i : running) spent += time_of(i);
  if (choice.of_replays) {
    const double longest_us = std::max(spent / double(running.size()), kTimingUs / kRepetitions);
    repetitions = std::max(1, int(kTimingUs / longest_us));
  }
  for (size_t round = 0; round < kRounds && (round < kFewestRounds || spent < kEnoughUs); ++round) {
    for (const size_t i : running) spent += us[i].emplace_back(time_of(i));
    std::ranges::reverse(running);
  }
  return us;
}

double median(std::vector<double> us) {
  if (us.empty()) return 0;
  const auto middle = us.begin() + std::ptrdiff_t(us.size() / 2);
  std::ranges::nth_element(us, middle);
  return *middle;
}

int fastest(const std::vector<Candidate>& candidates) {
  const auto time = [](const Candidate& c) { return c.us > 0 ? c.us : HUGE_VAL; };
  return int(std::ranges::min_element(candidates, {}, time) - candidates.begin());
}

std::string full_name(const Candidate& c) {
  return c.version.empty() ? c.name : str(c.name, " ", c.version);
}

// "cuBLASLt 4711: 2 2.1 1.5": the winner, and the times of all candidates.
std::string answer_of(const Choice& choice) {
  std::string answer = full_name(choice.winner()) + ":";
  for (const Candidate& c : choice.candidates) answer += str(" ", c.us);
  return answer;
}

// False: there is no answer of before, or its winner is no candidate now.
bool recall(Choice& choice, const std::string& question, Device::Type device,
    const std::function<RunCandidate()>& begin) {
  const std::string answer = question.empty() ? "" : kept_choice(question).value_or("");
  const size_t end = std::min(answer.rfind(':'), answer.size());
  const auto winner =
      std::ranges::find(choice.candidates, std::string_view(answer).substr(0, end), full_name);
  if (winner == choice.candidates.end()) return false;
  const auto number = size_t(winner - choice.candidates.begin());
  ClassicStream<std::istringstream> times(answer.substr(std::min(end + 1, answer.size())));
  for (Candidate& c : choice.candidates) times >> c.us;
  if (!times || !(winner->us > 0)) return false;
  if (winner->most_launches > 0 && !starts(*winner, device, [&] { begin()(number); })) return false;
  choice.chosen = int(number);
  return choice.before = true;
}

// The first of the library's that runs, else the own kernel, which does.
void choose_first(Choice& choice, const RunCandidate& run) {
  choice.chosen = 0;
  for (size_t i = 1; i < choice.candidates.size() && choice.chosen == 0; ++i) {
    if (choice.candidates[i].by_time_only && choice_rule() != ChoiceRule::library) continue;
    if (starts(choice.candidates[i], Device::Type::cuda, [&] { run(i); })) choice.chosen = int(i);
  }
  if (choice.chosen == 0 && choice.note.empty() && choice.candidates.size() > 1) {
    const Candidate& c = choice.candidates[1];
    choice.note =
        str(c.name, " offers none ", c.most_launches == 1 ? "of one kernel" : "that runs");
  }
}

}  // namespace

void set_choice_rule(ChoiceRule rule) { the_rule = rule; }
ChoiceRule choice_rule() { return the_rule; }

std::string Choice::text() const {
  std::string out;
  if (timed()) {
    const auto rounded = [](double us) { return std::round(us * 10) / 10; };
    std::vector<const Candidate*> others;  // the fastest of each name
    for (const Candidate& c : candidates) {
      if (c.us <= 0 || c.name == winner().name) continue;
      const auto same = std::ranges::find(others, c.name, &Candidate::name);
      if (same == others.end()) {
        others.push_back(&c);
      } else if (c.us < (*same)->us) {
        *same = &c;
      }
    }
    out = str("measured ", rounded(winner().us), " us");
    for (const Candidate* c : others) out += str(", ", c->name, " ", rounded(c->us));
    for (const Candidate& c : candidates) {
      const auto is_timed = [&](const Candidate& o) { return o.name == c.name && o.us > 0; };
      const bool is_first = &c == &*std::ranges::find(candidates, c.name, &Candidate::name);
      if (is_first && !c.fails.empty() && std::ranges::none_of(candidates, is_timed))
        out += str("; ", c.name, " does not run: ", c.fails);
    }
    if (before) out += "; measured before on this card";
  }
  return note.empty() ? out : out.empty() ? note : str(out, "; ", note);
}

std::string Choice::said() const {
  const std::string why = text();
  return why.empty() ? winner().name : str(winner().name, ", ", why);
}

std::optional<Error> failure_of(Device::Type device, const std::function<void()>& work) {
  std::optional<Aside> aside;
  if (device == Device::Type::cuda) aside.emplace();
  std::optional<Error> error;
  try {
    work();
  } catch (const Error& e) {
    error = e;
  }
  // What is broken for good fails here, too.
  if (error && device == Device::Type::cuda) cuda::synchronize();
  return error;
}

void choose_fastest(Choice& choice, const std::string& question, Device::Type device,
    const std::function<RunCandidate()>& begin, const PickWinner& pick) {
  choice.made = choice.measured = true;
  if (recall(choice, question, device, begin)) return;
  if (device == Device::Type::cuda) {
    [[maybe_unused]] const Aside aside;
    cuda::synchronize();  // what has failed before is no candidate's failure
  }
  std::vector<std::vector<double>> us(choice.candidates.size());
  const auto error = failure_of(device, [&] { us = time_all(choice, device, begin()); });
  if (error) choice.note = str("not measured: ", error->message());
  for (size_t i = 0; i < us.size(); ++i) choice.candidates[i].us = median(us[i]);
  const auto has_time = [](const Candidate& c) { return c.us > 0; };
  if (std::ranges::none_of(choice.candidates, has_time)) return;
  const int winner = pick ? pick(us) : fastest(choice.candidates);
  if (winner < 0) {
    choice.note = "the machine is too busy to decide";
    return;
  }
  choice.chosen = winner;
  if (!question.empty() && std::ranges::none_of(choice.candidates, &Candidate::lacks_memory))
    keep_choice(question, answer_of(choice));
}

bool run_chosen(Choice& choice, const char* library_kernel,
    const std::function<std::string()>& question, const RunCandidate& run) {
  const ChoiceRule rule = choice_rule();
  if (rule == ChoiceRule::measured && !choice.measured && !capturing()) {
    choose_fastest(choice, question(), Device::Type::cuda, [&] { return run; });
    if (!choice.timed()) choose_first(choice, run);
  } else if (!choice.made) {
    choose_first(choice, run);
  }
  choice.made = true;
  const bool rehearses = cuda::rehearsing();
  // The first algorithm of the library's for a bare product or convolution is a matter of course.
  if (rehearses && (choice.chosen == 0 || choice.timed())) choice_text = choice.said();
  if (choice.chosen == 0) return false;
  const char* const kernel = choice.winner().kernel ? choice.winner().kernel : library_kernel;
  const int launches = choice.winner().launches;
  for (int i = 0; i < launches && !rehearses; ++i)
    log_launch({.kernel = kernel, .grid = {}, .block = 1, .shared_bytes = 0});
  const HookedCall hooked(
      DeviceWork::kernel, Device::Type::cuda, kernel, 0, !rehearses && !capturing(), launches);
  run(size_t(choice.chosen));
  return true;
}

std::string take_choice_text() { return std::exchange(choice_text, {}); }
void set_choice_text(std::string text) { choice_text = std::move(text); }

}  // namespace sinter
