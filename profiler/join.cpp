#include "profiler/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/numbers.h"
#include "core/text_grid.h"

namespace sinter::profiler {
namespace {

// Other names of our ops: PyTorch's, without "aten::" and the mark of an op in place.
struct NamedOp {
  std::string_view name, ours;
};
constexpr NamedOp kWords[] = {{"addmm", "linear"}, {"mkl_linear", "linear"},
    {"linear_pointwise", "linear"}, {"mm", "matmul"}, {"bmm", "matmul"}, {"clamp_min", "relu"},
    {"threshold_backward", "relu_backward"}, {"log_softmax_backward_data", "log_softmax_backward"},
    {"softmax_backward_data", "softmax_backward"}, {"nll_loss", "nll"}, {"nll_loss_nd", "nll"},
    {"nll_loss_forward", "nll"}, {"nll_loss_backward", "nll_backward"}, {"mse_loss", "mse"},
    {"mse_loss_backward", "mse_backward"}, {"native_layer_norm", "layer_norm"},
    {"native_layer_norm_backward", "layer_norm_backward"}, {"convolution", "conv2d"},
    {"mkldnn_convolution", "conv2d"}, {"cudnn_convolution", "conv2d"},
    {"native_batch_norm", "batch_norm2d"}, {"cudnn_batch_norm", "batch_norm2d"},
    {"native_batch_norm_backward", "batch_norm2d_backward"},
    {"max_pool2d_with_indices", "max_pool2d"},
    {"max_pool2d_with_indices_backward", "max_pool2d_backward"}, {"native_dropout", "dropout"},
    {"fused_adam", "adam_update"}, {"fused_adamw", "adamw_update"}, {"fused_sgd", "sgd_update"},
    {"t", "transpose"}, {"sum_rows", "sum"}};

std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words = parts_of(name, "_");
  std::erase(words, "");
  return words;
}

// The op of a name in our word: "aten::_log_softmax" -> "log_softmax", "matmul(wgrad)" -> "matmul".
std::string word_of(std::string_view name) {
  if (const size_t colons = name.rfind("::"); colons != name.npos) name.remove_prefix(colons + 2);
  const std::string word = join(words_of(name.substr(0, name.find('('))), "_");
  const auto known = std::ranges::find(kWords, word, &NamedOp::name);
  return known == std::end(kWords) ? word : std::string(known->ours);
}

// What stands behind "_fused_" in the name of a kernel that Inductor made; "" of another.
std::string_view tokens_of(std::string_view name) {
  constexpr std::string_view kMark = "_fused_";
  const size_t at = name.find(kMark);
  return at == name.npos || name.find("::") != name.npos ? "" : name.substr(at + kMark.size());
}

std::vector<JoinedRows> join_by_origin(const Profile& a, const Profile& b) {
  std::vector<JoinedRows> out;
  std::vector<char> found(a.rows.size(), 0);
  for (size_t i = 0; i < b.rows.size(); ++i) {
    const Row& row = b.rows[i];
    auto same = std::ranges::find_if(out, [&](const JoinedRows& other) {
      const Row& first = b.rows[other.b[0]];
      return first.name == row.name && first.made_of.empty() == row.made_of.empty();
    });
    if (same == out.end()) same = out.insert(same, JoinedRows{});
    same->b.push_back(int(i));
    for (const int of : row.origin) {
      same->a.push_back(of);
      found[of] = 1;
    }
  }
  JoinedRows rest{.attributed = false};
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) rest.a.push_back(int(i));
  }
  if (!rest.a.empty()) out.push_back(std::move(rest));
  for (JoinedRows& rows : out) std::ranges::sort(rows.a);
  return out;
}

// Which rows stand for the same.
struct Key {
  std::string op, name, shapes;  // our word for it; the name, its phase too, where both sides have
                                 // it; the shapes, where they are asked for and equal
  auto operator<=>(const Key&) const = default;
};

// The ops that a fused one says it is made of, as far as they are known: of a kernel's name the
// longest runs of words that are one.
std::vector<std::string> ops_in(const Row& row, const auto& known) {
  std::vector<std::string> out;
  const auto take = [&](const std::string& op) {
    if (known.contains(op)) out.push_back(op);
    return known.contains(op);
  };
  for (const std::string_view kinds : parts_of(row.made_of, " + ")) {
    for (std::string_view op : parts_of(kinds, ", ")) {
      op = op.substr(0, op.find(" x"));
      if (!take(std::string(op))) take(word_of(op));
    }
  }
  const std::vector<std::string_view> words = words_of(tokens_of(row.name));
  for (size_t at = 0; at < words.size();) {
    size_t run = std::min<size_t>(words.size() - at, 8);
    const auto text = [&] { return join(std::span(words).subspan(at, run), "_"); };
    while (run > 0 && !take(word_of(text()))) --run;
    at += std::max<size_t>(run, 1);
  }
  return out;
}

