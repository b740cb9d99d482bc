#include "data/dataset.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/allocator.h"
#include "core/atomic_file.h"
#include "core/error.h"
#include "data/digits.h"
#include "data/idx.h"
#include "data/npy.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSyntheticTrain = 60000, kSyntheticTest = 10000;
constexpr const char* kWaysOut = "--data DIR, or --data synthetic, or scripts/download_mnist";

struct Stem {
  const char *set, *dims;
};
constexpr Stem kTrainImages{"train-images", "idx3-ubyte"}, kTrainLabels{"train-labels", "idx1-ubyte"};
constexpr Stem kTestImages{"t10k-images", "idx3-ubyte"}, kTestLabels{"t10k-labels", "idx1-ubyte"};
constexpr Stem kStems[] = {kTrainImages, kTrainLabels, kTestImages, kTestLabels};

std::array<std::string, 4> spellings(const Stem& stem) {
  const std::string dash = cat(stem.set, "-", stem.dims), dot = cat(stem.set, ".", stem.dims);
  return {dash, dash + ".gz", dot, dot + ".gz"};
}

// The path of the file in any spelling, or "".
std::string find_file(const fs::path& folder, const Stem& stem) {
  for (const std::string& name : spellings(stem)) {
    std::error_code ignored;
    if (fs::exists(folder / name, ignored)) return (folder / name).string();
  }
  return "";
}

// "the folder holds notes.txt and 2 more"
std::string contents(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) return cat("the folder cannot be listed: ", error.message());
  if (names.empty()) return "the folder is empty";
  std::sort(names.begin(), names.end());
  return cat("the folder holds ", escaped(names[0]), names.size() > 1 ? cat(" and ", names.size() - 1, " more") : "");
}

std::string require_file(const fs::path& folder, const Stem& stem) {
  const std::string path = find_file(folder, stem);
  const auto names = spellings(stem);
  SINTER_CHECK(
      !path.empty(), data,
      cat("data: no MNIST files: ", shown(folder), "; looked for ", names[0], " and ", names[2], ", each also .gz; ", contents(folder)),
      kWaysOut);
  return path;
}

void require_folder(const std::string& what) {
  std::error_code error;
  const fs::file_status status = fs::status(what, error);
  SINTER_CHECK(fs::exists(status), data,
               cat("data: no such folder: ", shown(what), "; ",
                   error && status.type() == fs::file_type::none ? error.message() : "nothing is there"),
               kWaysOut);
  SINTER_CHECK(fs::is_directory(status), data, cat("data: not a folder: ", shown(what), "; a folder of four IDX files is wanted"),
               kWaysOut);
}

bool holds_any(const fs::path& folder) {
  return std::any_of(std::begin(kStems), std::end(kStems), [&](const Stem& stem) { return !find_file(folder, stem).empty(); });
}

bool is_npy(const std::string& path) { return path.ends_with(".npy"); }

Tensor read_images(const std::string& path) {
  if (is_npy(path)) return read_npy_images(path);
  const IdxArray images = read_idx(path, IdxKind::images);
  SINTER_CHECK(images.dims[1] == kImageSide && images.dims[2] == kImageSide, data,
               cat("data: images of another size: ", images.name, "; ", images.dims[1], " x ", images.dims[2], ", wanted ", kImageSide,
                   " x ", kImageSide));
  return Tensor::from(images.bytes, Shape(images.dims));
}

Tensor read_labels(const std::string& path) {
  if (is_npy(path)) return read_npy_labels(path);
  const IdxArray labels = read_idx(path, IdxKind::labels);
  return Tensor::from(std::vector<int32_t>(labels.bytes.begin(), labels.bytes.end()), {labels.dims[0]});
}

// "a.npy,b.npy" -> the pair. A file's name has no comma.
std::vector<std::string> npy_pair(const std::string& what) {
  const size_t comma = what.find(',');
  const std::string first = what.substr(0, comma), second = comma == std::string::npos ? "" : what.substr(comma + 1);
  SINTER_CHECK(is_npy(first) && is_npy(second) && second.find(',') == std::string::npos, data,
               cat("data: images and labels are wanted: ", escaped(what), "; two .npy files with a comma between"),
               "--data images.npy,labels.npy");
  return {first, second};
}

Split empty_split(int64_t n) { return {Tensor::empty({n, kImageSide, kImageSide}, DType::u8), Tensor::empty({n}, DType::i32)}; }

void check_labels(const Split& split, int64_t classes, const std::string& name) {
  const int32_t* labels = split.labels.data<int32_t>();
  const int32_t* const end = labels + split.size();
  const int32_t* const bad = std::find_if(labels, end, [classes](int32_t label) { return label >= classes; });
  if (bad == end) return;
  throw Error(Error::Kind::data,
              cat("data: label out of range: ", *bad, " at item ", bad - labels, " of ", name, "; classes are 0..", classes - 1),
              cat("--classes ", *std::max_element(labels, end) + 1));
}

