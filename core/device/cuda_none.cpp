// The CUDA device of a build without the toolkit: it is not there.
#if !SINTER_HAS_CUDA

#include "core/device/cuda.h"
#include "core/device/cuda_graph.h"
#include "core/device/cuda_upload.h"
#include "core/error.h"

namespace sinter::cuda {
namespace {
[[noreturn]] void not_built() {
  throw Error(Error::Kind::not_built, "cuda: not in this build (configure with -DSINTER_CUDA=ON)",
      devices_without_cuda());
}
}  // namespace

int device_count() { not_built(); }
void check_device(int) { not_built(); }
CardFacts card_facts() { not_built(); }
int multiprocessors() { not_built(); }
size_t shared_memory_limit() { not_built(); }
Allocator& allocator(int) { not_built(); }
void warm_up(int, bool) { not_built(); }
void copy_to_device(void*, const void*, size_t) { not_built(); }
void copy_to_host(void*, const void*, size_t) { not_built(); }
void copy_on_device(void*, const void*, size_t) { not_built(); }
void fill(void*, uint8_t, size_t) { not_built(); }
void* scratch(size_t, size_t) { not_built(); }
void synchronize() { not_built(); }
void launch(const void*, const LaunchShape&, void**) { not_built(); }
bool rehearsing() { return false; }
uint32_t* fault_flag() { not_built(); }
void at_reset(std::function<void()>) {}

void GiveBack::operator()(CUevent_st*) const noexcept {}
void GiveBack::operator()(CUgraph_st*) const noexcept {}
void GiveBack::operator()(CUgraphExec_st*) const noexcept {}
DeviceGraph::~DeviceGraph() = default;
void DeviceGraph::launch() { not_built(); }
double milliseconds(const std::function<void()>&) { not_built(); }
GraphBuilder::GraphBuilder(int, bool) { not_built(); }
GraphBuilder::~GraphBuilder() = default;
void GraphBuilder::begin(Pass) { not_built(); }
void GraphBuilder::switch_to(int) { not_built(); }
void GraphBuilder::record(int) { not_built(); }
void GraphBuilder::wait(int) { not_built(); }
void GraphBuilder::captured(int) { not_built(); }
std::unique_ptr<DeviceGraph> GraphBuilder::end() { not_built(); }
size_t GraphBuilder::count() { not_built(); }

Upload::Upload(size_t) { not_built(); }
Upload::~Upload() = default;
void Upload::start(std::initializer_list<Part>) { not_built(); }
void Upload::wait() { not_built(); }
void Upload::wait_on_host() { not_built(); }

}  // namespace sinter::cuda

#endif  // !SINTER_HAS_CUDA
