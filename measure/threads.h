// How many threads a step is to have: found by trial, in one place for every program that times or
// trains, and kept, so that all of them have the same for the same work. More threads than the
// machine has free cores make a step many times slower, as each waits for all (Note [Waiting
// threads] in core/parallel.h). Of the CPU.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sinter::measure {

using Tried = std::vector<std::pair<int, double>>;  // threads, us of a step

// Runs `step` with 1, 2, 4 .. and all available cores, in turn, and sets num_threads() to the
// fastest. Returns what was tried; nothing where there is one core.
Tried try_threads(const std::function<void()>& step);

// Sets num_threads() for steps of `work`, "mlp 784-256-128-10 relu, batch 128, f32": to what was
// kept for it on this machine and build; else by try_threads() of the step that make_step() gives,
// and keeps that, in the cache as roofs are (profiler/roofs.h). Returns what was tried, nothing
// where the choice was kept. A file that cannot be read or written is passed over.
Tried choose_threads(
    const std::string& work, const std::function<std::function<void()>()>& make_step);
// Forgets all choices that were kept: each work is tried anew. Returns how many there were.
int forget_threads();

// "one thread takes 51.8 us" where one is more than 2 times faster than the `us` that the step
// takes with num_threads() of them: something else holds a core, and these times mean nothing.
// Else "".
std::string why_distrusted(const std::function<void()>& step, double us);

// From here on this is a process that has had a second thread: Note [Layouts of memory].
void be_multithreaded();

}  // namespace sinter::measure
