// dropout: y = x / (1 - p) where the mask keeps, else 0. Its own adjoint: backward applies it to dY
// with the same counter. And randn.
#include "ops/shape/dropout_mask.h"

#include "core/device/memory.h"
#include "core/parallel.h"
#include "ops/kernels.h"
#include "ops/ops.h"

namespace sinter {
namespace {

void check(Operands, const Attrs& attrs) {
  const auto& a = attrs.as<DropoutAttrs>();
  SINTER_CHECK(
      a.p >= 0 && a.p <= 1, usage, str("dropout: p out of range: ", a.p, "; allowed [0, 1]"));
  SINTER_CHECK(a.first_row >= 0, usage,
      str("dropout: no place in the batch: first_row is ", a.first_row, "; it must be at least 0"));
}

// One comparison and one product an element; drawing the mask is no arithmetic on data.
Cost cost(Operands in, Operands out, const Attrs&) {
  return cost_of(2 * in[0].numel(), in.first(1), out);
}

void cpu(const Call& call) {
  const auto& attrs = call.as<DropoutAttrs>();
  const DropoutMask mask(call.in[1].data<int64_t>(), attrs.op_id, attrs.p);
  const int64_t n = call.in[0].numel();
  constexpr int64_t kGroup = 4 * DropoutMask::kBlocks;
  // Groups begin where a block of words does, which may be up to 3 elements before x.
  const int64_t first = first_element(call.in[0], attrs), before = first % 4;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T* x = call.in[0].data<T>();
    T* y = call.out[0].data<T>();
    const V scale = V(mask.scale);
    const int64_t groups = (n + before + kGroup - 1) / kGroup;
    parallel_for(groups, grain_of(kGroup * 16), [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        uint32_t words[kGroup];
        mask.draw(uint64_t(first / 4 + g * DropoutMask::kBlocks), words);
        const int64_t at = g * kGroup - before, count = std::min(kGroup, n - at);
        for (int64_t i = std::max(-at, int64_t{0}); i < count; ++i) {
          const V kept = V(x[at + i]) * scale;  // computed always, so that the loop has no branch
          y[at + i] = T(mask.kept(words[i]) ? kept : V(0));
        }
      }
    });
  });
}

Tensors backward(const Saved& saved, Operands grads) {
  return {apply1(kDropoutOp, {grads[0], saved.in[1]}, saved.attrs), {}};
}

}  // namespace

int64_t first_element(const Tensor& x, const DropoutAttrs& attrs) {
  const int64_t rows = x.rank() > 0 ? x.size(0) : 1;
  return rows > 0 ? attrs.first_row * (x.numel() / rows) : 0;
}

const OpDef kDropoutOp = listed<kDropoutOp>({.formula = "y = x / (1 - p) where it is kept, else 0",
    .attrs = attr_type<DropoutAttrs>(),
    .check = check,
    .cost = cost,
    .cpu = cpu,
    .backward = backward,
    .saves_in = 0b10});

Tensor dropout(const Tensor& x, double p) {
  const Device device = x.defined() ? x.device() : kCpu;
  return apply1(
      kDropoutOp, {x, rng_state(device)}, DropoutAttrs{p, next_random_op(device), first_row()});
}

// Normal draws, by the host.
Tensor randn(const Shape& shape, DType dtype, Device device) {
  // Dropout's streams count up from 0, those of modules' initial values too; these lie apart.
  constexpr uint64_t kStreams = uint64_t{1} << 62;
  check_outside_step("randn");
  Tensor out = Tensor::empty(shape, dtype);
  RngStates& rng = RngStates::of_thread();
  const uint64_t seed = rng.seed, tensor = rng.host_tensors++;
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
