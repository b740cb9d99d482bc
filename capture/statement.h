// One statement of a graph file (text.h) as data, and the one description of how it is written
// (statement.cpp): the same lines of code print it and read it, so nothing can be printed that is
// not read back.
#pragma once

#include <optional>

#include "capture/graph.h"

namespace sinter::capture {

// Of numbers in a file, so that sums and products of a few of them fit 64 bits.
inline constexpr int64_t kMaxNumber = int64_t{1} << 48;

// The memory that several parameters share: "s0".
struct MemoryTag {
  int64_t number = -1;  // none
  bool operator==(const MemoryTag&) const = default;
  friend std::string print_value(MemoryTag tag) { return cat("s", tag.number); }
  friend bool parse_value(std::string_view text, MemoryTag& tag) {
    return text.starts_with('s') && parse_value(text.substr(1), tag.number) && tag.number >= 0;
  }
};

// Where a value lies.
struct Placement {
  MemoryTag in;
  Strides strides;     // elements; none: dense
  int64_t offset = 0;  // elements
  SINTER_FIELDS(Placement, in, strides, offset)
};
// What a line says of a node beside its op's attributes.
struct NodeFields {
  Role role = Role::none;
  SINTER_FIELDS(NodeFields, role)
};

// Values stand in it by their numbers in the file.
struct Statement {
  struct Output {
    std::string name;
    int64_t value;
  };
  std::vector<int64_t> results;
  std::string_view word;          // the op's name, or one of the file's own words
  const OpDef* op = nullptr;      // of those none
  std::string name;               // input, param
  double number = 0;              // const
  std::vector<int64_t> operands;  // of an op, view and gradient; -1: absent
  std::vector<Output> outputs;    // output
  std::vector<Value> types;       // of the results: dtype, shape
  std::vector<Attrs> fields;  // an op: its attributes, NodeFields; input, param, view: Placement
};

std::string print(Statement statement);

// A line of a file, for errors.
struct Line {
  std::string_view text;
  size_t number;
  const std::string& file;

  // Throws data: "graph: <what>: <file> line <number>; <facts>".
  [[noreturn]] void fault(
      std::string_view what, std::string_view facts, std::string hint = "") const;
  void check(bool condition, std::string_view what, std::string_view facts) const {
    if (!condition) fault(what, facts);
  }
};
// Throws data unless the line begins a file of this version.
void read_header(const Line& line);
// Throws data; nothing if the line is empty or a comment. Every field is in its range, but nothing
// is known yet of what the numbers stand for.
std::optional<Statement> read(const Line& line);

}  // namespace sinter::capture
