#include "profiler/kernel_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "core/classic.h"
#include "core/error.h"

namespace sinter::profiler {
namespace {

// What compilers and tools may write before a name of PyTorch's, a number, a name of CUB's.
#define AT_NATIVE "(?:at::native::)?(?:\\(anonymous namespace\\)::|<unnamed>::)?"
#define AS_INT "(?:\\(int\\))?"
#define CUB_NAME "(?:at_cuda_detail::|thrust::cuda_cub::)?cub::"

// Whose names begin as `begin` says (a regular expression, at the start), and what stands between
// their tokens.
struct Maker {
  const char *begin, *name, *between, *source;
  bool lists_ops = false;  // the ops of a graph, then a number
};
constexpr const char* kUnderscores = "_";
constexpr const char* kPunctuation = " ,<>:()*&{}#";
constexpr const char* kSeen =
    "nobody documents these names; this is the one reading that fits all that we saw";
constexpr Maker kMakers[] = {
    {"sm\\d+_xmma_", "cuBLAS or cuDNN, kernels of the generator xmma", kUnderscores, kSeen},
    {"nvjet_", "cuBLAS, kernels of the generator nvjet", kUnderscores, kSeen},
    {"(?:volta|turing|ampere|hopper)_", "cuBLAS", kUnderscores,
        "CUTLASS's way to name kernels, whose words these use; the rest as for xmma"},
    {"cutlass", "CUTLASS, in cuBLAS, cuDNN or PyTorch", "_ ,<>:()*&",
        "CUTLASS: the functions that name its operations, media/docs/profiler.md"},
    {"cublasLt::|cublas|gemv|gemmSN|gemmk1|dot_kernel", "cuBLAS", kPunctuation, kSeen},
    {"cudnn::|implicit_convolve|precomputed_convolve", "cuDNN", kPunctuation, kSeen},
    {CUB_NAME, "CUB", kPunctuation, "CUB's sources"},
    {"at::|softmax_warp_|nll_loss_|vectorized_elementwise", "PyTorch", kPunctuation,
        "PyTorch's sources, aten/src/ATen/native/cuda"},
    {"triton_|cpp_fused_", "PyTorch's Inductor", kUnderscores, "PyTorch's sources, torch/_inductor",
        true},
    {"fmha_cutlass", "PyTorch's efficient attention", kUnderscores,
        "PyTorch's sources, aten/src/ATen/native/transformers/cuda"},
    {"cudnn_generated_", "cuDNN, kernels that it generates", kUnderscores, kSeen},
    {"flash_|pytorch_flash::", "FlashAttention", "_ ,<>:()*&", "FlashAttention's sources"},
    {"\\[?(?:CUDA m|M)em(?:cpy|set)", "the CUDA runtime", " ()[]", "CUPTI's kinds of activities"},
    {"sinter::|(?:[a-z0-9]+_)+(?:mma|ffma)_\\d", "Sinter", kPunctuation, "ops/"},
};

// A token, a regular expression, and what it says, with $1 for what its first group holds.
struct Token {
  const char *pattern, *meaning;
};
constexpr Token kTokens[] = {
    // Sinter
    {"sinter::on_cuda::", "a kernel of ours on a card"},
    {"sinter::on_simt::", "a kernel of ours on the emulator"},
    {"([a-z0-9]+(?:_[a-z0-9]+)*)_mma_(\\d+)x(\\d+)",
        "op $1: a product on tensor cores, a block makes $2 x $3 of the result"},
    {"([a-z0-9]+(?:_[a-z0-9]+)*)_ffma_(\\d+)x(\\d+)",
        "op $1: a product on CUDA cores, a block makes $2 x $3 of the result"},
    // Generators of matrix products: kinds
    {"sm(\\d+)(\\d)(?=_|$)", "for compute capability $1.$2"},
    {"xmma", "of the generator xmma"},
    {"nvjet", "of the generator nvjet"},
    {"(volta|turing|ampere|hopper)(?=_)", "for cards of the generation $1, and later ones"},
    {"implicit_gemm", "as a matrix product whose operand is gathered from images as it is read"},
    {"gemm(?=_)", "a matrix product"},
    {"fprop", "a convolution, forward"},
    {"dgrad", "a convolution, the gradient of its input"},
    {"wgrad", "a convolution, the gradient of its weights"},
    // Their types
    {"(bf16|f16|f32|f64|tf32|i8)(bf16|f16|f32|f64|i8|i32)_(bf16|f16|f32|f64|tf32|i8)"
     "(f16|f32|f64|i32)_(bf16|f16|f32|f64)(?=_)",
        "operands $1, result $2; multiplied as $3, summed in $4, scaled in $5"},
    {"(?:([htsd])([sd])([htsd]))(?=_\\d)",
        "operands $1, summed in $2, result $3: h f16, t bf16, s f32, d f64"},
    {"(bf16|f16|fp16|f32)_s(16)(8)(16)gemm",
        "result $1, summed in f32 (s); tensor-core instruction of m $2, n $3, k $4"},
    {"s(16)(8)(16)gemm",
        "summed in f32 (s); tensor-core instruction of m $1, n $2, k $3, a matrix product"},
    {"s(16)(8)(8)gemm",
        "summed in f32 (s); tensor-core instruction of m $1, n $2, k $3, which for f32 operands is "
        "TF32; a matrix product"},
    {"s(16)(16)(16)gemm",
        "summed in f32 (s); WMMA instruction of m $1, n $2, k $3, a matrix product"},
    {"(bf16|f16)_s(16)(16)(16)gemm",
        "result $1, summed in f32 (s); WMMA instruction of m $2, n $3, k $4"},
    {"h(16)(8)(8|16)gemm", "summed in f16 (h); tensor-core instruction of m $1, n $2, k $3"},
    {"[df]884gemm", "in f64; tensor-core instruction of m 8, n 8, k 4"},
    {"z884gemm", "in complex f64; tensor-core instruction of m 8, n 8, k 4"},
    {"sgemm", "a matrix product in f32 on CUDA cores"},
    {"dgemm", "a matrix product in f64 on CUDA cores"},
    {"s(\\d+)x(\\d+)x(\\d+)gemm", "summed in f32 (s); instruction of m $1, n $2, k $3"},
    {"(f8|f16|bf16|f32|e4m3|e5m2)_(f8|f16|bf16|f32|e4m3|e5m2)_(f16|f32)_(f16|bf16|f32|void)_"
     "(f16|bf16|f32|e4m3|e5m2)(?=_|$)",
        "operands $1 and $2, summed in $3, C $4, result $5"},
    {"(bf16|fp16|f16|f32|tf32)(?=_\\d|_relu_|_sliced|_aligned)", "operands $1"},
    // Their layouts
    {"([nt])([nt])_([nt])(?=_)", "A $1, B $2, result $3: n lies by columns, t by rows"},
    {"([NT])([NT])(?=[NT]+$)", "A $1, B $2: N lies by columns, T by rows"},
    {"([nt])([nt])(?=$|_|[>:])", "A $1, B $2: n lies by columns, t by rows"},
    {"nhwckrsc_nhwc", "images and result are NHWC, weights KRSC: channels last"},
    {"nchwkcrs_nchw", "images and result are NCHW, weights KCRS"},
    // Their tiles
    {"tilesize(\\d+)x(\\d+)x(\\d+)",
        "a block makes $1 x $2 of the result and takes $3 of k at a time"},
    {"stage(\\d+)", "$1 tiles of each operand are in shared memory or on their way"},
    {"stages_(\\d+)x(\\d+)",
        "$1 of k at a time, $2 tiles of each operand in shared memory or on their way"},
    {"warpgroupsize(\\d+)x(\\d+)x(\\d+)",
        "the warp groups (128 threads each) of a block: $1 along m, $2 along n, $3 along k"},
    {"warpsize(\\d+)x(\\d+)x(\\d+)", "the warps of a block: $1 along m, $2 along n, $3 along k"},
    {"tensor(\\d+)x(\\d+)x(\\d+)", "tensor-core instruction of m $1, n $2, k $3"},
    {"(\\d+)x(\\d+)_sliced(\\d+)x(\\d+)",
        "a block makes $1 x $2 of the result; its warps share k $3 x $4 ways"},
    {"ldg(\\d+)", "$1 elements by each load"},
    {"align(\\d+)", "rows begin at multiples of $1 elements"},
    {"g1(?=_)", "one group of channels"},
    {"2cta", "two blocks share a tensor-core instruction"},
    {"splitK", "k is split between blocks, whose sums are added afterwards"},
    {"(32|64|128)x(\\d+)_(\\d)x(\\d)(?=_)",
        "$1 of k at a time, $2 tiles of each operand in shared memory or on their way; clusters of "
        "$3 x $4 blocks"},
    {"(\\d+)x(\\d+)_(16|32|64|128|8)x(\\d)(?=_[nt][nt]|>|:|$)",
        "a block makes $1 x $2 of the result; $3 of k at a time, $4 tiles of each operand in "
        "shared "
        "memory or on their way"},
    {"(\\d+)x(\\d+)_rf(?=_)",
        "a block takes $1 queries and $2 keys at a time; sums stay in registers"},
    {"(\\d+)x(\\d+)(?=_|$)", "a block makes $1 x $2 of the result"},
    // Their ends
    {"bias", "adds a bias"},
    {"relu(?=_)", "with the epilogue that can apply ReLU"},
    {"execute_segment_k_off_kernel__5x", "k stays whole (segment_k off), the entry that computes"},
    {"execute_kernel__5x", "the entry that computes"},
    {"cublas(?=$)", "built into cuBLAS"},
    {"cudnn(?=$)", "built into cuDNN"},
    // CUTLASS
    {"cutlass::Kernel2?<", "CUTLASS's entry for kernels of version 2"},
    {"cutlass3x", "CUTLASS, interface of version 3"},
    {"cutlass_(\\d)(\\d)", "CUTLASS, for compute capability $1.$2 and later"},
    {"cutlass", "CUTLASS"},
    {"wmma_tensorop|tensorop", "on tensor cores"},
    {"simt(?=_)", "on CUDA cores"},
    // cuBLAS's small kernels
    {"cublasLt::splitKreduce_kernel<" AS_INT "(\\d+), ?" AS_INT "(\\d+)",
        "adds the shares of a product whose k was split; blocks by $1 x $2 threads"},
    {"gemv2T_kernel_val", "a matrix, transposed, by a vector"},
    {"gemv2N_kernel", "a matrix by a vector"},
    {"gemvNSP_kernel", "a matrix by a vector, many at once"},
    {"gemmSN_(NN|TN)_kernel", "a small matrix product on CUDA cores; the letters are A and B: $1"},
    // cuDNN
    {"cudnn::", "cuDNN's"},
    {"bn_bw_1C11_kernel_new", "batch norm, backward, moments a channel (1 x C x 1 x 1)"},
    {"bn_fw_tr_1C11_kernel_NCHW",
        "batch norm, forward in training, moments a channel (1 x C x 1 x 1), images NCHW"},
    {"bn_fw_inf_1C11_kernel_NCHW",
        "batch norm, forward in evaluation, moments a channel (1 x C x 1 x 1), images NCHW"},
    {"ops::nchwToNhwcKernel", "images from channels first (NCHW) to channels last (NHWC)"},
    {"ops::nhwcToNchwKernel", "images from channels last (NHWC) to channels first (NCHW)"},
    {"implicit_convolve_sgemm", "a convolution as a matrix product in f32, gathered as it is read"},
    {"precomputed_convolve_sgemm",
        "a convolution as a matrix product in f32, gathered by offsets computed before"},
    // CUB
    {CUB_NAME "DeviceReduceSingleTileKernel",
        "a sum or the like, its last step: one block for all that is left"},
    {CUB_NAME "DeviceReduceKernel", "a sum or the like, its first step: one result a block"},
    {CUB_NAME "DeviceRadixSort\\w*", "a step of a radix sort"},
    {CUB_NAME "DeviceScan\\w*", "a step of running sums"},
    {CUB_NAME "DeviceReducePolicy", "tuned for"},
    {"Policy(\\d+)(\\d)0", "compute capability $1.$2 and later"},
    // PyTorch
    {"at::native::vectorized_elementwise_kernel<" AS_INT "(\\d+)|"
     "vectorized_elementwise_kernel<" AS_INT "(\\d+)",
        "one pointwise op over dense tensors, $1$2 elements by each load"},
    {"at::native::unrolled_elementwise_kernel",
        "one pointwise op whose tensors cannot be read by vectors, such as of several types"},
    {"at::native::elementwise_kernel<" AS_INT "(\\d+), ?" AS_INT "(\\d+)",
        "one pointwise op over strided tensors, blocks of $1 threads, $2 elements each"},
    {"at::native::index_elementwise_kernel<" AS_INT "(\\d+), ?" AS_INT "(\\d+)",
        "reads or writes by an index, blocks of $1 threads, $2 elements each"},
    {"at::native::reduce_kernel<" AS_INT "(\\d+), ?" AS_INT "(\\d+)",
        "a sum or the like over dims, blocks of at most $1 threads, $2 results each"},
    {AT_NATIVE "multi_tensor_apply_kernel",
        "one op over a list of tensors, many in one launch (foreach)"},
    {AT_NATIVE "TensorListMetadata<" AS_INT "(\\d+)>", "lists of $1 tensors side by side"},
    {AT_NATIVE "BinaryOpListAlphaFunctor<"
               "(\\w+), ?(\\d+), ?(\\d+), ?(\\d+)>",
        "a op b with a factor, of $1: depth $2, $3 operands, the result is number $4"},
    {AT_NATIVE "FusedAdamMathFunctor", "Adam's update, all of it (fused=True)"},
    {AT_NATIVE "cunn_SoftMaxForward<" AS_INT "(\\d+)",
        "softmax, forward, a block a row, $1 elements by each load"},
    {AT_NATIVE "SoftMaxForwardEpilogue", "ends as softmax"},
    {AT_NATIVE "LogSoftMaxForwardEpilogue", "ends as log_softmax"},
    {"(?:\\(anonymous namespace\\)::|<unnamed>::)?softmax_warp_(forward|backward)<([\\w:]+), ?"
     "([\\w:]+), ?([\\w:]+), ?" AS_INT "(\\d+), ?(?:\\(bool\\))?(\\w+), "
     "?(?:\\(bool\\))?(\\w+)>",
        "softmax, $1, a warp a row: input $2, output $3, sums $4; rows of at most 2^$5; as "
        "log_softmax: $6; with a mask: $7"},
    {AT_NATIVE "nll_loss_(forward|backward)_reduce_cuda_kernel_2d", "the loss of class labels, $1"},
    {AT_NATIVE "vectorized_layer_norm_kernel", "layer norm, forward, by vector loads"},
    {"(?:at::native::)?CUDAFunctor_add<([\\w:]+)>", "a + b of $1"},
    {"(?:at::native::)?CUDAFunctorOnSelf_add<([\\w:]+)>", "a + number of $1"},
    {"(?:at::native::)?FillFunctor<([\\w:]+)>", "fills with a number, $1"},
    {"(?:at::native::)?BinaryFunctor<(\\w+), ?(\\w+), ?(\\w+), ?"
     "(?:at::native::)?binary_internal::(Mul|Div)Functor<\\w+> ?>",
        "$4 of $1 and $2 to $3"},
    {"(?:at::native::)?(?:binary_internal::)?MulFunctor<(\\w+)>", "a * b of $1"},
    {"(?:at::native::)?GeluCUDAKernelImpl", "GELU"},
    {"(?:at::native::)?(?:bfloat16|float16|direct)_copy_kernel_cuda",
        "a copy, maybe to another type"},
    {"(?:at::native::)?ReduceOp<(\\w+)", "of $1"},
    {"std::array<char ?\\*, ?(?:\\(unsigned long\\))?(\\d+)(?:ul)?>",
        "$1 tensors: result and operands"},
    {"std::plus<(\\w+)>", "a + b of $1"},
    {"thrust::plus<(\\w+)>", "sums of $1"},
    // Inductor
    {"triton_poi_fused", "Triton, pointwise (poi), fused of"},
    {"triton_red_fused", "Triton, sums or the like in a loop (red), fused of"},
    {"triton_per_fused", "Triton, sums or the like of rows that fit a block (per), fused of"},
    {"triton_tem_fused", "Triton, from a template such as of matrix products (tem), fused of"},
    {"cpp_fused", "C++ on the CPU, fused of"},
    // FlashAttention
    {"(?:pytorch_flash::)?flash_fwd_kernel", "attention, forward, scores never in memory"},
    {"(?:pytorch_flash::)?flash_bwd_\\w*kernel", "attention, backward, scores computed again"},
    {"fmha_cutlass([FB])", "attention by CUTLASS, scores never in memory; F forward, B backward"},
    {"aligned", "rows begin at multiples of 16 bytes"},
    {"cudnn_generated_fort_native_sdpa", "attention, generated by cuDNN"},
    {"flash_(f|b)prop", "scores never in memory; f forward, b backward: $1"},
    {"cga(\\d)x(\\d)x(\\d)", "clusters of $1 x $2 x $3 blocks"},
    {"(?:pytorch_flash::)?Flash_fwd_kernel_traits<" AS_INT "(\\d+), ?" AS_INT "(\\d+), ?" AS_INT
     "(\\d+)",
        "heads of $1 numbers; a block takes $2 queries and $3 keys at a time"},
    // Copies
    {"(?:CUDA )?[mM]emcpy", "a copy"},
    {"(?:CUDA )?[mM]emset", "fills bytes"},
    {"HtoD", "from host to device"},
    {"DtoH", "from device to host"},
    {"DtoD", "from device to device"},
    {"(Pageable|Pinned) -> Device", "the host's memory is $1"},
    {"Device -> (Pageable|Pinned)", "the host's memory is $1"},
    {"Device", "in the device's memory"},
    // C++ around all of these
    {"float(?=$|[ ,>)*])", "f32"},
    {"double(?=$|[ ,>)*])", "f64"},
    {"(?:c10::BFloat16|__nv_bfloat16)", "bf16"},
    {"(?:c10::Half|__half)(?=$|[ ,>)*])", "f16"},
    {"(?:unsigned )?(?:int|long long|long)(?=$|[ ,>)*])", "whole numbers"},
};
#undef AT_NATIVE
#undef AS_INT
#undef CUB_NAME

// Words in the names of our kernels: functions, then what they are compiled for.
struct Word {
  std::string_view text;
  const char* meaning;
};
constexpr Word kOurWords[] = {
    {"pointwise_vec", "one pointwise op over dense tensors, by vector loads"},
    {"pointwise_strided", "one pointwise op over strided tensors"},
    {"listed_strided", "one pointwise op of a list over strided tensors, chosen as it runs"},
    {"pointwise_chain_vec", "several pointwise ops in one pass, by vector loads"},
    {"gate_rows", "a gate, columns by vector loads, row after row"},
    {"rows_by_warp", "a formula of rows, a warp a row"},
    {"rows_by_block", "a formula of rows, a block a row"},
    {"channels_by_block", "a formula of channels, a block a channel"},
    {"planes_by_block", "a formula of channels, a block a channel of one image"},
    {"reduce_rows", "a sum or the like of terms that lie side by side"},
    {"reduce_columns", "a sum or the like for outputs that lie side by side"},
    {"max_backward_kernel", "the gradient of a maximum, a warp an output"},
    {"argmax_lanes", "the place of the largest"},
    {"multi_tensor_update", "the optimizer's update of many tensors in one launch"},
    {"clip_norm_squares", "the norm of all gradients, and where they are short the scaling"},
    {"clip_norm_scale", "scales gradients to the norm"},
    {"gather_batch_rows", "fetches the images of a batch from the data set"},
    {"cat_units", "joins tensors along a dim"},
    {"dropout_philox", "dropout, its mask by the generator Philox"},
    {"max_pool2d_windows", "maxima of windows, and their places"},
    {"max_pool2d_gather", "the gradient of max pooling, an element from all windows that hold it"},
    {"max_pool2d_spread", "the gradient of max pooling where windows lie side by side"},
    {"avg_pool2d_windows", "means of windows"},
    {"avg_pool2d_gather", "the gradient of mean pooling"},
    {"row_chain_ffma_16", "op row_chain: products on CUDA cores, a block takes 16 rows"},
    {"row_chain_mma_16", "op row_chain: products on tensor cores, a block takes 16 rows"},
    {"Layout", "how an operand lies in memory, as it was known when the kernel was compiled"},
    {"along_k", "by chunks of 16 bytes along k, the dim that is summed over, all whole"},
    {"along_outer", "by chunks of 16 bytes along the other dim than k, all whole"},
    {"ragged_k", "as along_k, chunks perhaps not whole"},
    {"ragged_outer", "as along_outer, chunks perhaps not whole"},
    {"either", "asked as the kernel runs"},
    {"Forward", "the values of the op that follows"},
    {"Backward", "the gradient of the op that follows"},
    {"Convert", "a copy to another type"},
    {"pointwise", "a pointwise op by its name"},
    {"optim", "an optimizer by its name"},
    {"StoreSums", "the end of the product: stores sums, with the bias if there is one"},
    {"StoreImages", "the end of the product: stores images, with the bias of each channel"},
    {"StoreGrads", "the end of the product: the gradient of the weight, and of the bias"},
    {"StoreGradImages", "the end of the product: the gradient of the images"},
    {"PoolOfImages", "the end of the product: relu of the maxima of windows"},
    {"GateOfSums", "the end of the product: a gate"},
    {"ChainEnd", "the end of the product: several pointwise ops, by their number"},
    {"Product", "a product by its two operands"},
    {"ProductOfLaunch", "one of the products that share the launch"},
    {"WindowSide", "an operand: the windows of images, gathered as they are read"},
    {"WindowKind", "which windows: of the gradient, with positions as k, in squares"},
    {"RunSide", "an operand whose k come in runs that lie apart"},
    {"Pixels", "pixels as they are"},
    {"PixelsOfDz", "gradients of relu and pooling, made as they are read"},
    {"SumOf", "a sum"},
    {"ElementTerms", "of the elements of a tensor"},
    {"sinter", "of ours"},
    {"bf16", "bf16"},
    {"true", "a switch, on"},
    {"false", "a switch, off"},
};

// "" of a word that is none of ours.
std::string our_meaning(std::string_view text) {
  const auto known = std::ranges::find(kOurWords, text, &Word::text);
  return known == std::end(kOurWords) ? "" : known->meaning;
}
// Of a part of a kernel of ours, which has names of other parts and numbers in it.
std::string our_part(std::string_view text) {
  if (const std::string meaning = our_meaning(text); !meaning.empty()) return meaning;
  if (text.find_first_not_of("-0123456789") == text.npos) return "a number it is compiled for";
  return text[0] >= 'A' && text[0] <= 'Z' ? "the part of that name, in ops/" : "";
}

struct Rule {
  std::regex pattern;
  const char* meaning;
};
const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = [] {
    std::vector<Rule> rules;
    for (const Token& token : kTokens)
      rules.push_back({std::regex(token.pattern, std::regex::optimize), token.meaning});
    return rules;
  }();
  return all;
}

// Without what C++ and tools put around: "void ", the arguments, a cut end.
std::string_view core_of(std::string_view name) {
  if (name.starts_with("void ")) name.remove_prefix(5);
  if (!name.empty() && name.back() == ')' && name.find("::") != name.npos) {
    int depth = 0;
    for (size_t at = name.size(); at-- > 0;) {
      depth += name[at] == ')' ? 1 : name[at] == '(' ? -1 : 0;
      if (depth == 0) {
        const bool arguments = at > 0 && (name[at - 1] == '>' || is_alnum(name[at - 1]));
        if (arguments) name = name.substr(0, at);
        break;
      }
    }
  }
  return name;
}

}  // namespace

