#include "nn/net.h"

#include <algorithm>
#include <initializer_list>

#include "core/numbers.h"
#include "nn/activations.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/layer_norm.h"
#include "nn/pool.h"

namespace sinter::nn {
namespace {

constexpr int64_t kMaxNumber = 1'000'000;

// One item of a net's text, "conv 16 5 pad 2", and the shape that its layer finds.
struct NetItem {
  int number;
  Shape& at;  // of one image: before the layer, then behind it
  std::vector<std::string_view> words{};
  size_t next = 1;  // of the words
  std::string_view text{"nothing"}, form{};

  NetItem(std::string_view item, int number, Shape& at) : number(number), at(at) {
    words = parts_of(item, " ");
    std::erase(words, "");
    if (words.empty()) refuse("a layer is wanted", "one \";\" between two layers, none at the end");
    text = {words.front().data(), words.back().data() + words.back().size()};
  }
  [[noreturn]] void refuse(const std::string& why, const std::string& hint = "") const {
    throw Error(Error::Kind::usage,
        sinter::str(
            "net: ", escaped(text), " at item ", number, ": ", why, "; its input is ", at.str()),
        hint);
  }
  std::shared_ptr<Module> layer();

  // The next word as a number in the range; `what` is its name in the form.
  template <class T = int64_t> T take(std::string_view what, T low = 1, T high = kMaxNumber) {
    if (next == words.size()) refuse(sinter::str(what, " is missing in ", form));
    const std::string_view word = words[next++];
    T value{};
    if (!parse_all(word, value) || !(value >= low && value <= high))
      refuse(sinter::str(what, " is ", escaped(word), ", allowed ", low, "..", high, " in ", form));
    return value;
  }
  // The words that are left: names with a whole number each, at least `low`.
  struct Option {
    std::string_view name;
    int64_t low;
    int64_t* value;
  };
  void take_options(std::initializer_list<Option> options) {
    while (next < words.size()) {
      const std::string_view name = words[next++];
      const auto option = std::ranges::find(options, name, &Option::name);
      if (option == options.end())
        refuse(sinter::str(escaped(name), " is too much, the form is ", form));
      *option->value = take<int64_t>(name, option->low);
    }
  }
  // To the shape of what a kernel gives that goes over the images.
  void slide(int64_t channels, int64_t kernel, int64_t stride, int64_t pad) {
    const auto places = [&](int64_t size) { return (size + 2 * pad - kernel) / stride + 1; };
    const int64_t height = at[1], width = at[2];
    if (kernel > std::min(height, width) + 2 * pad) {
      refuse(sinter::str("the kernel ", kernel, "x", kernel, " is larger than the input ", height,
          "x", width, pad > 0 ? sinter::str(" with ", pad, " around it") : ""));
    }
    at = Shape{channels, places(height), places(width)};
  }
};

using NetLayer = std::shared_ptr<Module>;

template <class Pool> NetLayer pool_layer(NetItem& item) {
  constexpr int64_t kMostOfMax = 15;  // a place in its window is one byte
  const int64_t kernel =
      item.take<int64_t>("KERNEL", 1, std::is_same_v<Pool, MaxPool2d> ? kMostOfMax : kMaxNumber);
  int64_t stride = kernel;
  item.take_options({{"stride", 1, &stride}});
  item.slide(item.at[0], kernel, stride, 0);
  return std::make_shared<Pool>(kernel, stride);
}

struct NetWord {
  std::string_view name, form;
  int64_t rank;  // of its input: 3 images, 1 a row, 0 any
  NetLayer (*make)(NetItem&);
};
constexpr NetWord kNetWords[] = {
    {"conv", "conv OUT KERNEL [pad P] [stride S]", 3,
        [](NetItem& item) -> NetLayer {
          const int64_t in = item.at[0], out = item.take("OUT"), kernel = item.take("KERNEL");
          int64_t pad = 0, stride = 1;
          item.take_options({{"pad", 0, &pad}, {"stride", 1, &stride}});
          item.slide(out, kernel, stride, pad);
          return std::make_shared<Conv2d>(in, out, kernel, stride, pad);
        }},
    {"pool", "pool KERNEL [stride S]", 3, pool_layer<MaxPool2d>},
    {"avgpool", "avgpool KERNEL [stride S]", 3, pool_layer<AvgPool2d>},
    {"batchnorm", "batchnorm", 3,
        [](NetItem& item) -> NetLayer { return std::make_shared<BatchNorm2d>(item.at[0]); }},
    {"layernorm", "layernorm", 1,
        [](NetItem& item) -> NetLayer { return std::make_shared<LayerNorm>(item.at[0]); }},
    {"dropout", "dropout P", 0,
        [](NetItem& item) -> NetLayer {
          return std::make_shared<Dropout>(item.take("P", 0.0, 0.99));
        }},
    {"flatten", "flatten", 0,
        [](NetItem& item) -> NetLayer {
          item.at = Shape{item.at.numel()};
          return std::make_shared<Flatten>();
        }},
    {"linear", "linear OUT", 1, [](NetItem& item) -> NetLayer {
       const int64_t in = item.at[0], out = item.take("OUT");
       item.at = Shape{out};
       return std::make_shared<Linear>(in, out);
     }}};

NetLayer NetItem::layer() {
  const std::string_view name = form = words.front();
  if (std::ranges::count(activation_names(), name) > 0) {
    take_options({});
    return make_activation(name);
  }
  const auto word = std::ranges::find(kNetWords, name, &NetWord::name);
  if (word == std::end(kNetWords)) {
    std::vector<std::string_view> known;
    for (const NetWord& one : kNetWords) known.push_back(one.name);
    known.insert(known.end(), activation_names().begin(), activation_names().end());
    const std::string nearest = nearest_word(name, known);
    refuse(sinter::str(
               "there is no ", escaped(name), nearest.empty() ? "" : ", nearest is " + nearest),
        sinter::str("allowed are ", join(known)));
  }
  form = word->form;
  if (word->rank == 3 && at.rank() != 3)
    refuse("it wants images [C, H, W]", "layers of images stand before flatten");
  if (word->rank == 1 && at.rank() != 1) refuse("it wants a row of numbers", "flatten before it");
  const NetLayer made = word->make(*this);
  take_options({});
  return made;
}

}  // namespace

Net::Net(std::string_view text, const Shape& input) : input_(input), output_(input) {
  SINTER_CHECK(input.rank() == 3, usage,
      sinter::str(
          "net: the input is one image [C, H, W]: ", input.str(), " has ", input.rank(), " sizes"));
  int number = 0;
  for (const std::string_view item : parts_of(text, ";"))
    layers_->append(NetItem(item, ++number, output_).layer());
}

Tensor Net::forward(const Tensor& x) {
  if (x.rank() != 2) return (*layers_)(x);
  return (*layers_)(reshape(x, {x.size(0), input_[0], input_[1], input_[2]}));
}

}  // namespace sinter::nn
