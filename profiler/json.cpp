// Profile <-> JSON. One list of fields for each struct serves all of them, to write and to
// read: fields(visit, value) calls visit with the list.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <variant>

#include "core/error.h"
#include "core/numbers.h"
#include "profiler/profile.h"

namespace sinter::profiler {
namespace {

using ProfileJson = nlohmann::ordered_json;
constexpr const char* kSchema = "sinter.profile/1";

struct JsonField {
  const char* key;
  std::variant<std::string*, bool*, int*, int64_t*, double*, Device*, ScopeKind*, Role*, Source*,
      LaunchKind*, RowCode*, StepCode*, StepVerdict*, std::optional<int64_t>*,
      std::optional<double>*, std::optional<Ceiling>*, std::optional<Timeline>*,
      std::vector<int64_t>*, std::vector<double>*, std::vector<std::string>*,
      std::vector<StepSample>*, std::vector<Row>*, std::vector<KernelSum>*>
      value;
};
using VisitFields = std::function<void(std::initializer_list<JsonField>)>;

void fields(const VisitFields& visit, Row& r) {
  std::optional<int64_t> device_ns;
  if (r.on_device) device_ns = r.device_ns;
  bool in_table = r.in_table();
  visit({{"name", &r.name}, {"shapes", &r.shapes}, {"kind", &r.kind}, {"role", &r.role},
      {"made_of", &r.made_of}, {"verdict", &r.verdict.code}, {"evidence", &r.verdict.evidence},
      {"calls", &r.calls}, {"launches", &r.launches}, {"unproved", &r.unproved},
      {"flops", &r.cost.flops}, {"bytes_read", &r.cost.bytes_read},
      {"bytes_written", &r.cost.bytes_written}, {"self_ns", &r.self_ns}, {"total_ns", &r.total_ns},
      {"kernel_ns", &r.kernel_ns}, {"device_ns", &device_ns}, {"pred_ns", &r.pred_ns},
      {"roof", &r.roof}, {"in_table", &in_table}, {"share", &r.share},
      {"typical_ns", &r.typical_ns}, {"typical_total_ns", &r.typical_total_ns},
      {"typical_kernel_ns", &r.typical_kernel_ns}, {"flags", &r.flags}, {"samples", &r.samples}});
  r.on_device = device_ns.has_value();
  r.device_ns = device_ns.value_or(r.device_ns);
}
void fields(const VisitFields& visit, StepSample& s) {
  int64_t ns = s.ns();  // the file has no time axis
  visit({{"number", &s.number}, {"round", &s.round}, {"ns", &ns}, {"launches", &s.launches},
      {"api_calls", &s.api_calls}, {"copies", &s.copies}, {"allocs", &s.allocs},
      {"profiler_ns", &s.profiler_ns}});
  s.t1 = s.t0 + ns;
}
void fields(const VisitFields& visit, KernelSum& k) {
  visit({{"name", &k.name}, {"kind", &k.kind}, {"source", &k.source}, {"launches", &k.launches},
      {"ns", &k.ns}});
}
void fields(const VisitFields& visit, Ceiling& c) {
  double flops = c.flops_per_ns * 1e9, bytes = c.bytes_per_ns * 1e9;  // a second
  visit({{"key", &c.key}, {"gemm_flops", &flops}, {"copy_bytes", &bytes}, {"floor_ns", &c.floor_ns},
      {"in_cache", &c.in_cache}, {"spread", &c.spread}});
  c.flops_per_ns = flops / 1e9;
  c.bytes_per_ns = bytes / 1e9;
}
void fields(const VisitFields& visit, StepVerdict& v) {
  visit({{"code", &v.code}, {"evidence", &v.evidence}, {"advice", &v.advice}});
}
void fields(const VisitFields& visit, Timeline& t) {
  visit({{"window_ns", &t.window_ns}, {"busy_ns", &t.busy_ns}, {"data_ns", &t.data_ns},
      {"sync_ns", &t.sync_ns}, {"host_ns", &t.host_ns}, {"gap_ns", &t.gap_ns}});
}
void fields(const VisitFields& visit, Profile& p) {
  visit({{"title", &p.title}, {"workload", &p.workload}, {"command", &p.command},
      {"build", &p.build}, {"seed", &p.seed}, {"device", &p.device}, {"mode", &p.mode},
      {"rules", &p.rules}, {"dtype", &p.dtype}, {"source", &p.source},
      {"source_why", &p.source_why}, {"batch", &p.batch}, {"threads", &p.threads},
      {"wait", &p.schedule.wait}, {"warmup", &p.schedule.warmup}, {"active", &p.schedule.active},
      {"repeat", &p.schedule.repeat}, {"roofs", &p.roofline}, {"scope_ns", &p.overheads.scope_ns},
      {"event_ns", &p.overheads.event_ns}, {"axis_ns", &p.overheads.axis_ns},
      {"dropped", &p.dropped}, {"invalid", &p.invalid}, {"unproved", &p.unproved},
      {"sm_mhz", &p.sm_mhz}, {"sm_standard_mhz", &p.sm_standard_mhz}, {"verdict", &p.verdict},
      {"idle", &p.idle}, {"memory_peak", &p.memory_peak}, {"memory_peak_op", &p.memory_peak_op},
      {"clean_us", &p.clean_us}, {"incomplete", &p.incomplete}, {"notes", &p.notes},
      {"steps", &p.steps}, {"rows", &p.rows}, {"kernels", &p.kernels}});
}

template <class T>
concept HasFields = requires(const VisitFields& visit, T& value) { fields(visit, value); };

std::string text_of(const Device& device) { return device.str(); }
std::string text_of(RowCode code) {
  return code == RowCode::unknown ? "" : std::string(name_of(code));
}
template <class E>
  requires std::is_enum_v<E>
std::string text_of(E value) {
  return std::string(name_of(value));
}

template <class T> ProfileJson write_json(std::optional<T>& value);
template <class T> ProfileJson write_json(std::vector<T>& values);
template <class T> ProfileJson write_json(T& value) {
  if constexpr (HasFields<T>) {
    ProfileJson out = ProfileJson::object();
    fields(
        [&out](std::initializer_list<JsonField> list) {
          for (const JsonField& field : list)
            out[field.key] =
                std::visit([](auto* member) { return write_json(*member); }, field.value);
        },
        value);
    return out;
  } else if constexpr (requires { text_of(value); }) {
    return text_of(value);
  } else {
    return value;
  }
}
template <class T> ProfileJson write_json(std::optional<T>& value) {
  return value ? write_json(*value) : ProfileJson();
}
template <class T> ProfileJson write_json(std::vector<T>& values) {
  ProfileJson out = ProfileJson::array();
  for (T& value : values) out.push_back(write_json(value));
  return out;
}

// `where` is the path of a value in the file, for messages.
[[noreturn]] void refuse_field(const std::string& where, const std::string& why) {
  throw Error(Error::Kind::data, where + " " + why);
}

template <class T>
T read_as(const ProfileJson& from, bool right, const std::string& where, const char* wanted) {
  if (!right) refuse_field(where, cat("is ", from.type_name(), ", wanted ", wanted));
  return from.get<T>();
}

void read_json(const ProfileJson& from, std::string& value, const std::string& where) {
  value = read_as<std::string>(from, from.is_string(), where, "text");
}
void read_json(const ProfileJson& from, bool& value, const std::string& where) {
  value = read_as<bool>(from, from.is_boolean(), where, "boolean");
}
// Not by Device::parse(): the profile of a card is read where there is none, too.
void read_json(const ProfileJson& from, Device& device, const std::string& where) {
  std::string text;
  read_json(from, text, where);
  if (text.starts_with("simt")) device.type = Device::Type::simt;
  if (text.starts_with("cuda:")) device = {Device::Type::cuda, int8_t(std::atoi(text.c_str() + 5))};
  if (device.str() != text) refuse_field(where, "is unknown: " + text);
}
template <class T>
void read_json(const ProfileJson& from, std::optional<T>& value, const std::string& where);
template <class T>
void read_json(const ProfileJson& from, std::vector<T>& values, const std::string& where);
template <class T> void read_json(const ProfileJson& from, T& value, const std::string& where) {
  if constexpr (HasFields<T>) {
    if (!from.is_object()) refuse_field(where, cat("is ", from.type_name(), ", wanted object"));
    fields(
        [&](std::initializer_list<JsonField> list) {
          for (const JsonField& field : list) {
            const std::string path = where + "." + field.key;
            const auto found = from.find(field.key);
            if (found == from.end()) refuse_field(path, "is missing");
            std::visit([&](auto* member) { read_json(*found, *member, path); }, field.value);
          }
        },
        value);
  } else if constexpr (std::is_enum_v<T>) {
    std::string text;
    read_json(from, text, where);
    for (size_t i = 0; i < names_of(T{}).size(); ++i) {
      value = T(i);
      if (text_of(value) == text) return;
    }
    refuse_field(where, "is unknown: " + text);
  } else if constexpr (std::is_integral_v<T>) {
    value = read_as<T>(from, from.is_number_integer(), where, "integer");
  } else {
    value = read_as<T>(from, from.is_number(), where, "number");
  }
}
template <class T>
void read_json(const ProfileJson& from, std::optional<T>& value, const std::string& where) {
  if (!from.is_null()) read_json(from, value.emplace(), where);
}
template <class T>
void read_json(const ProfileJson& from, std::vector<T>& values, const std::string& where) {
  if (!from.is_array()) refuse_field(where, cat("is ", from.type_name(), ", wanted array"));
  for (size_t i = 0; i < from.size(); ++i)
    read_json(from[i], values.emplace_back(), cat(where, "[", i, "]"));
}

// Files of an earlier build lack the spread of the roofs, what the profiler took of a step, and
// what rows say beside the others.
void add_what_is_new(ProfileJson& json) {
  const auto add = [](ProfileJson& to, const char* key, const ProfileJson& value) {
    if (to.is_object() && !to.contains(key)) to[key] = value;
  };
  const auto add_to_all = [&](const char* list, const ProfileJson& fields) {
    if (!json.contains(list) || !json[list].is_array()) return;
    for (ProfileJson& item : json[list]) {
      for (const auto& [key, value] : fields.items()) add(item, key.c_str(), value);
    }
  };
  if (json.contains("roofs")) add(json["roofs"], "spread", 0.0);
  add_to_all("steps", {{"profiler_ns", 0}});
  add_to_all("rows", {{"in_table", true}, {"share", nullptr}, {"typical_ns", 0.0},
                         {"typical_total_ns", 0.0}, {"typical_kernel_ns", 0.0}, {"flags", ""}});
}

}  // namespace

std::string to_json(const Profile& profile) {
  Profile copy = profile;  // fields() names what it may also read
  ProfileJson json = {{"schema", kSchema}};
  json.update(write_json(copy));
  return json.dump(1, ' ', false, ProfileJson::error_handler_t::replace) + "\n";
}

Profile read_profile(const std::string& text, const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Error::Kind::data,
        cat("profile: not a profile: ", escaped(file), "; ", escaped(why)),
        "a profile is the .json file that a profiled run wrote");
  };
  ProfileJson json = ProfileJson::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("schema")) refuse("no JSON object with a schema");
  if (json["schema"] != kSchema)
    refuse(cat("its schema is ", json["schema"].dump(), ", wanted ", kSchema));
  add_what_is_new(json);
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
