include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# sinter::sinter is all libraries together.
add_library(sinter INTERFACE)
add_library(sinter::sinter ALIAS sinter)
set(sinter_libraries "")
set(sinter_folders "")

# sinter_precompile(TARGET HEADER...): what each file of the target is behind is compiled once.
function(sinter_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  if(SINTER_CCACHE)
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()

# sinter_compile(TARGET [TEXT] [ALONE HEADER]): how a target of ours is compiled. In a Release build
# loops get -O2 and the vectoriser of -O3, whose other copies of a loop double what g++ makes and
# the time that it takes, and make no op faster; TEXT, what parses, prints and decides, gets -Og: a
# fifth less than -O1 costs, and no training step waits for such code. With SINTER_UNITY the
# compiler takes up to SINTER_UNITY_FILES files at a time, in equal shares, so a file-local name
# must be free in its whole folder; a source that must stand alone says SKIP_UNITY_BUILD_INCLUSION.
# ALONE: each file by itself, behind HEADER, which is compiled once.
set(SINTER_UNITY_FILES 17)
function(sinter_compile target)
  set(level "")
  if("TEXT" IN_LIST ARGN)
    set(level -Og)
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(level -O2 -ftree-vectorize -fvect-cost-model=dynamic -fpeel-loops)
  endif()
  if(level AND NOT SINTER_SANITIZE)
    target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:${level}>")
  endif()
  cmake_parse_arguments(ARG "TEXT" "ALONE" "" ${ARGN})
  if(ARG_ALONE)
    sinter_precompile(${target} ${PROJECT_SOURCE_DIR}/${ARG_ALONE})
  elseif(SINTER_UNITY)
    get_target_property(sources ${target} SOURCES)
    list(LENGTH sources files)
    math(EXPR batches "(${files} + ${SINTER_UNITY_FILES} - 1) / ${SINTER_UNITY_FILES}")
    math(EXPR size "(${files} + ${batches} - 1) / ${batches}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  endif()
endfunction()

# Kernels that a compiler takes at a time: the emulator's, and nvcc (SinterCuda.cmake).
set(SINTER_UNITY_KERNELS 4)
# sinter_emulated_kernels(TARGET SOURCE...): the emulator's kernels as objects. At -Og they cost a
# third of what -O3 costs to compile; the emulator's time is in its fibers, not in their arithmetic.
function(sinter_emulated_kernels target)
  add_library(${target} OBJECT ${ARGN})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${target} PRIVATE sinter_flags sinter_kernel_flags fmt::fmt)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SINTER_UNITY}
                        UNITY_BUILD_BATCH_SIZE ${SINTER_UNITY_KERNELS})
  if(NOT SINTER_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  endif()
endfunction()

# sinter_library(FOLDER [TEXT] [ALONE HEADER] [APART] [USES TARGET...]) The static library
# sinter_FOLDER (alias sinter::FOLDER) of all sources below FOLDER, linked with those made before
# it. USES are libraries of others, linked where they were found: DNNL::dnnl then gives the
# definition SINTER_HAS_ONEDNN, and so on. APART: not one of those that are sinter::sinter.
function(sinter_library folder)
  cmake_parse_arguments(ARG "TEXT;APART" "ALONE" "USES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_module\\.cpp$")  # see sinter_module
  # One kernel source, compiled twice: for the emulator as C++, by a file of one line, and by nvcc
  # where there is one.
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cu)
  set(emulated "")
  foreach(kernel ${kernels})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${kernel})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/simt/${name}.cpp CONTENT "#include \"${name}\"\n")
    list(APPEND emulated ${PROJECT_BINARY_DIR}/simt/${name}.cpp)
  endforeach()
  if(SINTER_SANITIZE STREQUAL "thread")
    # The emulator moves between stacks and tells TSan of it by hand; its own bookkeeping must not
    # look like an order or a race.
    set(emulator ${sources})
    list(FILTER emulator INCLUDE REGEX "/core/device/simt_(counts|fiber|worker)\\.cpp$")
    set_source_files_properties(${emulator} PROPERTIES
                                COMPILE_OPTIONS -fno-sanitize=thread
                                COMPILE_DEFINITIONS SINTER_TSAN=1)
  endif()
  if(SINTER_SANITIZE MATCHES "address")
    # Books of every access, sorted: ten times as slow with checks, and of no kernel's memory.
    set(counts ${sources})
    list(FILTER counts INCLUDE REGEX "/core/device/simt_counts\\.cpp$")
    set_source_files_properties(${counts} PROPERTIES COMPILE_OPTIONS "-O2;-fno-sanitize=all")
  endif()
  set(lib sinter_${folder})
  if(SINTER_EMULATOR AND emulated)
    sinter_emulated_kernels(${lib}_emulator ${emulated})
    list(APPEND sources $<TARGET_OBJECTS:${lib}_emulator>)
  endif()
  if(SINTER_HAS_CUDA)
    sinter_kernels(${lib} objects ${kernels})
    list(APPEND sources ${objects})
  endif()
  add_library(${lib} STATIC ${sources})
  add_library(sinter::${folder} ALIAS ${lib})
  sinter_compile(${lib} ${ARGN})
  set_target_properties(${lib} PROPERTIES EXPORT_NAME ${folder} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${lib} PUBLIC cxx_std_20)
  target_include_directories(${lib} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # Headers and flags only, so of no concern to whoever links with an installed copy.
  target_link_libraries(${lib} PRIVATE $<BUILD_INTERFACE:sinter_flags>
                        $<BUILD_INTERFACE:Eigen3::Eigen>
                        $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
  # Not fmt::fmt-header-only: that compiles all of fmt in each file, ten times as slow.
  target_link_libraries(${lib} PRIVATE fmt::fmt)
  target_link_libraries(${lib} PUBLIC ${sinter_libraries})
  foreach(dep ${ARG_USES})
    if(TARGET ${dep})
      string(REGEX REPLACE "::.*" "" name ${dep})
      string(REPLACE "DNNL" "ONEDNN" name ${name})
      string(TOUPPER ${name} name)
      if(dep STREQUAL "CUDA::cudart_static")  # the package brings a copy: see sinter_install
        target_link_libraries(${lib} PRIVATE $<BUILD_INTERFACE:${dep}>
                              $<INSTALL_INTERFACE:sinter::cudart_static>)
      else()
        target_link_libraries(${lib} PRIVATE ${dep})
      endif()
      target_compile_definitions(${lib} PRIVATE SINTER_HAS_${name}=1)
    endif()
  endforeach()
  if(NOT ARG_APART)
    target_link_libraries(sinter INTERFACE ${lib})
  endif()
  set(sinter_libraries ${sinter_libraries} ${lib} PARENT_SCOPE)
  set(sinter_folders ${sinter_folders} ${folder} PARENT_SCOPE)
endfunction()

# sinter_module(FOLDER NAME DEPENDENCY): libsinter_NAME.so of FOLDER/NAME_module.cpp, where
# DEPENDENCY is found (MPI_CXX_FOUND for MPI::MPI_CXX: FindMPI makes the target without a header,
# too). sinter_FOLDER loads it when it first needs it: who is linked with that gets the folder of
# the build, or of the package, as RUNPATH; programs of ours look beside themselves, too.
function(sinter_module folder name dependency)
  set(lib sinter_${folder})
  string(CONCAT place $<BUILD_INTERFACE:${CMAKE_RUNTIME_OUTPUT_DIRECTORY}>
         $<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>)
  target_link_options(${lib} INTERFACE -Wl,-rpath,${place})
  string(REGEX REPLACE ".*::" "" package ${dependency})
  if(${package}_FOUND)
    add_library(sinter_${name} MODULE ${folder}/${name}_module.cpp)
    # One RPATH, built and installed: see examples/CMakeLists.txt.
    set_target_properties(sinter_${name} PROPERTIES BUILD_WITH_INSTALL_RPATH ON
                          INSTALL_RPATH $ORIGIN INSTALL_RPATH_USE_LINK_PATH ON
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
    target_link_libraries(sinter_${name} PRIVATE sinter_flags ${dependency})
    add_dependencies(${lib} sinter_${name})
    install(TARGETS sinter_${name} DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endfunction()

# Headers, libraries and package files for find_package(sinter), which gives sinter::sinter and each
# sinter::FOLDER. A build with CUDA leaves a copy of the static CUDA runtime beside the libraries,
# so that who links with it needs no toolkit.
function(sinter_install)
  install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")
                set(folders \"${sinter_folders}\")
                set(include_dir \"${CMAKE_INSTALL_INCLUDEDIR}\")")
  install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/InstallHeaders.cmake)
  if(TARGET CUDA::cudart_static)
    install(FILES $<TARGET_FILE:CUDA::cudart_static> DESTINATION ${CMAKE_INSTALL_LIBDIR}
            RENAME libsinter_cudart_static.a)
  endif()
  install(FILES ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples
          DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/tests/examples/own_job.cpp
          DESTINATION ${CMAKE_INSTALL_DOCDIR}/tests/examples)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sinter)
  install(TARGETS sinter ${sinter_libraries} EXPORT sinterTargets)
  install(EXPORT sinterTargets NAMESPACE sinter:: DESTINATION ${package_dir})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/sinterConfig.cmake.in
                                ${PROJECT_BINARY_DIR}/sinterConfig.cmake
                                INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/sinterConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/sinterConfig.cmake
                ${PROJECT_BINARY_DIR}/sinterConfigVersion.cmake
                ${PROJECT_SOURCE_DIR}/cmake/FindDNNL.cmake DESTINATION ${package_dir})
endfunction()
