// How many threads a step is to have: found by trial, in one place for every program that times or
// trains. More threads than the machine has free cores make a step many times slower, as each waits
// for all (Note [Waiting threads] in core/parallel.h); which they are changes from minute to
// minute. Of the CPU.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sinter::measure {

// Runs `step` with 1, 2, 4 .. and all available cores, in turn, and sets num_threads() to the
// fastest. Returns what was tried, in us; nothing where there is one core.
std::vector<std::pair<int, double>> try_threads(const std::function<void()>& step);

// "one thread takes 51.8 us" where one is more than 3 times faster than the `us` that the step
// takes with num_threads() of them: something else holds a core, and these times mean nothing.
// Else "".
std::string why_distrusted(const std::function<void()>& step, double us);

// From here on this is a process that has had a second thread: Note [Layouts of memory].
void be_multithreaded();

}  // namespace sinter::measure
