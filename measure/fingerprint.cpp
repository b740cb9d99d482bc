#include "measure/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/device/chooser.h"
#include "core/device/cpu_gemm.h"
#include "core/hash64.h"
#include "core/json.h"
#include "measure/timer.h"
#include "ops/optim/step_state.h"
#include "profiler/report.h"

namespace sinter::measure {
namespace {

// The host may have written such a tensor, a rate say, and counts no version of that.
constexpr size_t kSmall = 4096;

struct Op {
  std::string name{}, module{}, library{};
  std::vector<std::string> reads{}, writes{};
  SINTER_FIELD_LIST(name, module, library, reads, writes)
};

std::string line_of(const char* key, const Json& first, const Json& rest) {
  Json line{{key, first}};
  line.update(rest);
  return json_text(line);
}

}  // namespace

Fingerprints::Fingerprints(const std::string& file, const FingerprintHead& head,
    const std::vector<std::pair<std::string, Tensor>>& named, int64_t done)
    : file_(file), out_(file), every_(head.every), step_(done) {
  write(line_of("schema", "sinter.fingerprints/1", head));
  Op start{.name = "start"};
  for (const auto& [name, t] : named) {
    names_.emplace(t.storage()->uid(), name);
    start.writes.push_back(text_of(t));
    is_known(t);
    hash(t);
  }
  write(line_of("op", 0, start));
  ops_.emplace();
  ops_of_step_ = "0";
  end_step();
  cost_ = {};
}

bool Fingerprints::is_known(const Tensor& t) {
  const Storage& storage = *t.storage();
  const auto before = known_before_.find(storage.uid());
  const auto [at, is_new] = known_.try_emplace(storage.uid(), storage.version());
  const bool known = is_new ? before != known_before_.end() && storage.bytes() > kSmall &&
                                  before->second == storage.version()
                            : at->second == storage.version();
  at->second = storage.version();
  return known;
}

std::string Fingerprints::text_of(const Tensor& t) const {
  const uint64_t uid = t.storage()->uid();
  const auto name = names_.find(uid);
  std::string text = name == names_.end() ? "" : name->second + " ";
  for (const auto& [device, rng] : RngStates::of_thread().devices) {
    if (rng.state.defined() && rng.state.storage()->uid() == uid) text = "random numbers ";
  }
  return str(text, name_of(t.dtype()), t.shape().str());
}

void Fingerprints::hash(const Tensor& t) {
  // The host reads here what the device has made, also while a step is recorded.
  const char*& forbidden = Context::current().host_reads_forbidden;
  const char* const before = std::exchange(forbidden, nullptr);
  const Tensor dense = t.device() == kCpu && t.is_contiguous() ? t : t.to(kCpu);
  forbidden = before;
  const void* at = dense.raw();
  size_t bytes = size_t(t.numel()) * size_of(t.dtype());
  // Where the rates of later steps lie, and how many are told, is another one in each process; and
  // its end has gaps.
  StepState state;
  if (t.dtype() == DType::u8 && bytes == sizeof state) {
    std::memcpy(&state, at, bytes);
    state.next_rates = nullptr;
    state.rates_left = 0;
    at = &state;
    bytes = offsetof(StepState, ticket);
  }
  hashes_ += fmt::format("{:016x}", hash64(at, bytes));
  cost_.bytes += int64_t(bytes);
}

void Fingerprints::write(const std::string& line) {
  out_ << line << '\n' << std::flush;
  SINTER_CHECK(out_, checkpoint, str("checkpoint: cannot write: ", escaped(file_)));
}

void Fingerprints::begin_step(int64_t step) {
  step_ = step;
  take_gemm_library();
  take_choice_text();
  listen(step % every_ == 0);
}

void Fingerprints::end_step() {
  listen(false);
  if (ops_of_step_.empty()) return;
  const Timer timer;
  write(fmt::format(R"({{"step":{},"ops":[{}],"hashes":"{}"}})", step_, ops_of_step_, hashes_));
  ops_of_step_.clear();
  hashes_.clear();
  known_before_ = std::exchange(known_, {});
  ++cost_.steps;
  cost_.seconds += timer.seconds();
}

void Fingerprints::record(const Call& call) {
  const Context& context = Context::current();
  if (call.op.view || !context.launches) return;
  const Timer timer;
  const char* library = take_gemm_library();
  if (const std::string chosen = take_choice_text(); !chosen.empty())
    library = profiler::intern(chosen).c_str();
  Tensors reads, writes;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const Tensor& t = call.in[i];
    if (!t.defined() || !t.storage()->has_bytes()) continue;
    const bool written = call.op.writes_input(i, call.in.size());
    if (is_known(t) || written) {
      if (written) writes.push_back(t);
    } else {
      reads.push_back(t);
    }
  }
  for (const Tensor& t : call.out) {
    if (t.defined() && t.storage()->has_bytes()) writes.push_back(t);
  }
  const auto number = [](const void* pointer) { return reinterpret_cast<int64_t>(pointer); };
  const profiler::StaticName label = call.op.label_of(call.attrs);
  std::vector<int64_t> key{number(label.c_str()), int64_t(call.role), number(context.module),
      number(library), std::ssize(reads)};
  for (const Tensors* list : {&reads, &writes}) {
    for (const Tensor& t : *list) {
      const auto name = names_.find(t.storage()->uid());
      key.push_back(name == names_.end() ? 0 : int64_t(t.storage()->uid()));
      key.push_back(int64_t(t.dtype()));
      key.insert(key.end(), t.shape().begin(), t.shape().end());
      hash(t);
      if (list == &writes) is_known(t);
    }
  }
  const auto [op, is_new] = ops_.try_emplace(std::move(key), std::ssize(ops_));
  ops_of_step_ += fmt::format("{}{}", ops_of_step_.empty() ? "" : ",", op->second);
  cost_.seconds += timer.seconds();
  if (!is_new) return;
  Op text{.name = profiler::label_of(label, call.role),
      .module = context.module,
      .library = library ? library : ""};
  for (const Tensor& t : reads) text.reads.push_back(text_of(t));
  for (const Tensor& t : writes) text.writes.push_back(text_of(t));
  write(line_of("op", op->second, text));
}

