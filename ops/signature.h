// What an op takes and gives, as data: the rule of its shapes and element types.
//
//   "x[.., I] weight[O, I] bias:same|wide[O]? -> y:out=same|wide[.., O]"
//
// Each operand, and behind the arrow each result, is a name and then, in this order, if it has it:
//   !        changed in place, so it must be dense
//   :TYPE    f32, .., u8, float, any, same or wide, or some: "i32|i64". same, if nothing is said,
//            is a floating type: that of the operand named weight or param, else of the first one
//            that has no TYPE; if all have, it is the first one's type. wide is f32 for bf16, else
//            same. "out=TYPE" of a result: the attribute `out` says which of these it is.
//   [..]     sizes. A capital letter is one size wherever it stands, a digit itself, _ any size.
//            ".." is any number of dims, the same ones wherever it stands, "*.." their product.
//            C+ must be at least 1. A word, in a result, is an attribute. Without brackets the
//            shape of an operand is any, that of a result is for the op to compute.
//   ?        it may be absent
//   ..       as many of these as there are
// What is none of this does not compile.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "ops/attrs.h"

namespace sinter {

struct OpDef;

class Signature {
 public:
  constexpr Signature() = default;
  consteval Signature(const char* text);  // NOLINT: .signature = "x[B, I] -> y[B]"

  constexpr bool empty() const { return operands_ == 0; }
  constexpr int operands() const { return operands_; }
  constexpr int required() const { return required_; }   // the last that may not be absent, + 1
  constexpr uint32_t writes() const { return writes_; }  // bit i: operand i is changed in place
  // Throws shape or dtype, naming `op`, the operands that do not go together and what they must be.
  // REQUIRES: at least the required operands, which may be undefined.
  void check(const char* op, std::span<const Tensor> in, const Attrs& attrs) const;

 private:
  friend struct OpDef;
  struct Part {  // an operand or a result
    constexpr Part() = default;
    constexpr explicit Part(std::string_view& text);  // takes it off
    std::string text() const { return str(name, "[", sizes, "]"); }
    // What every call reads comes first: all of it in one cache line.
    uint32_t types = 0;                    // bit t: DType t, then kSame and kWide
    int8_t rank = 0, rest = -1;            // rest: which of the dims is ".."
    std::array<uint8_t, 4> slot_of_dim{};  // see slots_
    bool in_place = false, has_shape = false, optional = false, repeated = false, leads = false;
    std::string_view type_attr, name, sizes;  // sizes: what the brackets hold
    std::array<std::string_view, 4> dims{};
  };
  class Match;
  constexpr uint8_t slot_of(std::string_view dim);
  std::array<Part, 9> parts_{};  // the operands, then the results
  int operands_ = 0, results_ = 0, required_ = 0;
  int like_ = 0;  // the operand whose type is `same`
  uint32_t writes_ = 0;
  // The sizes of a call, a slot for each: 0 that of "..", its product; then letters, digits and
  // attributes, each one wherever it stands, and each "_" one of its own.
  static constexpr size_t kMostSlots = 11;
  std::array<std::string_view, kMostSlots> slots_{};
  size_t n_slots_ = 1;
  uint32_t given_ = 0;  // bit s: slot s is a digit or an attribute
};

namespace signature_detail {
inline constexpr uint32_t kSame = 1 << kDTypes, kWide = 2 << kDTypes;
constexpr uint32_t type_bits(std::string_view name) {
  uint32_t bits = name == "same" ? kSame : name == "wide" ? kWide : 0;
  for (int t = 0; t < kDTypes; ++t) {
    const bool floating = is_float(DType(t)) && name == "float";
    if (name == name_of(DType(t)) || name == "any" || floating) bits |= 1u << t;
  }
  return bits ? bits : throw "no such type";
}
// Takes off the text up to the first of `ends`.
constexpr std::string_view take_until(std::string_view& text, std::string_view ends) {
  const std::string_view taken = text.substr(0, text.find_first_of(ends));
  text.remove_prefix(taken.size());
  return taken;
}
constexpr bool take(std::string_view& text, std::string_view what) {
  const bool here = text.starts_with(what);
  if (here) text.remove_prefix(what.size());
  return here;
}
}  // namespace signature_detail

constexpr Signature::Part::Part(std::string_view& text) {
  using namespace signature_detail;
  name = take_until(text, "!:[?. ");
  leads = name == "weight" || name == "param";
  in_place = take(text, "!");
  for (bool more = take(text, ":"); more; more = take(text, "|") || take(text, "=")) {
    const std::string_view word = take_until(text, "|=[?. ");
    if (text.starts_with('=')) {
      type_attr = word;
    } else {
      types |= type_bits(word);
    }
  }
  if (types == 0) types = kSame;
  if ((has_shape = take(text, "["))) {
    sizes = take_until(text, "]");
    for (std::string_view left = sizes; !left.empty(); take(left, ", "), ++rank) {
      const std::string_view dim = dims.at(size_t(rank)) = take_until(left, ",");
      if (dim == "..") rest = rank;
    }
    take(text, "]");
  }
  optional = take(text, "?");
  if (optional) leads = false;  // it may be absent, and then says nothing
  repeated = take(text, "..");
  if (name.empty() || (!text.empty() && !take(text, " "))) throw "not a signature";
}

constexpr uint8_t Signature::slot_of(std::string_view dim) {
  if (dim.ends_with("..")) return 0;
  if (dim.ends_with('+')) dim.remove_suffix(1);
  size_t slot = 1;
  while (slot < n_slots_ && (dim == "_" || slots_[slot] != dim)) ++slot;
  if (slot == n_slots_) slots_.at(n_slots_++) = dim;
  const bool letter = dim[0] >= 'A' && dim[0] <= 'Z';
  if (!letter && dim != "_") given_ |= 1u << slot;
  return static_cast<uint8_t>(slot);
}

consteval Signature::Signature(const char* words) {
  std::string_view text = words;
  for (; !text.empty() && !signature_detail::take(text, "-> "); ++operands_) {
    Part& part = parts_.at(size_t(operands_)) = Part(text);
    if (!part.optional) required_ = operands_ + 1;
    writes_ |= uint32_t{part.in_place} << operands_;
  }
  for (; !text.empty(); ++results_) parts_.at(size_t(operands_ + results_)) = Part(text);
  for (Part& part : parts_) {
    for (size_t d = 0; d < size_t(part.rank); ++d) part.slot_of_dim[d] = slot_of(part.dims[d]);
  }
  for (int i = operands_; i-- > 0;) {
    const bool found = parts_[size_t(like_)].leads;
    if (parts_[size_t(i)].types == signature_detail::kSame && !found) like_ = i;
  }
  if (like_ >= required_) throw "the operand that says the type may be absent";
}

}  // namespace sinter
