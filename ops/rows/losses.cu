// nll, mse and their backwards (formulas: ops/rows/row_formulas.h): a block for a row. A label out
// of range is a fault.
#include "ops/rows/row.cuh"

namespace sinter::SINTER_KERNEL_NS {

void nll(const Call& call) { run_op<Nll>(call); }
void nll_backward(const Call& call) { run_gradient<NllBackward>(call); }
void mse(const Call& call) { run_op<Mse>(call); }
void mse_backward(const Call& call) { run_gradient<MseBackward>(call); }

}  // namespace sinter::SINTER_KERNEL_NS
