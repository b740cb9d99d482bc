// A weight's bf16 copy follows it, whoever writes the weight: eager, captured and fused.
#include <gtest/gtest.h>

#include <optional>

#include "nn/glu.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "nn/state_dict.h"
#include "tests/capture/step_util.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using capture::Step;

std::vector<float> rounded(const Tensor& weight) {
  const NoGrad no_grad;
  return cast(weight, DType::bf16).to_vector<float>();
}

struct Writer {
  const char* name;
  std::function<void(nn::Module&)> write;
};
const Writer kWriters[] = {
    {"init_parameters", [](nn::Module& net) { net.init_parameters(77); }},
    {"accumulate",
        [](nn::Module& net) {
          const NoGrad no_grad;
          for (const Tensor& p : net.parameters())
            accumulate(p, Tensor::full(p.shape(), 0.25, p.dtype(), p.device()));
        }},
    {"clip_in_place",
        [](nn::Module& net) {
          const NoGrad no_grad;
          for (const Tensor& p : net.parameters()) clip_in_place(p, squared_norm(p), 0.5);
        }},
    {"load_state_dict",
        [](nn::Module& net) {
          nn::NamedTensors values;
          for (const auto& [name, t] : net.state_dict())
            values.push_back({name, cast(sample_tensor(t.shape(), 9), DType::f32)});
          nn::load_state_dict(net, values);
        }},
    {"one half",  // of the storage that two weights of a GLU share
        [](nn::Module& net) {
          const NoGrad no_grad;
          accumulate(net.parameters()[1], Tensor::full(net.parameters()[1].shape(), 0.25,
                                              DType::f32, net.parameters()[1].device()));
        }},
};

struct CopyNet {
  nn::Sequential net{nn::Linear(6, 8), nn::Glu(8, 6, 5), nn::Linear(5, 4)};
  std::optional<nn::Sgd> sgd;
  bool by_hand;  // the update

  explicit CopyNet(Device device, bool by_hand_ = false) : by_hand(by_hand_) {
    net.init_parameters(3);
    net.enable_bf16();
    net.to(device);
    sgd.emplace(net.named_parameters(), nn::SgdOptions{.lr = 0.1});
  }
  Tensors operator()(const Tensors& in) {
    net.zero_grad();
    const Tensor losses = cross_entropy(net(in[0]), in[1]);
    backward(losses);
    if (!by_hand) {
      sgd->step(losses);
      return {losses};
    }
    const NoGrad no_grad;
    for (const Tensor& p : net.parameters()) accumulate(p, scale(p.grad(), -0.1));
    return {losses, net(in[0])};  // by the new weights
  }
};

// A step whose copies were made from the weights as they are now.
Tensors expected(const CopyNet& net, const Tensors& in) {
  CopyNet twin(in[0].device(), net.by_hand);
  const nn::NamedTensors from = net.net.state_dict(), to = twin.net.state_dict();
  for (size_t i = 0; i < to.size(); ++i) nn::copy_values(to[i].tensor, from[i].tensor, "test");
  twin.net.enable_bf16();
  return twin(in);
}

// Fused and eager round at other places: 4 roundings of u = 2^-8 lie before the result.
constexpr test::Within kRounded{.of_largest = 4 * 0x1p-8};

void check_copies_follow(Device device) {
  const Tensors in{
      cast(sample_tensor({7, 6}, 1), DType::f32).to(device), sample_labels(7, 4, 2).to(device)};
  for (const Writer& writer : kWriters) {
    for (const char* rules : {"eager", "none", "all"}) {
      SCOPED_TRACE(str(writer.name, ", rules ", rules));
      const bool eager = rules == std::string("eager");
      CopyNet net(device);
      Step step([&](const Tensors& x) { return net(x); },
          {.rules = capture::RuleSet(eager ? "none" : rules),
              .parameters = nn::parameter_visitor(net.net),
              .measure = false});
      const auto run = [&] { return eager ? net(in) : step(in); };
      for (int call = 0; call < 5; ++call) {
        if (call != 1) writer.write(net.net);  // before a recording, and before replays
        const Tensor wanted = expected(net, in)[0];
        EXPECT_TRUE(test::close(run()[0], wanted, kRounded)) << "call " << call;
        for (const Tensor& p : net.net.parameters()) {
          if (!p.autograd().bf16_copy.defined()) continue;
          EXPECT_EQ(low_precision(p).to_vector<float>(), rounded(p)) << p.autograd().name;
        }
      }
      EXPECT_EQ(step.stats().captures, eager ? 0 : 1);
    }
  }
}

