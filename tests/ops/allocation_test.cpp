// What ops allocate: shape rules make no text unless they refuse, and a kernel that has run once
// asks for no memory.
#include <gtest/gtest.h>

#include "core/parallel.h"
#include "ops/ops.h"
#include "tests/counting_new.h"
#include "tests/ops/samples/samples.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

template <class F> int64_t news_of(F&& f) {
  const int64_t before = test::new_calls;
  f();
  return test::new_calls - before;
}

// A signature asks for the list of results and for each of them, and so does code but for a list
// that grows: there is no room for the text of an error that was not made. Rules of lists, and
// rules that ask another's, make lists of their own.
TEST(OpAllocations, ShapeRulesMakeNoText) {
  if (!test::kCountsNew) GTEST_SKIP() << "the sanitizer has its own operator new";
  Tensor::shape_only({}, DType::f32, kCpu);  // the storage that all of a thread's share
  over_samples(all_ops(), false, [](const OpDef& op, const Sample& sample) {
    if (op.reference || op.in_place()) return;
    size_t results = 1;
    const int64_t news = news_of([&] {
      if (op.view) op.view(sample.in, sample.attrs);
      results = op.results(sample.in, sample.attrs).size();
    });
    const bool code = op.infer || op.check;
    const size_t most = op.view ? 1 : 1 + results + code;
    EXPECT_LE(news, int64_t(most));
  });
}

// What a rule gave becomes the result, unless somebody else has it, or it is not dense.
TEST(OpAllocations, AResultIsTheTensorOfItsShapeRule) {
  Tensor made = Tensor::shape_only({2, 3}, DType::f64, kCpu), shared = made;
  const void* const id = made.id();
  made.allocate(false);
  EXPECT_FALSE(made.is_meta());
  EXPECT_TRUE(shared.is_meta());
  EXPECT_EQ(shared.id(), id);
  EXPECT_EQ(made.describe(), "f64[2, 3] cpu");
  EXPECT_EQ(made.storage()->bytes(), 48u);
  shared.allocate(false);  // by now the only handle
  EXPECT_EQ(shared.id(), id);
  Tensor turned = transpose(Tensor::meta({2, 3}));
  turned.allocate(true);
  EXPECT_TRUE(turned.is_contiguous());
  EXPECT_EQ(turned.storage()->bytes(), 24u);
}

TEST(OpAllocations, KernelsThatHaveRunAskForNoMemory) {
  if (!test::kCountsNew) GTEST_SKIP() << "the sanitizer has its own operator new";
  const test::Scoped threads(num_threads, set_num_threads, 1);
  over_samples(all_ops(), false, [](const OpDef& op, const Sample& sample) {
    if (op.view || !op.cpu) return;
    Tensors out = op.results(sample.in, sample.attrs);
    for (Tensor& t : out) t = Tensor::empty(t.shape(), t.dtype());
    Tensors in;  // as apply() hands them over
    for (size_t i = 0; i < sample.in.size(); ++i) {
      const bool as_it_is =
          !sample.in[i].defined() || op.takes_strides(i, sample.in.size(), sample.attrs);
      in.push_back(as_it_is ? sample.in[i] : contiguous(sample.in[i]));
    }
    const Call call{op, in, out, sample.attrs};
    for (int i = 0; i < 2; ++i) launch_op(call);
    const int64_t requests = allocator(kCpu).stats().requests;
    EXPECT_EQ(news_of([&] { launch_op(call); }), 0);
    EXPECT_EQ(allocator(kCpu).stats().requests, requests);
  });
}

}  // namespace
}  // namespace sinter
