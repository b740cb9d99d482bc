// conv2d and its three gradients; dense NCHW throughout.
//   y[n, o, p, q] = bias[o] + sum_crs x[n, c, h, w] weight[o, c, r, s]
//     where h = p stride_h - pad_h + r and w = q stride_w - pad_w + s; x is 0 beyond its borders
//   dx, dweight: the same products, summed over what else an element of them takes part in
//   dbias[o] = sum_npq dy[n, o, p, q]
#include "ops/image/conv2d.h"

#include <climits>

#include "ops/image/conv2d_cpu.h"
#include "ops/kernels.h"
#include "ops/rows/row_loops.h"

namespace sinter {

namespace conv {
SINTER_IMAGE_LANES(, float, float);
SINTER_IMAGE_LANES(, double, double);
SINTER_IMAGE_LANES(, bf16, float);
}  // namespace conv

namespace {

// The shape of y for an x and a weight of these shapes. `facts` describes the operands of `op`,
// which may be gradients of the same shapes.
template <class Facts>
Shape output_shape(
    const char* op, const Shape& x, const Shape& weight, const Conv2dAttrs& a, const Facts& facts) {
  const auto in = [](int64_t v, int64_t low) { return v >= low && v <= INT_MAX; };
  SINTER_CHECK(in(a.stride_h, 1) && in(a.stride_w, 1) && in(a.pad_h, 0) && in(a.pad_w, 0), shape,
      str(op, ": no such stride or padding: ", facts(), "; stride is [", a.stride_h, ", ",
          a.stride_w, "], allowed 1..", INT_MAX, "; padding is [", a.pad_h, ", ", a.pad_w,
          "], allowed 0..", INT_MAX));
  SINTER_CHECK(std::min({weight[0], weight[1], weight[2], weight[3], x[2], x[3]}) > 0, shape,
      str(op, ": nothing to multiply: ", facts(), "; x is ", x.str(), ", weight ", weight.str(),
          "; sizes must be at least 1, but for the batch"));
  Shape y{x[0], weight[0]};
  for (const int d : {2, 3}) {
    const int64_t pad = d == 2 ? a.pad_h : a.pad_w, stride = d == 2 ? a.stride_h : a.stride_w;
    const int64_t padded = x[d] + 2 * pad;
    SINTER_CHECK(weight[d] <= padded, shape,
        str(op, ": the kernel is larger than the padded input: ", facts(), "; ", weight[d], " ",
            d == 2 ? "rows" : "columns", " of the kernel, ", x[d], " + 2 * ", pad, " of x"),
        str("a padding of at least ", (weight[d] - x[d] + 1) / 2));
    y.push_back((padded - weight[d]) / stride + 1);
  }
  return y;
}

Tensors infer(Operands in, const Attrs& attrs) {
  const Tensor &x = in[0], &weight = in[1];
  const auto facts = [&] { return describe({{"x", &x}, {"weight", &weight}}); };
  const Shape y = output_shape("conv2d", x.shape(), weight.shape(), attrs.as<Conv2dAttrs>(), facts);
  return {Tensor::shape_only(y, x.dtype(), x.device())};
}

// Of the gradient of x or of weight, which has the shape `made`: does dy have that of y?
template <const OpDef& op> void check_gradient(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<Conv2dGradAttrs>();
  const Tensor &dy = in[0], &other = in[1];
  const bool of_x = &op == &kConv2dInputGradOp;
  const auto facts = [&] { return describe({{"dy", &dy}, {of_x ? "weight" : "x", &other}}); };
  const Shape made{dy.size(of_x ? 0 : 1), other.size(1), a.height, a.width};
  const Shape y = output_shape(op.name.c_str(), of_x ? made : other.shape(),
      of_x ? other.shape() : made, {a.stride_h, a.stride_w, a.pad_h, a.pad_w}, facts);
  SINTER_CHECK(dy.shape() == y, shape,
      str(op.text(), ": dy does not fit: ", facts(), "; ", of_x ? "x" : "weight", " is ",
          made.str(), ", so dy must be ", y.str()));
}

Cost forward_cost(Operands in, Operands out, const Attrs&) {
  const int64_t bias = optional_input(in, 2).defined() ? out[0].numel() : 0;
  return cost_of(2 * out[0].numel() * numel_of_dims(in[1], 1) + bias, in, out);
}
Cost input_grad_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(2 * in[0].numel() * numel_of_dims(in[1], 1), in, out);
}
Cost weight_grad_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(2 * in[0].numel() * numel_of_dims(out[0], 1), in, out);
}
Cost bias_grad_cost(Operands in, Operands out, const Attrs&) {
  return cost_of(in[0].numel(), in, out);
}

