// analyze: what the kernels of an operator's call, or of a source file for given extents, have to do, and how
// long a machine needs at least.
#include "tegula/analyze.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

void analyze_file(const AnalyzeRequest& request) {
  if (!request.call.says_nothing())
    throw ArgumentError(
        "analyze: --case, --input, --random and --option describe a call of an operator; a source file "
        "needs --extent");
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
  fmt::print("{}", run_kernel_file("analyze", request.call.op, statements, request.flags));
}

// The target whose plans and programs that machine runs, also where there is none.
Target planned_for(const Machine& own) {
  if (!own.is_gpu) return Target::cpu();
  return own.architecture >= 90 ? Target::emulated_sm90() : Target::emulated();
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
  RecordedCalls recorded(RecordedCalls::Mode::nothing_runs);
  call.op.run(call.inputs, call.options, planned_for(own));
  fmt::print("{}, {} on {}\n\n", op.name, call.name, own.words);
  double seconds = 0;
  const std::vector<Analysis> all = analyses_of(recorded, own);
  for (std::size_t i = 0; i < all.size(); ++i) {
    fmt::print("{}\n{}\n", recorded.calls()[i].signature->kernel().name, all[i].text());
    seconds += all[i].seconds;
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
  command
      ->add_option("--extent", request->extents,
                   "For a file: name=value of a dim or a scalar; separate several by commas")
      ->delimiter(',');
  std::vector<std::string> names;
  for (auto& own : machines()) names.push_back(own.name);
  command->add_option("--machine", request->machine, fmt::format("{}", fmt::join(names, ", ")))
      ->capture_default_str();
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
