// analyze: what the kernels of a source file have to do for given extents, and how long a machine needs at
// least.
#include "tegula/analyze.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "call.hpp"
#include "commands.hpp"
#include "kernel_files.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

namespace {

struct AnalyzeRequest {
  std::string file, machine = "h100";
  std::vector<std::string> extents, flags;
};

double number_of(const std::string& text, const std::string& value) {
  std::size_t end = 0;
  double number = 0;
  try {
    number = std::stod(value, &end);
  } catch (const std::exception&) { end = 0; }
  if (end == 0 || end != value.size())
    throw ArgumentError("--extent " + text + ": '" + value + "' is no number");
  return number;
}

void run_analyze(const AnalyzeRequest& request) {
  if (!is_kernel_file(request.file))
    throw ArgumentError(fmt::format(
        "analyze: '{}' is no source file, such as mine.cpp; for operators there is `tegula bench`",
        request.file));
  std::vector<std::string> pairs;
  for (auto& text : request.extents) {
    const auto [name, value] = split_pair("--extent", text);
    pairs.push_back(fmt::format("{{{}, {}}}", literal(name), number_of(text, value)));
  }
  const std::string statements = fmt::format(
      "for (auto& kernel : kernels) std::printf(\"%s\\n%s\\n\", kernel.name().c_str(), "
      "tegula::analyze(kernel, {{{}}}, "
      "tegula::machine({})).text().c_str());\n",
      fmt::join(pairs, ", "), literal(machine(request.machine).name));
  fmt::print("{}", run_kernel_file("analyze", request.file, statements, request.flags));
}

}  // namespace

void add_analyze(cli::App& app) {
  auto* command = app.add_subcommand(
      "analyze", "Operations, bytes, waves and the least time of the kernels of a source file on a machine");
  auto request = std::make_shared<AnalyzeRequest>();
  command
      ->add_option("file", request->file,
                   "Such as mine.cpp, which says: TEGULA_KERNELS(gemm_relu(128, 128, 64))")
      ->required();
  command
      ->add_option("--extent", request->extents,
                   "name=value of a dim or a scalar; with commas between several")
      ->delimiter(',');
  std::vector<std::string> names;
  for (auto& own : machines()) names.push_back(own.name);
  command->add_option("--machine", request->machine, fmt::format("{}", fmt::join(names, ", ")))
      ->capture_default_str();
  command->add_option("--flag", request->flags, "A further flag of the compiler, as in --flag=-Iinclude");
  command->footer("Example:\n  tegula analyze mine.cpp --extent M=4096,N=4096,K=4096 --machine h200");
  command->callback([request] { run_analyze(*request); });
}

}  // namespace tegula::tool
