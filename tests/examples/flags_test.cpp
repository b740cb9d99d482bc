// The flags: ranges, lists, ranks, config files; and the small text functions of the command line.
#include "examples/cli/flags.h"

#include <gtest/gtest.h>

#include "examples/cli/app.h"
#include "examples/cli/process.h"
#include "tests/test_util.h"

namespace sinter::cli {
namespace {

struct FlagsTest : testing::Test {
  bool on = false;
  std::string word = "a", choice = "relu";
  int64_t batch = 128;
  uint64_t seed = 1;
  double rate = 0.1;
  std::optional<double> lr;
  std::vector<int64_t> hidden{256, 128};
  CommonFlags common;
  Flags flags;

  FlagsTest() {
    add_common_flags(flags, common);
    flags.topic("train");
    flags.toggle("on", on, "");
    flags.word("word,w", word, "W", "");
    flags.choice("act", choice, {"relu", "gelu"}, "", {{"rectifier", "relu"}});
    flags.number("batch-size,batch", batch, 1, 1000, "");
    flags.number("rate", rate, 0, 1, "");
    flags.number("lr", lr, 0, 10, "").standard = "adam 0.001";
    flags.number("hidden", hidden, 1, 1000, "");
  }
  void set(const std::string& name, const std::string& text, Source source = Source::command_line) {
    Flags::set(*flags.find(name), text, source);
  }
  // The message with which the value is refused.
  std::string refusal(const std::string& name, const std::string& text) {
    try {
      set(name, text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::usage);
      return error.message();
    }
    return "taken";
  }
  std::string config_refusal(const std::string& text) {
    try {
      apply_config(text, "F", flags, "train", {"train", "eval"});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::usage);
      return error.message();
    }
    return "taken";
  }
};

TEST_F(FlagsTest, RefusalsGiveTextAndRange) {
  EXPECT_EQ(refusal("batch-size", "0"), "usage: --batch-size out of range: 0; allowed 1..1000");
  EXPECT_EQ(refusal("batch-size", "99999999999999999999"),
      "usage: --batch-size out of range: 99999999999999999999; allowed 1..1000");
  for (const char* bad : {"", "x", "1x", "1.5", " 1", "+1", "1_0"})
    EXPECT_EQ(refusal("batch-size", bad).find("usage: --batch-size is not a whole number"), 0u)
        << bad;
  for (const char* bad : {"inf", "-inf", "nan", "-0.1", "1.01", "1e999"})
    EXPECT_EQ(
        refusal("rate", bad), std::string("usage: --rate out of range: ") + bad + "; allowed 0..1");
  EXPECT_EQ(refusal("rate", "0,1").find("usage: --rate is not a number: 0,1"), 0u);
  EXPECT_EQ(refusal("seed", "-1").find("usage: --seed is not a whole number"), 0u);
  EXPECT_EQ(refusal("seed", "18446744073709551615"), "taken");
  EXPECT_EQ(refusal("on", "maybe"), "usage: --on is on or off: maybe; allowed true, false");
  EXPECT_EQ(
      refusal("act", "rleu"), "usage: unknown --act: rleu; nearest is relu; allowed relu, gelu");
  EXPECT_EQ(refusal("act", "swish"), "usage: unknown --act: swish; allowed relu, gelu");
  EXPECT_EQ(refusal("act", "re\x1blu").find("usage: unknown --act: re\\x1blu"), 0u);
}

TEST_F(FlagsTest, OtherWordsForAChoiceAreTakenAsOurs) {
  set("act", "gelu", Source::file);
  set("act", "rectifier");
  EXPECT_EQ(choice, "relu");
  set("act", "GELU");
  EXPECT_EQ(choice, "gelu");
  set("act", "Rectifier");
  EXPECT_EQ(choice, "relu");
  EXPECT_NE(flags.config("train").find("act = \"relu\"\n"), std::string::npos);
}

TEST_F(FlagsTest, WhatWentAndWhatOthersHaveNamesWhatToType) {
  for (const auto& [flag, value] :
      {std::pair{"--card", ""}, {"card", "h100"}, {"profile", "csv"}, {"profile", "table,csv"},
          {"augment", "elastic=3"}, {"--no-cuda", ""}, {"compile", ""}, {"num-workers", "4"}})
    EXPECT_NE(in_place_of(flag, value), "") << flag << " " << value;
  for (const auto& [flag, value] : {std::pair{"--color", ""}, {"profile", ""}, {"profile", "json"},
           {"augment", "shift=3"}, {"act", "csv"}, {"", ""}})
    EXPECT_EQ(in_place_of(flag, value), "") << flag << " " << value;
  test::expect_error(Error::Kind::usage,
      {"usage: unknown key: card under [train] in F", "--device cuda"},
      [&] { apply_config("[train]\ncard = \"h100\"\n", "F", flags, "train", {"train"}); });
}

// A check of a library does not know the flag, nor where the value came from.
TEST_F(FlagsTest, ARefusalOfALibraryNamesTheFlagAndThePlace) {
  std::string layers;
  flags.word("layers", layers, "TEXT", "", [](const std::string& text) {
    throw Error(Error::Kind::usage, "net: no layer: " + text, "L");
  });
  test::expect_error(Error::Kind::usage, {"usage: --layers: no layer: x in F", "hint: L"},
      [&] { apply_config("[train]\nlayers = x\n", "F", flags, "train", {"train"}); });
}

TEST_F(FlagsTest, ListsNameTheItem) {
  EXPECT_EQ(refusal("hidden", "256,,8"), "usage: --hidden has an empty item: 256,,8; item 2");
  EXPECT_EQ(refusal("hidden", "256,"), "usage: --hidden has an empty item: 256,; item 2");
  EXPECT_EQ(refusal("hidden", ""), "usage: --hidden has an empty item: \"\"; item 1");
  EXPECT_EQ(refusal("hidden", "8,0"), "usage: --hidden out of range: 0; allowed 1..1000");
  EXPECT_EQ(hidden, (std::vector<int64_t>{256, 128}));
  set("hidden", "8,9");
  EXPECT_EQ(hidden, (std::vector<int64_t>{8, 9}));
}

TEST_F(FlagsTest, HigherRankWinsWhateverTheOrder) {
  set("batch-size", "5", Source::command_line);
  set("batch-size", "6", Source::file);
  set("batch-size", "7", Source::preset);
  EXPECT_EQ(batch, 5);
  set("word", "preset", Source::preset);
  set("word", "file", Source::file);
  EXPECT_EQ(word, "file");
}

TEST_F(FlagsTest, OfTwoThatExcludeEachOtherTheHigherRankWins) {
  EXPECT_TRUE(flags.first_wins("rate", "lr"));
  set("lr", "1", Source::file);
  EXPECT_FALSE(flags.first_wins("rate", "lr"));
  set("rate", "0.5", Source::command_line);
  EXPECT_TRUE(flags.first_wins("rate", "lr"));
  set("lr", "2", Source::command_line);
  test::expect_error(Error::Kind::usage,
      {"usage: --rate and --lr exclude each other: rate is 0.5, lr is 2"},
      [&] { flags.first_wins("rate", "lr"); });
}

TEST_F(FlagsTest, ConfigIsReadBackAsItWasWritten) {
  for (const auto& [name, text] : {std::pair("on", "true"), {"word", "a b, c"}, {"act", "gelu"},
           {"batch-size", "7"}, {"rate", "0.30000000000000004"}, {"lr", "1e-05"},
           {"hidden", "1,2,3"}, {"seed", "18446744073709551615"}, {"threads", "2"}})
    set(name, text);
  const std::string written = flags.config("train");
  EXPECT_NE(written.find("[train]\n"), std::string::npos);
  EXPECT_LT(written.find("seed = "), written.find("[train]"));
  for (const char* name :
      {"on", "word", "act", "batch-size", "rate", "lr", "hidden", "seed", "threads"})
    flags.find(name)->source = Source::standard;
  on = false, word = "", choice = "relu", batch = 1, rate = 0, lr.reset(), hidden = {1},
  common.seed = 1, common.threads = 0;
  EXPECT_EQ(config_refusal(written), "taken");
  EXPECT_EQ(flags.config("train"), written);
  EXPECT_EQ(word, "a b, c");
  EXPECT_EQ(rate, 0.30000000000000004);
}

TEST_F(FlagsTest, ConfigMistakesAreNamed) {
  EXPECT_EQ(config_refusal("[train]\nbatchsize = 3\n"),
      "usage: unknown key: batchsize under [train] in F; nearest is batch-size");
  EXPECT_EQ(config_refusal("[tarin]\nrate = 3\n"),
      "usage: unknown section: tarin in F; nearest is train; allowed train, eval");
  EXPECT_EQ(config_refusal("rate = 1\n"),
      "usage: key in the wrong place: rate in F; it belongs under [train]");
  EXPECT_EQ(config_refusal("[train]\nseed = 1\n"),
      "usage: key in the wrong place: seed under [train] in F; it belongs on top");
  EXPECT_EQ(
      config_refusal("[train]\nrate = 3\n"), "usage: --rate out of range: 3; allowed 0..1 in F");
  EXPECT_EQ(config_refusal("[train]\nrate = 1\n\nlr = 1\nrate = 0.5\n"),
      "usage: a key stands twice: rate under [train] in F");
  EXPECT_EQ(config_refusal("[eval]\nanything = 1\n# comment\n[train]\nrate = 0.25\n"), "taken");
  EXPECT_EQ(rate, 0.25);
}

// What is no line of a config is refused with its number, not passed over.
TEST_F(FlagsTest, ConfigLinesOfAnotherFormAreNamed) {
  for (const auto& [line, why] :
      {std::pair{"lr", "it is no [section], no key = value"}, {"lr =", "its value is missing"},
          {"lr = # 1", "its value is missing"}, {"= 3", "its key is missing"},
          {"hidden = [1, 2]", "one value is wanted"}, {"lr = 0.1 = 3", "one value is wanted"},
          {"lr = 0.1 0.2", "one value is wanted"}, {"word = \"a\" b", "one value is wanted"},
          {"word = \"\"\"a\"\"\"", "one value is wanted"}, {"word = 'a", "quotes are not closed"},
          {"word = \"a\\q\"", "allowed escapes are"}, {"[]", "a section is one name"},
          {"[[train]]", "a section is one name"}, {"[train", "a section is one name"},
          {"; lr = 1", "unknown key"}}) {
    const std::string refusal = config_refusal(std::string("# head\n[train]\n") + line + "\n");
    if (std::string(why) != "unknown key") {
      EXPECT_EQ(refusal.find(cat("usage: cannot read the config: F, line 3: ", line, "; ")), 0u)
          << refusal;
    }
    EXPECT_NE(refusal.find(why), std::string::npos) << line << "\n" << refusal;
  }
}

TEST_F(FlagsTest, ConfigTakesTheTextsOfToml) {
  const auto after = [&](const std::string& line) {
    EXPECT_EQ(config_refusal("[train]\n" + line + "\r\n"), "taken");
    return cat(batch, " ", word);
  };
  EXPECT_EQ(after("batch-size=16  # sixteen"), "16 a");
  EXPECT_EQ(after("word = \"1\\u002c\\t\\\"\""), "16 1,\t\"");
  EXPECT_EQ(after("word = 'C:\\u' # no escape here"), "16 C:\\u");
  EXPECT_EQ(after("word = \"a # b\""), "16 a # b");
  EXPECT_EQ(after("word = bare"), "16 bare");
  EXPECT_EQ(after("word = 10_abc"), "16 10_abc");
  EXPECT_EQ(config_refusal("[train]\nbatch-size = 1_000\n"),
      "usage: --batch-size is not a whole number: 1_000; allowed 1..1000 in F");
}

TEST_F(FlagsTest, AnyTextComesBackFromAConfig) {
  for (const char* text : {"a # b", "say \"a\"", "it's", "it's \"a\"", "C:\\u002c", "a\nb", "= [x]",
           "\xff.png", " padded "}) {
    set("word", text);
    const std::string written = flags.config("train");
    word = "";
    for (Flag& flag : flags.all()) flag.source = Source::standard;
    EXPECT_EQ(config_refusal(written), "taken") << written;
    EXPECT_EQ(word, text) << written;
  }
}

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
      .images_per_second = 1.1e6,
      .data_wait = 0.002,
      .eta_seconds = 3};
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
    return app.main(static_cast<int>(argv.size()), argv.data());
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
