// What capture costs. Once per shape: comparing two recordings, rewriting, planning memory,
// splitting branches; it should grow with the number of ops, not with its square. At every call:
// the key lookup and guards of a captured step, and the dispatch of one replayed launch. Prints the
// figures and exits 1 if a budget is missed: 1,200 ops < 50 ms, 10,000 ops < 1 s, guards < 1 us.
#include "bench/harness.h"
#include "capture/branches.h"
#include "capture/plan.h"
#include "capture/recording.h"
#include "capture/rules.h"
#include "ops/ops.h"

namespace sinter::capture {
namespace {

using bench::ns_per_call, bench::within_budget;

// Records the step twice, as capture::Step does, and times what follows.
bool time_capture(const char* name, const std::function<Tensors()>& step, const Tensors& inputs,
    const Tensors& parameters) {
  const auto record = [&] {
    Recording recording(inputs);
    return recording.finish(step(), parameters);
  };
  const Graph first = record(), second = record();
  size_t launches = 0;
  const double ns = ns_per_call(9, 1, [&] {
    SINTER_CHECK(difference(first, second).empty(), usage, "capture_time: the recordings differ");
    const Rewriter r = rewrite(second, RuleSet(), Device::Type::cpu);
    const Branches branches = split_branches(r.graph);
    bench::keep(plan_memory(r.graph).bytes);
    bench::keep(plan_memory(r.graph, &branches).bytes);
    launches = r.graph.nodes.size();
  });
  const size_t ops = second.nodes.size();
  const double budget = ops < 2000 ? 50 : 1000;
  return within_budget(
      fmt::format("{}: {} ops, {} launches", name, ops, launches), ns * 1e-6, budget, "ms");
}

// A training step of a deep MLP: with clipping and Adam 8 ops a layer, and 5 a parameter.
bool training_step(const char* name, int64_t layers, bench::TrainingOptions options) {
  options.sizes.assign(size_t(layers), 8);
  bench::Training training(options);
  const Tensors batch{Tensor::ones({4, 8}), Tensor::zeros({4}, DType::i32)};
  return time_capture(
      name, [&] { return training(batch); }, batch, training.net.parameters());
}

// A long chain of pointwise ops, forward and backward.
bool pointwise_ops(int64_t pairs) {
  const Tensor x = Tensor::ones({4, 8}), w = Tensor::ones({8}).set_requires_grad(true);
  const auto step = [&] {
    w.autograd().grad = {};
    Tensor y = x;
    for (int64_t i = 0; i < pairs; ++i) y = sinter::tanh(mul(y, w));
    backward(sum(y));
    return Tensors{};
  };
  return time_capture("pointwise chain", step, {x}, {w});
}

// One weight for all layers, as in a recurrent net: a buffer that everything reads.
bool shared_weight(int64_t layers) {
  const NoGrad no_grad;
  const Tensor x = Tensor::ones({4, 8}), w = Tensor::ones({8, 8});
  const auto step = [&] {
    Tensor y = x;
    for (int64_t i = 0; i < layers; ++i) y = add(relu(linear(y, w)), x);
    return Tensors{y};
  };
  return time_capture("one weight for all", step, {x}, {});
}

double ns_of_replay(Step& step, const Tensors& in) {
  for (int i = 0; i < 3; ++i) step(in);
  SINTER_CHECK(step.stats().replays > 0, usage, "capture_time: the step was never replayed");
  return ns_per_call(50, 2000, [&] { bench::keep(step(in)); });
}

// A step of no ops: what is left is the key and the guards of the default model's six parameters.
bool guards() {
  nn::Mlp net({784, 256, 128, 10});
  Step step([](const Tensors& in) { return in; }, {.parameters = nn::parameter_visitor(net)});
  const double ns = ns_of_replay(step, bench::random_batch(128, 784));
  return within_budget("key and guards of a replay", ns * 1e-3, 1, "us");
}

// Ten launches of one element each.
void ten_launches() {
  const auto sums = [](const Tensors& in) {
    Tensor x = in[0];
    for (int i = 0; i < 10; ++i) x = sum(x, {0}, true);
    return Tensors{x};
  };
  Step step(sums, {.rules = RuleSet("none")});
  const double ns = ns_of_replay(step, {Tensor::ones({1})});
  SINTER_CHECK(
      step.captured()->executor->launches() == 10, usage, "capture_time: not ten launches");
  fmt::print("{:<44} {:8.2f} us\n", "ten replayed launches of one element", ns * 1e-3);
}

int run(int, char**) {
  bool ok = guards();
  ten_launches();
  const nn::MlpOptions gelu{.activation = "gelu", .dropout = 0.1};
  for (const int64_t layers : {83, 670})
    ok &= training_step("training step", layers, {.mlp = gelu, .clip = true});
  // Without clipping, so that updates move into the products.
  for (const int64_t layers : {134, 1112})
    ok &= training_step("step with SGD", layers, {.optimizer = "sgd", .lr = 0.1});
  for (const int64_t pairs : {170, 1430}) ok &= pointwise_ops(pairs);
  for (const int64_t layers : {400, 3333}) ok &= shared_weight(layers);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace sinter::capture

int main(int argc, char** argv) {
  return sinter::bench::run_reporting_errors(sinter::capture::run, argc, argv);
}
