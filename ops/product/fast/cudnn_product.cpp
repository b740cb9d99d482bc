#include "ops/product/fast/cudnn_product.h"

#if SINTER_HAS_CUDA && SINTER_HAS_CUDNN

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "core/device/cuda_libraries.h"
#include "core/device/cuda_stream.h"
#include "core/device/memory.h"
#include "ops/ops.h"
#include "ops/pointwise/chain.h"

namespace sinter {
namespace {

using cuda::api;
using Descriptor = cudnnBackendDescriptor_t;
using OwnedDescriptor = cuda::Descriptor<Descriptor, &cuda::Api::cudnnBackendDestroyDescriptor>;

// About 2 ms of a small card: compiling a graph for less is not worth its time.
constexpr double kLeastTerms = 1 << 30;
constexpr int kGraphProposals = 8;

// What cuDNN calls our steps. Of a backward it reads the operand: so does our gelu's and silu's,
// and ReLU's result is positive where its operand is.
struct PointwiseMode {
  const char* op;
  cudnnPointwiseMode_t mode;
  int operands = 1;
  bool backward = false;
};
constexpr PointwiseMode kModes[] = {{"add", CUDNN_POINTWISE_ADD, 2},
    {"mul", CUDNN_POINTWISE_MUL, 2}, {"relu", CUDNN_POINTWISE_RELU_FWD},
    {"gelu", CUDNN_POINTWISE_GELU_FWD}, {"gelu_tanh", CUDNN_POINTWISE_GELU_APPROX_TANH_FWD},
    {"silu", CUDNN_POINTWISE_SWISH_FWD}, {"tanh", CUDNN_POINTWISE_TANH_FWD},
    {"sigmoid", CUDNN_POINTWISE_SIGMOID_FWD}, {"relu_backward", CUDNN_POINTWISE_RELU_BWD, 2, true},
    {"gelu_backward", CUDNN_POINTWISE_GELU_BWD, 2, true},
    {"gelu_tanh_backward", CUDNN_POINTWISE_GELU_APPROX_TANH_BWD, 2, true},
    {"silu_backward", CUDNN_POINTWISE_SWISH_BWD, 2, true}};
const PointwiseMode* mode_of(const ChainProgram::Step& step) {
  const auto found = std::ranges::find_if(kModes,
      [&](const PointwiseMode& mode) { return chain_op_number(find_op(mode.op)) == step.op; });
  return found == std::end(kModes) || step.param != 0 ? nullptr : found;
}

// A product without steps: the sums are the result.
constexpr ChainProgram kSumsAlone{.n_inputs = 1, .n_outputs = 1};
const ChainProgram& program_of(const GemmEpilogue& epilogue) {
  return epilogue.steps ? *epilogue.steps->program : kSumsAlone;
}
bool is_row(const Tensor& t, int64_t columns) {
  return t.rank() > 0 && t.numel() == columns && t.size(-1) == columns && t.is_contiguous();
}

template <class T>
void set(Descriptor to, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
    const std::vector<T>& values) {
  SINTER_CUDA_CALL(
      cudnnBackendSetAttribute(to, name, type, static_cast<int64_t>(values.size()), values.data()));
}
void set(Descriptor to, cudnnBackendAttributeName_t name, Descriptor part) {
  set(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{part});
}
void finalize(Descriptor what) { SINTER_CUDA_CALL(cudnnBackendFinalize(what)); }

// What the graph reads and writes; the ids of its tensors are their places here.
std::vector<const void*> memory_of(const ProductMemory& m, const GemmEpilogue& epilogue) {
  std::vector<const void*> memory{m.a, m.b};
  if (m.bias) memory.push_back(m.bias);
  if (!epilogue.steps) {
    memory.push_back(m.c);
    return memory;
  }
  for (const Tensor& t : epilogue.steps->operands) memory.push_back(t.raw());
  for (const Tensor& t : epilogue.steps->results) memory.push_back(t.raw());
  return memory;
}

class GraphProduct {
 public:
  GraphProduct(const Gemm& gemm, bool has_bias, const GemmEpilogue& epilogue);
  void run(const ProductMemory& memory, const GemmEpilogue& epilogue) const;

 private:
  Descriptor make(cudnnBackendDescriptorType_t type);
  Descriptor tensor(cudnnDataType_t type, int64_t rows, int64_t cols, int64_t row_stride,
      int64_t col_stride, int64_t id);
  Descriptor pointwise(
      cudnnPointwiseMode_t mode, bool backward, Descriptor x, Descriptor other, Descriptor to);
  void choose_kernel(const std::vector<Descriptor>& operations);

