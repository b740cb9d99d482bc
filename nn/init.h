// Initial values of parameters. Every draw is a word of a counter-based generator (core/rng.h), so
// a parameter is a pure function of (seed, number of the parameter), the same on every machine and
// for every order of computation. All fill in place, under no tape.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace sinter::nn::init {

// Which numbers come next: each parameter takes the words of one index.
struct Stream {
  uint64_t seed = 1, index = 0;
};
// The stream of modules that are made without one. Each thread has its own, and all begin with the
// same seed: threads that make a model each get equal ones, unless each calls manual_seed(), which
// starts it anew.
Stream& default_stream();
void manual_seed(uint64_t seed);

void zeros(const Tensor& t);
void ones(const Tensor& t);
void uniform(const Tensor& t, double low, double high,
    Stream& stream);  // [low, high), before rounding to f32
void normal(const Tensor& t, double mean, double deviation, Stream& stream);
// PyTorch's default of Linear and Conv2d, kaiming_uniform with slope sqrt(5): U(-1/sqrt(fan_in),
// 1/sqrt(fan_in)), for weight and bias alike.
void linear_default(const Tensor& t, int64_t fan_in, Stream& stream);

}  // namespace sinter::nn::init
