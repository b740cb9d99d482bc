// The memory plan of one graph made by hand, with every number worked out on paper: where each
// buffer lies, and what each node takes, gives back and keeps.
#include "capture/plan.h"

#include <gtest/gtest.h>

#include "core/allocator.h"
#include "core/context.h"

namespace sinter::capture {
namespace {

constexpr int kX = 0, kA = 1, kB = 2, kC = 3, kD = 4, kE = 5, kLoss = 6;

// node      0   1   2   3   4         bytes  in the arena
// a         *-----------------*        1000  1024
// b             *---*                   300   320
// c                 *---*               256   256   read by the first node of backward alone
// d                     *---*           512   512
// e                         *----       100   128   a gradient: the caller's
// loss              *------------         4    64   a result: the caller's
Graph five_nodes(bool has_backward) {
  Graph graph;
  for (const size_t bytes : {64, 1000, 300, 256, 512, 100, 4}) {
    Buffer buffer;
    buffer.kind = graph.buffers.empty() ? Buffer::Kind::input : Buffer::Kind::local;
    buffer.bytes = bytes;
    graph.buffers.push_back(buffer);
    Value value;
    value.buffer = int(graph.values.size());
    graph.values.push_back(value);
  }
  const auto node = [&](std::vector<int> in, std::vector<int> out, Phase phase) {
    Node n;
    n.in = std::move(in);
    n.out = std::move(out);
    n.phases = uint8_t(has_backward ? 1 << int(phase) : 0);
    graph.nodes.push_back(n);
  };
  node({kX}, {kA}, Phase::forward);
  node({kA, -1}, {kB}, Phase::forward);
  node({kB}, {kC, kLoss}, Phase::forward);
  node({kC}, {kD}, Phase::backward);
  node({kD, kA}, {kE}, Phase::backward);
  graph.outputs = {kLoss};
  Graph::Gradient gradient;
  gradient.grad = kE;
  graph.gradients.push_back(gradient);
  return graph;
}

TEST(MemoryPlan, OfAGraphMadeByHand) {
  ASSERT_EQ(kAlignment, 64u);
  const MemoryPlan plan = plan_memory(five_nodes(true));
  // The largest first: a, then d behind it and b in the same bytes, then c behind these, e where c
  // was, and the loss, which meets all of them.
  EXPECT_EQ(plan.offset, (std::vector<int64_t>{-1, 0, 1024, 1536, 1024, 1536, 1792}));
  EXPECT_EQ(plan.first, (std::vector<int>{0, 0, 1, 2, 3, 4, 2}));
  EXPECT_EQ(plan.last, (std::vector<int>{0, 4, 2, 3, 4, 5, 5}));
  EXPECT_EQ(plan.bytes, 1856);
  EXPECT_EQ(plan.unshared_bytes, 1024 + 320 + 256 + 512 + 128 + 64);
}

TEST(MemoryPlan, WhatEachNodeTakesGivesBackAndKeeps) {
  using Use = profiler::MemoryUse;
  std::vector<Use> wanted{{.allocated = 1024, .freed = 0, .peak = 1024, .kept = 1024},
      {.allocated = 320, .freed = 0, .peak = 1024 + 320, .kept = 0},  // b ends before backward
      {.allocated = 256 + 64, .freed = 320, .peak = 1024 + 320 + 256 + 64, .kept = 256 + 64},
      {.allocated = 512, .freed = 256, .peak = 1024 + 256 + 64 + 512, .kept = 0},
      {.allocated = 128, .freed = 1024 + 512, .peak = 1024 + 64 + 512 + 128, .kept = 0}};
  for (const bool has_backward : {true, false}) {
    const Graph graph = five_nodes(has_backward);
    const std::vector<Use> found = memory_of_nodes(graph, plan_memory(graph));
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t n = 0; n < wanted.size(); ++n) {
      SCOPED_TRACE(str("node ", n, has_backward ? "" : ", without backward"));
      EXPECT_EQ(found[n].allocated, wanted[n].allocated);
      EXPECT_EQ(found[n].freed, wanted[n].freed);
      EXPECT_EQ(found[n].peak, wanted[n].peak);
      EXPECT_EQ(found[n].kept, has_backward ? wanted[n].kept : 0);
    }
  }
}

}  // namespace
}  // namespace sinter::capture
