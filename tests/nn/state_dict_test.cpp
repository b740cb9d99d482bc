// load_state_dict: which ways it takes, what it refuses with which facts, and that it writes in
// place or not at all.
#include "nn/state_dict.h"

#include "nn/batch_norm.h"
#include "nn/glu.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/pool.h"
#include "nn/safetensors.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "tests/data/data_test_util.h"
#include "tests/python.h"
#include "tests/test_util.h"

namespace sinter::nn {
namespace {

using test::expect_error;
using enum Error::Kind;

// A state dict of its own memory, with changed values, named by rename(name).
template <class F>
NamedTensors changed_copy(const Module& module, F&& rename, DType dtype = DType::f32) {
  NamedTensors out;
  uint64_t seed = 50;
  for (const auto& [name, t] : module.state_dict()) {
    const Tensor copy = Tensor::empty(t.shape(), dtype);
    init::Stream stream{++seed};
    init::uniform(copy, -1, 1, stream);
    out.push_back({rename(name), copy});
  }
  return out;
}
std::string same(const std::string& name) { return name; }

void expect_loaded(const Module& module, const NamedTensors& from) {
  const NamedTensors to = module.state_dict();
  for (size_t i = 0; i < to.size(); ++i)
    EXPECT_EQ(to[i].tensor.to_vector<float>(), from[i].tensor.to_vector<float>()) << to[i].name;
}

TEST(StateDict, SameKeysInAnyOrderInPlace) {
  Mlp mlp({6, 5, 4});
  const NamedTensors from = changed_copy(mlp, same);
  const void* storage = mlp.parameters()[0].storage()->data();
  const uint64_t version = mlp.parameters()[0].storage()->version();
  EXPECT_EQ(load_state_dict(mlp, {from[3], from[1], from[0], from[2]}), "same keys");
  expect_loaded(mlp, from);
  EXPECT_EQ(mlp.parameters()[0].storage()->data(), storage);
  EXPECT_GT(mlp.parameters()[0].storage()->version(),
      version);  // a tape that saved the weight must notice
}

TEST(StateDict, DropsThePrefixOfDataParallelAndNoOther) {
  Mlp mlp({6, 5, 4});
  const auto prefixed = [&](const std::string& prefix) {
    return changed_copy(mlp, [&](const std::string& name) { return prefix + name; });
  };
  const NamedTensors from = prefixed("module.");
  EXPECT_EQ(load_state_dict(mlp, from), "dropped the prefix module.");
  expect_loaded(mlp, from);
  expect_error(checkpoint, {"4 missing, 4 unexpected", "unexpected module.0.weight "},
      [&] { load_state_dict(mlp, from, {.same_keys_only = true}); });
  for (const std::string prefix : {"layers.", "net.", "module.module.", "modules."})
    expect_error(
        checkpoint, {"4 missing, 4 unexpected"}, [&] { load_state_dict(mlp, prefixed(prefix)); });
  NamedTensors some = from;
  some[0].name = "0.weight";
  expect_error(checkpoint, {"3 missing, 3 unexpected"}, [&] { load_state_dict(mlp, some); });
  // A model whose own child is called so.
  NamedTensors to;
  for (const auto& [name, t] : Mlp({6, 5, 4}).state_dict()) to.push_back({"module." + name, t});
  EXPECT_EQ(load_state_dict(to, from), "same keys");
  EXPECT_EQ(to[0].tensor.to_vector<float>(), from[0].tensor.to_vector<float>());
}

TEST(StateDict, ConvertsFloatingTypesAndRefreshesBf16Copies) {
  Mlp mlp({6, 4});
  mlp.enable_bf16();
  const NamedTensors from = changed_copy(mlp, same, DType::f64);
  EXPECT_EQ(load_state_dict(mlp, from), "same keys; converted f64 to f32");
  EXPECT_EQ(mlp.parameters()[0].to_vector<float>(), from[0].tensor.to_vector<float>());
  EXPECT_EQ(bf16_copy_of(mlp.parameters()[0]).to_vector<float>()[2],
      float(bf16(from[0].tensor.to_vector<float>()[2])));
  EXPECT_EQ(load_state_dict(mlp, changed_copy(mlp, same, DType::bf16)),
      "same keys; converted bf16 to f32");
}

TEST(StateDict, TheDifferenceIsListedAndNothingIsLoaded) {
  Mlp mlp({784, 256, 128, 10});
  const auto before = mlp.parameters()[0].to_vector<float>();
  const NamedTensors other = changed_copy(Mlp({784, 256, 10}), same);
  expect_error(checkpoint,
      {"checkpoint: keys do not match: /a/F is mlp 784-256-10, asked for mlp 784-256-128-10; 2 "
       "missing, 0 unexpected, 2 of another shape",
          "\n    missing 4.weight f32[10, 128]",
          "\n    shape 2.weight: file f32[10, 256], model f32[128, 256]",
          "\n    hint: leave it out"},
      [&] { load_state_dict(mlp, other, {.source = "/a/F", .hint = "leave it out"}); });
  EXPECT_EQ(mlp.parameters()[0].to_vector<float>(), before);

  NamedTensors extra = changed_copy(mlp, same);
  extra.push_back({"x\n", Tensor::zeros({1}, DType::i64)});
  extra[0].tensor = Tensor::zeros({256, 784}, DType::i32);
  expect_error(checkpoint,
      {"0 missing, 1 unexpected, 1 of another shape", "unexpected x\\x0a i64[1]",
          "shape 0.weight: file i32[256, 784], model f32"},
      [&] { load_state_dict(mlp, extra); });

  NamedTensors many = changed_copy(mlp, same);
  for (int i = 0; i < 13; ++i) many.push_back({str("extra", i), Tensor::zeros({1})});
  const std::string text = test::message_of([&] { load_state_dict(mlp, many); });
  test::expect_facts(text, {"unexpected extra9 ", "\n    and 3 more"});
  EXPECT_EQ(text.find("extra10"), std::string::npos) << text;
  // Told without the prefix: one key is missing, not all.
  NamedTensors prefixed =
      changed_copy(mlp, [](const std::string& name) { return "module." + name; });
  prefixed.pop_back();
  expect_error(checkpoint, {"1 missing, 0 unexpected", "missing 4.bias f32[10]"},
      [&] { load_state_dict(mlp, prefixed); });
}

TEST(StateDict, Architecture) {
  EXPECT_EQ(architecture(Mlp({784, 256, 128, 10}).state_dict()), "mlp 784-256-128-10");
  EXPECT_EQ(architecture(Linear(784, 10).state_dict()), "linear 784-10");
  EXPECT_EQ(architecture(Glu(784, 512, 10).state_dict()), "geglu 784-512-10");
  EXPECT_EQ(
      architecture({{"a", Tensor::zeros({2, 3})}, {"b", Tensor::zeros({5, 4})}}), "2 tensors");
  EXPECT_EQ(architecture({}), "0 tensors");
  NamedTensors sorted;  // as in a file: "10.weight" before "2.weight"
  for (const auto& item : Mlp({9, 8, 7, 6, 5, 4, 3}).state_dict()) sorted.push_back(item);
  std::sort(
      sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  EXPECT_EQ(architecture(sorted), "mlp 9-8-7-6-5-4-3");
}

TEST(StateDict, CopyValuesTakesAnyStrides) {
  const Tensor to = Tensor::zeros({2, 3}, DType::f64);
  copy_values(to, transpose(Tensor::from({1, 2, 3, 4, 5, 6}, {3, 2})), "test");
  EXPECT_EQ(to.to_vector<float>(), (std::vector<float>{1, 3, 5, 2, 4, 6}));
  expect_error(shape, {"test: ", "f64[2, 3]", "f32[3]"},
      [&] { copy_values(to, Tensor::zeros({3}), "test"); });
}

// safetensors.torch.save_model() writes a tied weight under one of its names; a plain state dict
// has it under all.
TEST(StateDict, OfTiedWeightsOneNameIsEnough) {
  const auto encoder = std::make_shared<Linear>(4, 4);
  Sequential net;
  net.append(encoder);
  net.append(encoder);
  const NamedTensors all = net.state_dict(), values = changed_copy(net, same);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(load_state_dict(net, {values[2], values[1]}), "same keys");
  EXPECT_EQ(encoder->weight().to_vector<float>(), values[2].tensor.to_vector<float>());
  EXPECT_EQ(encoder->bias().to_vector<float>(), values[1].tensor.to_vector<float>());
  EXPECT_EQ(load_state_dict(net, {all[0], all[1], all[2], all[3]}), "same keys");
  expect_error(checkpoint, {"2 missing", "missing 0.bias", "missing 1.bias"},
      [&] { load_state_dict(net, {values[0]}); });
}

// With load_state_dict(strict=True) there; here with every name, and with one of each tensor.
TEST(StateDict, TiedWeightsGoToTorchAndBackStrictly) {
  const auto layer = std::make_shared<Linear>(4, 4);
  Sequential net;
  net.append(layer);
  net.append(layer);
  const test::TempDir folder;
  write_safetensors(folder.file("tied.safetensors"), net.state_dict());
  const int status = test::run_python("nn/torch_tied.py", folder.path());
  if (status == 77) GTEST_SKIP() << test::kNoTorch;
  ASSERT_EQ(status, 0);
  std::vector<float> doubled = layer->weight().to_vector<float>();
  for (float& w : doubled) w *= 2;
  for (const char* file : {"all.safetensors", "one.safetensors"}) {
    layer->weight().data<float>()[0] = 99;
    EXPECT_EQ(load_state_dict(net, read_safetensors(folder.file(file)).tensors), "same keys");
    EXPECT_EQ(layer->weight().to_vector<float>(), doubled) << file;
  }
}

TEST(StateDict, BuffersAreLoadedInPlaceAndBelongToTheKeys) {
  Sequential net{BatchNorm2d(3), Flatten()};
  NamedTensors from = changed_copy(net, same);
  from[4].tensor = Tensor::from(std::vector<int64_t>{int64_t{1} << 40}, Shape{});
  const NamedTensors to = net.state_dict();
  const uint64_t version = to[4].tensor.storage()->version();
  EXPECT_EQ(load_state_dict(net, from), "same keys");
  expect_loaded(net, from);
  EXPECT_EQ(to[4].tensor.item(), 0x1p40);
  EXPECT_GT(to[4].tensor.storage()->version(), version);
  from.pop_back();
  expect_error(checkpoint, {"1 missing", "missing 0.num_batches_tracked i64[]"},
      [&] { load_state_dict(net, from); });
}

// One step of training and one evaluation in PyTorch, from our state dict and with all its keys,
// against ours. Sums of 20 and 40 terms of about 1 in another order: 40 2^-24 each way, and rstd
// is at most 2.
TEST(StateDict, BatchNormAndPoolingAgreeWithTorchStrictly) {
  Sequential net{BatchNorm2d(2), MaxPool2d(3, 2, 1), AvgPool2d(2), Flatten()};
  const Tensor weight = Tensor::from({1.5, -0.5}, {2}), bias = Tensor::from({0.25, 1}, {2});
  copy_values(net.parameters()[0], weight, "test");
  copy_values(net.parameters()[1], bias, "test");
  Tensor x = cast(sample_tensor({4, 2, 9, 8}, 1), DType::f32);
  const Tensor dy = cast(sample_tensor({4, 2 * 2 * 2}, 2), DType::f32);
  const test::TempDir folder;
  NamedTensors given = net.state_dict();
  given.push_back({"x", x});
  given.push_back({"dy", dy});
  write_safetensors(folder.file("net.safetensors"), given);
  const int status = test::run_python("nn/torch_batch_norm.py", folder.path());
  if (status == 77) GTEST_SKIP() << test::kNoTorch;
  ASSERT_EQ(status, 0);

  x.set_requires_grad(true);
  const Tensor trained = net(x);
  backward(trained, {.gradient = dy});
  net.eval();
  NamedTensors ours = net.state_dict();
  ours.push_back({"trained", trained});
  ours.push_back({"evaluated", net(x)});
  ours.push_back({"dx", x.grad()});
  for (const auto& [name, p] : net.named_parameters()) ours.push_back({"grad." + name, p.grad()});
  clear_tape();
  const NamedTensors theirs = read_safetensors(folder.file("torch.safetensors")).tensors;
  EXPECT_EQ(theirs.size(), ours.size());
  for (const auto& [name, tensor] : ours) {
    const Tensor* found = find(theirs, name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->dtype(), tensor.dtype()) << name;
    EXPECT_TRUE(test::close(tensor, *found, {.absolute = 2e-5})) << name;
  }
}

}  // namespace
}  // namespace sinter::nn
