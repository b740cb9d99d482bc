#include "ops/structured.h"

namespace sinter {

int64_t bytes_unless_spread(const Tensor& t) {
  for (const int64_t stride : t.strides()) {
    if (stride != 0) return bytes_of(t);
  }
  return t.rank() == 0 ? bytes_of(t) : 0;
}

void check_writable(const char* op, const char* name, const Tensor& t) {
  SINTER_CHECK(t.defined(), shape, cat(op, ": ", name, " is undefined; it is changed in place"));
  SINTER_CHECK(t.is_contiguous(), shape,
      cat(op, ": a dense tensor is wanted: ", name, " is ", t.describe(), " with strides ",
          t.strides().str(), "; it is changed in place"));
}

Sample bad_sample(Tensors in, const Attrs& attrs, std::string what) {
  return {.in = std::move(in),
      .attrs = attrs,
      .what = std::move(what),
      .differentiable = false,
      .bad = true};
}

}  // namespace sinter
