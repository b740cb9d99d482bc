// Text as a model reads it: its letters, which are characters or bytes, by their numbers; and the
// rows of tokens that are cut from it. Texts are input from strangers: a byte that is none of UTF-8
// is an error that names its place. Errors are of kind data.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace sinter::gpt {

// The label of a place that counts nothing: behind the end of a document.
inline constexpr int32_t kIgnoredLabel = -1;

// A letter by its number in Unicode, or a byte's.
using Letters = std::vector<char32_t>;
// The letter at `at`, which moves behind it; 0 where there is none of UTF-8: too long a form, half
// of a pair of UTF-16, what is cut off, or a NUL.
char32_t next_letter(std::string_view text, size_t& at);
// Throws for a NUL or what is no UTF-8, at its line; in `bytes` each byte is a letter. `name`: of
// the text, which begins with this line of it.
Letters letters_of(std::string_view text, bool bytes, const std::string& name, int64_t line = 1);

class Vocabulary {
 public:
  Vocabulary() = default;
  // All letters of the text; of documents the end of a line is none. Throws for less than two of
  // them, or more than kMost.
  Vocabulary(std::string_view text, bool bytes, bool documents, const std::string& name);
  // As text() gives it: "32,97-122".
  Vocabulary(const std::string& ranges, bool bytes, bool documents);
  static constexpr size_t kMost = 4096;

  // Of letters, and of the boundary.
  int64_t size() const { return int64_t(letters_.size()) + documents_; }
  // What begins a document and ends it. REQUIRES: the model reads documents.
  int32_t boundary() const { return int32_t(letters_.size()); }
  // What stands before a text of which nothing is given: a boundary; of one text the end of a line,
  // or else its first letter.
  int32_t beginning() const;
  bool documents() const { return documents_; }
  // Throws for a letter that it lacks, with its place; `line`: the number of the first, 0 of what
  // has none.
  std::vector<int32_t> encode(
      std::string_view text, const std::string& name, int64_t line = 0) const;
  std::string decode(std::span<const int32_t> tokens) const;
  std::string text() const;
  std::string describe() const;  // "26 letters a-z", "65 letters"

 private:
  std::string shown(char32_t letter) const;  // as it is printed
  Letters letters_;                          // rising
  bool bytes_ = false, documents_ = true;
};

// The lines that are not empty, by their numbers.
struct Document {
  int64_t line;
  std::string text;
};
std::vector<Document> documents_of(std::string_view text);
// The bytes of a file, plain or gzip; but for `raw` without what Windows adds: a mark of UTF-8 in
// front, and a CR before the end of each line. Throws for one that is empty, or too large.
std::string read_text(const std::string& file, bool raw);
inline constexpr int64_t kMostBytes = int64_t{1} << 30;

// {x[N, context], labels[N, context]}, of type i32: the label of a place is the token behind it. Of
// documents a row each, which begins and ends with the boundary, if `context` is enough, and whose
// rest is padded; of a stream, which is one document, its windows.
Tensors token_rows(const std::vector<std::vector<int32_t>>& documents, const Vocabulary& vocabulary,
    int64_t context);
// The least mean loss of a model of such rows: it knows what stands behind each beginning, but not
// which of these rows it reads.
double least_loss(const Tensors& rows);

}  // namespace sinter::gpt