// Rows of one key are joined: by the name, where both sides have it, else by our word for it. A
// fused kernel that is alone takes in those of its ops.
std::vector<JoinedRows> join_by_name(const Profile& a, const Profile& b, bool by_shape) {
  const Profile* const sides[] = {&a, &b};
  const auto each = [&](int side, auto&& f) {
    for (size_t i = 0; i < sides[side]->rows.size(); ++i) {
      if (sides[side]->rows[i].kind == ScopeKind::op) f(sides[side]->rows[i], i);
    }
  };
  std::map<std::string, std::set<std::string>> shapes[2];  // of each name
  for (const int side : {0, 1})
    each(side, [&](const Row& row, size_t) { shapes[side][row.name].insert(row.shapes); });
  struct Word {
    bool alone[2] = {};            // has one side names of it that the other lacks?
    std::set<std::string> paired;  // names of it that both have
  };
  std::map<std::string, Word> words;
  for (const int side : {0, 1}) {
    for (const auto& [name, of] : shapes[side]) {
      Word& word = words[word_of(name)];
      if (shapes[1 - side].contains(name)) {
        word.paired.insert(name);
      } else {
        word.alone[side] = true;
      }
    }
  }
  const auto key_of = [&](const Row& row) -> Key {
    const std::string op = word_of(row.name);
    const Word& word = words.at(op);
    if (word.paired.contains(row.name)) {
      // Where one side has a shape that the other lacks, all are one.
      const bool equal = shapes[0].at(row.name) == shapes[1].at(row.name);
      return {op, row.name, by_shape && equal ? row.shapes : ""};
    }
    if (word.alone[0] && word.alone[1]) return {op, "", ""};
    // What is alone goes to the one that has a partner already, if there is only one.
    return {op, word.paired.size() == 1 ? *word.paired.begin() : row.name, ""};
  };

  std::map<Key, int> groups;
  std::vector<int> group[2];  // of each row, or -1
  for (const int side : {0, 1}) {
    group[side].assign(sides[side]->rows.size(), -1);
    each(side, [&](const Row& row, size_t i) {
      group[side][i] = groups.try_emplace(key_of(row), int(groups.size())).first->second;
    });
  }
  const auto is_in = [&](int side, int g) { return std::ranges::count(group[side], g) > 0; };
  for (const int side : {1, 0}) {
    std::map<std::string, std::set<size_t>> ops;  // of the other side, its rows
    each(1 - side, [&](const Row& row, size_t i) {
      if (!tokens_of(row.name).empty()) return;
      for (const std::string& name : {row.name, word_of(row.name)}) ops[name].insert(i);
    });
    std::vector<size_t> alone;
    each(side, [&](const Row&, size_t i) {
      if (!is_in(1 - side, group[side][i])) alone.push_back(i);
    });
    for (const size_t i : alone) {
      for (const std::string& op : ops_in(sides[side]->rows[i], ops)) {
        for (const size_t other : ops.at(op)) {
          const int from = group[1 - side][other];
          for (const int s : {0, 1}) std::ranges::replace(group[s], from, group[side][i]);
        }
      }
    }
  }

  std::vector<JoinedRows> out;
  std::map<int, size_t> index;
  JoinedRows rest{.attributed = false};
  for (const int side : {0, 1}) {
    each(side, [&](const Row&, size_t i) {
      const int g = group[side][i];
      const bool paired = is_in(0, g) && is_in(1, g);
      const auto [at, is_new] = index.try_emplace(paired ? g : -1, out.size());
      if (paired && is_new) out.emplace_back();
      JoinedRows& rows = paired ? out[at->second] : rest;
      (side == 0 ? rows.a : rows.b).push_back(int(i));
    });
  }
  if (!rest.a.empty() || !rest.b.empty()) out.push_back(std::move(rest));
  return out;
}

int64_t of_a_step(int64_t sum, const Profile& p) {
  return std::llround(double(sum) / double(std::max<size_t>(p.steps.size(), 1)));
}

}  // namespace

std::vector<JoinedRows> join_rows(const Profile& a, const Profile& b, bool by_shape) {
  const bool origins =
      std::ranges::any_of(b.rows, [](const Row& row) { return !row.origin.empty(); });
  return origins ? join_by_origin(a, b) : join_by_name(a, b, by_shape);
}

