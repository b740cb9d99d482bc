#include "ops/fused/product_chain.h"

#include "ops/image/conv2d_cpu.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"
#include "ops/rows/row_loops.h"

// B batch, I in, O out
namespace sinter {

ProductEnd end_of(const LinearActAttrs& a) {
  return {.product = ProductKind::linear, .program = act_program(a.act, a.keep), .biased = true};
}
ProductEnd end_of(const InputGradActAttrs& a) {
  return {.product = ProductKind::matmul, .program = act_grad_program(a.act)};
}
ProductEnd end_of(const GluAttrs& a) {
  return {.product = ProductKind::matmul, .program = gate_grad_program(a.act), .halves = a.merged};
}
ProductEnd end_of(const ConvActAttrs& a) {
  return {ProductKind::conv2d, act_program(a.act, a.keep), true, false, a.stride_h, a.stride_w,
      a.pad_h, a.pad_w};
}
ProductEnd end_of(const ConvNormActAttrs& a) {
  return {ProductKind::conv2d, act_program(a.act), true, false, a.stride_h, a.stride_w, a.pad_h,
      a.pad_w, true, a.eps};
}
ProductEnd end_of(const ProductChainAttrs& a) {
  return {a.product, a.program, true, false, a.stride_h, a.stride_w, a.pad_h, a.pad_w};
}

namespace {

// Of the results. bf16 operands may give f32, where the attributes say so.
template <class A> DType type_of(const A& attrs, Operands in) {
  if constexpr (requires { attrs.out; }) return attrs.out;
  return in[0].dtype();
}

template <class A> Tensors reference(Operands in, const Attrs& attrs) {
  const A& a = attrs.as<A>();
  const ProductEnd end = end_of(a);
  const DType out = type_of(a, in);
  const Tensor bias = end.bias(in);
  Tensors values;
  switch (end.product) {
    case ProductKind::linear: values = {linear_to(in[0], in[1], bias, out)}; break;
    case ProductKind::matmul:
      values = {matmul_as(in[0], in[1], false, false, out, Role::dgrad)};
      break;
    case ProductKind::conv2d:
      values = {conv2d(in[0], in[1], bias, {end.stride_h, end.stride_w, end.pad_h, end.pad_w})};
  }
  if (end.normed) values[0] = batch_norm2d_eval(values[0], in[2], in[3], in[4], in[5], end.eps);
  for (size_t i = end.first_operand(); i < in.size(); ++i) values.push_back(in[i]);
  if constexpr (std::is_same_v<A, GluAttrs>) return call_fused(kGluBackwardOp, values, attrs);
  return chain_results(end.program, values);
}

// What capture finds, for tests and documents: its rule knows no list.
template <class A> std::vector<Form> forms() {
  const Tensor dy = Tensor::meta({2, 4}), down = Tensor::meta({4, 3}), h = Tensor::meta({2, 3});
  const Tensors linear{Tensor::meta({2, 3}), Tensor::meta({4, 3}), Tensor::meta({4})},
      image{Tensor::meta({2, 3, 7, 6}), Tensor::meta({4, 3, 3, 3}), Tensor::meta({4})};
  std::vector<Form> all;
  if constexpr (std::is_same_v<A, GluAttrs>) {
    for (const bool merged : {false, true})
      all.push_back({{dy, down, h, h}, GluAttrs{.merged = merged}});
  } else if constexpr (std::is_same_v<A, ProductChainAttrs>) {
    const auto add = [&](ProductKind kind, Tensors in, std::string_view program) {
      A attrs{.product = kind};
      parse_value(program, attrs.program);
      all.push_back({std::move(in), attrs});
    };
    add(ProductKind::matmul, {dy, down, {}, h}, "2;add(0,1);gelu(2);3");
    add(ProductKind::linear, {linear[0], linear[1], linear[2], dy}, "2;add(0,1);tanh(2);2,3");
    add(ProductKind::conv2d, image, "1;scale:0.5(0);relu(1);2,0");
  } else if constexpr (std::is_same_v<A, ConvNormActAttrs>) {
    Tensors in{image[0], image[1]};
    while (in.size() < 7) in.push_back(Tensor::meta({4}));
    // The eps is the step's; this one is for tests, which draw a variance above -4.
    for (const Act act : kActivations) all.push_back({in, A{.act = act, .eps = 4}});
    all.push_back({in, A{.act = Act::none, .eps = 4}});
  } else if constexpr (std::is_same_v<A, InputGradActAttrs>) {
    for (const Act act : kActivations) all.push_back({{dy, down, h}, A{act}});
  } else {
    const Tensors& in = std::is_same_v<A, ConvActAttrs> ? image : linear;
    for (const Act act : kActivations) {
      for (const bool keep : {false, true}) all.push_back({in, A{.act = act, .keep = keep}});
    }
  }
  return all;
}

// The shape of the product. REQUIRES: the reference takes the operands.
Shape product_shape(const ProductEnd& end, Operands in) {
  if (end.product == ProductKind::conv2d)
    return conv2d_shape(
        "conv2d", in[0], in[1].shape(), {end.stride_h, end.stride_w, end.pad_h, end.pad_w});
  return {in[0].size(0), in[1].size(end.product == ProductKind::linear ? 0 : 1)};
}

// What the plain ops would take and the kernels do not.
template <class A> std::string limit(Operands in, const Attrs& attrs) {
  const A& a = attrs.as<A>();
  const ProductEnd end = end_of(a);
  if (const int live = code_of(end.program).registers; live > kChainRegisters)
    return cat("the steps need ", live, " values at once; at most ", kChainRegisters);
  const Shape shape = product_shape(end, in);
  const DType type = type_of(a, in);
  for (size_t i = end.first_operand(); i < in.size(); ++i) {
    const auto b = broadcast_of(in[i], shape);
    const bool of_channels = b && b->inner * b->period * shape[0] == shape.numel();
    const bool fits =
        end.product == ProductKind::conv2d
            ? b && (b->full || b->period == 1 || (of_channels && b->period == shape[1]))
            : b || in[i].shape() == shape;
    if (fits && in[i].dtype() == type) continue;
    return cat("what the steps read does not fit: it is ", in[i].describe(), "; it must be ",
        name_of(type), shape.str(), " or broadcast, of a convolution a number for each channel");
  }
  return "";
}

template <const OpDef& op, class A> Tensors infer(Operands in, const Attrs& attrs) {
  const ProductEnd end = end_of(attrs.as<A>());
  const size_t first = end.first_operand(), given = in.size() > first ? in.size() - first : 0;
  SINTER_CHECK(is_valid(end.program, true) && size_t(end.program.n_inputs) == given + 1, shape,
      cat(op.text(), ": ", given, " operands behind the product; not for them is the program ",
          end.program.n_inputs, " operands with the product, ", end.program.n_steps, " steps, ",
          end.program.n_outputs, " results; allowed 1..", kChainInputs, ", 0..", kChainSteps,
          ", 1..", kChainOutputs, ", each value made before it is read"));
  for (size_t i = first; i < in.size(); ++i) check_defined(op.name.c_str(), "an operand", in[i]);
  Tensors out = infer_by_reference(op, in, attrs);
  for (const Tensor& t : out) {
    SINTER_CHECK(end.halves || t.shape() == product_shape(end, in), shape,
        cat(op.text(), ": a result is made of broadcast operands alone: it is ", t.describe(),
            ", the product ", product_shape(end, in).str(), "; they must be equal"));
  }
  return out;
}

// Which result's memory the sums may have until the steps have run: that of the one that they are.
size_t place_of_sums(const ChainProgram& p) {
  for (int r = 0; r < p.n_outputs; ++r) {
    if (p.outputs[r] == 0) return size_t(r);
  }
  return 0;
}

// x W^T + b, or dy W, panel by panel of rows. T: the type of the results and of the steps'
// operands; V that of the sums, which lie where a result goes, if they are of its type.
template <class T, class V = compute_t<T>> void run(const Call& call, const ProductEnd& end) {
  const ChainProgram& p = end.program;
  const MatrixView a(call.in[0]), b(call.in[1]);
  const Tensor bias = end.bias(call.in);
  const RowSteps<V, T> steps(p, end.operands(call.in), call.out, end.halves);
  const ResultRows<T>& out = steps.out;
  const int64_t rows = call.out[0].size(0), cols = out.cols;
  Gemm gemm_of_panel = gemm_of(a, false, b, end.product == ProductKind::linear, dtype_of<V>);
  if (bias.defined()) gemm_of_panel.bias = bias.dtype();
  const int64_t a_row = int64_t(size_of(a.dtype)) * (a.trans ? 1 : a.ld);
  for_panels(rows, cols * int64_t(sizeof(V)), [&](int64_t first, int64_t n) {
    V* sums = nullptr;
    int64_t step = cols;
    if constexpr (std::is_same_v<T, V>) {
      sums = out.data[place_of_sums(p)] + first * out.step;
      step = out.step;
    } else {
      sums = thread_buffer<V, BufferFor::sums>(n * cols);
    }
    gemm_of_panel.m = n;
    gemm_of_panel.ldc = std::max<int64_t>(step, 1);
    gemm(gemm_of_panel, static_cast<const char*>(a.data) + first * a_row, b.data,
        bias.defined() ? bias.raw() : nullptr, sums);
    steps(sums, step, first, n);
  });
}

// The steps over a part of the images, whose results are a tile.
template <class T, class V = compute_t<T>>
void run_convolution(const Call& call, const ProductEnd& end) {
  const ChainProgram& p = end.program;
  const conv::Correlation g{conv2d_sizes(call.in[0], call.in[1], call.out[0], end)};
  const ChainLoop<V, V> loop(p);
  const auto finish = [&](const conv::Part& part, V* z) {
    const int64_t n = g.o * part.rows * g.q * conv::kImages<V>;
    V* const more = thread_buffer<V, BufferFor::end_operands>((p.n_inputs + p.n_outputs - 1) * n);
    const V* in[kChainInputs];
    V* to[kChainOutputs];
    const size_t sums = place_of_sums(p);
    for (int k = 1; k < p.n_inputs; ++k) {
      V* const tile = more + (k - 1) * n;
      const Tensor& operand = call.in[end.first_operand() + size_t(k - 1)];
      const T* const x = operand.template data<T>();
      if (operand.numel() == call.out[0].numel()) {
        conv::gradient_source<T>(g, x)(part, tile);
      } else {  // a number for each channel, or one for all
        for (int64_t o = 0; o < g.o; ++o)
          std::fill_n(tile + o * (n / g.o), n / g.o, V(x[operand.numel() == 1 ? 0 : o]));
      }
      in[k - 1] = tile;
    }
    for (int r = 0; r < p.n_outputs; ++r) to[r] = more + (p.n_inputs + r - 1) * n;
    to[sums] = z;
    loop(z, in, to, n);
    for (int r = 0; r < p.n_outputs; ++r)
      conv::ImageSink<T>{g, call.out[size_t(r)].template data<T>()}(part, to[r]);
  };
  const conv::Parts<V> parts(g, 2 * num_threads());
  const auto images = conv::image_source<T>(g, call.in[0].template data<T>());
  const auto weight = conv::weights_of<T>(call.in[1]);
  const auto bias = conv::bias_of<T>(end.bias(call.in));
  if (!end.normed) return conv::correlate<T>(g, parts, images, weight, bias, finish);
  V *scale = thread_buffer<V, BufferFor::scale>(2 * g.o), *shift = scale + g.o;
  for (int64_t o = 0; o < g.o; ++o) {
    const auto of = [&](size_t i) { return V(call.in[i].template data<T>()[o]); };
    scale[o] = of(2) / math::sqrt(of(5) + static_cast<V>(end.eps));
    shift[o] = (bias(o) - of(4)) * scale[o] + of(3);
  }
  // The products are of V, not T: a scaled weight is no bf16.
  const conv::LanesProduct<V> product(
      g, [&](int64_t o, int64_t c, int64_t r, int64_t s) { return weight(o, c, r, s) * scale[o]; },
      [&](int64_t o) { return shift[o]; });
  conv::correlate_by(product, g, parts, images, finish);
}

template <class A> void cpu(const Call& call) {
  const ProductEnd end = end_of(call.as<A>());
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    if (end.product == ProductKind::conv2d) return run_convolution<T>(call, end);
    run<T>(call, end);
  });
}

