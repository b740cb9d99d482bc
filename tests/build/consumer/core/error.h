// This project's own core/error.h: the installed headers must not take it for theirs.
#pragma once

inline const char* own_error() { return "own"; }
