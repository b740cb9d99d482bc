#include "nn/net.h"

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/test_util.h"

namespace sinter::nn {
namespace {

const Shape kDigit{1, 28, 28};
constexpr const char* kLenet =
    "conv 6 5 pad 2; relu; pool 2; conv 16 5; relu; pool 2; "
    "flatten; linear 120; relu; linear 84; relu; linear 10";

std::vector<std::string> keys_of(const NamedTensors& list) {
  std::vector<std::string> keys;
  for (const auto& [name, _] : list) keys.push_back(name);
  return keys;
}

// Counts as in PyTorch.
TEST(Net, LenetAndTheMnistExampleHaveTheirParameters) {
  Net lenet(kLenet, kDigit);
  EXPECT_EQ(lenet.num_parameters(), 61706);
  EXPECT_EQ(lenet.output(), Shape{10});
  EXPECT_EQ(keys_of(lenet.state_dict()),
      (std::vector<std::string>{"0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias",
          "9.weight", "9.bias", "11.weight", "11.bias"}));
  const Net cnn(
      "conv 32 3; relu; conv 64 3; relu; pool 2; dropout 0.25; flatten; linear 128; relu; "
      "dropout 0.5; linear 10",
      kDigit);
  EXPECT_EQ(cnn.num_parameters(), 1199882);
  test::expect_facts(lenet.summary({2, 784}),
      {"[2, 6, 28, 28]", "[2, 16, 5, 5]", "[2, 400]", "156", "48120", "61706"});
}

TEST(Net, TakesImagesOrTheirRows) {
  Net net(
      "conv 4 3 pad 1 stride 2; batchnorm; gelu; avgpool 2 stride 1; flatten; layernorm; linear 5",
      {3, 9, 7});
  net.init_parameters(3);
  net.eval();
  const Tensor images = randn({2, 3, 9, 7});
  const Tensor out = net(images);
  EXPECT_EQ(out.shape(), (Shape{2, 5}));
  EXPECT_EQ(net(reshape(images, {2, -1})).to_vector<float>(), out.to_vector<float>());
  net.train();
  backward(cross_entropy(net(images), Tensor::from(std::vector<int32_t>{1, 4}, {2})));
  for (const auto& [name, parameter] : net.named_parameters())
    EXPECT_TRUE(parameter.grad().defined()) << name;
}

TEST(Net, IsTheLayersThatItsTextNames) {
  EXPECT_EQ(Net("conv 2 3", kDigit).output(), (Shape{2, 26, 26}));
  EXPECT_EQ(Net("conv 2 3 stride 2 pad 1;pool 3 stride 2", kDigit).output(), (Shape{2, 6, 6}));
  EXPECT_EQ(Net(" flatten ;  linear 7; leaky_relu; dropout 0 ", {3, 4, 5}).output(), Shape{7});
  EXPECT_EQ(Net("flatten; linear 4; relu; linear 2", {1, 2, 2}).num_parameters(), 30);
}

TEST(Net, MistakesNameTheItemAndTheShapeThere) {
  const std::string upto = "conv 6 5; relu; pool 2; ";
  const std::pair<std::string, std::vector<std::string>> all[] = {
      {"conv 6 5; relu; pool 4; conv 16 9",
          {"net: conv 16 9 at item 4: the kernel 9x9 is larger than the input 6x6; its input is "
           "[6, 6, 6]"}},
      {upto + "cnov 16 5", {"cnov 16 5 at item 4: there is no cnov, nearest is conv; its input is "
                            "[6, 12, 12]",
                               "hint: allowed are conv, pool, avgpool, batchnorm"}},
      {upto + "conv 16",
          {"conv 16 at item 4: KERNEL is missing in conv OUT KERNEL [pad P] [stride S]"}},
      {upto + "conv 16 0", {"KERNEL is 0, allowed 1..1000000 in conv OUT"}},
      {upto + "conv 16 5x", {"KERNEL is 5x, allowed"}},
      {upto + "conv 16 5 pda 1", {"pda is too much, the form is conv OUT KERNEL [pad P]"}},
      {upto + "conv 16 5 pad", {"pad is missing in conv OUT"}},
      {upto + "conv 16 5 stride 0", {"stride is 0, allowed 1.."}},
      {upto + "relu 3", {"relu 3 at item 4: 3 is too much, the form is relu"}},
      {upto + "dropout 1", {"P is 1, allowed 0..0.99 in dropout P"}},
      {upto + "dropout nan", {"P is nan"}},
      {upto + "linear 10",
          {"linear 10 at item 4: it wants a row of numbers; its input is [6, 12, 12]",
              "hint: flatten before it"}},
      {"flatten; conv 6 5", {"at item 2: it wants images [C, H, W]; its input is [784]"}},
      {"flatten; batchnorm", {"it wants images"}}, {"layernorm", {"it wants a row"}},
      {"", {"net: nothing at item 1: a layer is wanted"}},
      {"conv 6 5;; relu", {"nothing at item 2", "hint: one \";\" between two layers"}},
      {"conv 6 5;", {"nothing at item 2"}}, {"re\x1blu", {"there is no re\\x1blu, nearest is"}}};
  for (const auto& [text, facts] : all)
    test::expect_error(Error::Kind::usage, facts, [&, t = text] { Net(t, kDigit); });
  test::expect_error(
      Error::Kind::usage, {"net: the input is one image", "[28, 28] has 2 sizes"}, [] {
        Net("relu", {28, 28});
      });
}

}  // namespace
}  // namespace sinter::nn
