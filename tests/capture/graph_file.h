// A graph file part by part, for tests of what reading one allows: nothing is checked here.
#pragma once

#include "capture/graph.h"
#include "core/json.h"

namespace sinter::capture {

class GraphFile {
 public:
  Json json = {{"schema", "sinter.graph/2"}, {"values", Json::array()}, {"nodes", Json::array()},
      {"gradients", Json::array()}, {"outputs", Json::array()}};

  // Each gives the number of the value. Dense, unless there are strides.
  int input(const std::string& name, std::string_view dtype, const Shape& shape,
      const std::optional<Strides>& strides = {}) {
    return value("input", dtype, shape, strides, name);
  }
  int param(const std::string& name, std::string_view dtype, const Shape& shape,
      const std::optional<Strides>& strides = {}) {
    return value("param", dtype, shape, strides, name);
  }
  int constant(const std::string& number, std::string_view dtype, const Shape& shape) {
    Strides none = shape;
    for (int d = 0; d < none.rank(); ++d) none[d] = 0;
    const int at = value("const", dtype, shape, none);
    json["values"][size_t(at)]["number"] = number;
    return at;
  }
  int view(int of, std::string_view dtype, const Shape& shape,
      const std::optional<Strides>& strides = {}, int64_t offset = 0) {
    const int at = value("view", dtype, shape, strides);
    json["values"][size_t(at)].update(Json{{"of", of}, {"offset", offset}});
    return at;
  }
  // What an op gives; -1 is an absent operand. The attributes are those that are given alone.
  struct Result {
    std::string_view dtype;
    Shape shape;
  };
  int op(std::string_view name, const std::vector<int>& in, const std::vector<Result>& results = {},
      const std::map<std::string, std::string>& attrs = {}, std::string_view role = "none") {
    std::vector<int> out;
    for (const Result& result : results)
      out.push_back(value("result", result.dtype, result.shape, {}));
    json["nodes"].push_back(
        {{"op", name}, {"attrs", attrs}, {"in", in}, {"out", out}, {"role", role}});
    return out.empty() ? -1 : out[0];
  }
  void output(int value) { json["outputs"].push_back(value); }

  std::string text() const { return json_text(json); }
  Graph graph() const { return read_graph(text(), "F"); }

 private:
  int value(std::string_view is, std::string_view dtype, const Shape& shape,
      const std::optional<Strides>& strides, const std::string& name = "") {
    json["values"].push_back({{"is", is}, {"dtype", dtype}, {"shape", shape},
        {"strides", strides.value_or(contiguous_strides(shape))}, {"of", -1}, {"offset", 0},
        {"name", name}, {"number", ""}});
    return int(json["values"].size()) - 1;
  }
};

}  // namespace sinter::capture
