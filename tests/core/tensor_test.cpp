#include "core/tensor.h"

#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <limits>

#include "core/allocator.h"
#include "core/context.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using test::message_of;

TEST(DTypes, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(float(bf16(1.0f)), 1.0f);
  EXPECT_EQ(float(bf16(1.00390625f)), 1.0f) << "half way, to even";
  EXPECT_EQ(float(bf16(1.01171875f)), 1.015625f) << "half way, to even";
  EXPECT_TRUE(std::isnan(float(bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(
      float(bf16(std::numeric_limits<float>::infinity())), std::numeric_limits<float>::infinity());
  EXPECT_EQ(float(bf16(-0.0f)), 0.0f);
}

TEST(Shapes, BroadcastByNumPysRule) {
  EXPECT_EQ(broadcast_shapes("add", {3, 1}, {4}), (Shape{3, 4}));
  EXPECT_EQ(broadcast_shapes("add", {}, {2, 5}), (Shape{2, 5}));
  EXPECT_EQ(broadcast_shapes("add", {0, 3}, {1, 3}), (Shape{0, 3}));
  test::expect_facts(message_of([] {
    broadcast_shapes("add", {2, 3}, {4, 3});
  }),
      {"add: shapes do not broadcast: [2, 3] and [4, 3]; at dim 0 2 and 4"});
}

TEST(Shapes, RefuseWhatCannotBe) {
  test::expect_facts(message_of([] { Tensor::empty({-1, 2}); }), {"negative size"});
  test::expect_facts(message_of([] {
    Tensor::empty({int64_t{1} << 40, int64_t{1} << 40});
  }),
      {"too many elements"});
  test::expect_facts(message_of([] { normalize_dim("sum", 2, 2); }), {"allowed -2..1"});
}

TEST(Shapes, AnIndexThatIsNotThereIsAnError) {
  const Tensor t = Tensor::zeros({2, 3, 4});
  Shape shape = t.shape();
  EXPECT_EQ(t.size(-1), 4);
  EXPECT_EQ(t.size(-3), 2);
  for (const int i : {-1000, -4, 3, 1000, INT_MIN, INT_MAX}) {
    const std::vector<std::string> facts{str("no such dim: ", i, " of [2, 3, 4]"), "allowed -3..2"};
    test::expect_error(Error::Kind::shape, facts, [&] { (void)t.size(i); });
    test::expect_error(Error::Kind::shape, facts, [&] { (void)t.shape()[i]; });
    test::expect_error(Error::Kind::shape, facts, [&] { shape[i] = 1; });
    test::expect_error(Error::Kind::shape, {str("no such dim: ", i, " of [12, 4, 1]")},
        [&] { (void)t.strides()[i]; });
    test::expect_error(Error::Kind::shape, {str("no such dim: ", i, " of []; it has none")},
        [&] { (void)Tensor::zeros({}).size(i); });
  }
  EXPECT_EQ(shape, t.shape());
}

TEST(Tensors, CopiesAreHandles) {
  Tensor a = Tensor::zeros({2, 2});
  const Tensor b = a;
  a.data<float>()[0] = 7;
  EXPECT_EQ(b.to_vector<float>()[0], 7);
  EXPECT_TRUE(a.is_same(b));
}

TEST(Tensors, ViewsReadInTheirOwnOrder) {
  const Tensor a = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor t = Tensor::view_of(a.storage(), DType::f32, {3, 2}, {1, 3}, 0);
  EXPECT_FALSE(t.is_contiguous());
  EXPECT_EQ(t.to_vector<int64_t>(), (std::vector<int64_t>{1, 4, 2, 5, 3, 6}));
  test::expect_facts(message_of([&] {
    Tensor::view_of(a.storage(), DType::f32, {3, 3}, {3, 1}, 0);
  }),
      {"internal"});
}

TEST(Tensors, AnEmptyViewBeginsWithItsStorage) {
  const Tensor empty = Tensor::empty({0, 4});
  EXPECT_EQ(Tensor::view_of(empty.storage(), DType::f32, {3, 0}, {4, 1}, 7).raw(), empty.raw());
}

TEST(Tensors, HostReadsCanBeForbidden) {
  const Tensor one = Tensor::ones({1});
  EXPECT_EQ(one.item(), 1);
  Context::current().host_reads_forbidden = "a test";
  const std::string message = message_of([&] { one.item(); });
  Context::current().host_reads_forbidden = nullptr;
  test::expect_facts(message, {"read on the host inside a test: f32[1] cpu"});
  test::expect_facts(message_of([] { Tensor::ones({2}).item(); }), {"f32[2] cpu; it has 2"});
}

TEST(Tensors, PrintReadably) {
  EXPECT_EQ(Tensor::from({1, -2, 30, 4}, {2, 2}).values(), "[[ 1, -2],\n [30,  4]]");
  EXPECT_EQ(Tensor::from({0.5f, 0.25f}, {2}).values(2), "[0.50, 0.25]");
  EXPECT_EQ(Tensor::full({9}, 1).values(), "[1, 1, 1, .., 1, 1, 1]");
  EXPECT_EQ(Tensor::empty({0, 3}).values(), "[]");
  EXPECT_EQ(Tensor::full({}, 2.5).values(1), "2.5");
  EXPECT_EQ(
      Tensor::from({NAN, -NAN, INFINITY, -INFINITY}, {4}).values(1), "[ nan,  nan,  inf, -inf]");
}

TEST(Allocators, ReuseBlocksAndCount) {
  Allocator& memory = allocator(kCpu);
  memory.trim();
  const MemoryStats before = memory.stats();
  const int64_t bytes = kCacheHostMemory ? 4096 : 4000;  // a size class, or what was asked for
  {
    const Tensor t = Tensor::empty({1000});
    EXPECT_EQ(memory.stats().live_bytes - before.live_bytes, bytes);
  }
  EXPECT_EQ(memory.stats().live_bytes, before.live_bytes);
  EXPECT_EQ(memory.stats().requests, before.requests + 1);
  {
    const Tensor t = Tensor::empty({1000});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % kAlignment, 0u);
  }
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_EQ(memory.stats().system_allocations, before.system_allocations + 1)
      << "the second tensor takes the first one's block";
#endif
  memory.trim();
  EXPECT_LE(memory.stats().reserved_bytes, before.reserved_bytes);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(                         \
        __SANITIZE_THREAD__)  // which end the program where more is asked for than it can give
  test::expect_facts(
      message_of([] { Tensor::empty({int64_t{1} << 46}); }), {"out of memory asking"});
#endif
}

TEST(Errors, HaveOneForm) {
  Error error(
      Error::Kind::shape, "linear: input features differ", "the previous layer gives 784 features");
  error.set_path("MLP / layers.2");
  error.set_path("outer");
  EXPECT_STREQ(error.what(),
      "linear: input features differ\n    in MLP / layers.2\n    hint: the previous layer gives "
      "784 features");
  EXPECT_EQ(escaped("a\x1b[1m\n"), "a\\x1b[1m\\x0a");
  EXPECT_EQ(edit_distance("hiden", "hidden"), 1);
  EXPECT_EQ(nearest_word("hiden", std::vector<std::string>{"batch", "hidden"}), "hidden");
  EXPECT_EQ(nearest_word("xyz", std::vector<std::string>{"batch", "hidden"}), "");
}

TEST(Errors, NearestWordKnowsBeginningsAndWhatOthersSay) {
  const std::vector<std::string> activations{"relu", "silu", "mish"},
      flags{"--lr", "--hidden", "--dump-graph", "--weight-decay", "-q"}, types{"f32", "bf16"};
  EXPECT_EQ(nearest_word("swish", activations), "silu") << "not mish, which is 2 letters away";
  EXPECT_EQ(nearest_word("--learning-rate", flags), "--lr");
  EXPECT_EQ(nearest_word("--learning_rate", flags), "--lr");
  EXPECT_EQ(nearest_word("--wd", flags), "--weight-decay") << "no letter of --lr is in it";
  EXPECT_EQ(nearest_word("bfloat16", types), "bf16");
  EXPECT_EQ(nearest_word("--dump", flags), "--dump-graph");
  EXPECT_EQ(nearest_word("--max-hidden", flags), "--hidden");
  EXPECT_EQ(nearest_word("--hidden_sizes", flags), "--hidden");
  EXPECT_EQ(nearest_word("--sw", flags), "");
  EXPECT_EQ(nearest_word("swish", flags), "") << "the word that others say is not among these";
}

TEST(TensorSimt, ValuesGoThereAndBack) {
  constexpr Device kSimt{Device::Type::simt, 0};
  const Tensor t = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}, kSimt);
  EXPECT_EQ(t.describe(), "f32[2, 3] simt");
  const Tensor back = t.to(kCpu);
  EXPECT_EQ(back.device(), kCpu);
  EXPECT_EQ(back.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  // by columns, from the second one on: [[2, 5], [3, 6]]
  const Tensor view = Tensor::view_of(t.storage(), DType::f32, {2, 2}, {1, 3}, 1);
  EXPECT_EQ(view.to_vector<double>(), (std::vector<double>{2, 5, 3, 6}));
  for (const Device device : {kCpu, kSimt}) {
    const Tensor dense = view.to(device);
    EXPECT_TRUE(dense.is_contiguous());
    EXPECT_EQ(dense.device(), device);
    EXPECT_EQ(dense.to_vector<double>(), (std::vector<double>{2, 5, 3, 6}));
  }
  EXPECT_EQ(t.values(0), "[[1, 2, 3],\n [4, 5, 6]]");
  EXPECT_EQ(Tensor::view_of(t.storage(), DType::f32, {}, {}, 3).item(), 4);
  EXPECT_EQ(
      Tensor::zeros({3}, DType::i64, kSimt).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(Tensor::full({2}, -1.5, DType::bf16, kSimt).to_vector<float>(),
      (std::vector<float>{-1.5f, -1.5f}));
  EXPECT_EQ(Tensor::zeros({0, 4}, DType::f32, kSimt).to(kCpu).numel(), 0);
  EXPECT_EQ(t.to(kSimt).to_vector<float>(), back.to_vector<float>());
  EXPECT_NE(t.to(kSimt).storage(), t.storage());
}

TEST(TensorSimt, AStorageMovesWithAllOfItsTensors) {
  constexpr Device kSimt{Device::Type::simt, 0};
  const Tensor whole = Tensor::from(std::vector<float>{1, 2, 3, 4}, {4}),
               half = Tensor::view_of(whole.storage(), DType::f32, {2}, {1}, 2);
  const uint64_t uid = whole.storage()->uid();
  whole.storage()->move_to(kSimt);
  EXPECT_EQ(half.device(), kSimt);
  EXPECT_NE(whole.storage()->uid(), uid) << "a capture must see another address";
  EXPECT_EQ(half.to_vector<float>(), (std::vector<float>{3, 4}));
  half.storage()->move_to(kCpu);
  EXPECT_EQ(whole.data<float>()[3], 4);
}

// A mistake of who writes a kernel, not of ours.
TEST(Tensor, AnotherTypeIsTheCallersError) {
  const Tensor t = Tensor::zeros({2}, DType::bf16);
  test::expect_error(Error::Kind::dtype, {"asked for f32, found bf16"}, [&] { t.data<float>(); });
}

TEST(Devices, ParseNamesWhatIsMissing) {
  EXPECT_EQ(Device::parse("cpu"), kCpu);
  EXPECT_EQ(Device::parse("simt").str(), "simt");
  for (const char* bad : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1000", "cuda1", ""})
    EXPECT_NE(message_of([&] { Device::parse(bad); }).find("allowed cpu, cuda, cuda:N, simt"),
        std::string::npos)
        << bad;
  const std::string missing = message_of([] { Device::parse("cuda:99"); });  // nobody has a hundred
  EXPECT_TRUE(missing.starts_with("cuda")) << missing;
  test::expect_facts(missing, {"device cpu"});
}

TEST(Tensors, PrintTheirValuesAndWhatTheyAre) {
  EXPECT_EQ(str(Tensor::from({1, 2, 3, 4}, {2, 2})), "[[1, 2],\n [3, 4]] f32[2, 2] cpu");
  EXPECT_EQ(str(Tensor::full({}, 0.5, DType::f64)), "0.5000 f64[] cpu");
  EXPECT_EQ(str(Tensor::zeros({0, 3})), "[] f32[0, 3] cpu");
  EXPECT_EQ(str(Tensor::meta({2, 3})), "f32[2, 3] cpu");
  EXPECT_EQ(str(Tensor()), "nothing");
}

}  // namespace
}  // namespace sinter
