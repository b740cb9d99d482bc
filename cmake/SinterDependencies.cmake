# What the libraries link with (all Debian 12 packages, see scripts/setup), and the flags of every
# target of ours.
set(missing "")
macro(sinter_require debian package version)
  find_package(${package} ${version} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    string(APPEND missing "\n  ${package} ${version} (${debian})")
  endif()
endmacro()
sinter_require(libeigen3-dev Eigen3 3.4 NO_MODULE)
sinter_require(libfmt-dev fmt 9)
sinter_require(nlohmann-json3-dev nlohmann_json 3.11)
sinter_require(libboost-context-dev Boost 1.74 COMPONENTS context)
sinter_require(zlib1g-dev ZLIB 1.2)
sinter_require(libpng-dev PNG 1.6)
if(SINTER_BUILD_EXAMPLES)
  sinter_require(libcli11-dev CLI11 2.1)
endif()
if(SINTER_WITH_TESTS AND NOT SINTER_FUZZ)
  sinter_require(libgtest-dev GTest 1.12)
endif()
if(missing)
  message(FATAL_ERROR "Sinter is built with packages that are not here:${missing}\n"
                      "scripts/setup installs them on Debian and Ubuntu.")
endif()
find_package(Threads REQUIRED)
if(SINTER_ONEDNN)
  find_package(DNNL 2.6...<3)
  if(NOT DNNL_FOUND)
    message(STATUS "oneDNN 2.6 not found: matrix products use Eigen, which is slower")
  endif()
endif()
if(SINTER_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)  # C's functions are all we call
  find_package(MPI COMPONENTS CXX)
endif()
include(SinterCuda)

# No contraction: fused and separate kernels must round alike, so where a fused multiply-add is
# meant, the code says so.
add_library(sinter_flags INTERFACE)
target_compile_features(sinter_flags INTERFACE cxx_std_20)
target_include_directories(sinter_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(sinter_flags INTERFACE
                       -Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                       -Wno-missing-field-initializers -Werror=switch
                       -ffp-contract=off -fno-math-errno -fno-trapping-math)
# g++ may use memory up to this (in KiB) before it looks for what it can give back: a tenth of its
# time goes into that search, which finds little.
target_compile_options(sinter_flags INTERFACE
                       $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=400000>)
if(SINTER_HAS_CUDA)
  string(JOIN "," architectures ${SINTER_CUDA_ARCHITECTURES})
  target_compile_definitions(sinter_flags INTERFACE SINTER_HAS_CUDA=1
                             $<$<BOOL:${CUDNN_INCLUDE_DIR}>:SINTER_HAS_CUDNN=1>
                             SINTER_CUDA_LIBRARY_DIR="${CUDAToolkit_LIBRARY_DIR}"
                             SINTER_CUDA_ARCHITECTURES="${architectures}"
                             SINTER_PTX_FOLDER="${PROJECT_BINARY_DIR}/ptx")
  target_include_directories(sinter_flags SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
endif()
if(SINTER_NATIVE)
  target_compile_options(sinter_flags INTERFACE -march=native)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(sinter_flags INTERFACE -mprefer-vector-width=512)
  endif()
endif()
if(SINTER_SANITIZE)
  # -Og and line tables only: compiles in less than half the time of -O1 and runs as fast.
  # Assertions on, Eigen's too.
  target_compile_options(sinter_flags INTERFACE -fsanitize=${SINTER_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer -Og -g1 -UNDEBUG)
  target_link_options(sinter_flags INTERFACE -fsanitize=${SINTER_SANITIZE})
  if(SINTER_SANITIZE STREQUAL "address,undefined")
    # What ASan finds when it happens; the compiler spends a seventh of its time on these checks.
    target_compile_options(sinter_flags INTERFACE -fno-sanitize=null,object-size,pointer-overflow)
    # gold, which comes with ld, links in half the time.
    find_program(SINTER_GOLD ld.gold)
    mark_as_advanced(SINTER_GOLD)
    if(SINTER_GOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_link_options(sinter_flags INTERFACE -fuse-ld=gold)
    endif()
  endif()
endif()
# What the emulator's kernels take back of that. A library of its own, named after sinter_flags: a
# target's own options come before -fsanitize, which then would win.
add_library(sinter_kernel_flags INTERFACE)
if(SINTER_FUZZ)
  # No fuzzer runs a kernel, and clang needs minutes for one that it instruments.
  target_compile_options(sinter_kernel_flags INTERFACE
                         -O0 -fno-sanitize=all -fno-sanitize=fuzzer-no-link)
elseif(SINTER_SANITIZE MATCHES "address")
  # A kernel reaches memory through views that check bounds, alignment and what was never written
  # (core/device/kernel_simt.h), so of the sanitizers only UBSan's checks of arithmetic and of
  # arrays stay: a kernel runs faster, and takes the compiler a quarter less.
  target_compile_options(sinter_kernel_flags INTERFACE -O1 -fno-sanitize=address,alignment,vptr)
endif()
