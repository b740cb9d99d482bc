// 00_in_one_file: the idea of Sinter in one file. Tensors, ops, a tape; a step
// that is recorded, fused, and replayed from one block of memory; a profiler;
// and a small net that learns to read digits with all of it.
//
//   g++ -O2 -std=c++20 examples/00_in_one_file.cpp -o in_one_file
//   ./in_one_file            # --wrong: with a derivative that is wrong
//
// Read it from the top. Each part says where the real one is, and what that has
// more. The names are the same there, so that you find them again. A kernel is
// the loop that does an op's arithmetic; to start one is a launch. Eager: ops
// run as they come.
//
// clang-format off
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

// ---- 1. A tensor is a handle to numbers. Copying it copies the handle.
// core/tensor.h has any rank, views, five types, and devices. Here a tensor is
// a matrix of doubles.

struct Shape {
  int rows = 0, cols = 0;
  int numel() const { return rows * cols; }
};

struct Tensor {
  struct Impl {
    std::shared_ptr<double[]> storage;
    Shape shape;
    int stride;  // from row to row; 0: all rows lie in one place
    std::string name;
    bool requires_grad = false;
    std::shared_ptr<Impl> grad = nullptr;
  };
  std::shared_ptr<Impl> impl;

  static Tensor full(Shape shape, double value, const char* name = "") {
    auto storage = std::make_shared<double[]>(size_t(shape.numel()), value);
    return {std::make_shared<Impl>(Impl{storage, shape, shape.cols, name})};
  }
  int rows() const { return impl->shape.rows; }
  int cols() const { return impl->shape.cols; }
  double& operator()(int row, int col) const {
    return impl->storage[row * impl->stride + col];
  }
};
using Tensors = std::vector<Tensor>;
using Operands = const Tensors&;

// ---- 2. An op is a row of a table: its name, the shape of its result, its
// formula, and its derivative, which is made of ops as well.
// ops/op.h has a kernel for each device there, in place of the formula.

struct OpDef;
struct Call { const OpDef* op; Tensors in; Tensor out; };
struct OpDef {
  const char* name;
  Shape (*infer)(Operands in);                   // null: it changes operand 0
  double (*cpu)(Operands in, int row, int col);  // the number that stands there
  Tensors (*backward)(Operands in, Tensor y, Tensor dy) = nullptr;
};

// ---- 3. A scope reads the clock where it begins and where it ends.
// profiler/scope.h has scopes inside scopes, of many threads, and verdicts.

struct Row { int launches = 0, bytes = 0; double us = 0; };
using Session = std::map<std::string, Row>;
Session* session = nullptr;

struct Scope {
  using Clock = std::chrono::steady_clock;
  const char* name;
  int bytes;
  Clock::time_point begin = Clock::now();
  ~Scope() {
    const std::chrono::duration<double, std::micro> us = Clock::now() - begin;
    if (session) for (const char* of : {"TOTAL", name}) {
      Row& row = (*session)[of];
      row = {row.launches + 1, row.bytes + bytes, row.us + us.count()};
    }
  }
};

// ---- 4. Every op takes one path: apply() asks for the shape, allocates,
// launches the kernel, and tells whoever listens.
// ops/dispatch.cpp checks the operands first, and says what is wrong.

using Recorder = std::function<void(const Call&)>;
std::vector<Recorder> recorders;

// What a launch reads and writes. Stride 0: one row, which stays in the cache.
int bytes_of(const std::vector<Call>& calls) {
  int numbers = 0;
  for (const auto& [op, in, out] : calls) {
    for (const Tensor& t : in) numbers += t.rows() * t.impl->stride;
    numbers += out.rows() * out.impl->stride;
  }
  return numbers * int(sizeof(double));
}

// One op, or two that are fused: then each row goes through the second one as
// soon as the first has made it.
void launch_op(const char* name, const std::vector<Call>& calls) {
  const Scope scope{name, bytes_of(calls)};
  for (int r = 0; r < calls.back().out.rows(); ++r) {
    for (const auto& [op, in, out] : calls) {
      for (int c = 0; c < out.cols(); ++c) out(r, c) = op->cpu(in, r, c);
    }
  }
}

