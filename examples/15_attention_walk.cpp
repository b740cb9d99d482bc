// 15_attention_walk: causal attention four ways, as the third post "Profiling in PyTorch" walks
// through it. For each: launches, bytes moved, the most memory held beside its operands, and the
// median time, of forward alone and with its backward. An argument is the number of tokens.
// bench/step --model attention has the same beside the floors of the arithmetic.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "autograd/autograd.h"
#include "capture/explain.h"
#include "core/allocator.h"
#include "measure/comparison.h"
#include "profiler/session.h"

using namespace sinter;
using Function = std::function<Tensor(const Tensors&)>;

namespace {

std::string use_of(const std::function<void()>& call) {
  call();
  const int64_t before = allocator(kCpu).stats().live_bytes;
  allocator(kCpu).reset_peak();
  call();
  const double peak = double(allocator(kCpu).stats().peak_bytes - before);
  const double us = measure::round_us(call, kCpu, 1, 7);
  profiler::Session session({.schedule = {.wait = 0, .warmup = 0, .active = 1}});
  call();
  session.step();
  const profiler::Report report = session.finish();
  double bytes = 0;
  for (const profiler::Row& row : report.rows().rows)
    bytes += row.kind == profiler::ScopeKind::op && row.launches > 0 ? double(row.cost.bytes()) : 0;
  char text[80];
  std::snprintf(text, sizeof text, "%9.0f%9.0f%9.0f%10.1f", report.launches_per_step(), bytes / 1e3,
      peak / 1e3, us);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  // ---- 1. q, k and v of four heads, and a mask that is 1 where a key lies behind the row.
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 256;
  if (tokens < 1 || argc > 2) {
    std::puts("usage: 15_attention_walk [TOKENS]");
    return 2;
  }
  const Shape shape{1, 4, tokens, 64};
  Tensors qkv;
  for (const uint64_t seed : {1, 2, 3})
    qkv.push_back(cast(sample_tensor(shape, seed, -1, 1), DType::f32));
  const Tensor gradient = Tensor::ones(shape),
               mask = cast(tril(Tensor::ones({tokens, tokens})) == 0.0, DType::u8);
  const auto scores = [](const Tensors& in) {
    return matmul(in[0], in[1], false, true) * (1 / std::sqrt(64.0));
  };

  // ---- 2. Four functions that give the same.
  const std::pair<const char*, Function> ways[] = {
      {"naive",
          [&](const Tensors& in) {
            return matmul(softmax(masked_fill(scores(in), mask, -INFINITY)), in[2]);
          }},
      {"in place",
          [&](const Tensors& in) {
            const Tensor s = scores(in);
            masked_fill_(s, mask, -INFINITY);
            return matmul(softmax(s), in[2]);
          }},
      {"safe",
          [](const Tensors& in) {
            return scaled_dot_product_attention(in[0], in[1], in[2], {.causal = true});
          }},
      {"fused", [](const Tensors& in) { return attention(in[0], in[1], in[2], true); }}};
  std::printf("q, k, v %s, causal\n%47s%37s\n%10s", shape.str().c_str(), "forward",
      "forward and backward", "");
  for (int i = 0; i < 2; ++i) std::printf("%9s%9s%9s%10s", "launches", "kB moved", "kB peak", "us");
  std::puts("");
  std::string refused;
  bool same = true;
  for (const auto& [name, way] : ways) {
    const auto forward = [&, &way = way] {
      const NoGrad no_grad;
      return way(qkv);
    };
    const Tensor off = max(abs(forward() - ways[0].second(qkv)));
    same = same && off.to_vector<float>()[0] < 1e-6;
    const auto both = [&, &way = way] {
      Tensors leaves;
      for (const Tensor& t : qkv) leaves.push_back(detach(t).set_requires_grad(true));
      backward(way(leaves), {.gradient = gradient});
    };
    std::printf("%-10s%s", name, use_of(forward).c_str());
    try {
      std::puts(use_of(both).c_str());
    } catch (const Error& error) {
      std::puts("  refused");
      refused = error.what();
    }
  }
  std::printf("\nall four give the same: %s\nin place, with backward: %s\n", same ? "yes" : "NO",
      refused.c_str());

  // ---- 3. A row that is masked as a whole has no softmax. To the causal one it is a row of zeros,
  // as to PyTorch's safe softmax.
  const Tensor row = Tensor::full({1, 2}, -INFINITY);
  std::printf("\na row of -inf becomes %.1f, by the causal softmax %.1f\n\n",
      std::abs(softmax(row).to_vector<float>()[0]), softmax(row, -1, true).to_vector<float>()[0]);

  // ---- 4. Nobody has to call attention(): a captured step finds it, unless the mask is data, of
  // which nobody knows that it is causal.
  for (const int i : {0, 2}) {
    capture::Step step([&](const Tensors& in) { return Tensors{ways[i].second(in)}; });
    for (int call = 0; call < 2; ++call) step(qkv);
    const std::string text = capture::explain(*step.captured(), capture::RuleSet());
    std::printf("%s, captured:\n%s\n", ways[i].first, text.substr(0, text.find("\noff")).c_str());
  }
}