// `least` to `most` inputs, those of the bits `any_strides` of any strides.
template <const OpDef& op, class A>
constexpr OpDef chain_op(Formula formula, int least, int most, uint32_t any_strides = 0) {
  return listed<op>({.formula = formula,
      .min_inputs = least,
      .max_inputs = most,
      .attrs = attr_type<A>(),
      .infer = infer<op, A>,
      .cpu = cpu<A>,
      .strided = any_strides,
      .reference = reference<A>,
      .limit = limit<A>,
      .forms = forms<A>});
}

}  // namespace

const OpDef kLinearActOp = chain_op<kLinearActOp, LinearActAttrs>(
    "y = act(x W^T + b), and x W^T + b if it is kept", 2, 3, 0b11);
const OpDef kInputGradActOp =
    chain_op<kInputGradActOp, InputGradActAttrs>("dx = (dy W) act'(saved)", 3, 3, 0b11);
const OpDef kGatedLinearBackwardOp = chain_op<kGatedLinearBackwardOp, GluAttrs>(
    "dh = dy Wd, du = dh act(g), dg = dh u act'(g)", 4, 4, 0b1111);
const OpDef kConvActOp = chain_op<kConvActOp, ConvActAttrs>(
    "y = act(conv2d(x, W) + b), and its operand if it is kept", 2, 3);
const OpDef kConvNormActOp = chain_op<kConvNormActOp, ConvNormActAttrs>(
    "y = act(batch_norm2d_eval(conv2d(x, W) + b)), as one convolution", 6, 7);
const OpDef kProductChainOp = chain_op<kProductChainOp, ProductChainAttrs>(
    "linear, matmul or conv2d, then a program of pointwise ops", 2, 2 + kChainInputs);

// The weights of several linears of one input are row blocks of one storage, and their outputs
// column blocks of one result: `linear` under its own name.
const OpDef kMergeLinearOp =
    listed<kMergeLinearOp>({.formula = "y = x W^T + b, W and b of several linears below each other",
        .min_inputs = 2,
        .max_inputs = 3,
        .attrs = attr_type<LinearAttrs>(),
        .cpu = [](const Call& call) { kLinearOp.cpu(call); },
        .strided = 0b11,
        .reference =
            [](Operands in, const Attrs& attrs) {
              return apply(kLinearOp, Tensors(in.begin(), in.end()), attrs);
            }});

}  // namespace sinter
