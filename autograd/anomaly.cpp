// Anomaly mode: a recorder that looks for the first NaN.
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
    const std::string found = t.defined() ? not_finite(t) : "";
    if (!found.starts_with("nan")) return;
    std::string operands;
    for (const Tensor& in : call.in) operands += (operands.empty() ? "" : ", ") + in.describe();
    throw Error(Error::Kind::numeric,
        str(call.op.text(), ": the result is nan: first at ", found.substr(found.find('[')), " of ",
            t.describe(), "; operands ", operands, "; ", finiteness(call.op, call.in)),
        "look at the operands of this op: a log of 0, a division by 0, an overflow before it");
  }
};

AnomalyMode::AnomalyMode() : recorder_(std::make_unique<AnomalyRecorder>()) {
  Context::current().recorders.push_back(recorder_.get());
}

AnomalyMode::~AnomalyMode() { std::erase(Context::current().recorders, recorder_.get()); }

}  // namespace sinter
