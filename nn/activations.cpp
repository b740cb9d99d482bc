#include "nn/activations.h"

#include <array>

namespace sinter::nn {
namespace {

template <class M, auto... args>
std::shared_ptr<Module> make() {
  return std::make_shared<M>(args...);
}
struct Row {
  std::string_view name;
  std::shared_ptr<Module> (*make)();
};
constexpr std::array kRows{Row{"relu", make<Relu>}, Row{"gelu", make<Gelu>},
    Row{"gelu_tanh", make<Gelu, GeluForm::tanh>}, Row{"silu", make<Silu>}, Row{"tanh", make<Tanh>},
    Row{"sigmoid", make<Sigmoid>}, Row{"softplus", make<Softplus>}, Row{"elu", make<Elu>},
    Row{"leaky_relu", make<LeakyRelu>}};
constexpr auto kNames = [] {
  std::array<std::string_view, kRows.size()> names;
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
