#include "nn/state_dict.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "core/numbers.h"

namespace sinter::nn {
namespace {

constexpr std::string_view kPrefixes[] = {"layers.", "module.", "net."};
constexpr size_t kLinesOfAKind = 10;

bool fits(const Tensor& to, const Tensor& from) {
  return to.shape() == from.shape() &&
         (to.dtype() == from.dtype() || (is_float(to.dtype()) && is_float(from.dtype())));
}
std::string brief(const Tensor& t) { return cat(name_of(t.dtype()), t.shape().str()); }

// Names of `from` as the model would call them, index by index; none if there is no such way.
struct Renaming {
  std::vector<std::string> names;
  std::string note;
};

// `from` against `to` under a renaming.
struct Match {
  std::vector<std::pair<Tensor, Tensor>> pairs;  // to, from
  std::vector<std::string> missing, unexpected, shape;
  std::string note;
  bool fits() const { return missing.empty() && unexpected.empty() && shape.empty(); }
};

Match match(const NamedTensors& to, const NamedTensors& from, const Renaming& renaming) {
  Match out{.note = renaming.note};
  std::unordered_map<std::string_view, const Tensor*> found;
  for (size_t i = 0; i < from.size(); ++i) {
    found.emplace(renaming.names[i], &from[i].tensor);
    if (!find(to, renaming.names[i]))
      out.unexpected.push_back(
          cat("unexpected ", escaped(from[i].name), " ", brief(from[i].tensor)));
  }
  for (const auto& [name, tensor] : to) {
    const auto it = found.find(name);
    if (it == found.end()) {
      const auto is_here = [&](const NamedTensor& other) {
        return found.contains(other.name) && other.tensor.is_same(tensor);
      };
      if (std::ranges::none_of(to, is_here))
        out.missing.push_back(cat("missing ", name, " ", brief(tensor)));
      continue;
    }
    out.pairs.emplace_back(tensor, *it->second);
    if (!fits(tensor, *it->second)) {
      out.shape.push_back(
          cat("shape ", name, ": file ", brief(*it->second), ", model ", brief(tensor)));
    }
  }
  return out;
}

// "fc2.weight" -> 2, "fc2", "weight"; nothing if the layer's name has no number, or the rest is not
// weight or bias.
struct LayerKey {
  int64_t number;
  std::string_view layer, rest;
};
std::optional<LayerKey> layer_key(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  LayerKey key{0, name.substr(0, dot), name.substr(dot + 1)};
  constexpr std::string_view kDigits = "0123456789";
  const size_t last = key.layer.find_last_of(kDigits);
  if (last == std::string_view::npos || (key.rest != "weight" && key.rest != "bias")) return {};
  const size_t before = key.layer.find_last_not_of(kDigits, last);
  const char* begin = key.layer.data() + (before == std::string_view::npos ? 0 : before + 1);
  if (std::from_chars(begin, key.layer.data() + last + 1, key.number).ec != std::errc()) return {};
  return key;
}

// Layers in the order of their numbers; nothing if a key has none or two layers share one.
std::optional<std::vector<std::string_view>> layers_in_order(const NamedTensors& list) {
  std::map<int64_t, std::string_view> layers;
  for (const auto& [name, _] : list) {
    const auto key = layer_key(name);
    if (!key || layers.emplace(key->number, key->layer).first->second != key->layer) return {};
  }
  std::vector<std::string_view> out;
  for (const auto& [_, layer] : layers) out.push_back(layer);
  return out;
}

Renaming by_order(const NamedTensors& to, const NamedTensors& from) {
  const auto wanted = layers_in_order(to), found = layers_in_order(from);
  if (!wanted || !found || wanted->size() != found->size()) return {};
  std::unordered_map<std::string_view, std::string_view> renamed;
  Renaming out{{}, "by order: "};
  for (size_t i = 0; i < found->size(); ++i) {
    renamed.emplace((*found)[i], (*wanted)[i]);
    out.note += cat(i ? ", " : "", escaped((*found)[i]), " is ", (*wanted)[i]);
  }
  for (const auto& [name, _] : from) {
    const LayerKey key = *layer_key(name);
    out.names.push_back(cat(renamed.at(key.layer), ".", key.rest));
  }
  return out;
}

// In the order in which they are tried.
std::vector<Renaming> renamings(
    const NamedTensors& to, const NamedTensors& from, bool same_keys_only) {
  std::vector<Renaming> all{{{}, "same keys"}};
  for (const auto& [name, _] : from) all[0].names.push_back(name);
  if (same_keys_only || from.empty()) return all;
  for (const std::string_view prefix : kPrefixes) {
    Renaming added{{}, cat("added the prefix ", prefix)},
        dropped{{}, cat("dropped the prefix ", prefix)};
    for (const auto& [name, _] : from) {
      added.names.push_back(cat(prefix, name));
      if (name.starts_with(prefix)) dropped.names.push_back(name.substr(prefix.size()));
    }
    if (dropped.names.size() == from.size()) all.push_back(std::move(dropped));
    all.push_back(std::move(added));
  }
  if (Renaming order = by_order(to, from); !order.names.empty()) all.push_back(std::move(order));
  return all;
}

std::string lines(const std::vector<std::string>& of_a_kind) {
  std::string out;
  for (size_t i = 0; i < std::min(of_a_kind.size(), kLinesOfAKind); ++i)
    out += "\n    " + of_a_kind[i];
  if (of_a_kind.size() > kLinesOfAKind)
    out += cat("\n    and ", of_a_kind.size() - kLinesOfAKind, " more ",
        of_a_kind[0].substr(0, of_a_kind[0].find(' ')));
  return out;
}

}  // namespace

std::string load_state_dict(
    const NamedTensors& to, const NamedTensors& from, const LoadOptions& options) {
  std::optional<Match> best;
  for (const Renaming& renaming : renamings(to, from, options.same_keys_only)) {
    Match way = match(to, from, renaming);
    const bool better = !best || way.fits() || way.pairs.size() > best->pairs.size();
    if (better) best = std::move(way);
    if (best->fits()) break;
  }
  SINTER_CHECK(best->fits(), checkpoint,
      cat("checkpoint: keys do not match: ", escaped(options.source), " is ", architecture(from),
          ", asked for ", architecture(to), "; ", best->missing.size(), " missing, ",
          best->unexpected.size(), " unexpected, ", best->shape.size(), " of another shape",
          lines(best->missing), lines(best->unexpected), lines(best->shape)),
      options.hint);
  std::set<std::string> converted;
  for (const auto& [tensor, source] : best->pairs) {
    if (source.dtype() != tensor.dtype())
      converted.insert(
          cat("; converted ", name_of(source.dtype()), " to ", name_of(tensor.dtype())));
    copy_values(tensor, source, "load_state_dict");
  }
  return best->note + join(converted, "");
}

std::string architecture(const NamedTensors& state_dict) {
  std::map<std::pair<int64_t, size_t>, const Tensor*>
      weights;  // by the layer's number, for "10.weight" comes before "2.weight" in a file
  const Tensor *gate = nullptr, *down = nullptr;
  bool chain = true;
  for (const auto& [name, tensor] : state_dict) {
    chain = chain && tensor.rank() <= 2;  // no kernels of a convolution
    if (tensor.rank() != 2) continue;
    const auto key = layer_key(name);
    weights.emplace(std::pair(key ? key->number : 0, weights.size()), &tensor);
    if (name.ends_with("gate_proj.weight")) gate = &tensor;
    if (name.ends_with("down_proj.weight")) down = &tensor;
  }
  if (gate && down && weights.size() == 3)
    return cat("geglu ", gate->size(1), "-", gate->size(0), "-", down->size(0));
  std::string sizes;
  const Tensor* before = nullptr;
  for (const auto& [_, weight] : weights) {
    if (!chain || (before && weight->size(1) != before->size(0))) {
      sizes.clear();
      break;
    }
    sizes += before ? cat("-", weight->size(0)) : cat(weight->size(1), "-", weight->size(0));
    before = weight;
  }
  if (sizes.empty()) return cat(state_dict.size(), state_dict.size() == 1 ? " tensor" : " tensors");
  return cat(weights.size() == 1 ? "linear " : "mlp ", sizes);
}

}  // namespace sinter::nn
