// Inputs of every op for the loops over all_ops(). Each file of this folder lists those of one file
// of ops/; a test fails for an op that has none.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "ops/op.h"

namespace sinter {

// Floating tensors are f64; loops convert them.
struct Sample {
  Tensors in;
  Attrs attrs;
  std::string what;  // "ragged", "empty batch", ..
  bool differentiable = true;
  bool first_only = false;  // the results but the first have no gradient
  // Must be refused with an Error of Kind shape or dtype that begins with the op's label.
  bool bad = false;
};
Sample fixed_sample(Tensors in, const Attrs& attrs, std::string what);  // not differentiable
Sample bad_sample(Tensors in, const Attrs& attrs, std::string what);

// The type of operand i of n where a sample is made in `dtype`: wide(dtype) for the parameters of
// an update, which are f32 in bf16 training, for the seed of a loss and the moments of a row; f64
// for the skipped steps of an update and the total of a clip.
DType operand_type(const OpDef& op, size_t i, size_t n, DType dtype);

// Made anew at each call, so an op may change them; none for an op that is not listed.
std::vector<Sample> samples_of(const OpDef& op);

// f(op, sample) for every sample of these ops that is bad, or not.
template <class F> void over_samples(std::span<const OpDef* const> ops, bool bad, F&& f) {
  for (const OpDef* op : ops) {
    for (Sample& sample : samples_of(*op)) {
      if (sample.bad != bad) continue;
      SCOPED_TRACE(str(op->text(), ": ", sample.what));
      f(*op, sample);
    }
  }
}

// Lists samples of an op: a variable of this type in a file of this folder.
struct Samples {
  Samples(const OpDef& op, std::function<std::vector<Sample>()> make);
};

}  // namespace sinter
