// Choices between processes: a recorder stands for a process with its card, and begins anew.
#include "core/device/kept_choices.h"

#include <gtest/gtest.h>

#include "tests/cuda_recorder.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

#if !SINTER_HAS_CUDA

TEST(KeptChoices, NoneWithoutTheToolkit) {
  keep_choice("q", "7 us");
  EXPECT_EQ(kept_choice("q"), std::nullopt);
  EXPECT_EQ(kept_choices_note(), "");
}

#else

using Machine = cuda::FakeToolkit::Machine;

class KeptChoices : public testing::Test {
 protected:
  // What a process is told of the question "q"; then it keeps its own answer, if it has one.
  std::optional<std::string> process(const Machine& machine, const std::string& answer = "") {
    cuda::FakeToolkit card;
    card.set(machine);
    set_keep_choices(true);
    const std::optional<std::string> before = kept_choice("q");
    if (!answer.empty()) keep_choice("q", answer);
    note = kept_choices_note();
    return before;
  }
  // The one file there is.
  std::string file() const {
    return std::filesystem::directory_iterator(folder_.path() + "/sinter")->path();
  }

  std::string note;

 private:
  test::TempDir folder_;
  test::ScopedEnv cache_{"XDG_CACHE_HOME", folder_.path().c_str()};
};

TEST_F(KeptChoices, AreThereForTheNextProcess) {
  EXPECT_EQ(process({}, "7 us"), std::nullopt);
  EXPECT_EQ(process({}), "7 us");
  EXPECT_EQ(note, "");
}

TEST_F(KeptChoices, OfAnotherDriverLibraryOrProgramAreAskedAgain) {
  process({}, "7 us");
  EXPECT_EQ(process({.driver = CUDART_VERSION + 10}), std::nullopt);
  EXPECT_EQ(process({.cublaslt = 14}), std::nullopt);
#if SINTER_HAS_CUDNN
  EXPECT_EQ(process({.cudnn = 10}), std::nullopt);
  EXPECT_EQ(process({.cudnn = 0}), std::nullopt) << "without it, other groups are faster";
#endif
  EXPECT_EQ(process({}), "7 us");
  std::string text = test::text_of(file());
  text.replace(text.find("program of "), 11, "program of 1");
  std::ofstream(file()) << text;
  EXPECT_EQ(process({}, "9 us"), std::nullopt);
  EXPECT_EQ(note, "") << "nothing is wrong with that file";
  EXPECT_EQ(process({}), "9 us") << "the new ones stand in its place";
}

TEST_F(KeptChoices, EachCardHasItsOwn) {
  process({}, "7 us");
  EXPECT_EQ(process({.name = "Other card"}, "9 us"), std::nullopt);
  EXPECT_EQ(process({}), "7 us");
  EXPECT_EQ(process({.name = "Other card"}), "9 us");
}

TEST_F(KeptChoices, ADamagedFileIsIgnoredWithANoteAndReplaced) {
  process({}, "7 us");
  const std::string good = test::text_of(file()), end = "end 1\n";
  for (const std::string& bad : {std::string(),
           std::string("\x7f"
                       "ELF\0\1",
               6),
           good.substr(0, good.size() - end.size()), good.substr(0, good.find('\t')),
           good + "no end", "other words\n" + good,
           std::string("sinter choices 1, Fake card, driver 13000\nq\t7 us\nend 1\n")}) {
    std::ofstream(file()) << bad;
    const bool reads = bad.starts_with(good);  // what follows the end is nobody's
    EXPECT_EQ(process({}), reads ? std::optional<std::string>("7 us") : std::nullopt) << bad;
    if (!reads) test::expect_facts(note, {"choices of before are ignored", file()});
    process({}, "7 us");
    EXPECT_EQ(process({}), "7 us");
    EXPECT_EQ(note, "");
  }
}

TEST_F(KeptChoices, WhereNothingCanBeWrittenTheNoteSaysSo) {
  const test::TempDir folder;
  const std::string blocked = folder.write("file", std::string("x"));
  const test::ScopedEnv cache("XDG_CACHE_HOME", blocked.c_str());
  EXPECT_EQ(process({}, "7 us"), std::nullopt);
  test::expect_facts(note, {"choices are not kept: ", blocked});
  EXPECT_EQ(process({}), std::nullopt);
}

TEST_F(KeptChoices, NoneWithoutAHomeOrACardThatAnswers) {
  {
    const test::ScopedEnv cache("XDG_CACHE_HOME", nullptr), home("HOME", nullptr);
    process({}, "7 us");
    EXPECT_EQ(process({}), std::nullopt);
  }
  cuda::FakeToolkit card;
  set_keep_choices(true);
  card.fail("cublasLtGetProperty", 1, CUBLAS_STATUS_NOT_INITIALIZED);
  keep_choice("q", "7 us");
  EXPECT_EQ(kept_choice("q"), std::nullopt);
  test::expect_facts(kept_choices_note(), {"choices are not kept: ", "cublasLtGetProperty"});
}

#endif

}  // namespace
}  // namespace sinter
