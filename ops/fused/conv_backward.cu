// conv_act_backward and conv_act_pool_backward: dW, db and, if the weight is given, dx as the
// products of conv2d (ops/image/conv2d_product.cuh) on dz, which is made as it is gathered, from
// dy and, if there is one, y or the maxima's places. One launch: its first blocks own tiles of dW,
// of which those of column tile 0 own db, the others tiles of dx. Reads dy, y or the places, x and
// the weight once per tile that needs them.
#include "ops/image/conv2d_product.cuh"
#include "ops/pointwise/pointwise.h"

namespace sinter::SINTER_KERNEL_NS {

// dz: relu's gradient from dy and y, [height, width] a plane; or dy, put in the place of its 2 x 2
// window's maximum, if it has one; or dy, where neither y nor the index is there.
template <class T> struct PixelsOfDz {
  In<T> dy, y;
  In<uint8_t> index;
  int height, width;

  // What a pixel is made of: all of it is loaded before any is looked at.
  struct Read {
    T dy{}, y{};
    int index = 0, place = 0;
  };
  struct Row {
    Cursor<T> of_dy, of_y;
    Cursor<uint8_t> of_index;
    int columns = 0, u = 0;
  };
  SINTER_DEVICE_FN Row row(int64_t plane, int u, int, int columns) const {
    const int row = index ? u / 2 : u, here = index ? 2 * width : width;
    if (row >= height) return {};
    const int64_t at = plane * static_cast<uint32_t>(height * width) + row * width;
    return {Cursor<T>(dy, at), Cursor<T>(y, at), Cursor<uint8_t>(index, at),
        columns < here ? columns : here, u};
  }
  SINTER_DEVICE_FN void load(const Row& row, int v, Read& read) const {
    const int column = index ? v / 2 : v;
    read.dy = row.of_dy[column];
    if (y) read.y = row.of_y[column];
    if (!index) return;
    read.index = row.of_index[column];
    read.place = row.u % 2 * 2 + v % 2;
  }
  SINTER_DEVICE_FN T value(const Read& read) const {
    if (y) return T(pointwise::Relu().grad(compute_t<T>(read.dy), compute_t<T>(read.y)));
    return read.index == read.place ? read.dy : T(0.0f);
  }
};

// dx; where x is there, which ReLU gave, that of what ReLU took.
template <class T> struct StoreGradImages {
  static constexpr bool kSumsRows = false;
  StoreImages<T> images;
  In<T> x;
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, int count, compute_t<T> (&dx)[kGroup]) const {
    if (x) {
      images.each_place(i, j, count,
          [&](int q, int64_t at) { dx[q] = pointwise::Relu().grad(dx[q], compute_t<T>(x[at])); });
    }
    images(i, j, count, dx);
  }
};

// A product of the launch, in `tiles` tiles and their shares of k.
template <class P, class Epilogue, class V> struct ProductOfLaunch {
  P product;
  Epilogue epilogue;
  SplitSums<V> split;
  int64_t tiles = 0, columns = 1;

  template <int kRows> void cut() {
    tiles = product.grid(kRows).blocks();
    columns = product.column_tiles();
  }
  SINTER_FN int64_t blocks() const { return tiles * split.shares; }
  SINTER_DEVICE_FN TileAt tile(int64_t block) const {
    const int64_t place = block % tiles;
    return {
        place / columns, place % columns, static_cast<int>(block / tiles), static_cast<int>(place)};
  }
};
// f(product, tile) of this block.
template <class First, class Second, class F>
SINTER_DEVICE_FN void with_tile_of_launch(const First& first, const Second& second, const F& f) {
  const int64_t block = block_x() - first.blocks();
  if (block < 0) return f(first, first.tile(block_x()));
  f(second, second.tile(block));
}

