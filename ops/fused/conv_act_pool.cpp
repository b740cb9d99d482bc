// conv_act_pool: y = relu(max_pool2d(conv2d(x, W) + b)), windows of 2 x 2, with the maxima's
// places. The convolution's result lives in a tile that stays in cache: a quarter of it is written.
//
// conv_act_backward and conv_act_pool_backward: the gradients of conv_act's and conv_act_pool's
// operands from that of their result: dz = relu's gradient from dy and y, dy itself without y, or
// dy put in the place of its window's maximum, which the index has only where ReLU lets it pass;
// dW, db, and dx if the weight is given. dz is made row by row on its way to the tiles that are
// multiplied, so it is in no memory.
#include "ops/fused/activation.h"
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

std::vector<Form> conv_act_pool_forms() {
  return {
      {{Tensor::meta({2, 3, 7, 6}), Tensor::meta({4, 3, 3, 3}), Tensor::meta({4})}, Conv2dAttrs{}}};
}

// Rows of dz as lanes, for the images of a part. Two rows of dz come from one pooled row, one after
// the other: its lanes stay for the second.
template <class T> class RowsOfDz {
 public:
  using V = compute_t<T>;
  // saved: y or undefined, or the index of 2 x 2 windows.
  RowsOfDz(const conv::Part& part, const Tensor& dy, const Tensor& saved)
      : part_(part),
        dy_(dy),
        saved_(saved),
        pooled_(saved.defined() && saved.dtype() == DType::u8) {}

  // Elements from `skip` on of row `row` of channel o.
  void operator()(int64_t o, int64_t row, int64_t skip, int64_t count, V* lanes) {
    const int64_t source = pooled_ ? row / 2 : row;
    if (source >= dy_.size(2)) return void(std::fill_n(lanes, count * kLanes, V(0)));
    if (o != channel_ || source != row_) load(o, source);
    channel_ = o;
    row_ = source;
    if (!pooled_) return void(std::copy_n(values_ + skip * kLanes, count * kLanes, lanes));
    // A value of dy goes to one of its window's two columns here, or to the other row.
    const V left = static_cast<V>(row % 2 * 2);
    for (int64_t i = -(skip % 2), col = skip / 2; i < count; i += 2, ++col) {
      conv::Lanes<V> value{}, place{};
      if (col < dy_.size(3)) {
        value = conv::load_lanes(values_ + col * kLanes);
        conv::Bytes<V> bytes;
        std::memcpy(&bytes, places_ + col * kLanes, sizeof bytes);
        place = conv::lanes_of<V>(bytes);
      }
      const auto put = [&](int64_t at, V k) {
        conv::store_lanes(
            lanes + at * kLanes, place == conv::broadcast(k) ? value : conv::Lanes<V>{});
      };
      if (i >= 0) put(i, left);
      if (i + 1 < count) put(i + 1, left + V(1));
    }
  }

 private:
  static constexpr int64_t kLanes = conv::kImages<V>;

  // Row `row` of relu's gradient, or of dy and of the index. Rows of one image are far from those
  // of the next, so what the next channel needs is asked for ahead.
  void load(int64_t o, int64_t row) {
    const int64_t cols = dy_.size(3), channel = dy_.size(2), stride = dy_.size(1) * channel;
    const int64_t first = (part_.image * dy_.size(1) + o) * channel + row;
    const T* const dys = dy_.data<T>() + first * cols;
    values_ = thread_buffer<V, BufferFor::values>(cols * kLanes);
    const auto load_dy = [&](int64_t l, int64_t i, int64_t width) {
      const T* dy = dys + l * stride * cols + i;
      __builtin_prefetch(dy + channel * cols);
      return conv::load_part<V, V>(dy, width);
    };
    if (pooled_ || !saved_.defined()) {
      conv::load_to_lanes<V>(part_.count, cols, values_, load_dy);
      if (!pooled_) return;
      places_ = thread_buffer<uint8_t, BufferFor::places>(cols * kLanes);
      const uint8_t* index = saved_.data<uint8_t>() + first * cols;
      return conv::to_lanes<V>(index, stride * cols, part_.count, cols, places_);
    }
    const T* const ys = saved_.data<T>() + first * cols;
    conv::load_to_lanes<V>(part_.count, cols, values_, [&](int64_t l, int64_t i, int64_t width) {
      const T* y = ys + l * stride * cols + i;
      __builtin_prefetch(y + channel * cols);
      constexpr conv::Lanes<V> kZero{};  // the formula is pointwise::Relu's
      const conv::Lanes<V> passed = load_dy(l, i, width);
      return conv::load_part<V, V>(y, width) <= kZero ? kZero : passed;
    });
  }

  const conv::Part& part_;
  const Tensor &dy_, &saved_;
  bool pooled_;
  int64_t channel_ = -1, row_ = -1;  // of what is loaded
  V* values_ = nullptr;              // memory of the thread
  uint8_t* places_ = nullptr;        // the same
};

