// What the programs print fits the terminal: tables lose columns, names are cut, prose is broken at
// spaces.
#include <gtest/gtest.h>

#include <regex>

#include "core/numbers.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

// A path is a word, and stays whole.
void expect_fits(const std::string& screen, size_t columns) {
  for (std::string line : lines_of(screen)) {
    line.erase(0, line.rfind('\r', line.size() - 2) + 1);
    EXPECT_LE(line.find_last_not_of('\r') + 1, columns) << line;
  }
}

TEST(Width, NothingIsWiderThanTheTerminal) {
  if (!Program::has_terminals()) GTEST_SKIP() << "no /dev/pts here";
  Program program;
  program.terminal = program.all_on_terminal = true;
  program.environment = {"TERM=xterm", "NO_COLOR=1"};
  const Words small{"--hidden", "16", "--batch", "4", "--threads", "1"},
      comparison = small + Words{"--data", "synthetic", "--rounds", "6", "--steps", "1"};
  for (const unsigned short columns : {80, 100, 120, 160}) {
    if (test::kSanitized && columns > 80) continue;
    program.columns = columns;
    SCOPED_TRACE(columns);
    for (const Words& words : {Words{"bench", "--threads", "1", "--batch", "1,2", "--hidden", "8"},
             Words{"compare", "--explain", "--profile", "--force"} + comparison,
             Words{"compare", "--blame"} + small,
             Words{"train", "--limit", "100", "--steps", "8", "--profile", "--profile-steps",
                 "0:0:6"} +
                 small,
             Words{"eval", "--limit", "50", "--confusion", "--worst", "2"},
             Words{"predict", "--index", "0"}, Words{"inspect", "--text", "--threads", "1"},
             Words{"explain"}, Words{"train", "--help"}}) {
      SCOPED_TRACE(sinter::join(words, " "));
      expect_fits(program.run(0, words).err, columns);
    }
  }
}

// What one sees first is seen whole: on a terminal of 80 columns, and in a pipe.
TEST(Width, ADefaultProfileAndComparisonFitAScreen) {
  Program program;
  program.environment = {"TERM=xterm", "NO_COLOR=1"};
  // But for what only a machine that does other work has printed: the steps in which it was held
  // up, and the second line of why there is no verdict.
  static const std::regex stalls(
      "stalls [^:]*:(\\s+#\\d+\\s+[0-9.]+us)+(\\s+and\\s+\\d+\\s+more)?\\s"),
      busy("machine busy: no verdict; [^\\n]*\\n?[^\\n]*\\.\\r?\\n");
  const auto lines = [](const std::string& text) {
    return lines_of(std::regex_replace(std::regex_replace(text, stalls, ""), busy, "\n")).size();
  };
  const auto expect_a_screen = [&](const std::string& text) {
    EXPECT_LE(lines(text), 40U) << text;
    expect_fits(text, 80);
    for (const char* word : {"MANY", "ROOF?", "unknown"}) EXPECT_FALSE(has(text, word)) << text;
  };
  for (const Words& words : {Words{"train", "--profile", "--limit", "6000"},
           Words{"train", "--profile", "--limit", "6000", "--mode", "eager"}, Words{"compare"}}) {
    SCOPED_TRACE(sinter::join(words, " "));
    program.terminal = program.all_on_terminal = false;
    const Result piped = program.run(0, words);
    expect_facts(piped.out, {words[0] == "train" ? "Self%  Self CPU" : "Fused row"});
    EXPECT_LE(lines(piped.err + piped.out), 40U) << piped.err << piped.out;
    expect_a_screen(piped.out);
    if (!Program::has_terminals()) continue;
    program.terminal = program.all_on_terminal = true;
    program.columns = 80;
    expect_a_screen(program.run(0, words).err);
  }
}

}  // namespace
}  // namespace sinter::test
