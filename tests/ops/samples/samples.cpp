#include "tests/ops/samples/samples.h"

#include <map>

namespace sinter {
namespace {

using SampleTable = std::map<const OpDef*, std::function<std::vector<Sample>()>>;

SampleTable& sample_table() {
  static SampleTable table;
  return table;
}

}  // namespace

Samples::Samples(const OpDef& op, std::function<std::vector<Sample>()> make) {
  sample_table()[&op] = std::move(make);
}

std::vector<Sample> samples_of(const OpDef& op) {
  const auto row = sample_table().find(&op);
  return row == sample_table().end() ? std::vector<Sample>() : row->second();
}

Sample bad_sample(Tensors in, const Attrs& attrs, std::string what) {
  return {.in = std::move(in),
      .attrs = attrs,
      .what = std::move(what),
      .differentiable = false,
      .bad = true};
}

}  // namespace sinter
