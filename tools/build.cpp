// build: kernels of an operator's call, or of a source file, compiled ahead of time into a bundle.
#include "tegula/build.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "call.hpp"
#include "commands.hpp"
#include "kernel_files.hpp"
#include "names.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

namespace {

struct BuildRequest {
  CallTexts call;
  std::vector<std::string> targets{"cpu"}, flags;
  std::string out, name;
};

// The stem of a file, or the name of an operator.
std::string name_of(const BuildRequest& request) {
  if (!request.name.empty()) return request.name;
  return std::filesystem::path(request.call.op).stem().string();
}

std::vector<std::string> bundle_of_call(BuildRequest& request) {
  auto& op = operator_named(request.call.op);
  if (request.call.says_nothing()) request.call.example = op.check_cases.front().name;
  BuildOptions options{.name = name_of(request), .targets = {}};
  std::vector<lang::Kernel> kernels;
  const auto call = resolve(request.call, Values::left_out);
  for (auto& target : request.targets) options.targets.push_back(target_named(target));
  // The tiles are those of the first target, if that is a GPU.
  for (auto& kernel : call.op.kernels(call.inputs, call.options, options.targets.front()))
    kernels.push_back(kernel);
  return build(kernels, request.out, options);
}

std::string statements_of(const BuildRequest& request) {
  std::string targets;
  for (auto& target : request.targets) targets += fmt::format("tegula::Target::{}(), ", target);
  return fmt::format(
      "for (auto& path : tegula::build(kernels, {}, {{.name = {}, .targets = {{{}}}}})) "
      "std::printf(\"%s\\n\", path.c_str());\n",
      literal(request.out), literal(name_of(request)), targets);
}

void run_build(BuildRequest request) {
  if (is_kernel_file(request.call.op)) {
    fmt::print("{}", run_kernel_file("build", request.call.op, statements_of(request), request.flags));
    return;
  }
  for (auto& path : bundle_of_call(request)) fmt::print("{}\n", path);
}

}  // namespace

void add_build(cli::App& app) {
  auto* command = app.add_subcommand(
      "build",
      "Compiles kernels ahead of time into a folder with a C header and a library that needs no compiler");
  auto request = std::make_shared<BuildRequest>();
  add_inputs(*command, request->call);
  command
      ->add_option("--target", request->targets, "cpu, and cuda (Hopper) or cuda_sm80; separated by a comma")
      ->delimiter(',')
      ->check(cli::IsMember({"cpu", "cuda", "cuda_sm80"}))
      ->capture_default_str();
  command->add_option("--out", request->out, "The folder, which is created if necessary")->required();
  command->add_option("--name", request->name,
                      "Name of the header and the library, and prefix of the functions; by default, that of "
                      "the operator or file");
  command->add_option("--flag", request->flags,
                      "For a file: an additional compiler flag, as in --flag=-Iinclude");
  command->footer(
      "For an operator, the kernels of one call are built; extents that its program does not fix remain\n"
      "variable. A source file, such as mine.cpp, lists its kernels: TEGULA_KERNELS(gemm_relu(128, 128,\n"
      "64)). No GPU is needed; code for GPUs needs NVRTC.\n"
      "\n"
      "Examples:\n"
      "  tegula build mine.cpp --target cpu,cuda --out bundle\n"
      "  tegula build gemm --random a=512x512:bf16 --random b=512x512:bf16 --target cuda --out bundle");
  command->callback([request] { run_build(*request); });
}

}  // namespace tegula::tool
