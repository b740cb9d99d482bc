// Programs that once failed, as they were found.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>

#include "core/parallel.h"
#include "ops/ops.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

TEST(Cases, ForkAfterATeam) {
  const int threads = num_threads();
  set_num_threads(2);
  const Tensor a = Tensor::ones({512, 512});
  relu(a);
  EXPECT_EQ(test::status_of_child([&] {
    alarm(30);  // a child that hangs dies
    // Products go to a library with a team of its own kind.
    return sum(relu(a)).item() == 512 * 512 && matmul(a, a).to_vector<float>()[7] == 512 ? 0 : 1;
  }),
      0);
  EXPECT_EQ(sum(relu(a)).item(), 512 * 512);
  set_num_threads(threads);
}

TEST(Cases, FullAndCastOutOfRange) {
  for (const double value : {300.0, -300.0, 254.9, -0.5, 1e10, -1e10, 1e30, -1e30, double(NAN),
           double(INFINITY), -double(INFINITY), 9223372036854775807.0}) {
    const Tensor wide = Tensor::full({3}, value, DType::f64);
    const auto check = [&]<class T>(T) {
      const std::vector<T> by_cast = cast(wide, dtype_of<T>).template to_vector<T>();
      EXPECT_EQ(Tensor::full({3}, value, dtype_of<T>).template to_vector<T>(), by_cast) << value;
      EXPECT_EQ(wide.to_vector<T>(), by_cast) << value;
    };
    check(uint8_t{});
    check(int32_t{});
    check(int64_t{});
  }
  EXPECT_EQ(Tensor::full({1}, 300, DType::u8).item(), 255);
  EXPECT_EQ(Tensor::full({1}, NAN, DType::i32).item(), 0);
}

TEST(Cases, UndefinedTensor) {
  const Tensor t;
  const auto refuses = [](const std::string& call, const std::function<void()>& f) {
    EXPECT_EQ(test::message_of(f, Error::Kind::state),
        call +
            ": the tensor is undefined\n    hint: Tensor() is no tensor, such as an absent bias; "
            "defined() asks first");
  };
  refuses("shape", [&] { t.shape(); });
  refuses("strides", [&] { t.strides(); });
  refuses("size", [&] { t.size(0); });
  refuses("rank", [&] { t.rank(); });
  refuses("numel", [&] { t.numel(); });
  refuses("dtype", [&] { t.dtype(); });
  refuses("device", [&] { t.device(); });
  refuses("offset", [&] { t.offset(); });
  refuses("is_contiguous", [&] { t.is_contiguous(); });
  refuses("storage", [&] { t.storage(); });
  refuses("data", [&] { t.data<float>(); });
  refuses("raw", [&] { t.raw(); });
  refuses("item", [&] { t.item(); });
  refuses("to_vector", [&] { t.to_vector<float>(); });
  refuses("to_double", [&] { t.to_double(); });
  refuses("values", [&] { t.values(); });
  refuses("to", [&] { t.to(kCpu); });
  refuses("with_layout", [&] { t.with_layout({1}, 0); });
  refuses("autograd", [&] { t.autograd(); });
  refuses("allocate", [&] { Tensor().allocate(false); });
  refuses("set_requires_grad", [&] { Tensor().set_requires_grad(true); });
  refuses("set_requires_grad", [&] { Tensor().set_requires_grad(false); });
  // These have an answer.
  EXPECT_FALSE(t.defined() || t.is_meta() || t.is_sole_owner() || t.has_autograd());
  EXPECT_FALSE(t.requires_grad() || t.grad().defined());
  EXPECT_TRUE(t.is_same(Tensor()) && t.id() == nullptr);
  EXPECT_EQ(t.describe(), "nothing");
  EXPECT_EQ(str(t), "nothing");
}

}  // namespace
}  // namespace sinter
