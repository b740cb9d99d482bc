// A trace of PyTorch's profiler, or a profile of ours; a second look at it is diff's.
#include "profiler/join.h"
#include "tests/fuzz/fuzz.h"

namespace sinter::fuzz {

void one(Bytes bytes) {
  const profiler::Profile profile =
      profiler::read_profile_or_trace(std::string(text_of(bytes)), "F");
  profiler::diff(profile, profile, {.by_shape = true});
}

}  // namespace sinter::fuzz
