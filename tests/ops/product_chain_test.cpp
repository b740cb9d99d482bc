// Products with an end (ops/fused/product_chain.h) on every device, for ends that are compiled, for
// others and for random programs. Operands are multiples of 1/4, so that the sums are exact in f32,
// in whatever order: what the steps make of them then is the plain ops' results in f32, to the bit,
// and in bf16 those rounded once.
#include <gtest/gtest.h>

#include <random>

#include "ops/fused/product_chain.h"
#include "ops/pointwise/pointwise_op.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"
#include "tests/ops/device_samples.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

Tensor quarters(const Shape& shape, uint64_t seed) {
  const Tensor t = Tensor::empty(shape, DType::f32, kCpu);
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = float(int(random() % 17) - 8) / 4;
  return t;
}

// Is every result made of the sums, and every gradient that a step takes? Else they may be smaller
// than the sums, and are refused.
bool reads_the_sums(const ChainProgram& p) {
  std::vector<bool> of_sums(size_t(p.n_inputs), false);
  of_sums[0] = true;
  for (int s = 0; s < p.n_steps; ++s) {
    const auto& [op, in, param] = p.steps[size_t(s)];
    int arity = 0;
    bool backward = false;
    visit_step(op, [&]<class Op, Part kPart>() {
      arity = kStepArity<Op, kPart>;
      backward = kPart != Part::value;
    });
    if (backward && !of_sums[size_t(in[0])]) return false;
    of_sums.push_back(std::any_of(
        in.begin(), in.begin() + arity, [&](int value) { return of_sums[size_t(value)]; }));
  }
  return std::all_of(p.outputs.begin(), p.outputs.begin() + p.n_outputs,
      [&](int v) { return of_sums[size_t(v)]; });
}
// Operand i of a program behind a product of this shape: some are broadcast.
Shape operand_shape(const Shape& result, int i) {
  const int64_t first = result[0], second = result[1];
  if (i % 3 == 2) return result.rank() == 2 ? Shape{second} : Shape{second, 1, 1};
  if (i % 5 == 3) return result.rank() == 2 ? Shape{first, 1} : Shape{1};
  return result;
}

// a, b, the bias or none, and the shape of the product.
struct Case {
  ProductKind kind;
  Shape a, b, bias, result;
  int64_t pad = 0;
};
const Case kCases[] = {
    {ProductKind::linear, {17, 33}, {29, 33}, {29}, {17, 29}},
    {ProductKind::linear, {65, 72}, {72, 72}, {}, {65, 72}},
    {ProductKind::linear, {0, 5}, {8, 5}, {8}, {0, 8}},
    {ProductKind::matmul, {33, 40}, {40, 72}, {}, {33, 72}},
    {ProductKind::matmul, {5, 7}, {7, 3}, {}, {5, 3}},
    {ProductKind::conv2d, {2, 3, 6, 7}, {5, 3, 3, 3}, {5}, {2, 5, 4, 5}},
    {ProductKind::conv2d, {2, 3, 5, 8}, {4, 3, 3, 3}, {}, {2, 4, 5, 8}, 1},
};