Split synthetic(const DataOptions& options, uint64_t first, int64_t n) {
  if (options.limit > 0) n = std::min(n, options.limit);
  Split split = empty_split(n);
  draw_digits(options.data_seed, first, {split.images.data<uint8_t>(), static_cast<size_t>(split.images.numel())},
              {split.labels.data<int32_t>(), static_cast<size_t>(n)});
  check_labels(split, options.classes, "the synthetic digits");
  return split;
}

std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

}  // namespace

bool Dataset::to(Device device) {
  try {
    if (device.type == Device::Type::cuda) {
      Tensor::empty({2 * (train.size() + val.size() + test.size()) * (kImagePixels + 4)}, DType::u8, device);
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
  return cat("train ", grouped(train.size()), "  val ", grouped(val.size()), "  test ", grouped(test.size()), "  28x28");
}

std::string mnist_cache_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && *cache) return cat(cache, "/sinter/mnist");
  return home && *home ? cat(home, "/.cache/sinter/mnist") : "";
}

Split slice(const Split& split, int64_t begin, int64_t end) {
  SINTER_ASSERT(0 <= begin && begin <= end && end <= split.size(), begin, "..", end, " of ", split.size());
  const auto rows = [&](const Tensor& t, Shape shape) {
    shape[0] = end - begin;
    return Tensor::view_of(t.storage(), t.dtype(), shape, t.strides(), t.offset() + begin * t.strides()[0]);
  };
  return {rows(split.images, split.images.shape()), rows(split.labels, split.labels.shape())};
}

Split read_split(const std::string& images_path, const std::string& labels_path, int64_t classes) {
  const Split split{read_images(images_path), read_labels(labels_path)};
  const int64_t n = split.images.size(0);
  SINTER_CHECK(n == split.size(), data,
               cat("data: counts differ: ", n, " images in ", shown(images_path), ", ", split.size(), " labels in ", shown(labels_path)),
               "train images with t10k labels?");
  check_labels(split, classes, shown(labels_path));
  return split;
}

Dataset load_dataset(const DataOptions& options) {
  SINTER_CHECK(options.val >= 0, usage, cat("usage: --val out of range: ", options.val, "; at least 0"));
  SINTER_CHECK(options.limit >= 0, usage, cat("usage: --limit out of range: ", options.limit, "; at least 0"));
  SINTER_CHECK(options.classes >= 1, usage, cat("usage: --classes out of range: ", options.classes, "; at least 1"));
  std::string what = options.what, how;
  if (const char* variable = std::getenv("SINTER_DATA"); what.empty() && variable && *variable) what = variable, how = " (SINTER_DATA)";
  if (what.empty()) {
    for (const std::string& place : {std::string("data/mnist"), mnist_cache_folder()}) {
      if (what.empty() && !place.empty() && holds_any(place)) what = place, how = " (found: no --data given)";
    }
  }
  if (what.empty()) what = "synthetic", how = " (no --data given, none found)";

  Dataset out;
  if (what == "synthetic") {
    out.name = what;
    out.description = "synthetic digits, built in" + how;
    const int64_t val = std::min(options.val, kSyntheticTrain / 12), train = kSyntheticTrain - val;
    out.train = synthetic(options, 0, train);
    out.val = synthetic(options, static_cast<uint64_t>(train), val);
    out.test = synthetic(options, kFirstTestDigit, kSyntheticTest);
    return out;
  }
  Split all, test;
  std::error_code ignored;
  if (is_npy(what.substr(0, what.find(','))) && !fs::is_directory(what, ignored)) {
    out.files = npy_pair(what);
    out.name = shown(out.files[0]) + "," + shown(out.files[1]);
    all = read_split(out.files[0], out.files[1], options.classes);
    const int64_t train = options.pair_is_test ? 0 : all.size() - all.size() / 7;
    how += options.pair_is_test ? " (all of it for the test)" : " (the last 1/7 for the test)";
    test = slice(all, train, all.size());
    all = slice(all, 0, train);
  } else {
    require_folder(what);
    for (const Stem& stem : kStems) out.files.push_back(require_file(what, stem));
    out.name = shown(what);
    all = read_split(out.files[0], out.files[1], options.classes);
    test = read_split(out.files[2], out.files[3], options.classes);
  }
  for (std::string& file : out.files) file = fs::absolute(file, ignored).lexically_normal().string();
  out.description = out.name + how;
  const int64_t val = std::min(options.val, all.size() / 12), train = all.size() - val;
  const auto first = [&](int64_t n) { return options.limit > 0 ? std::min(n, options.limit) : n; };
  out.train = slice(all, 0, first(train));
  out.val = slice(all, train, train + first(val));
  out.test = slice(test, 0, first(test.size()));
  return out;
}

}  // namespace sinter
