#include "ops/signature.h"

#include <bit>

#include "ops/op.h"

namespace sinter {
namespace {

using namespace signature_detail;

// What a letter counts, in the plural, for messages: one meaning in all signatures.
std::string_view words_of(std::string_view dim) {
  constexpr std::pair<char, std::string_view> kWords[] = {{'B', "row counts"}, {'C', "channels"},
      {'D', "columns"}, {'I', "input features"}, {'N', "image counts"}, {'O', "output features"},
      {'*', "row counts"}};
  for (const auto& [letter, words] : kWords) {
    if (dim[0] == letter) return words;
  }
  return "sizes";
}

constexpr uint32_t bit_of(DType type) { return 1u << int(type); }

}  // namespace

// The operands of a call beside the signature, and what its letters are by them. Each op that runs
// comes this way, so nothing but a refusal makes text, and nothing but the results asks for memory.
class Signature::Match {
 public:
  Match(const Signature& signature, const char* op, Operands in, const Attrs& attrs)
      : signature_(signature), op_(op), in_(in), attrs_(attrs), like_(size_t(signature.like_)) {
    for (uint32_t given = signature.given_; given != 0; given &= given - 1) {
      const auto slot = size_t(std::countr_zero(given));
      const std::string_view text = signature.slots_[slot];
      sizes_[slot].value = text[0] <= '9' ? text[0] - '0' : attrs.number(text);
    }
    for (size_t i = 0; i < in.size(); ++i) check_presence(i);
    same_ = in[like_].dtype();
    if (part(like_).types == kSame && !is_float(same_)) check_floating(op_, name(like_), in[like_]);
    for (size_t i = 0; i < in.size(); ++i) check_type(i);
    for (int r = 0; r < signature.results_; ++r) check_result_type(result(r));
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i].defined() && part(i).has_shape) match(i);
    }
  }

  Tensors results() const {
    Tensors out;
    out.reserve(size_t(signature_.results_));
    for (int r = 0; r < signature_.results_; ++r) {
      const Part& p = result(r);
      Shape shape;
      for (int d = 0; d < p.rank; ++d) {
        if (d != p.rest) {
          shape.push_back(size_at(p, d).value);
        } else {
          for (const int64_t size : rest_) shape.push_back(size);
        }
      }
      out.push_back(Tensor::shape_only(shape, type_of(p), in_[like_].device()));
    }
    return out;
  }

 private:
  struct Size {
    int64_t value = -1;  // not known yet
    int by = -1;         // the operand that gave it
  };
  const Part& part(size_t i) const {
    return signature_.parts_[std::min(i, size_t(signature_.operands_) - 1)];
  }
  const Part& result(int r) const { return signature_.parts_[size_t(signature_.operands_ + r)]; }
  const Size& size_at(const Part& p, int d) const { return sizes_[p.slot_of_dim[size_t(d)]]; }
  // "x", or of a list "tensors[2]".
  std::string name(size_t i) const {
    const size_t at = i + 1 - size_t(signature_.operands_);
    return part(i).repeated ? str(part(i).name, "[", at, "]") : std::string(part(i).name);
  }

  // "x is f32[2, 3] cpu, ": the first operand, in a message about operand i.
  std::string beside(size_t i) const {
    return i > 0 && in_[0].defined() ? str(name(0), " is ", in_[0].describe(), ", ") : "";
  }

  void check_presence(size_t i) const {
    const Tensor& t = in_[i];
    const bool in_place = part(i).in_place;
    if (t.defined() ? !in_place || t.is_contiguous() : part(i).optional) [[likely]]
      return;
    SINTER_CHECK(t.defined(), shape,
        str(op_, ": ", beside(i), name(i), " is undefined; ",
            in_place ? "it is changed in place" : "a tensor is wanted"));
    check_writable(op_, name(i), t);
  }

  // Bit t: the operand or result may be of DType t.
  uint32_t allowed(const Part& p) const {
    return p.types | (p.types & kSame ? bit_of(same_) : 0) |
           (p.types & kWide ? bit_of(wide(same_)) : 0);
  }
  void check_type(size_t i) const {
    const Tensor& t = in_[i];
    if (!t.defined() || (allowed(part(i)) & bit_of(t.dtype()))) [[likely]]
      return;
    if (part(i).types & kSame) check_same_dtype(op_, name(like_), in_[like_], name(i), t);
    const std::string wanted = names_of(allowed(part(i)));
    throw Error(Error::Kind::dtype,
        str(op_, ": wrong element type: ", beside(i), name(i), " is ", t.describe(),
            "; it must be ", wanted),
        hint_for(i, wanted));
  }
  void check_result_type(const Part& p) const {
    if (p.type_attr.empty()) return;
    const DType type = type_of(p);
    SINTER_CHECK(allowed(p) & bit_of(type), dtype,
        str(op_, ": output type does not fit: ", name(like_), " is ", in_[like_].describe(), "; ",
            p.type_attr, " is ", name_of(type), ", allowed ", names_of(allowed(p))));
  }
  std::string hint_for(size_t i, std::string_view wanted) const {
    if (part(i).in_place)
      return in_[i].dtype() == DType::bf16 ? "bf16 training updates an f32 master weight" : "";
    const size_t end = wanted.find(' ');  // of the first of several
    return end == wanted.npos ? "" : str("cast(", name(i), ", DType::", wanted.substr(0, end), ")");
  }
  static std::string names_of(uint32_t types) {
    std::string out;
    for (int t = 0; t < kDTypes; ++t) {
      if (types & bit_of(DType(t))) out += str(out.empty() ? "" : " or ", name_of(DType(t)));
    }
    return out;
  }
  DType type_of(const Part& result) const {
    if (!result.type_attr.empty()) return DType(attrs_.number(result.type_attr));
    if (result.types & kSame) return same_;
    return result.types & kWide ? wide(same_) : DType(std::countr_zero(result.types));
  }

  void match(size_t i) {
    const Part& p = part(i);
    const Shape& shape = in_[i].shape();
    const int in_rest = shape.rank() - p.rank + 1;
    if (p.rest < 0 ? in_rest != 1 : in_rest < 0) refuse(i);
    const int64_t* at = shape.begin();
    for (int d = 0; d < p.rank; ++d) {
      Size& known = sizes_[p.slot_of_dim[size_t(d)]];
      int64_t size = 1;
      if (d == p.rest) {
        const std::span dims(at, size_t(in_rest));
        if (known.by >= 0 && !std::ranges::equal(dims, rest_)) refuse(i, d);
        rest_ = dims;
        for (const int64_t one : dims) size *= one;
        at += in_rest;
      } else {
        size = *at++;
      }
      SINTER_CHECK(size > 0 || !p.dims[size_t(d)].ends_with('+'), shape,
          str(op_, ": no ", words_of(p.dims[size_t(d)]), ": ", p.name, " is ", in_[i].describe(),
              "; ", p.dims[size_t(d)][0], " of ", p.text(), " must be at least 1"));
      if (known.value < 0) known = {size, int(i)};
      if (known.value != size) refuse(i, d, size);
    }
  }

  // Operand i does not fit: at dim `at`, where its size is `found`, or in its rank. Who gave what
  // it must be is named beside it.
  [[noreturn]] void refuse(size_t i, int at = -1, int64_t found = 0) const {
    const Part& p = part(i);
    const Tensor& t = in_[i];
    const std::string_view dim = at < 0 ? "" : p.dims[size_t(at)];
    // Of two operands whose sizes are all the same no letter is to blame.
    for (size_t o = 0; o < i && (p.rank > 1 || p.rest == 0); ++o) {
      if (part(o).sizes == p.sizes && p.sizes[0] != '_' && in_[o].defined())
        check_same_shape(op_, name(o), in_[o], name(i), t);
    }
    std::string wanted;
    int other = dim.empty() ? -1 : size_at(p, at).by;
    for (int d = 0; d < p.rank; ++d) {
      const std::string_view one = p.dims[size_t(d)];
      const auto [size, by] = size_at(p, d);
      if (other < 0 && by != int(i)) other = by;
      const bool known = one != "_" && d != p.rest && size >= 0;
      wanted += str(d ? ", " : "", known ? std::to_string(size) : std::string(one));
    }
    const std::string what = dim.empty() ? "wrong rank" : str(words_of(dim), " differ");
    const std::string from = str(op_, ": ", what, ": ");
    const int least = p.rank - (p.rest >= 0);
    if (other < 0) {
      throw Error(Error::Kind::shape,
          str(from, beside(i), p.name, " is ", t.describe(), "; ", p.text(), " must ",
              dim.empty() ? str("have ", p.rest < 0 ? "" : "at least ", least,
                                least == 1 ? " dim" : " dims", ", it has ", t.rank())
                          : str("be [", wanted, "]")));
    }
    const Part& q = part(size_t(other));
    const Tensor& u = in_[size_t(other)];
    const bool letter = !dim.empty() && dim[0] >= 'A' && dim[0] <= 'Z';
    throw Error(Error::Kind::shape,
        str(from, q.name, " is ", u.describe(), ", ", p.name, " is ", t.describe(), "; ",
            letter ? str(dim.substr(0, 1), " of ", q.text(), " is ", size_at(p, at).value, ", of ",
                         p.text(), " it is ", found)
                   : str(p.text(), " must be [", wanted, "] beside ", q.text())),
        letter && q.rest == 0 && u.rank() > 2 && u.numel() == u.size(0) * found
            ? str("flatten(", q.name, ") gives ", name_of(u.dtype()), "[", u.size(0), ", ", found,
                  "]")
            : "");
  }

  const Signature& signature_;
  const char* op_;
  Operands in_;
  const Attrs& attrs_;
  size_t like_;
  DType same_ = DType::f32;
  std::array<Size, kMostSlots> sizes_;
  std::span<const int64_t> rest_;  // of the shape of the operand that gave slot 0
};

void Signature::check(const char* op, Operands in, const Attrs& attrs) const {
  Match(*this, op, in, attrs);
}

Tensors OpDef::results(Operands in, const Attrs& attrs) const {
  if (signature.empty() || view) return infer ? infer(in, attrs) : Tensors();
  const Signature::Match match(signature, name.c_str(), in, attrs);
  if (check) check(in, attrs);
  return infer ? infer(in, attrs) : match.results();
}

}  // namespace sinter
