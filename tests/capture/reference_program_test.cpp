// Random programs made of the references of random fused ops: of random sizes and types, one
// reading what another gave, sometimes with another reader of an inner value or an operand of the
// wrong type. Eager and captured must agree, and every near miss has a remedy. A failure names the
// seed; SINTER_PROGRAM_SEED=N runs that program alone and prints it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "autograd/autograd.h"
#include "capture/executor.h"
#include "capture/recording.h"
#include "capture/rules.h"
#include "core/context.h"
#include "ops/fused/activation.h"
#include "tests/capture/random_program.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

// What lies between the operands and the results of a reference.
class InnerValues : public Recorder {
 public:
  // `margin`: how far from 0 the elements are by which relu decides; null: nobody asks.
  explicit InnerValues(double* margin) : margin_(margin) {
    Context::current().recorders.push_back(this);
  }
  ~InnerValues() override { std::erase(Context::current().recorders, this); }
  InnerValues(const InnerValues&) = delete;
  InnerValues& operator=(const InnerValues&) = delete;
  void record(const Call& call) override {
    if (margin_ && call.op.text() == "relu") *margin_ = std::min(*margin_, margin_of(call.in[0]));
    if (margin_ && call.op.text() == "relu_backward") {
      // A 0 is what a relu made so, or a sum of zeros, in any order.
      for (const double y : call.in[1].to_vector<double>())
        *margin_ = std::min(*margin_, y == 0 ? INFINITY : std::abs(y));
    }
    for (const Tensor& t : call.out) {
      if (is_float(t.dtype())) values_.push_back(t);
    }
  }
  const Tensors& values() const { return values_; }

 private:
  Tensors values_;
  double* const margin_;
};

// One fused op's reference in a program over numbered values.
struct Line {
  const OpDef* op;
  Attrs attrs;
  std::vector<int> operands;     // -1: absent
  int first_result = 0;          // the others follow it
  std::optional<int64_t> reads;  // an inner value that another op reads, too, by its number
};

class ReferenceProgram {
 public:
  ReferenceProgram(uint64_t seed, Device device) : draw_(seed), device_(device) {
    const DType types[] = {DType::f32, DType::f32, DType::f64, DType::bf16};
    dtype_ = types[draw_.below(4)];
    // The forms of all ops are of sizes 2, 3 and 4: each becomes another size.
    for (const int64_t letter : {2, 3, 4}) sizes_[letter] = 1 + draw_.below(9);
    std::vector<Label> names;
    for (const Rule& rule : rules()) {
      if (rule.label.forms) names.push_back(rule.label);
    }
    for (int64_t n = 1 + draw_.below(3); n > 0; --n) add_line(one_of(names));
  }

  // The type that its results are as exact as: an operand of the wrong type may be less.
  DType coarsest() const {
    DType coarsest = DType::f64;
    for (const Tensor& t : values_) {
      const bool coarser = is_float(t.dtype()) && size_of(t.dtype()) < size_of(coarsest);
      if (coarser) coarsest = t.dtype();
    }
    return coarsest;
  }
  size_t lines() const { return lines_.size(); }
  int refused() const { return refused_; }
  Tensors inputs() const {
    Tensors inputs;
    for (const int i : inputs_) inputs.push_back(values_[size_t(i)]);
    return inputs;
  }
  // All results. `margin`: see InnerValues.
  Tensors run(const Tensors& inputs, double* margin) const {
    Tensors values(values_.size()), results;
    for (size_t i = 0; i < inputs.size(); ++i) values[size_t(inputs_[i])] = inputs[i];
    for (const Line& line : lines_) {
      int result = line.first_result;
      for (const Tensor& t : run_line(line, values, margin)) {
        values[size_t(result++)] = t;
        results.push_back(t);
      }
    }
    return results;
  }

 private:
  template <class T> const T& one_of(const std::vector<T>& list) {
    return list[size_t(draw_.below(int64_t(list.size())))];
  }

  static Tensors run_line(const Line& line, const Tensors& values, double* margin) {
    Tensors in;
    for (const int i : line.operands) in.push_back(i < 0 ? Tensor() : values[size_t(i)]);
    const InnerValues inner(margin);
    Tensors out = line.op->reference(in, line.attrs);
    if (line.reads && !inner.values().empty()) {
      const Tensors found = inner.values();
      out.push_back(neg(found[size_t(*line.reads) % found.size()]));
    }
    return out;
  }

  // The line is left out if the op's reference refuses its operands.
  void add_line(const Label& label) {
    const OpDef& op = *label.op;
    const std::vector<Form> forms = label.forms();
    const Form& form = one_of(forms);
    Line line{.op = &op, .attrs = form.attrs, .operands = {}, .reads = std::nullopt};
    line.attrs.parse("out", name_of(dtype_));
    const size_t values = values_.size(), inputs = inputs_.size();
    const int64_t wrong = draw_.chance(15) ? draw_.below(int64_t(form.in.size())) : -1;
    for (size_t i = 0; i < form.in.size(); ++i) {
      const bool optional =
          int(i) >= op.min_inputs && form.in[i].defined() && form.in[i].rank() == 1;  // a bias
      const bool absent = optional && draw_.chance(25);
      line.operands.push_back(absent ? -1 : operand(form.in[i], int64_t(i) == wrong));
    }
    if (draw_.chance(20)) line.reads = draw_.below(8);
    try {
      const NoGrad no_grad;
      line.first_result = int(values_.size());
      for (const Tensor& t : run_line(line, values_, nullptr)) values_.push_back(t);
      lines_.push_back(std::move(line));
    } catch (const Error&) {
      ++refused_;
      values_.resize(values);
      inputs_.resize(inputs);
    }
  }

