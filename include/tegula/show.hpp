// What the compiler makes of a kernel: as text, as pictures, and as an HTML report with everything. Nothing
// runs, and no GPU is needed.
//
//   std::puts(show(gemm_relu(128, 128, 64), {.cuda = true, .schedule = true}).c_str());
//   write_report("gemm.html", std::vector{gemm}, {.analyses = {{analyze(gemm, extents, machine("h100"))}}});
#pragma once
#include <span>
#include <string>
#include <vector>

#include "tegula/analyze.hpp"
#include "tegula/lang/kernel.hpp"

TEGULA_API_BEGIN
namespace tegula {

struct ShowOptions {
  [[no_unique_address]] lang::detail::OptionsAreNamed options_are_named = lang::detail::OptionsAreNamed();
  bool ir = false;             // the program, as text of the language; the default if nothing is selected
  bool passes = false;         // what every compiler pass changes: for the CPU, or with `for_gpu` for a GPU
  bool cpp = false;            // the C++ that is compiled for the CPU
  bool cuda = false;           // the CUDA C++ that is compiled for a GPU
  bool layout = false;         // instructions of products, and which threads and registers hold fragments
  bool schedule = false;       // what the roles of a block do on a GPU, including synchronisation
  bool shared_memory = false;  // where in shared memory the tiles of a block are, and for how long
  // Threads, shared memory and registers of a block, and notes; if NVRTC is found, also the assembler's
  // remarks.
  bool resources = false;
  bool for_gpu = false;   // `passes` are those for GPUs
  int architecture = 90;  // of the GPU: 80, 90, or 100, which gets the code for 80
  // A folder, which is created if necessary. Pictures of `layout`, `schedule` and `shared_memory` are written
  // there as NAME.svg (a file is complete or does not exist), and the text contains their paths.
  std::string pictures = {};
};

// The selected texts, in the order of the options.
std::string show(const lang::Kernel& kernel, const ShowOptions& options = {});
// Those of all kernels, one after the other. Pictures of the second kernel of a name are KERNEL.2_GRID.layout
// and so on, so that none replaces another's.
std::string show(std::span<const lang::Kernel> kernels, const ShowOptions& options = {});

// A picture as SVG: `name` is KERNEL_GRID.layout, KERNEL_GRID.schedule or KERNEL_GRID.memory.
struct Picture {
  std::string name, svg;
};
// The pictures selected by `layout`, `schedule` and `shared_memory`. A grid without roles has no schedule.
std::vector<Picture> draw(const lang::Kernel& kernel, const ShowOptions& options);

struct ReportOptions {
  [[no_unique_address]] lang::detail::OptionsAreNamed options_are_named = lang::detail::OptionsAreNamed();
  int architecture = 90;  // of the GPU: 80 or 90
  // For each kernel, in their order, the analyses of its calls: shown as rooflines and as text.
  std::vector<std::vector<Analysis>> analyses = {};
};
// A self-contained page with, for each kernel, the notes, the analyses, the program beside its generated
// code, the pictures and the resources.
std::string report(std::span<const lang::Kernel> kernels, const ReportOptions& options = {});
void write_report(const std::string& path, std::span<const lang::Kernel> kernels,
                  const ReportOptions& options = {});

}  // namespace tegula
TEGULA_API_END
