// The small text functions of the command line, and exit codes. Flags and config files are in the
// transcripts.
#include <gtest/gtest.h>

#include "cli/app.h"
#include "cli/process.h"
#include "tests/test_util.h"

namespace sinter::cli {
namespace {

TEST(Text, NumbersAsPeopleReadThem) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(235146), "235,146");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(seconds(12e-6), "12 us");
  EXPECT_EQ(seconds(0.0014), "1.4 ms");
  EXPECT_EQ(seconds(0.6), "0.60 s");
  EXPECT_EQ(seconds(12.34), "12.3 s");
  EXPECT_EQ(seconds(185), "3 min 05 s");
  EXPECT_EQ(bytes(940584), "0.90 MiB");
  EXPECT_EQ(rate(1.1e6), "1.1 M");
  // Wilson's interval for 9,820 of 10,000: centre 0.98182, half width 0.00261.
  EXPECT_EQ(proportion(9820, 10000), "98.2 % +-0.3");
  EXPECT_NEAR(wilson_half_width(9820, 10000), 0.002612, 1e-6);
  EXPECT_NEAR(wilson_half_width(0, 10), 0.13877, 1e-5);
  EXPECT_EQ(wilson_half_width(0, 0), 0);
}

TEST(ProgressLine, FitsTheWidth) {
  const ProgressView view{.epoch = 2,
      .epochs = 5,
      .done = 0.44,
      .loss = 0.1012,
      .rows_per_second = 1.1e6,
      .data_wait = 0.002,
      .eta_seconds = 3,
      .row = "img"};
  EXPECT_EQ(progress_line(view, true, 200),
      "epoch 2/5 [####----] 44 %  loss 0.101  1.1 M img/s  data-wait 0.2 %  ETA 3 s");
  EXPECT_EQ(progress_line(view, true, 20), "epoch 2/5 [####----]");
  EXPECT_EQ(progress_line(view, false, 200),
      "epoch 2/5 44 %  loss 0.101  1.1 M img/s  data-wait 0.2 %  ETA 3 s");
}

TEST(ExitCode, OfEveryKind) {
  using Kind = Error::Kind;
  const std::pair<Kind, int> all[] = {{Kind::internal, 1}, {Kind::shape, 1}, {Kind::dtype, 1},
      {Kind::state, 1}, {Kind::usage, 2}, {Kind::data, 3}, {Kind::checkpoint, 4}, {Kind::device, 5},
      {Kind::memory, 5}, {Kind::not_built, 5}, {Kind::numeric, 6}, {Kind::check, 7},
      {Kind::untrusted, 8}, {Kind::interrupted, 130}};
  for (const auto& [kind, status] : all) EXPECT_EQ(exit_code(kind), status);
}

// No word on the command line provokes one, so a program that is wrong does.
TEST(App, AnInternalErrorIsStatus1AndShowsItsCallsOnlyWithV) {
  const auto run = [](std::vector<std::string> words) {
    App app("broken", "");
    app.add("broken", "", [](App&, Command& command) {
      command.run = [](Output& out) -> int {
        SINTER_ASSERT(out.quiet(), "as it should be");
        return 0;
      };
    });
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return app.main(int(argv.size()), argv.data());
  };
  EXPECT_EXIT(std::exit(run({"broken", "-v"})), testing::ExitedWithCode(1),
      "error: internal: out.quiet.*as it should be.*a bug in sinter");
  for (const bool verbose : {false, true}) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_EQ(run(verbose ? std::vector<std::string>{"broken", "-v"}
                          : std::vector<std::string>{"broken"}),
        1);
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    const std::string text = testing::internal::GetCapturedStderr();
    const size_t error = text.find("sinter::Error::Error("),
                 app = text.find("sinter::cli::App::main(");
    EXPECT_EQ(text.find("calls, innermost first:\n") != std::string::npos, verbose) << text;
    EXPECT_EQ(error != std::string::npos && app != std::string::npos && error < app, verbose)
        << text;
  }
}

}  // namespace
}  // namespace sinter::cli
