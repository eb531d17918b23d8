// check: every operator against its formula in double precision.
#include <fmt/format.h>

#include "call.hpp"
#include "commands.hpp"
#include "compare.hpp"
#include "names.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

namespace {

struct CheckRequest {
  std::string op, example, target = "auto";
  std::uint64_t seed = 1;
};

void print_verdict(const std::string& op, const std::string& example, const CaseVerdict& verdict) {
  for (auto& output : verdict.outputs)
    fmt::print("{:<24} {:<24} {:<8} {:>9.2e} {:>9.2e}  {}\n", op, example, output.output, output.error,
               output.allowed, output.right() ? "ok" : "WRONG: " + output.wrong);
  if (!verdict.failure.empty()) fmt::print("{:<24} {:<24} FAILED: {}\n", op, example, verdict.failure);
  std::fflush(stdout);
}

// An unknown case is an ArgumentError that names those there are.
void expect_case(const ops::Operator& op, const std::string& name) {
  std::vector<std::string> names;
  for (auto& example : op.check_cases) {
    if (example.name == name) return;
    names.push_back(example.name);
  }
  throw ArgumentError(unknown_name("case of " + op.name, name, names));
}

// The number of cases that are not right.
int check(const CheckRequest& request) {
  int cases = 0, bad = 0;
  auto target = target_named(request.target);
  auto* only = request.op.empty() ? nullptr : &operator_named(request.op);
  if (!request.example.empty()) {
    if (!only) throw ArgumentError("--case: an operator is needed, whose case it is");
    expect_case(*only, request.example);
  }
  expect_device(target);
  fmt::print("{:<24} {:<24} {:<8} {:>9} {:>9}\n", "operator", "case", "output", "error", "bound");
  for (auto& op : ops::operators()) {
    if (only && only != &op) continue;
    for (auto& example : op.check_cases) {
      if (!request.example.empty() && example.name != request.example) continue;
      auto verdict = check_case(op, example, target, request.seed);
      print_verdict(op.name, example.name, verdict);
      ++cases;
      if (!verdict.right()) ++bad;
    }
  }
  fmt::print("{} of {} cases right\n", cases - bad, cases);
  return bad;
}

}  // namespace

void add_check(cli::App& app, int& exit_code) {
  auto* command = app.add_subcommand("check", "Compares operators with their formulas in double precision");
  auto request = std::make_shared<CheckRequest>();
  command->add_option("operator", request->op, "Name of the operator; all operators by default");
  command->add_option("--case", request->example, "The only case of the operator; all by default");
  add_target_option(*command, request->target);
  command->add_option("--seed", request->seed, "Of the random inputs")->capture_default_str();
  command->footer(
      "`error` and `bound` are those of the element closest to its bound, or farthest beyond it.\n"
      "Exit status 1 if any case is wrong or fails.\n\n"
      "Examples:\n"
      "  tegula check\n"
      "  tegula check gemm --case square\n"
      "  tegula check attention --target interpreter --seed 7");
  command->callback([request, &exit_code] {
    if (check(*request) > 0) exit_code = 1;
  });
}

}  // namespace tegula::tool
