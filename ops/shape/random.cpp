// randn: normal draws, by the host.
#include "core/device/memory.h"
#include "core/rng.h"
#include "ops/ops.h"

namespace sinter {

Tensor randn(const Shape& shape, DType dtype, Device device) {
  // Dropout's streams count up from 0, those of modules' initial values too; these lie apart.
  constexpr uint64_t kStreams = uint64_t{1} << 62;
  check_outside_step("randn");
  Tensor out = Tensor::empty(shape, dtype);
  const auto [seed, tensor] = next_random_tensor();
  visit_float(dtype, [&]<class T>(T) {
    T* values = out.data<T>();
    for (int64_t i = 0; i < out.numel(); ++i) {
      const auto word = [&](int64_t k) {
        return philox_word(seed, kStreams + tensor, uint64_t(2 * i + k));
      };
      values[i] = T(normal_from_bits(word(0), word(1)));
    }
  });
  return device == kCpu ? out : out.to(device);
}

}  // namespace sinter
