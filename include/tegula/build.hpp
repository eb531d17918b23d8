// Compiles kernels ahead of time, for programs that have neither Tegula nor a compiler. The result is a
// folder with a C header, the code for CPUs and GPUs, and a shared library that contains the code and checks,
// prepares and starts calls.
//
//   const BuildOptions options{.name = "gemms", .targets = {Target::cpu(), Target::cuda()}};
//   build(std::vector{gemm_relu(128, 128, 64)}, "bundle", options);
//   // in C: #include "gemms.h", gemms_gemm_relu(&a, &b, &c, stream), and -lgemms
#pragma once
#include <span>
#include <string>
#include <vector>

#include "tegula/lang/kernel.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula {

struct BuildOptions {
  [[no_unique_address]] lang::detail::OptionsAreNamed options_are_named = lang::detail::OptionsAreNamed();
  std::string name =
      "kernels";  // an identifier: the name of the header and the library, and the prefix of the functions
  // Target::cpu(), and one of Target::cuda() (Hopper GPUs) and Target::cuda_sm80() (compute capability 8.x).
  std::vector<Target> targets = {Target::cpu()};
};

// Returns the paths of the files written: NAME.h, tegula_bundle.h, libNAME.so, and what that library consists
// of (an object per CPU instruction set, cubins). Needs a C++ compiler and, for GPUs, NVRTC, but no GPU.
// Throws an ArgumentError if the kernels cannot share a bundle or use a feature that bundles do not support.
std::vector<std::string> build(std::span<const lang::Kernel> kernels, const std::string& folder,
                               const BuildOptions& options = {});

}  // namespace tegula
TEGULA_API_END
