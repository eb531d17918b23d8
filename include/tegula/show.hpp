// What the compiler makes of a kernel: texts, pictures, and a page for a browser that has all of them.
// Nothing runs, and no GPU is needed.
//
//   std::puts(show(gemm_relu(128, 128, 64), {.cuda = true, .schedule = true}).c_str());
//   write_report("gemm.html", std::vector{gemm_relu(128, 128, 64)});
#pragma once
#include <span>
#include <string>
#include <vector>

#include "tegula/lang/kernel.hpp"

TEGULA_API_BEGIN
namespace tegula {

struct ShowOptions {
  [[no_unique_address]] lang::detail::OptionsAreNamed options_are_named = lang::detail::OptionsAreNamed();
  bool ir = false;        // the program, as text of the language; shown, too, where nothing is asked for
  bool passes = false;    // what every pass of the compiler changes: for the CPU, or with `for_gpu` for a GPU
  bool cpp = false;       // the C++ that is compiled for the CPU
  bool cuda = false;      // the CUDA C++ that is compiled for a GPU
  bool layout = false;    // instructions of products, and which threads and registers hold fragments
  bool schedule = false;  // what the roles of a block do on a GPU, with all synchronisation
  bool shared_memory = false;  // where the tiles of a block lie in shared memory, and how long
  // Threads, shared memory and registers of a block, and notes; where NVRTC is found, what the assembler
  // says.
  bool resources = false;
  bool for_gpu = false;   // `passes` are those for GPUs
  int architecture = 90;  // of the GPU: 80 or 90
  // A folder, which is made if there is none: pictures of `layout`, `schedule` and `shared_memory` become
  // files NAME.svg there, each complete or not at all, and their paths stand in the text.
  std::string pictures = {};
};

// One text after the other, in the order of the options.
std::string show(const lang::Kernel& kernel, const ShowOptions& options = {});

// A picture as SVG: `name` is KERNEL_GRID.layout, KERNEL_GRID.schedule or KERNEL_GRID.memory.
struct Picture {
  std::string name, svg;
};
// Of `layout`, `schedule` and `shared_memory`. A grid whose threads all do the same has no schedule.
std::vector<Picture> draw(const lang::Kernel& kernel, const ShowOptions& options);
// A page that needs no other file: of each kernel the notes, the program beside the texts that become of it,
// the pictures and the resources.
std::string report(std::span<const lang::Kernel> kernels, int architecture = 90);
void write_report(const std::string& path, std::span<const lang::Kernel> kernels, int architecture = 90);

}  // namespace tegula
TEGULA_API_END
