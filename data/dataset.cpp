#include "data/dataset.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <span>

#include "core/allocator.h"
#include "core/atomic_file.h"
#include "core/cache.h"
#include "core/crc32.h"
#include "core/error.h"
#include "core/numbers.h"
#include "data/idx.h"
#include "data/npy.h"
#include "data/tensor_batches.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSyntheticTrain = 60000, kSyntheticTest = 10000;
constexpr int64_t kShare = 7;  // of a pair of files, one in so many is for the test
constexpr const char* kWaysOut =
    "DataOptions.what = DIR, or DataOptions.what = IMAGES,LABELS, or DataOptions.what = synthetic, "
    "or scripts/download_mnist";

struct Stem {
  const char *set, *dims;
};
constexpr Stem kStems[] = {{"train-images", "idx3-ubyte"}, {"train-labels", "idx1-ubyte"},
    {"t10k-images", "idx3-ubyte"}, {"t10k-labels", "idx1-ubyte"}};

// The path of the file in any spelling, or "".
std::string find_file(const fs::path& folder, const Stem& stem) {
  for (const char* between : {"-", "."}) {
    for (const char* end : {"", ".gz"}) {
      const fs::path path = folder / str(stem.set, between, stem.dims, end);
      std::error_code ignored;
      if (fs::exists(path, ignored)) return path.string();
    }
  }
  return "";
}

std::vector<std::string> files_in(const std::string& folder) {
  std::error_code ignored;
  SINTER_CHECK(fs::is_directory(folder, ignored), data,
      str("data: ", fs::exists(folder, ignored) ? "not a folder: " : "no such folder: ",
          shown(folder), "; a folder of four IDX files is wanted"),
      kWaysOut);
  std::vector<std::string> files;
  for (const Stem& stem : kStems) {
    files.push_back(find_file(folder, stem));
    SINTER_CHECK(!files.back().empty(), data,
        str("data: no MNIST files: ", shown(folder), "; looked for ", stem.set, "-", stem.dims,
            " and ", stem.set, ".", stem.dims, ", each also .gz"),
        kWaysOut);
  }
  return files;
}

bool is_npy(const std::string& path) { return path.ends_with(".npy"); }

// "a.npy,b.npy" -> the two, or four; IDX files likewise. A file's name has no comma.
std::vector<std::string> listed_files(const std::string& what) {
  const std::vector<std::string_view> parts = parts_of(what, ",");
  const std::vector<std::string> files(parts.begin(), parts.end());
  const bool all_named = std::ranges::find(files, "") == files.end();
  SINTER_CHECK(all_named && (files.size() == 2 || files.size() == 4), data,
      str("data: images and labels are wanted: ", escaped(what),
          "; two files with a comma between, or four: those of the test set follow"),
      "DataOptions.what = images.npy,labels.npy");
  return files;
}

// Each label in one run. Of a few items that may be chance.
bool is_sorted_by_label(const Split& split) {
  const int32_t *labels = split.labels.data<int32_t>(), *const end = labels + split.size();
  int64_t changes = 0;
  for (int64_t i = 1; i < split.size(); ++i) changes += labels[i] != labels[i - 1];
  const auto kinds = int64_t(std::set<int32_t>(labels, end).size());
  return kinds > 1 && changes == kinds - 1 && split.size() >= 4 * kinds;
}

void check_labels(const Split& split, int64_t classes, const std::string& name) {
  const std::span labels(split.labels.data<int32_t>(), size_t(split.size()));
  const auto bad =
      std::ranges::find_if(labels, [classes](int32_t label) { return label >= classes; });
  if (bad == labels.end()) return;
  throw Error(Error::Kind::data,
      str("data: label out of range: ", *bad, " at item ", bad - labels.begin(), " of ", name,
          "; classes are 0..", classes - 1),
      str("DataOptions.classes = ", std::ranges::max(labels) + 1));
}

Split synthetic(const DataOptions& options, uint64_t first, int64_t n) {
  if (options.limit > 0) n = std::min(n, options.limit);
  const Split split{
      Tensor::empty({n, 1, kImageSide, kImageSide}, DType::u8), Tensor::empty({n}, DType::i32)};
  draw_digits(options.data_seed, first,
      {split.images.data<uint8_t>(), size_t(split.images.numel())},
      {split.labels.data<int32_t>(), size_t(n)});
  check_labels(split, options.classes, "the synthetic digits");
  return split;
}

