// Which elements the products of convolutions by AMX multiply, on tiles of plain loops: of small
// whole numbers, so that every sum is exact in any order.
#define SINTER_AMX_TILES "tests/ops/amx_by_loops.h"
#define amx amx_by_loops  // beside those of the library, on a machine that has them
#include "ops/image/fast/conv2d_amx.h"
#undef amx

#include <random>

namespace sinter::conv {
namespace {

constexpr int64_t kImage = 16;

struct Numbers {
  std::mt19937 engine{1};
  std::vector<float> of(int64_t count) {
    std::vector<float> list(static_cast<size_t>(count));
    for (float& v : list) v = float(int(engine() % 7) - 3);
    return list;
  }
};

// All kinds of sizes: fewer and more channels than a tile has rows, odd ones, rows of results
// that are no multiple of four, and runs of taps that take several chunks.
template <class F> void for_sizes(const F& f) {
  for (const int64_t o : {1, 16, 17, 40}) {
    for (const int64_t c : {1, 3, 4, 19}) {
      for (const auto& [r, s] : {std::pair{1, 1}, {3, 3}, {2, 5}}) {
        for (const int64_t q : {1, 4, 7}) {
          for (const auto& [stride_h, stride_w] : {std::pair{1, 1}, {3, 1}, {1, 2}}) {
            Correlation g{};
            g.n = kImage;
            g.c = c;
            g.o = o;
            g.r = r;
            g.s = s;
            g.q = q;
            g.stride_h = stride_h;
            g.stride_w = stride_w;
            SCOPED_TRACE(str(o, " from ", c, " channels, ", r, " x ", s, ", ", q,
                " columns, stride ", stride_h, ", ", stride_w));
            f(g, stride_h == 1 ? 1 : 3);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(Conv2dAmx, ResultsAreTheirDefinition) {
  Numbers numbers;
  for_sizes([&](const Correlation& g, int64_t results) {
    const int64_t rows = g.tile_rows(results), columns = g.tile_columns();
    const std::vector<float> x = numbers.of(g.c * rows * columns * kImage),
                             w = numbers.of(g.o * g.taps()), bias = numbers.of(g.o);
    const auto weight = [&](int64_t o, int64_t c, int64_t r, int64_t s) {
      return w[size_t(((o * g.c + c) * g.r + r) * g.s + s)];
    };
    const amx_by_loops::TilesProduct product(g, weight, [&](int64_t o) { return bias[size_t(o)]; });
    ASSERT_GE(product.channels(), g.o);
    std::vector<float> y(size_t(product.channels() * results * g.q * kImage), 1e9f);
    product.multiply(x.data(), 0, results, y.data());
    for (int64_t i = 0; i < g.o * results * g.q * kImage; ++i) {
      const int64_t image = i % kImage, q = i / kImage % g.q, p = i / kImage / g.q % results,
                    o = i / kImage / g.q / results;
      float sum = bias[size_t(o)];
      for (int64_t tap = 0; tap < g.taps(); ++tap) {
        const int64_t c = tap / (g.r * g.s), r = tap / g.s % g.r, s = tap % g.s;
        sum += weight(o, c, r, s) *
               x[size_t(((c * rows + p * g.stride_h + r) * columns + q * g.stride_w + s) * kImage +
                        image)];
      }
      ASSERT_EQ(y[size_t(i)], sum) << "channel " << o << ", row " << p << ", column " << q;
    }
  });
}

TEST(Conv2dAmx, GradientsAreTheirDefinition) {
  Numbers numbers;
  for_sizes([&](const Correlation& g, int64_t results) {
    const int64_t rows = g.tile_rows(results), columns = g.tile_columns();
    const std::vector<float> x = numbers.of(g.c * rows * columns * kImage),
                             dy = numbers.of(g.o * results * g.q * kImage);
    const amx_by_loops::GradientProduct product(g);
    std::vector<float> sums(size_t(product.size()), 5);  // they are added to
    product.multiply(dy.data(), x.data(), results, sums.data());
    for (int64_t i = 0; i < g.o * g.taps(); ++i) {
      const int64_t o = i / g.taps(), c = i % g.taps() / (g.r * g.s), r = i / g.s % g.r,
                    s = i % g.s;
      float sum = 5;
      for (int64_t k = 0; k < results * g.q * kImage; ++k) {
        const int64_t image = k % kImage, q = k / kImage % g.q, p = k / kImage / g.q;
        sum += dy[size_t(o * results * g.q * kImage + k)] *
               x[size_t(((c * rows + p * g.stride_h + r) * columns + q * g.stride_w + s) * kImage +
                        image)];
      }
      ASSERT_LT(product.place_of(i), product.size());
      ASSERT_EQ(sums[size_t(product.place_of(i))], sum) << "weight " << i;
    }
  });
}

}  // namespace
}  // namespace sinter::conv
