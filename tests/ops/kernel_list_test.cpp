// A kernel without its run on the emulator does not exist: those that nvcc compiled, by the PTX
// that the build keeps, against those that the samples of all ops start.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "core/device/compiled_kernels.h"
#include "core/device/launch_log.h"
#include "core/device/memory.h"
#include "core/device/simt.h"
#include "ops/product/gemm_library.h"
#include "tests/ops/device_samples.h"
#include "tests/ops/ends.h"
#include "tests/test_util.h"

namespace sinter {

std::vector<Sample> row_chain_samples_of_activations();  // samples/row_chain.cpp

namespace {

// Kernels that differ in element types alone are one kernel.
std::string any_type(const std::string& name) {
  static const std::regex kType(R"(\b(float|double|bf16|int|long|unsignedchar)\b)");
  return std::regex_replace(name, kType, "T");
}

// Of the batches of .cu files that this build has.
std::set<std::string> compiled_kernels() {
  std::set<std::string> names;
  const std::filesystem::path root = SINTER_BIN_DIR "/../ptx", batches = SINTER_BIN_DIR "/../cuda";
  if (!std::filesystem::exists(root / "ops")) return names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "ops")) {
    if (entry.path().extension() != ".ptx" ||
        !std::filesystem::exists(batches / relative(entry.path().parent_path(), root)))
      continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      const size_t at = line.find(".entry ");
      if (at != std::string::npos)
        names.insert(kernel_key_of_symbol(line.substr(at + 7, line.find('(') - at - 7)));
    }
  }
  return names;
}

// The kernels that have run, by their names.
using KernelNames = std::set<std::string>;

// Runs f where it starts a kernel that has not run yet, which its launches alone tell. An op may
// refuse: what it does with an operand is for device_parity_test.cpp.
template <class F> void run_new(KernelNames& ran, const F& f) {
  const auto attempt = [&] {
    try {
      f();
    } catch (const Error&) {}
    clear_tape();
  };
  const LaunchLog log;
  {
    const simt::CountOnly not_yet;
    attempt();
  }
  bool is_new = false;
  for (const LaunchShape& launch : log.launches())
    is_new |= ran.insert(std::string(launch.kernel)).second;
  if (is_new) attempt();
}

// A sample in one type, dense, spread out and off alignment.
void run_sample(KernelNames& ran, const OpDef& op, const Sample& sample, DType dtype) {
  for (const auto& [step, shift] : {std::pair{1, 0}, {2, 0}, {1, 1}}) {
    Tensors in = with_dtype(op, sample.in, dtype);
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i].defined() && !op.writes_input(i, in.size())) in[i] = spread(in[i], step, shift);
    }
    run_new(ran, [&] { apply(op, there(in, kSimt), with_dtype(sample.attrs, dtype)); });
  }
}
// Backward, from a dense gradient and from a spread one.
void run_backward(KernelNames& ran, const OpDef& op, const Sample& sample, DType dtype) {
  for (const int64_t step : {1, 2}) {
    run_new(ran, [&] {
      const Tensors in = there(with_dtype(op, sample.in, dtype), kSimt);
      for (const Tensor& t : in) {
        if (t.defined() && is_float(t.dtype())) const_cast<Tensor&>(t).set_requires_grad(true);
      }
      const Tensor y = apply(op, in, with_dtype(sample.attrs, dtype))[0];
      const Tensor dy = cast(sample_tensor(y.shape(), 7), y.dtype());
      backward(y, {.gradient = spread(dy, step, 0).to(kSimt)});
    });
  }
}

TEST(KernelListSimt, EveryCompiledKernelRuns) {
  const std::set<std::string> compiled = compiled_kernels();
  if (compiled.empty()) GTEST_SKIP() << "no PTX in this build: it is one without the CUDA toolkit";
  KernelNames ran;
  for (const int multiprocessors : {1, 132}) {  // one has large tiles, too, where there are some
    simt::set_schedule({.multiprocessors = multiprocessors});
    for_each_sample(false, [&](const OpDef& op, const Sample& sample, const std::string&) {
      // Of these all that are whole had large tiles.
      if (multiprocessors > 1 && &op != &kWeightBiasGradOp && &op != &kWeightGradUpdateOp) return;
      {
        const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
        run_sample(ran, op, sample, DType::f32);
      }
      for (const DType dtype :
          {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8})
        run_sample(ran, op, sample, dtype);
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
        run_backward(ran, op, sample, dtype);
    });
  }
  simt::set_schedule({.multiprocessors = 1});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto ones = [&](int64_t m, int64_t n) { return Tensor::ones({m, n}, dtype, kSimt); };
    run_new(ran, [&] {
      linear(ones(80, 16), ones(80, 16));
      matmul(ones(80, 16), ones(16, 80));
      apply(kProductChainOp, {ones(80, 16), ones(80, 16), {}},
          ends::linear_act(Act::relu, false, dtype));
      apply(kProductChainOp, {ones(80, 16), ones(16, 80), {}, ones(80, 80)},
          ends::input_grad_act(Act::relu, dtype));
    });
  }
  for (const Sample& sample : row_chain_samples_of_activations()) {
    for (const DType dtype : {DType::f32, DType::bf16}) run_sample(ran, kRowChainOp, sample, dtype);
  }
  const Tensors many(
      130, Tensor::ones({3}, DType::f32,
               kSimt));  // more gradients than one table holds: norm and scaling apart
  run_new(ran, [&] { apply(kClipNormOp, many, ClipAttrs{1}); });
  simt::set_schedule({});  // synchronizes
  std::set<std::string> ran_shapes;
  for (const std::string& kernel : ran) {
    const std::string name = kernel_key(kernel);
    EXPECT_TRUE(compiled.contains(name)) << name << " ran on simt, and is not in the PTX";
    ran_shapes.insert(any_type(name));
  }
  for (const std::string& name : compiled) {
    if (ran_shapes.insert(any_type(name)).second)
      ADD_FAILURE() << name
                    << " was compiled by nvcc, and no sample of an op runs it on simt, in any type";
  }
}

}  // namespace
}  // namespace sinter
