// embedding: rows of a table by their numbers, and the gradient of the table. embedding_add: rows
// of another table, the places', are added to them.
#include <algorithm>
#include <utility>

#include "core/parallel.h"
#include "core/thread_buffer.h"
#include "ops/fused/fused.h"
#include "ops/kernels.h"

// N tokens, V rows of D numbers
namespace sinter {
namespace {

void cpu(const Call& call) {
  const Tensor &tokens = call.in[0], &weight = call.in[1];
  const int64_t d = weight.size(1);
  check_range("embedding", "token", "at place", tokens, "rows", weight.size(0));
  visit_float(weight.dtype(), [&]<class T>(T) {
    const int32_t* token = tokens.data<int32_t>();
    const T* from = weight.data<T>();
    T* to = call.out[0].data<T>();
    const Tensor added = optional_input(call.in, 2);
    const T* add = added.defined() ? added.data<T>() : nullptr;
    const int64_t places = add && d ? added.numel() / d : 1;
    parallel_for(
        tokens.numel(), grain_of(2 * d * int64_t{sizeof(T)}), [&](int64_t begin, int64_t end) {
          for (int64_t n = begin; n < end; ++n) {
            const T* row = from + token[n] * d;
            if (!add) {
              std::copy_n(row, d, to + n * d);
            } else {
              std::transform(row, row + d, add + n % places * d, to + n * d,
                  [](T x, T y) { return T(compute_t<T>(x) + compute_t<T>(y)); });
            }
          }
        });
  });
}

// A stable counting sort of the places by their tokens; then each row of the table adds up its own
// in their order, whoever does it.
void weight_grad_cpu(const Call& call) {
  const Tensor &dy = call.in[0], &tokens = call.in[1], &dweight = call.out[0];
  const int64_t n = tokens.numel(), rows = dweight.size(0), d = dweight.size(1);
  check_range("embedding_weight_grad", "token", "at place", tokens, "rows", rows);
  const int32_t* token = tokens.data<int32_t>();
  int64_t* const begin = thread_buffer<int64_t, BufferFor::kernel>(rows + 1 + n);
  int64_t* const place = begin + rows + 1;
  std::fill_n(begin, rows + 1, 0);
  for (int64_t i = 0; i < n; ++i) ++begin[token[i]];
  int64_t sum = 0;
  for (int64_t v = 0; v <= rows; ++v) begin[v] = std::exchange(sum, sum + begin[v]);
  for (int64_t i = 0; i < n; ++i) place[begin[token[i]]++] = i;
  // Now begin[v] is where row v + 1 begins.
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T* from = dy.data<T>();
    parallel_for(rows, grain_of((1 + n / std::max<int64_t>(rows, 1)) * d * int64_t{sizeof(V)}),
        [&](int64_t first, int64_t last) {
          for (int64_t v = first; v < last; ++v) {
            V* to = dweight.data<V>() + v * d;
            std::fill_n(to, d, V(0));
            for (int64_t i = v ? begin[v - 1] : 0; i < begin[v]; ++i) {
              const T* row = from + place[i] * d;
              for (int64_t c = 0; c < d; ++c) to[c] += V(row[c]);
            }
          }
        });
  });
}

// The rows that are taken, not the whole table.
Cost cost(Operands in, Operands out, const Attrs&) {
  return {.bytes_read = bytes_of(in[0]) + bytes_of(out[0]), .bytes_written = bytes_of(out[0])};
}

Tensors backward(const Saved& saved, Operands grads) {
  Tensors out(2);
  if (saved.wants(1))
    out[1] = apply1(kEmbeddingWeightGradOp, {grads[0], saved.in[0]},
        EmbeddingGradAttrs{saved.in[1].size(0)}, Role::wgrad);
  return out;
}

Tensors reference(Operands in, const Attrs&) { return {embedding(in[0], in[1]) + in[2]}; }

std::string limit(Operands in, const Attrs&) {
  Shape y = in[0].shape();
  y.push_back(in[1].size(1));
  const Shape& added = in[2].shape();
  if (added.rank() > 0 && added.rank() <= y.rank() &&
      std::equal(added.begin(), added.end(), y.end() - added.rank()))
    return "";
  return str("what is added is ", in[2].describe(), "; its dims must be the last of ", y.str());
}

std::vector<Form> forms() {
  return {{{Tensor::meta({2}, DType::i32), Tensor::meta({4, 3}), Tensor::meta({3})}, {}}};
}

}  // namespace

const OpDef kEmbeddingOp =
    listed<kEmbeddingOp>({.formula = "y = the rows of weight whose numbers are the tokens",
        .cost = cost,
        .cpu = cpu,
        .backward = backward,
        .saves_in = 0b01});
const OpDef kEmbeddingWeightGradOp = listed<kEmbeddingWeightGradOp>(
    {.formula = "dweight = to each row the dy of its tokens, in order",
        .attrs = attr_type<EmbeddingGradAttrs>(),
        .cost = cost_per_element<1>,
        .cpu = weight_grad_cpu});

const OpDef kEmbeddingAddOp = listed<kEmbeddingAddOp>({.formula = "y = weight[tokens] + added",
    .min_inputs = 3,
    .max_inputs = 3,
    .cost =
        [](Operands in, Operands out, const Attrs& attrs) {
          return cost(in, out, attrs) + Cost{out[0].numel(), bytes_of(in[2]), 0};
        },
    .cpu = cpu,
    .reference = reference,
    .limit = limit,
    .forms = forms});

Tensor embedding(const Tensor& tokens, const Tensor& weight) {
  if (!tokens.defined() || tokens.dtype() == DType::i32)
    return apply1(kEmbeddingOp, {tokens, weight});
  static constexpr Signature kTakes("tokens:i32|i64[..] weight[V, D]");  // PyTorch's, too
  kTakes.check("embedding", Tensors{tokens, weight}, {});
  return apply1(kEmbeddingOp, {cast(tokens, DType::i32), weight});
}

}  // namespace sinter
