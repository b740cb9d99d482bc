#include "ops/fused/product_chain.h"

#include "ops/image/conv2d_cpu.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/product/matrix_view.h"
#include "ops/rows/row_loops.h"

// B batch, I in, O out
namespace sinter {

Form example_of(const ProductChainAttrs& attrs) {
  const bool conv = attrs.product == ProductKind::conv2d,
             of_dy = attrs.product == ProductKind::matmul;
  std::vector<Shape> shapes{{2, 3}, {4, 3}, {4}};
  if (conv) shapes = {{2, 3, 7, 6}, {4, 3, 3, 3}, {4}};
  if (of_dy) shapes = {{2, 4}, {4, 3}, {}};
  shapes.resize(attrs.first_operand(), Shape{4});
  shapes.resize(
      shapes.size() + size_t(attrs.program.n_inputs - 1), of_dy ? Shape{2, 3} : Shape{2, 4});
  Form form{{}, attrs};
  for (const Shape& shape : shapes) form.in.push_back(Tensor::meta(shape));
  if (of_dy) form.in[2] = {};  // it has no bias
  return form;
}

namespace {

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<ProductChainAttrs>();
  const Tensor bias = optional_input(in, 2);
  Tensors values;
  switch (a.product) {
    case ProductKind::linear: values = {linear_to(in[0], in[1], bias, a.out)}; break;
    case ProductKind::matmul:
      for (const Tensor& t : in.first(2)) check_rank("product_chain", "an operand", t, 2);
      values = {matmul_as(in[0], in[1], false, false, a.out, Role::dgrad)};
      break;
    case ProductKind::conv2d:
      values = {conv2d(in[0], in[1], bias, {a.stride_h, a.stride_w, a.pad_h, a.pad_w})};
  }
  if (a.normed) values[0] = batch_norm2d_eval(values[0], in[3], in[4], in[5], in[6], a.eps);
  for (const Tensor& t : a.operands(in)) values.push_back(t);
  // Gates have their name already when the product in front is looked for.
  const ChainAttrs end{a.program, a.merged};
  if (a.merged || !(label_of_chain(end) == kPointwiseChainOp.name))
    return call_fused(kPointwiseChainOp, values, end);
  return chain_results(a.program, values);
}

// What capture finds, for tests and documents: its rule knows no list.
std::vector<Form> forms() {
  std::vector<Form> all;
  for (const auto& [kind, text] : {std::pair(ProductKind::matmul, "2;add(0,1);gelu(2);3"),
           {ProductKind::linear, "2;add(0,1);tanh(2);2,3"},
           {ProductKind::conv2d, "1;scale:0.5(0);relu(1);2,0"}}) {
    ProductChainAttrs attrs{.product = kind};
    parse_value(text, attrs.program);
    all.push_back(example_of(attrs));
  }
  return all;
}

// The shape of the product. REQUIRES: the reference takes the operands.
Shape product_shape(const ProductChainAttrs& a, Operands in) {
  if (a.product == ProductKind::conv2d)
    return conv2d_shape("conv2d", in[0], in[1].shape(), {a.stride_h, a.stride_w, a.pad_h, a.pad_w});
  return {in[0].size(0), in[1].size(a.product == ProductKind::linear ? 0 : 1)};
}

// What the plain ops would take and the kernels do not.
std::string limit(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<ProductChainAttrs>();
  if (const int live = code_of(a.program).registers; live > kChainRegisters)
    return str("the steps need ", live, " values at once; at most ", kChainRegisters);
  const Shape shape = product_shape(a, in);
  const DType type = a.type_of_results(in);
  for (const Tensor& t : a.operands(in)) {
    const auto b = broadcast_of(t, shape);
    const bool of_channels = b && b->inner * b->period * shape[0] == shape.numel();
    const bool fits =
        a.product == ProductKind::conv2d
            ? b && (b->full || b->period == 1 || (of_channels && b->period == shape[1]))
            : b || t.shape() == shape;
    if (fits && t.dtype() == type) continue;
    return str("what the steps read does not fit: it is ", t.describe(), "; it must be ",
        name_of(type), shape.str(), " or broadcast, of a convolution a number for each channel");
  }
  return "";
}

Tensors infer(Operands in, const Attrs& attrs) {
  const auto& a = attrs.as<ProductChainAttrs>();
  const profiler::StaticName name = label_of_product(attrs);
  const size_t given = a.operands(in).size();
  SINTER_CHECK(is_valid(a.program, true) && size_t(a.program.n_inputs) == given + 1, shape,
      str(name, ": ", given, " operands behind the product; not for them is the program ",
          a.program.n_inputs, " operands with the product, ", a.program.n_steps, " steps, ",
          a.program.n_outputs, " results; allowed 1..", kChainInputs, ", 0..", kChainSteps, ", 1..",
          kChainOutputs, ", each value made before it is read"));
  for (size_t i = 3; i < std::max(in.size(), a.first_operand()); ++i)
    check_defined(name.c_str(), "an operand", optional_input(in, i));
  const bool matmul = a.product == ProductKind::matmul, conv = a.product == ProductKind::conv2d;
  const Tensor bias = optional_input(in, 2);
  SINTER_CHECK((conv || !a.normed) && !(matmul && bias.defined()) &&
                   (!a.merged || (!conv && a.program.n_outputs == 2)),
      shape,
      str(name, ": the product is ", print_value(a.product),
          bias.defined() ? str(" with the bias ", bias.describe()) : "", a.normed ? ", normed" : "",
          a.merged ? str(", its results ", a.program.n_outputs, " halves") : "",
          "; a matmul has no bias, only a conv2d is normed, only two results of others are "
          "halves"));
  const Tensors out = infer_by_reference(kProductChainOp, in, attrs);
  for (const Tensor& t : out) {
    SINTER_CHECK(a.merged || t.shape() == product_shape(a, in), shape,
        str(name, ": a result is made of broadcast operands alone: it is ", t.describe(),
            ", the product ", product_shape(a, in).str(), "; they must be equal"));
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
template <class T, class V = compute_t<T>>
void run(const Call& call, const ProductChainAttrs& end) {
  const ChainProgram& p = end.program;
  const MatrixView a(call.in[0]), b(call.in[1]);
  const Tensor bias = optional_input(call.in, 2);
  const RowSteps<V, T> steps(p, end.operands(call.in), call.out, end.merged);
  const ResultRows<T>& out = steps.out;
  const int64_t rows = call.out[0].size(0), cols = out.cols;
  Gemm whole = gemm_of(a, false, b, end.product == ProductKind::linear, dtype_of<V>);
  if (bias.defined()) whole.bias = bias.dtype();
  const int64_t a_row = int64_t(size_of(a.dtype)) * (a.trans ? 1 : a.ld);
  constexpr bool kInPlace = std::is_same_v<T, V>;
  const void* const shift = bias.defined() ? bias.raw() : nullptr;
  if (!kInPlace && gemm_blocks_are_rows(whole)) {
    const auto take = [&](const GemmBlock& block) {
      steps(static_cast<const V*>(block.c), block.ld, block.i, block.rows);
    };
    return gemm_blocks(whole, a.data, b.data, std::ref(take), shift);
  }
  for_panels(rows, cols * int64_t(sizeof(V)), kInPlace, [&](int64_t first, int64_t n) {
    V* sums = nullptr;
    int64_t step = cols;
    if constexpr (kInPlace) {
      sums = out.data[place_of_sums(p)] + first * out.step;
      step = out.step;
    } else {
      sums = thread_buffer<V, BufferFor::sums>(n * cols);
    }
    Gemm panel = whole;
    panel.m = n;
    panel.ldc = std::max<int64_t>(step, 1);
    gemm(panel, static_cast<const char*>(a.data) + first * a_row, b.data, shift, sums);
    steps(sums, step, first, n);
  });
}

// The steps over a part of the images, whose results are a tile.
template <class T, class V = compute_t<T>>
void run_convolution(const Call& call, const ProductChainAttrs& end) {
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
  const auto bias = conv::bias_of<T>(optional_input(call.in, 2));
  if (!end.normed) return conv::correlate<T>(g, parts, images, weight, bias, finish);
  V *scale = thread_buffer<V, BufferFor::scale>(2 * g.o), *shift = scale + g.o;
  for (int64_t o = 0; o < g.o; ++o) {
    const auto of = [&](size_t i) { return V(call.in[i].template data<T>()[o]); };
    scale[o] = of(3) / math::sqrt(of(6) + static_cast<V>(end.eps));
    shift[o] = (bias(o) - of(5)) * scale[o] + of(4);
  }
  // The products are of V, not T: a scaled weight is no bf16.
  const conv::LanesProduct<V> product(
      g, [&](int64_t o, int64_t c, int64_t r, int64_t s) { return weight(o, c, r, s) * scale[o]; },
      [&](int64_t o) { return shift[o]; });
  conv::correlate_by(product, g, parts, images, finish);
}

void cpu(const Call& call) {
  const auto& end = call.as<ProductChainAttrs>();
  visit_float(call.out[0].dtype(), [&]<class T>(T) {
    if (end.product == ProductKind::conv2d) return run_convolution<T>(call, end);
    run<T>(call, end);
  });
}

}  // namespace

const OpDef kProductChainOp =
    listed<kProductChainOp>({.formula = "linear, matmul or conv2d, then a program of pointwise ops",
        .min_inputs = 2,
        .max_inputs = 6 + kChainInputs,
        .attrs = attr_type<ProductChainAttrs>(),
        .infer = infer,
        .cpu = cpu,
        .strided_of =
            [](size_t, size_t, const Attrs& attrs) {
              return attrs.as<ProductChainAttrs>().product != ProductKind::conv2d;
            },
        .reference = reference,
        .limit = limit,
        .forms = forms,
        .label = label_of_product});

}  // namespace sinter
