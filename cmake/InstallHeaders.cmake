# Run by cmake --install: copies the headers of the libraries to PREFIX/include/sinter, where each
# names the others as <sinter/core/error.h>. In the tree that is "core/error.h", which a user's
# project may have, too. source, folders, include_dir: set by sinter_install.
set(to "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${include_dir}/sinter")
string(REPLACE ";" "|" any_folder "${folders}")
foreach(folder ${folders})
  file(GLOB_RECURSE headers RELATIVE ${source} ${source}/${folder}/*.h)
  list(REMOVE_ITEM headers core/json.h)  # names a library that a user need not have
  foreach(header ${headers})
    file(READ ${source}/${header} text)
    string(REGEX REPLACE "#include \"((${any_folder})/[^\"]*)\"" "#include <sinter/\\1>"
           text "${text}")
    file(WRITE ${to}/${header} "${text}")
  endforeach()
endforeach()
# All of Sinter that a program uses, as one header: #include <sinter/sinter.h>.
set(all "// The README's table of folders says what is where.\n#pragma once\n")
file(GLOB nn RELATIVE ${source} ${source}/nn/*.h)
foreach(header autograd/autograd.h capture/explain.h capture/step.h core/device/denormal.h
        core/error.h core/parallel.h core/tensor.h data/batches.h distributed/data_parallel.h
        distributed/mpi.h distributed/thread_group.h measure/blame.h measure/calibrate.h
        measure/comparison.h measure/exports.h measure/inspect.h measure/parity.h ${nn}
        ops/fused/reference.h ops/ops.h ops/pointwise/pointwise_op.h profiler/join.h
        profiler/session.h profiler/trace.h train/trainer.h)
  string(APPEND all "#include <sinter/${header}>\n")
endforeach()
file(WRITE ${to}/sinter.h "${all}")
