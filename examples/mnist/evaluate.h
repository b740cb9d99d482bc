// How well a model reads a set of digits: loss, accuracy with its interval, the table of
// confusions, the items read worst.
#pragma once

#include "cli/output.h"
#include "core/communicator.h"
#include "core/fields.h"
#include "data/batches.h"
#include "nn/module.h"

namespace sinter::mnist {

struct EvaluateOptions {
  int64_t batch = 1000;
  DType dtype = DType::f32;
  Normalize normalize = Normalize::none;
  int64_t classes = 10;
  int64_t worst = 0;  // how many to keep
  // Not null: each of these ranks reads its share, and all get what all found but for `worst`.
  Communicator* ranks = nullptr;
};

struct ClassRow {
  int64_t label, images;
  double precision, recall, f1;
  SINTER_FIELD_LIST(label, images, precision, recall, f1)
};
struct Evaluation {
  struct Item {
    int64_t index, label, read_as;
    double loss;
    SINTER_FIELD_LIST(named("item", index), label, read_as, loss)
  };
  int64_t classes = 10, images = 0, correct = 0;
  double loss_sum = 0;
  std::vector<int64_t> confusion;  // [label][read as]
  std::vector<Item> worst;         // by falling loss
  bool complete = true;            // false: a signal came
  std::string not_finite{};        // why_not_finite() of the first batch whose loss is not

  double accuracy() const { return images ? double(correct) / double(images) : 0; }
  double loss() const { return images ? loss_sum / double(images) : 0; }
  int64_t count(int64_t label, int64_t read_as) const {
    return confusion[size_t(label * classes + read_as)];
  }
  // "7->1 (21)  9->4 (17)  3->5 (14)": label -> read as
  std::string confused_most() const;
  // "98.2 % +-0.3  loss 0.0614   confused most: .."
  std::string summary() const;
  std::vector<ClassRow> class_rows() const;
  // What --json of train and eval share.
  SINTER_FIELD_LIST(images, named("accuracy", written(accuracy())),
      named("accuracy_half_width", written(cli::wilson_half_width(correct, images))),
      named("loss", written(loss())), named("classes", written(class_rows())),
      named("confusion", written(confusion_rows())))

 private:
  std::vector<std::vector<int64_t>> confusion_rows() const;
};

// Without gradients and dropout. Ends early, incomplete, when a signal comes.
Evaluation evaluate(nn::Module& model, const Split& split, const EvaluateOptions& options);
// What makes the model's results for these images nan or infinite: "running_var has nan at [3]", or
// the first op that makes a NaN, and where; "" if there is none.
std::string why_not_finite(nn::Module& model, const Tensor& images);

}  // namespace sinter::mnist