Tensor apply(const OpDef& op, Operands in) {
  const Tensor out = op.infer ? Tensor::full(op.infer(in), 0) : in[0];
  launch_op(op.name, {{&op, in, out}});
  for (const Recorder& record : recorders) record({&op, in, out});
  return out;
}

// ---- 5. The ops of a small net.
// ops/ has sixty, forward and backward, and fast products.

double sum(int n, const auto& term) {
  double total = 0;
  for (int k = 0; k < n; ++k) total += term(k);
  return total;
}
Shape of_first(Operands in) { return in[0].impl->shape; }

const OpDef kAdd{"add", of_first,
  [](Operands in, int r, int c) { return in[0](r, c) + in[1](r, c); }};

const OpDef kInputGrad{"matmul(dgrad)",  // dx = dy W
  [](Operands in) { return Shape{in[0].rows(), in[1].cols()}; },
  [](Operands in, int r, int c) {
    return sum(in[0].cols(), [&](int k) { return in[0](r, k) * in[1](k, c); });
  }};
const OpDef kWeightGrad{"matmul(wgrad)",  // dW = dy^T x
  [](Operands in) { return Shape{in[0].cols(), in[1].cols()}; },
  [](Operands in, int r, int c) {
    return sum(in[0].rows(), [&](int k) { return in[0](k, r) * in[1](k, c); });
  }};
const OpDef kLinear{"linear",  // y = x W^T
  [](Operands in) { return Shape{in[0].rows(), in[1].rows()}; },
  [](Operands in, int r, int c) {
    return sum(in[0].cols(), [&](int k) { return in[0](r, k) * in[1](c, k); });
  },
  [](Operands in, Tensor, Tensor dy) {
    Tensors grads{{}, apply(kWeightGrad, {dy, in[0]})};
    if (in[0].impl->requires_grad) grads[0] = apply(kInputGrad, {dy, in[1]});
    return grads;
  }};

const OpDef kReluBackward{"relu_backward", of_first,  // of dy and y
  [](Operands in, int r, int c) { return in[1](r, c) > 0 ? in[0](r, c) : 0; }};
OpDef kRelu{"relu", of_first,
  [](Operands in, int r, int c) { return std::max(in[0](r, c), 0.0); },
  [](Operands, Tensor y, Tensor dy) {
    return Tensors{apply(kReluBackward, {dy, y})};
  }};

// log of the sum of exp(x) over a row. The largest x is taken off first, so
// that no exp is too large for a double.
double log_sum_exp(const Tensor& x, int r) {
  const double most = *std::max_element(&x(r, 0), &x(r, 0) + x.cols());
  const auto term = [&](int c) { return std::exp(x(r, c) - most); };
  return most + std::log(sum(x.cols(), term));
}
const OpDef kCrossEntropyBackward{"cross_entropy_backward",  // dy, x, labels
  [](Operands in) { return in[1].impl->shape; },
  [](Operands in, int r, int c) {
    const double softmax = std::exp(in[1](r, c) - log_sum_exp(in[1], r));
    return (softmax - (c == in[2](r, 0))) * in[0](r, 0);
  }};
const OpDef kCrossEntropy{"cross_entropy",  // of x and labels: -log softmax
  [](Operands in) { return Shape{in[0].rows(), 1}; },
  [](Operands in, int r, int) {
    return log_sum_exp(in[0], r) - in[0](r, int(in[1](r, 0)));
  },
  [](Operands in, Tensor, Tensor dy) {
    return Tensors{apply(kCrossEntropyBackward, {dy, in[0], in[1]}), {}};
  }};

