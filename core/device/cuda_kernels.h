// SINTER_IF_CUDA(function): a function of the build's CUDA kernels, or nullptr where it has none.
#pragma once

#if SINTER_HAS_CUDA
#define SINTER_IF_CUDA(function) function
#else
#define SINTER_IF_CUDA(function) nullptr
#endif
