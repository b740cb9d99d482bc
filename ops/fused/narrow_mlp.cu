// narrow_mlp: a chain of layers z = W a + b, a' = act(z), cross entropy, and all gradients, in one
// launch. A block takes 64 rows at a time, every grid-th 64: weights, activations and gradients of
// rows stay in its shared memory; dW and db of its rows go to partial sums of its own, each element
// always by the same thread. The block that arrives last adds the partial sums in the order of the
// blocks. Reads x, labels, weights once per block; writes a loss per row, dx if wanted, and dW and
// db once.
#include "ops/fused/narrow_mlp.h"

#include "ops/block_reduce.cuh"
#include "ops/fused/activation.h"
#include "ops/fused/xent_row.cuh"

namespace sinter::SINTER_KERNEL_NS {

constexpr int kNarrowTerms = 16;  // of db, summed before they are added to a sum, as in the product
                                  // cores: rounding stays as low as there
constexpr int kNarrowThreads = 128, kNarrowBlocks = 16,
              kNarrowGradients = kNarrowWeights + kNarrowLayers * kNarrowWidth;

template <class V> struct NarrowMlp {
  struct Layer {
    In<V> weight, bias;
    Out<V> dw, db;
    int ins = 0, outs = 0, rows = 0, w = 0, b = 0,
        gradients = 0;  // the last four: NarrowLayout::Layer
    SINTER_DEVICE_FN int row() const { return ins | 1; }
  };
  In<V> x, grad_output;
  In<int32_t> labels;
  Out<V> loss, dx;
  InOut<V> partials;
  InOut<uint32_t> counter;
  int64_t batch = 0, grad_output_step = 0;
  V own = 1, others = 0;
  Act act = Act::relu;
  uint32_t* faults = nullptr;
  int layers = 0, turn[2] = {}, turn_row = 1, gradients = 0;
  Layer layer[kNarrowLayers];
};

// Where an operand of a product lies in shared memory: element (outer, k) at `at` + outer * step +
// k * k_step.
struct InShared {
  int at, step, k_step;
};
// f(i, j, sum over p of A(i, p) B(j, p)) for i < m, j < n. A thread makes 4 x 2 (f64 4 x 4) of
// them, far apart, so that neighbours read neighbours.
template <class V, class S, class F>
SINTER_DEVICE_FN void shared_product(
    const S& s, const InShared& a, const InShared& b, int m, int n, int k, const F& f) {
  constexpr int kCols = sizeof(V) == 8 ? 4 : 2;  // what ptxas fits into registers without a spill
  const int rows = (m + 3) / 4, cols = (n + kCols - 1) / kCols;
  SINTER_NO_UNROLL
  for (int t = thread_x(); t < rows * cols; t += threads_per_block()) {
    const int i = t / cols, j = t % cols;
    int a_at[4], b_at[kCols];
    SINTER_UNROLL
    for (int q = 0; q < 4; ++q) {  // beyond the end: the last one again
      a_at[q] = a.at + (i + q * rows < m ? i + q * rows : m - 1) * a.step;
      if (q < kCols) b_at[q] = b.at + (j + q * cols < n ? j + q * cols : n - 1) * b.step;
    }
    V sums[4][kCols] = {};
    SINTER_NO_UNROLL
    for (int p = 0; p < k; ++p) {
      V x[4], y[kCols];
      SINTER_UNROLL
      for (int q = 0; q < 4; ++q) x[q] = s[a_at[q] + p * a.k_step];
      SINTER_UNROLL
      for (int r = 0; r < kCols; ++r) y[r] = s[b_at[r] + p * b.k_step];
      SINTER_UNROLL
      for (int q = 0; q < 4; ++q) {
        SINTER_UNROLL
        for (int r = 0; r < kCols; ++r) sums[q][r] = math::mul_add(x[q], y[r], sums[q][r]);
      }
    }
    SINTER_UNROLL
    for (int q = 0; q < 4; ++q) {
      SINTER_UNROLL
      for (int r = 0; r < kCols; ++r) {
        if (i + q * rows < m && j + r * cols < n) f(i + q * rows, j + r * cols, sums[q][r]);
      }
    }
  }
}

// d * act'(what gave y)
template <class V> SINTER_DEVICE_FN V grad_of_result(Act act, V d, V y) {
  visit_act(act, [&]<class Op>(const Op& op) {
    if constexpr (Op::saves == pointwise::Saves::mask) {
      d = op.grad(d, Op::passes(y));
    } else {
      d = op.grad(d, y);
    }
  });
  return d;
}

// REQUIRES: the layout is at most kBytes.
template <class V, int kBytes>
SINTER_KERNEL_BOUNDS(kNarrowThreads)
narrow_mlp_forward_backward(NarrowMlp<V> net) {
  auto& s = shared<Shared<V, kBytes / static_cast<int>(sizeof(V))>>();
  SINTER_NO_UNROLL
  for (int l = 0; l < net.layers; ++l) {
    const auto& layer = net.layer[l];
    for (int e = thread_x(); e < layer.outs * layer.ins; e += threads_per_block())
      s.put(layer.w + e / layer.ins * layer.row() + e % layer.ins, layer.weight[e]);
    for (int o = thread_x(); o < layer.outs; o += threads_per_block())
      s.put(layer.b + o, layer.bias ? layer.bias[o] : V(0));
  }
  const int64_t mine = block_x() * net.gradients;
  int64_t first = block_x() * kNarrowRows;
  do {  // once at least: of no rows the gradients are zero
    const bool again = first >= grid_x() * kNarrowRows;
    const int rows = static_cast<int>(
                  net.batch - first < kNarrowRows ? net.batch - first : kNarrowRows),
              ins = net.layer[0].ins;
    block_sync();  // the rows before are done with
    for (int e = thread_x(); e < rows * ins; e += threads_per_block())
      s.put(net.layer[0].rows + e / ins * net.layer[0].row() + e % ins, net.x[first * ins + e]);
    SINTER_NO_UNROLL
    for (int l = 0; l < net.layers; ++l) {
      block_sync();
      const auto& layer = net.layer[l];
      const bool last = l + 1 == net.layers;
      const int to = last ? net.turn[0] : net.layer[l + 1].rows,
                to_row = last ? net.turn_row : net.layer[l + 1].row();
      const Act act = last ? Act::none : net.act;
      shared_product<V>(s, {layer.rows, layer.row(), 1}, {layer.w, layer.row(), 1}, rows,
          layer.outs, layer.ins, [&](int i, int j, V z) {
            z = z + s[layer.b + j];
            visit_act(act, [&](const auto& op) { z = op.forward(z); });
            s.put(to + i * to_row + j, z);
          });
    }
    block_sync();
    const int classes = net.layer[net.layers - 1].outs;
    for (int r = warp(); r < rows; r += warps_per_block()) {
      const int64_t row = first + r;
      const int label = net.labels[row], at = net.turn[0] + r * net.turn_row;
      if ((label < 0 || label >= classes) && lane() == 0) {
        net.loss.put(row, V(NAN));
        fault(net.faults, Fault::label_out_of_range, row, label, classes);
      }
      xent_row<kNarrowWidth / 32>(
          classes, label, net.own, net.others, [&](int c) { return s[at + c]; },
          [&](V loss) { net.loss.put(row, loss); }, true,
          net.grad_output[row * net.grad_output_step], [&](int c, V dz) { s.put(at + c, dz); });
    }
    const auto add = [&](int64_t at, V sum) {
      net.partials.put(at, again ? net.partials[at] + sum : sum);
    };
    int turn = 0;
    SINTER_NO_UNROLL
    for (int l = net.layers - 1; l >= 0; --l, turn ^= 1) {
      block_sync();
      const auto& layer = net.layer[l];
      const int dz = net.turn[turn], d = net.turn[turn ^ 1], wide = net.turn_row;
      const int64_t to = mine + layer.gradients;
      shared_product<V>(s, {dz, 1, wide}, {layer.rows, 1, layer.row()}, layer.outs, layer.ins, rows,
          [&](int o, int i, V sum) { add(to + o * layer.ins + i, sum); });
      for (int o = thread_x(); o < layer.outs; o += threads_per_block()) {
        V sum = 0;
        for (int begin = 0; begin < rows; begin += kNarrowTerms) {
          V part = 0;
          for (int r = begin; r < begin + kNarrowTerms && r < rows; ++r)
            part = part + s[dz + r * wide + o];
          sum = sum + part;
        }
        add(to + layer.outs * layer.ins + o, sum);
      }
      if (l == 0 && !net.dx) break;
      shared_product<V>(s, {dz, wide, 1}, {layer.w, 1, layer.row()}, rows, layer.ins, layer.outs,
          [&](int r, int i, V sum) {
            sum = grad_of_result(net.act, sum, s[layer.rows + r * layer.row() + i]);
            if (l == 0) {
              net.dx.put((first + r) * layer.ins + i, sum);
            } else {
              s.put(d + r * wide + i, sum);
            }
          });
    }
    first += grid_x() * kNarrowRows;
  } while (first < net.batch);

  if (!ticket(net.counter, static_cast<uint32_t>(grid_x()))) return;
  SINTER_NO_UNROLL
  for (int l = 0; l < net.layers; ++l) {
    const auto& layer = net.layer[l];
    const int weights = layer.outs * layer.ins;
    for (int e = thread_x(); e < weights + layer.outs; e += threads_per_block()) {
      V sum = 0;
      for (int64_t b = 0; b < grid_x(); ++b)
        sum = sum + net.partials[b * net.gradients + layer.gradients + e];
      if (e < weights) {
        layer.dw.put(e, sum);
      } else if (layer.db) {
        layer.db.put(e - weights, sum);
      }
    }
  }
}

void narrow_mlp(const Call& call) {
  const auto& [act, smoothing, input_grad] = call.as<NarrowMlpAttrs>();
  const Operands given = call.in;
  const auto run = [&]<class V>(V) {
    constexpr int64_t kSums = kNarrowBlocks * kNarrowGradients;
    const Scratch own = scratch(given[0].device(), kSums * sizeof(V));
    NarrowMlp<V> net{.x = in<V>(given[0]),
        .grad_output = in<V>(given[2]),
        .labels = in<int32_t>(given[1]),
        .loss = out<V>(call.out[0])};
    std::vector<int64_t> widths{given[0].size(1)};
    for (size_t i = 3; i < given.size(); i += 2) widths.push_back(given[i].size(0));
    const NarrowLayout layout(widths);
    size_t result = 1;
    if (input_grad) net.dx = out<V>(call.out[result++]);
    net.partials = {static_cast<V*>(own.memory), kSums};
    net.counter = {own.ticket, 1};
    net.batch = given[0].size(0);
    net.grad_output_step = given[2].strides()[0];
    net.own = static_cast<V>(1 - smoothing);
    net.others = static_cast<V>(smoothing / static_cast<double>(widths.back()));
    net.act = act;
    net.faults = fault_flag();
    net.layers = static_cast<int>(widths.size() - 1);
    net.gradients = static_cast<int>(layout.gradients);
    for (const int t : {0, 1}) net.turn[t] = static_cast<int>(layout.turn[t]);
    net.turn_row = static_cast<int>(layout.turn_row);
    for (int l = 0; l < net.layers; ++l) {
      const Tensor &weight = given[3 + 2 * l], &bias = given[4 + 2 * l];
      const NarrowLayout::Layer& at = layout.layer[l];
      auto& layer = net.layer[l];
      layer = {in<V>(weight), in<V>(bias), out<V>(call.out[result]), {},
          static_cast<int>(weight.size(1)), static_cast<int>(weight.size(0)),
          static_cast<int>(at.rows), static_cast<int>(at.weight), static_cast<int>(at.bias),
          static_cast<int>(at.gradients)};
      ++result;
      if (bias.defined()) layer.db = out<V>(call.out[result++]);
    }
    const Grid grid{std::clamp<int64_t>(blocks_for(net.batch, kNarrowRows), 1, kNarrowBlocks)};
    const bool small = layout.size * static_cast<int64_t>(sizeof(V)) <= kNarrowBytes;
    if (small)
      return launch<narrow_mlp_forward_backward<V, kNarrowBytes>>(
          grid, kNarrowThreads, kNarrowBytes, net);
    launch<narrow_mlp_forward_backward<V, kNarrowMostBytes>>(
        grid, kNarrowThreads, kNarrowMostBytes, net);
  };
  if (given[0].dtype() == DType::f64) return run(double{});
  run(float{});
}

}  // namespace sinter::SINTER_KERNEL_NS
