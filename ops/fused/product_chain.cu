// A product and its end (Note [A product and its end], product_chain.h); conv_act.cu has what
// follows conv2d. A block owns a tile of the results. Reads both operands of the product once per
// tile that needs them, those of the steps once; writes the results. The sums are in no memory.
#include "ops/fused/chain_end.cuh"
#include "ops/product/gemm_launch.cuh"

namespace sinter::SINTER_KERNEL_NS {

SINTER_PRODUCT_KERNELS(product_chain, Product)

namespace {

using pointwise::GeluTanh;
constexpr int kGelu = find_end(chain_detail::act<GeluTanh>()),
              kGeluKept = find_end(chain_detail::act_kept<GeluTanh>()),
              kGeluGrad = find_end(chain_detail::act_grad<GeluTanh>()),
              kGate = find_end(chain_detail::gate<GeluTanh>());

// What cuBLASLt has of an end.
GemmEpilogue::Kind library_epilogue(const Call& call, const ProductChainAttrs& end) {
  const int place = find_end(end.program);
  if (place == kRelu) return GemmEpilogue::relu;
  if (place == kGelu) return GemmEpilogue::gelu;
  if (call.out[0].size(1) % 8 != 0) return GemmEpilogue::other;
  if (place == kGeluKept) return GemmEpilogue::gelu_pre;
  // The library reads an operand as long as the result.
  const bool gradient = place == kGeluGrad && end.product == ProductKind::matmul &&
                        end.operands(call.in)[0].shape() == call.out[0].shape();
  return gradient ? GemmEpilogue::gelu_grad : GemmEpilogue::other;
}

template <int kEnd, class T, class Y>
ChainEnd<T, Y, kEnd> chain_end(const Call& call, const ProductChainAttrs& end) {
  const EndSteps<Y, kEnd> steps(end.program, end.operands(call.in), call.out, end.merged);
  if constexpr (kMayHaveBias<kEnd>) {
    return {Bias<T>(optional_input(call.in, 2)), steps};
  } else {
    return {{}, steps};
  }
}

// The kernel that is compiled for an end takes operands that lie as they mostly do: an end that
// reads nothing else follows a linear layer, one that does a product with weights as they are. Of
// ReLU's there is one for any others, too. False: it is another end, or they lie otherwise.
template <int kEnd, class T>
bool launch_compiled(const Call& call, const ProductChainAttrs& end, const Product<T>& product) {
  if constexpr (kEnd != kGate) {  // which stands behind two products (gated_linear.cu)
    constexpr Layout kAlong = Layout::along_k,
                     kB = kChainEnds[kEnd].n_inputs == 1 ? kAlong : Layout::along_outer;
    const bool bias = optional_input(call.in, 2).defined();
    if (find_end(end.program) != kEnd || (bias && !kMayHaveBias<kEnd>)) return false;
    const auto epilogue = chain_end<kEnd, T, T>(call, end);
    if constexpr (kEnd == kRelu || kEnd == kReluGrad) {
      launch_product_chain<kAlong, kB>(product, epilogue);
      return true;
    } else if (has_layout<kAlong, kB>(product, epilogue)) {
      launch_product_chain_as<kAlong, kB>(product, epilogue);
      return true;
    }
  }
  return false;
}
// Any other is interpreted, by a kernel for operands of any layout. f64 is for tests.
template <class Y, class T>
void launch_end(const Call& call, const ProductChainAttrs& end, const Product<T>& product) {
  bool done = false;
  if constexpr (std::is_same_v<T, Y> && !std::is_same_v<T, double>)
    done = [&]<size_t... E>(std::index_sequence<E...>) {
      return (launch_compiled<int(E)>(call, end, product) || ...);
    }(std::make_index_sequence<kChainEnds.size()>());
  if (!done)
    launch_product_chain_as<Layout::either, Layout::either>(
        product, chain_end<kInterpreted, T, Y>(call, end));
}

}  // namespace

void product_chain(const Call& call) {
  const auto& end = call.as<ProductChainAttrs>();
  if (end.product == ProductKind::conv2d) return convolution_with_end(call);
  const bool along_k = end.product == ProductKind::linear;
  const Tensor &a = call.in[0], &b = call.in[1], &first = call.out[0];
  const auto own = [&] {
    visit_float(a.dtype(), [&]<class T>(T) {
      with_result<T>(first.dtype(), [&]<class Y>(Y) {
        launch_end<Y>(
            call, end, Product<T>{product_side<T>(a, false), product_side<T>(b, !along_k)});
      });
    });
  };
  std::array<Tensor, 2> halves;
  if (end.merged) halves = {half_of(first, 0), half_of(first, 1)};
  const ProductSteps steps{
      &end.program, end.operands(call.in), end.merged ? Operands(halves) : Operands(call.out)};
  by_library_or(own, a, false, b, along_k, optional_input(call.in, 2), first,
      GemmEpilogue{library_epilogue(call, end), nullptr, &steps});
}

}  // namespace sinter::SINTER_KERNEL_NS
