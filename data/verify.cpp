#include "data/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "core/crc32.h"
#include "core/error.h"
#include "core/parallel.h"
#include "data/bytes.h"

namespace sinter {
namespace {

constexpr double kMaxShared = 0.01;  // of the test set

struct Pixels {
  const uint8_t* data;
  int64_t n, size;  // images, bytes of one
  const uint8_t* operator[](int64_t i) const { return data + i * size; }
};
Pixels pixels_of(const Split& split) {
  return {split.images.data<uint8_t>(), split.size(), split.image().pixels()};
}

void count_equals(const Pixels& train, const Pixels& test, DataReport& report) {
  std::unordered_map<std::string_view, std::array<int64_t, 2>> times;  // in train, in test
  const auto count = [&times](const Pixels& pixels, size_t set) {
    for (int64_t i = 0; i < pixels.n; ++i)
      ++times[{reinterpret_cast<const char*>(pixels[i]), size_t(pixels.size)}][set];
  };
  count(train, 0);
  count(test, 1);
  for (const auto& [image, in] : times) {
    for (DataReport::Set& set : report.sets)
      set.repeated += std::max<int64_t>(in[set.name == "test"] - 1, 0);
    if (in[0] > 0) report.shared += in[1];
  }
}

void describe_set(const Split& split, DataReport::Set& set) {
  const Pixels pixels = pixels_of(split);
  const int32_t* labels = split.labels.data<int32_t>();
  set.darkest = 255;
  uint64_t sum = 0;
  for (int64_t i = 0; i < pixels.n; ++i) {
    ++set.counts[size_t(labels[i])];
    const auto [low, high] = std::minmax_element(pixels[i], pixels[i] + pixels.size);
    set.darkest = std::min<int>(set.darkest, *low);
    set.brightest = std::max<int>(set.brightest, *high);
    set.blank += *low == *high;
    for (int64_t k = 0; k < pixels.size; ++k) sum += pixels[i][k];
  }
  set.mean = double(sum) / double(pixels.n * pixels.size);
  const double most = double(*std::ranges::max_element(set.counts)) / double(pixels.n);
  // Where one label is more than a third of all, half way to all right.
  set.wanted = std::min(2 * most, (1 + most) / 2);
}

// One row of floats per class: the mean image of its items; classes without items have an infinite
// first pixel.
std::vector<float> class_means(const Split& train, size_t classes) {
  const Pixels pixels = pixels_of(train);
  const auto size = size_t(pixels.size);
  std::vector<double> sums(classes * size);
  std::vector<int64_t> counts(classes);
  for (int64_t i = 0; i < pixels.n; ++i) {
    const auto label = size_t(train.labels.data<int32_t>()[i]);
    ++counts[label];
    for (size_t k = 0; k < size; ++k) sums[label * size + k] += pixels[i][k];
  }
  std::vector<float> means(sums.size());
  for (size_t k = 0; k < sums.size(); ++k) {
    const auto n = double(counts[k / size]);
    means[k] = n > 0 ? float(sums[k] / n) : std::numeric_limits<float>::infinity();
  }
  return means;
}

// `own`: how many items of each class the means are of, where the split is part of them; then an
// item is not compared with itself.
double share_nearest(const Split& split, const std::vector<float>& means, size_t classes,
    const std::vector<int64_t>* own) {
  const Pixels pixels = pixels_of(split);
  const auto size = size_t(pixels.size);
  std::vector<uint8_t> right(size_t(pixels.n));
  parallel_for(pixels.n, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto label = size_t(split.labels.data<int32_t>()[i]);
      size_t nearest = classes;
      float least = std::numeric_limits<float>::infinity();
      for (size_t c = 0; c < classes; ++c) {
        float distance = 0;
        for (size_t k = 0; k < size; ++k) {
          const float d = float(pixels[i][k]) - means[c * size + k];
          distance += d * d;
        }
        if (own && c == label) {  // the mean of the others is farther away by n / (n - 1)
          const auto n = float((*own)[c]);
          distance *= n / (n - 1) * (n / (n - 1));
        }
        if (distance < least) {
          least = distance;
          nearest = c;
        }
      }
      right[size_t(i)] = nearest == label;
    }
  });
  return double(std::ranges::count(right, 1)) / double(pixels.n);
}

// "images 60000 x 28 x 28"
std::string images_text(int64_t n, const ImageShape& image) {
  return str("images ", n, " x ", image.height, " x ", image.width,
      image.channels > 1 ? str(" x ", image.channels) : "");
}

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

}  // namespace

int64_t DataReport::Set::size() const {
  int64_t n = 0;
  for (const int64_t count : counts) n += count;
  return n;
}

std::string check_published(const std::string& path, size_t which) {
  // CRC-32 of the four files without gzip. scripts/download_mnist checks what it fetches by the
  // stronger SHA-256; here the question is only which data set this is.
  constexpr uint32_t kPublished[] = {0xe9f4d8b3, 0xe0cb4ad2, 0x91373bdf, 0x4ab9eff9};
  ByteSource source(path);
  std::vector<uint8_t> block(1 << 20);
  uint32_t crc = 0;
  for (size_t n; (n = source.read(block)) > 0;) crc = crc32(block.data(), n, crc);
  return crc == kPublished[which] ? "published" : "differs";
}

DataReport verify_dataset(DataOptions options) {
  options.val = 0;
  options.limit = 0;
  const Dataset data = load_dataset(options);
  DataReport report{.name = data.description, .sorted = data.sorted};
  const auto classes = size_t(options.classes);
  for (const auto& [name, split] : {std::pair("train", &data.train), {"test", &data.test}}) {
    if (split->size() == 0) continue;
    DataReport::Set& set = report.sets.emplace_back(
        DataReport::Set{.name = name, .counts = std::vector<int64_t>(classes)});
    describe_set(*split, set);
  }
  const bool of_four = data.files.size() == 4;
  for (size_t i = 0; i < data.files.size(); ++i) {
    const int64_t n = (i < 2 ? data.train.size() : 0) + (i < 2 && of_four ? 0 : data.test.size());
    report.files.push_back(
        {data.files[i], i % 2 ? str("labels ", n) : images_text(n, data.train.image()),
            of_four && !data.files[i].ends_with(".npy") ? check_published(data.files[i], i)
                                                        : "not checked"});
  }
  count_equals(pixels_of(data.train), pixels_of(data.test), report);
  const std::vector<float> means = class_means(data.train, classes);
  for (DataReport::Set& set : report.sets) {
    const bool test = set.name == "test";
    set.class_means =
        share_nearest(test ? data.test : data.train, means, classes, test ? nullptr : &set.counts);
    if (set.class_means > set.wanted || !report.failed.empty()) continue;
    const size_t first = test && of_four ? 2 : 0;
    const std::string files =
        data.files.empty() ? report.name
                           : str(escaped(data.files[first]), ", ", escaped(data.files[first + 1]));
    report.failed = str("data: labels do not belong to images: ", files,
        "; class means are right for ", percent(set.class_means), " % of ", set.name,
        ", more than ", percent(set.wanted), " expected");
  }
  if (report.failed.empty() && double(report.shared) > kMaxShared * double(data.test.size())) {
    report.failed = str("data: test images are in train as well: ", report.name, "; ",
        report.shared, " of ", data.test.size(), ", allowed ", percent(kMaxShared), " %");
  }
  if (report.failed.empty() && report.sorted && of_four) {
    report.failed = str("data: sorted by label: ", escaped(data.files[1]),
        "; the last of train are held out for val, which would have few labels: "
        "shuffle the files, or train ",
        "without a val set");
  }
  return report;
}

}  // namespace sinter