Dataset load_place(const std::string& what, std::string how, const DataOptions& options) {
  Dataset out;
  if (what == "synthetic") {
    out.name = out.place = what;
    out.description = "synthetic digits, built in" + how;
    const int64_t val = std::min(options.val, kSyntheticTrain / 12), train = kSyntheticTrain - val;
    out.train = synthetic(options, 0, train);
    out.val = synthetic(options, uint64_t(train), val);
    out.test = synthetic(options, kFirstTestDigit, kSyntheticTest);
    out.crc32 =
        crc_of(synthetic({.limit = 50, .classes = 10, .data_seed = options.data_seed}, 0, 50));
    out.train.crc32 = out.crc32;
    return out;
  }
  std::error_code ignored;
  const bool listed =
      (is_npy(what) || what.find(',') != std::string::npos) && !fs::is_directory(what, ignored);
  out.files = listed ? listed_files(what) : files_in(what);
  out.name = listed ? shown(out.files[0]) + "," + shown(out.files[1]) : shown(what);
  Split all = read_split(out.files[0], out.files[1], options.classes), test;
  out.crc32 = crc_of(all);
  out.sorted = is_sorted_by_label(all);
  const std::span pixels(all.images.data<uint8_t>(), size_t(all.images.numel()));
  if (const int brightest = pixels.empty() ? 255 : std::ranges::max(pixels); brightest <= 1)
    how += str(" (nearly black: its brightest pixel is ", brightest, " of 255)");
  const auto absolute = [&ignored](const std::string& path) {
    return fs::absolute(path, ignored).lexically_normal().string();
  };
  for (std::string& file : out.files) file = absolute(file);
  out.place = listed ? join(out.files, ",") : absolute(what);
  if (out.files.size() == 4) {
    test = read_split(out.files[2], out.files[3], options.classes);
    SINTER_CHECK(all.image() == test.image(), data,
        str("data: sizes differ: ", all.image().str(), " images in ", escaped(out.files[0]), ", ",
            test.image().str(), " in ", escaped(out.files[2])));
    if (out.sorted && options.val > 0)
      how += " (sorted by label: val, the last of train, has few of them)";
  } else if (options.pair_is_test) {
    how += " (all of it for the test)";
    test = all;
    all = slice(all, 0, 0);
  } else {
    SINTER_CHECK(all.size() >= kShare, data,
        str("data: too few images: ", out.name, " has ", all.size(), ", and 1/", kShare,
            " of them are the test set: at least ", kShare),
        "DataOptions.what = IMAGES,LABELS,TEST_IMAGES,TEST_LABELS");
    how += " (1/7 of it, drawn, for the test)";
    constexpr uint64_t kSplitSeed = 7;  // one split, whatever the run's seed is
    const TensorBatchOptions drawn{.size = all.size(), .seed = kSplitSeed};
    const Tensors rows = TensorBatches({all.images, all.labels}, drawn).next();
    all = {rows[0], rows[1]};
    const int64_t train = all.size() - all.size() / kShare;
    test = slice(all, train, all.size());
    all = slice(all, 0, train);
  }
  out.description = out.name + how;
  const int64_t val = std::min(options.val, all.size() / 12), train = all.size() - val;
  const auto first = [&](int64_t n) { return options.limit > 0 ? std::min(n, options.limit) : n; };
  out.train = slice(all, 0, first(train));
  out.train.crc32 = out.crc32;
  out.val = slice(all, train, train + first(val));
  out.test = slice(test, 0, first(test.size()));
  return out;
}

}  // namespace

bool Dataset::to(Device device) {
  try {
    if (device.type == Device::Type::cuda) {
      int64_t bytes = 0;
      for (const Split* split : {&train, &val, &test}) {
        if (split->size() > 0)
          bytes += split->images.numel() + split->size() * int64_t{sizeof(int32_t)};
      }
      Tensor::empty({2 * bytes}, DType::u8, device);
      allocator(device).trim();
    }
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::memory) throw;
    return false;
  }
  for (const Split* split : {&train, &val, &test}) {
    if (split->images.defined()) split->images.storage()->move_to(device);
    if (split->labels.defined()) split->labels.storage()->move_to(device);
  }
  return true;
}

