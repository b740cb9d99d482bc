#include "profiler/roofs.h"

#include <algorithm>

namespace sinter::profiler {

double Ceiling::predicted_ns(int64_t launches, const Cost& cost) const {
  if (!known()) return 0;
  return static_cast<double>(launches) * floor_ns +
         std::max(static_cast<double>(cost.flops) / flops_per_ns,
             static_cast<double>(cost.bytes()) / bytes_per_ns);
}

double Ceiling::compute_share(const Cost& cost, double ns) const {
  return known() && ns > 0 ? static_cast<double>(cost.flops) / ns / flops_per_ns : 0;
}

double Ceiling::memory_share(const Cost& cost, double ns) const {
  return known() && ns > 0 ? static_cast<double>(cost.bytes()) / ns / bytes_per_ns : 0;
}

double Ceiling::share(const Cost& cost, double ns) const {
  return std::max(compute_share(cost, ns), memory_share(cost, ns));
}

bool Ceiling::compute_is_nearer(const Cost& cost) const {
  return known() && static_cast<double>(cost.flops) / flops_per_ns >=
                        static_cast<double>(cost.bytes()) / bytes_per_ns;
}

}  // namespace sinter::profiler
