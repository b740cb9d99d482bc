// The default MLP's eager training step, 784-256-128-10 with Adam and 128 rows: launches, FLOPs and
// bytes, row by row.
#include <gtest/gtest.h>

#include <map>

#include "autograd/autograd.h"
#include "core/context.h"
#include "ops/ops.h"

namespace sinter {
namespace {

struct CostRecorder : Recorder {
  struct Row {
    int launches = 0;
    Cost cost;
  };
  std::map<std::string, Row> rows;
  CostRecorder() { Context::current().recorders.push_back(this); }
  ~CostRecorder() override { std::erase(Context::current().recorders, this); }
  void record(const Call& call) override {
    if (call.op.view) return;
    Row& row =
        rows[cat(call.op.text(), call.role == Role::none ? "" : cat("(", name_of(call.role), ")"))];
    ++row.launches;
    row.cost += call.op.cost(call.in, call.out, call.attrs);
  }
};

struct Mlp {
  Tensors params, averages, squares;
  Tensor state = make_step_state();
  Mlp() {
    const int64_t sizes[] = {784, 256, 128, 10};
    for (int l = 0; l < 3; ++l) {
      for (const Shape& shape : {Shape{sizes[l + 1], sizes[l]}, Shape{sizes[l + 1]}}) {
        params.push_back(
            cast(sample_tensor(shape, static_cast<uint64_t>(l), -0.05, 0.05), DType::f32)
                .set_requires_grad(true));
        averages.push_back(Tensor::zeros(shape));
        squares.push_back(Tensor::zeros(shape));
      }
    }
    reset_step_state(host_step_state(state), 0.9, 0.999);
    host_step_state(state).lr = 1e-3;
  }
  Tensor losses(const Tensor& x, const Tensor& labels) {
    const Tensor h = relu(linear(x, params[0], params[1]));
    return cross_entropy(
        linear(relu(linear(h, params[2], params[3])), params[4], params[5]), labels);
  }
  void step(const Tensor& x, const Tensor& labels) {
    const Tensor loss = losses(x, labels);
    backward(loss);
    const NoGrad no_grad;
    for (size_t i = 0; i < params.size(); ++i) {
      const bool last = i + 1 == params.size();
      update_parameter({params[i], params[i].grad(), averages[i], squares[i]}, state,
          {.tail = last}, last ? loss : Tensor(), last ? rng_state() : Tensor());
      params[i].autograd().grad = {};
    }
  }
};

TEST(StepCost, DefaultMlpTakes25LaunchesOfKnownCost) {
  Mlp mlp;
  const int64_t b = 128;
  const Tensor x = cast(sample_tensor({b, 784}, 9, 0, 1), DType::f32),
               labels = sample_labels(b, 10, 10);
  CostRecorder recorder;
  mlp.step(x, labels);

  struct Wanted {
    const char* row;
    int launches;
    int64_t flops, bytes;
  };
  const int64_t products = 2 * b * (784 * 256 + 256 * 128 + 128 * 10), cells = b * (256 + 128 + 10),
                parameters = 235146;
  const int64_t activations = b * (256 + 128);
  const std::vector<Wanted> wanted{
      {"linear", 3, products + cells, 1740328},
      {"relu", 2, activations, 2 * activations * 4},
      {"log_softmax", 1, 5 * b * 10 + b, 10240},
      {"nll", 1, 2 * b, 1536},
      {"nll_backward", 1, 0, 5632},
      {"log_softmax_backward", 1, 4 * b * 10, 15360},
      {"matmul(wgrad)", 3, products, 1738752},
      {"matmul(dgrad)", 2, 2 * b * (256 * 128 + 128 * 10),
          4 * (b * (256 + 2 * 128 + 10) + 256 * 128 + 128 * 10)},
      {"sum_rows(bgrad)", 3, cells, 203304},
      {"relu_backward", 2, activations, 3 * activations * 4},
      {"adam_update", 6, 13 * parameters, 6584088},
  };
  int launches = 0;
  for (const Wanted& w : wanted) {
    SCOPED_TRACE(w.row);
    const auto& row = recorder.rows[w.row];
    EXPECT_EQ(row.launches, w.launches);
    EXPECT_EQ(row.cost.flops, w.flops);
    EXPECT_EQ(row.cost.bytes(), w.bytes);
    launches += row.launches;
  }
  EXPECT_EQ(launches, 25);
  EXPECT_EQ(recorder.rows.size(), wanted.size());
  EXPECT_EQ(host_step_state(mlp.state).step, 1);
  EXPECT_EQ(host_step_state(mlp.state).loss_rows, b);
}

TEST(StepCost, TheStepLearns) {
  Mlp mlp;
  const Tensor x = cast(sample_tensor({16, 784}, 9, 0, 1), DType::f32),
               labels = sample_labels(16, 10, 10);
  for (int i = 0; i < 60; ++i) mlp.step(x, labels);
  EXPECT_LT(host_step_state(mlp.state).last_loss, 0.1);
  EXPECT_EQ(host_step_state(mlp.state).first_bad_step, -1);
}

TEST(StepCost, UpdateBytes) {
  const Tensor p = Tensor::zeros({100}), low = Tensor::zeros({100}, DType::bf16),
               state = make_step_state();
  const auto cost = [&](const OpDef& op, const Tensors& in, const Attrs& attrs) {
    return op.cost(in, Tensors{}, attrs);
  };
  EXPECT_EQ(cost(kSgdUpdateOp, {p, p, {}, {}, {}, {}, state, {}, {}}, UpdateAttrs{}),
      (Cost{200, 800, 400}));
  EXPECT_EQ(cost(kSgdUpdateOp, {p, p, p, {}, {}, {}, state, {}, {}}, UpdateAttrs{.momentum = 0.9}),
      (Cost{400, 1200, 800}));
  EXPECT_EQ(cost(kSgdUpdateOp, {p, p, p, {}, low, {}, state, {}, {}},
                UpdateAttrs{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}),
      (Cost{800, 1200, 1000}));
  EXPECT_EQ(cost(kAdamUpdateOp, {p, p, p, p, {}, {}, state, {}, {}}, UpdateAttrs{}),
      (Cost{1300, 1600, 1200}));
  EXPECT_EQ(
      cost(kAdamUpdateOp, {p, p, p, p, low, {}, state, {}, {}}, UpdateAttrs{.weight_decay = 0.1}),
      (Cost{1500, 1600, 1400}));
  EXPECT_EQ(cost(kRMSpropUpdateOp, {p, p, p, {}, {}, {}, state, {}, {}}, UpdateAttrs{}),
      (Cost{900, 1200, 800}));
  EXPECT_EQ(
      cost(kLionUpdateOp, {p, p, p, {}, low, {}, state, {}, {}}, UpdateAttrs{.weight_decay = 0.1}),
      (Cost{1100, 1200, 1000}));
}

}  // namespace
}  // namespace sinter
