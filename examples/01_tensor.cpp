// 01_tensor: an array of numbers with a shape, and views of it that cost nothing.
//
// A Tensor is a handle. Copying it copies the handle; slice, transpose and reshape give new handles
// on the same numbers. Only an op that computes something launches a kernel. To see that, this
// program counts launches with the profiler.
#include <iostream>

#include "ops/ops.h"
#include "profiler/session.h"

using namespace sinter;

// How many kernels does f() launch? A profiler session of a single step knows.
template <class F> int64_t launches_of(F&& f) {
  profiler::Session session({.schedule = {.wait = 0, .warmup = 0, .active = 1}});
  f();
  session.step();
  return session.finish().steps[0].launches;
}

int main() {
  // ---- 1. Make one. The numbers are given row by row; the shape says how long a row is.
  const Tensor a = Tensor::from({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 4});
  std::cout << "a is " << a.describe() << "\n" << a.values() << "\n\n";

  // ---- 2. Views. Each is another way to walk over the same twelve numbers: a start, a shape, and
  // a stride (the step) per dimension.
  const Tensor row = slice(a, 0, 1, 2);       // row 1
  const Tensor columns = slice(a, 1, 0, 2);   // columns 0 and 1
  const Tensor turned = transpose(a);         // rows become columns
  const Tensor grid = reshape(a, {2, 2, 3});  // as two 2 x 3 blocks
  for (const auto& [name, t] :
      {std::pair("row", row), {"columns", columns}, {"turned", turned}, {"grid", grid}}) {
    std::cout << name << " is " << t.describe() << ", strides " << t.strides().str()
              << ", starts at element " << t.offset()
              << (t.storage() == a.storage() ? ", shares a's numbers" : ", has its own numbers")
              << "\n";
  }
  std::cout << "turned is\n" << turned.values() << "\n\n";

  // ---- 3. Views launch nothing; arithmetic launches one kernel per op.
  std::cout << "launches: slice + transpose + reshape "
            << launches_of([&] { reshape(transpose(slice(a, 0, 0, 2)), {8}); })
            << " (reshape of transposed numbers has to copy them)\n";
  std::cout << "launches: slice + transpose " << launches_of([&] { transpose(slice(a, 0, 0, 2)); })
            << ", a + a " << launches_of([&] { add(a, a); }) << ", a * 2 + a "
            << launches_of([&] { add(a * 2, a); }) << "\n\n";

  // ---- 4. Broadcasting: where sizes differ, a size of 1 (or a missing dimension) is repeated,
  // without a copy.
  const Tensor offsets = Tensor::from({100, 200, 300, 400}, {4});
  std::cout << "a + offsets, " << a.describe() << " + " << offsets.describe() << ", is\n"
            << add(a, offsets).values() << "\n\n";

  // ---- 5. Because views share numbers, writing through one is seen by all. `accumulate` is an op
  // that works in place.
  accumulate(row, Tensor::full({1, 4}, 1000));
  std::cout << "after row += 1000, a is\n"
            << a.values() << "\nand column 0 of it sums to "
            << sum(columns, {0}).to_vector<float>()[0] << "\n\n";

  // ---- 6. A mistake is an Error that names the op, both operands and the rule.
  try {
    matmul(a, a);
  } catch (const Error& error) {
    std::cout << "matmul(a, a): " << error.what() << "\n";
  }
}
