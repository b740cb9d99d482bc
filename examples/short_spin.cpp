// Linked with each tutorial: starts it anew as restart_with_short_spin() does, before its main().
#include "core/parallel.h"

namespace {

[[gnu::constructor]] void restart(int, char** argv, char**) {
  sinter::restart_with_short_spin(argv);
}

}  // namespace