  // The number of a value like the form's: one that is there, or a new input.
  int operand(const Tensor& form, bool wrong) {
    if (!form.defined()) return -1;
    Shape shape = form.shape();
    for (int d = 0; d < shape.rank(); ++d) {
      if (sizes_.contains(shape[d])) shape[d] = sizes_.at(shape[d]);
    }
    const uint64_t seed = 100 + values_.size();
    Tensor t;
    if (form.dtype() == DType::i32) {
      t = sample_labels(shape[0], std::min(sizes_.at(3), sizes_.at(4)), seed);
    } else if (form.dtype() == DType::u8) {
      t = cast(sample_tensor(shape, seed, 0, 4), DType::u8);  // places in a window of 2 x 2
    } else {
      // What sums over bf16 are given or start from is f32: gradients of losses, biases.
      const DType type = wrong               ? (dtype_ == DType::f32 ? DType::bf16 : DType::f32)
                         : shape.rank() == 1 ? wide(dtype_)
                                             : dtype_;
      for (size_t i = values_.size(); i-- > 0;) {
        const bool fits = values_[i].shape() == shape && values_[i].dtype() == type;
        if (fits && draw_.chance(40)) return int(i);
      }
      t = cast(sample_tensor(shape, seed, -1, 1), type);
    }
    values_.push_back(t.to(device_));
    inputs_.push_back(int(values_.size()) - 1);
    return inputs_.back();
  }

  Draw draw_;
  Device device_;
  DType dtype_;
  std::map<int64_t, int64_t> sizes_;
  Tensors values_;           // as they were when the program was made
  std::vector<int> inputs_;  // their numbers
  std::vector<Line> lines_;
  int refused_ = 0;
};

// A fused op sums in another order and, of bf16, keeps in f32 what the plain ops round between
// them. A product of 9 terms in another order moves a result by at most 9 u S, S the sum of the
// terms' magnitudes, at most 9 times the largest; a line has two products, and hands its error on
// to two more lines, each of which may enlarge it fourfold (gelu' < 1.13, a product of 9 random
// weights below 1): 2 * 81 * 16 u is less than 2600 u. bf16 rounds each inner value instead: the
// same growth of 4 * 16 roundings of 2^-9, of which half cancel.
double tolerance(DType dtype) {
  if (dtype == DType::bf16) return 32 * 0x1p-9;
  return 2600 * (dtype == DType::f64 ? 0x1p-53 : 0x1p-24);
}

struct Tally {
  int programs = 0, near_a_branch = 0, refused = 0, groups = 0, misses = 0;
};

void run_program(uint64_t seed, Device device, bool print, Tally& tally) {
  const ReferenceProgram program(seed, device);
  tally.refused += program.refused();
  if (program.lines() == 0) return;
  ++tally.programs;
  const NoGrad no_grad;
  const Tensors inputs = program.inputs();
  double margin = INFINITY;
  const Tensors eager = program.run(inputs, &margin);
  const Graph recorded = [&] {
    Recording recording(inputs);
    return recording.finish(program.run(inputs, nullptr), {});
  }();
  const Rewriter r = rewrite(recorded, RuleSet("all"), device.type);
  const std::string text =
      str("seed ", seed, " on ", device.str(), "\n", dump(recorded), dump(r.graph));
  if (print) std::printf("%s", text.c_str());
  tally.groups += int(r.groups.size());
  for (const Miss& miss : r.misses) {
    ++tally.misses;
    EXPECT_NE(miss.obstacle.remedy, "") << miss.rule << ": " << miss.obstacle.why << "\n" << text;
  }
  if (margin < 1e-4) {  // rounding may decide it
    ++tally.near_a_branch;
    return;
  }
  Executor executor(r.graph);
  executor.run(inputs);
  for (size_t i = 0; i < eager.size(); ++i) {
    if (!is_float(eager[i].dtype())) continue;  // an index: of equal values either may be taken
    const double half = tolerance(program.coarsest()) / 2;
    ASSERT_TRUE(
        test::close(executor.outputs()[i], eager[i], {.of_largest = half, .absolute = half}))
        << "result " << i << ", " << text;
  }
}

void run_programs(Device device) {
  const char* wanted = std::getenv("SINTER_PROGRAM_SEED");
  Tally tally;
  if (wanted) return run_program(std::strtoull(wanted, nullptr, 10), device, true, tally);
  // On a card most of the time goes into compiling chains, on the emulator into its threads.
  const bool few = test::kSanitized || device == test::kCuda;
  const uint64_t programs = few ? 200 : device == kCpu ? 2000 : 500;
  for (uint64_t seed = 0; seed < programs; ++seed) {
    run_program(seed, device, false, tally);
    if (testing::Test::HasFatalFailure()) return;
  }
  std::printf(
      "%d programs of seeds 0 to %d on %s, %d fused groups, %d near misses, %d lines "
      "refused, %d programs near a branch\n",
      tally.programs, int(programs) - 1, device.str().c_str(), tally.groups, tally.misses,
      tally.refused, tally.near_a_branch);
  EXPECT_GT(tally.groups, tally.programs) << "the programs give the rules too little to do";
  EXPECT_GT(tally.misses, tally.programs / 20);
  EXPECT_LT(tally.near_a_branch, tally.programs / 10);
}

TEST(ReferencePrograms, EagerEqualsFused) { run_programs(kCpu); }
TEST(ReferenceProgramsSimt, EagerEqualsFused) { run_programs(kSimt); }
using ReferenceProgramsGpu = test::GpuTest;
TEST_F(ReferenceProgramsGpu, EagerEqualsFused) { run_programs(test::kCuda); }

}  // namespace
}  // namespace sinter::capture
