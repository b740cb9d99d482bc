#include "nn/activations.h"

namespace sinter::nn {

#define SINTER_ROW(function, Struct, text) #function,
constexpr std::string_view kNames[] = {SINTER_ACTIVATIONS(SINTER_ROW, SINTER_ROW)};
#undef SINTER_ROW

std::span<const std::string_view> activation_names() { return kNames; }

std::shared_ptr<Module> make_activation(std::string_view name) {
  using Make = std::shared_ptr<Module> (*)();
#define SINTER_ROW(function, Struct, text) \
  []() -> std::shared_ptr<Module> { return std::make_shared<Struct>(); },
  constexpr Make kMakers[] = {SINTER_ACTIVATIONS(SINTER_ROW, SINTER_ROW)};
#undef SINTER_ROW
  return kMakers[place_of("activation", name, kNames)]();
}

}  // namespace sinter::nn
