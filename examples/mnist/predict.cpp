// mnist predict: which digit is on a picture, or on an image of the test set.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/autograd.h"
#include "capture/bind.h"
#include "capture/executor.h"
#include "capture/recording.h"
#include "capture/step.h"
#include "cli/process.h"
#include "core/json.h"
#include "core/parallel.h"
#include "core/text_grid.h"
#include "data/npy.h"
#include "data/png.h"
#include "examples/mnist/evaluate.h"
#include "examples/mnist/model.h"
#include "measure/comparison.h"
#include "measure/parity.h"
#include "measure/timer.h"
#include "ops/ops.h"

namespace sinter::mnist {
namespace {

struct PredictFlags {
  FromFlags from;
  std::vector<std::string> inputs;
  std::string graph, dump_graph;
  std::optional<int64_t> index;
  int64_t top = 3;
  bool no_art = false, raw = false, bench = false, force = false;
  std::vector<int64_t> batch{1, 16, 128, 1024};
};

// An image [1, C, H, W] as text, its colours mixed: a character is twice as many pixels high as
// wide, about as it looks. Of a wide image some pixels stand for all.
std::string picture(const Tensor& image) {
  constexpr std::string_view kInk = " .:-=+*#%@";
  constexpr int64_t kMaxWidth = 64;
  const int64_t height = image.size(2), width = image.size(3),
                step = (width + kMaxWidth - 1) / kMaxWidth;
  const auto grey = mean(cast(image, DType::f64), 1).to_vector<double>();
  std::string out;
  for (int64_t y = 0; y < height; y += 2 * step) {
    const double *row = &grey[y * width], *below = &grey[std::min(y + step, height - 1) * width];
    std::string line;
    for (int64_t x = 0; x < width; x += step)
      line += kInk[size_t((row[x] + below[x]) / 511 * double(kInk.size()))];
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

// Calls of one way to run the model on a batch, each waited for.
struct Timed {
  int64_t batch = 0;
  std::string mode{};  // "eager", "fused", "graph"
  std::function<Tensor()> run{};
  int threads = 0;
  double difference = 0;  // of the logits from eager's, relative to the largest
  std::vector<double> us{};

  double at(double q) const { return profiler::quantile(us, q); }
  double mean() const { return std::accumulate(us.begin(), us.end(), 0.0) / double(us.size()); }
  double images_per_s() const { return 1e6 * double(batch) / at(0.5); }  // of the median call
  SINTER_FIELD_LIST(batch, mode, threads, named("calls", written(us.size())),
      named("p50_us", written(at(0.5))), named("p90_us", written(at(0.9))),
      named("p99_us", written(at(0.99))), named("mean_us", written(mean())),
      named("images_per_s", written(images_per_s())), difference)
};
// The 99th of 100 has one beyond it; but a slow model is not called for minutes.
constexpr int64_t kFewestCalls = 100, kMostCalls = 2000, kRounds = 10;
constexpr double kUsOfAMode = 4e5;

struct Input {
  std::string name;
  Split split;
  std::optional<int64_t> label;
};

class Predictor {
 public:
  Predictor(PredictFlags& flags, int64_t threads, Device device, Output& out)
      : flags_(flags), threads_(threads), device_(device), out_(out) {}

  void run(const Flags& all_flags) {
    const SavedModel saved = open_model(all_flags, flags_.from, device_, out_);
    model_ = saved.model;
    path_ = saved.path;
    size_ = saved.flags.model.image();
    dtype_ = saved.flags.model.batch_dtype();
    if (!flags_.dump_graph.empty()) dump_graph();
    if (!flags_.graph.empty()) load_graph(saved.tensors);
    if (flags_.bench) return bench(saved.flags.model);
    // All of them before the first result: an error leaves stdout as it was.
    std::vector<Input> inputs;
    if (flags_.index) inputs.push_back(test_image(saved, *flags_.index));
    for (const std::string& input : flags_.inputs) read_input(saved, input, inputs);
    for (const Input& input : inputs) predict(input);
    out_.json("sinter.predict/1", {{"model", path_}, {"predictions", predictions_}});
    SINTER_CHECK(not_finite_.empty(), numeric, str("predict: ", not_finite_));
  }

 private:
  Input test_image(const SavedModel& saved, int64_t index) const {
    DataOptions options = flags_.from.data.options(saved.flags.model.classes);
    if (options.limit == 0) options.limit = index + 1;  // no need to draw more
    const Dataset data = load_data(saved, options, out_);
    if (is_pair(data.place)) out_.note("data", data.description);
    SINTER_CHECK(index < data.test.size(), usage,
        str("usage: --index out of range: ", index, "; the test set of ", data.name, " has 0..",
            data.test.size() - 1));
    const Split one = slice(data.test, index, index + 1);
    return {str("test image ", index), one, one.labels.to_vector<int64_t>()[0]};
  }

  void read_input(
      const SavedModel& saved, const std::string& input, std::vector<Input>& inputs) const {
    if (!input.ends_with(".npy")) {
      const bool grey = size_.channels == 1;
      SINTER_CHECK(grey || size_.channels == 3, data,
          str("png: grey or of three colours: ", escaped(input), "; the model reads images of ",
              size_.str()),
          "a .npy file [1, H, W, C] in its place");
      const PngImage image =
          read_png(input == "-" ? "/dev/stdin" : input, grey ? 1 : 3, flags_.raw);
      const ImagePixels pixels = flags_.raw ? raw_image(image, size_)
                                 : grey     ? prepare_digit(image, size_)
                                            : scaled_image(image, size_);
      const Tensor one = Tensor::from(pixels, {1, size_.channels, size_.height, size_.width});
      inputs.push_back({escaped(input), {one, Tensor::zeros({1}, DType::i32)}, {}});
      return;
    }
    const Tensor images = read_npy(input).images();
    const int64_t n = images.size(0);
    const Split all{images, Tensor::zeros({n}, DType::i32)};
    check_images(saved, all.image(), escaped(input));
    for (int64_t i = 0; i < n; ++i)
      inputs.push_back({n == 1 ? escaped(input) : str(escaped(input), " ", i),
          sinter::slice(all, i, i + 1), {}});
  }

  // The forward pass as a graph, of f32 and of the names in the weights' file alone: the bf16
  // copies are made in the graph.
  void dump_graph() {
    const NoGrad no_grad;
    const Tensor x = Tensor::zeros({1, size_.pixels()}, DType::f32, device_);
    capture::Recording recording({x});
    for (Tensor& p : model_->parameters()) {
      if (p.autograd().bf16_copy.defined()) p.autograd().bf16_copy = cast(p, DType::bf16);
    }
    const Tensor logits = (*model_)(x);
    capture::Graph graph = recording.finish({logits}, {});
    graph.values[graph.outputs[0]].name = "logits";
    cli::write_graph(flags_.dump_graph, graph);
    out_.note("graph",
        "{}: the forward pass at batch 1; mnist predict --graph {} --from {} runs it",
        escaped(flags_.dump_graph), as_word(flags_.dump_graph), as_word(path_));
  }

  // Runs the graph of a file in place of the model, on the model's weights.
  void load_graph(const nn::NamedTensors& weights) {
    capture::Graph graph = capture::load(flags_.graph);
    capture::check_forward(graph, flags_.graph);
    const capture::Value& x = graph.values[graph.inputs[0]];
    SINTER_CHECK(x.shape[1] == size_.pixels(), data,
        str("graph: not for predict: ", escaped(flags_.graph), "; its input is f32", x.shape.str(),
            ", an image is f32[1, ", size_.pixels(), "]"),
        "mnist predict --dump-graph F writes one that fits");
    graph = capture::bind(std::move(graph), [&](const std::string& name) {
      const Tensor* t = nn::find(weights, name);
      return t ? t->to(device_) : Tensor();
    });
    executor_ = std::make_shared<capture::Executor>(graph);
    dtype_ = DType::f32;  // what a graph takes
    out_.note("graph", "{}: launches {}", escaped(flags_.graph), executor_->launches());
  }

  Tensor logits(const Tensor& images) {
    if (!executor_) return (*model_)(images);
    try {
      executor_->run({images});
    } catch (const Error& error) {
      // What an op says of its operands is the file's fault here, and no caller's.
      if (exit_code(error.kind()) > exit_code(Error::Kind::checkpoint)) throw;
      throw Error(Error::Kind::data,
          str("graph: not for predict: ", escaped(flags_.graph), "; ", error.message()));
    }
    return executor_->outputs()[0];
  }

  // Eager, fused, and as a graph, unfused: that of --graph, which has batch 1, or as recorded.
  std::vector<Timed> time_modes(int64_t batch) {
    const NoGrad no_grad;
    const Tensor x = cast(sample_tensor({batch, size_.pixels()}, 1, 0, 1), dtype_).to(device_);
    const auto eager = [&] { return (*model_)(x); };
    cli::choose_threads(threads_, device_, "", [&] { return [&] { eager(); }; });
    const auto replayed = [&](const char* rules) {
      const auto step = std::make_shared<capture::Step>(
          [this](const Tensors& in) {
            const NoGrad off;
            return Tensors{(*model_)(in[0])};
          },
          capture::StepOptions{
              .rules = capture::RuleSet(rules), .parameters = nn::parameter_visitor(*model_)});
      return [step, x] { return (*step)({x})[0]; };
    };
    std::vector<Timed> modes{{.batch = batch, .mode = "eager", .run = eager},
        {.batch = batch, .mode = "fused", .run = replayed("all")}};
    std::function<Tensor()> graph = replayed("none");
    if (executor_) graph = [&] { return logits(x); };
    if (!executor_ || batch == 1)
      modes.push_back({.batch = batch, .mode = "graph", .run = std::move(graph)});
    const Tensor wanted = eager();
    for (Timed& mode : modes) {
      for (int call = 0; call < 3; ++call) mode.run();  // the second captures
      mode.difference = measure::parity({{"logits", mode.run(), wanted}}).relative("");
      mode.threads = num_threads();
    }
    const double one_us = measure::round_us(eager, device_, 1, 1);
    const auto calls = std::clamp(int64_t(kUsOfAMode / one_us), kFewestCalls, kMostCalls) / kRounds;
    for (int64_t round = 0; round < kRounds; ++round) {  // in turn: a slow moment hits all alike
      for (Timed& mode : modes) {
        for (int64_t call = 0; call < calls; ++call)
          mode.us.push_back(1e-3 * measure::ns_per_call(device_, 1, mode.run));
      }
    }
    for (Timed& mode : modes) mode.run = {};
    return modes;
  }

  void bench(const ModelFlags& model) {
    SINTER_CHECK(device_.type != Device::Type::simt, usage,
        "usage: predict --bench needs a device whose times mean something: the device is simt",
        "--device cpu");
    TextGrid grid({"batch", "<mode", "threads", "p50", "p90", "p99", "images/s"});
    const auto us = [](double time) { return profiler::time_text(time) + "us"; };
    Json rows = Json::array();
    for (const int64_t batch : flags_.batch) {
      for (const Timed& t : time_modes(batch)) {
        grid.add({str(t.batch), t.mode, str(t.threads), us(t.at(0.5)), us(t.at(0.9)),
            us(t.at(0.99)), cli::rate(t.images_per_s())});
        rows.push_back(t);
      }
    }
    grid.fit(table_width(), {"p90", "threads"});
    out_.result(
        "bench", "{}, {}, {}: one call, waited for", model.describe(), model.dtype, device_.str());
    out_.result_text("\n" + grid.text());
    out_.json(
        "sinter.predict-bench/1", {{"model", path_}, {"name", model.describe()},
                                      {"dtype", model.dtype}, {"device", device_}, {"rows", rows}});
  }

  void predict(const Input& input) {
    const int32_t row = 0;
    const Split there{input.split.images.to(device_), input.split.labels.to(device_)};
    const Batch batch = gather_batch(there, {&row, 1}, dtype_, flags_.from.data.normalization());
    const NoGrad no_grad;
    const measure::Timer timer;
    const Tensor out = logits(batch.images);
    const auto p = softmax(out).to_vector<double>();
    const double seconds = timer.seconds();
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return p[a] > p[b]; });
    order.resize(std::min(order.size(), size_t(flags_.top)));

    if (!flags_.no_art) out_.result_text(picture(input.split.images));
    // abs: the sign of a NaN says nothing.
    const auto percent = [](double x) { return fmt::format("{:.1f} %", 100 * std::abs(x)); };
    std::string text = percent(p[order[0]]);
    for (size_t i = 1; i < order.size(); ++i)
      text += fmt::format("{}{} {}", i == 1 ? "   then " : ", ", order[i], percent(p[order[i]]));
    if (std::isnan(p[0]) && not_finite_.empty())
      not_finite_ = str("probabilities are nan: ", input.name, ", model ", escaped(path_), "; ",
          why_not_finite(*model_, batch.images));
    text += fmt::format("     ({}{}, model {}, {})", input.name,
        input.label ? fmt::format(", label {}", *input.label) : "", escaped(path_),
        cli::seconds(seconds));
    out_.result(std::to_string(order[0]), text);
    Json object = {{"input", input.name}, {"digit", order[0]}, {"probabilities", p},
        {"logits", out.to_vector<double>()}};
    if (input.label) object["label"] = *input.label;
    predictions_.push_back(std::move(object));
  }

  PredictFlags& flags_;
  int64_t threads_;  // as asked for
  Device device_;
  Output& out_;
  std::shared_ptr<nn::Module> model_;
  std::string path_;
  ImageShape size_;  // of the model's images
  DType dtype_ = DType::f32;
  std::shared_ptr<capture::Executor> executor_;  // of --graph
  Json predictions_ = Json::array();
  std::string not_finite_;  // why the first probabilities that are nan are
};

}  // namespace

void add_predict(App& app, Command& command) {
  static PredictFlags predict;
  command.inputs = &predict.inputs;
  command.inputs_name = "INPUT..";
  add_from_flags(command.flags, predict.from);
  command.flags.number(
      "index", predict.index, 0, 1'000'000'000'000, "image N of the test set, in place of INPUT");
  command.flags.topic("report");
  command.flags.number("top", predict.top, 1, 1000, "how many digits to name");
  command.flags.toggle("no-art", predict.no_art, "no picture of what the model sees");
  command.flags.toggle(
      "raw", predict.raw, "take the pixels of a PNG as they are: no cropping, no centring");
  not_saved(command.flags.word("dump-graph", predict.dump_graph, "FILE",
      "write the model's forward pass as a graph; needs no INPUT"));
  not_saved(command.flags.toggle("force", predict.force, "write over the graph that is there"));
  not_saved(command.flags.word("graph", predict.graph, "FILE",
      "run this saved graph in place of the model, on the weights of --from"));
  not_saved(command.flags.toggle("bench", predict.bench,
      "time one image and batches, eager, fused and as a graph; needs no INPUT"));
  not_saved(command.flags.number("batch", predict.batch, 1, 1'000'000, "of --bench"));
  command.check = [&command] {
    const std::vector<std::string>& inputs = predict.inputs;
    if (!predict.dump_graph.empty())
      check_writable(predict.dump_graph, "--dump-graph", predict.force);
    SINTER_CHECK(!predict.index || inputs.empty(), usage,
        str("usage: INPUT and --index exclude each other: ",
            escaped(inputs.empty() ? "" : inputs[0]), ", ", *predict.index));
    SINTER_CHECK(predict.bench ? inputs.empty() && !predict.index : !command.flags.given("batch"),
        usage, "usage: --bench takes no INPUT and no --index, and --batch needs --bench",
        "mnist predict --bench --batch 1,64 times the model on images of its own");
    SINTER_CHECK(predict.bench || predict.index || !inputs.empty() || !predict.dump_graph.empty() ||
                     command.flags.given("print-config"),
        usage, "usage: nothing to predict: no INPUT and no --index",
        "mnist predict FILE.png, or mnist predict --index 0");
  };
  command.run = [&app, &command](Output& out) {
    const Device device = choose_device(app.common().device).first;
    if (app.common().threads == 0) set_num_threads(1);
    Predictor(predict, app.common().threads, device, out).run(command.flags);
    return 0;
  };
}

}  // namespace sinter::mnist
