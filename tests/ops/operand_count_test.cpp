// A graph file may call an op with any number of operands that it allows. No op looks beyond those
// that it is given: what lies behind them in memory, here once nothing and once a tensor that fits
// nothing, does not show in what it says or gives.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "measure/rounding.h"
#include "tests/ops/device_samples.h"

namespace sinter {
namespace {

// What parse() of capture/ asks of the operands of any op.
bool may_be_called(const OpDef& op, Operands in) {
  const int n = int(in.size());
  bool any = false;
  for (int i = 0; i < n; ++i) {
    if (!in[i].defined() && i < op.min_inputs && !op.in_place()) return false;
    any = any || in[i].defined();
  }
  return any && n >= op.min_inputs && n <= op.most_inputs();
}

int64_t elements_in(const Tensors& in) {
  int64_t n = 0;
  for (const Tensor& t : in) n += t.defined() ? t.numel() : 0;
  return n;
}

// "f32[2, 3], f32[2]", or the refusal. `values`: those of a kernel's results, too.
std::string outcome(
    Device device, const OpDef& op, const Tensors& all, size_t n, const Attrs& attrs, bool values) {
  const Tensors fresh = there(all, device);
  const Operands in = Operands(fresh).first(n);
  std::string text;
  try {
    Tensors out = op.results(in, attrs);
    for (Tensor& t : out) {
      text += t.describe() + ", ";
      if (values) t.allocate(false);
    }
    if (!values) return text;
    op.kernel(device.type)({op, in, out, attrs});
    const Tensors changed = changed_operands(op, {in.begin(), in.end()});
    out.insert(out.end(), changed.begin(), changed.end());
    for (const Tensor& t : out) {
      const Tensor host = t.to(kCpu);
      text.append(
          static_cast<const char*>(host.raw()), size_t(host.numel()) * size_of(host.dtype()));
    }
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), Error::Kind::internal) << error.what();
    text = error.what();
  }
  return text;
}

void check_operands(Device device) {
  int called = 0;
  for (const OpDef* op : all_ops()) {
    if (op->view || !op->kernel(device.type)) continue;
    std::map<std::string_view, int> samples;  // by label
    for (const Sample& sample : samples_of(*op)) {
      if (sample.bad || sample.in.size() > 40) continue;
      if (++samples[op->label_of(sample.attrs)] > 10) continue;
      const DType dtype = takes(*op, DType::f32) ? DType::f32 : DType::f64;
      const Attrs attrs = with_dtype(sample.attrs, dtype);
      Tensors good = there(with_dtype(*op, sample.in, dtype), device);
      for (size_t i = 0; i < good.size(); ++i) {
        if (good[i].defined() && !op->takes_strides(i, good.size(), attrs))
          good[i] = contiguous(good[i]);
      }
      std::vector<Tensors> lists;
      for (size_t k = 0; k < good.size(); ++k) {
        lists.emplace_back(good.begin(), good.begin() + int(k));  // those from k on
        lists.push_back(good);
        lists.back().erase(lists.back().begin() + int(k));  // operand k
        lists.push_back(good);
        lists.back()[k] = {};  // it is absent
      }
      for (const Tensors& list : lists) {
        const size_t n = list.size();
        if (!may_be_called(*op, list)) continue;
        SCOPED_TRACE(str(op->text(), ", ", sample.what, ", ", n, " of ", good.size()));
        Tensors none = list, strange = list;
        none.resize(n + 16);
        strange.resize(n + 16, Tensor::zeros({1, 2, 3}, DType::u8, device));
        const std::string wanted = outcome(device, *op, none, n, attrs, false);
        EXPECT_EQ(outcome(device, *op, strange, n, attrs, false), wanted);
        if (wanted.find(": ") != std::string::npos || elements_in(list) > 20000) continue;
        EXPECT_EQ(outcome(device, *op, none, n, attrs, true),
            outcome(device, *op, strange, n, attrs, true));
        ++called;
      }
    }
  }
  EXPECT_GT(called, 50);
}
TEST(OperandCount, NothingIsReadBehindTheOperands) { check_operands(kCpu); }
TEST(OperandCountSimt, NothingIsReadBehindTheOperands) { check_operands(kSimt); }

}  // namespace
}  // namespace sinter
