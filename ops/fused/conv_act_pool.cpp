// conv_act_pool: y = relu(max_pool2d(conv2d(x, W) + b)), windows of 2 x 2, with the maxima's
// places. The convolution's result lives in a tile that stays in cache: a quarter of it is written.
#include "ops/fused/fused.h"
#include "ops/fused/reference.h"
#include "ops/image/conv2d_cpu.h"
#include "ops/image/pool.h"
#include "ops/kernels.h"

// N batch, C in, O out, P x Q of the convolution's result
namespace sinter {
namespace {

// relu of the maxima of 2 x 2 windows of a tile, in its place, and where they are in their windows,
// or kNoPlace.
template <class V>
void pool_tile(V* tile, int64_t channels, int64_t rows, int64_t cols, uint8_t* places) {
  constexpr int64_t n = conv::kImages<V>;
  V* to = tile;
  for (int64_t row = 0; row < channels * rows; row += 2) {
    for (int64_t col = 0; col < cols; col += 2, to += n, places += n) {
      const V* from = tile + (row * cols + col) * n;
      conv::Lanes<V> best = conv::load_lanes(from), place{};
      int k = 0;
      for (const int64_t next : {n, cols * n, (cols + 1) * n}) {
        const conv::Lanes<V> v = conv::load_lanes(from + next);
        const auto better = (v > best) | (v != v);  // beats() of each lane
        best = better ? v : best;
        ++k;
        place = better ? conv::broadcast(V(k)) : place;
      }
      const auto nothing = best <= conv::Lanes<V>{};  // passes: as pointwise::Relu
      conv::store_lanes(to, nothing ? conv::Lanes<V>{} : best);
      const auto bytes = conv::bytes_of<V>(nothing ? conv::broadcast(V(kNoPlace)) : place);
      std::memcpy(places, &bytes, sizeof bytes);
    }
  }
}

template <class T> void conv_act_pool_of(const Call& call) {
  using V = compute_t<T>;
  const Tensor &x = call.in[0], &weight = call.in[1], &y = call.out[0];
  const auto& attrs = call.as<Conv2dAttrs>();
  const conv::Correlation pooled{conv2d_sizes(x, weight, y, attrs)};
  conv::Correlation g = pooled;
  g.p *= 2;  // what no window reaches is not computed
  g.q *= 2;
  uint8_t* index = call.out[1].data<uint8_t>();
  const auto finish = [&](const conv::Part& part, V* z) {
    const conv::Part half{part.image, part.count, part.first / 2, part.rows / 2};
    if constexpr (!std::is_same_v<T, V>) {  // maxima of what plain ops would have stored
      for (int64_t i = 0; i < g.o * part.rows * g.q * conv::kImages<V>; ++i) z[i] = V(T(z[i]));
    }
    uint8_t* places =
        thread_buffer<uint8_t, BufferFor::places>(g.o * half.rows * pooled.q * conv::kImages<V>);
    pool_tile(z, g.o, part.rows, g.q, places);
    conv::ImageSink<T>{pooled, y.data<T>()}(half, z);
    conv::ImageSink<uint8_t, V>{pooled, index}(half, places);
  };
  conv::correlate<T>(g, conv::Parts<V>(g, 2 * num_threads(), 2),
      conv::image_source<T>(g, x.data<T>()), conv::weights_of<T>(weight),
      conv::bias_of<T>(optional_input(call.in, 2)), finish);
}
void conv_act_pool_cpu(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { conv_act_pool_of<T>(call); });
}

Tensors conv_act_pool_reference(Operands in, const Attrs& attrs) {
  const Tensor z = conv2d(in[0], in[1], optional_input(in, 2), attrs.as<Conv2dAttrs>());
  return apply(kMaxPool2dOp, {z}, MaxPool2dAttrs{{}, true});
}

Tensors meta_operands() {
  return {Tensor::meta({2, 3, 7, 6}), Tensor::meta({4, 3, 3, 3}), Tensor::meta({4})};
}
std::vector<Form> conv_act_pool_forms() { return {{meta_operands(), Conv2dAttrs{}}}; }

}  // namespace

const OpDef kConvActPoolOp{.name = "conv_act_pool",
    .formula = "y = relu(max of 2 x 2 of (conv2d(x, W) + b)), and the maxima's places",
    .min_inputs = 2,
    .max_inputs = 3,
    .attrs = attr_type<Conv2dAttrs>(),
    .infer = infer_of<kConvActPoolOp>,
    .cost = cost_of_reference<kConvActPoolOp>,
    .cpu = conv_act_pool_cpu,
    SINTER_KERNELS(conv_act_pool),
    .reference = conv_act_pool_reference,
    .forms = conv_act_pool_forms};

}  // namespace sinter
