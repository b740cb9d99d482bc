// Samples of the updates, and of weight_grad_update, which is made of the same groups.
#include "ops/optim/update.h"

#include "ops/fused/fused.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

using enum OptimizerKind;

constexpr UpdateAttrs kAdam{}, kAdamW{.weight_decay = 0.01, .decoupled = true},
    kSgd{.optimizer = Sgd},
    kNesterov{.optimizer = Sgd, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};

UpdateAttrs with_tail(UpdateAttrs attrs) {
  attrs.tail = true;
  return attrs;
}
// Of each optimizer, with all that it can have.
std::vector<UpdateAttrs> full_attrs() {
  std::vector<UpdateAttrs> all;
  for (size_t i = 0; i < names_of(OptimizerKind()).size(); ++i)
    all.push_back({.optimizer = OptimizerKind(i),
        .momentum = 0.9,
        .weight_decay = 0.01,
        .nesterov = true,
        .decoupled = true});
  return all;
}
std::string name_of(const UpdateAttrs& attrs) { return optimizer_row(attrs.optimizer).name; }

// A mean of squares is positive.
UpdateGroup sample_group(const Shape& shape, const UpdateAttrs& attrs, bool low, uint64_t seed) {
  UpdateGroup g{.param = sample_tensor(shape, seed), .grad = sample_tensor(shape, seed + 1)};
  const OptimizerRow& row = optimizer_row(attrs.optimizer);
  for (size_t i = 0; i < row.used_states(attrs); ++i)
    (i == 0 ? g.state1 : g.state2) =
        sample_tensor(shape, seed + 2 + i, row.states[i].degree == 2 ? 0.1 : -1, 1);
  if (low) g.bf16_copy = cast(g.param, DType::bf16);
  // 0, 1 or 2 of the three steps that add_step() has done; a weight and its bias differ.
  if (row.counts_steps) g.skipped = Tensor::full({1}, double(seed / 10 % 3), DType::f64);
  return g;
}

// StepState, losses, rng.
void add_step(Sample& s, const UpdateAttrs& attrs, int64_t rows) {
  const Tensor state = make_step_state();
  reset_step_state(host_step_state(state), attrs.beta1, attrs.beta2);
  for (int step = 0; step < 3; ++step)
    advance(host_step_state(state), 0, 0, attrs.beta1, attrs.beta2);
  host_step_state(state).lr = 0.1;
  s.in.insert(s.in.end(), {state, attrs.tail ? sample_tensor({rows}, 5) : Tensor(),
                              attrs.tail ? Tensor::zeros({3}, DType::i64) : Tensor()});
}

Sample update_sample(
    const std::vector<Shape>& shapes, const UpdateAttrs& attrs, bool low, const std::string& what) {
  Sample s = fixed_sample({}, attrs, what);
  uint64_t seed = 1;
  for (const Shape& shape : shapes) {
    const UpdateGroup g = sample_group(shape, attrs, low, seed += 10);
    s.in.insert(s.in.end(), {g.param, g.grad, g.state1, g.state2, g.bf16_copy, g.skipped});
  }
  add_step(s, attrs, 17);
  return s;
}

std::vector<Sample> one_update_samples(const UpdateAttrs& attrs) {
  const auto make = [&](const Shape& shape, const UpdateAttrs& a, bool low, const char* what) {
    return update_sample({shape}, a, low, what);
  };
  Sample shapes = make({5, 7}, attrs, false, "grad of another shape"),
         strided = make({4, 6}, attrs, false, "strided param"),
         type = make({4, 6}, attrs, false, "bf16 param"),
         optimizer = make({4, 6}, attrs, false, "states of another optimizer");
  shapes.in[kGrad] = sample_tensor({7, 5}, 2);
  strided.in[kParam] = transpose(sample_tensor({6, 4}, 1));
  type.in[kParam] = cast(type.in[kParam], DType::bf16);
  Tensor& state2 = optimizer.in[kState2];
  state2 = state2.defined() ? Tensor() : sample_tensor({4, 6}, 3, 0.1, 1);
  for (Sample* s : {&shapes, &strided, &type, &optimizer}) s->bad = true;
  const UpdateAttrs decay{.optimizer = attrs.optimizer, .weight_decay = 0.01, .tail = true};
  return {make({5, 7}, attrs, false, "odd"), make({33}, decay, true, "ragged, with copy and tail"),
      make({33}, with_tail(attrs), true, "ragged, moments, copy and tail"),
      make({0, 3}, attrs, false, "no parameters"), shapes, strided, type, optimizer};
}

