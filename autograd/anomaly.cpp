// Anomaly mode: a recorder that looks for the first NaN.
#include <cmath>

#include "autograd/autograd.h"
#include "core/context.h"
#include "ops/op.h"

namespace sinter {

class AnomalyRecorder final : public Recorder {
 public:
  void record(const Call& call) override {
    for (const Tensor& out : call.out) check(call, out);
    for (size_t i = 0; i < call.in.size(); ++i) {
      if (call.op.writes_input(i, call.in.size()) && call.in[i].defined()) check(call, call.in[i]);
    }
  }

 private:
  static void check(const Call& call, const Tensor& t) {
    if (!t.defined() || !is_float(t.dtype())) return;
    const int64_t at = first_nan(t);
    if (at < 0) return;
    Dims index;
    int64_t rest = at;
    const Strides steps = contiguous_strides(t.shape());
    for (int d = 0; d < t.rank(); ++d) {
      index.push_back(rest / steps[d]);
      rest %= steps[d];
    }
    std::string operands;
    for (const Tensor& in : call.in) operands += (operands.empty() ? "" : ", ") + in.describe();
    throw Error(Error::Kind::numeric,
        cat(call.op.text(), ": the result is nan: first at ", index.str(), " of ", t.describe(),
            "; operands ", operands),
        "look at the operands of this op: a log of 0, a division by 0, an overflow before it");
  }

  static int64_t first_nan(const Tensor& t) {
    const std::vector<double> values = t.to_vector<double>();
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) return int64_t(i);
    }
    return -1;
  }
};

AnomalyMode::AnomalyMode() : recorder_(std::make_unique<AnomalyRecorder>()) {
  Context::current().recorders.push_back(recorder_.get());
}

AnomalyMode::~AnomalyMode() { std::erase(Context::current().recorders, recorder_.get()); }

}  // namespace sinter
