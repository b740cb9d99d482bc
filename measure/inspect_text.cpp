// Inspection::text(): the walk in a terminal, from the same JSON as the page.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/numbers.h"
#include "measure/inspect.h"
#include "profiler/grid.h"

namespace sinter::measure {
namespace {

using InspectJson = nlohmann::ordered_json;

constexpr size_t kTextWidth = 100;

std::string size_text(const InspectJson& bytes) {
  const double n = bytes;
  if (n >= 1e6) return fmt::format("{:.2f} MB", n / 1e6);
  return n >= 1e3 ? fmt::format("{:.1f} kB", n / 1e3) : fmt::format("{:.0f} B", n);
}

std::string number_text(const InspectJson& value) {
  return value.is_null() ? "-" : fmt::format("{:.3g}", value.get<double>());
}

// "@*=- .": a histogram from low to high, of half as many columns.
std::string bars(const std::vector<int64_t>& counts) {
  constexpr std::string_view kLevels = " .:-=+*#%@";
  std::vector<int64_t> pairs;
  for (size_t i = 0; i + 1 < counts.size(); i += 2) pairs.push_back(counts[i] + counts[i + 1]);
  const int64_t most = std::max<int64_t>(std::ranges::max(pairs), 1);
  std::string out;
  for (const int64_t n : pairs)
    out += kLevels[n > 0 ? static_cast<size_t>(1 + (n * 8 + most - 1) / most) : 0];
  return out;
}

std::string values_text(const InspectJson& picture) {
  return fmt::format("{:<19}|{}|",
      number_text(picture["low"]) + " .. " + number_text(picture["high"]), bars(picture["counts"]));
}

// Where the bytes are: "arena 8192..16384", "input", "kept".
std::string place_text(const InspectJson& operand, const InspectJson& step) {
  const InspectJson& buffer = step["buffers"][operand["buffer"].get<size_t>()];
  const std::string kind = buffer["kind"];
  if (kind != "arena") return kind;
  const int64_t offset = buffer["offset"];
  return fmt::format("arena {}..{}", offset + operand["begin"].get<int64_t>(),
      offset + operand["end"].get<int64_t>());
}

// At least one line with a label, cut where it is too wide.
std::string labelled(std::string_view label, std::string text) {
  text = fmt::format("     {:<8}{}", label, text);
  if (text.size() > kTextWidth) text.replace(kTextWidth - 2, std::string::npos, "..");
  return text + "\n";
}

std::string op_title(const InspectJson& op) {
  const std::string name = op["op"], role = op["role"];
  const bool told = role == "wgrad" || role == "dgrad" || role == "bgrad";
  return told ? name + "(" + role + ")" : name;
}

std::string op_text(const InspectJson& step, size_t n) {
  const InspectJson& op = step["ops"][n];
  std::string out = fmt::format("{:>3}  {:<24}{}\n", n + 1, op["part"].get<std::string>(),
      op_title(op) + "   " + op["place"].get<std::string>());
  out += labelled("formula", op["formula"]);
  if (op["module"] != "") out += labelled("module", op["module"]);
  if (op["rule"] != "") {
    std::string numbers;
    for (const InspectJson& o : op["origin"])
      numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", o.get<int>() + 1);
    out += labelled("fused", "from eager ops " + numbers);
  }
  out += labelled(
      "cost", fmt::format("{:.3f} MFLOP, reads {}, writes {}{}", op["flops"].get<double>() / 1e6,
                  size_text(op["read"]), size_text(op["written"]),
                  op["ns"].is_null() ? std::string(", not timed on the emulator")
                                     : fmt::format(", {:.1f} us", op["ns"].get<double>() / 1e3)));
  for (const InspectJson& kernel : op["kernels"]) {
    const InspectJson& grid = kernel["grid"];
    out += labelled("kernel",
        fmt::format("{}  grid {} x {} x {}, block {}, shared {}", kernel["name"].get<std::string>(),
            grid[0].get<int64_t>(), grid[1].get<int64_t>(), grid[2].get<int64_t>(),
            kernel["block"].get<int>(), size_text(kernel["shared"])));
  }
  for (const char* side : {"in", "out"}) {
    for (const InspectJson& operand : op[side]) {
      const InspectJson& picture = step["pictures"][operand["picture"].get<size_t>()];
      out += labelled(side,
          fmt::format("{:<20} {:<13} {:<20} {}", operand["name"].get<std::string>(),
              operand["type"].get<std::string>(), place_text(operand, step), values_text(picture)));
    }
  }
  for (const InspectJson& arc : step["arcs"]) {
    if (arc["from"] == n)
      out += labelled(
          "keeps", fmt::format("{} until {} {}", size_text(arc["bytes"]), arc["to"].get<int>() + 1,
                       op_title(step["ops"][arc["to"].get<size_t>()])));
  }
  return out;
}

// What the arena holds when the loss is known.
std::string loss_text(const InspectJson& step) {
  const InspectJson* loss = nullptr;
  size_t number = 0;
  for (size_t n = 0; n < step["ops"].size(); ++n) {
    if (step["ops"][n]["part"].get<std::string>().find("loss") == std::string::npos) continue;
    loss = &step["ops"][n];
    number = n + 1;
  }
  if (!loss) return "";
  const int64_t arena = step["arena_bytes"];
  const int64_t held = (*loss)["live"].get<int64_t>() - (*loss)["freed"].get<int64_t>();
  return fmt::format("memory   when the loss is known (op {}) {} of the arena's {} are needed\n",
      number, size_text(held), size_text(arena));
}

std::string step_text(const InspectJson& step) {
  std::string out =
      fmt::format("{}: {} launches, {:.3f} MFLOP, {} moved, arena {} ({} unshared)\n\n",
          step["mode"].get<std::string>(), step["launches"].get<int64_t>(),
          step["flops"].get<double>() / 1e6, size_text(step["bytes"]),
          size_text(step["arena_bytes"]), size_text(step["unshared_bytes"]));
  for (size_t n = 0; n < step["ops"].size(); ++n) out += op_text(step, n) + "\n";
  return out + loss_text(step) + "\n";
}

}  // namespace

std::string Inspection::text() const {
  const InspectJson all = InspectJson::parse(json_);
  std::string out = fmt::format("{}   {}, {}\n\n", all["title"].get<std::string>(),
      all["device"].get<std::string>(), count_of(all["threads"].get<int64_t>(), "thread"));
  for (const InspectJson& step : all["steps"]) out += step_text(step);
  for (const InspectJson& miss : all["misses"]) {
    out += fmt::format("miss     {}, rule {}: {}\n", miss["what"].get<std::string>(),
        miss["rule"].get<std::string>(), miss["why"].get<std::string>());
    if (miss["remedy"] != "")
      out += fmt::format("         to fuse: {}\n", miss["remedy"].get<std::string>());
  }
  profiler::Grid updates({"<updated", "<shape", "length", "moved", "most"});
  for (const InspectJson& p : all["parameters"])
    updates.add({p["name"], p["shape"], number_text(p["norm"]), number_text(p["moved"]),
        number_text(p["most"])});
  return out + "\n" + updates.text();
}

}  // namespace sinter::measure
