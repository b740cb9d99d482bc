#include "nn/net.h"

#include <algorithm>
#include <initializer_list>

#include "core/numbers.h"
#include "nn/activations.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/pool.h"

namespace sinter::nn {
namespace {

constexpr int64_t kMaxNumber = 1'000'000;

// Adds layer after layer, and knows the shape between them.
class NetBuilder {
 public:
  NetBuilder(Sequential& layers, const Shape& input) : layers_(layers), at_(input) {}
  // One item of the text: "conv 16 5 pad 2".
  void add(std::string_view item);
  const Shape& shape() const { return at_; }

 private:
  struct Word {
    std::string_view name, form;
    void (NetBuilder::*add)();
  };
  static const Word kWords[];

  [[noreturn]] void refuse(const std::string& why, const std::string& hint = "") const {
    throw Error(Error::Kind::usage,
        cat("net: ", escaped(item_), " at item ", number_, ": ", why, "; its input is ", at_.str()),
        hint);
  }
  [[noreturn]] void refuse_word() const;
  // The next word of the item as a number in the range; `what` is its name in the form.
  template <class T> T take(std::string_view what, T low, T high);
  // The words that are left: names with a whole number each, at least `low`.
  struct Choice {
    std::string_view name;
    int64_t low;
    int64_t* value;
  };
  void take_options(std::initializer_list<Choice> choices);

  void need_images() const;
  void need_row() const;
  // To the shape of what a kernel gives that goes over the images.
  void slide(int64_t channels, int64_t kernel, int64_t stride, int64_t pad);

  void conv();
  template <class Pool> void pool();
  void linear();
  void flatten();
  void dropout();
  void batchnorm();
  void layernorm();

