// CRC-32 against its published check value, in one piece and in two.
#include "core/crc32.h"

#include <gtest/gtest.h>

namespace sinter {

TEST(Crc32, CheckValue) {
  EXPECT_EQ(crc32("123456789", 9), 0xCBF43926u);
  EXPECT_EQ(crc32("6789", 4, crc32("12345", 5)), 0xCBF43926u);
  EXPECT_EQ(crc32(nullptr, 0, 7), 7u);
}

}  // namespace sinter
