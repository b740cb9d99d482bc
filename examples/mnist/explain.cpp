// mnist explain WORD: what a word of the output means. The words are docs/GLOSSARY.md, which the
// build puts into the program.
#include <nlohmann/json.hpp>

#include "examples/cli/text.h"
#include "examples/mnist/commands.h"

namespace sinter::mnist {

extern const char kGlossary[];  // glossary.cpp.in

namespace {

struct GlossaryEntry {
  std::vector<std::string_view> words;
  std::string_view text;  // as the file has it: lines of at most 100 columns
};

// The paragraphs that begin "**word, word** text".
std::vector<GlossaryEntry> read_glossary(std::string_view file) {
  std::vector<GlossaryEntry> entries;
  for (size_t at = file.find("\n**"); at != file.npos; at = file.find("\n**", at)) {
    at += 3;
    const size_t close = file.find("**", at);
    GlossaryEntry entry;
    for (size_t comma = at; at < close; at = comma + 2) {
      comma = std::min(file.find(", ", at), close);
      entry.words.push_back(file.substr(at, comma - at));
    }
    entry.text = file.substr(close + 3, file.find("\n\n", close) - close - 3);
    if (entry.text.ends_with('\n')) entry.text.remove_suffix(1);
    entries.push_back(entry);
  }
  return entries;
}

std::string lower_case(std::string_view word) {
  std::string out(word);
  for (char& c : out) c = char(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

int run_explain(const std::vector<std::string>& inputs, cli::Output& out) {
  const std::vector<GlossaryEntry> entries = read_glossary(kGlossary);
  std::vector<std::string> known;
  // "mnist explain rest of step" needs no quotes.
  const std::string wanted = lower_case(join(inputs, " "));
  const GlossaryEntry* found = nullptr;
  for (const GlossaryEntry& entry : entries) {
    for (const std::string_view word : entry.words) {
      if (word == join(inputs, " ") || (!found && lower_case(word) == wanted)) found = &entry;
      known.push_back(lower_case(word));
    }
  }
  if (wanted.empty()) {
    for (const GlossaryEntry& entry : entries) out.result_text(join(entry.words) + "\n");
    out.json({{"schema", "sinter.explain/1"}, {"words", known}});
    return 0;
  }
  if (!found) {
    const std::vector<std::string_view> views(known.begin(), known.end());
    const std::string nearest = nearest_word(wanted, views);
    throw Error(Error::Kind::usage, cat("usage: explain: no such word: ", escaped(wanted)),
        nearest.empty() ? "mnist explain lists all words" : "nearest is " + nearest);
  }
  out.result_text(cat(join(found->words), "\n", found->text, "\n"));
  out.json({{"schema", "sinter.explain/1"}, {"words", found->words}, {"text", found->text}});
  return 0;
}

}  // namespace

void add_explain(cli::App& app) {
  static std::vector<std::string> inputs;
  cli::Command& command =
      app.add("explain", "Says what a word of the output means: Disp, xpred, roof, ledger ..");
  command.inputs = &inputs;
  command.inputs_name = "[WORD]";
  command.run = [](cli::Output& out) { return run_explain(inputs, out); };
}

}  // namespace sinter::mnist
