#include "examples/cli/text.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

namespace sinter::cli {

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = char(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string seconds(double s) {
  if (s < 1e-4) return fmt::format("{:.0f} us", s * 1e6);
  if (s < 0.1) return fmt::format("{:.1f} ms", s * 1e3);
  if (s < 9.995) return fmt::format("{:.2f} s", s);
  if (s < 119.95) return fmt::format("{:.1f} s", s);
  const int64_t whole = std::llround(s);
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.1f} M", per_second / 1e6);
  if (per_second >= 1e4) return fmt::format("{:.0f} k", per_second / 1e3);
  return fmt::format("{:.0f}", per_second);
}

std::string bytes(int64_t n) {
  const double b = double(n);
  if (b >= 1024.0 * 1024 * 1024) return fmt::format("{:.2f} GiB", b / (1024.0 * 1024 * 1024));
  if (b >= 1024.0 * 100) return fmt::format("{:.2f} MiB", b / (1024.0 * 1024));
  return fmt::format("{:.1f} KiB", b / 1024);
}

std::string loss(double x) {
  if (std::isnan(x)) return "nan";  // its sign says nothing
  return fmt::format(fmt::runtime(x < 1e4 ? "{:.4f}" : "{:.3g}"), x);
}

double wilson_half_width(int64_t k, int64_t n) {
  if (n == 0) return 0;
  constexpr double z = 1.959963984540054;
  const double count = double(n), p = double(k) / count;
  return z / (1 + z * z / count) * std::sqrt(p * (1 - p) / count + z * z / (4 * count * count));
}

std::string proportion(int64_t k, int64_t n) {
  const double p = n ? double(k) / double(n) : 0;
  return fmt::format("{:.1f} % +-{:.1f}", 100 * p, 100 * wilson_half_width(k, n));
}

}  // namespace sinter::cli