// Operands: a weight, its gradient, two averages, and the share of their first
// value, 0, that is left in them: 0.9 and 0.999 to the power of the step. It is
// another one in each step, so it lies in memory. A number in the program would
// be repeated by each replay as it was at the first call.
const OpDef kAdamUpdate{"adam_update", nullptr,
  [](Operands in, int r, int c) {
    double g = in[1](r, c), &m = in[2](r, c), &v = in[3](r, c);
    double &left_m = in[4](0, 0), &left_v = in[4](0, 1);
    if (r == 0 && c == 0) { left_m *= 0.9; left_v *= 0.999; }
    m += 0.1 * (g - m);
    v += 0.001 * (g * g - v);
    const double root = std::sqrt(v / (1 - left_v)) + 1e-8;
    return in[0](r, c) - 0.003 * m / (1 - left_m) / root;
  }};

// One weight and its averages. A step takes the gradient away.
struct Adam {
  Tensor weight;
  Tensor m = Tensor::full(weight.impl->shape, 0, "m");
  Tensor v = Tensor::full(weight.impl->shape, 0, "v");
  Tensor left = Tensor::full({1, 2}, 1, "left");
  void step() const {
    const Tensor grad{std::exchange(weight.impl->grad, nullptr)};
    apply(kAdamUpdate, {weight, grad, m, v, left});
  }
};

// ---- 6. The tape is a list of ops in the order they ran. Backward reads it
// from its end: what an op gave was read by later ops only, so its gradient is
// there. autograd/tape.cpp also sees that a value was changed in place.

std::vector<Call> tape;
void record(const Call& call) {
  const auto wants = [](const Tensor& t) { return t.impl->requires_grad; };
  if (!call.op->backward || std::ranges::none_of(call.in, wants)) return;
  call.out.impl->requires_grad = true;
  tape.push_back(call);
}

// Gradients of the mean of root: each of its n numbers has the gradient 1 / n.
// The ops that make them have no backward, so they are on no tape.
void backward(const Tensor& root) {
  root.impl->grad = Tensor::full(root.impl->shape, 1. / root.rows(), "dy").impl;
  const std::vector<Call> nodes = std::exchange(tape, {});
  for (auto call = nodes.rbegin(); call != nodes.rend(); ++call) {
    const auto& [op, in, out] = *call;
    const Tensors grads = op->backward(in, out, {out.impl->grad});
    for (size_t i = 0; i < grads.size(); ++i) {
      auto& grad = in[i].impl->grad;
      if (!grads[i].impl) continue;
      grad = grad ? apply(kAdd, {{grad}, grads[i]}).impl : grads[i].impl;
    }
  }
}

// Backward against what the function says when a number changes a little.
// autograd/gradcheck.cpp; a test runs it for each op.
bool gradcheck(const std::function<Tensor()>& f, const Tensors& params) {
  const auto mean_with = [&](double& x, double value) {
    const double before = std::exchange(x, value);
    const Tensor y = f();
    x = before;
    tape.clear();  // nobody asks for its derivative
    return sum(y.rows(), [&](int r) { return y(r, 0); }) / y.rows();
  };
  backward(f());
  for (const Tensor& p : params) {
    const Tensor grad{std::exchange(p.impl->grad, nullptr)};
    for (int i = 0; i < p.impl->shape.numel(); ++i) {
      double& x = p(0, i);
      const double up = mean_with(x, x + 1e-6), down = mean_with(x, x - 1e-6);
      if (std::abs(grad(0, i) - (up - down) / 2e-6) <= 1e-6) continue;
      std::printf("gradcheck: %s[%d]: backward %.6f, differences %.6f\n",
                  p.impl->name.c_str(), i, grad(0, i), (up - down) / 2e-6);
      return false;
    }
  }
  return true;
}

// ---- 7. A graph is a step as data: a list of nodes.
// capture/graph.h has numbered values, and memory that they share.

// Of one call, or of two that are fused; `in`: the operands of both.
struct Node { const char* name; std::vector<Call> calls; Tensors in; };
using Graph = std::vector<Node>;
bool reads(const Node& node, const Tensor& t) {
  return std::ranges::count(node.in, t.impl, &Tensor::impl) > 0;
}

