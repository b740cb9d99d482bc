// A program of a user: trains, prints, and defines an op of its own, which a captured step fuses as
// it does ours.
#include <sinter/sinter.h>

#include <iostream>

#include "core/error.h"

struct Softsign : sinter::pointwise::Unary<sinter::pointwise::Facts{
                      .saves = sinter::pointwise::Saves::output, .flops = 3, .backward_flops = 3}> {
  SINTER_POINTWISE(Softsign, "softsign")
  template <class T> SINTER_FN T forward(T x) const { return x / (T(1) + (x < 0 ? -x : x)); }
  template <class T> SINTER_FN T grad(T dy, T y) const {
    const T slope = T(1) - (y < 0 ? -y : y);
    return dy * slope * slope;
  }
};
sinter::Tensor softsign(const sinter::Tensor& x) {
  return sinter::apply1(sinter::pointwise_op<Softsign>(), {x}, Softsign{});
}

bool trains() {
  sinter::Batches batches(
      sinter::load_dataset({.what = "synthetic", .limit = 6400}).train, {.size = 64});
  sinter::nn::Mlp model({784, 32, 10});
  sinter::nn::Adam optimizer(model.named_parameters(), {.lr = 0.01});
  double first = 0, last = 0;
  for (int64_t step = 0; step < batches.per_epoch(); ++step) {
    const sinter::Batch batch = batches.next();
    optimizer.zero_grad();
    const sinter::Tensor losses = cross_entropy(model(batch.images), batch.labels);
    losses.backward();
    optimizer.step(losses);
    last = mean(losses).item();
    if (step == 0) first = last;
  }
  std::cout << "loss " << first << " -> " << last << "\n";
  return last < first / 2;
}

bool fuses() {
  const auto function = [](const sinter::Tensors& in) {
    return sinter::Tensors{exp(softsign(2 * in[0]) - 1)};
  };
  sinter::capture::Step step(function);
  const sinter::Tensor x = sinter::randn({5, 7});
  for (int i = 0; i < 3; ++i) step({x});
  std::cout << slice(step({x})[0], 0, 0, 1) << "\n" << own_error() << "\n";
  const bool same = step({x})[0].to_vector<float>() == function({x})[0].to_vector<float>();
  return same && step.captured()->executor->launches() == 1;
}

// The same ops twice, as two profiles: their table, and that their results are the same.
bool compares() {
  const sinter::Tensor x = sinter::randn({5, 7});
  const auto profile = [&x] {
    sinter::profiler::Session session({.schedule = {.wait = 0, .warmup = 0, .active = 2}});
    for (; !session.done(); session.step()) relu(x);
    return session.finish().profile();
  };
  std::cout << sinter::profiler::diff(profile(), profile()) << "\n";
  return sinter::measure::parity({{.name = "relu", .fused = relu(x), .eager = relu(x)}}).holds();
}

// With an argument the package has MPI.
int main(int argc, char**) {
  const bool finds_mpi = argc == 1 || !sinter::distributed::mpi_version().empty();
  return finds_mpi && trains() && fuses() && compares() ? 0 : 1;
}
