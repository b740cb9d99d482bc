#include "core/device/device.h"

#include "core/error.h"

namespace sinter {

std::string Device::str() const {
  switch (type) {
    case Type::cpu: return "cpu";
    case Type::simt: return "simt";
    case Type::cuda: return "cuda:" + std::to_string(index);
  }
  return "?";
}

Device Device::parse(std::string_view text) {
  if (text == "cpu") return kCpu;
  if (text == "simt" || text.starts_with("cuda"))
    throw Error(Error::Kind::not_built, cat(text, ": not in this build: only the cpu device is there"), "--device cpu");
  throw Error(Error::Kind::usage, cat("device: unknown: ", escaped(text), "; allowed cpu, cuda, cuda:N, simt"));
}

}  // namespace sinter
