// Makes mnist a program with a kernel that is wrong, for the tests of what must find it. Linked
// with mnist's own objects: build/PRESET/bin/mnist_wrong. WRONG_KERNEL="OP WHICH BY [CALL]": behind
// the kernel of OP on the CPU the largest element of WHICH, out0 or in3, is 1 + BY times what it
// should be; of its call number CALL alone, from 1, if that is given.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "ops/op.h"

namespace sinter {
namespace {

Kernel right_kernel = nullptr;
std::string wrong_tensor;
double wrong_by = 0;
int64_t wrong_call = 0, calls = 0;

void wrong_kernel(const Call& call) {
  right_kernel(call);
  if (++calls != wrong_call && wrong_call > 0) return;
  const bool result = wrong_tensor.starts_with("out");
  const auto i = size_t(std::stoul(wrong_tensor.substr(result ? 3 : 2)));
  const Tensor& t = result ? call.out[i] : call.in[i];
  visit_float(t.dtype(), [&]<class T>(T) {
    T* const p = t.data<T>();
    const auto less = [](T a, T b) { return std::abs(double(a)) < std::abs(double(b)); };
    T& largest = *std::max_element(p, p + t.numel(), less);
    largest = T(double(largest) * (1 + wrong_by));
  });
}

// An OpDef is a constant: its page is made writable first.
const bool planted = [] {
  const char* const text = std::getenv("WRONG_KERNEL");
  if (!text) return false;
  std::string name, by;
  std::istringstream(text) >> name >> wrong_tensor >> by >> wrong_call;
  wrong_by = std::strtod(by.c_str(), nullptr);  // nan, too
  OpDef* const op = const_cast<OpDef*>(find_op(name));
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE)), begin = uintptr_t(op) / page * page;
  if (!op || mprotect((void*)begin, uintptr_t(op + 1) - begin, PROT_READ | PROT_WRITE) != 0)
    std::abort();
  right_kernel = op->cpu;
  op->cpu = wrong_kernel;
  return true;
}();

}  // namespace
}  // namespace sinter
