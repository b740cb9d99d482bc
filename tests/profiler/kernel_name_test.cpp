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

// All that `--columns footprint` printed of nets of every kind on the emulator; nothing of it is
// unknown, and a word of a name alone is known as well.
TEST(KernelNames, OursAreReadWhole) {
  for (const char* name : {"row_chain_ffma_16<16, true, 1>", "row_chain_mma_16<bf16, 16, true, 2>",
           "pointwise_vec<Backward<pointwise::GeluTanh, float>, 4, float, float, float>",
           "pointwise_vec<Convert<bf16, float>, 4, bf16, float>",
           "multi_tensor_update<optim::Adam, float, 48>", "gather_batch_rows<false, bf16, 4>",
           "matmul_mma_128x128<bf16, Layout::along_k, Layout::along_k, StoreSums<bf16, bf16> >",
           "weight_grad_update_ffma_16x64<float, optim::Adam, Layout::ragged_outer, "
           "Layout::along_outer>",
           "matmul_ffma_16x64<float, Layout::either, Layout::either, StoreSums<float, float> >",
           "gated_linear_ffma_16x64<float, Layout::along_k, Layout::ragged_k, GateOfSums<float, "
           "true> >",
           "product_chain_ffma_16x64<float, Layout::either, Layout::either, ChainEnd<float, float, "
           "-1> >",
           "conv2d_ffma_16x64<float, WindowSide<float, WindowKind<false, true, false>, "
           "Pixels<float> >, StoreImages<float> >",
           "conv_act_backward_ffma_16x64<float, ProductOfLaunch<Product<float, WindowSide<float, "
           "WindowKind<false, true, false>, Pixels<float> >, WindowSide<float, WindowKind<false, "
           "true, false>, PixelsOfDz<float> > >, StoreGrads<float>, float>, "
           "ProductOfLaunch<Product<float, WindowSide<float, WindowKind<true, false, false>, "
           "PixelsOfDz<float> >, RunSide<float> >, StoreGradImages<float>, float> >",
           "conv_act_pool_ffma_16x64<float, WindowSide<float, WindowKind<false, false, true>, "
           "Pixels<float> >, PoolOfImages<float> >",
           "max_pool2d_windows<float>", "max_pool2d_spread<float>",
           "reduce_rows<SumOf, float, "
           "float, 1>",
           "reduce_columns<SumOf, ElementTerms<bf16>, float>", "rows_by_block<Nll<float> >",
           "rows_by_warp<SoftmaxRows<LogSoftmaxBackward, float>, 1>",
           "rows_by_warp<XentRows<float, float>, 1>", "Layout", "along_k", "rows_by_warp"}) {
    const std::optional<KernelName> read = read_kernel_name(name);
    ASSERT_TRUE(read) << name;
    EXPECT_EQ(read->maker, "Sinter") << name;
    EXPECT_TRUE(read->whole()) << name << "\n" << read->text();
  }
}

// Any text ends: each step takes at least a character.
TEST(KernelNames, AnyTextIsReadOrNot) {
  for (const char* begin :
      {"ampere_", "at::", "cutlass::Kernel2<", "nvjet_", "triton_", "Memcpy"}) {
    for (int c = 1; c < 256; ++c) {
      const std::string name = str(begin, std::string(3, char(c)), "(", char(c), ")");
      const auto read = read_kernel_name(name);
      EXPECT_TRUE(!read || !read->parts.empty()) << name;
    }
  }
}

}  // namespace
}  // namespace sinter::profiler