void print(const char* title, const Graph& graph) {
  std::printf("\n%s: %d launches\n", title, int(graph.size()));
  for (const Node& node : graph) {
    const std::string result = node.calls.back().out.impl->name;
    std::printf("  %s = %s of", result.c_str(), node.name);
    for (const Tensor& t : node.in)
      if (t.impl->stride) std::printf(" %s", t.impl->name.c_str());
    std::puts("");
  }
}

// ---- 8. Fusion: a pattern names two ops that belong together. If nobody else
// reads the value between them, it needs no memory but for one row, if the
// second op reads row r of it to make row r, as those of these patterns do.
// capture/pattern.h has patterns of any size; ops/fused/ has their kernels.

struct Pattern { const char* name; const OpDef *first, *second; };
const Pattern kPatterns[] = {
  {"linear_act", &kLinear, &kRelu},
  {"weight_grad_update", &kWeightGrad, &kAdamUpdate}};

// Fuses node i with the only reader of what it makes, if the two are the
// pattern's. The new node stands where the reader was, so no node between them
// may change what node i reads.
bool fuse(Graph& graph, const Pattern& pattern, size_t i) {
  const Call first = graph[i].calls[0];
  size_t at = 0, readers = 0;
  for (size_t n = i + 1; n < graph.size(); ++n) {
    if (reads(graph[n], first.out) && ++readers) at = n;
  }
  if (readers != 1 || first.op != pattern.first) return false;
  const Call second = graph[at].calls[0];
  if (second.op != pattern.second) return false;
  for (size_t n = i + 1; n < at; ++n) {
    if (reads(graph[i], graph[n].calls.back().out)) return false;
  }
  Tensors in = first.in;
  in.insert(in.end(), second.in.begin(), second.in.end());
  first.out.impl->stride = 0;
  graph[at] = {pattern.name, {first, second}, in};
  graph.erase(graph.begin() + int(i));
  return true;
}

// ---- 9. All that a step makes gets its place in one block of memory.
// capture/plan.h lets two values share a place where no node needs both.

void plan_memory(const Graph& graph) {
  std::vector<std::pair<Tensor, int>> places;
  int size = 0;
  for (const Node& node : graph) {
    for (const auto& [op, in, out] : node.calls) {
      if (!op->infer) continue;
      places.push_back({out, size});
      size += out.impl->stride ? out.rows() * out.cols() : out.cols();
    }
  }
  const auto block = std::make_shared<double[]>(size);
  for (const auto& [value, offset] : places)
    value.impl->storage = {block, block.get() + offset};
  std::printf("all in one block of %d numbers\n", size);
}

// ---- 10. A step: its first call runs the function and records it, each later
// one replays the nodes. Then nothing is allocated, and no shape is asked for.
// capture/step.h says what a replay promises, and how it knows that it holds.

struct Step {
  std::function<Tensor(Operands)> function;
  Graph graph = {};
  Tensors inputs = {};
  Tensor result = {};

  Tensor operator()(Operands given) {
    if (graph.empty()) return capture(given);
    for (size_t i = 0; i < given.size(); ++i)
      inputs[i].impl->storage = given[i].impl->storage;  // this batch's
    for (const Node& node : graph) launch_op(node.name, node.calls);
    return result;
  }

  Tensor capture(Operands given) {
    for (const Tensor& t : given)  // a handle of our own to the same numbers
      inputs.push_back({std::make_shared<Tensor::Impl>(*t.impl)});
    recorders.push_back([&](const Call& call) {
      std::string& name = call.out.impl->name;
      if (name.empty()) name = "%" + std::to_string(graph.size());
      graph.push_back({call.op->name, {call}, call.in});
    });
    result = function(inputs);
    recorders.pop_back();
    const Tensor first{std::make_shared<Tensor::Impl>(*result.impl)};
    print("as recorded", graph);
    for (const Pattern& pattern : kPatterns) {
      for (size_t i = 0; i < graph.size();) i += !fuse(graph, pattern, i);
    }
    print("as fused", graph);
    plan_memory(graph);
    return first;
  }
};

