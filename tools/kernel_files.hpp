// The user's source files, which list their kernels (TEGULA_KERNELS); they are built by the system's compiler
// with this library and run.
#pragma once
#include <string>
#include <vector>

namespace tegula::tool {

// Whether an argument names a source file rather than an operator.
bool is_kernel_file(const std::string& argument);

// What a program prints that holds the file and runs `statements`, in which `kernels` is a
// std::vector<tegula::lang::Kernel>. An ArgumentError that names the command if the file cannot be built, an
// Error with what the program says if it fails.
std::string run_kernel_file(const std::string& command, const std::string& file,
                            const std::string& statements, const std::vector<std::string>& flags);

// The text as a literal of C++.
std::string literal(const std::string& text);

}  // namespace tegula::tool
