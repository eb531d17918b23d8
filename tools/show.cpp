// show: what an operator, or a kernel of the user's own, runs: as a program, between the passes, as C++ and
// CUDA.
#include "tegula/show.hpp"

#include <fmt/format.h>

#include <set>

#include "analyses.hpp"
#include "call.hpp"
#include "commands.hpp"
#include "kernel_files.hpp"
#include "names.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

namespace {

struct ShowRequest {
  CallTexts call;
  ShowOptions options;
  std::string html;  // file of the report
  bool draws = false;
  std::string machine;                      // of the report's estimates; default: one of that architecture
  std::vector<std::string> extents, flags;  // for a file of kernels

  bool draws_any() const { return options.layout || options.schedule || options.shared_memory; }
  bool on_gpu() const { return options.cuda || draws_any() || options.resources || !html.empty(); }
  const Machine& estimated() const {
    return tegula::machine(!machine.empty() ? machine : options.architecture == 80 ? "a100" : "h100");
  }
  bool compiles() const { return options.passes || options.cpp || on_gpu(); }
  // The report is not all that is asked for.
  bool prints() const {
    return html.empty() || options.ir || options.passes || options.cpp || options.cuda || draws_any() ||
           options.resources;
  }
};

void check(const ShowRequest& request) {
  if (request.compiles() && request.call.target == "interpreter")
    throw ArgumentError(
        "show: the interpreter runs the program as it is written and compiles nothing; leave out --target "
        "interpreter, or ask for --ir");
  if (request.html.empty() && !(request.machine.empty() && request.extents.empty()))
    throw ArgumentError(
        "show: --extent and --machine are for the estimates of a report; add --html FILE, or use `tegula "
        "analyze`");
  if (!request.draws) return;
  if (!request.draws_any())
    throw ArgumentError(
        "show: --svg draws pictures; ask for --layout, --schedule or both, or --shared-memory");
  if (request.options.pictures.empty())
    throw ArgumentError("show: --svg '' names none; name a folder for the pictures");
}

// Of each kernel, by name; equal calls once.
std::vector<std::vector<Analysis>> analyses_by_kernel(const std::vector<lang::Kernel>& kernels,
                                                      const std::vector<Analysis>& all) {
  std::vector<std::vector<Analysis>> result(kernels.size());
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    std::set<std::string> texts;
    for (auto& own : all)
      if (own.kernel == kernels[i].name() && texts.insert(own.text()).second) result[i].push_back(own);
  }
  return result;
}

void show_call(ShowRequest& request) {
  if (!request.extents.empty())
    throw ArgumentError(
        "show: --extent is for source files; describe the call of an operator by --case, --random and "
        "--option");
  auto& op = operator_named(request.call.op);
  if (request.call.says_nothing()) request.call.example = op.check_cases.front().name;
  // The estimates of a report are of a call that runs.
  auto call = resolve(request.call, request.html.empty() ? Values::left_out : Values::made);
  if (call.target == Target::cuda_sm80()) request.options.architecture = 80;
  // The tiles are those of the device.
  if (request.on_gpu() && call.target == Target::automatic())
    call.target = request.options.architecture == 90 ? Target::cuda() : Target::cuda_sm80();
  const auto kernels = call.op.kernels(call.inputs, call.options, call.target);
  if (!request.html.empty()) {
    ReportOptions options;
    options.architecture = request.options.architecture;
    options.analyses = analyses_by_kernel(kernels, analyses_of(call, request.estimated()));
    write_report(request.html, kernels, options);
  }
  if (!request.prints()) return;
  fmt::print("{}", show(kernels, request.options));
}

