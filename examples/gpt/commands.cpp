// sample and eval: what a saved model writes, and how well it reads.
#include "cli/process.h"
#include "examples/gpt/job.h"
#include "examples/gpt/names.h"
#include "examples/gpt/sample.h"

namespace sinter::gpt {

using namespace cli;

namespace {

int run_sample(
    GptJob& job, const std::string& from, const SampleOptions& options, bool rules, Output& out) {
  catch_signals();
  const auto model = job.open(from, choose_device(job.flags.common->device).first, out);
  const std::vector<std::string> samples =
      sample(*model, job.vocabulary(), job.model.context, options);
  Json json = {{"model", job.describe()}, {"samples", samples}};
  if (!rules) {
    out.result_text(printable(samples, job.vocabulary().documents() ? "" : "---\n"));
  } else {
    SINTER_CHECK(job.built_in(), usage,
        "usage: --rules: the rules of the built-in names, and the model was trained on a text");
    const NameCount count = count_names(samples, job.training_names());
    out.result("rules", count.text());
    json["rules"] = {
        {"valid", count.valid}, {"new", count.fresh}, {"random_valid", count.random_valid}};
  }
  out.json("sinter.sample/1", json);
  if (!interrupted()) return 0;
  return out.stopped(str("after ", samples.size(), " of ", count_of(options.count, "sample")));
}

int run_eval(
    GptJob& job, const Flags& given, const std::string& from, const std::string& set, Output& out) {
  catch_signals();
  const Device device = choose_device(job.flags.common->device).first;
  const auto model = job.open(from, device, out);
  const Loading loading{.device = device, .given = given, .use = Use::run, .out = out};
  job.load(loading);
  job.make_batches(loading);
  SINTER_CHECK(set == "test" || job.data().val > 0, usage,
      "usage: --set val: the run has held out nothing: its --val is 0", "--set test");
  const Evaluated e = job.evaluate(*model, set == "val" ? Set::val : Set::test, INT64_MAX, nullptr);
  if (!e.complete) return out.stopped(str("within the ", set, " set"));
  out.result(set, e.text);
  Json json = {{"model", job.describe()}, {"set", set}};
  json.update(e.json);
  out.json("sinter.eval/1", json);
  return 0;
}

// --from, and the job whose model that becomes.
GptJob& add_from_flag(App& app, Flags& flags, std::string& from) {
  static GptJob job(app.common());
  flags.topic("model");
  flags.word("from", from, "RUN|FILE", "a run folder or a safetensors file");
  return job;
}

}  // namespace

void add_sample(App& app, Command& command) {
  static SampleOptions options;
  static std::string from = "runs/last";
  static bool rules = false;
  Flags& flags = command.flags;
  GptJob& job = add_from_flag(app, flags, from);
  flags.topic("sample");
  flags.word("prompt", options.prompt, "TEXT", "what each begins with");
  flags.number("temperature", options.temperature, 0, 100, "below 1 likelier letters; 0 the best");
  flags.number("top-k", options.top_k, 0, 1'000'000, "among the K likeliest letters; 0 all");
  flags.number("count,num-samples", options.count, 1, 1'000'000, "samples");
  flags.number("length,max-new-tokens", options.letters, 0, 1'000'000,
      "letters of each at most; 0 as many as the context has");
  flags.toggle("rules", rules, "of built-in names: how many obey the rules, in place of them");
  command.run = [&app, &job](Output& out) {
    options.seed = app.common().seed;
    return run_sample(job, from, options, rules, out);
  };
}

void add_eval(App& app, Command& command) {
  static std::string from = "runs/last", set = "test";
  GptJob& job = add_from_flag(app, command.flags, from);
  command.flags.topic("text");
  job.add_text_flag(command.flags);
  command.flags.choice("set", set, {"test", "val"}, "of the text, which is cut as in training");
  command.flags.number(
      "eval-batch-size", job.flags.optimizer.eval_batch, 1, 1'000'000, "rows at once");
  command.run = [&job, &command](
                    Output& out) { return run_eval(job, command.flags, from, set, out); };
}

}  // namespace sinter::gpt
