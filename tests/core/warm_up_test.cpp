// What the first step would wait for, opened beside something else.
#include "core/device/cuda.h"

#include <gtest/gtest.h>

#if SINTER_HAS_CUDA
#include "core/device/cuda_libraries.h"
#include "tests/cuda_recorder.h"

namespace sinter {
namespace {

TEST(WarmUp, TheFirstStepFindsLibrariesAndTheirStream) {
  cuda::FakeToolkit recorder;
  cuda::warm_up(0, true);
  const std::lock_guard lock(cuda::CublasLtHandle::get().mutex);
  EXPECT_NE(cuda::CublasLtHandle::get().on_stream(), nullptr);
  for (const char* call : {"cublasLtCreate", "cudnnCreate", "cudaStreamCreateWithFlags"})
    EXPECT_EQ(recorder.count(call), 1) << call;
}

// To open a library may wait for the whole card, which no capture survives: a step that does not
// wait for cuDNN would capture beside it.
TEST(WarmUp, OnlyWhatTheStepWaitsForIsOpened) {
  cuda::FakeToolkit recorder;
  cuda::warm_up(0, false);
  EXPECT_EQ(recorder.count("cublasLtCreate"), 1);
  EXPECT_EQ(recorder.count("cudnnCreate"), 0);
}

TEST(WarmUp, WhatCannotBeOpenedIsLeftToWhoNeedsIt) {
  cuda::FakeToolkit recorder;
  recorder.set({.driver = 0});
  cuda::warm_up(0, true);
  EXPECT_EQ(recorder.count("cublasLtCreate"), 0);
}

}  // namespace
}  // namespace sinter
#endif
