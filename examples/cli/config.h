// A config file: the values of flags as TOML. Flags::config() writes one.
#pragma once

#include "examples/cli/flags.h"

namespace sinter::cli {

// The entries of a config text into the flags: global keys on top, the rest under [section]; other
// sections must be in `sections` and are passed over. They have the rank `source`. `file` is for
// messages. The text is TOML, of which a line is [section], key = value or a # comment, and a value
// a text in quotes, a number, true or false; quotes may be left out around one word. Throws usage
// for a line of another form, an unknown key or section, and a repeated key.
void apply_config(const std::string& text, const std::string& file, Flags& flags,
    const std::string& section, const std::vector<std::string>& sections,
    Source source = Source::file);

}  // namespace sinter::cli
