#include "core/context.h"

#include <atomic>

#include "core/error.h"

namespace sinter {
namespace {
std::atomic<void (*)(Context&)> setup_of_all{nullptr};
}

Context& Context::current() {
  static thread_local Context context = [] {
    Context fresh;
    if (const auto setup = setup_of_all.load()) setup(fresh);
    return fresh;
  }();
  return context;
}

void Context::on_create(void (*setup)(Context&)) {
  setup(current());
  SINTER_ASSERT(!setup_of_all.exchange(setup), "two setups of a context");
}

}  // namespace sinter