void ComparedRow::add_counts(const Profile& a, const Profile& b, const JoinedRows& rows) {
  Row of_a, of_b;
  const auto sum = [](Row& to, const Profile& p, const std::vector<int>& which) {
    for (const int i : which) {
      to.launches += p.rows[i].launches;
      to.cost += p.rows[i].cost;
    }
  };
  sum(of_a, a, rows.a);
  sum(of_b, b, rows.b);
  eager_launches += int(of_a_step(of_a.launches, a));
  fused_launches += int(of_a_step(of_b.launches, b));
  eager_bytes += of_a_step(of_a.cost.bytes(), a);
  fused_bytes += of_a_step(of_b.cost.bytes(), b);
  eager_flops += of_a_step(of_a.cost.flops, a);
  fused_flops += of_a_step(of_b.cost.flops, b);
}

Estimate ComparedRow::ratio() const {
  const bool compared = verdict.empty() && eager_us.size() == fused_us.size() &&
                        all_positive(eager_us) && all_positive(fused_us);
  return compared ? paired_ratio(eager_us, fused_us, layouts) : Estimate{1, 1, 1};
}

std::string ComparedRow::ratio_text() const {
  if (!verdict.empty()) return verdict;
  const Estimate found = ratio();
  if (found.is_shown()) return factor_text(found, eager_us.size());
  if (!found.has_interval) return "-";
  return found.is_noisy() ? "machine busy" : "no difference";
}

Unit unit_of_us(double us) { return us < 2e4 ? Unit{1, "us"} : Unit{1e3, "ms"}; }
Unit unit_of_bytes(double bytes) { return bytes < 2e7 ? Unit{1e3, "kB"} : Unit{1e6, "MB"}; }

void ComparisonTable::add(ComparedRow row) {
  const auto add_known = [](auto& to, auto count) {
    if (count >= 0) to = std::max(to, {}) + count;
  };
  add_known(total.eager_launches, row.eager_launches);
  add_known(total.fused_launches, row.fused_launches);
  add_known(total.eager_bytes, row.eager_bytes);
  add_known(total.fused_bytes, row.fused_bytes);
  add_known(total.eager_flops, row.eager_flops);
  add_known(total.fused_flops, row.fused_flops);
  for (const auto times : {&ComparedRow::eager_us, &ComparedRow::fused_us}) {
    if ((row.*times).empty()) continue;
    const double before = (total.*times).empty() ? 0 : (total.*times)[0];
    total.*times = {before + as_told(median(row.*times))};
  }
  rows.push_back(std::move(row));
}

std::string ComparisonTable::text(size_t width) const {
  const Unit time = unit_of_us(total.eager_us.empty() ? 0 : total.eager_time()),
             size = unit_of_bytes(double(total.eager_bytes));
  const std::string moved = str(size.name, " moved");
  TextGrid grid({"<" + names, launches, time.name + times.substr(2), moved, "<" + ratio});
  const auto add_line = [&](const ComparedRow& row, const std::string& name,
                            const std::string& factor) {
    const auto count = [](int64_t n) { return n < 0 ? "-" : str(n); };
    const auto us = [&](const std::vector<double>& all) {
      return all.empty() ? "-" : time_text(as_told(median(all)) / time.size);
    };
    // Both to three digits at least.
    const double most = double(std::max(row.eager_bytes, row.fused_bytes)) / size.size;
    const int digits = most >= 100 ? 0 : most >= 1 || most == 0 ? 1 : 3;
    const auto bytes = [&](int64_t n) {
      return n < 0 ? "-" : fmt::format("{:.{}f}", double(n) / size.size, digits);
    };
    grid.add(
        {name, fmt::format("{} -> {:>2}", count(row.eager_launches), count(row.fused_launches)),
            us(row.eager_us) + " -> " + us(row.fused_us),
            bytes(row.eager_bytes) + " -> " + bytes(row.fused_bytes), factor});
  };
  for (const ComparedRow& row : rows) {
    const bool same = row.eager == row.fused;
    add_line(row, same ? row.fused : row.fused + " <- " + row.eager, row.ratio_text());
  }
  // One headline: the step's own, from clean rounds. The total here is of profiled ones, which only
  // apportion.
  if (!total.fused.empty())
    add_line(total, total.eager.empty() ? total.fused : total.fused + "   " + total.eager, "");
  if (total.eager_launches < 0 && total.fused_launches < 0) grid.drop(launches);
  if (total.eager_bytes < 0 && total.fused_bytes < 0) grid.drop(moved);
  // Bytes and launches of the step stand above the table, too.
  if (width > 0 && width < 70) grid.drop(launches);
  grid.fit(width, {moved});
  return grid.text();
}

}  // namespace sinter::profiler
