// Profile <-> JSON and CSV. One list of fields for each struct serves all of them: fields(f, value)
// calls f(key, member) for each field, where a member may be null f.nullable(key, member,
// is_there).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "profiler/profile.h"

namespace sinter::profiler {
namespace {

using ProfileJson = nlohmann::ordered_json;
constexpr const char* kSchema = "sinter.profile/1";

// The last value of an enumeration that stands in the file by the name of its value.
template <class E>
constexpr E kLast = E{};
template <>
constexpr ScopeKind kLast<ScopeKind> = ScopeKind::profiler;
template <>
constexpr Role kLast<Role> = Role::update;
template <>
constexpr LaunchKind kLast<LaunchKind> = LaunchKind::graph;
template <>
constexpr Source kLast<Source> = Source::emul;
template <>
constexpr StepCode kLast<StepCode> = StepCode::mixed;
template <>
constexpr RowCode kLast<RowCode> = RowCode::mixed;

template <class E>
  requires std::is_enum_v<E>
std::string text_of(E value) {
  return std::string(name_of(value));
}
std::string text_of(RowCode code) {
  return code == RowCode::unknown ? "" : std::string(name_of(code));
}
std::string text_of(Device device) { return device.str(); }

template <class F>
void fields(F& f, Row& r) {
  f("name", r.name);
  f("shapes", r.shapes);
  f("kind", r.kind);
  f("role", r.role);
  f("made_of", r.made_of);
  f("verdict", r.verdict.code);
  f("evidence", r.verdict.evidence);
  f("calls", r.calls);
  f("launches", r.launches);
  f("unproved", r.unproved);
  f("flops", r.cost.flops);
  f("bytes_read", r.cost.bytes_read);
  f("bytes_written", r.cost.bytes_written);
  f("self_ns", r.self_ns);
  f("total_ns", r.total_ns);
  f("kernel_ns", r.kernel_ns);
  f.nullable("device_ns", r.device_ns, r.on_device);
  f("pred_ns", r.pred_ns);
  f("roof", r.roof);
  f("samples", r.samples);
}
template <class F>
void fields(F& f, StepSample& s) {
  int64_t ns = s.ns();  // the file has no time axis
  f("number", s.number);
  f("round", s.round);
  f("ns", ns);
  f("launches", s.launches);
  f("api_calls", s.api_calls);
  f("copies", s.copies);
  f("allocs", s.allocs);
  s.t1 = s.t0 + ns;
}
template <class F>
void fields(F& f, KernelSum& k) {
  f("name", k.name);
  f("kind", k.kind);
  f("source", k.source);
  f("launches", k.launches);
  f("ns", k.ns);
}
template <class F>
void fields(F& f, Ceiling& c) {
  double flops = c.flops_per_ns * 1e9, bytes = c.bytes_per_ns * 1e9;  // a second
  f("key", c.key);
  f("gemm_flops", flops);
  f("copy_bytes", bytes);
  f("floor_ns", c.floor_ns);
  f("in_cache", c.in_cache);
  f("spread", c.spread);
  c.flops_per_ns = flops / 1e9;
  c.bytes_per_ns = bytes / 1e9;
}
template <class F>
void fields(F& f, StepVerdict& v) {
  f("code", v.code);
  f("evidence", v.evidence);
  f("advice", v.advice);
}
template <class F>
void fields(F& f, Timeline& t) {
  f("window_ns", t.window_ns);
  f("busy_ns", t.busy_ns);
  f("data_ns", t.data_ns);
  f("sync_ns", t.sync_ns);
  f("host_ns", t.host_ns);
  f("gap_ns", t.gap_ns);
}
template <class F>
void fields(F& f, Profile& p) {
  f("title", p.title);
  f("workload", p.workload);
  f("command", p.command);
  f("build", p.build);
  f("seed", p.seed);
  f("device", p.device);
  f("mode", p.mode);
  f("rules", p.rules);
  f("dtype", p.dtype);
  f("source", p.source);
  f("source_why", p.source_why);
  f("batch", p.batch);
  f("threads", p.threads);
  f("wait", p.schedule.wait);
  f("warmup", p.schedule.warmup);
  f("active", p.schedule.active);
  f("repeat", p.schedule.repeat);
  f("roofs", p.roofline);
  f("scope_ns", p.overheads.scope_ns);
  f("event_ns", p.overheads.event_ns);
  f("axis_ns", p.overheads.axis_ns);
  f("dropped", p.dropped);
  f("invalid", p.invalid);
  f("unproved", p.unproved);
  f("sm_mhz", p.sm_mhz);
  f("sm_standard_mhz", p.sm_standard_mhz);
  f("verdict", p.verdict);
  f("idle", p.idle);
  f("memory_peak", p.memory_peak);
  f("memory_peak_op", p.memory_peak_op);
  f("clean_us", p.clean_us);
  f("incomplete", p.incomplete);
  f("notes", p.notes);
  f("steps", p.steps);
  f("rows", p.rows);
  f("kernels", p.kernels);
}

template <class T, class F>
concept HasFields = requires(F& f, T& value) { fields(f, value); };
template <class T>
concept IsNamed = requires(const T& value) { text_of(value); };

struct FieldWriter {
  ProfileJson json = ProfileJson::object();