  std::deque<OwnedDescriptor> made_;
  Descriptor plan_ = nullptr;
  int64_t real_ = 0, virtual_ = 0;  // tensors in memory, and others, so far
};

Descriptor GraphProduct::make(cudnnBackendDescriptorType_t type) {
  SINTER_CUDA_CALL(cudnnBackendCreateDescriptor(type, &made_.emplace_back()));
  return made_.back();
}

// Of one matrix: cuDNN's products are batches. An id below 0: it is in no memory.
Descriptor GraphProduct::tensor(cudnnDataType_t type, int64_t rows, int64_t cols,
    int64_t row_stride, int64_t col_stride, int64_t id) {
  const Descriptor t = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type});
  set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::vector{int64_t{1}, rows, cols});
  set(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
      std::vector{std::max(rows * row_stride, cols * col_stride), row_stride, col_stride});
  set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector{id});
  set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::vector{int64_t{16}});
  set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, std::vector{char{id < 0}});
  finalize(t);
  return t;
}

// to = mode(x), mode(x, other) or, backward, x times the derivative at `other`.
Descriptor GraphProduct::pointwise(
    cudnnPointwiseMode_t mode, bool backward, Descriptor x, Descriptor other, Descriptor to) {
  const Descriptor what = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
                   operation = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{mode});
  set(what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  finalize(what);
  set(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
  if (backward) {
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, x);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, other);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, to);
  } else {
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (other) set(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
  }
  finalize(operation);
  return operation;
}

GraphProduct::GraphProduct(const Gemm& g, bool has_bias, const GemmEpilogue& epilogue) {
  const ChainProgram& program = program_of(epilogue);
  const cudnnDataType_t in = cuda::cudnn_type_of(g.in), out = cuda::cudnn_type_of(g.out);
  // In the order of memory_of().
  const auto real = [&](cudnnDataType_t type, int64_t rows, int64_t cols, int64_t row_stride,
                        int64_t col_stride) {
    return tensor(type, rows, cols, row_stride, col_stride, real_++);
  };
  const auto stored = [&](int64_t rows, int64_t cols, int64_t ld, bool transposed) {
    return transposed ? real(in, rows, cols, 1, ld) : real(in, rows, cols, ld, 1);
  };
  const auto between = [&] { return tensor(CUDNN_DATA_FLOAT, g.m, g.n, g.n, 1, --virtual_); };
  const Descriptor a = stored(g.m, g.k, g.lda, g.trans_a), b = stored(g.k, g.n, g.ldb, g.trans_b),
                   bias =
                       has_bias ? real(cuda::cudnn_type_of(g.bias), 1, g.n, g.n, 1) : Descriptor();
  std::vector<Descriptor> values(1), results, operations;  // value 0: the sums with their bias
  if (epilogue.steps) {
    for (const Tensor& t : epilogue.steps->operands)
      values.push_back(is_row(t, g.n) && g.m > 1 ? real(out, 1, g.n, g.n, 1)
                                                 : real(out, g.m, g.n, t.strides()[0], 1));
  }
  if (!epilogue.steps) {
    results.push_back(real(out, g.m, g.n, g.ldc, 1));
  } else {
    for (const Tensor& t : epilogue.steps->results)
      results.push_back(real(out, g.m, g.n, t.strides()[0], 1));
  }
  // A value that no later step reads is made where its result lies. Others are stored by an
  // operation of their own, so that the steps behind read what has not been rounded.
  const auto read_later = [&](int value) {
    for (int s = 0; s < program.n_steps; ++s) {
      const ChainProgram::Step& step = program.steps[static_cast<size_t>(s)];
      for (int k = 0; k < mode_of(step)->operands; ++k) {
        if (step.in[static_cast<size_t>(k)] == value) return true;
      }
    }
    return false;
  };
  const auto result_of = [&](int value) {
    const auto begin = program.outputs.begin(), end = begin + program.n_outputs;
    const auto at = std::find(begin, end, value);
    return at == end ? Descriptor() : results[static_cast<size_t>(at - begin)];
  };
  const auto place_of = [&](int value) {
    const Descriptor result = result_of(value);
    return result && !read_later(value) ? result : between();
  };
  values[0] = place_of(0);
  const Descriptor product = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR),
                   multiply = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR),
                   sums = bias ? between() : values[0];
  set(product, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  finalize(product);
  set(multiply, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  set(multiply, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  set(multiply, CUDNN_ATTR_OPERATION_MATMUL_CDESC, sums);
  set(multiply, CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
  finalize(multiply);
  operations.push_back(multiply);
  if (bias) operations.push_back(pointwise(CUDNN_POINTWISE_ADD, false, sums, bias, values[0]));
  for (int s = 0; s < program.n_steps; ++s) {
    const ChainProgram::Step& step = program.steps[static_cast<size_t>(s)];
    const PointwiseMode& mode = *mode_of(step);
    const auto operand = [&](size_t k) { return values[static_cast<size_t>(step.in[k])]; };
    const Descriptor to = place_of(program.n_inputs + s);
    operations.push_back(pointwise(
        mode.mode, mode.backward, operand(0), mode.operands > 1 ? operand(1) : Descriptor(), to));
    values.push_back(to);
  }
  for (int v = 0; v < static_cast<int>(values.size()); ++v) {
    if (result_of(v) && read_later(v))
      operations.push_back(pointwise(CUDNN_POINTWISE_IDENTITY, false,
          values[static_cast<size_t>(v)], Descriptor(), result_of(v)));
  }
  choose_kernel(operations);
}

// The first that the library proposes which repeats to the bit and fits the workspace.
void GraphProduct::choose_kernel(const std::vector<Descriptor>& operations) {
  const std::lock_guard lock(cuda::CudnnHandle::get().mutex);
  const std::vector<cudnnHandle_t> handle{cuda::CudnnHandle::get().on_stream()};
  const Descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
                   heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
  finalize(graph);
  set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{CUDNN_HEUR_MODE_A});
  finalize(heuristic);
  std::vector<Descriptor> configs;
  for (int i = 0; i < kGraphProposals; ++i)
    configs.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  int64_t found = 0;
  SINTER_CUDA_CALL(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
      CUDNN_TYPE_BACKEND_DESCRIPTOR, kGraphProposals, &found, configs.data()));
  configs.resize(std::min(configs.size(), static_cast<size_t>(found)));  // it tells all it has
  cudnnStatus_t answer = CUDNN_STATUS_SUCCESS;
  for (const Descriptor config : configs) {
    Descriptor engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t count = 0;
    SINTER_CUDA_CALL(cudnnBackendGetAttribute(
        config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine));
    std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    SINTER_CUDA_CALL(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
        CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()));
    notes.resize(static_cast<size_t>(count));
    const bool exact = std::ranges::none_of(notes, [](cudnnBackendNumericalNote_t note) {
      return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
             note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
             note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    });
    if (!exact) continue;
    const Descriptor plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    answer = api().cudnnBackendFinalize(plan);
    if (answer != CUDNN_STATUS_SUCCESS) continue;
    int64_t workspace = 0;
    SINTER_CUDA_CALL(cudnnBackendGetAttribute(
        plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &workspace));
    if (workspace > static_cast<int64_t>(kLibraryWorkspace)) continue;
    plan_ = plan;
    return;
  }
  throw Error(Error::Kind::device,
      str("cuDNN has no kernel for a product with its steps: ", configs.size(),
          " proposed, none fits; the last plan's status is ", static_cast<int>(answer)));
}

