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
// the text.
Letters letters_of(std::string_view text, bool bytes, const std::string& name);

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
  bool documents() const { return documents_; }
  // Throws for a letter that it lacks, with its place.
  std::vector<int32_t> encode(std::string_view text, const std::string& name) const;
  std::string decode(std::span<const int32_t> tokens) const;
  std::string text() const;
  std::string describe() const;  // "26 letters a-z", "65 letters"

 private:
  std::string shown(char32_t letter) const;  // as it is printed
  Letters letters_;                          // rising
  bool bytes_ = false, documents_ = true;
};

// The lines that are not empty.
std::vector<std::string> documents_of(std::string_view text);
// The bytes of a file, raw or gzip; throws for one that is empty, or larger than 1 GiB.
std::string read_text(const std::string& file);

// {x[N, context], labels[N, context]}, of type i32: the label of a place is the token behind it. Of
// documents a row each, which begins and ends with the boundary, if `context` is enough, and whose
// rest is padded; of a stream, which is one document, its windows.
Tensors token_rows(const std::vector<std::vector<int32_t>>& documents, const Vocabulary& vocabulary,
    int64_t context);

}  // namespace sinter::gpt