void check(const Case& c, const ChainProgram& program, Device device, bool special = false) {
  SCOPED_TRACE(str(print_value(program), " behind ", print_value(c.kind), " ", c.result.str(),
      " on ", device.str()));
  Tensors in{quarters(c.a, 1), quarters(c.b, 2), c.bias.rank() ? quarters(c.bias, 3) : Tensor()};
  const bool wide = !reads_the_sums(program);
  for (int i = 1; i < program.n_inputs; ++i)
    in.push_back(quarters(wide ? c.result : operand_shape(c.result, i), 3 + uint64_t(i)));
  if (special && c.result.numel() > 1) {  // a row of the sums, and an element of each operand
    in[0].data<float>()[0] = INFINITY;
    for (size_t i = 3; i < in.size(); ++i) {
      in[i].data<float>()[0] = -INFINITY;
      if (in[i].numel() > 1) in[i].data<float>()[1] = NAN;
    }
  }
  ProductChainAttrs attrs{.product = c.kind, .pad_h = c.pad, .pad_w = c.pad, .program = program};
  const NoGrad no_grad;
  const Tensors f32 = kProductChainOp.reference(in, attrs);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    SCOPED_TRACE(name_of(dtype));
    Tensors operands;
    for (const Tensor& t : in)
      operands.push_back(t.defined() ? cast(t, dtype).to(device) : Tensor());
    attrs.out = dtype;
    const Tensors wanted = dtype == DType::f64 ? kProductChainOp.reference(operands, attrs) : f32;
    const Tensors got = apply(kProductChainOp, operands, attrs);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t r = 0; r < got.size(); ++r)
      EXPECT_TRUE(test::close(got[r], cast(wanted[r], dtype), {.same_nan = true, .empty = true}))
          << "result " << r;
  }
}

ChainProgram program_of(std::string_view text) {
  ChainProgram program;
  EXPECT_TRUE(parse_value(text, program)) << text;
  return program;
}

void check_programs(Device device) {
  std::vector<ChainProgram> programs(kChainEnds.begin(), kChainEnds.end());
  for (const char* text : {"1;0", "3;mul(0,1);add(3,2);tanh(4);5", "1;leaky_relu:0.25(0);0,1",
           "2;add(0,1);relu(2);3", "2;sub(1,0);sigmoid(2);mul(3,3);4,2,3",
           "3;maximum_backward.da(0,1,2);maximum_backward.db(0,1,2);3,4",
           "2;maximum_backward.da(0,1,1);mul(2,1);3", "2;mul_backward.db(0,1,0);neg(2);3"})
    programs.push_back(program_of(text));
  const ChainProgram six = program_of(
      "6;add(0,1);sub(0,2);mul(0,3);maximum(0,4);div(0,5);tanh(0);"
      "add(6,7);add(12,8);add(13,9);add(14,10);15,11,6");
  EXPECT_EQ(code_of(six).registers, kChainRegisters);
  programs.push_back(six);
  for (const Case& c : kCases) {
    for (const ChainProgram& program : programs) {
      check(c, program, device);
      check(c, program, device, true);
    }
  }
}

// Any steps that can be, on any values that are there.
ChainProgram random_program(std::mt19937_64& random) {
  const auto below = [&](int n) { return int(random() % uint64_t(n)); };
  for (;;) {
    ChainProgram p{.n_inputs = 1 + below(kChainInputs)};
    const int steps = 1 + below(kChainSteps);
    while (p.n_steps < steps) {
      ChainProgram::Step& step = p.steps[size_t(p.n_steps)];
      const int values = p.n_inputs + p.n_steps;
      const auto value = [&] { return static_cast<int8_t>(below(values)); };
      step = {.op = static_cast<int16_t>(below(3 * int(std::tuple_size_v<pointwise::List>))),
          .in = {value(), value(), value()},
          .param = 0.5 * (1 + below(4))};
      ChainProgram until = p;
      until.n_steps = p.n_steps + 1;
      until.n_outputs = 1;
      until.outputs[0] = static_cast<int8_t>(values);
      if (is_valid(until, true)) ++p.n_steps;
    }
    p.n_outputs = 1 + below(kChainOutputs);
    for (int r = 0; r < p.n_outputs; ++r)
      p.outputs[size_t(r)] = static_cast<int8_t>(below(p.n_inputs + p.n_steps));
    if (is_valid(p, true) && code_of(p).registers <= kChainRegisters) return p;
  }
}
void check_random(Device device) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 60; ++i) {
    const ChainProgram program = random_program(random);
    check(kCases[size_t(i) % std::size(kCases)], program, device, i % 4 == 0);
  }
}

