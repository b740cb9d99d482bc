#include "ops/signature.h"

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

bool is_letter(std::string_view dim) { return !dim.empty() && dim[0] >= 'A' && dim[0] <= 'Z'; }

}  // namespace

bool Signature::Part::takes(DType type, DType same) const {
  return (types >> int(type) & 1) || ((types & kSame) && type == same) ||
         ((types & kWide) && type == wide(same));
}

// The operands of a call beside the signature, and what its letters are by them.
class Signature::Match {
 public:
  Match(const Signature& signature, const char* op, Operands in, const Attrs& attrs)
      : signature_(signature), op_(op), in_(in), attrs_(attrs) {
    check_presence();
    for (size_t i = in.size(); i-- > 0;) {
      if (part(i).types == kSame && !part(like_).leads) like_ = i;
    }
    same_ = in[like_].dtype();
    check_types();
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i].defined() && part(i).has_shape) match(i);
    }
  }

  Tensors results() const {
    Tensors out;
    for (int r = 0; r < signature_.results_; ++r) {
      Shape shape;
      for (int d = 0; d < result(r).rank; ++d) {
        if (d != result(r).rest) {
          shape.push_back(known(result(r).dims[size_t(d)]));
        } else {
          for (const int64_t size : rest_) shape.push_back(size);
        }
      }
      out.push_back(Tensor::shape_only(shape, type_of(result(r)), in_[like_].device()));
    }
    return out;
  }

 private:
  const Part& part(size_t i) const {
    return signature_.parts_[std::min(i, size_t(signature_.operands_) - 1)];
  }
  const Part& result(int r) const { return signature_.parts_[size_t(signature_.operands_ + r)]; }
  // "x", or of a list "tensors[2]".
  std::string name(size_t i) const {
    const size_t at = i + 1 - size_t(signature_.operands_);
    return part(i).repeated ? cat(part(i).name, "[", at, "]") : std::string(part(i).name);
  }

  // "x is f32[2, 3] cpu, ": the first operand, in a message about operand i.
  std::string beside(size_t i) const {
    return i > 0 && in_[0].defined() ? cat(name(0), " is ", in_[0].describe(), ", ") : "";
  }

  void check_presence() const {
    for (size_t i = 0; i < in_.size(); ++i) {
      const bool defined = in_[i].defined(), in_place = part(i).in_place;
      if (defined ? !in_place || in_[i].is_contiguous() : part(i).optional) continue;
      SINTER_CHECK(defined, shape,
          cat(op_, ": ", beside(i), name(i), " is undefined; ",
              in_place ? "it is changed in place" : "a tensor is wanted"));
      check_writable(op_, name(i), in_[i]);
    }
  }

  void check_types() const {
    const Tensor& like = in_[like_];
    if (part(like_).types == kSame) check_floating(op_, name(like_), like);
    for (size_t i = 0; i < in_.size(); ++i) {
      const Tensor& t = in_[i];
      if (!t.defined() || part(i).takes(t.dtype(), same_)) continue;
      if (part(i).types & kSame) check_same_dtype(op_, name(like_), like, name(i), t);
      const std::string wanted = allowed(part(i));
      throw Error(Error::Kind::dtype,
          cat(op_, ": wrong element type: ", beside(i), name(i), " is ", t.describe(),
              "; it must be ", wanted),
          hint_for(i, wanted));
    }
    for (int r = 0; r < signature_.results_; ++r) {
      if (result(r).type_attr.empty()) continue;
      SINTER_CHECK(result(r).takes(type_of(result(r)), same_), dtype,
          cat(op_, ": output type does not fit: ", name(like_), " is ", like.describe(), "; ",
              result(r).type_attr, " is ", name_of(type_of(result(r))), ", allowed ",
              allowed(result(r))));
    }
  }
  std::string hint_for(size_t i, std::string_view wanted) const {
    if (part(i).in_place)
      return in_[i].dtype() == DType::bf16 ? "bf16 training updates an f32 master weight" : "";
    const size_t end = wanted.find(' ');  // of the first of several
    return end == wanted.npos ? "" : cat("cast(", name(i), ", DType::", wanted.substr(0, end), ")");
  }
  std::string allowed(const Part& wanted) const {
    std::string out;
    for (int t = 0; t < kDTypes; ++t) {
      if (wanted.takes(DType(t), same_)) out += cat(out.empty() ? "" : " or ", name_of(DType(t)));
    }
    return out;
  }
  DType type_of(const Part& result) const {
    if (!result.type_attr.empty()) return DType(attrs_.number(result.type_attr));
    for (int t = 0; t < kDTypes; ++t) {
      if (result.types == 1u << t) return DType(t);
    }
    return result.types == kWide ? wide(same_) : same_;
  }

  // A dim that is a letter, a number or the like, by what is known; -1: any.
  int64_t known(std::string_view dim) const {
    if (is_letter(dim)) return letters_[size_t(dim[0] - 'A')].size;
    if (dim[0] == '*') return rest_.numel();
    return dim[0] == '_' ? -1 : dim[0] <= '9' ? dim[0] - '0' : attrs_.number(dim);
  }

  void match(size_t i) {
    const Part& p = part(i);
    const Shape& shape = in_[i].shape();
    const int in_rest = shape.rank() - p.rank + 1;
    if (p.rest < 0 ? in_rest != 1 : in_rest < 0) refuse(i);
    for (int d = 0, at = 0; d < p.rank; ++d) {
      const std::string_view dim = p.dims[size_t(d)];
      if (d == p.rest) {
        const Shape dims(std::span(shape.begin() + at, size_t(in_rest)));
        if (rest_by_ >= 0 && dims != rest_) refuse(i, dim);
        if (rest_by_ < 0) rest_by_ = int(i);
        rest_ = dims;
        at += in_rest;
        continue;
      }
      const int64_t size = shape[at++];
      SINTER_CHECK(size > 0 || !dim.ends_with('+'), shape,
          cat(op_, ": no ", words_of(dim), ": ", p.name, " is ", in_[i].describe(), "; ",
              dim.substr(0, 1), " of ", p.text(), " must be at least 1"));
      if (is_letter(dim)) {
        Letter& letter = letters_[size_t(dim[0] - 'A')];
        if (letter.by < 0) letter = {size, int(i)};
        if (size != letter.size) refuse(i, dim, size);
      } else if (dim[0] != '_' && size != known(dim)) {
        refuse(i, dim, size);
      }
    }
  }

  // Who gave a dim, or -1.
  int giver(std::string_view dim) const {
    if (dim[0] == '.' || dim[0] == '*') return rest_by_;
    return is_letter(dim) ? letters_[size_t(dim[0] - 'A')].by : -1;
  }

  // Operand i does not fit: at `dim`, where its size is `found`, or in its rank. Who gave what it
  // must be is named beside it.
  [[noreturn]] void refuse(size_t i, std::string_view dim = "", int64_t found = 0) const {
    const Part& p = part(i);
    const Tensor& t = in_[i];
    // Of two operands whose sizes are all the same no letter is to blame.
    for (size_t o = 0; o < i && (p.rank > 1 || p.rest == 0); ++o) {
      if (part(o).sizes == p.sizes && p.sizes[0] != '_' && in_[o].defined())
        check_same_shape(op_, name(o), in_[o], name(i), t);
    }
    std::string wanted;
    int other = dim.empty() ? -1 : giver(dim);
    for (int d = 0; d < p.rank; ++d) {
      const std::string_view one = p.dims[size_t(d)];
      if (other < 0 && giver(one) != int(i)) other = giver(one);
      const bool size = one != "_" && d != p.rest && known(one) >= 0;
      wanted += cat(d ? ", " : "", size ? std::to_string(known(one)) : std::string(one));
    }
    const std::string what = dim.empty() ? "wrong rank" : cat(words_of(dim), " differ");
    const std::string from = cat(op_, ": ", what, ": ");
    const int least = p.rank - (p.rest >= 0);
    if (other < 0) {
      throw Error(Error::Kind::shape,
          cat(from, beside(i), p.name, " is ", t.describe(), "; ", p.text(), " must ",
              dim.empty() ? cat("have ", p.rest < 0 ? "" : "at least ", least,
                                least == 1 ? " dim" : " dims", ", it has ", t.rank())
                          : cat("be [", wanted, "]")));
    }
    const Part& q = part(size_t(other));
    const Tensor& u = in_[size_t(other)];
    const bool letter = is_letter(dim);
    throw Error(Error::Kind::shape,
        cat(from, q.name, " is ", u.describe(), ", ", p.name, " is ", t.describe(), "; ",
            letter ? cat(dim.substr(0, 1), " of ", q.text(), " is ", known(dim), ", of ", p.text(),
                         " it is ", found)
                   : cat(p.text(), " must be [", wanted, "] beside ", q.text())),
        letter && q.rest == 0 && u.rank() > 2 && u.numel() == u.size(0) * found
            ? cat("flatten(", q.name, ") gives ", name_of(u.dtype()), "[", u.size(0), ", ", found,
                  "]")
            : "");
  }

  struct Letter {
    int64_t size = -1;
    int by = -1;  // the operand that gave it
  };
  const Signature& signature_;
  const char* op_;
  Operands in_;
  const Attrs& attrs_;
  size_t like_ = 0;  // the operand whose type is `same`
  DType same_ = DType::f32;
  std::array<Letter, 26> letters_{};
  Shape rest_;
  int rest_by_ = -1;
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
