// One statement of a graph file (text.h) as data, and the one description of how it is written: the
// same lines of code print it (text.cpp) and read it (parse.cpp), so nothing can be printed that is
// not read back.
#pragma once

#include "capture/graph.h"

namespace sinter::capture {

// Where a value lies, in elements.
struct Placement {
  Strides strides;  // none: dense
  int64_t offset = 0;
  SINTER_FIELDS(Placement, strides, offset)
};
// What a line says of a node beside its op's attributes.
struct NodeFields {
  Role role = Role::none;
  SINTER_FIELDS(NodeFields, role)
};

// Values stand in it by their numbers in the file.
struct Statement {
  std::vector<int64_t> results = {};
  std::string_view word = {};           // the op's name, or one of the file's own words
  const OpDef* op = nullptr;            // of those none
  std::vector<std::string> names = {};  // of an input or param, of each output
  double number = 0;                    // const
  std::vector<int64_t> operands = {};   // of an op, view, gradient and output; -1: absent
  std::vector<Value> types = {};        // of the results: dtype, shape
  // An op: its attributes, NodeFields; input, param, view: Placement.
  std::vector<Attrs> fields = {};
};

// Note [One grammar]
//   A statement is described once, for both ways. `text` is a Printer, which writes each part that
//   it is given, or a Reader, which takes the part from the line and sets it:
//
//       text.mark("(")      writes "("; or refuses a line that has no "(" here
//       text.value(n)       writes "%7"; or takes %7, and n is 7
//       text.more(list, i, ')')
//                           is there an item i? The list says so; or the line does, whose list
//                           goes on until ')', and then ours grows. With what separates items
//
//   So a part that is added here is both written and read. The blanks of a mark are written as they
//   stand, and any may stand between two parts that are read.
template <class Text> void statement(Text& text, Statement& s) {
  if (text.begins('%', !s.results.empty())) {
    for (size_t i = 0; text.more(s.results, i, '='); ++i) text.value(s.results[i]);
    text.mark(" = ");
  }
  text.word(s);
  if (s.word == "input" || s.word == "param") {
    s.names.resize(1);
    text.mark(" ");
    text.name(s.names[0]);
  } else if (s.word == "const") {
    text.mark(" ");
    text.real(s.number);
  } else if (s.word == "gradient") {
    s.operands.resize(2);  // the parameter, its gradient
    for (int64_t& value : s.operands) {
      text.mark(" ");
      text.value(value);
    }
  } else if (s.word == "output") {
    for (size_t i = 0; text.more(s.operands, i, '\0'); ++i) {
      s.names.resize(s.operands.size());
      if (i == 0) text.mark(" ");
      text.name(s.names[i]);
      text.mark(" ");
      text.value(s.operands[i]);
    }
  } else {
    text.mark("(");
    for (size_t i = 0; text.more(s.operands, i, ')'); ++i) {
      if (!text.absent(s.operands[i])) text.value(s.operands[i]);
    }
    text.mark(")");
  }
  s.types.resize(s.results.size());
  for (size_t i = 0; i < s.types.size(); ++i) {
    text.mark(i ? ", " : " ");
    text.type(s.types[i]);
  }
  text.fields(s);
}

}  // namespace sinter::capture
