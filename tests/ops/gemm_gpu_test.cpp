// The own kernels of the products on a card, where cuBLASLt would be chosen by default: all ops'
// samples, sizes around the tiles, operands of all strides.
#include "core/device/launch_log.h"
#include "ops/product/gemm_library.h"
#include "tests/gpu_test.h"
#include "tests/ops/device_samples.h"
#include "tests/ops/gemm_check.h"

namespace sinter {
namespace {

using gemm_check::expect_product, gemm_check::Layout, gemm_check::layouts, gemm_check::matrix_of,
    test::kCuda;

class OwnGemmGpu : public test::GpuTest {
 protected:
  OwnGemmGpu() { set_choice_rule(ChoiceRule::own); }
  ~OwnGemmGpu() override {
    set_allow_tf32(false);
    set_choice_rule(ChoiceRule::model);
  }
};

template <class T> void check_products() {
  const auto check = [](const Tensor& a, const Tensor& b, bool ta, bool tb) {
    const LaunchLog log;
    const Tensor c = matmul(there(a, kCuda), there(b, kCuda), ta, tb).to(gemm_check::kSimt);
    EXPECT_EQ(test::library_launches(log), 0);
    expect_product(c, a, b, ta, tb);
  };
  const int64_t sizes[][3] = {{1, 1, 1}, {64, 64, 64}, {63, 65, 17}, {65, 63, 33}, {17, 77, 333},
      {130, 8, 97}, {2, 129, 16}, {300, 200, 128}, {10, 24, 3000}};
  for (const auto& [m, n, k] : sizes) {
    for (const Layout& of_a : layouts(m, k)) {
      for (const Layout& of_b : layouts(k, n)) {
        SCOPED_TRACE(
            str("m ", m, ", n ", n, ", k ", k, ", a in ", of_a.what, ", b in ", of_b.what));
        check(matrix_of<T>(m, k, of_a, 1), matrix_of<T>(k, n, of_b, 2), false, false);
      }
    }
    SCOPED_TRACE(str("transposed, m ", m, ", n ", n, ", k ", k));
    check(gemm_check::matrix<T>(k, m, 1), gemm_check::matrix<T>(n, k, 2), true, true);
  }
}
TEST_F(OwnGemmGpu, SizesAndStridesInF32) { check_products<float>(); }
TEST_F(OwnGemmGpu, SizesAndStridesInF64) { check_products<double>(); }
TEST_F(OwnGemmGpu, SizesAndStridesInBf16) { check_products<bf16>(); }
TEST_F(OwnGemmGpu, SizesAndStridesInTf32) {  // of numbers that TF32 holds exactly
  set_allow_tf32(true);
  check_products<float>();
}
// TF32 rounds operands by an addition to their bits, which must leave these what they are.
TEST_F(OwnGemmGpu, InfAndNanInTf32) {
  set_allow_tf32(true);
  gemm_check::expect_infinite_rows(kCuda);
}

}  // namespace
}  // namespace sinter
