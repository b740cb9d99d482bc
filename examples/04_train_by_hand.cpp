// 04_train_by_hand: what the Trainer of 05_train_digits does, written out: the steps of an epoch,
// the loss that is summed on the device, the test.
//
// The data are the built-in synthetic digits, so no file is needed. 784 pixels go in, 64 hidden
// units look for strokes, 10 scores come out.
#include <iomanip>
#include <iostream>

#include "autograd/autograd.h"
#include "data/batches.h"
#include "data/digits.h"
#include "nn/mlp.h"
#include "nn/optim.h"

using namespace sinter;

// The share of images whose highest score is that of their label.
double accuracy(nn::Module& model, const Split& split) {
  const NoGrad no_grad;                  // nothing to differentiate here
  const nn::EvalMode evaluation(model);  // dropout, had we any, rests
  Batches batches(split, {.size = 500, .shuffle = false});
  int64_t right = 0;
  for (const Batch& batch : batches) {
    const auto read = argmax(model(batch.images)).to_vector<int64_t>(),
               labels = batch.labels.to_vector<int64_t>();
    for (size_t i = 0; i < labels.size(); ++i) right += read[i] == labels[i];
  }
  return double(right) / double(split.size());
}

// One digit as text, two pixels above each other to a character.
void draw(const Split& split, int64_t item) {
  const uint8_t* pixels = split.images.data<uint8_t>() + item * kImagePixels;
  for (int y = 4; y < 24; y += 2) {
    std::cout << "    ";
    for (int x = 4; x < 24; ++x)
      std::cout << " .:-=+*#%@"[(pixels[y * kImageSide + x] + pixels[(y + 1) * kImageSide + x]) *
                                9 / 510];
    std::cout << "\n";
  }
}

int main() {
  // ---- 1. Data: 6,000 digits to learn from, 1,000 others to be tested with.
  const Dataset data = load_dataset({.what = "synthetic", .val = 0, .limit = 6000});
  const Split test = slice(data.test, 0, 1000);
  std::cout << "data: " << data.description << ", " << data.train.size()
            << " to learn from; the first is labelled " << data.train.labels.to_vector<int32_t>()[0]
            << ":\n";
  draw(data.train, 0);

  // ---- 2. Model and optimizer. Adam takes the parameters by name; it will change them in place.
  nn::Mlp model({784, 64, 10}, {.seed = 1});
  nn::Adam optimizer(model.named_parameters(), {.lr = 0.003});
  std::cout << "\nmodel: " << model.str() << model.num_parameters() << " parameters\n\n";

  // ---- 3. The loop. An epoch is one pass over the data in a new order; a step learns from one
  // batch of 64 images. Here it runs op by op; 07_fuse shows how the trainer's is captured.
  Batches batches(data.train, {.size = 64, .seed = 1});
  std::cout << std::fixed << "before     test accuracy "
            << (accuracy(model, test) < 0.2 ? "that of guessing" : "surprising") << "\n";
  for (int epoch = 1; epoch <= 5; ++epoch) {
    for (const Batch& batch : batches) {
      optimizer.zero_grad();
      const Tensor losses =
          cross_entropy(model(batch.images), batch.labels);  // how surprised is it by each label?
      backward(losses);
      optimizer.step(losses);
    }
    // The losses were summed on the device, by the step's last kernel. Reading the sum once an
    // epoch costs nothing.
    StepState state = read_step_state(optimizer.state());
    std::cout << "epoch " << epoch << "    loss " << std::setprecision(1)
              << state.loss_sum / double(state.loss_rows) << "\n";
    state.loss_sum = 0;
    state.loss_rows = 0;
    write_step_state(optimizer.state(), state);
  }
  const double found = accuracy(model, test);
  std::cout << "after      test accuracy " << (found > 0.85 ? "above 85 %" : "too low") << "\n";
  return found > 0.85 ? 0 : 1;
}
