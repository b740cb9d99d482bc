// SIGINT, SIGTERM and SIGHUP ask a loop to end: it finishes its step, saves and says so (exit
// status 130). The second signal ends the process at once. SIGPIPE is ignored: a closed stdout is
// seen where it is written to.
#pragma once

namespace sinter::cli {

// For commands that have something to finish; the others keep the system's behaviour.
void catch_signals();
// First of all: ignores SIGPIPE, and gives stdin, stdout and stderr that are not there /dev/null,
// or files opened later would be them.
void guard_streams();
// Has a signal come? One atomic load.
bool interrupted() noexcept;
// As a signal does.
void interrupt() noexcept;

}  // namespace sinter::cli
