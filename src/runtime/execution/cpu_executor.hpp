// Runs a kernel on the CPU: printed as C++, built into the library or compiled by the system's compiler,
// blocks on the thread pool.
#pragma once
#include <span>
#include <vector>

#include "passes/note.hpp"
#include "runtime/execution/executable.hpp"
#include "runtime/machine/cpu_features.hpp"

namespace tegula {

// Null if the kernel is neither built in nor cached and there is no compiler; a DeviceError if the compiler
// fails.
std::unique_ptr<const Executable> try_cpu_executor(const std::shared_ptr<const Signature>& signature);
// A DeviceError in both cases.
std::unique_ptr<const Executable> make_cpu_executor(const std::shared_ptr<const Signature>& signature);
// Kernels of different names, by one run of the compiler: it takes longer to start than to compile a kernel.
std::vector<std::unique_ptr<const Executable>> make_cpu_executors(
    std::span<const std::shared_ptr<const Signature>> signatures);

// The flags with which printed kernels are compiled for an instruction set.
std::vector<std::string> cpu_flags(Isa isa);

// What makes the kernel slow on this machine.
std::vector<passes::Note> cpu_notes(const Signature& signature);

}  // namespace tegula
