// Inspection::text(): the walk in a terminal, from the same JSON as the page.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/numbers.h"
#include "core/text_grid.h"
#include "measure/inspect.h"

namespace sinter::measure {
namespace {

using InspectJson = nlohmann::ordered_json;

constexpr size_t kTextWidth = 100;

std::string text_of(const InspectJson& json) { return json; }

std::string size_text(const InspectJson& bytes) {
  const double n = bytes;
  if (n >= 1e6) return fmt::format("{:.2f} MB", n / 1e6);
  return n >= 1e3 ? fmt::format("{:.1f} kB", n / 1e3) : fmt::format("{:.0f} B", n);
}

std::string number_text(const InspectJson& value) {
  return value.is_null() ? "-" : fmt::format("{:.3g}", double(value));
}

std::string mflop_text(const InspectJson& flops) {
  return fmt::format("{:.3f} MFLOP", double(flops) / 1e6);
}

// "-1 .. 1            |@*=- .|": the ends, and a histogram of half as many columns.
std::string values_text(const InspectJson& picture) {
  constexpr std::string_view kLevels = " .:-=+*#%@";
  const std::vector<int64_t> counts = picture["counts"];
  std::vector<int64_t> pairs;
  for (size_t i = 0; i + 1 < counts.size(); i += 2) pairs.push_back(counts[i] + counts[i + 1]);
  const int64_t most = std::max<int64_t>(std::ranges::max(pairs), 1);
  std::string bars;
  for (const int64_t n : pairs) bars += kLevels[n > 0 ? size_t(1 + (n * 8 + most - 1) / most) : 0];
  return fmt::format(
      "{:<19}|{}|", number_text(picture["low"]) + " .. " + number_text(picture["high"]), bars);
}

// Where the bytes are: "arena 8192..16384", "input", "kept".
std::string place_text(const InspectJson& operand, const InspectJson& step) {
  const InspectJson& buffer = step["buffers"][size_t(operand["buffer"])];
  if (buffer["kind"] != "arena") return buffer["kind"];
  const int64_t offset = buffer["offset"];
  return fmt::format(
      "arena {}..{}", offset + int64_t(operand["begin"]), offset + int64_t(operand["end"]));
}

// At least one line with a label, cut where it is too wide.
std::string labelled(std::string_view label, std::string text) {
  text = fmt::format("     {:<8}{}", label, text);
  if (text.size() > kTextWidth) text.replace(kTextWidth - 2, std::string::npos, "..");
  return text + "\n";
}

std::string op_title(const InspectJson& op) {
  const std::string name = op["op"], role = op["role"];
  return role.ends_with("grad") ? name + "(" + role + ")" : name;
}

std::string op_text(const InspectJson& step, size_t n) {
  const InspectJson& op = step["ops"][n];
  std::string out = fmt::format(
      "{:>3}  {:<24}{}   {}\n", n + 1, text_of(op["part"]), op_title(op), text_of(op["place"]));
  out += labelled("formula", op["formula"]);
  if (op["attrs"] != "") out += labelled("attrs", op["attrs"]);
  if (op["module"] != "") out += labelled("module", op["module"]);
  if (op["rule"] != "") {
    std::vector<int> numbers = op["origin"];
    for (int& number : numbers) ++number;
    out += labelled("fused", "from eager ops " + join(numbers));
  }
  const std::string time = op["ns"].is_null() ? "not timed on the emulator"
                                              : fmt::format("{:.1f} us", double(op["ns"]) / 1e3);
  out += labelled("cost", fmt::format("{}, reads {}, writes {}, {}", mflop_text(op["flops"]),
                              size_text(op["read"]), size_text(op["written"]), time));
  for (const InspectJson& kernel : op["kernels"]) {
    const std::vector<int64_t> grid = kernel["grid"];
    out += labelled(
        "kernel", fmt::format("{}  grid {}, block {}, shared {}", text_of(kernel["name"]),
                      join(grid, " x "), int64_t(kernel["block"]), size_text(kernel["shared"])));
  }
  for (const char* side : {"in", "out"}) {
    for (const InspectJson& operand : op[side])
      out += labelled(side, fmt::format("{:<20} {:<13} {:<20} {}", text_of(operand["name"]),
                                text_of(operand["type"]), place_text(operand, step),
                                values_text(step["pictures"][size_t(operand["picture"])])));
  }
  // A buffer once: behind the first op that keeps it, until the last that reads it. Arcs rise.
  const InspectJson& arcs = step["arcs"];
  for (size_t a = 0; a < arcs.size(); ++a) {
    size_t first = a, last = 0;
    for (size_t b = 0; b < arcs.size(); ++b) {
      if (arcs[b]["buffer"] != arcs[a]["buffer"]) continue;
      first = std::min(first, b);
      last = std::max(last, size_t(arcs[b]["to"]));
    }
    if (arcs[a]["from"] == n && first == a)
      out += labelled("keeps",
          str(size_text(arcs[a]["bytes"]), " until ", last + 1, " ", op_title(step["ops"][last])));
  }
  return out;
}

std::string step_text(const InspectJson& step) {
  std::string out = fmt::format("{}: {} launches, {}, {} moved, arena {} ({} unshared)\n\n",
      text_of(step["mode"]), int64_t(step["launches"]), mflop_text(step["flops"]),
      size_text(step["bytes"]), size_text(step["arena_bytes"]), size_text(step["unshared_bytes"]));
  std::string memory;  // what the arena holds when the loss is known
  for (size_t n = 0; n < step["ops"].size(); ++n) {
    const InspectJson& op = step["ops"][n];
    out += op_text(step, n) + "\n";
    if (text_of(op["part"]).find("loss") != std::string::npos)
      memory = fmt::format(
          "memory   when the loss is known (op {}) {} of the arena's {} are needed\n", n + 1,
          size_text(int64_t(op["live"]) - int64_t(op["freed"])), size_text(step["arena_bytes"]));
  }
  return out + memory + "\n";
}

}  // namespace

std::string Inspection::text() const {
  const InspectJson all = InspectJson::parse(json_);
  std::string out = str(text_of(all["title"]), "   ", text_of(all["device"]), ", ",
      count_of(all["threads"], "thread"), "\n\n");
  for (const InspectJson& step : all["steps"]) out += step_text(step);
  for (const InspectJson& miss : all["misses"]) {
    out += str("miss     ", text_of(miss["what"]), ", rule ", text_of(miss["rule"]), ": ",
        text_of(miss["why"]), "\n");
    if (miss["remedy"] != "") out += str("         to fuse: ", text_of(miss["remedy"]), "\n");
  }
  TextGrid updates({"<updated", "<shape", "length", "moved", "most"});
  for (const InspectJson& p : all["parameters"])
    updates.add({p["name"], p["shape"], number_text(p["norm"]), number_text(p["moved"]),
        number_text(p["most"])});
  return out + "\n" + updates.text();
}

}  // namespace sinter::measure
