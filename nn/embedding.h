// Embedding: a row of a table for each token. Parameter as in PyTorch: "weight" f32[tokens,
// features], drawn from N(0, 1).
#pragma once

#include "nn/module.h"
#include "ops/ops.h"

namespace sinter::nn {

class Embedding : public Module {
 public:
  // Sizes >= 1; throws usage.
  Embedding(int64_t num_embeddings, int64_t features) {
    SINTER_CHECK(num_embeddings > 0 && features > 0, usage,
        sinter::str("Embedding: sizes must be 1 or more: tokens ", num_embeddings, ", features ",
            features));
    add_parameter("weight", Tensor::empty({num_embeddings, features}));
    Embedding::init_own(init::default_stream());
  }
  // tokens i32 or i64 [..] -> [.., features]
  Tensor forward(const Tensor& tokens) override { return embedding(tokens, tensor(0)); }
  std::string describe() const override {
    return sinter::str("Embedding(", tensor(0).size(0), ", ", tensor(0).size(1), ")");
  }

 protected:
  void init_own(init::Stream& stream) override { init::normal(tensor(0), 0, 1, stream); }
  std::optional<DType> own_input() const override { return DType::i32; }
};

}  // namespace sinter::nn
