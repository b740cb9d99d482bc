// Whatever locale the host program has set: all that is written, read, kept and told is byte for
// byte that of the classic one.
#include <bit>
#include <map>

#include "capture/bind.h"
#include "capture/explain.h"
#include "core/json.h"
#include "data/idx.h"
#include "data/npy.h"
#include "measure/exports.h"
#include "measure/inspect.h"
#include "nn/checkpoint.h"
#include "nn/mlp.h"
#include "profiler/session.h"
#include "profiler/trace.h"
#include "tests/host_locale.h"
#include "train/trainer.h"

namespace sinter {
namespace {

using Texts = std::map<std::string, std::string>;  // by what it is

// A step of 1,100 products, so that its graph has numbers of four digits.
Texts long_graph() {
  capture::Step step([](const Tensors& x) {
    Tensor y = x[0];
    for (int i = 0; i < 1100; ++i) y = matmul(y, x[0]);
    return Tensors{y * 0.125};
  });
  for (int i = 0; i < 3; ++i) step({Tensor::full({2, 2}, .5)});
  const test::TempDir folder;
  const std::string text = capture::to_json(step.captured()->fused.graph);
  const std::string file = folder.write("a.graph", text);
  return {{"graph", text}, {"graph, read", capture::dump(capture::load(file))},
      {"explain", capture::explain(*step.captured())}};
}

TEST(Cases, LocaleOfTheHostProgram) {
  const Texts classic = long_graph();
  EXPECT_NE(classic.at("graph, read").find("%1100 = "), std::string::npos);
  const test::HostLocale locale;
  EXPECT_EQ(long_graph(), classic);
}

// Trains, saves, goes on from the file, and tells of it.
Texts trained() {
  const test::TempDir folder;
  const std::string file = folder.file("digits.safetensors");
  Texts out;
  const Dataset data = load_dataset({.what = "synthetic", .val = 0, .limit = 1200});
  manual_seed(5);
  for (int run = 0; run < 2; ++run) {
    Batches batches(data.train, {.size = 96});
    nn::Mlp model({784, 16, 10}, {.dropout = 0.25, .seed = 3});
    nn::Adam optimizer(model.named_parameters(), {.lr = 0.0125});
    Trainer trainer(
        model, optimizer, {.schedule = nn::Schedule{nn::Schedule::Kind::cosine, 0.0125, 40, 4}});
    EXPECT_EQ(trainer.resume(file, batches), run == 1);
    const double loss = trainer.fit(batches);
    out[str("loss ", run)] = str(std::bit_cast<uint64_t>(loss), " ", loss);
    trainer.save(file, "lr = 0.0125\n");
    out["weights"] = str(model.parameters()[0]);
    out["model"] = model.str() + model.summary({1, 784});
    out["score"] = str(trainer.evaluate(batches).accuracy());
  }
  out["file"] = test::text_of(file);
  const nn::Checkpoint saved = nn::read_checkpoint(file);
  out["state"] = nn::to_json(saved.state) + saved.config;
  out["data"] = data.description;
  return out;
}

TEST(Locale, ATrainingSavesResumesAndTellsTheSame) {
  const Texts classic = trained();
  const test::HostLocale locale;
  EXPECT_EQ(trained(), classic);
}

profiler::Report profiled() {
  nn::Mlp model({784, 64, 10});
  const Tensor x = Tensor::ones({1200, 784});
  profiler::Session session({.schedule = {1, 1, 3}, .title = "CPU eager"});
  for (; !session.done(); session.step()) model(x);
  return session.finish();
}

// As all views show it.
Texts views(const profiler::Report& report) {
  const profiler::RunFacts run{.workload = "mlp", .command = "a test", .batch = 1200};
  const profiler::Profile profile = profiler::profile_of(report, run);
  const std::string json = profiler::to_json(profile);
  return {{"table", report.table()},
      {"table of all",
          report.table({.row_limit = -1, .group_by_input_shape = true, .columns = "memory"})},
      {"JSON", json}, {"JSON, read", profiler::to_json(profiler::read_profile(json, "a file"))},
      {"trace", profiler::chrome_trace({&report, 1})}, {"stacks", profiler::folded_stacks(report)},
      {"page", measure::html_report({.title = "a page", .reports = {&report, 1}, .run = run})}};
}

TEST(Locale, AProfileLooksTheSame) {
  const profiler::Report report = profiled();
  const Texts classic = views(report);
  const test::HostLocale locale;
  EXPECT_EQ(views(report), classic);
}

// Texts of the library's, and files that it reads.
Texts told() {
  const test::TempDir folder;
  Texts out;
  out["cat"] = str(1234567, " ", 1234.5, " ", true, " ", 0.25f, " ", int64_t{-1000}, " ", 1e-7);
  out["values"] = Tensor::from({1234.5f, -0.25f, 1e-7f, 1e9f}, {2, 2}).values(3) +
                  Tensor::full({2}, 123456, DType::i64).values() + str(Tensor::full({2}, 0.5));
  out["shape"] = test::message_of([] { Tensor::ones({1200, 3}) + Tensor::ones({1201, 3}); });
  out["rate"] = test::message_of([] {
    nn::Mlp model({3, 2});
    nn::Sgd(model.named_parameters(), {.lr = -1234.5});
  });
  out["attribute"] = test::message_of([] { dropout(Tensor::ones({1200}), 1.5); });
  out["no file"] = test::message_of([] { capture::load("/nonexistent/1,5"); });
  out["JSON"] = json_text(Json::parse("[1234567, 1234.5, 1e-7, true]"));
  const std::string header =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1200, 1, 1), }            \n";
  std::string npy = std::string("\x93NUMPY\1\0", 8) + char(header.size()) + '\0' + header;
  npy.append(1200 * 4, '\0');
  const FileArray array = read_npy(folder.write("x.npy", npy));
  out["npy"] = array.describe() + array.images().describe();
  out["npy, bad"] = test::message_of([&] {
    std::string other = npy;
    other.replace(other.find("<f4"), 3, "\xe9\xdf\xff");
    read_npy(folder.write("y.npy", other));
  });
  out["npy, bad"].replace(out["npy, bad"].find(folder.path()), folder.path().size(), "FOLDER");
  return out;
}

TEST(Locale, TextsAndFilesAreTheSame) {
  const Texts classic = told();
  EXPECT_EQ(classic.at("cat"), "1234567 1234.5 1 0.25 -1000 1e-07");
  for (const char thousands : {'.', ' ', '\''}) {
    const test::HostLocale locale(thousands);
    EXPECT_EQ(told(), classic);
  }
}

// What the tests above rest on.
TEST(Locale, OfTheHostProgramIsAnother) {
  const test::HostLocale locale;
  std::ostringstream out;
  out << 1234.5;
  EXPECT_EQ(out.str(), "1.234,5");
  if (!locale.of_c()) GTEST_SKIP() << "this C library reads no locale of glibc's";
  char text[16];
  std::snprintf(text, sizeof text, "%.1f", 1234.5);
  EXPECT_STREQ(text, "1234,5");
}

}  // namespace
}  // namespace sinter