namespace {

struct Step {
  std::vector<size_t> ops{};
  std::string hashes{};
  SINTER_FIELD_LIST(ops, hashes)
};

// A file of them, read.
struct Prints {
  FingerprintHead head;
  std::vector<Op> ops;
  std::map<int64_t, Step> steps;
};

Prints read_prints(const std::string& file) {
  Prints out;
  ClassicStream<std::ifstream> in(file);
  std::string line;
  int64_t number = 0;
  while (std::getline(in, line)) {
    const std::string where = str(escaped(file), ":", ++number);
    const Json json = Json::parse(line, nullptr, false);
    if (in.eof() && json.is_discarded()) break;  // of a run that was cut off
    SINTER_CHECK(json.is_object() && json.contains("schema") == (number == 1), data,
        str("data: no fingerprints of a run: ", where), "the file that a run has kept");
    if (number == 1) {
      read_json(json, out.head, where);
    } else if (json.contains("op")) {
      read_json(json, out.ops.emplace_back(), where);
    } else {
      int64_t step = 0;
      read_json(json.value("step", Json()), step, where + ".step");
      Step& of = out.steps[step];
      read_json(json, of, where);
      size_t hashes = 0;
      for (const size_t op : of.ops) {
        SINTER_CHECK(op < out.ops.size(), data, str("data: no op ", op, ": ", where));
        hashes += out.ops[op].reads.size() + out.ops[op].writes.size();
      }
      SINTER_CHECK(of.hashes.size() == 16 * hashes, data,
          str("data: ", of.hashes.size(), " digits of ", hashes, " hashes: ", where));
    }
  }
  SINTER_CHECK(number > 0, data, str("data: no fingerprints of a run: ", escaped(file)),
      "the file that a run has kept");
  return out;
}

}  // namespace

