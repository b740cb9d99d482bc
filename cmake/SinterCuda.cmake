# The CUDA toolkit, where SINTER_CUDA allows it: sets SINTER_HAS_CUDA, and compiles kernels
# (sinter_kernels). CMake's own CUDA language is not used: it takes seconds of every configure, and
# an installed library would ask its users for nvcc. AUTO wants a card, too: nvcc takes a quarter of
# a build from scratch, for kernels that only a card can run.
if(NOT SINTER_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "SINTER_CUDA=${SINTER_CUDA}: unknown; allowed AUTO, ON, OFF")
endif()
set(SINTER_HAS_CUDA OFF)
# dxg: Windows' subsystem for Linux
if(SINTER_CUDA STREQUAL "ON" OR
   (SINTER_CUDA STREQUAL "AUTO" AND (EXISTS /dev/nvidia0 OR EXISTS /dev/dxg)))
  find_package(CUDAToolkit 12.8 QUIET)  # looks in CUDAToolkit_ROOT, PATH and /usr/local/cuda
  if(CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart_static AND TARGET CUDA::cublasLt)
    set(SINTER_HAS_CUDA ON)
    # Headers are enough: cuBLASLt and cuDNN are loaded while a program runs
    # (core/device/cuda_api.h).
    find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    mark_as_advanced(CUDNN_INCLUDE_DIR)
    set(cudnn "no cuDNN")
    if(CUDNN_INCLUDE_DIR)
      set(cudnn "cuDNN")
    endif()
  endif()
endif()
# AUTO compiles for the cards that are here, as nvidia-smi names them ("9.0"); else the choice is
# the whole range.
set(architectures "80;90a")
if(SINTER_HAS_CUDA AND SINTER_CUDA STREQUAL "AUTO")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE cards ERROR_QUIET RESULT_VARIABLE failed)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" cards "${cards}")
  if(NOT failed AND cards)
    string(REPLACE "." "" architectures "${cards}")
    list(REMOVE_DUPLICATES architectures)
    list(TRANSFORM architectures REPLACE "^90$" "90a")  # the kernels use instructions of 9.0 only
  endif()
endif()
set(SINTER_CUDA_ARCHITECTURES "${architectures}" CACHE STRING
    "Machine code for these compute capabilities; PTX, for later cards, of the first")
if(SINTER_HAS_CUDA)
  message(STATUS "CUDA ${CUDAToolkit_VERSION} (${CUDAToolkit_NVCC_EXECUTABLE}), ${cudnn}; "
                 "code for ${SINTER_CUDA_ARCHITECTURES}")
elseif(SINTER_CUDA STREQUAL "ON")
  message(FATAL_ERROR "SINTER_CUDA=ON: no CUDA toolkit found, 12.8 or later, with nvcc and "
                      "cuBLASLt (PATH, /usr/local/cuda); say where it is by "
                      "-DCUDAToolkit_ROOT=FOLDER, or configure with -DSINTER_CUDA=AUTO or OFF")
elseif(SINTER_CUDA STREQUAL "AUTO")
  message(STATUS "CUDA kernels: left out, a card and a toolkit 12.8 or later are not both here; "
                 "devices are cpu and simt (-DSINTER_CUDA=ON builds them without a card)")
endif()

# No kernel spills registers on the cards that are built for by default; for others ptxas does so
# here and there, by bytes that cmake/kernel_budgets.json names, and that stops nobody's build.
set(spills_are_errors ",-Werror")
foreach(arch ${SINTER_CUDA_ARCHITECTURES})
  if(NOT arch MATCHES "^(80|90a)$")
    set(spills_are_errors "")
  endif()
endforeach()
# Same flags whatever the build type. nvcc's -O is the host's; code of the device is always
# optimised. --fmad: see SinterDependencies.
set(nvcc_flags -std=c++20 -O1 -fmad=false --expt-relaxed-constexpr
               -Xcompiler=-ffp-contract=off,-fPIC
               -Xptxas=-v,-warn-spills,-warn-lmem-usage${spills_are_errors}
               -ccbin=${CMAKE_CXX_COMPILER} -I${PROJECT_SOURCE_DIR} -DSINTER_HAS_CUDA=1)
set(kind "code=[sm_@,compute_@]")
foreach(arch ${SINTER_CUDA_ARCHITECTURES})
  string(REPLACE "@" ${arch} code "-gencode=arch=compute_@,${kind}")
  list(APPEND nvcc_flags ${code})
  set(kind "code=sm_@")
endforeach()
set(SINTER_NVCC_COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} ${nvcc_flags})

# sinter_kernels(LIB OBJECTS KERNEL...): OBJECTS becomes the list of object files, for the sources
# of LIB, that nvcc makes of .cu files; with SINTER_UNITY of four at a time, in the emulator's
# batches: three readings of the headers, five seconds, cost as much as most kernels. A batch is
# named after its first file. Its PTX, and what ptxas says of it, stay in ptx/NAME/ for
# scripts/check_kernels. Target kernels makes all of them.
function(sinter_kernels lib objects)
  set(size 1)
  if(SINTER_UNITY)
    set(size ${SINTER_UNITY_KERNELS})
  endif()
  set(rest ${ARGN})
  set(list "")
  while(rest)
    list(SUBLIST rest 0 ${size} batch)
    list(REMOVE_ITEM rest ${batch})
    list(GET batch 0 first)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${first})
    set(source ${PROJECT_BINARY_DIR}/cuda/${name})
    list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE text)
    string(JOIN "" text ${text})
    file(CONFIGURE OUTPUT ${source} CONTENT "${text}" @ONLY)
    set(object ${source}.o)
    set(ptx ${PROJECT_BINARY_DIR}/ptx/${name})
    file(MAKE_DIRECTORY ${ptx})
    add_custom_command(OUTPUT ${object} DEPFILE ${object}.d DEPENDS ${source} ${batch} VERBATIM
                       COMMENT "Building CUDA object cuda/${name}.o"
                       COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/nvcc.sh ${ptx}/ptxas.log
                               ${SINTER_NVCC_COMMAND} --keep --keep-dir=${ptx} -MD -MF ${object}.d
                               -MT ${object} -c ${source} -o ${object}
                       COMMAND find ${ptx} -type f ! -name "*.ptx" ! -name ptxas.log -delete)
    list(APPEND list ${object})
  endwhile()
  set(${objects} ${list} PARENT_SCOPE)
  if(list)
    add_custom_target(${lib}_kernels DEPENDS ${list})
    if(NOT TARGET kernels)
      add_custom_target(kernels)
    endif()
    add_dependencies(kernels ${lib}_kernels)
  endif()
endfunction()