// Of dx in memory what a part has just written there: its image's rows of all channels. Nothing
// passes where x, which ReLU gave, is 0 (the formula is pointwise::Relu's).
template <class T>
void keep_where_relu_passes(const conv::Correlation& d, const conv::Part& part, const T* x, T* dx) {
  const int64_t plane = d.p * d.q, count = part.rows * d.q;
  for (int64_t i = 0; i < part.count * d.o; ++i) {
    const int64_t first = (part.image * d.o + i) * plane + part.first * d.q;
    for (int64_t k = first; k < first + count; ++k) dx[k] = compute_t<T>(x[k]) <= 0 ? T(0) : dx[k];
  }
}

template <class T> void conv_backward_of(const Call& call) {
  using V = compute_t<T>;
  const Tensor &dy = call.in[0], &x = call.in[1];
  const Tensor saved = optional_input(call.in, 2), weight = optional_input(call.in, 3);
  const auto& attrs = call.as<Conv2dGradAttrs>();
  const Conv2dSizes z = conv2d_sizes_before_pooling(x, call.out[0], dy, attrs);
  const conv::Correlation g{z};
  conv::correlate_gradient<T>(
      g, conv::image_source<T>(g, x.data<T>()),
      [&](const conv::Part& part, V* tile) {
        RowsOfDz<T> dz(part, dy, saved);
        for (int64_t o = 0; o < g.o; ++o) {
          for (int64_t p = part.first; p < part.first + part.rows;
               ++p, tile += g.q * conv::kImages<V>)
            dz(o, p, 0, g.q, tile);
        }
      },
      call.out[0].data<V>(), call.out[1].data<V>());
  if (!weight.defined()) return;
  const conv::Correlation d = conv::input_grad_of(z);
  conv::correlate<T>(
      d, conv::Parts<V>(d, 2 * num_threads()),
      [&](const conv::Part& part, V* tile) {
        RowsOfDz<T> dz(part, dy, saved);
        conv::load_tile(d, part.first, d.tile_rows(part.rows), dz, tile);
      },
      conv::turned_weights_of<T>(weight), conv::bias_of<T>({}),
      [&, to = conv::ImageSink<T>{d, call.out[2].data<T>()}](
          const conv::Part& part, const V* tile) {
        to(part, tile);
        if (attrs.relu) keep_where_relu_passes(d, part, x.data<T>(), to.y);
      });
}
void conv_backward_cpu(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) { conv_backward_of<T>(call); });
}

