// The words of a command line and the entries of a config file, taken into Flags, and the flags as
// --help lists them.
//
//   --name VALUE, --name=VALUE   a flag with a value; the last one given counts
//   --switch, --switch=false     a flag without
//   -q, -qv, -oNAME              short names, together or with their value
//   --                           what follows is no flag
//
// Used by App and by the programs of bench/. Errors are of kind usage.
#pragma once

#include "examples/cli/flags.h"

namespace sinter::cli {

// The words `argv` has behind the program's name.
std::vector<std::string> words_of(int argc, char** argv);
// `name`: of the command, for messages; `call`: how it is started, for hints ("mnist train").
// Words that are no flags go to `inputs`; null: there may be none.
void take_words(const std::vector<std::string>& words, Flags& flags, const std::string& name,
    const std::string& call, std::vector<std::string>* inputs);

// The entries of a config text into the flags: global keys on top, the rest under [section]; other
// sections must be in `sections` and are passed over. They have the rank `source`. `file` is for
// messages. The text is TOML, of which a line is [section], key = value or a # comment, and a value
// a text in quotes, a number, true or false; quotes may be left out around one word. Throws usage
// for a line of another form, an unknown key or section, and a repeated key.
void apply_config(const std::string& text, const std::string& file, Flags& flags,
    const std::string& section, const std::vector<std::string>& sections,
    Source source = Source::file);

// The flags by topic, those of every command last.
std::string flag_lines(const Flags& flags);
// `start` and `text` in lines of at most 80 columns, all but the first indented.
std::string wrapped(std::string start, std::string_view text, size_t indent);

}  // namespace sinter::cli
