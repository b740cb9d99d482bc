// Attributes of ops: one list of fields gives comparison, text and parsing (ops/attrs.h).
#include "ops/attrs.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"

namespace sinter {
namespace {

struct ListedFields {
  int64_t count = 3;
  double scale = 0.5;
  bool flag = false;
  SINTER_FIELDS(ListedFields, count, scale, flag)
};
struct NoListOfFields {
  int64_t count = 3;
};
// Its ==, and its list, would not see `more`.
struct InheritedFields : ListedFields {
  bool more = false;
};
struct OtherFields {
  SINTER_FIELDS(OtherFields)
};

static_assert(AttrStruct<ListedFields> && AttrStruct<OtherFields>);
static_assert(!AttrStruct<NoListOfFields>);
static_assert(!AttrStruct<InheritedFields>);
static_assert(!std::convertible_to<NoListOfFields, Attrs>);

TEST(Attrs, PrintsWhatDiffersFromTheDefault) {
  EXPECT_EQ(Attrs().str(), "");
  EXPECT_EQ(Attrs(ListedFields{}).str(), "");
  EXPECT_EQ(Attrs(ListedFields{.count = 4, .flag = true}).str(), "count=4 flag=1");
  EXPECT_EQ(attr_type<ListedFields>()->field_names, "count, scale, flag");
}

TEST(Attrs, ParsesOneFieldAndSaysWhatIsWrong) {
  Attrs attrs = ListedFields{};
  EXPECT_EQ(attrs.parse("scale", "0.25"), 0);
  EXPECT_EQ(attrs.parse("flag", "1"), 0);
  EXPECT_TRUE(attrs == Attrs(ListedFields{.scale = 0.25, .flag = true}));
  EXPECT_EQ(attrs.parse("factor", "1"), 1);
  EXPECT_EQ(attrs.parse("count", "many"), 2);
  EXPECT_EQ(Attrs().parse("count", "1"), 1);
}

TEST(Attrs, DifferByTypeAndByEveryField) {
  EXPECT_FALSE(Attrs(ListedFields{}) == Attrs(OtherFields{}));
  EXPECT_FALSE(Attrs(ListedFields{}) == Attrs());
  EXPECT_FALSE(Attrs(ListedFields{}) == Attrs(ListedFields{.count = 2}));
  EXPECT_FALSE(Attrs(ListedFields{}) == Attrs(ListedFields{.scale = 1}));
  EXPECT_FALSE(Attrs(ListedFields{}) == Attrs(ListedFields{.flag = true}));
}

// The numbers that programs rely on without naming them, those of PyTorch: by value.
TEST(Attrs, DefaultsAreThosePromised) {
  EXPECT_EQ(BatchNormAttrs{}.momentum, 0.1);
  EXPECT_EQ(BatchNormAttrs{}.eps, 1e-5);
  EXPECT_EQ(LayerNormAttrs{}.eps, 1e-5);
  EXPECT_EQ(NllAttrs{}.label_smoothing, 0);
  EXPECT_EQ(DropoutAttrs{}.p, 0.5);
  EXPECT_EQ(pointwise::LeakyRelu{}.slope, 0.01);
  EXPECT_EQ(pointwise::Elu{}.alpha, 1);
  const UpdateAttrs update;
  EXPECT_EQ(update.momentum, 0);
  EXPECT_EQ(update.weight_decay, 0);
  EXPECT_FALSE(update.nesterov || update.decoupled);
  EXPECT_EQ(update.beta1, 0.9);
  EXPECT_EQ(update.beta2, 0.999);
  EXPECT_EQ(update.alpha, 0.99);
  EXPECT_EQ(update.eps, 1e-8);
  // And those of the functions themselves.
  const Tensor x = Tensor::from<double>({1, 3}, {1, 2}), ones = Tensor::ones({2}, DType::f64),
               zeros = Tensor::zeros({2}, DType::f64);
  EXPECT_EQ(layer_norm(x, ones, zeros).to_vector<double>(),
      layer_norm(x, ones, zeros, 1e-5).to_vector<double>());
  EXPECT_EQ(batch_norm2d_eval(x, ones, zeros, zeros, ones).to_vector<double>(),
      batch_norm2d_eval(x, ones, zeros, zeros, ones, 1e-5).to_vector<double>());
  EXPECT_EQ(leaky_relu(neg(x)).to_vector<double>(), leaky_relu(neg(x), 0.01).to_vector<double>());
  EXPECT_EQ(elu(neg(x)).to_vector<double>(), elu(neg(x), 1).to_vector<double>());
}

}  // namespace
}  // namespace sinter