// ---- One loop: an op by itself, in a chain, and at the end of a product

}  // namespace

struct Planted : pointwise::Unary<pointwise::Facts{
                     .saves = pointwise::Saves::nothing, .flops = 1, .backward_flops = 1}> {
  SINTER_POINTWISE(Planted, "planted")
  template <class T> SINTER_FN T forward(T x) const { return x; }
  template <class T> SINTER_FN T grad(T dy) const { return dy; }
};
// What its loop in f32 does beside its formula is seen wherever that loop runs.
template <>
void chain_detail::step_loop<Planted, Part::value, float>(const void*, char* const* at, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    reinterpret_cast<float*>(at[1])[i] = reinterpret_cast<const float*>(at[0])[i] + 1;
}

namespace {

TEST(OneLoop, RunsWhatIsPlantedInIt) {
  const Tensor x = quarters({17, 33}, 1), w = quarters({29, 33}, 2), none;
  const NoGrad no_grad;
  const auto expect_planted = [](const Tensors& got, const Tensor& without, double times) {
    EXPECT_EQ(got[0].to_vector<float>(), (without + times).to_vector<float>()) << times;
  };
  expect_planted(apply(pointwise_op<Planted>(), {x}, Planted{}), x, 1);
  for (const auto& [text, times] :
      {std::pair("1;planted(0);1", 1.), {"1;planted(0);planted(1);planted(2);3", 3.}}) {
    expect_planted(apply(kPointwiseChainOp, {x}, ChainAttrs{program_of(text)}), x, times);
    ProductChainAttrs end{.product = ProductKind::linear, .program = program_of(text)};
    expect_planted(apply(kProductChainOp, {x, w, none}, end), linear(x, w), times);
  }
}

// Is every step by itself, in the types of its operands, the loop that the op has?
template <class Op, Part kPart> void expect_one_loop() {
  ChainProgram p{.n_inputs = kStepArity<Op, kPart>, .n_steps = 1, .n_outputs = 1};
  p.steps[0] = {.op = kStepNumber<Op, kPart>, .in = {0, 1, 2}};
  p.outputs[0] = static_cast<int8_t>(p.n_inputs);
  const auto expect = [&]<class T>(T) {
    const DenseRow loop = ChainLoop<T, T>(p).compiled();
    EXPECT_EQ(loop, (kStepLoops<Op, kPart>.of(dtype_of<T>))) << print_value(p);
  };
  if (p.n_inputs == 0) return;
  expect(float());
  expect(double());
  expect(bf16());
}
TEST(OneLoop, OfEveryStep) {
  const auto expect = []<class Op>(Op) {
    expect_one_loop<Op, Part::value>();
    expect_one_loop<Op, Part::first>();
    expect_one_loop<Op, Part::second>();
  };
  std::apply([&](auto... op) { (expect(op), ...); }, pointwise::List{});
}

TEST(ProductChain, IsItsMeaning) { check_programs(kCpu); }
TEST(ProductChain, OfAnyProgram) { check_random(kCpu); }
// Two panels, one for each of two threads; three, which they share.
TEST(ProductChain, InPanels) {
  const test::Scoped threads(num_threads, set_num_threads, 2);
  for (const int64_t rows : {512, 600}) {
    check({ProductKind::linear, {rows, 3}, {2048, 3}, {2048}, {rows, 2048}},
        program_of("2;add(0,1);relu(2);3"), kCpu);
  }
}
TEST(ProductChainSimt, IsItsMeaning) { check_programs(kSimt); }
TEST(ProductChainSimt, OfAnyProgram) { check_random(kSimt); }
using ProductChainGpu = test::GpuTest;
TEST_F(ProductChainGpu, IsItsMeaning) { check_programs({Device::Type::cuda, 0}); }
TEST_F(ProductChainGpu, OfAnyProgram) { check_random({Device::Type::cuda, 0}); }

}  // namespace
}  // namespace sinter
