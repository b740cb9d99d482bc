#include "core/context.h"

#include <mutex>

namespace sinter {

namespace {
struct Setups {
  std::mutex mutex;
  std::vector<void (*)(Context&)> list;
  static Setups& get() {
    static Setups setups;
    return setups;
  }
};
}  // namespace

Context& Context::current() {
  static thread_local Context context = [] {
    Context fresh;
    Setups& setups = Setups::get();
    const std::lock_guard lock(setups.mutex);
    for (const auto setup : setups.list) setup(fresh);
    return fresh;
  }();
  return context;
}

void Context::on_create(void (*setup)(Context&)) {
  setup(current());
  Setups& setups = Setups::get();
  const std::lock_guard lock(setups.mutex);
  setups.list.push_back(setup);
}

}  // namespace sinter