  template <class T>
  void operator()(const char* key, T& value) {
    json[key] = write(value);
  }
  void nullable(const char* key, int64_t value, bool is_there) {
    json[key] = is_there ? ProfileJson(value) : ProfileJson();
  }
  template <class T>
  static ProfileJson write(T& value) {
    if constexpr (HasFields<T, FieldWriter>) {
      FieldWriter inner;
      fields(inner, value);
      return inner.json;
    } else if constexpr (IsNamed<T>) {
      return text_of(value);
    } else {
      return value;
    }
  }
  template <class T>
  static ProfileJson write(std::optional<T>& value) {
    return value ? write(*value) : ProfileJson();
  }
  template <class T>
  static ProfileJson write(std::vector<T>& values) {
    ProfileJson out = ProfileJson::array();
    for (T& value : values) out.push_back(write(value));
    return out;
  }
};

[[noreturn]] void refuse_field(const std::string& where, const std::string& why) {
  throw Error(Error::Kind::data, where + " " + why);
}

struct FieldReader {
  const ProfileJson& json;
  std::string path;

  template <class T>
  void operator()(const char* key, T& value) {
    read(at(key), value, path + "." + key);
  }
  void nullable(const char* key, int64_t& value, bool& is_there) {
    is_there = !at(key).is_null();
    if (is_there) read(at(key), value, path + "." + key);
  }
  const ProfileJson& at(const char* key) const {
    const auto found = json.find(key);
    if (found == json.end()) refuse_field(path + "." + key, "is missing");
    return *found;
  }

  static void want(
      bool right, const ProfileJson& from, const std::string& where, const char* what) {
    if (!right) refuse_field(where, cat("is ", from.type_name(), ", wanted ", what));
  }
  // Not by Device::parse(): the profile of a card is read where there is none, too.
  static void read(const ProfileJson& from, Device& device, const std::string& where) {
    std::string text;
    read(from, text, where);
    if (text.starts_with("simt")) device.type = Device::Type::simt;
    if (text.starts_with("cuda:"))
      device = {Device::Type::cuda, static_cast<int8_t>(std::atoi(text.c_str() + 5))};
    if (device.str() != text) refuse_field(where, "is unknown: " + text);
  }
  template <class T>
  static void read(const ProfileJson& from, T& value, const std::string& where) {
    if constexpr (HasFields<T, FieldReader>) {
      want(from.is_object(), from, where, "object");
      FieldReader inner{from, where};
      fields(inner, value);
    } else if constexpr (std::is_enum_v<T>) {
      std::string text;
      read(from, text, where);
      for (int i = 0; i <= static_cast<int>(kLast<T>); ++i) {
        value = static_cast<T>(i);
        if (text_of(value) == text) return;
      }
      refuse_field(where, "is unknown: " + text);
    } else {
      if constexpr (std::is_same_v<T, std::string>) {
        want(from.is_string(), from, where, "text");
      } else if constexpr (std::is_same_v<T, bool>) {
        want(from.is_boolean(), from, where, "boolean");
      } else if constexpr (std::is_integral_v<T>) {
        want(from.is_number_integer(), from, where, "integer");
      } else {
        want(from.is_number(), from, where, "number");
      }
      value = from.get<T>();
    }
  }
  template <class T>
  static void read(const ProfileJson& from, std::optional<T>& value, const std::string& where) {
    if (!from.is_null()) read(from, value.emplace(), where);
  }
  template <class T>
  static void read(const ProfileJson& from, std::vector<T>& values, const std::string& where) {
    want(from.is_array(), from, where, "array");
    for (size_t i = 0; i < from.size(); ++i)
      read(from[i], values.emplace_back(), cat(where, "[", i, "]"));
  }
};

// Of a column of the CSV; names are quoted, as they may hold commas.
std::string csv_cell(std::string_view key, const ProfileJson& value) {
  if (value.is_null()) return "";
  if (key == "pred_ns") return fmt::format("{:.1f}", value.get<double>());
  if (key == "roof") return fmt::format("{:.4f}", value.get<double>());
  if (!value.is_string()) return value.dump();
  std::string text = value;
  if (key != "name" && key != "shapes") return text;
  for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '"');
  return '"' + text + '"';
}

}  // namespace

std::string to_json(const Profile& profile) {
  FieldWriter writer;
  writer.json["schema"] = kSchema;
  Profile copy = profile;  // fields() names what it may also read
  fields(writer, copy);
  return writer.json.dump(1, ' ', false, ProfileJson::error_handler_t::replace) + "\n";
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
  // Files of an earlier build lack the spread.
  if (json.contains("roofs") && json["roofs"].is_object() && !json["roofs"].contains("spread"))
    json["roofs"]["spread"] = 0.0;
  Profile profile;
  try {
    FieldReader reader{json, "profile"};
    fields(reader, profile);
  } catch (const Error& e) {
    refuse(e.message());
  }
  for (Row& row : profile.rows) {
    if (!row.samples.empty() && row.samples.size() != profile.steps.size())
      refuse(cat("row ", row.name, " has ", row.samples.size(), " samples of ",
          profile.steps.size(), " steps"));
    row.typical_ns = typical(row.samples);
  }
  return profile;
}

std::string to_csv(const Profile& profile) {
  constexpr const char* kColumns[] = {"name", "shapes", "kind", "role", "calls", "launches",
      "flops", "bytes_read", "bytes_written", "self_ns", "total_ns", "kernel_ns", "device_ns",
      "pred_ns", "roof", "verdict"};
  std::string out = fmt::format("{}", fmt::join(kColumns, ","));
  for (const StepSample& step : profile.steps) out += fmt::format(",step{}", step.number);
  out += "\n";
  for (Row row : profile.rows) {
    const ProfileJson values = FieldWriter::write(row);
    std::vector<std::string> cells;
    for (const char* key : kColumns) cells.push_back(csv_cell(key, values[key]));
    for (const int64_t ns : row.samples) cells.push_back(std::to_string(ns));
    out += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return out;
}

}  // namespace sinter::profiler
