#include "nn/activations.h"

#include <array>

namespace sinter::nn {
namespace {

struct Row {
  std::string_view name;
  std::shared_ptr<Module> (*make)();
};
#define SINTER_ROW(function, Struct, text) \
  Row{#function, []() -> std::shared_ptr<Module> { return std::make_shared<Struct>(); }},
constexpr Row kRows[] = {SINTER_ACTIVATIONS(SINTER_ROW, SINTER_ROW)};
#undef SINTER_ROW
constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kRows)> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kRows[i].name;
  return names;
}();

}  // namespace

std::span<const std::string_view> activation_names() { return kNames; }

std::shared_ptr<Module> make_activation(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.make();
  }
  const std::string nearest = nearest_word(name, kNames);
  std::string all;
  for (const std::string_view known : kNames) all += (all.empty() ? "" : ", ") + std::string(known);
  throw Error(
      Error::Kind::usage, cat("activation: unknown name: ", escaped(name), "; ",
                              nearest.empty() ? "allowed " + all : "nearest is " + nearest));
}

Dropout::Dropout(double p) : p_(p) {
  SINTER_CHECK(p >= 0 && p < 1, usage, cat("Dropout: p out of range: ", p, "; allowed 0 <= p < 1"));
}

}  // namespace sinter::nn
