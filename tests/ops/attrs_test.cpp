// Attributes of ops: one list of fields gives comparison, text and parsing (ops/attrs.h).
#include "ops/attrs.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sinter