TEST(Bf16Copy, CopiesFollowWhoeverWritesTheWeight) { check_copies_follow(kCpu); }
TEST(Bf16CopySimt, CopiesFollowWhoeverWritesTheWeight) { check_copies_follow(kSimt); }

// An own optimizer, and a second forward pass that sees what it wrote in the same step.
void check_update_by_hand(Device device) {
  for (const char* rules : {"none", "all"}) {
    CopyNet eager(device, true), captured(device, true);
    Step step([&](const Tensors& x) { return captured(x); },
        {.rules = capture::RuleSet(rules),
            .parameters = nn::parameter_visitor(captured.net),
            .measure = false});
    const Tensors in{
        cast(sample_tensor({7, 6}, 1), DType::f32).to(device), sample_labels(7, 4, 2).to(device)};
    for (int call = 0; call < 6; ++call) {
      for (size_t i = 0; i < eager.net.parameters().size(); ++i)
        nn::copy_values(captured.net.parameters()[i], detach(eager.net.parameters()[i]), "test");
      const Tensors wanted = expected(eager, in), got = eager(in), replayed = step(in);
      for (size_t r = 0; r < 2; ++r) {
        EXPECT_EQ(got[r].to_vector<float>(), wanted[r].to_vector<float>()) << r;
        EXPECT_TRUE(test::close(replayed[r], wanted[r], kRounded)) << rules << " " << call;
      }
    }
    EXPECT_EQ(step.stats().replays, 5);
  }
}

TEST(Bf16Copy, AnUpdateByHandIsSeen) { check_update_by_hand(kCpu); }
TEST(Bf16CopySimt, AnUpdateByHandIsSeen) { check_update_by_hand(kSimt); }

// A weight of the closure, which no list of parameters names, and one that lies in a part of a
// storage while its copy has its own.
TEST(Bf16Copy, CopiesOfTheClosureFollow) {
  const Tensor both = cast(sample_tensor({8, 6}, 3), DType::f32), x = Tensor::ones({2, 6});
  const Tensor weight = slice(both, 0, 4, 8);
  weight.autograd().bf16_copy = cast(weight, DType::bf16);
  Step step([&](const Tensors& in) {
    return Tensors{linear_to(cast(in[0], DType::bf16), low_precision(weight), {}, DType::f32)};
  });
  for (int call = 0; call < 4; ++call) {
    accumulate(both, Tensor::full({8, 6}, 0.25));
    const Tensor wanted = linear(x, cast(cast(weight, DType::bf16), DType::f32));
    EXPECT_TRUE(test::close(step({x})[0], wanted, {.of_largest = 1e-6})) << call;
  }
  EXPECT_EQ(step.stats().replays, 3);
}

TEST(Bf16Copy, ACopyThatComesOrIsReplacedIsAGuardMiss) {
  nn::Sequential net{nn::Linear(6, 4)};
  Step step([&](const Tensors& in) { return Tensors{detach(net(in[0]))}; },
      {.parameters = nn::parameter_visitor(net)});
  const Tensor x = cast(sample_tensor({2, 6}, 1), DType::f32);
  for (int call = 0; call < 12; ++call) {
    if (call == 4 || call == 8) net.enable_bf16();
    if (call == 10) net.init_parameters(5);
    EXPECT_EQ(step({x})[0].to_vector<float>(), net(x).to_vector<float>()) << call;
  }
  ASSERT_EQ(step.stats().misses.size(), 2u);
  test::expect_facts(step.stats().misses[0], {"bf16 copy"});
}

// What backward() would read is no longer what forward read, as with a weight in f32.
TEST(Bf16Copy, ARenewalBetweenForwardAndBackwardIsRefused) {
  nn::Linear layer(4, 3);
  layer.enable_bf16();
  Tensor x = Tensor::ones({2, 4}).set_requires_grad(true);
  const Tensor y = layer(x);
  {
    const NoGrad no_grad;
    accumulate(layer.weight(), Tensor::ones({3, 4}));
    layer(x);
  }
  test::expect_error(
      Error::Kind::state, {"renew_copy changed it in place"}, [&] { backward(sum(y)); });
}

TEST(Bf16Copy, TheCopyOfAnInputIsRefused) {
  const Tensor weight = Tensor::ones({3, 4});
  weight.autograd().bf16_copy = cast(weight, DType::bf16);
  Step step([](const Tensors& in) { return Tensors{copy(low_precision(in[0]))}; });
  test::expect_error(
      Error::Kind::state, {"bf16 copy", "f32[3, 4]", "hint"}, [&] { step({weight}); });
}

}  // namespace
}  // namespace sinter
