// A recorder that a captured step tells of the nodes that it replays, too: any other makes the step
// run op by op. What it hears are the ops of the fused step; a CUDA graph runs as a list meanwhile.
#pragma once

#include "core/context.h"
#include "ops/op.h"

namespace sinter::capture {

class Listener : public Recorder {
 public:
  ~Listener() override { listen(false); }
  // To all ops of this thread from now on, or to none. REQUIRES: nobody else listens here.
  void listen(bool on) {
    if (on == (current == this)) return;
    std::vector<Recorder*>& recorders = Context::current().recorders;
    SINTER_ASSERT(!on || !current, "two listeners");
    std::erase(recorders, this);
    if (on) recorders.push_back(this);
    current = on ? this : nullptr;
  }
  static inline constinit thread_local Listener* current = nullptr;
};

}  // namespace sinter::capture