// The statements that do the same with the kernels of a file.
void show_file(const ShowRequest& request) {
  const ShowOptions& o = request.options;
  std::string text =
      fmt::format("tegula::ShowOptions options;\noptions.architecture = {};\n", o.architecture);
  const auto set = [&](const char* name, bool value) {
    if (value) text += fmt::format("options.{} = true;\n", name);
  };
  set("ir", o.ir), set("passes", o.passes), set("cpp", o.cpp), set("cuda", o.cuda), set("layout", o.layout);
  set("schedule", o.schedule), set("shared_memory", o.shared_memory), set("resources", o.resources);
  set("for_gpu", o.for_gpu);
  if (request.draws) text += fmt::format("options.pictures = {};\n", literal(o.pictures));
  if (!request.html.empty()) {
    text += fmt::format("tegula::ReportOptions report;\nreport.architecture = {};\n", o.architecture);
    if (!request.extents.empty())
      text += fmt::format("for (auto& kernel : kernels) report.analyses.push_back({{{}}});\n",
                          statement_of_analysis("kernel", request.extents, request.estimated()));
    text += fmt::format("tegula::write_report({}, kernels, report);\n", literal(request.html));
  }
  if (request.prints()) text += "std::fputs(tegula::show(kernels, options).c_str(), stdout);\n";
  fmt::print("{}", run_kernel_file("show", request.call.op, text, request.flags));
}

void run_show(ShowRequest request) {
  check(request);
  const std::string& target = request.call.target;
  request.options.for_gpu = request.on_gpu() || target == "cuda" || target == "cuda_sm80";
  if (target == "cuda_sm80") request.options.architecture = 80;
  if (is_kernel_file(request.call.op)) return show_file(request);
  show_call(request);
}

void add_views(cli::Command& command, ShowOptions& options) {
  command.add_flag("--ir", options.ir, "As text of the language (the default)");
  command.add_flag(
      "--passes", options.passes,
      "As written, and what every pass of the compiler changes: for the CPU, or with --target cuda "
      "for a GPU");
  command.add_flag("--cpp", options.cpp, "As the C++ that is compiled for the CPU");
  command.add_flag("--cuda", options.cuda, "As the CUDA C++ that is compiled for a GPU");
  command.add_flag("--layout", options.layout,
                   "Instructions of products, and which threads and registers hold fragments, on a GPU");
  command.add_flag("--schedule", options.schedule,
                   "What the roles of a block do on a GPU, including all synchronisation");
  command.add_flag("--shared-memory", options.shared_memory,
                   "Where in shared memory the tiles of a block are on a GPU, and for how long");
  command.add_flag("--resources", options.resources,
                   "Threads, shared memory and registers of a block on a GPU; if NVRTC is found, also "
                   "registers of the machine code, spills and remarks of the assembler");
}

constexpr const char* show_footer =
    "Lines end with their source location. Without inputs, the operator's first example is shown. A\n"
    "source file, such as mine.cpp, lists its kernels:\n"
    "TEGULA_KERNELS(gemm_relu(128, 128, 64), gemm_relu(64, 64, 32))\n"
    "\n"
    "Examples:\n"
    "  tegula show attention\n"
    "  tegula show mine.cpp --cuda --schedule\n"
    "  tegula show mine.cpp --html mine.html --extent M=4096,N=4096,K=4096\n"
    "  tegula show gemm --case ragged_bias_gelu --passes\n"
    "  tegula show gemm --random a=512x512:bf16 --random b=512x512:bf16 --cpp\n"
    "  tegula show attention --case 4096_causal --cuda --arch 80\n"
    "  tegula show attention --case 1024_grouped_bf16 --layout --schedule --svg pictures";

}  // namespace

void add_show(cli::App& app) {
  auto* command = app.add_subcommand(
      "show", "The tile programs that a call of an operator runs, or those of a source file");
  auto request = std::make_shared<ShowRequest>();
  add_call_options(*command, request->call);
  add_views(*command, request->options);
  auto* svg = command->add_option("--svg", request->options.pictures,
                                  "Draw --layout, --schedule and --shared-memory into files in this folder "
                                  "instead, one picture per grid");
  command->add_option(
      "--html", request->html,
      "Write everything for a GPU, the program beside its generated code, into this HTML file");
  add_extents(*command, request->extents);
  command->add_option("--machine", request->machine,
                      fmt::format("Of the estimates in an HTML file: {} [h100, or a100 with --arch 80]",
                                  names_of_machines()));
  command->add_option("--flag", request->flags,
                      "For a file: an additional compiler flag, as in --flag=-Iinclude");
  command
      ->add_option("--arch", request->options.architecture,
                   "Of the GPU: 80, 90, or 100, which gets the code for 80")
      ->check(cli::IsMember({"80", "90", "100"}))
      ->capture_default_str();
  command->footer(show_footer);
  command->callback([request, svg] {
    request->draws = svg->count() > 0;
    run_show(*request);
  });
}

}  // namespace tegula::tool
