// A program's process: the signals that ask it to end, errors as it shows them, its exit status,
// and its place among processes that a launcher (mpirun) started.
//
// SIGINT, SIGTERM and SIGHUP ask a loop to end: it finishes its step, saves and says so (exit
// status 130). The second signal ends the process at once, as Ctrl-C does outside of a loop.
// SIGPIPE is ignored: a closed stdout is seen where it is written to. Of several processes all but
// rank 0 are silent; of an error that several have the first says it, with its rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace sinter::cli {

// First of all: ignores SIGPIPE, lets Ctrl-C say that it has ended the program, and gives stdin,
// stdout and stderr that are not there /dev/null, or files opened later would be them.
void guard_process();
// For commands that have something to finish; the others keep that, and the system's behaviour.
void catch_signals();
// Has a signal come? One atomic load.
bool interrupted() noexcept;
// As a signal does.
void interrupt() noexcept;

// 0, 1, ..; 0 without a launcher. Known before MPI is started, by the environment.
int launched_rank();
// A process beside this one says why it ends, and then tells the others, by SIGUSR1. It is never
// handled: it waits, for all threads, from the moment that tell() returns. A handler runs when its
// thread gets a core, which on a busy machine is after the other process has ended.
void tell(int pid);
bool others_told();
// "rank 2: " beside others, else "".
std::string rank_prefix();

// When the process began, in ticks since the system did: another process that later bears its
// number began at another time. 0: it has ended, reaped or not.
int64_t process_start(int pid);

int exit_code(Error::Kind kind);
// Prints "error: .." for the exception being handled, with `stack` also the calls to an internal
// one; returns the exit status. REQUIRES: called inside a catch block.
int report_current_exception(std::string_view color = "auto", bool stack = false);

}  // namespace sinter::cli
