// A shared library that no program of ours is linked with: the CUDA toolkit's, NCCL, NVML, our own
// module for MPI. It is loaded when it is made and stays until the process ends.
//
//   Library library({"libnccl.so.2"});
//   library.find("ncclGroupStart", table.ncclGroupStart);  // any number of them
//   if (!library.why().empty()) ..
#pragma once

#include <string>
#include <vector>

namespace sinter {

class Library {
 public:
  // The first of `names` that the loader finds, on its path or else in `folder`. global: its names
  // are for the libraries that it loads, too.
  explicit Library(
      const std::vector<std::string>& names, const std::string& folder = "", bool global = false);

  // A function or an object of it; nullptr where it is not there.
  void* find(const char* symbol);
  template <class Symbol> void find(const char* symbol, Symbol*& to) {
    to = reinterpret_cast<Symbol*>(find(symbol));
  }
  // What was not there first: "libcupti.so.13: cannot open shared object file: ..",
  // "/usr/lib/libnccl.so.2.18.5 has no ncclGroupEnd"; "" if all was.
  const std::string& why() const { return why_; }

 private:
  void* handle_ = nullptr;
  std::string why_;
};

}  // namespace sinter
