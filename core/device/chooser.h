// Who does it, where several could: a library's algorithms or the own kernel make a product, a
// fused group or its parts make a piece of a step. Whoever has such a question lists the candidates
// and says how each is run; the choice is made here. It is the first that runs, or the fastest by
// the one stopwatch there is, and then it is kept for later processes (kept_choices.h) and said in
// words, for --explain. What a rule decides by the operands alone, as the CPU's products do
// (cpu_gemm.h), is no question.
//
// A candidate that does not run here is left out, and where nothing can be timed (there is no
// memory for it, say) the choice stays as it was, with a note. So choosing fails only where the
// card has failed for good. Choices belong to one thread, or to whoever locks them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/error.h"

namespace sinter {

// Who makes a product or a convolution of CUDA that a library and an own kernel can both make.
enum class ChoiceRule : uint8_t {
  model,     // the library by its first algorithm that runs; a product with an epilogue beyond a
             // bias: the own kernel. Runs repeat to the bit. The default
  measured,  // whoever is the fastest; that is kept for good
  library,   // the library by its first algorithm that runs: for tests
  own,       // own kernels always
};
void set_choice_rule(ChoiceRule rule);
ChoiceRule choice_rule();
// Another one until the scope ends.
class ScopedChoiceRule {
 public:
  explicit ScopedChoiceRule(ChoiceRule rule) { set_choice_rule(rule); }
  ~ScopedChoiceRule() { set_choice_rule(before_); }
  ScopedChoiceRule(const ScopedChoiceRule&) = delete;
  ScopedChoiceRule& operator=(const ScopedChoiceRule&) = delete;

 private:
  const ChoiceRule before_ = choice_rule();
};

struct Candidate {
  std::string name;              // "own kernel"
  std::string version = {};      // tells those of one name apart in the file
  const char* kernel = nullptr;  // its name in a log of launches, where it has one of its own
  // A library's algorithm may take so many kernels, which are counted. 0: as many as it takes.
  int most_launches = 0;
  bool by_time_only = false;  // never taken unmeasured, but where ChoiceRule is library
  int launches = -1;          // -1: not counted
  double us = 0;              // 0: not timed
  std::string fails = {};     // why it does not run here
  bool lacks_memory = false;  // that is why; what another program leaves of it may be more later
};

struct Choice {
  std::vector<Candidate> candidates;  // the first is who does it where nobody else is better
  int chosen = 0;
  bool made = false, measured = false;  // measured: by time, or at least that was tried
  bool before = false;                  // by an earlier process
  // On CUDA a candidate's run is a replay, one call that lies in no graph with others.
  bool of_replays = false;
  std::string note = {};  // why it is not by time, if it is not

  const Candidate& winner() const { return candidates[size_t(chosen)]; }
  bool timed() const { return !candidates.empty() && winner().us > 0; }
  // "measured 3.1 us, own kernel 4.2; measured before on this card", or the note. Of candidates
  // that have one name the fastest is told; where none of them runs, why.
  std::string text() const;
  // The winner's name before that.
  std::string said() const;
};

// Does what candidate i does, as often as is asked. REQUIRES: what it writes may be spoiled.
using RunCandidate = std::function<void(size_t i)>;
// The winner by the times of rounds in which each candidate runs once, or -1: nobody can tell. Who
// does not run has none.
using PickWinner = std::function<int(const std::vector<std::vector<double>>& us)>;

// A candidate is timed so often, and on CUDA a timing of replays takes about so long.
inline constexpr size_t kRounds = 15;
inline constexpr double kTimingUs = 1000;

// Times the candidates that run, in turn: on CUDA by the card's own clock in graphs, as a step is
// one (on the host's, whoever has fewer launches wins). `begin` prepares that, where it is
// needed. The winner is the pick's; without one the least median's, of equal ones the first.
// `question` names all that the answer depends on but for card, libraries and program; "": the
// answer is not kept.
void choose_fastest(Choice& choice, const std::string& question, Device::Type device,
    const std::function<RunCandidate()>& begin, const PickWinner& pick = {});

// What `work` throws. On CUDA it is run aside of what the thread is about, a rehearsal say; and
// what it has broken for good is thrown here.
std::optional<Error> failure_of(Device::Type device, const std::function<void()>& work);

// A product or a convolution on CUDA, candidate 0 being the own kernel: chooses by choice_rule() if
// that is still to be done, then runs the winner as `library_kernel`. In a rehearsal the winner's
// run may do nothing but ask for memory. False: the own kernel's, nothing was done. REQUIRES: not a
// candidate's first call inside a capture.
bool run_chosen(Choice& choice, const char* library_kernel,
    const std::function<std::string()>& question, const RunCandidate& run);
// Who makes the product or convolution that the thread rehearsed last, if that is no matter of
// course, in words; then forgets it. For explain().
std::string take_choice_text();
void set_choice_text(std::string text);

}  // namespace sinter
