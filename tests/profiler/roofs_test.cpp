// Roofs in their file: what is kept, what is refused, and who reads it.
#include "profiler/roofs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "tests/profiler/scopes.h"
#include "tests/test_util.h"

namespace sinter::profiler {
namespace {

class StoredRoofs : public testing::Test {
 protected:
  static Roofs roofs() {
    return {.key = roofs_key(kCpu),
        .f32_gflops = 95,
        .cache_gbs = 21,
        .dram_gbs = 10,
        .cache_bytes = 16'000'000,
        .op_ns = 650,
        .spread = 0.04,
        .others_cores = 0.02};
  }
  const test::TempDir folder_;
  const test::ScopedEnv cache_{"XDG_CACHE_HOME", folder_.path().c_str()};
};

TEST_F(StoredRoofs, CarryTheirSpreadAndConditions) {
  EXPECT_FALSE(stored_roofs(kCpu));
  const std::string file = roofs_file(kCpu);
  EXPECT_TRUE(file.starts_with(folder_.path() + "/sinter/roofs-")) << file;
  save_roofs(roofs(), file);
  const std::optional<Roofs> read = stored_roofs(kCpu);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->f32_gflops, 95);
  EXPECT_EQ(read->spread, 0.04);
  EXPECT_EQ(read->others_cores, 0.02);
  Roofs other = roofs();
  other.key += " of another machine";
  save_roofs(other, file);
  EXPECT_FALSE(stored_roofs(kCpu));
  for (const std::string_view bad :
      {"\ncache_bytes 1\nf32_gflops 95\n", "", R"({"key": "a)", "[]", "{}"}) {
    folder_.write("sinter/" + std::filesystem::path(file).filename().string(), bad);
    EXPECT_FALSE(stored_roofs(kCpu)) << "an earlier build's, or cut off";
  }
  EXPECT_FALSE(stored_roofs({Device::Type::simt, 0}));
}

TEST_F(StoredRoofs, MeasuredUnderLoadAreRefusedAndGiveNoVerdict) {
  Roofs loaded = roofs();
  loaded.loaded = true;
  loaded.others_cores = 1.3;
  test::expect_error(Error::Kind::untrusted,
      {"roofs: measured while other programs kept 1.3 cores busy: not kept"},
      [&] { save_roofs(loaded, roofs_file(kCpu)); });
  EXPECT_FALSE(stored_roofs(kCpu));
  Report report;
  report.roofs = loaded;
  EXPECT_EQ(report.busy(),
      "machine busy: no verdict; other programs kept 1.3 cores busy while the roofs were "
      "measured.");
  EXPECT_EQ(report.verdict().evidence, report.busy());
}

// Not only `mnist`: a program of one's own that opens a session.
TEST_F(StoredRoofs, AreTakenByEverySession) {
  const auto table = [](Options options) {
    options.schedule = {.wait = 0, .warmup = 0, .active = 1};
    Session session(std::move(options));
    for (; !session.done(); session.step()) Scope scope("work");
    return session.finish().table();
  };
  test::expect_facts(table({}), {"roofs: not measured"});
  save_roofs(roofs(), roofs_file(kCpu));
  test::expect_facts(
      table({}), {"roofs: GEMM 95 GFLOP/s, copy 10 GB/s (working set unknown: DRAM)\n"});
  FakeClock clock;
  test::expect_facts(table({.clock = &clock}), {"roofs: not measured"});
}

}  // namespace
}  // namespace sinter::profiler
