// scripts/download_mnist, offline: a file:// BASE, good (the real files, where they are) and
// damaged.
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "tests/data/data_test_util.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code;
  std::string text;  // stdout and stderr
};

Outcome shell(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Outcome out{-1, ""};
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
    out.text.append(buffer.data(), n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) out.code = WEXITSTATUS(status);
  return out;
}

class DownloadMnist : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* tool : {"bash", "curl", "gzip", "sha256sum"}) {
      if (shell(std::string("command -v ") + tool).code != 0)
        GTEST_SKIP() << "not installed: " << tool;
    }
    fs::create_directory(base());
  }
  Outcome download(const std::string& flags = "") {
    return shell("'" SINTER_SOURCE_DIR "/scripts/download_mnist' --url 'file://" + base() +
                 "' --out='" + out() + "' " + flags);
  }
  std::string base() const { return dir_.file("base"); }
  std::string out() const { return dir_.file("a/b"); }
  test::TempDir dir_;
};

TEST_F(DownloadMnist, DamagedFileIsNotKept) {
  dir_.write("base/train-images-idx3-ubyte.gz", test::gzip(test::bytes_of("not the digits")));
  const Outcome outcome = download();
  EXPECT_EQ(outcome.code, 3) << outcome.text;
  test::expect_facts(
      outcome.text, {"checksum differs", "train-images", "wanted ba891046", "nothing kept"});
  EXPECT_TRUE(fs::is_empty(out()));
}

TEST_F(DownloadMnist, NotGzipOrNotThere) {
  const Outcome nothing = download();
  EXPECT_EQ(nothing.code, 3);
  test::expect_facts(nothing.text,
      {"cannot fetch: file://", "curl: (37)", "nothing kept\n    hint: --url file:///DIR takes"});
  EXPECT_EQ(std::ranges::count(nothing.text, '\n'), 2) << nothing.text;
  dir_.write("base/train-images-idx3-ubyte.gz", test::bytes_of("<!DOCTYPE html>"));
  EXPECT_EQ(download().code, 3);
  EXPECT_TRUE(fs::is_empty(out()));
  EXPECT_EQ(download("--colour").code, 2);
}

TEST_F(DownloadMnist, GoodFilesAreFetchedOnceAndRepaired) {
  SKIP_WITHOUT_MNIST();
  for (const auto& entry : fs::directory_iterator(test::mnist_folder())) fs::copy(entry, base());
  const Outcome first = download();
  EXPECT_EQ(first.code, 0) << first.text;
  EXPECT_EQ(std::distance(fs::directory_iterator(out()), fs::directory_iterator()), 4);
  fs::remove_all(base() + "/train-images-idx3-ubyte.gz");  // not asked for again
  std::ofstream(out() + "/t10k-labels-idx1-ubyte.gz") << "damaged here";
  const Outcome second = download();
  EXPECT_EQ(second.code, 0) << second.text;
  test::expect_facts(
      second.text, {"kept    " + out() + "/train-images", "fetched " + out() + "/t10k-labels"});
}

}  // namespace
}  // namespace sinter
