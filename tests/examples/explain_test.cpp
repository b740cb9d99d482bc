// `mnist explain` knows each word that a table of ours prints. The words are not listed here: they
// are what the printers print, read off the output of the commands, and the names of enumerations.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "core/numbers.h"
#include "tests/examples/program.h"
#include "tests/profiler/reports.h"

namespace sinter::test {
namespace {

using Lines = std::vector<std::string>;

struct Cell {
  std::string text;
  size_t begin, end;
};
// What stands in a line with two or more spaces between.
std::vector<Cell> cells_of(const std::string& line) {
  std::vector<Cell> out;
  for (size_t at = line.find_first_not_of(' '); at != line.npos;) {
    const size_t end = std::min(line.find("  ", at), line.size());
    out.push_back({line.substr(at, end - at), at, end});
    at = line.find_first_not_of(' ', end);
  }
  return out;
}

// Does the line stand in the columns of these titles, flush with them at the left or the right? A
// cell may be two, as "4 ->  2" is.
bool is_row_of(const std::string& head, const std::string& line) {
  const std::vector<Cell> titles = cells_of(head), cells = cells_of(line);
  const auto fits = std::ranges::count_if(cells, [&](const Cell& cell) {
    return std::ranges::any_of(titles,
        [&](const Cell& title) { return title.begin == cell.begin || title.end == cell.end; });
  });
  return fits >= 2 && std::ssize(cells) - fits <= 1;
}

class PrintedWords {
 public:
  // "Row of B <- of A" is two; the number in "hidden 64" is no word.
  void add(const std::string& text) {
    static const std::regex number("(^|\\s+)[-+#.0-9/]+$");
    for (const std::string_view part : parts_of(text, " <- ")) {
      const std::string word = std::regex_replace(std::string(part), number, "");
      if (!word.empty()) all.insert(word);
    }
  }
  template <class E> void add_names(E value) {
    for (const std::string_view name : names_of(value)) add(std::string(name));
  }
  // Of what a command prints with --color always.
  void read(const std::string& output) {
    static const std::regex bold("\x1b\\[1m([^\x1b]*?) *\x1b\\[0m"),
        label("^ *([a-z]+(?: [a-z]+)*(?: [0-9]+)?)  +\\S.*"),
        prefix("^([A-Za-z][A-Za-z ]*?)(?::| \\().*"), word("^[A-Za-z_]+(?:[- ][A-Za-z_]+)*$");
    const Lines lines = lines_of(output);
    std::string head;  // of the grid that the line may be part of
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string& line = lines[i];
      std::smatch found;
      if (std::regex_search(line, found, bold)) {
        add(found[1]);
        head.clear();
        continue;
      }
      if (!head.empty() && is_row_of(head, line)) {
        read_row(head, line, word);
        continue;
      }
      head.clear();
      if (i + 1 < lines.size() && is_row_of(line, lines[i + 1]) && is_head(line)) {
        head = line;
        ++tables;
        for (const Cell& title : cells_of(line)) add(title.text);
      } else if (line.starts_with("ops ") || line.starts_with("host: ") ||
                 line.starts_with("busy ") || line.starts_with("clean median") ||
                 line.starts_with("API calls") || line.starts_with("launched ") ||
                 has(line, " MFLOP  ")) {
        read_figures(line);
      } else if (std::regex_match(line, found, label) || std::regex_match(line, found, prefix)) {
        add(found[1]);
      }
    }
  }

  std::set<std::string> all;
  int tables = 0;

