// The words of the programs as transcripts, golden/NAME.txt: each line "$ COMMAND" is run by bash
// in a folder that is empty at first, and what it prints follows, stderr before stdout, and its
// exit status; FOLDER is the folder's name. A refusal, status 2 to 6, prints nothing on
// stdout. SINTER_REGENERATE=1
// writes them anew; a new case is a line "$ COMMAND".
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "tests/test_util.h"

namespace sinter {
namespace {

// What a line of a transcript prints, and its exit status.
std::string output_of(const std::string& command, const test::TempDir& folder) {
  folder.write("command", "cd " + folder.path() +
                              "\nunset SINTER_DATA\nexport XDG_CACHE_HOME=" SINTER_BIN_DIR
                              "/../cache PATH=" SINTER_BIN_DIR ":$PATH\n" +
                              command + "\n");
  const std::string bash =
      "bash " + folder.file("command") + " 2>&1 >" + folder.file(".stdout") + " </dev/null";
  FILE* const pipe = popen(bash.c_str(), "r");
  std::string out;
  std::array<char, 4096> part{};
  for (size_t n; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    out.append(part.data(), n);
  const int status = WEXITSTATUS(pclose(pipe));
  const std::string result = test::text_of(folder.file(".stdout"));
  EXPECT_TRUE(status < 2 || status > 6 || result.empty()) << command << "\n" << result;
  out += result;
  const std::string name = folder.path();
  for (size_t at; (at = out.find(name)) != out.npos;) out.replace(at, name.size(), "FOLDER");
  return str(out, "status ", status, "\n");
}

// Returns the transcript.
std::string expect_transcript(const std::string& name) {
  const std::string path = str(SINTER_SOURCE_DIR "/tests/examples/golden/", name, ".txt");
  std::string golden = test::text_of(path);
  const test::TempDir folder;
  std::string now;
  int commands = 0;
  for (size_t at = golden.find("$ "); at != golden.npos; at = golden.find("\n$ ", at + 1)) {
    at += golden[at] == '\n';
    const std::string command = golden.substr(at + 2, golden.find('\n', at) - at - 2);
    now += str(commands++ ? "\n" : "", "$ ", command, "\n", output_of(command, folder));
  }
  EXPECT_GT(commands, 0) << path;
  if (std::getenv("SINTER_REGENERATE")) std::ofstream(path) << now;
  EXPECT_EQ(now, golden) << "SINTER_REGENERATE=1 writes the file anew";
  return golden;
}

TEST(Transcript, HelpFitsEightyColumns) {
  for (const std::string& line : test::lines_of(expect_transcript("help")))
    EXPECT_LE(line.size(), 80u) << line;
}
TEST(Transcript, PrintConfig) { expect_transcript("print_config"); }
TEST(Transcript, WrongWords) { expect_transcript("wrong_words"); }
TEST(Transcript, WrongConfigs) { expect_transcript("wrong_configs"); }
TEST(Transcript, ConfigsComeBack) { expect_transcript("configs_back"); }
TEST(Transcript, Answers) { expect_transcript("answers"); }
TEST(Transcript, WrongRuns) { expect_transcript("wrong_runs"); }

}  // namespace
}  // namespace sinter
