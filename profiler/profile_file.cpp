// A profile as a file of JSON, written and read.
#include <cmath>

#include "core/json.h"
#include "core/numbers.h"
#include "profiler/profile.h"
#include "profiler/stats.h"

namespace sinter::profiler {

std::string to_json(const Profile& profile) { return json_text(profile, 1) + "\n"; }

Profile read_profile(const std::string& text, const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Error::Kind::data,
        str("profile: not a profile: ", escaped(file), "; ", escaped(why)),
        "a profile is the .json file that a profiled run wrote");
  };
  double sum = 0;  // of all numbers: where it fits an int64_t, so does the sum of some
  const auto add = [&sum](int, Json::parse_event_t what, const Json& value) {
    if (what == Json::parse_event_t::value && value.is_number())
      sum += std::abs(value.get<double>());
    return true;
  };
  Json json = Json::parse(text, add, false);
  const Json schema = Json(Profile{})["schema"];
  if (!json.is_object() || !json.contains("schema")) refuse("no JSON object with a schema");
  if (json["schema"] != schema)
    refuse(str("its schema is ", json_text(json["schema"]), ", wanted ", json_text(schema)));
  // A verdict that is no more: what is faster than its roof is bound by it.
  if (json.contains("rows") && json["rows"].is_array()) {
    for (Json& row : json["rows"]) {
      if (row.is_object() && row.contains("verdict") && row["verdict"] == "ROOF?")
        row["verdict"] = "";
    }
  }
  Profile profile;
  try {
    read_json(json, profile, "profile");
  } catch (const Error& e) {
    refuse(e.message());
  }
  if (profile.steps.empty()) refuse("it has no steps");
  constexpr double kMost = 9e18;
  if (!(sum <= kMost)) refuse(str("its numbers add up to ", sum, ", wanted ", kMost, " at most"));
  for (Row& row : profile.rows) {
    if (!row.samples.empty() && row.samples.size() != profile.steps.size())
      refuse(str("row ", row.name, " has ", row.samples.size(), " samples of ",
          profile.steps.size(), " steps"));
    row.typical_ns = typical(row.samples);
  }
  return profile;
}

}  // namespace sinter::profiler
