// A data set of images of one size, grey or colour: found, read, checked and split into train, val
// and test. MNIST's digits, 28x28, are the usual ones.
//
// WHAT names it: a folder of the four MNIST files (IDX, raw or gzip, both spellings); files of any
// name, IDX or NumPy, `images.npy,labels.npy`, or four, those of the test set last; or the word
// `synthetic`. A place that was given and fails is an error; only where nothing is given do
// ./data/mnist, the cache folder and then the built-in digits stand in. Of one pair of files 1/7 is
// the test set, drawn by a fixed permutation, for many are sorted by label; or, with
// `pair_is_test`, all of it in the file's order. Errors are data errors (exit code 3). Splits share
// the storage of the set they were cut from; nothing writes to it.
//
// Images are always u8 [N, C, H, W], grey ones with C = 1. A batch has rows of C*H*W numbers, which
// a convolutional net reads as [B, C, H, W]: the same memory, so both are views.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/digits.h"

namespace sinter {

struct DataOptions {
  std::string what = "";   // "" : $SINTER_DATA, then the default places, then synthetic
  int64_t val = 5000;      // held out: the last of train, at most 1/12 of it
  int64_t limit = 0;       // the first N of each of train, val and test; 0 all
  int64_t classes = 10;    // labels are 0..classes-1
  uint64_t data_seed = 1;  // of the synthetic digits
  bool pair_is_test = false;
};

// Of an image.
struct ImageShape {
  int64_t channels = 1, height = kImageSide, width = kImageSide;
  int64_t pixels() const { return channels * height * width; }
  std::string str() const;  // "28x28", "32x32x3"
  // What str() gives. Throws usage.
  static ImageShape parse(const std::string& text);
  bool operator==(const ImageShape&) const = default;
};

struct Split {
  Tensor images;       // u8 [N, C, H, W]
  Tensor labels;       // i32 [N]
  uint32_t crc32 = 0;  // Dataset::crc32 of the training images; 0: unknown
  int64_t size() const { return labels.defined() ? labels.numel() : 0; }
  ImageShape image() const { return {images.size(1), images.size(2), images.size(3)}; }
};

struct Dataset {
  Split train, val, test;  // val is empty when nothing is held out
  std::string name;        // "synthetic" or the folder
  std::string place;       // the same as WHAT, from any working folder
  uint32_t crc32 = 0;   // of all images and labels for training, before val and limit are cut; of
                        // some of the synthetic ones
  bool sorted = false;  // by label, the ones for training, in their file
  std::string description;  // "synthetic digits, built in (none given, none found)"
  // Absolute paths: images and labels of train (and val), then of test; of one pair of files only
  // those; none for synthetic.
  std::vector<std::string> files;
  // "train 55,000  val 5,000  test 10,000  28x28"
  std::string sizes() const;
  // Takes all splits to a device, as bytes; what they share goes once. False: that would leave a
  // card less than as much again, so they stay; BatchOptions::device then says where batches go.
  bool to(Device device);
};

Dataset load_dataset(const DataOptions& options = {});

// Reads a pair of IDX (or, named .npy, NumPy) files and checks that they belong together: equal
// counts, labels below `classes`.
Split read_split(const std::string& images_path, const std::string& labels_path, int64_t classes);

// ${XDG_CACHE_HOME:-~/.cache}/sinter/mnist, where scripts/download_mnist puts the files; "" without
// a home.
std::string mnist_cache_folder();

// Of its images and labels, unless it has one.
uint32_t crc_of(const Split& split);
// The rows [begin, end) of a split, without a copy. Throws usage unless they are there.
Split slice(const Split& split, int64_t begin, int64_t end);

}  // namespace sinter
