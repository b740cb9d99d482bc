// Records the ops of one eager run of a step as a Graph: a Recorder that hangs in the thread's Context while it lives.
#pragma once

#include <map>
#include <tuple>

#include "capture/graph.h"

namespace sinter::capture {

class Recording final : public Recorder {
 public:
  // `inputs` become the graph's inputs "x0", "x1", .. or get their own names. Throws state inside another recording.
  explicit Recording(const Tensors& inputs);
  ~Recording() override;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void record(const Call& call) override;
  // Ends the recording. `parameters`: whose .grad() are results of the step.
  Graph finish(const Tensors& outputs, const Tensors& parameters);

 private:
  using Key = std::tuple<uint64_t, int64_t, DType, std::string>;  // storage, offset, dtype, shape and strides
  // An input's memory: a buffer of its own that begins with it, wherever it lies in its storage at this call.
  struct Input {
    uint64_t storage;
    int64_t begin, end;  // bytes
    int buffer;
  };
  int value_of(const Tensor& t);
  // The buffer of t, and where it begins in t's storage, in bytes.
  std::pair<int, int64_t> buffer_of(const Tensor& t);

  Graph graph_;
  std::vector<Input> inputs_;
  std::map<uint64_t, int> buffers_;
  std::map<Key, int> values_;
  const char* reads_forbidden_before_;
};

}  // namespace sinter::capture
