// Profile <-> JSON: one list of fields serves both directions. And the same as CSV.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "profiler/profile.h"

namespace sinter::profiler {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSchema = "sinter.profile/1";

template <class F>
void fields(F& f, ProfileRow& r) {
  f("name", r.name), f("shapes", r.shapes), f("kind", r.kind), f("role", r.role),
      f("made_of", r.made_of);
  f("verdict", r.verdict), f("evidence", r.evidence), f("calls", r.calls),
      f("launches", r.launches), f("unproved", r.unproved), f("flops", r.flops);
  f("bytes_read", r.bytes_read), f("bytes_written", r.bytes_written), f("self_ns", r.self_ns),
      f("total_ns", r.total_ns);
  f("kernel_ns", r.kernel_ns), f("device_ns", r.device_ns), f("pred_ns", r.pred_ns),
      f("roof", r.roof), f("samples", r.samples);
}
template <class F>
void fields(F& f, ProfileStep& s) {
  f("number", s.number), f("round", s.round), f("ns", s.ns), f("launches", s.launches),
      f("api_calls", s.api_calls);
  f("copies", s.copies), f("allocs", s.allocs);
}
template <class F>
void fields(F& f, ProfileKernel& k) {
  f("name", k.name), f("kind", k.kind), f("source", k.source), f("launches", k.launches),
      f("ns", k.ns);
}
template <class F>
void fields(F& f, ProfileRoofs& r) {
  f("key", r.key), f("gemm_flops", r.gemm_flops), f("copy_bytes", r.copy_bytes),
      f("floor_ns", r.floor_ns), f("in_cache", r.in_cache);
}
template <class F>
void fields(F& f, ProfileVerdict& v) {
  f("code", v.code), f("evidence", v.evidence), f("advice", v.advice);
}
template <class F>
void fields(F& f, ProfileIdle& i) {
  f("window_ns", i.window_ns), f("busy_ns", i.busy_ns), f("data_ns", i.data_ns),
      f("sync_ns", i.sync_ns), f("host_ns", i.host_ns);
  f("gap_ns", i.gap_ns);
}
template <class F>
void fields(F& f, Profile& p) {
  f("title", p.title), f("workload", p.workload), f("command", p.command), f("build", p.build),
      f("seed", p.seed), f("device", p.device);
  f("mode", p.mode), f("rules", p.rules), f("dtype", p.dtype), f("source", p.source),
      f("source_why", p.source_why), f("batch", p.batch), f("threads", p.threads);
  f("wait", p.wait), f("warmup", p.warmup), f("active", p.active), f("repeat", p.repeat),
      f("roofs", p.roofs);
  f("scope_ns", p.scope_ns), f("event_ns", p.event_ns), f("axis_ns", p.axis_ns),
      f("dropped", p.dropped), f("invalid", p.invalid);
  f("unproved", p.unproved), f("sm_mhz", p.sm_mhz), f("sm_standard_mhz", p.sm_standard_mhz);
  f("verdict", p.verdict), f("idle", p.idle), f("memory_peak", p.memory_peak),
      f("memory_peak_op", p.memory_peak_op);
  f("clean_us", p.clean_us), f("incomplete", p.incomplete), f("notes", p.notes),
      f("steps", p.steps), f("rows", p.rows);
  f("kernels", p.kernels);
}

struct RecordWriter {
  Json json = Json::object();
  template <class T>
  void operator()(const char* key, T& value) {
    json[key] = write(value);
  }
  template <class T>
  static Json write(T& value) {
    if constexpr (requires(RecordWriter& w) { fields(w, value); }) {
      RecordWriter inner;
      fields(inner, value);
      return inner.json;
    } else {
      return value;
    }
  }
  template <class T>
  static Json write(std::optional<T>& value) {
    return value ? write(*value) : Json();
  }
  template <class T>
  static Json write(std::vector<T>& values) {
    Json out = Json::array();
    for (T& value : values) out.push_back(write(value));
    return out;
  }
};

struct Reader {
  const Json& json;
  std::string path;
  template <class T>
  void operator()(const char* key, T& value) {
    const std::string here = path + "." + key;
    const auto found = json.find(key);
    if (found == json.end()) throw Error(Error::Kind::data, here + " is missing");
    read(*found, value, here);
  }
  template <class T>
  static void read(const Json& from, T& value, const std::string& here) {
    if constexpr (requires(Reader& r) { fields(r, value); }) {
      if (!from.is_object())
        throw Error(Error::Kind::data, cat(here, " is ", from.type_name(), ", wanted object"));
      Reader inner{from, here};
      fields(inner, value);
    } else {
      const bool fits = std::is_same_v<T, std::string> ? from.is_string()
                        : std::is_same_v<T, bool>      ? from.is_boolean()
                        : std::is_integral_v<T>        ? from.is_number_integer()
                                                       : from.is_number();
      if (!fits)
        throw Error(Error::Kind::data,
            cat(here, " is ", from.type_name(), ", of another kind than it must be"));
      value = from.get<T>();
    }
  }
  template <class T>
  static void read(const Json& from, std::optional<T>& value, const std::string& here) {
    if (!from.is_null()) read(from, value.emplace(), here);
  }
  template <class T>
  static void read(const Json& from, std::vector<T>& values, const std::string& here) {
    if (!from.is_array())
      throw Error(Error::Kind::data, cat(here, " is ", from.type_name(), ", wanted array"));
    for (size_t i = 0; i < from.size(); ++i)
      read(from[i], values.emplace_back(), cat(here, "[", i, "]"));
  }
};

std::string quoted(std::string text) {
  for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '"');
  return '"' + text + '"';
}

}  // namespace

