// mnist data: `verify [WHAT]`, the data doctor; `make DIR`, the synthetic digits as the four files
// of MNIST.

#include <filesystem>

#include "core/atomic_file.h"
#include "core/json.h"
#include "data/idx.h"
#include "data/verify.h"
#include "examples/mnist/flags.h"

namespace sinter::mnist {
namespace {

namespace fs = std::filesystem;

struct DataCommandFlags {
  std::vector<std::string> words;
  std::string what;
  int64_t classes = 10, train = 60000, test = 10000;
  uint64_t data_seed = kDataSeed;
};

int verify(const DataCommandFlags& flags, Output& out) {
  const DataReport report = verify_dataset({.what = flags.what, .classes = flags.classes});
  out.result("data", report.name);
  for (const DataReport::File& file : report.files)
    out.result("file", "{}  {}  crc32 {}", escaped(file.path), file.kind, file.crc);
  for (const DataReport::Set& set : report.sets) {
    out.result(set.name, "{} images  pixels {}..{}, mean {:.1f}  blank {}  repeated {}",
        grouped(set.size()), set.darkest, set.brightest, set.mean, set.blank, set.repeated);
    std::vector<std::string> counts;
    for (size_t label = 0; label < set.counts.size(); ++label)
      counts.push_back(str(label, ": ", set.counts[label]));
    out.result("labels", join(counts, "  "));
    out.result("means", "class means are right for {:.1f} % of {}, more than {:.1f} expected",
        100 * set.class_means, set.name, 100 * set.wanted);
  }
  if (report.sorted) out.result("order", "the training images are sorted by label");
  out.result("shared", "{} test images are in train as well", report.shared);
  if (report.failed.empty()) out.result_text("ok\n");
  out.json("sinter.data-verify/1", report);
  SINTER_CHECK(report.failed.empty(), check, report.failed);
  return 0;
}

void write_set(const fs::path& folder, const char* set, uint64_t seed, uint64_t first, int64_t n,
    Output& out) {
  std::vector<uint8_t> images(static_cast<size_t>(n) * kImagePixels);
  std::vector<int32_t> labels(static_cast<size_t>(n));
  draw_digits(seed, first, images, labels);
  const std::string stem = (folder / set).string();
  write_idx(stem + "-images-idx3-ubyte", {n, kImageSide, kImageSide}, images);
  write_idx(stem + "-labels-idx1-ubyte", {n}, std::vector<uint8_t>(labels.begin(), labels.end()));
  out.result("wrote", "{}-images-idx3-ubyte, {}-labels-idx1-ubyte: {} digits", escaped(stem), set,
      grouped(n));
}

int make(const DataCommandFlags& flags, Output& out) {
  const fs::path folder = fs::path(flags.what);
  std::error_code error;
  fs::create_directories(folder, error);
  const std::string shown = sinter::shown(flags.what);
  SINTER_CHECK(fs::is_directory(folder, error), checkpoint,
      str("data: cannot make the folder: ", shown, "; ",
          error ? error.message() : "a file is there"));
  SINTER_CHECK(fs::is_empty(folder, error), usage, str("usage: folder is not empty: ", shown),
      "mnist data make ANOTHER");
  write_set(folder, "train", flags.data_seed, 0, flags.train, out);
  write_set(folder, "t10k", flags.data_seed, kFirstTestDigit, flags.test, out);
  out.json(
      "sinter.data-make/1", {{"folder", flags.what}, {"train", flags.train}, {"test", flags.test},
                                {"data_seed", std::to_string(flags.data_seed)}});
  out.note("next", "mnist train --data {}", as_word(flags.what));
  return 0;
}

}  // namespace

void add_data(App&, Command& command) {
  static DataCommandFlags flags;
  command.inputs = &flags.words;
  command.inputs_name = "verify [WHAT] | make DIR";
  command.flags.topic("verify");
  command.flags.number("classes", flags.classes, 2, 1'000'000, "labels are 0..N-1");
  command.flags.topic("make");
  // A file's header takes 16 bytes, a digit its pixels; a larger file is none that train reads.
  constexpr auto kMostDigits = int64_t((kMaxBytes - 16) / kImagePixels);
  command.flags.number("train", flags.train, 1, kMostDigits, "digits for training");
  command.flags.number("test", flags.test, 1, kMostDigits, "digits for the test");
  command.flags.number("data-seed", flags.data_seed, 0, UINT64_MAX,
      "other digits; 1 are those that train draws itself");
  command.check = [&command] {
    if (command.flags.given("print-config")) return;
    const std::vector<std::string>& words = flags.words;
    const std::vector<std::string> known{"verify", "make"};
    SINTER_CHECK(!words.empty(), usage, "usage: data: what to do is missing; allowed verify, make",
        "mnist data verify");
    check_word("unknown word", words[0], known, " for data", "mnist data --help");
    const bool makes = words[0] == "make";
    SINTER_CHECK(words.size() <= 2 && (words.size() == 2 || !makes), usage,
        str("usage: data ", makes ? "make takes one folder" : "verify takes at most one data set",
            ", given ", words.size() - 1),
        makes ? "mnist data make DIR" : "mnist data verify DIR");
    for (const char* name : {"train", "test", "data-seed", "classes"}) {
      const bool fits = (std::string_view(name) != "classes") == makes;
      SINTER_CHECK(fits || command.flags[name].source != Source::command_line, usage,
          str("usage: --", name, " is a flag of data ", makes ? "verify" : "make",
              ": given for data ", words[0]));
    }
    if (words.size() == 2) flags.what = words[1];
  };
  command.run = [](Output& out) {
    return flags.words[0] == "verify" ? verify(flags, out) : make(flags, out);
  };
}

}  // namespace sinter::mnist