std::string Dataset::sizes() const {
  return str("train ", grouped(train.size()), "  val ", grouped(val.size()), "  test ",
      grouped(test.size()), "  ", train.image().str());
}

std::string ImageShape::str() const {
  return sinter::str(height, "x", width, channels > 1 ? sinter::str("x", channels) : "");
}

ImageShape ImageShape::parse(const std::string& text) {
  ImageShape out;
  constexpr int64_t kMax = 1 << 16;
  const int found = std::sscanf(
      text.c_str(), "%7" SCNd64 "x%7" SCNd64 "x%1" SCNd64, &out.height, &out.width, &out.channels);
  const bool in_range =
      std::min(out.height, out.width) >= 1 && std::max(out.height, out.width) <= kMax && found >= 2;
  SINTER_CHECK(in_range && out.str() == text, usage,
      sinter::str("data: not the size of an image: ", escaped(text),
          "; as 28x28 or 32x32x3, each at most ", kMax));
  return out;
}

std::string mnist_cache_folder() {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/mnist";
}

uint32_t crc_of(const Split& split) {
  if (split.crc32 > 0) return split.crc32;
  const Tensor images = split.images.to(kCpu), labels = split.labels.to(kCpu);
  const uint32_t crc = crc32(images.raw(), size_t(images.numel()));
  return crc32(labels.raw(), size_t(labels.numel()) * sizeof(int32_t), crc);
}

Split slice(const Split& split, int64_t begin, int64_t end) {
  SINTER_CHECK(0 <= begin && begin <= end && end <= split.size(), usage,
      str("slice: out of range: rows [", begin, ", ", end, ") of a split of ", split.size(),
          "; 0 <= begin <= end <= ", split.size(), " is wanted"));
  const auto rows = [&](const Tensor& t, Shape shape) {
    shape[0] = end - begin;
    return Tensor::view_of(
        t.storage(), t.dtype(), shape, t.strides(), t.offset() + begin * t.strides()[0]);
  };
  return {rows(split.images, split.images.shape()), rows(split.labels, split.labels.shape())};
}

Split read_split(const std::string& images_path, const std::string& labels_path, int64_t classes) {
  const auto read = [](const std::string& path, IdxKind kind) {
    return is_npy(path) ? read_npy(path) : read_idx(path, kind);
  };
  const Split split{
      read(images_path, IdxKind::images).images(), read(labels_path, IdxKind::labels).labels()};
  const int64_t n = split.images.size(0);
  SINTER_CHECK(n == split.size(), data,
      str("data: counts differ: ", n, " images in ", shown(images_path), ", ", split.size(),
          " labels in ", shown(labels_path)),
      "train images with t10k labels?");
  check_labels(split, classes, shown(labels_path));
  return split;
}

Dataset load_dataset(const DataOptions& options) {
  SINTER_CHECK(
      options.val >= 0, usage, str("data: val out of range: ", options.val, "; at least 0"));
  SINTER_CHECK(
      options.limit >= 0, usage, str("data: limit out of range: ", options.limit, "; at least 0"));
  SINTER_CHECK(options.classes >= 1, usage,
      str("data: classes out of range: ", options.classes, "; at least 1"));
  std::string what = options.what, how;
  const char* variable = std::getenv("SINTER_DATA");
  if (what.empty() && variable) what = variable;
  const bool by_variable = variable && !what.empty() && what == variable;
  if (by_variable) how = " (SINTER_DATA)";
  if (what.empty()) {
    for (const std::string& place : {std::string("data/mnist"), mnist_cache_folder()}) {
      const auto is_there = [&](const Stem& stem) { return !find_file(place, stem).empty(); };
      if (!what.empty() || place.empty() || std::ranges::none_of(kStems, is_there)) continue;
      what = place;
      how = " (found: none was given)";
    }
  }
  if (what.empty()) {
    what = "synthetic";
    how = " (none given, none found)";
  }
  try {
    return load_place(what, how, options);
  } catch (const Error& error) {
    if (!by_variable) throw;
    throw Error(error.kind(), str(error.message(), "; SINTER_DATA names it"), error.hint());
  }
}

}  // namespace sinter