std::string to_json(const Profile& profile) {
  RecordWriter writer;
  writer.json["schema"] = kSchema;
  Profile copy = profile;  // fields() names what it may also read
  fields(writer, copy);
  return writer.json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Profile read_profile(const std::string& text, const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Error::Kind::data,
        cat("profile: not a profile: ", escaped(file), "; ", escaped(why)),
        "Exports of the format json are profiles");
  };
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("schema")) refuse("no JSON object with a schema");
  if (json["schema"] != kSchema)
    refuse(cat("its schema is ", json["schema"].dump(), ", wanted ", kSchema));
  Profile profile;
  try {
    Reader reader{json, "profile"};
    fields(reader, profile);
  } catch (const Error& e) {
    refuse(e.message());
  }
  for (const ProfileRow& row : profile.rows) {
    if (!row.samples.empty() && row.samples.size() != profile.steps.size())
      refuse(cat("row ", row.name, " has ", row.samples.size(), " samples of ",
          profile.steps.size(), " steps"));
  }
  return profile;
}

std::string to_csv(const Profile& profile) {
  std::string out =
      "name,shapes,kind,role,calls,launches,flops,bytes_read,bytes_written,self_ns,total_ns,kernel_"
      "ns,device_ns,pred_ns,roof,verdict";
  for (const ProfileStep& step : profile.steps) out += fmt::format(",step{}", step.number);
  out += "\n";
  for (const ProfileRow& r : profile.rows) {
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", quoted(r.name),
        quoted(r.shapes), r.kind, r.role, r.calls, r.launches, r.flops, r.bytes_read,
        r.bytes_written, r.self_ns, r.total_ns, r.kernel_ns,
        r.device_ns ? std::to_string(*r.device_ns) : "",
        r.pred_ns ? fmt::format("{:.1f}", *r.pred_ns) : "",
        r.roof ? fmt::format("{:.4f}", *r.roof) : "", r.verdict);
    for (const int64_t ns : r.samples) out += fmt::format(",{}", ns);
    out += "\n";
  }
  return out;
}

}  // namespace sinter::profiler