bool KernelName::whole() const {
  return std::ranges::none_of(parts, [](const NamePart& part) { return part.meaning.empty(); });
}

std::string KernelName::text() const {
  size_t width = 0;
  for (const NamePart& part : parts)
    width = std::max(width, std::min<size_t>(part.text.size(), 32));
  std::string out = maker + "\n";
  for (const NamePart& part : parts)
    out += fmt::format("  {:<{}}  {}\n", escaped(part.text), width,
        part.meaning.empty() ? "unknown" : part.meaning);
  return out + "read by: " + source + "\n";
}

// std::regex calls itself for each character that it tries, so it gets no more than this many, in
// which each token fits; a longer text than kLongest is no name.
constexpr size_t kLongestToken = 500, kLongest = 20'000;

std::optional<KernelName> read_kernel_name(std::string_view name) {
  if (name.size() > kLongest) return {};
  const std::string core(core_of(name));
  const auto end_from = [&core](size_t at) {
    return core.begin() + std::ptrdiff_t(std::min(at + kLongestToken, core.size()));
  };
  const auto at_start = [&end_from](const std::string& text, const char* pattern) {
    return std::regex_search(
        text.begin(), end_from(0), std::regex(pattern), std::regex_constants::match_continuous);
  };
  const Maker* maker =
      std::ranges::find_if(kMakers, [&](const Maker& one) { return at_start(core, one.begin); });
  if (maker == std::end(kMakers)) {
    if (our_meaning(core.substr(0, core.find_first_of(" ,<>:("))).empty()) return {};
    --maker;  // Sinter, the last
  }
  KernelName read{maker->name, maker->source, {}};
  const std::string_view between = maker->between;
  for (size_t at = 0; at < core.size();) {
    if (between.find(core[at]) != between.npos) {
      ++at;
      continue;
    }
    std::smatch match;
    const auto found = std::ranges::find_if(rules(), [&](const Rule& rule) {
      return std::regex_search(core.begin() + std::ptrdiff_t(at), end_from(at), match, rule.pattern,
                 std::regex_constants::match_continuous) &&
             match.length() > 0;
    });
    if (found != rules().end()) {
      read.parts.push_back({match.str(), match.format(found->meaning)});
      at += size_t(match.length());
    } else {
      const size_t end = std::min(core.find_first_of(between, at), core.size());
      read.parts.push_back({core.substr(at, end - at), ""});
      at = end;
    }
  }
  if (maker == std::end(kMakers) - 1) {
    for (NamePart& part : read.parts) {
      if (part.meaning.empty()) part.meaning = our_part(part.text);
    }
  }
  if (maker->lists_ops && read.parts.size() > 2) {
    std::string ops;
    for (size_t i = 1; i + 1 < read.parts.size(); ++i)
      ops += (i > 1 ? "_" : "") + read.parts[i].text;
    const NamePart first = read.parts.front(), last = read.parts.back();
    read.parts = {first, {ops, "the ops, one after the other"},
        {last.text, "the number of the kernel in its graph"}};
  }
  return read;
}

}  // namespace sinter::profiler