Tensors gradients(const Tensor& dz, const Tensor& x, const Tensor& weight, const Attrs& attrs) {
  const auto& a = attrs.as<Conv2dGradAttrs>();
  Tensors out{apply1(kConv2dWeightGradOp, {dz, x}, a, Role::wgrad),
      apply1(kConv2dBiasGradOp, {dz}, {}, Role::bgrad)};
  if (!weight.defined()) return out;
  const Conv2dGradAttrs of_x{a.stride_h, a.stride_w, a.pad_h, a.pad_w, x.size(2), x.size(3)};
  const Tensor dx = apply1(kConv2dInputGradOp, {dz, weight}, of_x, Role::dgrad);
  out.push_back(a.relu ? act_backward_reference(Act::relu, dx, x) : dx);
  return out;
}
Tensors conv_act_backward_reference(Operands in, const Attrs& attrs) {
  const Tensor y = optional_input(in, 2);
  const Tensor dz = y.defined() ? act_backward_reference(Act::relu, in[0], y) : in[0];
  return gradients(dz, in[1], optional_input(in, 3), attrs);
}
Tensors conv_act_pool_backward_reference(Operands in, const Attrs& attrs) {
  const char* op = "conv_act_pool_backward";
  const auto& a = attrs.as<Conv2dGradAttrs>();
  const Tensor &dy = in[0], &x = in[1];
  check_rank(op, "dy", dy, 4);
  check_rank(op, "x", x, 4);
  const Shape z = conv2d_shape(op, x, {dy.size(1), x.size(1), a.height, a.width},
      {a.stride_h, a.stride_w, a.pad_h, a.pad_w});
  Pool2dBackwardAttrs whole;
  whole.height = z[2];
  whole.width = z[3];
  const Tensor dz = apply1(kMaxPool2dBackwardOp, {dy, in[2]}, whole);
  return gradients(dz, x, optional_input(in, 3), attrs);
}

// Another y that broadcasts to dy is for the plain op alone.
std::string limit(Operands in, const Attrs&) {
  const Tensor y = optional_input(in, 2);
  if (!y.defined() || y.shape() == in[0].shape()) return "";
  return str("y is ", y.describe(), "; it must be of dy's shape ", in[0].shape().str());
}

std::vector<Form> conv_backward_forms(bool pooled) {
  const Shape y = pooled ? Shape{2, 4, 2, 2} : Shape{2, 4, 5, 4};
  const Tensors in{Tensor::meta(y), Tensor::meta({2, 3, 7, 6}),
      Tensor::meta(y, pooled ? DType::u8 : DType::f32)};
  Tensors with_weight = in;
  with_weight.push_back(Tensor::meta({4, 3, 3, 3}));
  const Conv2dGradAttrs attrs{.height = 3, .width = 3};
  return {{with_weight, attrs}, {in, attrs}};
}

}  // namespace

const OpDef kConvActPoolOp = listed<kConvActPoolOp>(
    {.formula = "y = relu(max of 2 x 2 of (conv2d(x, W) + b)), and the maxima's places",
        .min_inputs = 2,
        .max_inputs = 3,
        .attrs = attr_type<Conv2dAttrs>(),
        .cpu = conv_act_pool_cpu,
        .reference = conv_act_pool_reference,
        .forms = conv_act_pool_forms});
const OpDef kConvActBackwardOp = listed<kConvActBackwardOp>(
    {.formula = "dz = 0 where y <= 0, else dy; dW, db, dx as of conv2d from dz; relu: dx = 0 where "
                "x <= 0",
        .min_inputs = 2,
        .max_inputs = 4,
        .attrs = attr_type<Conv2dGradAttrs>(),
        .cpu = conv_backward_cpu,
        .reference = conv_act_backward_reference,
        .limit = limit,
        .forms = [] { return conv_backward_forms(false); }});
const OpDef kConvActPoolBackwardOp = listed<kConvActPoolBackwardOp>(
    {.formula =
            "dz = dy at its window's maximum, if it has a place; dW, db, dx as of conv2d; relu: "
            "dx = 0 where x <= 0",
        .min_inputs = 3,
        .max_inputs = 4,
        .attrs = attr_type<Conv2dGradAttrs>(),
        .cpu = conv_backward_cpu,
        .reference = conv_act_pool_backward_reference,
        .forms = [] { return conv_backward_forms(true); }});

}  // namespace sinter
