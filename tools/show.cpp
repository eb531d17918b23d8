// show: what an operator runs, as a program, as C++, and between the passes.
#include <fmt/format.h>

#include "call.hpp"
#include "codegen/cpu.hpp"
#include "commands.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

namespace {

struct Request {
  CallTexts call;
  bool ir = false, cpp = false;
};

void show_kernel(const lang::Kernel& kernel, const Request& request) {
  if (request.ir || !request.cpp) fmt::print("{}\n", kernel.text());
  if (request.cpp) fmt::print("{}\n", codegen::print_cpu(Signature(kernel.ir())).text);
}

void show(Request request) {
  if (request.cpp && request.call.target == "interpreter")
    throw ArgumentError("show --cpp: the interpreter runs no C++; leave --target out");
  if (request.call.says_nothing()) request.call.example = ops::find_operator(request.call.op).check_cases.front().name;
  auto call = resolve(request.call);
  for (auto& kernel : call.op.kernels(call.inputs, call.options, call.target)) show_kernel(kernel, request);
}

}  // namespace

void add_show(CLI::App& app) {
  auto* command = app.add_subcommand("show", "The tile programs that a call of an operator runs");
  auto request = std::make_shared<Request>();
  add_call_options(*command, request->call);
  command->add_flag("--ir", request->ir, "As text of the language (the default)");
  command->add_flag("--cpp", request->cpp, "As the C++ that is compiled for the CPU");
  command->footer(
      "Lines end with the place in the operator's source that they come from. Without inputs, those of its\n"
      "first example.");
  command->callback([request] { show(*request); });
}

}  // namespace tegula::tool
