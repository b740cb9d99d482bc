// Note [A bucket in one stretch of memory]
//   all_reduce sums a list of gradients, and sends those that lie side by side as one message. In a
//   replay each gradient is made where the memory plan says, so the gradients of a bucket become
//   parts of one buffer, one behind the other: they are made in place, and nothing is copied.
//
//       dW2 [ local ]  db2 [ local ]   ->   bucket [ dW2 | db2 ]
//
//   Each begins where a block of the allocator would. A bucket whose gradients are not all whole
//   local buffers of their own stays as it is.
#include <set>

#include "capture/rules.h"
#include "core/allocator.h"
#include "ops/ops.h"

namespace sinter::capture {
namespace {

bool is_whole_local(const Graph& graph, int value) {
  const Value& v = graph.values[value];
  const Buffer& buffer = graph.buffers[v.buffer];
  return buffer.kind == Buffer::Kind::local && v.contiguous() && v.shape.numel() > 0 &&
         extent_of(v).begin == 0 && extent_of(v).end == int64_t(buffer.bytes);
}

void lay_out(Rewriter& r, const std::vector<int>& gradients) {
  std::set<int> buffers;
  for (const int g : gradients) {
    if (!is_whole_local(r.graph, g) || !buffers.insert(r.graph.values[g].buffer).second) return;
    for (const int v : r.values_beside(g)) {
      if (r.graph.values[v].dtype != r.graph.values[g].dtype) return;
    }
  }
  const DType dtype = r.graph.values[gradients[0]].dtype;
  const auto block = int64_t(kAlignment / size_of(dtype));
  const auto room = [&](int g) {
    return (r.graph.values[g].shape.numel() + block - 1) / block * block;
  };
  int64_t elements = 0;
  for (const int g : gradients) elements += room(g);
  const int whole = r.add_local({elements}, dtype, r.graph.device_of(gradients[0]));
  const int bucket = r.graph.values[whole].buffer;
  int64_t at = 0;
  for (const int g : gradients) {
    std::vector<int> moved = r.values_beside(g);
    moved.push_back(g);
    for (const int v : moved)
      r.move(v, bucket, r.graph.values[v].strides, r.graph.values[v].offset + at);
    at += room(g);
  }
}

}  // namespace

void lay_out_buckets(Rewriter& r) {
  for (int n = 0; n < int(r.graph.nodes.size()); ++n) {
    if (r.node(n).op == &kAllReduceOp && r.node(n).in.size() > 1) lay_out(r, r.node(n).in);
  }
  r.finish("laying out buckets");
}

}  // namespace sinter::capture