 private:
  // Titles are words: "kB moved", "Row of B <- of A", "p95", "hidden 64".
  static bool is_head(const std::string& line) {
    static const std::regex title("[%A-Za-z][-A-Za-z%/,<. ]*[0-9]*");
    const std::vector<Cell> cells = cells_of(line);
    return cells.size() > 2 &&  // "gain", and a sentence without a figure
           std::ranges::all_of(
               cells, [](const Cell& cell) { return std::regex_match(cell.text, title); });
  }
  // Verdicts, kinds and other cells that are words: those that a reader may ask for. A row's first
  // and its name are what was run.
  void read_row(const std::string& head, const std::string& line, const std::regex& word) {
    static const std::set<std::string> of_words{
        "Verdict", "Kind", "Flags", "Eager / fused", "A / B", "mode", "Limit"};
    const std::vector<Cell> titles = cells_of(head);
    for (const Cell& cell : cells_of(line)) {
      for (const Cell& title : titles) {
        if (title.begin != cell.begin || !of_words.contains(title.text)) continue;
        for (const std::string_view item : parts_of(cell.text, ", ")) {
          const std::string flag(
              item.substr(0, title.text == "Flags" ? item.find(' ') : item.npos));
          if (std::regex_match(flag, word)) add(flag);
        }
      }
    }
  }
  // "ops 29.3 + rest of step 10.5 = profiled step 39.8us (OK)": what stands between the figures.
  void read_figures(const std::string& line) {
    static const std::regex phrase("[A-Za-z]+(?: [A-Za-z]+)*"), noise("[0-9][0-9.,]*(us|x|%)?");
    const std::string words = std::regex_replace(line, noise, "0");
    for (std::sregex_iterator it(words.begin(), words.end(), phrase), end; it != end; ++it)
      add(it->str());
  }
};

// Profiles as no CPU has them: a card's, op by op and replayed, with every column there is.
void add_tables_of_devices(PrintedWords& words) {
  const profiler::TableOptions all{.row_limit = -1, .group_by_input_shape = true, .columns = "all"};
  profiler::Report card = profiler::device_report(), replayed = card;
  replayed.replayed = true;
  card.clean_us = {190, 191, 190, 191, 190, 191};
  for (const profiler::Report& report : {profiler::cpu_report(), card, replayed})
    words.read(report.table(all));
}

TEST(Explain, KnowsEachWordThatATablePrints) {
  PrintedWords words;
  words.add_names(profiler::RowCode{});
  words.add_names(profiler::StepCode{});
  words.add_names(profiler::ScopeKind{});
  words.add_names(profiler::Source{});
  words.add_names(profiler::Role{});
  add_tables_of_devices(words);
  EXPECT_GE(words.tables, 3);

  const Program program;
  const Words small{"--hidden", "16", "--batch", "4", "--threads", "1"},
      rounds{"--data", "synthetic", "--rounds", "6", "--steps", "1"},
      train = Words{
          "train", "--mode", "eager", "--data", "synthetic", "--limit", "60", "--threads", "1"};
  const std::pair<Words, int> commands[] = {// and how many tables they print
      {train + Words{"--hidden", "16", "--batch", "4", "--profile", "-v", "--profile-steps",
                   "0:0:6"},
          3},
      {{"eval", "--limit", "50", "--confusion", "--worst", "2"}, 2},
      {{"predict", "--index", "0", "--no-art"}, 0},
      {{"predict", "--bench", "--batch", "1,2", "--threads", "1"}, 1},
      {Words{"compare", "--profile=table,json", "--explain", "--force", "-o", "pair"} + small +
              rounds,
          3},
      {Words{"compare", "--blame"} + small + Words{"--data", "synthetic"}, 2},
      {{"diff", "pair_eager.json", "pair_fused.json"}, 1},
      {{"bench", "--threads", "1", "--batch", "1,2", "--hidden", "8,16"}, 1},
      {{"inspect", "--text", "--hidden", "16", "--batch", "4", "--threads", "1"}, 0},
      {{"calibrate"}, 0}};
  for (const auto& [command, tables] : commands) {
    SCOPED_TRACE(join(command, " "));
    const Result r = program.run(command + Words{"--color", "always"});
    if (command[0] != "calibrate") {  // which refuses a busy machine
      EXPECT_EQ(r.status, 0) << r.err;
    }
    const int before = words.tables;
    words.read(r.out);
    words.read(r.err);
    EXPECT_GE(words.tables - before, tables) << r.out << r.err;
  }
  const auto doctor = nlohmann::json::parse(program.run({"doctor", "--json"}).out);
  for (const auto& check : doctor["checks"]) {
    words.add(check["verdict"]);
    words.add(check["check"]);
  }
  // Some of each kind: what reads the output reads all of it.
  for (const char* word : {"%roof", "Alloc kB", "CUDA total", "Of bound", "rest of step", "counted",
           "images/s", "precision", "keeps", "roofs", "latency-bound", "Kind", "A / B", "test"})
    EXPECT_TRUE(words.all.contains(word)) << word;

  std::vector<std::string> unknown;
  for (const std::string& word : words.all) {
    if (program.run({"explain", word}).status != 0) unknown.push_back(word);
  }
  EXPECT_EQ(join(unknown, "\n"), "") << words.all.size() << " words were asked for";
}

// The own words of explain: `mnist explain` lists them, and behind them what else it knows.
TEST(Explain, HasAtMostAHundredEntriesOfItsOwn) {
  const Lines lines = lines_of(Program().run(0, {"explain"}).out);
  const auto others = std::ranges::count_if(
      lines, [](const std::string& line) { return line.starts_with("and "); });
  EXPECT_EQ(others, 3);
  EXPECT_LE(std::ssize(lines) - others, 100);
  EXPECT_GT(std::ssize(lines), 50);
}

TEST(Explain, KnowsCommandsAndFlagsByTheirOwnTables) {
  const Program program;
  const auto text = [&](const char* word) { return program.run(0, {"explain", word}).out; };
  expect_facts(text("calibrate"), {"A command: Measures the roofs"});
  for (const char* word : {"rmsprop", "sgd"})
    expect_facts(text(word), {"A flag: --optimizer sgd|adam|", "Of train, speedrun, compare"});
  expect_facts(text("patience"), {"A flag: --patience N: end after N epochs"});
  expect_facts(json_of(program, {"explain", "betas"}).dump(), {"--betas B1,B2"});
}

// The words of a text that a reader may ask for: what is no number, flag, file, nor one of the
// words below: plain English, and what stands in sentences that only some machines print.
std::set<std::string> asked_words(const std::string& output) {
  static const std::string english =
      "Alloc Do Freed GFLOP MPI Made No Occ Of Open Peak PyTorch Tail a about above accum "
      "accuracy across act activation activations addmm after again against ahead all "
      "allocated allowed alone although an and another any apart arcs are as asked asks at "
      "attrs augment augmented away back backs batches batchnorm be because before began "
      "begin begun belong below beside best betas better between beyond bit bits bmm both "
      "branches buffer buffers built built-in but by bytes calibrate can cannot card cards "
      "change changed check checkpoint classes clip clock code columns come command "
      "compared comparison complete compute condition config configure constant conv "
      "convolution copies count counts damaged decide decided default did diff differ "
      "difference differences dispatch distrusted do does done doubt dry dtype each "
      "eagerly earlier else emulates emulator end ended es evaluation even every exceeds "
      "exclude exit expect expected expression failed far faster few fewer file fill "
      "filter find finished finite first fit fits flatten flight folded folder for force "
      "foreseen found free freed from fuse fuses fusing fusion given gives goes good gpt "
      "grad guess guessing had half has have held here high hold holds how html i if image "
      "in inf init input inputs intermediate intermediates interrupted is issue it its "
      "itself json jumps keep kept keys know known knows large larger largest last latency "
      "launcher learning learnt least leave leaves left less library lie like list little "
      "live logits longer longest looked lost low made make makes many matches matrix may "
      "means measured measurement middle min missed missing mistake mm momentum more most "
      "move mpirun much must named nan near nearest need needed needs negative never new "
      "next no node norm normalize not nothing now ns nstep number numbers nvcc of offers "
      "offset often on once one ones only open operands or order origin other others out "
      "over overfit overhead own part parts path pays peak per picture pictures pixels "
      "place plain plan positive predicted print process programs proved raise ran range "
      "ratio reached read reads record recorded records registers regular rel relation "
      "relative remedy rest result results resume right risen rms role room rounding "
      "safetensors said same sample samples save saves says schedule schema set several "
      "should show shown side sides since slower small smaller smallest so some something "
      "sort spans speedup split splits started stayed stays still stop sums switches table "
      "take taken takes target tells tensor text than that the their them then there these "
      "they this those though throttle through title to too took trained trainer trusted "
      "try turn two type under undisturbed unfused unknown unless unshared unsteady until "
      "up usage use used uses value very waits walk wanted warning was well were what when "
      "where whether which while who whole whose why will window with within without work "
      "working workload would write writes written wrong yet you your zero";
  static const std::set<std::string_view> plain = [] {
    const std::vector<std::string_view> words = parts_of(english, " ");
    return std::set<std::string_view>(words.begin(), words.end());
  }();
  std::set<std::string> out;
  for (const std::string& line : lines_of(output)) {
    for (const std::string_view item : parts_of(line, " ")) {
      constexpr std::string_view kAround = "()[]<>,;:.'\"";
      const size_t begin = item.find_first_not_of(kAround), end = item.find_last_not_of(kAround);
      if (begin == item.npos) continue;
      const std::string word(item.substr(begin, end + 1 - begin));
      const bool is_word =
          std::isalpha(uint8_t(word[0])) && word.find_first_of("0123456789.,=\x1b") == word.npos;
      if (is_word && !plain.contains(word)) out.insert(word);
    }
  }
  return out;
}

TEST(Explain, KnowsEachWordOfWhatCommandsPrintByDefault) {
  const Program program;
  const Words train{"train", "--data", "synthetic", "--limit", "600", "--batch", "20",
      "--profile=table,json", "--rows", "-1"};
  std::string output;
  for (const Words& command : {train + Words{"--mode", "eager", "--out", "eager"},
           train + Words{"--mode", "fused", "--out", "fused"},
           Words{"compare", "--data", "synthetic", "--profile", "--columns", "all", "-v"},
           Words{"compare", "--batch", "1", "--hidden", "8"},
           Words{"bench", "--batch", "1,2", "--hidden", "8"},
           Words{"train", "--fingerprint", "--limit", "600", "--threads", "1", "--out", "a"},
           Words{"train", "--fingerprint", "--limit", "600", "--threads", "1", "--out", "b",
               "--seed", "2"},
           Words{"diff", "a", "b"}, Words{"resume-check", "a"}, Words{"doctor"},
           Words{"inspect", "--text", "--hidden", "8", "--batch", "4"},
           Words{"diff", "eager/profile.json", "fused/profile.json"}}) {
    // Not by --device auto, whose reason has words of the driver.
    const bool has_device =
        command[0] != "diff" && command[0] != "resume-check" && command[0] != "doctor";
    const Result r = program.run(has_device ? command + Words{"--device", "cpu"} : command);
    EXPECT_TRUE(r.status == 0 || command[0] == "diff") << r.err;
    // Formulas, and what is a name of a library or a unit of the sum of bytes, are no words; nor is
    // what a driver says.
    output += std::regex_replace(
        r.out + r.err, std::regex("\n *(formula|ok +(build|version)|[a-z]+ +cuda) .*"), "");
  }
  Program gpt;
  gpt.name = "gpt";
  for (const Words& command : {Words{"train", "--steps", "20"}, Words{"eval"}}) {
    const Result r = gpt.run(0, command + Words{"--device", "cpu"});
    // But not the names that it made, and no folder.
    output += std::regex_replace(r.out + r.err, std::regex("\n[a-z]+(?=\n)|runs/last"), "");
  }
  // A name that is cut, "matmu..", is no word.
  std::set<std::string> words =
      asked_words(std::regex_replace(output, std::regex("[A-Za-z_]+\\.\\."), ""));
  EXPECT_GE(words.size(), 100);
  // What a busy machine, or a quiet one, leaves out.
  for (const char* word : {"machine busy", "no difference shown", "no verdict", "no factor",
           "pays back", "headline", "clean", "median", "noise", "lr", "us", "same op", "under load",
           "Layout", "along_k", "rows_by_warp", "kernels'"})
    words.insert(word);
  std::vector<std::string> unknown;
  for (const std::string& word : words) {
    const Result r = program.run({"explain", word});
    const bool knows = r.status == 0 && !has(r.out, "  unknown\n");
    if (!knows && gpt.run({"explain", word}).status != 0) unknown.push_back(word);  // its own flags
  }
  EXPECT_EQ(join(unknown, "\n"), "") << output;
}

// The names of our kernels as the emulator's footprints show them.
TEST(Explain, KnowsTheKernelsThatAFootprintShowsSimt) {
  const Program program;
  std::set<std::string> kernels;
  for (const Words& words : {Words{"--hidden", "8"}, Words{"--hidden", "8", "--mode", "fused"},
           Words{"--model", "geglu", "--hidden", "8", "--mode", "fused", "--dtype", "bf16"}}) {
    program.run(0, Words{"train", "--data", "synthetic", "--device", "simt", "--limit", "32",
                       "--batch", "4", "--val", "0", "--steps", "5", "--profile-steps", "0:3:1",
                       "--profile=json", "--out", "run", "--force"} +
                       words);
    const auto profile = nlohmann::json::parse(text_of(program.folder() / "run/profile.json"));
    for (const auto& row : profile["rows"]) {
      for (const auto& kernel : row["kernels"]) kernels.insert(kernel["name"]);
    }
  }
  EXPECT_GE(kernels.size(), 10);
  for (const std::string& kernel : kernels) {
    const Result r = program.run(0, {"explain", kernel});
    EXPECT_FALSE(has(r.out, "  unknown\n")) << r.out;
  }
}

// Prose is one paragraph as wide as the terminal: no line breaks of the file's stand in it.
TEST(Explain, TextIsAsWideAsTheTerminal) {
  if (!Program::has_terminals()) GTEST_SKIP() << "no /dev/pts here";
  Program program;
  program.terminal = program.all_on_terminal = true;
  program.environment = {"TERM=xterm", "NO_COLOR=1"};
  for (const unsigned short columns : {60, 80, 140}) {
    program.columns = columns;
    for (const char* word : {"threads", "distortion", "softmax_xent"}) {
      const size_t widest = std::min<size_t>(columns, 100);
      std::string text = program.run(0, {"explain", word}).err;
      std::erase(text, '\r');
      const Lines lines = lines_of(text);
      ASSERT_GT(lines.size(), 2U) << text;
      for (size_t i = 1; i < lines.size(); ++i) {
        EXPECT_LE(lines[i].size(), widest) << text;
        // The first word of the next line would not have fitted.
        if (i + 1 < lines.size()) {
          EXPECT_GT(lines[i].size() + 1 + lines[i + 1].find(' '), widest) << text;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sinter::test
