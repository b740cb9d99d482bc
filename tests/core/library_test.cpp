// Shared libraries that are loaded by name: what is there, and how it is said what is not.
#include "core/device/library.h"

#include <gtest/gtest.h>

namespace sinter {
namespace {

TEST(Library, FindsTheFirstThatIsThere) {
  int (*absolute)(int) = nullptr;
  Library library({"libnothing.so.1", "libc.so.6"});
  library.find("abs", absolute);
  EXPECT_EQ(library.why(), "");
  ASSERT_NE(absolute, nullptr);
  EXPECT_EQ(absolute(-3), 3);
}

TEST(Library, SaysWhichLibraryWhichPathAndWhichSymbol) {
  Library none({"libnothing.so.1", "libnothing.so"}, "/nowhere");
  EXPECT_EQ(none.find("nothing"), nullptr);
  EXPECT_EQ(
      none.why(), "libnothing.so.1: cannot open shared object file: No such file or directory");
  Library c({"libc.so.6"});
  EXPECT_EQ(c.find("nothing"), nullptr);
  EXPECT_EQ(c.find("nobody"), nullptr);
  EXPECT_NE(c.find("abs"), nullptr);
  EXPECT_EQ(c.why().front(), '/');
  EXPECT_TRUE(c.why().ends_with("/libc.so.6 has no nothing")) << c.why();
}

}  // namespace
}  // namespace sinter
