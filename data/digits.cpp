#include "data/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"
#include "data/word_stream.h"

namespace sinter {
namespace {

struct Point {
  float x, y;
};
struct Stroke {
  bool curved;
  std::vector<Point> points;
};
using Variant = std::vector<Stroke>;

// Per digit: '~' a Catmull-Rom curve, '-' straight lines; '/' next stroke, '|' next variant;
// hundredths of the glyph box, y down.
constexpr const char* kGlyphs[10] = {
    "~50,2 20,15 12,50 22,87 50,98 78,87 88,50 80,15 50,2 | ~62,5 30,12 15,55 30,93 60,95 85,60 "
    "80,20 50,4 40,12",
    "-50,2 50,98 | -30,25 53,2 53,98 | -30,25 53,2 53,96 / -25,96 80,96",
    "~14,27 25,7 52,2 80,15 80,38 55,65 12,95 / -12,95 90,93 | ~15,22 40,3 75,12 78,40 50,75 20,95 "
    "12,80 30,74 60,90 92,92",
    "~15,15 40,2 75,10 78,32 40,47 / ~40,47 80,57 85,80 55,98 10,87 | -15,5 82,5 42,42 / ~42,42 "
    "80,52 85,80 50,98 10,88",
    "-28,4 12,58 90,56 / -68,25 64,98 | -66,98 68,3 10,66 93,64 | ~20,5 15,40 40,52 78,45 / -82,5 "
    "72,98",
    "-82,5 28,6 22,45 / ~22,45 55,36 85,58 75,90 40,98 10,86 | ~25,8 22,42 60,42 80,70 50,98 12,88 "
    "/ -25,8 88,4",
    "~72,4 40,18 20,50 18,80 45,98 75,85 75,60 50,50 20,68 | ~45,2 25,40 18,78 48,97 80,80 68,55 "
    "40,55 20,75",
    "-10,7 88,6 42,98 | -10,7 88,6 42,98 / -32,50 82,48 | ~14,22 16,8 50,9 86,5 62,45 50,98",
    "~72,15 45,3 22,20 40,42 70,62 75,86 45,98 20,82 35,58 65,40 78,20 62,6"
    " | ~50,3 25,14 30,38 50,47 75,35 72,12 50,3 / ~50,47 20,62 20,88 50,98 82,86 80,62 50,47",
    "~80,20 50,4 20,20 25,45 55,50 80,22 / ~80,20 78,60 60,98 | ~78,22 50,3 20,20 25,45 55,48 "
    "78,22 78,65 60,93 22,94"
    " | ~78,18 45,4 20,25 40,48 76,30 / -80,8 74,98"};

std::vector<Variant> parse_variants(const char* text) {
  std::vector<Variant> variants(1);
  while (*text) {
    const char c = *text;
    if (c == '|') variants.emplace_back();
    if (c == '~' || c == '-') variants.back().push_back({c == '~', {}});
    int x = 0, y = 0, length = 1;
    if (c >= '0' && c <= '9') {
      std::sscanf(text, "%d,%d%n", &x, &y, &length);
      variants.back().back().points.push_back({float(x) / 100.0f, float(y) / 100.0f});
    }
    text += length;
  }
  return variants;
}

const std::array<std::vector<Variant>, 10>& glyphs() {
  static const auto table = [] {
    std::array<std::vector<Variant>, 10> out;
    std::ranges::transform(kGlyphs, out.begin(), parse_variants);
    return out;
  }();
  return table;
}

// Stream `kind` of an item: 0 its shape, 1 its noise.
struct Stream : WordStream {
  Stream(uint64_t seed, uint64_t item, uint32_t kind = 0)
      : WordStream(seed, kind, uint32_t(item), uint32_t(item >> 32)) {}
  int below(size_t n) { return int((uint64_t{next()} * n) >> 32); }
  float uniform(float low, float high) { return low + (high - low) * uniform_from_bits(next()); }
  // Mean 0, variance 1 from four uniforms: close enough to a normal, and the same bits everywhere.
  float normal() {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += uniform_from_bits(next());
    return (sum - 2.0f) * 1.7320508f;
  }
  bool one_in_ten() { return uniform(0, 1) < 0.1f; }
};

// A corner of the drawn line; with the pen down a piece leads here from the corner before.
struct Corner {
  Point at;
  bool pen_down;
};

Point catmull_rom(Point p0, Point p1, Point p2, Point p3, float t) {
  const auto at = [t](float a, float b, float c, float d) {
    return 0.5f * (2.0f * b + t * ((c - a) + t * ((2.0f * a - 5.0f * b + 4.0f * c - d) +
                                                     t * (3.0f * (b - c) + d - a))));
  };
  return {at(p0.x, p1.x, p2.x, p3.x), at(p0.y, p1.y, p2.y, p3.y)};
}

// Jitters the stroke and cuts it into pieces, in glyph coordinates.
void trace(const Stroke& stroke, Stream& random, std::vector<Corner>& line) {
  const int n = int(stroke.points.size()), spans = n - 1, per_span = stroke.curved ? 8 : 6;
  const float shift_x = 0.02f * random.normal(), shift_y = 0.02f * random.normal();
  std::vector<Point> p(stroke.points);
  for (Point& point : p) {
    point.x += shift_x + 0.04f * random.normal();
    point.y += shift_y + 0.04f * random.normal();
  }
  float gap_begin = 0, gap_end = 0;  // in spans from the start
  if (random.one_in_ten()) {
    const float length = random.uniform(0.15f, 0.45f);
    gap_begin = random.uniform(0, float(spans) - length);
    gap_end = gap_begin + length;
  }
  line.push_back({p[0], false});
  for (int s = 0; s < spans; ++s) {
    for (int k = 1; k <= per_span; ++k) {
      const float t = float(k) / float(per_span);
      const Point to =
          stroke.curved
              ? catmull_rom(p[std::max(s - 1, 0)], p[s], p[s + 1], p[std::min(s + 2, spans)], t)
              : Point{p[s].x + t * (p[s + 1].x - p[s].x), p[s].y + t * (p[s + 1].y - p[s].y)};
      const float middle = float(s) + t - 0.5f / float(per_span);
      line.push_back({to, middle < gap_begin || middle > gap_end || gap_end == 0});
    }
  }
}

// Glyph box to pixels: scale, shear, rotate, move.
auto placement(Stream& random) {
  const float size = random.uniform(0.75f, 1.1f), aspect = random.uniform(0.85f, 1.15f),
              scale_x = 17.0f * size * aspect, scale_y = 20.0f * size / aspect,
              shear = random.uniform(-0.25f, 0.25f),
              t = 0.0785f * random.normal(),  // the tangent of half the angle
      d = 1.0f + t * t, cosine = (1.0f - t * t) / d, sine = 2.0f * t / d;
  const Point centre{random.uniform(12, 16), random.uniform(12, 16)};
  return [=](Point p) -> Point {
    const float y = (p.y - 0.5f) * scale_y, x = (p.x - 0.5f) * scale_x + shear * y;
    return {cosine * x - sine * y + centre.x, sine * x + cosine * y + centre.y};
  };
}

// A 4x4 grid of displacements over the image, smoothstep between. It moves points: strokes bend but
// keep their width.
auto elastic(Stream& random) {
  std::array<std::array<Point, 4>, 4> grid;
  for (auto& row : grid)
    for (Point& d : row) d = {1.1f * random.normal(), 1.1f * random.normal()};
  return [grid](Point p) -> Point {
    const auto cell = [](float v) {
      const float g = std::clamp(v * (3.0f / kImageSide), 0.0f, 3.0f);
      const int i = std::min(int(g), 2);
      const float f = g - float(i);
      return std::pair(i, f * f * (3.0f - 2.0f * f));
    };
    const auto [column, fx] = cell(p.x);
    const auto [row, fy] = cell(p.y);
    const auto mix = [&, c = column, r = row, fx = fx, fy = fy](float Point::*d) {
      const float top = grid[r][c].*d + fx * (grid[r][c + 1].*d - grid[r][c].*d);
      const float bottom = grid[r + 1][c].*d + fx * (grid[r + 1][c + 1].*d - grid[r + 1][c].*d);
      return top + fy * (bottom - top);
    };
    return {p.x + mix(&Point::x), p.y + mix(&Point::y)};
  };
}

constexpr int kRow = 32;  // an image row, padded to whole vectors
using Plane = std::array<float, kImageSide * kRow>;

// Lowers `squared` to the squared distance from each pixel centre to the piece a b, where that is
// less; exact within `reach`.
void add_distance(Point a, Point b, float reach, Plane& squared) {
  const float ux = b.x - a.x, uy = b.y - a.y;
  const float inverse = 1.0f / std::max(ux * ux + uy * uy, 1e-12f);
  const int first = int(std::clamp(std::min(a.y, b.y) - reach, 0.0f, 28.0f));
  const int end = int(std::clamp(std::max(a.y, b.y) + reach + 1.0f, 0.0f, 28.0f));
  for (int y = first; y < end; ++y) {
    const float py = float(y) + 0.5f - a.y;
    float* out = &squared[y * kRow];
    for (int x = 0; x < kRow;
         ++x) {  // whole rows: two vector steps cost less than finding the columns
      const float px = float(x) + 0.5f - a.x;
      float t = (px * ux + py * uy) * inverse;
      t = t > 0.0f ? t : 0.0f;
      t = t < 1.0f ? t : 1.0f;
      const float dx = px - t * ux, dy = py - t * uy, d = dx * dx + dy * dy;
      out[x] = d < out[x] ? d : out[x];
    }
  }
}

// Raises `ink` to what a pen of this width leaves along the line: 1 inside, falling to 0 over one
// pixel at the edge.
void stroke_ink(std::span<const Corner> line, float width, Plane& ink) {
  const float edge = 0.5f + 0.5f * width;
  Plane squared;
  squared.fill(1e9f);
  for (size_t i = 1; i < line.size(); ++i)
    if (line[i].pen_down) add_distance(line[i - 1].at, line[i].at, edge, squared);
  for (size_t i = 0; i < ink.size(); ++i) {
    const float cover = edge - std::sqrt(squared[i]), clipped = cover < 1.0f ? cover : 1.0f;
    ink[i] = clipped > ink[i] ? clipped : ink[i];
  }
}

}  // namespace

int draw_digit(uint64_t data_seed, uint64_t index, std::span<uint8_t> image) {
  SINTER_ASSERT(image.size() == kImagePixels, image.size(), " bytes");
  Stream random(data_seed, index);
  const int label = random.below(10);
  const std::vector<Variant>& variants = glyphs()[label];
  std::vector<Corner> line;
  line.reserve(128);
  for (const Stroke& stroke : variants[random.below(variants.size())]) trace(stroke, random, line);
  const auto place = placement(random);
  const auto bend = elastic(random);
  for (Corner& corner : line) corner.at = bend(place(corner.at));

  Plane ink{};
  const float width = random.uniform(1.2f, 3.0f), strength = 255.0f * random.uniform(0.7f, 1.0f);
  stroke_ink(line, width, ink);
  if (random.one_in_ten()) {
    const Point from{random.uniform(0, kImageSide), random.uniform(0, kImageSide)};
    const Corner stray[] = {
        {from, false}, {{from.x + random.uniform(-9, 9), from.y + random.uniform(-9, 9)}, true}};
    stroke_ink(stray, random.uniform(0.8f, 1.8f), ink);
  }

  const Stream noise_words(data_seed, index, 1);
  std::array<uint16_t, kImageSide * kRow> noise;
  for (uint32_t block = 0; block < noise.size() / 8; ++block) {
    const auto words = noise_words.block(block);
    for (int i = 0; i < 8; ++i) noise[8 * block + i] = uint16_t(words[i / 2] >> (i % 2 * 16));
  }
  std::array<uint8_t, kImageSide * kRow> padded;
  for (size_t i = 0; i < padded.size(); ++i) {
    float value = strength * ink[i] + (float(noise[i]) * (24.0f / 65536.0f) - 12.0f);
    value = value > 0.0f ? value : 0.0f;
    value = value < 255.0f ? value : 255.0f;
    padded[i] = uint8_t(int(value + 0.5f));
  }
  for (int y = 0; y < kImageSide; ++y)
    std::copy_n(&padded[y * kRow], kImageSide, &image[y * kImageSide]);
  return label;
}

void draw_digits(
    uint64_t data_seed, uint64_t first, std::span<uint8_t> images, std::span<int32_t> labels) {
  SINTER_ASSERT(images.size() == labels.size() * kImagePixels, images.size(), " bytes, ",
      labels.size(), " labels");
  parallel_for(int64_t(labels.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      labels[i] = draw_digit(
          data_seed, first + uint64_t(i), images.subspan(i * kImagePixels, kImagePixels));
  });
}

}  // namespace sinter
