// compare refuses each kernel that is wrong by more than it allows, eager or fused, and takes one
// that is wrong by less: in all that it looks at, by each limit of Note [How far eager and fused
// may part].
#include <gtest/gtest.h>

#include "cli/comparison.h"
#include "tests/closeness.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

struct WrongKernel {
  const char *op, *tensor;  // behind op the largest element of out0, or in3 that it changes,
  double by;                // is 1 + by times what it should be
  const char* found;        // what is refused; "" where nothing is
  const char* figure = "";  // of the JSON: this number is `by`
  Words words = {};         // flags
};

const Words kPlainSgd{"--optimizer", "sgd", "--momentum", "0"}, kInBf16{"--dtype", "bf16"},
    kMaxRel{"--max-rel", "1e-3"};
constexpr const char *kWeight = " lr; allowed ", *kGrad = "grad of ";

// The step op by op has nll, sum_rows, relu_backward and the update of one parameter; the fused one
// the others. Adam's in2 and in3 are the averages of gradients and of squares, which are 3 and 4 of
// weight_grad_update. That makes no gradient to look at: it is weight_bias_grad in the step whose
// gradients are compared.
const std::vector<WrongKernel> kWrongKernels{
    {"nll", "out0", 2e-5, "loss at ", "loss"},
    {"nll", "out0", 5e-6, "", "loss"},
    {"softmax_xent", "out0", 2e-5, "loss at ", "loss"},
    {"sum_rows", "out0", 2e-5, kGrad, "gradients"},
    {"sum_rows", "out0", 5e-6, "", "gradients"},
    {"weight_bias_grad", "out0", 2e-5, kGrad, "gradients"},
    {"weight_bias_grad", "out1", 2e-5, kGrad, "gradients"},
    {"weight_bias_grad", "out1", 5e-6, "", "gradients"},
    {"relu_backward", "out0", 1e-3, "grad of 0.weight"},
    {"adam_update", "in2", 2e-5, "differ: exp_avg/", "state"},
    {"adam_update", "in2", 5e-6, "", "state"},
    {"weight_grad_update", "in3", 2e-5, "differ: exp_avg/", "state"},
    {"adam_update", "in3", 3e-5, "differ: exp_avg_sq/", "state"},
    {"adam_update", "in3", 1.5e-5, "", "state"},
    {"weight_grad_update", "in4", 3e-5, "differ: exp_avg_sq/", "state"},
    {"weight_grad_update", "in4", 1.5e-5, "", "state"},
    {"adam_update", "in0", 1e-2, kWeight},
    {"weight_grad_update", "in2", 1e-2, kWeight},
    {"sgd_update", "in0", 1e-5, kWeight, "", kPlainSgd},
    {"weight_grad_update", "in2", 1e-5, kWeight, "", kPlainSgd},
    {"sum_rows", "out0", 3e-2, kGrad, "gradients", kInBf16},
    {"sum_rows", "out0", 1e-2, "", "gradients", kInBf16},
    {"sum_rows", "out0", 2e-3, kGrad, "gradients", kMaxRel},
    {"sum_rows", "out0", 5e-4, "", "gradients", kMaxRel},
    {"sum_rows", "out0", NAN, kGrad},
    {"weight_bias_grad", "out0", NAN, "nan where eager has"},
    {"weight_grad_update", "in2", NAN, kWeight},
    {"weight_grad_update", "in3", INFINITY, "inf where eager has"},
};

TEST(MnistCompare, RefusesAWrongKernelInAllThatItLooksAt) {
  Program program;
  program.name = "mnist_wrong";
  const Words words{"compare", "--data", "synthetic", "--device", "cpu", "--threads", "1",
      "--measure", "off", "--rounds", "1", "--steps", "1", "--warmup", "0", "--hidden", "16,16",
      "--batch", "8", "--json"};
  for (const WrongKernel& wrong : kWrongKernels) {
    const std::string planted = str("WRONG_KERNEL=", wrong.op, " ", wrong.tensor, " ", wrong.by);
    SCOPED_TRACE(str(planted, wrong.words.empty() ? "" : " " + wrong.words[1]));
    program.environment = {planted};
    const Result r = program.run(*wrong.found ? 7 : 0, words + wrong.words);
    if (*wrong.found) expect_facts(r.err, {"compare: results differ: ", wrong.found});
    if (!*wrong.figure) continue;
    const double figure = nlohmann::json::parse(r.out)["parity"][wrong.figure];
    EXPECT_TRUE(close({figure}, {wrong.by}, {.of_each = 0.1})) << wrong.figure;
  }
}

TEST(MnistCompare, WhatIsAllowedIsThatOfTheType) {
  for (const auto& [dtype, allowed] : {std::pair{"f32", 1e-5}, {"tf32", 2e-3}, {"bf16", 2e-2}}) {
    const cli::CommonFlags common;
    const cli::FusionFlags fusion;
    cli::ComparisonFlags flags;
    cli::Output out(common);
    cli::CompareRun compare_run{common, fusion, flags, out, "compare", "mlp", "mlp"};
    compare_run.comparison.dtype = dtype;
    EXPECT_EQ(compare_run.allowed(), allowed);
    flags.max_rel = 0.5;
    EXPECT_EQ(compare_run.allowed(), 0.5);
  }
}

}  // namespace
}  // namespace sinter::test
