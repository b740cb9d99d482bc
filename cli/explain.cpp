// explain WORD: what a word of the output means. The words are a glossary that the program brings,
// the names of all ops and rules, of kernels, of libraries too, and of the program's commands and
// flags.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "capture/pattern.h"
#include "capture/rules.h"
#include "cli/commands.h"
#include "core/numbers.h"
#include "core/text_grid.h"
#include "profiler/kernel_name.h"

namespace sinter::cli {

namespace {

struct GlossaryEntry {
  std::vector<std::string_view> words;
  std::string text;  // in one line
};

// The items of its lists, which begin "- **word, word** text".
std::vector<GlossaryEntry> read_glossary(std::string_view file) {
  constexpr std::string_view kBegin = "\n- **";
  std::vector<GlossaryEntry> entries;
  for (size_t at = file.find(kBegin); at != file.npos; at = file.find(kBegin, at)) {
    at += kBegin.size();
    const size_t close = file.find("**", at),
                 end = std::min({file.find(kBegin, close), file.find("\n\n", close), file.size()});
    GlossaryEntry entry;
    for (size_t comma = at; at < close; at = comma + 2) {
      comma = std::min(file.find(", ", at), close);
      entry.words.push_back(file.substr(at, comma - at));
    }
    entry.text = join(parts_of(file.substr(close + 2, end - close - 2), "\n  "), " ");
    entry.text.erase(0, entry.text.find_first_not_of(' '));
    while (entry.text.ends_with('\n')) entry.text.pop_back();
    entries.push_back(entry);
    at = close;
  }
  return entries;
}

// The name of an op, or that of a rule; nothing if it is neither.
std::optional<Label> find_name(std::string_view name) {
  if (const Label* label = find_label(name)) return *label;
  if (const OpDef* op = find_op(name)) return label_of(*op);
  return std::nullopt;
}
std::string text_of(const Label& named) {
  std::string text = str(named.formula.text, ". ", named.op->formula.place(), " says how.");
  const auto is_it = [&](const capture::Rule& rule) { return rule.name() == named.text(); };
  if (std::ranges::none_of(capture::rules(), is_it)) return "An op: " + text;
  const std::string ops = capture::stands_for(named);
  return str("A fused op: ", text, ops.empty() ? "" : " It stands for " + ops + ".", " --rules=-",
      named.text(), " leaves the ops as they are; docs/RULES.md lists the rules.");
}

// Prose as wide as the terminal, or as the documents.
std::string prose(const std::string& text) {
  return wrapped(text, std::min<size_t>(prose_width(), 100), 0) + "\n";
}

int run_explain(
    App& app, const char* glossary, const std::vector<std::string>& inputs, Output& out) {
  const std::vector<GlossaryEntry> entries = read_glossary(glossary);
  std::vector<std::string> known;
  // "explain rest of step" needs no quotes; the title "us, self CPU" is no list.
  const std::string asked = join(inputs, " ");
  std::string wanted = lower_case(asked);
  std::erase(wanted, ',');
  // As it stands in a text, too: "kernels'", "layouts".
  std::vector<std::string> forms{wanted};
  for (const std::string_view ending : {"'s", "s'", "s"}) {
    if (wanted.ends_with(ending)) forms.push_back(wanted.substr(0, wanted.size() - ending.size()));
  }
  const auto tell = [&out](const auto& words, const std::string& text) {
    out.result_text(str(join(words), "\n", prose(text)));
    out.json("sinter.explain/1", {{"words", words}, {"text", text}});
    return 0;
  };
  const GlossaryEntry* found = nullptr;
  bool is_exact = false;
  for (const GlossaryEntry& entry : entries) {
    for (const std::string_view word : entry.words) {
      known.push_back(lower_case(word));
      if (word == asked || (!found && std::ranges::count(forms, known.back()) > 0)) found = &entry;
      is_exact = is_exact || word == asked;
    }
  }
  if (wanted.empty()) {
    for (const GlossaryEntry& entry : entries) out.result_text(join(entry.words) + "\n");
    out.result_text(
        "and every op and rule by its name: softmax_xent\n"
        "and the names of kernels, read aloud: ampere_sgemm_128x64_tn\n"
        "and every command and flag: optimizer\n");
    out.json("sinter.explain/1", {{"words", known}});
    return 0;
  }
  // A row of a table may bear the op's role: "matmul(wgrad)".
  if (const auto named = find_name(wanted.substr(0, wanted.find('('))); named && !found) {
    return tell(std::vector{named->text()}, text_of(*named));
  }
  // "Layout" stands in kernels' names, "layout" in the words.
  if (const auto name = is_exact ? std::nullopt : profiler::read_kernel_name(asked)) {
    out.result_text(wrapped(name->text(), table_width(), 6));
    Json parts = Json::array();
    for (const auto& [text, meaning] : name->parts)
      parts.push_back({{"text", text}, {"meaning", meaning.empty() ? Json() : Json(meaning)}});
    out.json("sinter.explain/1",
        {{"words", {asked}}, {"maker", name->maker}, {"parts", parts}, {"source", name->source}});
    return 0;
  }
  if (found) return tell(found->words, found->text);
  if (const std::string meaning = app.meaning_of(wanted); !meaning.empty())
    return tell(std::vector{wanted}, meaning);
  for (const OpDef* op : all_ops()) known.emplace_back(op->text());
  for (const Label& label : labels()) known.emplace_back(label.text());
  constexpr size_t kShown = 80;
  if (wanted.size() > kShown) wanted = wanted.substr(0, kShown) + "..";
  const std::string nearest = nearest_word(wanted, known);
  throw Error(Error::Kind::usage,
      str("usage: explain: unknown word: ", escaped(wanted),
          nearest.empty() ? "" : "; nearest is " + nearest),
      program_name() + " explain lists all words");
}

}  // namespace

void add_explain(App& app, Command& command, const char* glossary) {
  static std::vector<std::string> inputs;
  command.inputs = &inputs;
  command.inputs_name = "[WORD]";
  command.run = [&app, glossary](Output& out) { return run_explain(app, glossary, inputs, out); };
}

void add_profile_commands(App& app, const char* glossary) {
  app.add("diff",
      "Compares two profiles, of --profile=json or of PyTorch's profiler (export_chrome_trace): "
      "the step and each row, B against A. Of two run folders: where the runs part, by what train "
      "--fingerprint kept.",
      add_diff);
  app.add("calibrate",
      "Measures the roofs that the profiler's tables compare with, and keeps them.", add_calibrate);
  app.add("explain", "Says what a word of the output means: Disp, xpred, roof, claimed ..",
      [glossary](App& here, Command& command) { add_explain(here, command, glossary); });
}

}  // namespace sinter::cli
