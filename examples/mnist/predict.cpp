// mnist predict: which digit is on a picture, or on an image of the test set.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "autograd/autograd.h"
#include "capture/bind.h"
#include "capture/executor.h"
#include "capture/recording.h"
#include "core/parallel.h"
#include "data/npy.h"
#include "data/png.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "examples/mnist/evaluate.h"
#include "examples/mnist/model_file.h"
#include "measure/timer.h"
#include "ops/ops.h"

namespace sinter::mnist {
namespace {

struct PredictFlags {
  FromFlags from;
  std::vector<std::string> inputs;
  std::optional<int64_t> index;
  int64_t top = 3;
  bool no_art = false, raw = false;
  std::string graph, dump_graph;
};

// An image [1, C, H, W] as text: a character is twice as many pixels high as wide, about as it
// looks; of a wide image, or one in colour, it is the mean of some.
std::string picture(const Tensor& image) {
  constexpr std::string_view kInk = " .:-=+*#%@";
  constexpr int64_t kMaxWidth = 64;
  const uint8_t* p = image.data<uint8_t>();
  const int64_t channels = image.size(1), height = image.size(2), width = image.size(3),
                step = (width + kMaxWidth - 1) / kMaxWidth;
  std::string out;
  for (int64_t y = 0; y < height; y += 2 * step) {
    std::string line;
    for (int64_t x = 0; x < width; x += step) {
      size_t sum = 0, pixels = 0;
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t v = y; v < std::min(height, y + 2 * step); ++v) {
          for (int64_t u = x; u < std::min(width, x + step); ++u, ++pixels)
            sum += p[(c * height + v) * width + u];
        }
      }
      line += kInk[std::min(sum * kInk.size() / (255 * pixels + 1), kInk.size() - 1)];
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

Split single(const ImagePixels& image, const ImageShape& size) {
  return {Tensor::from(image, {1, size.channels, size.height, size.width}),
      Tensor::zeros({1}, DType::i32)};
}

struct Input {
  std::string name;
  Split split;
  std::optional<int64_t> label;
};

class Predictor {
 public:
  Predictor(PredictFlags& flags, Device device, Output& out)
      : flags_(flags), device_(device), out_(out) {}

  void run(const Flags& all_flags) {
    SavedModel saved = read_model(flags_.from.from);
    model_ = build_model(saved, device_);
    path_ = saved.path;
    size_ = saved.flags.model.image();
    dtype_ = saved.flags.model.batch_dtype();
    adopt_data(all_flags, flags_.from, saved);
    for (const std::string& note : saved.notes) out_.note("note", note);
    note_emulator(device_, out_);
    if (!flags_.dump_graph.empty()) dump_graph();
    if (!flags_.graph.empty()) load_graph(saved.tensors);
    // All of them before the first result: an error leaves stdout as it was.
    std::vector<Input> inputs;
    if (flags_.index) inputs.push_back(test_image(saved, *flags_.index));
    for (const std::string& input : flags_.inputs) read_input(saved, input, inputs);
    for (const Input& input : inputs) predict(input);
    out_.json("sinter.predict/1", {{"model", path_}, {"predictions", predictions_}});
    SINTER_CHECK(not_finite_.empty(), numeric, cat("predict: ", not_finite_));
  }

 private:
  Input test_image(const SavedModel& saved, int64_t index) const {
    DataOptions options = flags_.from.data.options(saved.flags.model.classes);
    if (options.limit == 0) options.limit = index + 1;  // no need to draw more
    const Dataset data = load_dataset(options);
    note_other_data(saved, data, out_);
    check_images(saved, data.test.image(), data.name);
    SINTER_CHECK(index < data.test.size(), usage,
        cat("usage: --index out of range: ", index, "; the test set of ", data.name, " has 0..",
            data.test.size() - 1));
    const Split one = slice(data.test, index, index + 1);
    return {cat("test image ", index), one, one.labels.to_vector<int64_t>()[0]};
  }

  void read_input(
      const SavedModel& saved, const std::string& input, std::vector<Input>& inputs) const {
    if (!input.ends_with(".npy")) {
      const bool grey = size_.channels == 1;
      SINTER_CHECK(grey || size_.channels == 3, data,
          cat("png: grey or of three colours: ", escaped(input), "; the model reads images of ",
              size_.str()),
          "a .npy file [1, H, W, C] in its place");
      const PngImage image = read_png(input == "-" ? "/dev/stdin" : input, grey ? 1 : 3);
      const ImagePixels pixels = flags_.raw ? raw_image(image, size_)
                                 : grey     ? prepare_digit(image, size_)
                                            : scaled_image(image, size_);
      inputs.push_back({escaped(input), single(pixels, size_), {}});
      return;
    }
    const Tensor images = read_npy(input).images();
    const int64_t n = images.size(0);
    const Split all{images, Tensor::zeros({n}, DType::i32)};
    check_images(saved, all.image(), escaped(input));
    for (int64_t i = 0; i < n; ++i)
      inputs.push_back({n == 1 ? escaped(input) : cat(escaped(input), " ", i),
          sinter::slice(all, i, i + 1), {}});
  }

  // The forward pass at batch 1 as a graph file, of f32 and of the names in the weights' file
  // alone: the bf16 copies are made in the graph.
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
    write_graph(flags_.dump_graph, graph);
    const std::string file = escaped(flags_.dump_graph);
    out_.note("graph",
        fmt::format("{}: the forward pass at batch 1; ", file) +
            (file.ends_with(".dot") ? fmt::format("dot -Tsvg {} draws it", file)
                                    : fmt::format("mnist predict --graph {} --from {} runs it",
                                          file, escaped(path_))));
  }

  // Runs the graph of a file in place of the model, on the model's weights.
  void load_graph(const nn::NamedTensors& weights) {
    capture::Graph graph = capture::load(flags_.graph);
    capture::check_forward(graph, flags_.graph);
    const capture::Value& x = graph.values[graph.inputs[0]];
    SINTER_CHECK(x.shape[1] == size_.pixels(), data,
        cat("graph: not for predict: ", escaped(flags_.graph), "; its input is f32", x.shape.str(),
            ", an image is f32[1, ", size_.pixels(), "]"),
        "mnist predict --dump-graph F writes one that fits");
    graph = capture::bind(std::move(graph), [&](const std::string& name) {
      const Tensor* t = nn::find(weights, name);
      return t ? t->to(device_) : Tensor();
    });
    executor_ = std::make_unique<capture::Executor>(graph);
    dtype_ = DType::f32;  // what a graph takes
    out_.note("graph", "{}: launches {}", escaped(flags_.graph), executor_->launches());
  }

  Tensor logits(const Tensor& images) {
    if (!executor_) return (*model_)(images);
    executor_->run({images});
    return executor_->outputs()[0];
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
    const auto percent = [](double x) {
      return std::isnan(x) ? "nan %" : fmt::format("{:.1f} %", 100 * x);
    };
    std::string text = percent(p[order[0]]);
    for (size_t i = 1; i < order.size(); ++i)
      text += fmt::format("{}{} {}", i == 1 ? "   then " : ", ", order[i], percent(p[order[i]]));
    if (std::isnan(p[0]) && not_finite_.empty())
      not_finite_ = cat("probabilities are nan: ", input.name, ", model ", escaped(path_), "; ",
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
  Device device_;
  Output& out_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<capture::Executor> executor_;
  std::string path_;
  ImageShape size_;  // of the model's images
  DType dtype_ = DType::f32;
  Json predictions_ = Json::array();
  std::string not_finite_;  // why the first probabilities that are nan are
};

}  // namespace

void add_predict(App& app) {
  static PredictFlags predict;
  Command& command = app.add("predict",
      "Says which digit a picture shows: a PNG file, or - for one on stdin; the images of a .npy "
      "file; or an image of the test set.");
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
  not_saved(command.flags.word("graph", predict.graph, "FILE",
      "run this saved graph in place of the model, on the weights of --from"));
  command.check = [&command] {
    const std::vector<std::string>& inputs = predict.inputs;
    SINTER_CHECK(!predict.index || inputs.empty(), usage,
        cat("usage: INPUT and --index exclude each other: ",
            escaped(inputs.empty() ? "" : inputs[0]), ", ", *predict.index));
    SINTER_CHECK(predict.index || !inputs.empty() || !predict.dump_graph.empty() ||
                     command.flags.given("print-config"),
        usage, "usage: nothing to predict: no INPUT and no --index",
        "mnist predict FILE.png, or mnist predict --index 0");
  };
  command.run = [&app, &command](Output& out) {
    const Device device = choose_device(app.common().device).first;
    if (app.common().threads == 0) set_num_threads(1);
    Predictor(predict, device, out).run(command.flags);
    return 0;
  };
}

}  // namespace sinter::mnist
