// Commands that every program may have, a file each: what main() gives to App::add().
#pragma once

#include "cli/app.h"
#include "cli/step.h"

namespace sinter::cli {

// What one needs lives as long as the program.
using Setup = void(App& app, Command& command);
Setup add_calibrate, add_diff;
// explain WORD: of a glossary whose items begin "- **word, word** text"; it outlives the program's
// main().
void add_explain(App& app, Command& command, const char* glossary);
// diff, calibrate and explain, in the words of all programs.
void add_profile_commands(App& app, const char* glossary);

}  // namespace sinter::cli
