// Net: a network written as text, its layers one after the other with a ";" between.
//
//   nn::Net lenet("conv 6 5 pad 2; relu; pool 2; conv 16 5; relu; pool 2; "
//                 "flatten; linear 120; relu; linear 84; relu; linear 10", {1, 28, 28});
//
//   conv OUT KERNEL [pad P] [stride S]      kernels are square
//   pool KERNEL [stride S], avgpool KERNEL [stride S]      the stride is the kernel's size
//   relu, gelu and the other activations; batchnorm, layernorm; dropout P; flatten; linear OUT
//
// What a layer takes in follows from what stands before it. Keys are those of PyTorch's
// nn.Sequential of the same layers ("0.weight", "3.weight", ..), as for Mlp.
#pragma once

#include <string_view>

#include "nn/sequential.h"

namespace sinter::nn {

// LeNet-5 with ReLU and max pooling, and the net of PyTorch's MNIST example: for images of 28 x 28,
// up to the number of classes, which follows.
inline constexpr std::string_view kLenetLayers =
    "conv 6 5 pad 2; relu; pool 2; conv 16 5; relu; pool 2; flatten; linear 120; relu; "
    "linear 84; relu; linear ";
inline constexpr std::string_view kCnnLayers =
    "conv 32 3; relu; conv 64 3; relu; pool 2; dropout 0.25; flatten; linear 128; relu; "
    "dropout 0.5; linear ";

class Net : public Module {
 public:
  // `input`: of one image, [C, H, W]. Throws usage: the item, what is wrong, what is allowed, and
  // the shape of what the item takes in.
  Net(std::string_view text, const Shape& input);
  // x[B, C, H, W], or its rows [B, C*H*W] -> [B, ..output()]
  Tensor forward(const Tensor& x) override;
  std::string describe() const override { return "Net"; }
  const Shape& output() const { return output_; }  // of one image

 private:
  Shape input_, output_;
  std::shared_ptr<Sequential> layers_ = add("layers", std::make_shared<Sequential>(), false);
};

}  // namespace sinter::nn
