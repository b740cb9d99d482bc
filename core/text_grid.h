// Cells in columns, as text: numbers to the right, text to the left, two spaces between. Where a
// width is given, whole columns go first, the last in `droppable` before the others; then the
// widest column of text is cut, with "..": a row is one line.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace sinter {

// Lines of at most `width` characters, broken at spaces; what follows a break is indented. 0: as
// they are. For prose: a word longer than that stays whole.
inline std::string wrapped(const std::string& text, size_t width, size_t indent = 2) {
  std::string out;
  size_t column = 0;  // where the next character goes
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at + 1), text.size());
    if (width > 0 && column + (end - at) > width && text[at] == ' ' && column > indent) {
      out.replace(out.find_last_not_of(' ') + 1, out.npos, "\n" + std::string(indent, ' '));
      column = indent;
      at = text.find_first_not_of(' ', at);  // npos ends it
      continue;
    }
    if (text[at] == '\n') column = 0;
    column += end - at - (text[at] == '\n' ? 1 : 0);
    out += text.substr(at, end - at);
    at = end;
  }
  return out;
}

class TextGrid {
 public:
  // A title that begins with '<' makes a column of text.
  explicit TextGrid(std::vector<std::string> titles) {
    for (std::string& title : titles) {
      left_.push_back(title.starts_with('<'));
      if (left_.back()) title.erase(0, 1);
    }
    add(std::move(titles));
  }
  void add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  const std::vector<std::vector<std::string>>& lines() const { return lines_; }  // titles first
  std::string text() const {
    const std::vector<size_t> all = widths();
    std::string out;
    for (const auto& line : lines_) {
      std::string row;
      for (size_t c = 0; c < line.size(); ++c) {
        const std::string gap(all[c] - line[c].size(), ' ');
        row += (c > 0 ? "  " : "") + (left_[c] ? line[c] + gap : gap + line[c]);
      }
      row.erase(row.find_last_not_of(' ') + 1);
      out += row + "\n";
    }
    return out;
  }
  // Makes the lines at most `width` long, if there is what may go; 0: as long as they are.
  void fit(size_t width, std::vector<std::string> droppable = {}) {
    while (width > 0 && total() > width && !droppable.empty()) {
      drop(droppable.back());
      droppable.pop_back();
    }
    while (width > 0 && total() > width && narrow(total() - width)) {}
  }
  // The column of that title, if there is one.
  void drop(const std::string& title) {
    const auto at = std::find(lines_[0].begin(), lines_[0].end(), title) - lines_[0].begin();
    if (at == std::ssize(lines_[0])) return;
    left_.erase(left_.begin() + at);
    for (auto& line : lines_) line.erase(line.begin() + at);
  }

 private:
  static constexpr size_t kFewest = 12;  // characters of a text that stay

  std::vector<size_t> widths() const {
    std::vector<size_t> out(left_.size(), 0);
    for (const auto& line : lines_) {
      for (size_t c = 0; c < line.size(); ++c) out[c] = std::max(out[c], line[c].size());
    }
    return out;
  }
  size_t total() const {
    size_t sum = 0;
    for (const size_t w : widths()) sum += w + 2;
    return sum - 2;
  }
  // Takes up to `excess` characters from the widest text; false if none is wide enough.
  bool narrow(size_t excess) {
    std::vector<size_t> all = widths();
    for (size_t c = 0; c < all.size(); ++c) all[c] = left_[c] ? all[c] : 0;
    const size_t c = size_t(std::max_element(all.begin(), all.end()) - all.begin());
    if (all[c] <= kFewest) return false;
    const size_t keep = all[c] - std::min(excess, all[c] - kFewest);
    for (auto& line : lines_) {
      if (line[c].size() > keep) line[c].replace(keep - 2, line[c].npos, "..");
    }
    return true;
  }

  std::vector<bool> left_;
  std::vector<std::vector<std::string>> lines_;
};

}  // namespace sinter
