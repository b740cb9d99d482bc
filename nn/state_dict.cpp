#include "nn/state_dict.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>

#include "core/numbers.h"

namespace sinter::nn {
namespace {

constexpr std::string_view kPrefix = "module.";  // of PyTorch's DataParallel
constexpr size_t kLinesOfAKind = 10;

bool fits(const Tensor& to, const Tensor& from) {
  return to.shape() == from.shape() &&
         (to.dtype() == from.dtype() || (is_float(to.dtype()) && is_float(from.dtype())));
}
std::string brief(const Tensor& t) { return sinter::str(name_of(t.dtype()), t.shape().str()); }

// `from` against `to`.
struct Match {
  std::vector<std::pair<Tensor, Tensor>> pairs;  // to, from
  std::vector<std::string> missing, unexpected, shape;
  bool fits() const { return missing.empty() && unexpected.empty() && shape.empty(); }
};

// `prefix` stands before each name of `from`.
Match match(const NamedTensors& to, const NamedTensors& from, std::string_view prefix) {
  Match out;
  std::unordered_map<std::string_view, const Tensor*> found;
  for (const auto& [name, tensor] : from) {
    const std::string_view here = std::string_view(name).substr(prefix.size());
    found.emplace(here, &tensor);
    if (!find(to, here))
      out.unexpected.push_back(sinter::str("unexpected ", escaped(name), " ", brief(tensor)));
  }
  for (const auto& [name, tensor] : to) {
    const auto it = found.find(name);
    if (it == found.end()) {
      const auto is_here = [&](const NamedTensor& other) {
        return found.contains(other.name) && other.tensor.is_same(tensor);
      };
      if (std::ranges::none_of(to, is_here))
        out.missing.push_back(sinter::str("missing ", name, " ", brief(tensor)));
      continue;
    }
    out.pairs.emplace_back(tensor, *it->second);
    if (!fits(tensor, *it->second)) {
      out.shape.push_back(
          sinter::str("shape ", name, ": file ", brief(*it->second), ", model ", brief(tensor)));
    }
  }
  return out;
}

// The last number of a layer's name, 2 of "fc2.weight"; 0 if it has none.
int64_t layer_number(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789";
  const std::string_view layer = name.substr(0, name.rfind('.'));
  const size_t last = layer.find_last_of(kDigits);
  if (last == std::string_view::npos) return 0;
  int64_t number = 0;
  const size_t first = layer.find_last_not_of(kDigits, last) + 1;  // behind npos: 0
  std::from_chars(layer.data() + first, layer.data() + last + 1, number);
  return number;
}

std::string lines(const std::vector<std::string>& of_a_kind) {
  std::string out;
  for (size_t i = 0; i < std::min(of_a_kind.size(), kLinesOfAKind); ++i)
    out += "\n    " + of_a_kind[i];
  if (of_a_kind.size() > kLinesOfAKind)
    out += sinter::str("\n    and ", of_a_kind.size() - kLinesOfAKind, " more ",
        of_a_kind[0].substr(0, of_a_kind[0].find(' ')));
  return out;
}

}  // namespace

std::string load_state_dict(
    const NamedTensors& to, const NamedTensors& from, const LoadOptions& options) {
  const auto has_prefix = [](const NamedTensor& t) { return t.name.starts_with(kPrefix); };
  const bool drops = !options.same_keys_only && !from.empty() &&
                     std::ranges::all_of(from, has_prefix) && std::ranges::none_of(to, has_prefix);
  const Match found = match(to, from, drops ? kPrefix : "");
  SINTER_CHECK(found.fits(), checkpoint,
      sinter::str("checkpoint: keys do not match: ", escaped(options.source), " is ",
          architecture(from), ", asked for ", architecture(to), "; ", found.missing.size(),
          " missing, ", found.unexpected.size(), " unexpected, ", found.shape.size(),
          " of another shape", lines(found.missing), lines(found.unexpected), lines(found.shape)),
      options.hint);
  std::set<std::string> converted;
  for (const auto& [tensor, source] : found.pairs) {
    if (source.dtype() != tensor.dtype())
      converted.insert(
          sinter::str("; converted ", name_of(source.dtype()), " to ", name_of(tensor.dtype())));
    copy_values(tensor, source, "load_state_dict");
  }
  return (drops ? sinter::str("dropped the prefix ", kPrefix) : "same keys") + join(converted, "");
}

std::string architecture(const NamedTensors& state_dict) {
  std::map<std::pair<int64_t, size_t>, const Tensor*>
      weights;  // by the layer's number, for "10.weight" comes before "2.weight" in a file
  const Tensor *gate = nullptr, *down = nullptr;
  bool chain = true;
  for (const auto& [name, tensor] : state_dict) {
    chain = chain && tensor.rank() <= 2;  // no kernels of a convolution
    if (tensor.rank() != 2) continue;
    weights.emplace(std::pair(layer_number(name), weights.size()), &tensor);
    if (name.ends_with("gate_proj.weight")) gate = &tensor;
    if (name.ends_with("down_proj.weight")) down = &tensor;
  }
  if (gate && down && weights.size() == 3)
    return sinter::str("geglu ", gate->size(1), "-", gate->size(0), "-", down->size(0));
  std::string sizes;
  const Tensor* before = nullptr;
  for (const auto& [_, weight] : weights) {
    if (!chain || (before && weight->size(1) != before->size(0))) {
      sizes.clear();
      break;
    }
    sizes += before ? sinter::str("-", weight->size(0))
                    : sinter::str(weight->size(1), "-", weight->size(0));
    before = weight;
  }
  if (sizes.empty())
    return sinter::str(state_dict.size(), state_dict.size() == 1 ? " tensor" : " tensors");
  return sinter::str(weights.size() == 1 ? "linear " : "mlp ", sizes);
}

}  // namespace sinter::nn
