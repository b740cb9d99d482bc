#include "core/device/library.h"

#include <dlfcn.h>
#include <link.h>

#include "core/error.h"

namespace sinter {

Library::Library(const std::vector<std::string>& names, const std::string& folder, bool global) {
  for (const std::string& name : names) {
    for (const std::string& path : {name, folder + "/" + name}) {
      if (handle_ || (path != name && folder.empty())) continue;
      handle_ = dlopen(path.c_str(), RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
      if (!handle_ && why_.empty()) why_ = dlerror();
    }
  }
  if (handle_) why_.clear();
}

void* Library::find(const char* symbol) {
  void* const found = handle_ ? dlsym(handle_, symbol) : nullptr;
  const link_map* loaded = nullptr;
  if (!found && why_.empty() && dlinfo(handle_, RTLD_DI_LINKMAP, &loaded) == 0)
    why_ = str(loaded->l_name, " has no ", symbol);
  return found;
}

}  // namespace sinter
