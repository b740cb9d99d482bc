#include "nn/mlp.h"

#include "nn/activations.h"
#include "nn/linear.h"

namespace sinter::nn {

Mlp::Mlp(const std::vector<int64_t>& sizes, const MlpOptions& options) {
  SINTER_CHECK(sizes.size() >= 2, usage,
      cat("Mlp: sizes of input and output are wanted: ", sizes.size(), " given"));
  for (size_t i = 1; i < sizes.size(); ++i) {
    layers_->append(std::make_shared<Linear>(sizes[i - 1], sizes[i]));
    if (i + 1 == sizes.size()) break;
    layers_->append(make_activation(options.activation));
    if (options.dropout != 0) layers_->append(std::make_shared<Dropout>(options.dropout));
  }
  init_parameters(options.seed);
}

}  // namespace sinter::nn
