#include "core/device/compiled_kernels.h"

#include <gtest/gtest.h>

#include "tests/test_util.h"

namespace sinter {
namespace {

// As ptxas -v says it of sinter::on_cuda::sums<float>, of a kernel in an unnamed namespace that is
// no template, and of sums<double>, which has no code for 9.0.
constexpr const char* kLog = R"(
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN6sinter7on_cuda4sumsIfEEvPT_' for 'sm_80'
ptxas info    : Function properties for _ZN6sinter7on_cuda4sumsIfEEvPT_
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 360 bytes cmem[0]
ptxas info    : Compiling entry function '_ZN6sinter7on_cuda4sumsIfEEvPT_' for 'sm_90a'
ptxas info    : Function properties for _ZN6sinter7on_cuda4sumsIfEEvPT_
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 22 registers, used 1 barriers
ptxas info    : Compiling entry function '_ZN6sinter7on_cuda12_GLOBAL__N_14lastEPf' for 'sm_90a'
ptxas info    : Used 16 registers, used 0 barriers, 4000 bytes smem
ptxas info    : Compiling entry function '_ZN6sinter7on_cuda4sumsIdEEvPT_' for 'sm_80'
ptxas info    : Used 40 registers, used 0 barriers
)";

TEST(CompiledKernels, RegistersAreThoseOfTheCard) {
  const test::TempDir folder;
  std::filesystem::create_directories(folder.file("ops/a.cu"));
  folder.write("ops/a.cu/ptxas.log", std::string(kLog));
  folder.write("ops/a.cu/other.log",
      std::string("Compiling entry function '_Z1gv' for 'sm_90a'\nUsed 9 registers\n"));
  using Registers = std::map<std::string, int>;
  EXPECT_EQ(
      compiled_registers(90, folder.file("")), (Registers{{"sums<float>", 22}, {"last", 16}}));
  EXPECT_EQ(compiled_registers(80, folder.file("")),
      (Registers{{"sums<float>", 24}, {"sums<double>", 40}}));
  EXPECT_TRUE(compiled_registers(100, folder.file("")).empty());
  EXPECT_TRUE(compiled_registers(90, folder.file("none")).empty());
}

TEST(CompiledKernels, NamesOfBothCompilersMeet) {
  const char* want = "f<2,4,-1,unsignedchar,long,unsignedlong,G<float>>";
  EXPECT_EQ(kernel_key("f<Layout::either, 4u, -1, unsigned char, long int, long unsigned int, "
                       "a::G<const float>>"),
      want);
  EXPECT_EQ(kernel_key("f<(a::Layout)2, (unsigned int)4, (int)-1, unsigned char, long, unsigned "
                       "long, a::G<float const>>"),
      want);
  EXPECT_EQ(kernel_key_of_symbol(
                "_ZN6sinter7on_cuda14accumulate_vecIfNS_4bf16EEEvlNS0_5InOutIT_EENS0_2InIT0_EE"),
      "accumulate_vec<float,bf16>");
}

TEST(CompiledKernels, ANameThatIsNoneStays) {
  EXPECT_EQ(demangled("_Z1fIfEvPT_"), "void f<float>(float*)");
  EXPECT_EQ(demangled("cublasLt kernel"), "cublasLt kernel");
}

}  // namespace
}  // namespace sinter
