// Schedules against their formulas, written out once more, at every step.
#include "nn/schedule.h"

#include <cmath>

#include "tests/data/data_test_util.h"

namespace sinter::nn {
namespace {

using Kind = Schedule::Kind;
constexpr double kPi = 3.14159265358979323846;

double after_warmup(Kind kind, double lr, double s, double steps, double w) {
  if (kind == Kind::constant) return lr;
  if (kind == Kind::step)
    return lr * (s < 0.6 * steps - 1e-9 ? 1 : s < 0.8 * steps - 1e-9 ? 0.1 : 0.01);
  if (kind == Kind::linear) return lr * (1 - (s - w) / (steps - w));
  return lr * (1 + std::cos(kPi * (s - w) / (steps - w))) / 2;
}

TEST(Schedule, FollowsItsFormulaAtEveryStep) {
  for (const Kind kind : {Kind::constant, Kind::cosine, Kind::step, Kind::onecycle, Kind::linear}) {
    for (const int64_t steps : {1, 7, 10, 2150}) {
      for (const int64_t w : {int64_t{0}, int64_t{1}, steps / 5, steps}) {
        const double lr = 0.004;
        for (int64_t s = 0; s < steps; ++s) {
          double wanted = after_warmup(kind, lr, double(s), double(steps), double(w));
          if (s < w)
            wanted = kind == Kind::onecycle
                         ? lr * (1 + 12 * (1 - std::cos(kPi * double(s) / double(w)))) / 25
                         : lr * double(s + 1) / double(w);
          ASSERT_NEAR(learning_rate({kind, lr, steps, w}, s), wanted, 1e-15)
              << int(kind) << " s " << s << " of " << steps << " w " << w;
        }
      }
    }
  }
}

TEST(Schedule, Landmarks) {
  const Schedule onecycle{Kind::onecycle, 0.004, 1000, 200};
  EXPECT_DOUBLE_EQ(learning_rate(onecycle, 0), 0.004 / 25);
  EXPECT_DOUBLE_EQ(learning_rate(onecycle, 200), 0.004);
  EXPECT_NEAR(learning_rate(onecycle, 600), 0.002, 1e-15);
  EXPECT_NEAR(learning_rate(onecycle, 1000), 0, 1e-15);
  EXPECT_NEAR(learning_rate(onecycle, 1400), 0, 1e-15);  // stays
  EXPECT_EQ(learning_rate({Kind::linear, 0.01, 1000, 0}, 0), 0.01);
  EXPECT_DOUBLE_EQ(learning_rate({Kind::linear, 0.01, 1000, 0}, 250), 0.0075);
  EXPECT_EQ(learning_rate({Kind::linear, 0.01, 1000, 0}, 1200), 0);
  const Schedule step{Kind::step, 1, 10, 0};
  EXPECT_EQ(learning_rate(step, 5), 1);
  EXPECT_EQ(learning_rate(step, 6), 0.1);
  EXPECT_EQ(learning_rate(step, 8), 0.01);
  EXPECT_EQ(learning_rate({Kind::constant, 0.5, 0, 4}, 0), 0.125);
  EXPECT_EQ(learning_rate({Kind::cosine, 0.5, 4, 4}, 4), 0);  // all of it was warm-up
}

TEST(Schedule, Names) {
  for (size_t i = 0; i < Schedule::kNames.size(); ++i)
    EXPECT_EQ(size_t(parse_schedule(Schedule::kNames[i])), i);
  test::expect_error(
      Error::Kind::usage, {"cosin", "nearest is cosine"}, [] { parse_schedule("cosin"); });
  test::expect_error(Error::Kind::usage,
      {"falling", "allowed constant, cosine, step, onecycle, linear"},
      [] { parse_schedule("falling"); });
}

}  // namespace
}  // namespace sinter::nn
