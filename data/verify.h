// The data doctor: what is in a data set, and whether it can be right. Facts for a report, and the
// first check that failed.
//
// Used by `mnist data verify` and `mnist doctor`. Files that cannot be read are data errors, as in
// load_dataset; doubts about files that can be read are in the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/fields.h"
#include "data/dataset.h"

namespace sinter {

struct DataReport {
  struct File {
    std::string path, kind;  // "images 60000 x 28 x 28", "labels 60000"
    std::string crc;         // published, differs (from MNIST's), not checked
    SINTER_FIELD_LIST(path, kind, named("crc32", crc))
  };
  struct Set {
    std::string name;             // train (val with it), test
    std::vector<int64_t> counts;  // of each label
    int darkest = 0, brightest = 0;
    double mean = 0;                  // of all pixels, 0..255
    int64_t blank = 0, repeated = 0;  // images of one grey; images equal to an earlier one
    double class_means = 0;  // share of images nearest to the mean of their own class (of train)
    double wanted = 0;       // more than this: twice the share of the most frequent label
    int64_t size() const;
    SINTER_FIELD_LIST(named("set", name), named("images", written(size())), named("labels", counts),
        named("pixel_min", darkest), named("pixel_mean", mean), named("pixel_max", brightest),
        blank, repeated, class_means, wanted)
  };
  std::string name;
  std::vector<File> files;
  std::vector<Set> sets;
  int64_t shared = 0;   // test images that stand in train, too
  bool sorted = false;  // by label, the training images in their file
  std::string failed;   // "data: labels do not belong to images: ..", or ""
  SINTER_FIELD_LIST(named("data", name), files, sets, named("sorted_by_label", sorted), shared,
      named("ok", written(failed.empty())))
};

// `options` as for load_dataset; val and limit do not count.
DataReport verify_dataset(DataOptions options);

// "published" where the file's content, without gzip, has the CRC-32 of MNIST's own file, else
// "differs"; `which`: 0..3, train images, train labels, test images, test labels.
std::string check_published(const std::string& path, size_t which);

}  // namespace sinter
