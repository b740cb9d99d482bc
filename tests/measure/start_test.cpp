#include "measure/start.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/device/cuda.h"

#if SINTER_HAS_CUDA
#include "core/device/cuda_libraries.h"
#include "measure/timer.h"
#include "tests/cuda_recorder.h"
#include "tests/test_util.h"
#endif

namespace sinter::measure {
namespace {

using Span = StartTimeline::Span;

TEST(StartTimeline, SpansOfAThreadFollowEachOtherFromTheProgramsBegin) {
  for (const Device device : {kCpu, Device{Device::Type::simt, 0}}) {
    StartTimeline start;
    start.open_beside(device, true);
    for (const char* what : {"data", "model", "first replay"}) start.done(what);
    const std::vector<Span> spans = start.spans();
    ASSERT_EQ(spans.size(), 3u) << "nothing is opened on " << device.str();
    double last_ms = 0;
    for (const Span& span : spans) {
      EXPECT_EQ(span.begin_ms, last_ms);
      EXPECT_GT(last_ms = span.end_ms, span.begin_ms);
      EXPECT_FALSE(span.beside);
    }
    EXPECT_EQ(spans[2].what, "first replay");
    test::expect_facts(start.text(), {" ms  first replay\n"});
  }
}

#if SINTER_HAS_CUDA
// Waits for so many spans, for ten seconds at most: one that never comes is a failure.
void wait_for_spans(const StartTimeline& start, size_t spans) {
  const Timer timer;
  while (start.spans().size() < spans && timer.seconds() < 10) std::this_thread::yield();
  ASSERT_GE(start.spans().size(), spans) << start.text();
}

TEST(StartTimeline, LibrariesAreOpenedWhileDataIsLoaded) {
  cuda::FakeToolkit recorder;
  {
    StartTimeline start;
    start.open_beside({Device::Type::cuda, 0}, true);
    ASSERT_NO_FATAL_FAILURE(wait_for_spans(start, 2));  // data that takes as long
    start.done("data");
    ASSERT_NO_FATAL_FAILURE(wait_for_spans(start, 5));
    std::vector<std::string> beside;
    double last_ms = 0;
    for (const auto& [what, begin_ms, end_ms, is_beside] : start.spans()) {
      if (is_beside) {
        beside.push_back(what);
        EXPECT_GE(begin_ms, last_ms);
        EXPECT_GE(last_ms = end_ms, begin_ms);
      }
      if (what == "data") {
        EXPECT_GT(end_ms, last_ms) << "the card and cuBLASLt were opened meanwhile";
        EXPECT_EQ(begin_ms, 0);
      }
    }
    EXPECT_EQ(beside, (std::vector<std::string>{"card", "cuBLASLt", "choices kept", "cuDNN"}));
  }
  // The first step finds them, and the stream on which they were opened.
  const std::lock_guard lock(cuda::CublasLtHandle::get().mutex);
  EXPECT_NE(cuda::CublasLtHandle::get().on_stream(), nullptr);
  for (const char* call : {"cublasLtCreate", "cudnnCreate", "cudaStreamCreateWithFlags"})
    EXPECT_EQ(recorder.count(call), 1) << call;
}

// To open a library may wait for the whole card, which no capture survives: a step that does not
// wait for cuDNN would capture beside it.
TEST(StartTimeline, OnlyWhatTheStepWaitsForIsOpened) {
  cuda::FakeToolkit recorder;
  { StartTimeline().open_beside({Device::Type::cuda, 0}, false); }
  EXPECT_EQ(recorder.count("cublasLtCreate"), 1);
  EXPECT_EQ(recorder.count("cudnnCreate"), 0);
}

TEST(StartTimeline, WhatCannotBeOpenedIsLeftToWhoNeedsIt) {
  cuda::FakeToolkit recorder;
  recorder.set({.driver = 0});
  StartTimeline start;
  start.open_beside({Device::Type::cuda, 0}, true);
  ASSERT_NO_FATAL_FAILURE(wait_for_spans(start, 4));
  EXPECT_EQ(recorder.count("cublasLtCreate"), 0);
}
#endif

}  // namespace
}  // namespace sinter::measure
