// Mlp: linear layers with an activation (and dropout) between them, the model of the default
// training job. In memory its Sequential is called `layers`; its state dict is the one of that
// Sequential: "0.weight", "0.bias", "2.weight", ..
#pragma once

#include <vector>

#include "nn/activations.h"
#include "nn/linear.h"
#include "nn/sequential.h"

namespace sinter::nn {

struct MlpOptions {
  std::string activation = "relu";  // a word of activation_names()
  double dropout = 0;               // behind every activation; 0: no such modules
  // Of the initial values, whatever was made before: two of one seed and sizes are twins, so give
  // each of an ensemble its own. (A module that is made alone draws from init::default_stream().)
  uint64_t seed = 1;
};

class Mlp : public Module {
 public:
  // sizes: features in, hidden .., out: {784, 256, 128, 10}. Throws usage.
  explicit Mlp(const std::vector<int64_t>& sizes, const MlpOptions& options = {}) {
    SINTER_CHECK(sizes.size() >= 2, usage,
        sinter::str("Mlp: sizes of input and output are wanted: ", sizes.size(), " given"));
    for (size_t i = 1; i < sizes.size(); ++i) {
      layers_->append(std::make_shared<Linear>(sizes[i - 1], sizes[i]));
      if (i + 1 == sizes.size()) break;
      layers_->append(make_activation(options.activation));
      if (options.dropout != 0) layers_->append(std::make_shared<Dropout>(options.dropout));
    }
    init_parameters(options.seed);
  }
  // x[B, sizes.front()] -> [B, sizes.back()]
  Tensor forward(const Tensor& x) override { return (*layers_)(x); }
  std::string describe() const override { return "MLP"; }
  Sequential& layers() const { return *layers_; }

 private:
  std::shared_ptr<Sequential> layers_ = add("layers", std::make_shared<Sequential>(), false);
};

}  // namespace sinter::nn
