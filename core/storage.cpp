#include "core/storage.h"

#include <cstdlib>
#include <utility>

#include "core/device/memory.h"
#include "core/error.h"

namespace sinter {

void Storage::refuse_data() {
  SINTER_ASSERT(false, "the elements of a meta tensor, which has none, are asked for");
  std::abort();
}

void Storage::move_to(Device device) {
  if (device == device_) return;
  if (!has_bytes_) {
    device_ = device;
    return;
  }
  Storage moved(bytes_, device);
  copy_between(moved.data_, device, data_, device_, bytes_);
  std::swap(device_, moved.device_);
  std::swap(data_, moved.data_);
  std::swap(owned_, moved.owned_);
  uid_ = moved.uid_;
}

}  // namespace sinter
