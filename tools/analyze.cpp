// analyze: what the kernels of an operator's call, or of a source file for given extents, have to do, and how
// long a machine needs at least.
#include "tegula/analyze.hpp"

#include <fmt/format.h>

#include "analyses.hpp"
#include "call.hpp"
#include "commands.hpp"
#include "kernel_files.hpp"
#include "names.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

namespace {

struct AnalyzeRequest {
  CallTexts call;  // of an operator, or the file
  std::string machine = "h100";
  std::vector<std::string> extents, flags;
};

void analyze_file(const AnalyzeRequest& request) {
  if (!request.call.says_nothing())
    throw ArgumentError(
        "analyze: --case, --input, --random and --option describe a call of an operator; a source file "
        "needs --extent");
  const std::string statements = fmt::format(
      "for (auto& kernel : kernels) std::printf(\"%s\\n%s\\n\", kernel.name().c_str(), {}.text().c_str());\n",
      statement_of_analysis("kernel", request.extents, machine(request.machine)));
  fmt::print("{}", run_kernel_file("analyze", request.call.op, statements, request.flags));
}

void analyze_operator(const AnalyzeRequest& request) {
  if (!request.extents.empty() || !request.flags.empty())
    throw ArgumentError(
        "analyze: --extent and --flag are for source files; describe the call of an operator by --case, "
        "--random and --option");
  const Machine& own = machine(request.machine);
  CallTexts texts = request.call;
  const ops::Operator& op = operator_named(texts.op);
  if (texts.says_nothing())
    texts.example = (op.bench_cases.empty() ? op.check_cases : op.bench_cases).front().name;
  const Call call = resolve(texts);
  fmt::print("{}, {} on {}\n\n", op.name, call.name, own.words);
  double seconds = 0;
  for (const Analysis& each : analyses_of(call, own)) {
    fmt::print("{}\n{}\n", each.kernel, each.text());
    seconds += each.seconds;
  }
  fmt::print("all kernels: at least {:.4g} us\n", 1e6 * seconds);
}

}  // namespace

void add_analyze(cli::App& app) {
  auto* command = app.add_subcommand(
      "analyze",
      "Operations, bytes, waves and the minimum time on a machine, for an operator's call or a source file");
  auto request = std::make_shared<AnalyzeRequest>();
  add_inputs(*command, request->call);
  add_extents(*command, request->extents);
  command->add_option("--machine", request->machine, names_of_machines())->capture_default_str();
  command->add_option("--flag", request->flags,
                      "For a file: an additional compiler flag, as in --flag=-Iinclude");
  command->footer(
      "Nothing runs, and no GPU is needed. Without inputs, the operator's first example meant for\n"
      "measuring is analysed. A source file, such as mine.cpp, lists its kernels:\n"
      "TEGULA_KERNELS(gemm_relu(128, 128, 64))\n"
      "\n"
      "Examples:\n"
      "  tegula analyze gemm --random a=4096x4096:bf16 --random b=4096x4096:bf16\n"
      "  tegula analyze attention --case 4096_causal --machine h200\n"
      "  tegula analyze mine.cpp --extent M=4096,N=4096,K=4096 --machine h200");
  command->callback([request] {
    if (is_kernel_file(request->call.op)) return analyze_file(*request);
    analyze_operator(*request);
  });
}

}  // namespace tegula::tool
