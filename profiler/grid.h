// Cells in columns, as text: numbers to the right, text to the left, two spaces between. For the
// tables of this folder.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace sinter::profiler {

class Grid {
 public:
  // A title that begins with '<' makes a column of text.
  explicit Grid(std::vector<std::string> titles) {
    for (std::string& title : titles) {
      left_.push_back(title.starts_with('<'));
      if (left_.back()) title.erase(0, 1);
    }
    add(std::move(titles));
  }
  void add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  std::string text() const {
    std::vector<size_t> widths(left_.size(), 0);
    for (const auto& line : lines_) {
      for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
    }
    std::string out;
    for (const auto& line : lines_) {
      std::string row;
      for (size_t c = 0; c < line.size(); ++c) {
        const std::string gap(widths[c] - line[c].size(), ' ');
        row += (c > 0 ? "  " : "") + (left_[c] ? line[c] + gap : gap + line[c]);
      }
      row.erase(row.find_last_not_of(' ') + 1);
      out += row + "\n";
    }
    return out;
  }

 private:
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> lines_;
};

}  // namespace sinter::profiler
