// Two branches of a step: what may run side by side, and that memory is shared only along the
// edges. Needs no device.
#include "capture/branches.h"

#include <gtest/gtest.h>

#include "capture/plan.h"
#include "tests/capture/step_util.h"

namespace sinter::capture {
namespace {

struct CapturedTraining {
  Training training;
  Step step;
  explicit CapturedTraining(const TrainOptions& options, const char* rules)
      : training(options), step(training.function(), training.step_options(rules)) {
    for (int i = 0; i < 2; ++i) step(batch_of(options, 16, 1));
  }
  const Graph& graph() const { return step.captured()->fused.graph; }
};

// [a][b]: a is done before b starts. From the branches' own order and the waits alone, closed by
// hand.
std::vector<std::vector<char>> order_of(const Branches& b) {
  const size_t n = b.branch.size();
  std::vector<std::vector<char>> before(n, std::vector<char>(n, 0));
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = 0; i < j; ++i)
      before[i][j] = b.branch[i] == b.branch[j] || int(i) == b.waits[j];
  }
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) before[i][j] |= before[i][k] && before[k][j];
    }
  }
  return before;
}

std::vector<std::string> side_nodes(const Graph& graph, const Branches& b) {
  std::vector<std::string> names;
  for (size_t n = 0; n < b.branch.size(); ++n) {
    if (b.branch[n] == 1) names.push_back(str(graph.nodes[n].text(), " ", n));
  }
  return names;
}

// Pairs of local buffers in the same memory whose uses are not in order.
int unordered_pairs(
    const Graph& graph, const MemoryPlan& plan, const std::vector<std::vector<char>>& before) {
  std::vector<std::vector<size_t>> uses(graph.buffers.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const auto* list : {&graph.nodes[n].in, &graph.nodes[n].out}) {
      for (const int v : *list) {
        if (v >= 0) uses[size_t(graph.values[v].buffer)].push_back(n);
      }
    }
  }
  const auto all_before = [&](size_t a, size_t b) {
    for (const size_t u : uses[a]) {
      for (const size_t v : uses[b]) {
        if (!before[u][v]) return false;
      }
    }
    return true;
  };
  int pairs = 0;
  for (size_t a = 0; a < uses.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      if (plan.offset[a] < 0 || plan.offset[b] < 0) continue;
      const bool apart = plan.offset[a] + int64_t(graph.buffers[a].bytes) <= plan.offset[b] ||
                         plan.offset[b] + int64_t(graph.buffers[b].bytes) <= plan.offset[a];
      pairs += !apart && !all_before(a, b) && !all_before(b, a);
    }
  }
  return pairs;
}

TEST(Branches, OrderIsThatOfTheGraph) {
  for (const char* rules : {"none", "all,-weight_grad_update", "all"}) {
    for (const TrainOptions& options : {TrainOptions{}, TrainOptions{.clip = 1},
             TrainOptions{.optimizer = "sgd", .dropout = 0.5}}) {
      const CapturedTraining c(options, rules);
      const Graph& graph = c.graph();
      const Branches b = split_branches(graph);
      const auto before = order_of(b);
      for (size_t j = 0; j < graph.nodes.size(); ++j) {
        for (size_t i = 0; i < j; ++i) {
          if (graph.conflict(graph.nodes[i], graph.nodes[j])) {
            EXPECT_TRUE(before[i][j]) << rules << ": node " << i << " is not before " << j;
          }
          EXPECT_EQ(b.follows[j][b.branch[i]] >= int(i), before[i][j]) << i << ", " << j;
        }
        if (b.branch[j] == 1) {
          EXPECT_TRUE(b.join != Branches::kNone || before[j][graph.nodes.size() - 1])
              << "node " << j << " is never joined";
        }
      }
      const MemoryPlan plan = plan_memory(graph, &b);
      EXPECT_EQ(unordered_pairs(graph, plan, before), 0) << rules;
      EXPECT_GE(plan.bytes, plan_memory(graph).bytes);
    }
  }
}

TEST(Branches, ParameterGradientsGoAside) {
  const CapturedTraining eager({}, "none");
  const Branches b = split_branches(eager.graph());
  // dW and db of layers 3 and 2, and db of layer 1 beside its dW; that dW has only its update
  // behind it.
  std::string names;
  for (const std::string& name : side_nodes(eager.graph(), b))
    names += name.substr(0, name.find(' ')) + " ";
  EXPECT_EQ(names, "matmul sum_rows matmul sum_rows sum_rows ");
  // The check above can fail: a plan that takes the list for the order shares memory across
  // branches.
  EXPECT_GT(unordered_pairs(eager.graph(), plan_memory(eager.graph()), order_of(b)), 0);

  const CapturedTraining fused({}, "all,-weight_grad_update");
  const Branches f = split_branches(fused.graph());
  EXPECT_EQ(fused.graph().nodes.size(), 10u);
  ASSERT_EQ(side_nodes(fused.graph(), f).size(), 2u);
  EXPECT_EQ(side_nodes(fused.graph(), f)[0].substr(0, 16), "weight_bias_grad");
  // Ten nodes, eight deep.
  const auto before = order_of(f);
  size_t deepest = 0;
  std::vector<size_t> depth(before.size(), 1);
  for (size_t j = 0; j < before.size(); ++j) {
    for (size_t i = 0; i < j; ++i) {
      if (before[i][j]) depth[j] = std::max(depth[j], depth[i] + 1);
    }
    deepest = std::max(deepest, depth[j]);
  }
  EXPECT_EQ(deepest, 8u);
}

}  // namespace
}  // namespace sinter::capture
