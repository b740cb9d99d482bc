// What nvcc made of our kernels, for who runs them elsewhere: ptxas said it when they were
// compiled, and the build keeps its words (cmake/SinterCuda.cmake).
#pragma once

#include <functional>
#include <map>
#include <string>

namespace sinter {

// "_Z1fIfEvPT_" as "void f<float>(float*)".
std::string demangled(const char* symbol);

// Where this program's build keeps the words of ptxas; "" in a build without nvcc.
std::string compiled_folder();
// Registers of a thread in the code for a compute capability (90), of each kernel by the name that
// launches have. Without those of which `folder` says nothing, and those whose names g++ and nvcc
// spell in two ways.
std::map<std::string, int, std::less<>> compiled_registers(
    int capability, const std::string& folder = compiled_folder());

}  // namespace sinter
