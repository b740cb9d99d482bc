// 40 kernels' names from public traces, and readings of them that were written down and looked
// through (kernel_names.txt: a name, then its reading, indented). SINTER_REGENERATE=1 writes them
// anew, to be looked through again.
#include "profiler/kernel_name.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "core/numbers.h"
#include "tests/test_util.h"

namespace sinter::profiler {
namespace {

constexpr const char* kFile = SINTER_SOURCE_DIR "/tests/profiler/kernel_names.txt";

TEST(KernelNames, AreReadAsWrittenDown) {
  const std::string file = test::text_of(kFile);
  std::set<std::string> names;
  std::string said;
  int whole = 0;
  for (const std::string& line : test::lines_of(file)) {
    if (line.empty() || line.starts_with(' ')) continue;
    const std::optional<KernelName> read = read_kernel_name(line);
    ASSERT_TRUE(read) << line;
    names.insert(line);
    whole += read->whole();
    said += line + "\n";
    for (const std::string& part : test::lines_of(read->text())) said += "    " + part + "\n";
  }
  if (std::getenv("SINTER_REGENERATE")) std::ofstream(kFile) << said;
  EXPECT_EQ(said, file);
  EXPECT_GE(names.size(), 40);
  EXPECT_GE(whole, 30);
}

TEST(KernelNames, WhatNoRowKnowsIsUnknown) {
  EXPECT_FALSE(read_kernel_name(""));
  EXPECT_FALSE(read_kernel_name("my_kernel"));
  EXPECT_FALSE(read_kernel_name("void mine::sgemm_128x64<float>(float*)"));
  const auto read = read_kernel_name("ampere_sgemm_128x64_swizzled_tn");
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->whole());
  test::expect_facts(read->text(), {"swizzled  unknown\n"});
  EXPECT_EQ(read->parts.back().text, "tn");
}

// std::regex calls itself for each character: a long text must not take the stack.
TEST(KernelNames, ALongTextIsReadOrNot) {
  for (const char* begin :
      {"ampere_", "at::", "cutlass::Kernel2<", "nvjet_", "triton_", "cub::DeviceScan", "a_", ""}) {
    for (const char* part : {"a", "a_", "_", "9x", "::", "<", "\xff", "gemm_"}) {
      for (const size_t size : {400, 600, 19'000, 60'000}) {
        std::string name = begin;
        while (name.size() < size) name += part;
        const auto read = read_kernel_name(name);
        EXPECT_TRUE(!read || size < 60'000) << begin << part;
      }
    }
  }
  // What stands behind a long part is read as ever.
  const auto read = read_kernel_name("ampere_sgemm_" + std::string(5'000, 'q') + "_128x64_tn");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->parts.back().meaning, "A t, B n: n lies by columns, t by rows");
  test::expect_facts(read_kernel_name("at::\x1b[31m")->text(), {"\\x1b[31m"});
}

// Any text ends: each step takes at least a character.
TEST(KernelNames, AnyTextIsReadOrNot) {
  for (const char* begin :
      {"ampere_", "at::", "cutlass::Kernel2<", "nvjet_", "triton_", "Memcpy"}) {
    for (int c = 1; c < 256; ++c) {
      const std::string name = cat(begin, std::string(3, char(c)), "(", char(c), ")");
      const auto read = read_kernel_name(name);
      EXPECT_TRUE(!read || !read->parts.empty()) << name;
    }
  }
}

}  // namespace
}  // namespace sinter::profiler
