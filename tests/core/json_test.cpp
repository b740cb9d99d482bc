// What a struct's list of fields gives: keys, JSON out, JSON in, and words for what is wrong.
#include "core/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

enum class Mood : uint8_t { calm, busy };
constexpr std::string_view kMoods[] = {"calm", "busy"};
constexpr const auto& names_of(Mood) { return kMoods; }

struct Inner {
  int64_t number = 0, begin = 0, end = 0;
  SINTER_FIELD_LIST(
      number, named("ns", through([&] { return end - begin; }, [&](auto ns) { end = begin + ns; })))
};
struct Outer {
  std::string name = "a";
  bool on = false;
  int small = 3;
  double share = 0.5;
  Mood mood = Mood::busy;
  Device device{};
  Inner inner{};
  std::vector<Inner> rows{};
  std::optional<double> roof{};
  std::set<std::pair<std::string, int>> kept{};
  double added = 7;
  int64_t size() const { return int64_t(rows.size()); }
  SINTER_FIELD_LIST(name, on, small, share, mood, device, inner.number, rows, named("top", roof),
      kept, newer(added), written(size()))
};

const Outer kFull{.name = "b\n",
    .on = true,
    .small = -4,
    .mood = Mood::calm,
    .device = {Device::Type::cuda, 2},
    .inner = {9},
    .rows = {{1, 10, 15}, {2, 0, 3}},
    .roof = 0.25,
    .kept = {{"linear_act", 3}}};
const char* const kText =
    R"({"name":"b\n","on":true,"small":-4,"share":0.5,"mood":"calm","device":"cuda:2","number":9,)"
    R"("rows":[{"number":1,"ns":5},{"number":2,"ns":3}],"top":0.25,"kept":[["linear_act",3]],)"
    R"("added":7.0,"size":2})";

TEST(Fields, HaveTheKeysOfTheirExpressions) {
  constexpr auto& keys = kKeysOf<Outer>;
  EXPECT_EQ(
      join(keys), "name, on, small, share, mood, device, number, rows, top, kept, added, size");
  EXPECT_EQ(join(kKeysOf<Inner>), "number, ns");
}

TEST(Json, OfAStructIsItsFields) {
  EXPECT_EQ(json_text(kFull), kText);
  EXPECT_EQ(json_text(Outer{}).substr(0, 30), R"({"name":"a","on":false,"small")");
  EXPECT_EQ(json_text({{"none", std::optional<int>()}, {"nan", NAN}, {"odd", "\xff"}}),
      "{\"none\":null,\"nan\":null,\"odd\":\"\xef\xbf\xbd\"}");
}

TEST(Json, IsReadBack) {
  Outer read{.rows = {{5, 5, 5}}, .kept = {{"old", 1}}};
  read_json(Json::parse(kText), read, "file");
  EXPECT_EQ(json_text(read), kText);
  EXPECT_EQ(read.rows[0].end, 5);
  Json older = Json::parse(kText);
  older.erase("added");
  older.erase("size");
  read = {};
  read_json(older, read, "file");
  EXPECT_EQ(read.added, 7);
}

TEST(Json, SaysWhereAndWhatIsWrong) {
  const auto message = [](const std::function<void(Json&)>& damage) {
    Json json = Json::parse(kText);
    damage(json);
    Outer read;
    return test::message_of([&] { read_json(json, read, "file"); });
  };
  EXPECT_EQ(message([](Json& j) { j["rows"][1]["number"] = "two"; }),
      "file.rows[1].number is \"two\", wanted an integer of 64 bits");
  EXPECT_EQ(message([](Json& j) { j["rows"][1]["ns"] = 1.5; }),
      "file.rows[1].ns is 1.5, wanted an integer of 64 bits");
  EXPECT_EQ(message([](Json& j) { j["rows"][1].erase("ns"); }), "file.rows[1].ns is missing");
  EXPECT_EQ(message([](Json& j) { j["rows"] = Json::object(); }),
      "file.rows is an object, wanted an array");
  EXPECT_EQ(message([](Json& j) { j["small"] = int64_t{1} << 40; }),
      "file.small is 1099511627776, wanted an integer of 32 bits");
  EXPECT_EQ(message([](Json& j) { j["on"] = 1; }), "file.on is 1, wanted true or false");
  EXPECT_EQ(message([](Json& j) { j["name"] = nullptr; }), "file.name is null, wanted text");
  EXPECT_EQ(message([](Json& j) { j["mood"] = "sad"; }),
      "file.mood is \"sad\", wanted one of calm, busy");
  EXPECT_EQ(message([](Json& j) { j["device"] = "tpu"; }),
      "file.device is \"tpu\", wanted cpu, simt or cuda:N");
  EXPECT_EQ(message([](Json& j) { j["kept"][0] = {"a"}; }),
      "file.kept[0] is an array, wanted an array of 2");
  EXPECT_EQ(message([](Json& j) { j = Json::parse("{", nullptr, false); }),
      "file is no JSON, wanted an object");
}

}  // namespace
}  // namespace sinter
