// The list of docs/RULES.md is that of the program: rules, devices, and what each stands for, from
// the traced references. SINTER_REGENERATE=1 writes it anew.
#include <gtest/gtest.h>

#include <set>

#include "capture/pattern.h"
#include "capture/rules.h"
#include "core/numbers.h"
#include "core/text_grid.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "<!-- rules: this list is generated -->\n",
                           kEnd = "<!-- rules: end -->\n";

// Kernels for cuda are those of simt, compiled or not.
std::string devices_of(const Rule& rule) {
  const bool cpu = rule.on(Device::Type::cpu), device = rule.on(Device::Type::simt);
  return cpu && device ? "" : cpu ? " (cpu)" : " (cuda, simt)";
}

std::string note_of(const Rule& rule) {
  if (*rule.note == '\0') return "";
  for (const auto& entry : fs::directory_iterator(fs::path(SINTER_SOURCE_DIR) / "capture")) {
    const std::string text = test::text_of(entry.path());
    if (text.find(str("// Note [", rule.note, "]\n//   ")) != std::string::npos)
      return str("`capture/", entry.path().filename().string(), "`: Note [", rule.note, "]");
  }
  ADD_FAILURE() << rule.name() << ": no file of capture/ has Note [" << rule.note << "]";
  return "";
}

// The document says once which activations ACT and GATE stand for, and of many forms it shows the
// longest.
std::string short_form(std::string ops) {
  const std::vector<std::string> gates{"gelu", "gelu_tanh", "silu", "softplus", "mish"};
  const std::vector<std::string> acts{
      "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "softplus", "mish"};
  for (const auto& [names, stands] : {std::pair(acts, "ACT"), std::pair(gates, "GATE")}) {
    for (const std::string ending : {"_backward", ""}) {
      const std::string all = join(names, ending + " / ") + ending;
      for (size_t at; (at = ops.find(all)) != ops.npos;)
        ops.replace(at, all.size(), stands + ending);
    }
  }
  const std::vector<std::string_view> forms = parts_of(ops, "; or ");
  return forms.size() < 4 ? ops : str(forms[0], "; or ", forms.size() - 1, " shorter ones");
}

std::string list() {
  std::string out;
  for (const Rule& rule : rules()) {
    const std::string ops = short_form(stands_for(rule.label)), note = note_of(rule);
    out += wrapped(str("- `", rule.name(), "`", devices_of(rule), ": ", ops,
                       ops.empty() || note.empty() ? "" : ". ", note, "\n"),
        100);
  }
  return out;
}

TEST(RulesTable, OfTheDocumentIsThatOfTheProgram) {
  const fs::path file = fs::path(SINTER_SOURCE_DIR) / "docs/RULES.md";
  std::string text = test::text_of(file);
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_TRUE(begin < end && end != std::string::npos) << "no marks in " << file;
  const size_t at = begin + kBegin.size();
  const std::string wanted = list();
  if (std::getenv("SINTER_REGENERATE")) std::ofstream(file) << text.replace(at, end - at, wanted);
  EXPECT_EQ(test::text_of(file).substr(at, wanted.size() + kEnd.size()), wanted + std::string(kEnd))
      << "SINTER_REGENERATE=1 capture_test --gtest_filter=RulesTable.* writes it anew";
}

TEST(RulesTable, EveryRuleHasAPatternOrANote) {
  for (const Rule& rule : rules()) {
    EXPECT_TRUE(rule.label.forms || !rule.code.empty()) << rule.name();
    EXPECT_EQ(rule.code.empty(), *rule.note == '\0') << rule.name();
  }
}

}  // namespace
}  // namespace sinter::capture