// ---- 11. Training, eager and fused, on digits of 5 by 3 pixels in noise.
// data/digits.h draws better ones, and train/trainer.h stops and goes on.

std::mt19937 generator;
Tensor uniform(Shape shape, double low, double high, const char* name) {
  const Tensor t = Tensor::full(shape, 0, name);
  for (int i = 0; i < shape.numel(); ++i)
    t(0, i) = low + (high - low) * generator() / 0x1p32;
  return t;
}
Tensors draw_digits(int n) {
  const char* digits[] = {"75557", "26227", "71747", "71717", "55711",
                          "74717", "74757", "71222", "75757", "75717"};
  const Tensor images = uniform({n, 15}, -0.5, 0.5, "images");
  const Tensor labels = uniform({n, 1}, 0, 10, "labels");
  for (int r = 0; r < n; ++r) {
    const char* rows = digits[int(labels(r, 0) = int(labels(r, 0)))];
    for (int p = 0; p < 15; ++p) images(r, p) += rows[p / 3] >> (2 - p % 3) & 1;
  }
  return {images, labels};
}

struct Net {
  Tensor w1 = uniform({32, 15}, -0.3, 0.3, "w1");
  Tensor w2 = uniform({10, 32}, -0.2, 0.2, "w2");
  Net() { w1.impl->requires_grad = w2.impl->requires_grad = true; }
  Tensor losses(Operands batch) const {
    const Tensor h = apply(kRelu, {apply(kLinear, {batch[0], w1})});
    return apply(kCrossEntropy, {apply(kLinear, {h, w2}), batch[1]});
  }
};

std::vector<double> train(const std::string& mode) {
  constexpr int kSteps = 500, kBatch = 32;
  generator.seed(1);
  const Net net;
  const Adam first{net.w1}, second{net.w2};
  Step step{[&](Operands batch) {
    const Tensor losses = net.losses(batch);
    backward(losses);
    first.step();
    second.step();
    return losses;
  }};
  Session rows;
  std::vector<double> means;
  for (int i = 0; i <= kSteps; ++i) {
    const Tensors batch = draw_digits(kBatch);
    session = i > 0 ? &rows : nullptr;  // the first call is recorded
    const Tensor y = mode == "fused" ? step(batch) : step.function(batch);
    session = nullptr;
    means.push_back(sum(kBatch, [&](int r) { return y(r, 0); }) / kBatch);
  }
  std::printf("\n%-22s  launches  bytes     us of a step\n", mode.c_str());
  for (const auto& [name, row] : rows)
    std::printf("%-22s %9d %6d %8.2f\n", name.c_str(), row.launches / kSteps,
                row.bytes / kSteps, row.us / kSteps);
  return means;
}

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == std::string("--wrong"))  // dy decides, not y
    kRelu.backward = [](Operands, Tensor, Tensor dy) {
      return Tensors{apply(kReluBackward, {dy, dy})};
    };
  recorders.push_back(record);
  const Net net;
  const Tensors batch = draw_digits(3);
  if (!gradcheck([&] { return net.losses(batch); }, {net.w1, net.w2})) return 1;
  net.losses(batch);
  std::puts("gradcheck: ok\n\nthe tape, which backward reads from its end");
  for (const Call& call : std::exchange(tape, {})) std::puts(call.op->name);
  const std::vector<double> eager = train("eager"), fused = train("fused");
  std::puts("\nstep  loss eager   fused");
  for (size_t i = 0; i < eager.size(); i += 100)
    std::printf("%4d %11.4f %7.4f\n", int(i), eager[i], fused[i]);
  std::puts(eager == fused ? "all equal to the bit" : "they differ");
  return eager != fused;
}

// Exercises. Answers are in docs/TOUR.md, "First".
// 1. relu_backward stays a launch of its own. Which line joins it to the
//    matmul(dgrad) before it, and how many launches and bytes are left?
// 2. Write sigmoid: an op and its derivative. What says gradcheck if you forget
//    a factor? Then let linear and sigmoid fuse.
// 3. The block holds every value of a step. Let two values share a place if no
//    node needs both. How small does the block get?