void forward_cpu(const Call& call) {
  const conv::Correlation g{conv2d_sizes(call)};
  const Tensor bias = optional_input(call.in, 2);
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    conv::correlate<T>(g, conv::Parts<V>(g, 2 * num_threads()),
        conv::image_source<T>(g, call.in[0].data<T>()), conv::weights_of<T>(call.in[1]),
        conv::bias_of<T>(bias), conv::ImageSink<T>{g, call.out[0].data<T>()});
  });
}

void input_grad_cpu(const Call& call) {
  const conv::Correlation g = conv::input_grad_of(conv2d_input_grad_sizes(call));
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    conv::correlate<T>(g, conv::Parts<V>(g, 2 * num_threads()),
        conv::image_source<T>(g, call.in[0].data<T>()), conv::turned_weights_of<T>(call.in[1]),
        conv::bias_of<T>({}), conv::ImageSink<T>{g, call.out[0].data<T>()});
  });
}

void weight_grad_cpu(const Call& call) {
  const conv::Correlation g{conv2d_weight_grad_sizes(call)};
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    conv::correlate_gradient<T>(g, conv::image_source<T>(g, call.in[1].data<T>()),
        conv::gradient_source<T>(g, call.in[0].data<T>()), call.out[0].data<V>());
  });
}

// A channel is one thread's, image by image, so the number of threads does not show.
void bias_grad_cpu(const Call& call) {
  const Tensor& dy = call.in[0];
  const int64_t batch = dy.size(0), channels = dy.size(1), plane = dy.size(2) * dy.size(3);
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const int64_t bytes = batch * plane * static_cast<int64_t>(sizeof(T));
    parallel_for(channels, grain_of(bytes), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        double sum = 0;  // of many images, so it has the room
        for (int64_t n = 0; n < batch; ++n) {
          const T* x = dy.data<T>() + (n * channels + o) * plane;
          sum += double(row_sum<V>(plane, [&](int64_t i) { return V(x[i]); }));
        }
        call.out[0].data<V>()[o] = V(sum);
      }
    });
  });
}

Tensors backward(const Saved& saved, Operands grads) {
  const auto& a = saved.as<Conv2dAttrs>();
  const Tensor &dy = grads[0], &x = saved.in[0], &weight = saved.in[1];
  const auto with_sizes_of = [&](const Tensor& t) {
    return Conv2dGradAttrs{a.stride_h, a.stride_w, a.pad_h, a.pad_w, t.size(2), t.size(3)};
  };
  Tensors out(saved.in.size());
  if (saved.wants(1))
    out[1] = apply1(kConv2dWeightGradOp, {dy, x}, with_sizes_of(weight), Role::wgrad);
  if (saved.wants(2)) out[2] = apply1(kConv2dBiasGradOp, {dy}, {}, Role::bgrad);
  if (saved.wants(0))
    out[0] = apply1(kConv2dInputGradOp, {dy, weight}, with_sizes_of(x), Role::dgrad);
  return out;
}

}  // namespace

const OpDef kConv2dOp = listed<kConv2dOp>(
    {.formula = "y[n, o, p, q] = b[o] + sum over c, r, s of x[n, c, p + r, q + s] W[o, c, r, s]",
        .attrs = attr_type<Conv2dAttrs>(),
        .infer = infer,
        .cost = forward_cost,
        .cpu = forward_cpu,
        .backward = backward,
        .saves_in = 0b11});
const OpDef kConv2dInputGradOp = listed<kConv2dInputGradOp>(
    {.formula = "dx[n, c, h, w] = sum over o, r, s of dy[n, o, h - r, w - s] W[o, c, r, s]",
        .attrs = attr_type<Conv2dGradAttrs>(),
        .check = check_gradient<kConv2dInputGradOp>,
        .cost = input_grad_cost,
        .cpu = input_grad_cpu});
const OpDef kConv2dWeightGradOp = listed<kConv2dWeightGradOp>(
    {.formula = "dW[o, c, r, s] = sum over n, p, q of dy[n, o, p, q] x[n, c, p + r, q + s]",
        .attrs = attr_type<Conv2dGradAttrs>(),
        .check = check_gradient<kConv2dWeightGradOp>,
        .cost = weight_grad_cost,
        .cpu = weight_grad_cpu});
const OpDef kConv2dBiasGradOp =
    listed<kConv2dBiasGradOp>({.formula = "db[o] = sum over n, p, q of dy[n, o, p, q]",
        .cost = bias_grad_cost,
        .cpu = bias_grad_cpu});

Shape conv2d_shape(const char* op, const Tensor& x, const Shape& weight, const Conv2dAttrs& attrs) {
  check_rank(op, "x", x, 4);
  return output_shape(op, x.shape(), weight, attrs, [&] { return describe({{"x", &x}}); });
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dAttrs& attrs) {
  Tensors in{x, weight};
  if (bias.defined()) in.push_back(bias);
  return apply1(kConv2dOp, std::move(in), attrs);
}

}  // namespace sinter