std::vector<Sample> multi_update_samples() {
  const std::vector<Shape> odd{{77, 333}, {77}, {0, 3}, {1}, {10, 77}, {10}};
  const UpdateAttrs momentum{.optimizer = Sgd, .momentum = 0.9, .tail = true};
  Sample bad_grad = update_sample({{5, 7}}, kAdam, false, "grad of another shape"),
         missing = update_sample({{5, 7}}, kNesterov, false, "an operand is missing"),
         mixed = update_sample({{5, 7}, {7}}, kAdam, false, "two optimizers");
  bad_grad.in[kGrad] = sample_tensor({7, 5}, 2);
  missing.in.pop_back();
  for (const size_t state : {kState1, kState2, kSkipped})
    mixed.in[kGroupOperands + state] = Tensor();
  bad_grad.bad = missing.bad = mixed.bad = true;
  std::vector<Sample> all{update_sample(odd, with_tail(kAdam), false, "adam"),
      update_sample(odd, momentum, true, "sgd with momentum, copies and tail"),
      update_sample({{333}}, kSgd, false, "plain sgd, one parameter"), bad_grad, missing, mixed};
  for (const UpdateAttrs& attrs : full_attrs())
    all.push_back(update_sample(odd, attrs, true, name_of(attrs) + " with copies"));
  return all;
}

// Letters: O out, I in.
struct LayersOf {
  std::vector<std::pair<int64_t, int64_t>> shapes;  // O, I
  UpdateAttrs attrs = kSgd;
  bool bias = true, low = false;
};
Sample layers_sample(int64_t batch, const LayersOf& layers, const std::string& what) {
  const auto& [shapes, attrs, bias, low] = layers;
  Sample s = fixed_sample({}, attrs, what);
  uint64_t seed = 1;
  for (const auto& [o, i] : shapes) {
    const UpdateGroup w = sample_group({o, i}, attrs, low, seed + 10),
                      c = bias ? sample_group({o}, attrs, low, seed + 20) : UpdateGroup{};
    s.in.insert(s.in.end(),
        {sample_tensor({batch, o}, seed), sample_tensor({batch, i}, seed + 1), w.param, w.state1,
            w.state2, w.bf16_copy, w.skipped, c.param, c.state1, c.state2, c.bf16_copy, c.skipped});
    seed += 100;
  }
  add_step(s, attrs, batch);
  return s;
}

std::vector<Sample> layers_samples() {
  const UpdateAttrs adam = with_tail(kAdam);
  Sample rows = layers_sample(4, {.shapes = {{5, 7}}}, "rows differ"),
         weight = layers_sample(4, {.shapes = {{5, 7}}}, "weight of another shape"),
         missing = layers_sample(4, {.shapes = {{5, 7}, {3, 5}}}, "an operand is missing"),
         mixed = layers_sample(4, {{{5, 7}, {3, 5}}, kAdam}, "two optimizers");
  rows.in[1] = sample_tensor({3, 7}, 2);
  weight.in[2] = sample_tensor({7, 5}, 2);
  missing.in.pop_back();
  for (const size_t state : {3, 4, 6, 8, 9, 11}) mixed.in[kLayerOperands + state] = Tensor();
  rows.bad = weight.bad = missing.bad = mixed.bad = true;
  std::vector<Sample> all{layers_sample(17, {{{77, 333}}, adam}, "odd, adam"),
      layers_sample(97, {{{333, 77}}, kAdamW, true, true}, "ragged, adamw with copies"),
      layers_sample(1, {{{77, 333}}, adam}, "one row"),
      layers_sample(0, {{{5, 7}}, adam}, "empty batch"),
      layers_sample(97, {{{77, 33}}, kSgd, false}, "sgd, no bias"),
      layers_sample(7, {{{77, 333}}, kNesterov, true, true}, "sgd, nesterov"),
      layers_sample(600, {{{33, 65}}, kNesterov}, "large batch"),
      layers_sample(64, {{{128, 256}}, adam}, "whole tiles"),
      layers_sample(17, {{{10, 65}, {65, 77}, {77, 333}}, adam}, "three layers, adam"),
      layers_sample(97, {{{1, 64}, {64, 63}, {63, 40}, {40, 5}}, kNesterov, true, true},
          "four layers, nesterov with copies"),
      layers_sample(33, {{{10, 65}, {65, 72}}, kSgd, false}, "two layers, sgd, no bias"), rows,
      weight, missing, mixed};
  for (const UpdateAttrs& attrs : full_attrs()) {
    all.push_back(layers_sample(
        33, {{{10, 65}, {65, 72}}, with_tail(attrs), true, true}, "two layers, " + name_of(attrs)));
    all.push_back(layers_sample(
        9, {{{10, 64}, {64, 72}}, with_tail(attrs)}, "whole groups, " + name_of(attrs)));
  }
  return all;
}

const std::vector<Samples> kOfOne = [] {
  std::vector<Samples> all;
  for (const UpdateAttrs& attrs : full_attrs())
    all.emplace_back(
        *optimizer_row(attrs.optimizer).op, [attrs] { return one_update_samples(attrs); });
  return all;
}();
const Samples kOfMulti(kMultiTensorUpdateOp, multi_update_samples),
    kOfLayers(kWeightGradUpdateOp, layers_samples);

}  // namespace
}  // namespace sinter
