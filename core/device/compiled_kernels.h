// What nvcc made of our kernels, for who runs them elsewhere: ptxas said it when they were
// compiled, and the build keeps its words (cmake/SinterCuda.cmake).
#pragma once

#include <map>
#include <string>

namespace sinter {

// "_Z1fIfEvPT_" as "void f<float>(float*)".
std::string demangled(const char* symbol);
// One spelling for what g++ writes of a launch's kernel ("f<Layout::either, long int>") and what a
// symbol says ("f<(Layout)2, long>").
std::string kernel_key(std::string name);
std::string kernel_key_of_symbol(const std::string& symbol);

// Where this program's build keeps the words of ptxas; "" in a build without nvcc.
std::string compiled_folder();
// Registers of a thread in the code for a compute capability (90), of each kernel by its key, as
// far as `folder` tells.
std::map<std::string, int> compiled_registers(
    int capability, const std::string& folder = compiled_folder());

}  // namespace sinter
