// A CUDA toolkit without a card, for tests: a function table whose calls succeed, are logged, and
// can be told to fail. Memory is the host's under addresses that nothing may touch, so copies work
// and a stray host access crashes; it begins as 0xA5, its first MiB. Kernels and matrix products do
// nothing. Time on the card passes by 2 us per kernel or copy, by the machine's figure per product,
// and events tell it. It is stricter than the toolkit: inside a capture nothing may be made, freed,
// loaded or waited for, and a copy from the host reads as late as it may, be its memory pageable or
// pinned: when the host waits for it, or when something else on the stream wants its result. What a
// card refuses, it refuses: core/cuda_refusals_test.cpp has the list, which runs on a card, too.
// One at a time; thread-safe. Choices are not kept (core/device/kept_choices.h) but where a test
// says so.
#pragma once

#include "core/device/cuda_api.h"

#if SINTER_HAS_CUDA

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sinter::cuda {

class FakeToolkit {
 public:
  // Puts itself in place of the table in use; the destructor puts the real one back.
  FakeToolkit();
  ~FakeToolkit();
  FakeToolkit(const FakeToolkit&) = delete;
  FakeToolkit& operator=(const FakeToolkit&) = delete;

  // What cuDNN proposes for a convolution: an algorithm by its number, the rest as in its answer.
  struct ConvProposal {
    int algorithm, status = 0;
    size_t memory = 1 << 20;
    int math = 0;
  };

  // What the machine is like.
  struct Machine {
    int cards = 1, driver = CUDART_VERSION, capability = 90;  // no driver: 0
    std::string name = "Fake card";
    std::string architectures = "80,90a";  // that the kernels are compiled for
    int cublaslt = 13, cudnn = 9;          // no cuDNN: 0
    size_t memory = size_t{80} << 30;
    int proposals = 3;     // of the matmul heuristic
    int broken = 0;        // of them, the first ones: they fail when they are run
    int gemm_kernels = 1;  // of each product
    size_t gemm_workspace = 1 << 20;
    int64_t gemm_ns = 2000;
    std::vector<ConvProposal> conv_proposals = {{1}};  // the best first
    int conv_kernels = 1;                              // of each convolution
    // Of a graph of cuDNN's: plans that it offers, and how many of them, the first ones, do not
    // repeat; does a plan fail when it is run?
    int graph_proposals = 2, graphs_unrepeatable = 1;
    bool graphs_fail = false;
    int64_t graph_ns = 2000;
    // The clock of graphs as a script: what one of these nodes takes as a whole; less than 0: its
    // launch fails. Without a script each node takes what it does outside of graphs.
    std::function<int64_t(const std::vector<std::string>& nodes)> clock = {};
    size_t shared_bytes() const;  // of a block that asks, by capability
  };
  void set(const Machine& machine);

  // Names of the calls so far, in order; of kernels, copies and products that ran outside graphs
  // too.
  std::vector<std::string> calls() const;
  int64_t count(const std::string& name) const;
  std::vector<std::string> executed() const;
  void clear_log();

  // Time on the card since the recorder was made.
  int64_t device_ns() const;
  // The n-th call (1: the next) of that name fails with `answer`, or the n-th of all calls with the
  // answer "unknown" of its library. For good: and so does every later call of the runtime, as
  // after an illegal address.
  void fail(const std::string& name, int n, int answer);
  void fail_for_good(const std::string& name, int answer);
  void fail_any(int64_t n);
  // The name of the call that fail_any() made fail, or "".
  std::string failed() const;

  // Instantiated graphs, in order. Node i follows the nodes `after`, directly.
  struct Node {
    std::string name;
    std::vector<int> after;
    int branch = 0;  // 0: the stream that the capture began on, 1..: others, as they came
    // What a kernel, copy or product names of the card's memory: every word of its parameters that
    // is an address in a live block.
    std::vector<uintptr_t> memory;
    std::vector<int64_t> made;  // of each, the number of its block's allocation
  };
  struct Graph {
    std::vector<Node> nodes;
    int64_t launches = 0;
    bool precedes(int a, int b) const;
    std::vector<std::string> names() const;
  };
  std::vector<Graph> graphs() const;
  // Nodes so far of the capture that this thread has begun.
  size_t captured_nodes() const;
  // The block of the card's memory in which an address lies: where it begins, and its bytes.
  std::pair<uintptr_t, size_t> block_of(uintptr_t address) const;

  // Matrix products, as the library was asked: column-major.
  struct Matrix {
    cudaDataType type;
    int64_t rows, columns, ld;
    int64_t count = 1, apart = 0;  // how many there are, elements from one to the next
  };
  struct Matmul {
    Matrix a, b, c;
    bool transpose_a, transpose_b;
    int epilogue;
    cudaDataType bias_type;  // of the bias, or of its gradient
    const void *pa, *pb, *bias, *aux;
    int64_t aux_ld;
    void* pc;
    float beta;
    void* workspace;
    cudaStream_t stream;
  };
  std::vector<Matmul> matmuls() const;
  // Copies from the host, outside captures.
  struct Copy {
    cudaStream_t stream;
    bool pinned;
  };
  std::vector<Copy> copies() const;

  // Convolutions, as cuDNN was asked: x, weight, y, and bias if there is one.
  struct Images {
    int type = 0, n = 0, c = 0, h = 0, w = 0;
  };
  struct Convolution {
    std::string name;
    Images x, weight, y, bias;
    int pad_h, pad_w, stride_h, stride_w, math, algorithm;
    const void *px, *pweight, *py, *pbias;
    const void* workspace;
    size_t workspace_bytes;
    cudaStream_t stream;
  };
  std::vector<Convolution> convolutions() const;

  // Graphs of operations that cuDNN ran, of one product each. A tensor is a batch of one matrix; of
  // an operation that takes one operand `other` has no dims, and of a backward x is dy.
  struct GraphTensor {
    int64_t id = 0;
    int type = 0;
    std::vector<int64_t> dims, strides;
    bool is_virtual = false;
  };
  struct GraphOperation {
    int mode = 0;  // of a pointwise operation; of a product -1
    GraphTensor x, other, y;
  };
  struct GraphRun {
    std::vector<GraphOperation> operations;
    std::map<int64_t, const void*> memory;  // by a tensor's id
  };
  std::vector<GraphRun> graph_runs() const;

  // What was made and not given back: "cudaMalloc 1024", "stream", ..
  std::vector<std::string> alive() const;
  // Lets the CUDA device give back all it has, as at the end of a program, and lists what is still
  // there. REQUIRES: that of set_api().
  std::vector<std::string> leaks();
  // The host memory behind an address.
  static void* host(const void* address);
};

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
