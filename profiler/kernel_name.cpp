#include "profiler/kernel_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>

#include "core/classic.h"
#include "core/numbers.h"

namespace sinter::profiler {

extern const char kernel_names[];  // kernel_names.txt

namespace {

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
    {"%cub%", "CUB", kPunctuation, "CUB's sources"},
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

// A pattern without its short forms.
std::string expanded(std::string_view pattern) {
  constexpr std::string_view kShort[][2] = {
      {"%at%", "(?:at::native::)?(?:\\(anonymous namespace\\)::|<unnamed>::)?"},
      {"%int%", "(?:\\(int\\))?"}, {"%cub%", "(?:at_cuda_detail::|thrust::cuda_cub::)?cub::"}};
  std::string out(pattern);
  for (const auto& [name, text] : kShort) {
    for (size_t at = 0; (at = out.find(name, at)) != out.npos;) out.replace(at, name.size(), text);
  }
  return out;
}

// Patterns of tokens in the order in which they are tried, and the words of our own kernels.
struct Readings {
  std::vector<std::pair<std::regex, std::string_view>> tokens;
  std::map<std::string_view, std::string_view> ours;

  Readings() {
    std::string_view part;
    bool is_ours = false;
    for (const std::string_view line : parts_of(kernel_names, "\n")) {
      if (line.empty() || line[0] == '#') continue;
      is_ours = is_ours || line == "[ours]";
      if (!line.starts_with("  ")) {
        part = line;
      } else if (is_ours) {
        ours.emplace(part, line.substr(2));
      } else {
        tokens.emplace_back(std::regex(expanded(part), std::regex::optimize), line.substr(2));
      }
    }
  }
};
const Readings& readings() {
  static const Readings all;
  return all;
}

// "" of a word that is none of ours.
std::string our_meaning(std::string_view text) {
  const auto known = readings().ours.find(text);
  return known == readings().ours.end() ? "" : std::string(known->second);
}
// Of a part of a kernel of ours, which has names of other parts and numbers in it.
std::string our_part(std::string_view text) {
  if (const std::string meaning = our_meaning(text); !meaning.empty()) return meaning;
  if (text.find_first_not_of("-0123456789") == text.npos) return "a number it is compiled for";
  return text[0] >= 'A' && text[0] <= 'Z' ? "the part of that name, in ops/" : "";
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
    return std::regex_search(text.begin(), end_from(0), std::regex(expanded(pattern)),
        std::regex_constants::match_continuous);
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
    const auto& tokens = readings().tokens;
    const auto found = std::ranges::find_if(tokens, [&](const auto& token) {
      return std::regex_search(core.begin() + std::ptrdiff_t(at), end_from(at), match, token.first,
                 std::regex_constants::match_continuous) &&
             match.length() > 0;
    });
    if (found != tokens.end()) {
      read.parts.push_back({match.str(), match.format(std::string(found->second))});
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
