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
      "kernels";  // an identifier: of the header and the library, and in front of the functions' names
  // Target::cpu(), and one of Target::cuda() (Hopper GPUs) and Target::cuda_sm80() (compute capability 8.x).
  std::vector<Target> targets = {Target::cpu()};
};

// The paths of what was written: NAME.h, tegula_bundle.h, libNAME.so, and what that is made of (objects for
// each instruction set of CPUs, cubins). It needs a C++ compiler, for GPUs NVRTC, and no GPU. An
// ArgumentError if the kernels cannot share a bundle or use what bundles do not support.
std::vector<std::string> build(std::span<const lang::Kernel> kernels, const std::string& folder,
                               const BuildOptions& options = {});

}  // namespace tegula
TEGULA_API_END