void GraphProduct::run(const ProductMemory& memory, const GemmEpilogue& epilogue) const {
  void* workspace = scratch(cuda::device(), kLibraryWorkspace).memory;
  if (cuda::rehearsing()) return;
  const std::vector<const void*> pointers = memory_of(memory, epilogue);
  std::vector<int64_t> ids;
  for (size_t i = 0; i < pointers.size(); ++i) ids.push_back(static_cast<int64_t>(i));
  OwnedDescriptor pack;
  SINTER_CUDA_CALL(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
  set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector{workspace});
  finalize(pack);
  const std::lock_guard lock(cuda::CudnnHandle::get().mutex);
  SINTER_CUDA_CALL(cudnnBackendExecute(cuda::CudnnHandle::get().on_stream(), plan_, pack));
}

}  // namespace

std::string cudnn_graph(const Gemm& g, const ProductMemory& memory, const GemmEpilogue& epilogue) {
  const bool on_tensor_cores = g.in == DType::bf16 || (g.in == DType::f32 && allow_tf32());
  const bool beyond_cublaslt = epilogue.steps || (memory.bias && g.bias != g.out);
  if (!on_tensor_cores || !beyond_cublaslt || epilogue.kind == GemmEpilogue::bias_grad ||
      static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) < kLeastTerms)
    return "";
  const ChainProgram& program = program_of(epilogue);
  for (int s = 0; s < program.n_steps; ++s) {
    if (!mode_of(program.steps[static_cast<size_t>(s)])) return "";
  }
  std::vector<const void*> pointers = memory_of(memory, epilogue);
  const bool pair = epilogue.steps && epilogue.steps->operand_b;
  if (pair) pointers.push_back(epilogue.steps->operand_b->raw());
  for (const void* p : pointers) {
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return "";
  }
  std::string text = print_value(program);
  if (!epilogue.steps) return text;
  if (pair) text += " behind a product,";
  for (const Tensor& t : epilogue.steps->operands) {
    const bool full = t.shape() == Shape{g.m, g.n} && t.strides()[1] == 1;
    if (!full && !is_row(t, g.n)) return "";
    text += full ? str(" full ", t.strides()[0]) : " row";
  }
  for (const Tensor& t : epilogue.steps->results) text += str(" to ", t.strides()[0]);
  return text;
}

CudnnProduct make_cudnn_product(const Gemm& gemm, bool has_bias, const GemmEpilogue& epilogue) {
  return std::bind_front(
      &GraphProduct::run, std::make_shared<const GraphProduct>(gemm, has_bias, epilogue));
}

}  // namespace sinter

#else

namespace sinter {
std::string cudnn_graph(const Gemm&, const ProductMemory&, const GemmEpilogue&) { return ""; }
CudnnProduct make_cudnn_product(const Gemm&, bool, const GemmEpilogue&) { return {}; }
}  // namespace sinter

#endif
