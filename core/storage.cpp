#include "core/storage.h"

#include <utility>

#include "core/device/memory.h"
#include "core/error.h"

namespace sinter {

void Storage::refuse_data() {
  throw Error(Error::Kind::state,
      "tensor: the elements of a meta tensor, which has none, are asked for",
      "a captured step runs its function on meta tensors at calls 2, 10, 100, ..: return from the "
      "step what is to be read of it");
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
