// Profile <-> JSON, by the fields that its structs state.
#include "core/json.h"

#include "profiler/profile.h"

namespace sinter::profiler {

std::string to_json(const Profile& profile) { return json_text(profile, 1) + "\n"; }

Profile read_profile(const std::string& text, const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Error::Kind::data,
        cat("profile: not a profile: ", escaped(file), "; ", escaped(why)),
        "a profile is the .json file that a profiled run wrote");
  };
  const Json json = Json::parse(text, nullptr, false), schema = Json(Profile{})["schema"];
  if (!json.is_object() || !json.contains("schema")) refuse("no JSON object with a schema");
  if (json["schema"] != schema)
    refuse(cat("its schema is ", json_text(json["schema"]), ", wanted ", json_text(schema)));
  Profile profile;
  try {
    read_json(json, profile, "profile");
  } catch (const Error& e) {
    refuse(e.message());
  }
  if (profile.steps.empty()) refuse("it has no steps");
  for (Row& row : profile.rows) {
    if (!row.samples.empty() && row.samples.size() != profile.steps.size())
      refuse(cat("row ", row.name, " has ", row.samples.size(), " samples of ",
          profile.steps.size(), " steps"));
    row.typical_ns = typical(row.samples);
  }
  return profile;
}

}  // namespace sinter::profiler
