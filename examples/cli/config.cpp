#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <sstream>

#include "examples/cli/app.h"

namespace sinter::cli {

void apply_config(const std::string& text, const std::string& file, Flags& flags,
    const std::string& section, const std::vector<std::string>& sections, Source source) {
  const std::string in_file = " in " + file;
  std::istringstream in(text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(in);
  } catch (const CLI::Error& error) {
    throw Error(Error::Kind::usage,
        cat("usage: cannot read the config: ", file, "; ", escaped(error.what())));
  }
  std::set<std::string> seen;
  for (const CLI::ConfigItem& item : items) {
    const std::string under = item.parents.empty() ? "" : CLI::detail::join(item.parents, ".");
    const bool known_section =
        under.empty() || std::find(sections.begin(), sections.end(), under) != sections.end();
    SINTER_CHECK(known_section, usage,
        cat("usage: unknown section: [", escaped(under), "]", in_file, "; ",
            nearest_or_all(under, sections)));
    if (item.name == "++" || item.name == "--" || (!under.empty() && under != section))
      continue;  // a section's begin, end, or not ours
    Flag* flag = flags.find(item.name);
    const std::string shown = escaped(item.name) + (under.empty() ? "" : " under [" + under + "]");
    // A checkpoint may come from anywhere: it has no say in what is never saved, such as files to
    // write.
    SINTER_CHECK(flag && (flag->saved || source != Source::checkpoint), usage,
        cat("usage: unknown key: ", shown, in_file, "; ",
            nearest_or_all(item.name, flags.names())));
    SINTER_CHECK(flag->global == under.empty(), usage,
        cat("usage: key in the wrong place: ", shown, in_file, "; it belongs ",
            flag->global ? "on top" : "under [" + section + "]"));
    const bool single = item.inputs.size() == 1 && seen.insert(item.name).second;
    SINTER_CHECK(single, usage,
        cat("usage: one value is wanted: ", shown, in_file,
            "; it has several, or stands there twice"),
        cat(item.name, " = \"", flag->once ? "256,128" : "..", "\""));
    Flags::set(*flag, item.inputs[0], source, in_file);
  }
}

}  // namespace sinter::cli