  Sequential& layers_;
  Shape at_;  // of one image, behind the layers so far
  int number_ = 0;
  std::string_view item_, form_;
  std::vector<std::string_view> words_;  // of the item
  size_t next_ = 0;                      // of them
};

constexpr NetBuilder::Word NetBuilder::kWords[] = {
    {"conv", "conv OUT KERNEL [pad P] [stride S]", &NetBuilder::conv},
    {"pool", "pool KERNEL [stride S]", &NetBuilder::pool<MaxPool2d>},
    {"avgpool", "avgpool KERNEL [stride S]", &NetBuilder::pool<AvgPool2d>},
    {"batchnorm", "batchnorm", &NetBuilder::batchnorm},
    {"layernorm", "layernorm", &NetBuilder::layernorm},
    {"dropout", "dropout P", &NetBuilder::dropout}, {"flatten", "flatten", &NetBuilder::flatten},
    {"linear", "linear OUT", &NetBuilder::linear}};

void NetBuilder::add(std::string_view item) {
  ++number_;
  words_ = parts_of(item, " ");
  std::erase(words_, "");
  next_ = 1;
  if (words_.empty()) {
    item_ = "nothing";
    refuse("a layer is wanted", "one \";\" between two layers, none at the end");
  }
  item_ = {words_.front().data(), words_.back().data() + words_.back().size()};
  const std::string_view name = form_ = words_.front();
  if (const auto word = std::ranges::find(kWords, name, &Word::name); word != std::end(kWords)) {
    form_ = word->form;
    return (this->*word->add)();
  }
  if (std::ranges::find(activation_names(), name) == activation_names().end()) refuse_word();
  take_options({});
  layers_.append(make_activation(name));
}

void NetBuilder::refuse_word() const {
  std::vector<std::string_view> known;
  for (const Word& word : kWords) known.push_back(word.name);
  known.insert(known.end(), activation_names().begin(), activation_names().end());
  const std::string nearest = nearest_word(words_.front(), known);
  refuse(cat("there is no ", escaped(words_.front()),
             nearest.empty() ? "" : cat(", nearest is ", nearest)),
      cat("allowed are ", join(known)));
}

template <class T> T NetBuilder::take(std::string_view what, T low, T high) {
  if (next_ == words_.size()) refuse(cat(what, " is missing in ", form_));
  const std::string_view word = words_[next_++];
  T value{};
  if (!parse_all(word, value) || !(value >= low && value <= high))
    refuse(cat(what, " is ", escaped(word), ", allowed ", low, "..", high, " in ", form_));
  return value;
}

void NetBuilder::take_options(std::initializer_list<Choice> choices) {
  while (next_ < words_.size()) {
    const std::string_view name = words_[next_++];
    const auto choice = std::ranges::find(choices, name, &Choice::name);
    if (choice == choices.end()) refuse(cat(escaped(name), " is too much, the form is ", form_));
    *choice->value = take<int64_t>(name, choice->low, kMaxNumber);
  }
}

void NetBuilder::need_images() const {
  if (at_.rank() != 3) refuse("it wants images [C, H, W]", "layers of images stand before flatten");
}

void NetBuilder::need_row() const {
  if (at_.rank() != 1) refuse("it wants a row of numbers", "flatten before it");
}

void NetBuilder::slide(int64_t channels, int64_t kernel, int64_t stride, int64_t pad) {
  const auto places = [&](int64_t size) { return (size + 2 * pad - kernel) / stride + 1; };
  const int64_t height = at_[1], width = at_[2];
  if (kernel > std::min(height, width) + 2 * pad) {
    refuse(cat("the kernel ", kernel, "x", kernel, " is larger than the input ", height, "x", width,
        pad > 0 ? cat(" with ", pad, " around it") : ""));
  }
  at_ = Shape{channels, places(height), places(width)};
}

void NetBuilder::conv() {
  const auto out = take<int64_t>("OUT", 1, kMaxNumber),
             kernel = take<int64_t>("KERNEL", 1, kMaxNumber);
  int64_t pad = 0, stride = 1;
  take_options({{"pad", 0, &pad}, {"stride", 1, &stride}});
  need_images();
  const int64_t in = at_[0];
  slide(out, kernel, stride, pad);
  layers_.append(std::make_shared<Conv2d>(in, out, kernel, stride, pad));
}

template <class Pool> void NetBuilder::pool() {
  constexpr int64_t kMostOfMax = 15;  // a place in its window is one byte
  const auto kernel =
      take<int64_t>("KERNEL", 1, std::is_same_v<Pool, MaxPool2d> ? kMostOfMax : kMaxNumber);
  int64_t stride = kernel;
  take_options({{"stride", 1, &stride}});
  need_images();
  slide(at_[0], kernel, stride, 0);
  layers_.append(std::make_shared<Pool>(kernel, stride));
}

void NetBuilder::linear() {
  const auto out = take<int64_t>("OUT", 1, kMaxNumber);
  take_options({});
  need_row();
  layers_.append(std::make_shared<Linear>(at_[0], out));
  at_ = Shape{out};
}

void NetBuilder::flatten() {
  take_options({});
  layers_.append(std::make_shared<Flatten>());
  at_ = Shape{at_.numel()};
}

void NetBuilder::dropout() {
  const auto share = take<double>("P", 0, 0.99);
  take_options({});
  layers_.append(std::make_shared<Dropout>(share));
}

void NetBuilder::batchnorm() {
  take_options({});
  need_images();
  layers_.append(std::make_shared<BatchNorm2d>(at_[0]));
}

void NetBuilder::layernorm() {
  take_options({});
  need_row();
  layers_.append(std::make_shared<LayerNorm>(at_[0]));
}

}  // namespace

Net::Net(std::string_view text, const Shape& input) : input_(input) {
  SINTER_CHECK(input.rank() == 3, usage,
      cat("net: the input is one image [C, H, W]: ", input.str(), " has ", input.rank(), " sizes"));
  NetBuilder builder(*layers_, input);
  for (const std::string_view item : parts_of(text, ";")) builder.add(item);
  output_ = builder.shape();
}

Tensor Net::forward(const Tensor& x) {
  if (x.rank() != 2) return (*layers_)(x);
  return (*layers_)(reshape(x, {x.size(0), input_[0], input_[1], input_[2]}));
}

}  // namespace sinter::nn