template <class T, class OfWeight, class OfImage>
SINTER_KERNEL_BOUNDS(kFfmaThreads<T>, 1)
conv_act_backward_ffma_16x64(OfWeight weight, OfImage image) {
  with_tile_of_launch(weight, image, [](const auto& of, const TileAt& tile) {
    ffma_product<kOfSide, kOfSide>(of.product, of.epilogue, of.split, tile);
  });
}
template <class T, class OfWeight, class OfImage>
SINTER_KERNEL_BOUNDS(kMmaThreads, 2)
conv_act_backward_mma_64x64(OfWeight weight, OfImage image) {
  with_tile_of_launch(weight, image, [](const auto& of, const TileAt& tile) {
    mma_product<kOfSide, kOfSide>(of.product, of.epilogue, of.split, tile);
  });
}

static void conv_backward(const Call& call, const Tensor& y, const Tensor& index) {
  const Tensor &dy = call.in[0], &x = call.in[1], &dw = call.out[0], &db = call.out[1];
  const Tensor weight = optional_input(call.in, 3);
  const auto& attrs = call.as<Conv2dGradAttrs>();
  const Conv2dSizes z = conv2d_sizes_before_pooling(x, dw, dy, attrs);
  check_conv2d_sizes(call, z);
  // dz as [O, (N, P, Q)]: its own windows of 1 x 1
  const Conv2dSizes one{z.n, z.o, z.p, z.q, z.o, 1, 1, z.p, z.q, 1, 1, 0, 0};
  visit_float(dy.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const PixelsOfDz<T> dz{in<T>(dy), in<T>(y), in<uint8_t>(index), static_cast<int>(dy.size(2)),
        static_cast<int>(dy.size(3))};
    using OfWeight = Product<T, WindowSide<T, GradientWindows, Pixels<T>>,
        WindowSide<T, GradientWindows, PixelsOfDz<T>>>;
    using OfImage = Product<T, WindowSide<T, BackwardWindows, PixelsOfDz<T>>, RunSide<T>>;
    ProductOfLaunch<OfWeight, StoreGrads<T>, V> of_weight{
        {window_side<T, GradientWindows>(dz, one),
            window_side<T, GradientWindows>(Pixels<T>{in<T>(x)}, z)},
        {columns_of<V>(dw, out<V>(dw), z.taps()), out<V>(db)}};
    ProductOfLaunch<OfImage, StoreGradImages<T>, V> of_image{
        {turned_weight_side<T>(weight, z), window_side<T, BackwardWindows>(dz, z)},
        {{Bias<T>(Tensor()), {}, z.c}, in<T>(attrs.relu ? x : Tensor())}};
    const bool wants_image = weight.defined() && x.numel() > 0;
    if (wants_image) of_image.epilogue.images = store_images<T>(Tensor(), call.out[2]);
    // Only one product may be split: shares of both would meet in the stream's memory.
    const auto grid_of = [&]<int kRows>() {
      of_weight.split = split_grid<kRows, V>(of_weight.product).split;
      of_weight.template cut<kRows>();
      if (wants_image) of_image.template cut<kRows>();
      return Grid{of_weight.blocks() + of_image.blocks()};
    };
    if constexpr (kHasMma<T>) {
      if (on_tensor_cores<T>()) {
        const Grid grid = grid_of.template operator()<kTile>();
        return launch<conv_act_backward_mma_64x64<T, decltype(of_weight), decltype(of_image)>>(
            grid, kMmaThreads, sizeof(MmaTiles<T>), of_weight, of_image);
      }
    }
    if constexpr (kHasFfma<T>) {
      const Grid grid = grid_of.template operator()<kFfmaRows>();
      launch<conv_act_backward_ffma_16x64<T, decltype(of_weight), decltype(of_image)>>(
          grid, kFfmaThreads<T>, sizeof(FfmaShared<T>), of_weight, of_image);
    }
  });
}

void conv_act_backward(const Call& call) { conv_backward(call, optional_input(call.in, 2), {}); }
void conv_act_pool_backward(const Call& call) { conv_backward(call, {}, call.in[2]); }

}  // namespace sinter::SINTER_KERNEL_NS
