// Tensor::values() and operator<<: numbers as nested brackets, columns aligned, long dims cut in
// the middle.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ostream>

#include "core/tensor.h"

namespace sinter {
namespace {

constexpr int64_t kEdge = 3;  // items shown at either end of a cut dim

std::string number(double v, bool whole, int precision) {
  if (std::isnan(v)) return "nan";  // of either sign
  char text[64];
  const bool plain = whole || v == 0 || (std::abs(v) >= 1e-4 && std::abs(v) < 1e6);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  return {text, std::to_chars(text, text + sizeof text, v, format, whole ? 0 : precision).ptr};
}

struct Printer {
  const Tensor& t;
  const std::vector<double> values;
  const Strides steps = contiguous_strides(t.shape());
  int precision;
  bool whole = std::all_of(values.begin(), values.end(),
      [](double v) { return std::isfinite(v) && v == std::floor(v) && std::abs(v) < 1e6; });
  size_t width = 0;

  // Calls f(index) for the items of dim d that are shown, f(-1) for the gap.
  template <class F> void shown(int d, F&& f) const {
    const int64_t n = t.size(d);
    for (int64_t i = 0; i < n; ++i) {
      if (n > 2 * kEdge + 1 && i == kEdge) {
        f(-1);
        i = n - kEdge;
      }
      f(i);
    }
  }
  // The first time the columns become as wide as they must be.
  void print(std::string& out, int d, int64_t at) {
    if (d == t.rank()) {
      const std::string text = number(values[size_t(at)], whole, precision);
      width = std::max(width, text.size());
      out += std::string(width - text.size(), ' ') + text;
      return;
    }
    const bool rows = d + 1 < t.rank();
    out += "[";
    bool first = true;
    shown(d, [&](int64_t i) {
      if (!first) out += rows ? ",\n" + std::string(size_t(d) + 1, ' ') : ", ";
      first = false;
      if (i < 0) {
        out += "..";
      } else {
        print(out, d + 1, at + i * steps[d]);
      }
    });
    out += "]";
  }
};

}  // namespace

std::string Tensor::values(int precision) const {
  impl("values");
  Printer printer{
      .t = *this, .values = to_vector<double>(), .precision = std::clamp(precision, 0, 17)};
  std::string narrow, out;
  printer.print(narrow, 0, 0);
  printer.print(out, 0, 0);
  return out;
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (t.defined() && !t.is_meta()) out << t.values() << " ";
  return out << t.describe();
}

}  // namespace sinter