Parting parting(const std::string& file_a, const std::string& file_b) {
  const Prints a = read_prints(file_a), b = read_prints(file_b);
  Parting out{.a = a.head, .b = b.head};
  bool any = false;
  for (const auto& [number, of_a] : a.steps) {
    const auto found = b.steps.find(number);
    if (found == b.steps.end()) continue;
    const Step& of_b = found->second;
    const std::vector<size_t> start{0};
    if ((of_a.ops == start) != (of_b.ops == start)) continue;  // of a run that went on from there
    if (!std::exchange(any, true)) out.first = number;
    out.step = number;
    out.of = std::ssize(of_a.ops);
    size_t at_a = 0, at_b = 0;  // in the hashes
    for (size_t i = 0; i < std::max(of_a.ops.size(), of_b.ops.size()); ++i) {
      const Op none, &x = i < of_a.ops.size() ? a.ops[of_a.ops[i]] : none,
                     &y = i < of_b.ops.size() ? b.ops[of_b.ops[i]] : none;
      out.op = int64_t(i) + 1;
      out.name = x.name;
      out.name_b = y.name;
      out.module = x.module;
      out.library_a = x.library;
      out.library_b = y.library;
      if (x.name != y.name || x.module != y.module || x.writes != y.writes) {
        out.what = Parting::What::ops;
        return out;
      }
      // What only one of them knew before says nothing.
      const auto part = [&](const std::vector<std::string>& tensors, Parting::What what) {
        for (size_t t = 0; t < tensors.size(); ++t) {
          if (of_a.hashes.compare(at_a + 16 * t, 16, of_b.hashes, at_b + 16 * t, 16) == 0) continue;
          out.tensor = tensors[t];
          out.what = what;
          return true;
        }
        return false;
      };
      if (x.reads == y.reads && part(x.reads, Parting::What::read)) return out;
      at_a += 16 * x.reads.size();
      at_b += 16 * y.reads.size();
      if (part(x.writes, Parting::What::written)) return out;
      at_a += 16 * x.writes.size();
      at_b += 16 * y.writes.size();
      ++out.ops;
    }
    out.last = number;
  }
  SINTER_CHECK(any, data,
      str("data: the runs have no step in common: ", escaped(file_a), ", ", escaped(file_b)),
      "fingerprints of every Nth step, with an equal N");
  return out;
}

std::vector<std::pair<std::string, std::string>> Parting::lines() const {
  std::vector<std::pair<std::string, std::string>> out;
  const auto add = [&](const char* label, const std::string& text) {
    out.emplace_back(label, text);
  };
  const std::string steps =
      ops == 0 ? "nothing" : fmt::format("steps {} to {}, {}", first, last, count_of(ops, "op"));
  if (what == What::nothing) {
    add("equal", str("to the bit: ", steps));
  } else if (name == "start") {
    add("part", str("before the first step: ", tensor));
  } else {
    const auto shown = [](const std::string& op) { return op.empty() ? "none" : op; };
    add("part", fmt::format("in step {}, op {} of {}: {}{}", step, op, of,
                    what == What::ops ? str("A runs ", shown(name), ", B ", shown(name_b)) : name,
                    module.empty() ? "" : ", in " + module));
    if (what != What::ops) {
      add("inputs", what == What::read
                        ? str("differ: ", tensor, ", which no op that was kept wrote")
                        : "equal to the bit");
      if (what == What::written) add("result", tensor);
    }
    add("before", str(steps, ": equal to the bit"));
  }
  std::string differ;
  const Json head_a = a, head_b = b;
  for (const auto& [key, of_a] : head_a.items()) {
    if (of_a != head_b[key])
      differ += str("; ", key, " is ", json_text(of_a), " in A, ", json_text(head_b[key]), " in B");
  }
  if (!differ.empty()) add("heads", differ.substr(2));
  if (what == What::nothing || name == "start") return out;
  const auto made = [](const FingerprintHead& head, const std::string& library) {
    return str(library.empty() ? "own kernel" : library, ", ", count_of(head.threads, "thread"),
        ", ", head.mode, ", ", head.device);
  };
  add("A", made(a, library_a));
  add("B", made(b, library_b));
  if (what == What::written && a.threads != b.threads && !library_a.empty())
    add("why", "a library sums in an order that depends on the number of threads");
  if (parts_by_nature())
    add("why", a.mode != b.mode
                   ? "a fused op rounds otherwise than the ops that it stands for: bits must differ"
                   : "devices sum in orders of their own: bits must differ");
  return out;
}

}  // namespace sinter::measure
