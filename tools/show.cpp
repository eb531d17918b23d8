// show: what an operator runs, as a program, between the passes, and as C++ and CUDA.
#include <fmt/format.h>

#include "assembler_text.hpp"
#include "call.hpp"
#include "commands.hpp"
#include "cuda_texts.hpp"
#include "names.hpp"
#include "passes/cuda/cuda_passes.hpp"
#include "pictures.hpp"
#include "tegula/error.hpp"
#include "texts.hpp"

namespace tegula::tool {

namespace {

struct ShowRequest {
  CallTexts call;
  bool ir = false, passes = false, cpp = false, cuda = false, layout = false, schedule = false,
       resources = false;
  std::string svg;  // folder of pictures
  bool draws = false;
  int architecture = 90;

  bool on_gpu() const { return cuda || layout || schedule || resources; }
  bool for_gpu() const { return on_gpu() || call.target == "cuda" || call.target == "cuda_sm80"; }
  bool compiles() const { return passes || cpp || on_gpu(); }
};

void print_lines(const std::vector<std::string>& lines) {
  for (auto& line : lines) fmt::print("{}\n", line);
}

void draw_kernel(const lang::Kernel& kernel, const ShowRequest& request) {
  const passes::CudaTarget gpu{request.architecture};
  if (request.layout) print_lines(write_layouts(kernel, gpu, request.svg));
  if (request.schedule) print_lines(write_schedules(kernel, gpu, request.svg));
}

std::string passes_text(const lang::Kernel& kernel, const ShowRequest& request) {
  if (!request.for_gpu()) return pass_differences(kernel);
  return pass_differences(kernel, passes::CudaTarget{request.architecture});
}

void show_kernel(const lang::Kernel& kernel, const ShowRequest& request) {
  const passes::CudaTarget gpu{request.architecture};
  if (request.ir || !request.compiles()) fmt::print("{}\n", kernel.text());
  if (request.passes) fmt::print("---- as written\n{}\n{}", kernel.text(), passes_text(kernel, request));
  if (request.cpp) fmt::print("{}\n", cpp_text(kernel));
  if (request.cuda) fmt::print("{}\n", cuda_text(kernel, gpu));
  if (request.draws) draw_kernel(kernel, request);
  if (request.layout && !request.draws) fmt::print("{}\n", layout_text(kernel, gpu));
  if (request.schedule && !request.draws) fmt::print("{}\n", schedule_text(kernel, gpu));
  if (request.resources) fmt::print("{}{}\n", resources_text(kernel, gpu), assembler_text(kernel, gpu));
}

void show(ShowRequest request) {
  auto& op = operator_named(request.call.op);
  if (request.compiles() && request.call.target == "interpreter")
    throw ArgumentError(
        "show: the interpreter runs the program as it is written and compiles nothing; leave out --target "
        "interpreter, or ask for --ir");
  if (request.draws && !request.layout && !request.schedule)
    throw ArgumentError("show: --svg draws layouts and schedules; ask for --layout, --schedule or both");
  if (request.call.says_nothing()) request.call.example = op.check_cases.front().name;
  auto call = resolve(request.call);
  if (call.target == Target::cuda_sm80()) request.architecture = 80;
  // The tiles are those of the device.
  if (request.on_gpu() && call.target == Target::automatic())
    call.target = request.architecture == 80 ? Target::cuda_sm80() : Target::cuda();
  const auto kernels = call.op.kernels(call.inputs, call.options, call.target);
  if (request.draws) prepare_folder("show: --svg", request.svg);
  for (auto& kernel : kernels) show_kernel(kernel, request);
}

}  // namespace

void add_show(CLI::App& app) {
  auto* command = app.add_subcommand("show", "The tile programs that a call of an operator runs");
  auto request = std::make_shared<ShowRequest>();
  add_call_options(*command, request->call);
  command->add_flag("--ir", request->ir, "As text of the language (the default)");
  command->add_flag(
      "--passes", request->passes,
      "As written, and what every pass of the compiler changes: for the CPU, or with --target cuda "
      "for a GPU");
  command->add_flag("--cpp", request->cpp, "As the C++ that is compiled for the CPU");
  command->add_flag("--cuda", request->cuda, "As the CUDA C++ that is compiled for a GPU");
  command->add_flag("--layout", request->layout,
                    "Instructions of products, and which threads and registers hold fragments, on a GPU");
  command->add_flag("--schedule", request->schedule,
                    "What the roles of a block do on a GPU, with all synchronisation");
  command->add_flag(
      "--resources", request->resources,
      "Threads, shared memory and registers of a block on a GPU; where NVRTC is found, those of the "
      "machine code, spills and what the assembler remarks on");
  auto* svg =
      command->add_option("--svg", request->svg,
                          "Draw --layout and --schedule into files of this folder instead: a picture a grid");
  command->add_option("--arch", request->architecture, "Of the GPU: 80 or 90")
      ->check(CLI::IsMember({80, 90}))
      ->capture_default_str();
  command->footer(
      "Lines end with the place in the operator's source that they come from. Without inputs, those of its\n"
      "first example.\n\n"
      "Examples:\n"
      "  tegula show attention\n"
      "  tegula show gemm --case ragged_bias_gelu --passes\n"
      "  tegula show gemm --random a=512x512:bf16 --random b=512x512:bf16 --cpp\n"
      "  tegula show attention --case 4096_causal --cuda --arch 80\n"
      "  tegula show attention --case 1024_grouped_bf16 --layout --schedule --svg pictures");
  command->callback([request, svg] {
    request->draws = svg->count() > 0;
    show(*request);
  });
}

}  // namespace tegula::tool
