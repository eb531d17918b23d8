// The command-line tool: lists the operators, runs them on files and checks them against their formulas.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "ops/registry.hpp"
#include "runtime/environment.hpp"
#include "tegula/error.hpp"
#include "tegula/files.hpp"

namespace tegula {
namespace {

struct RunArguments {
  std::string op;
  std::vector<std::string> inputs, options, outputs;
};

std::pair<std::string, std::string> split_assignment(const std::string& text, const char* what) {
  const std::size_t at = text.find('=');
  if (at == 0 || at == std::string::npos)
    throw ArgumentError(fmt::format("{} '{}' is not of the form name=value", what, text));
  return {text.substr(0, at), text.substr(at + 1)};
}

Tensor read_tensor(const std::string& place) {
  const std::string marker = ".safetensors:";
  const std::size_t at = place.rfind(marker);
  if (at == std::string::npos) return read_npy(place);
  return SafetensorsFile(place.substr(0, at + marker.size() - 1)).read(place.substr(at + marker.size()));
}

void list() {
  for (const ops::Operator& op : ops::operators()) {
    fmt::print("{}: {}\n", op.name, op.summary);
    for (const ops::InputInfo& input : op.inputs)
      fmt::print("  input  {:<14} {}{}  {}\n", input.name, input.shape, input.required ? "" : " (optional)",
                 input.meaning);
    for (const ops::OutputInfo& output : op.outputs)
      fmt::print("  output {:<14} {} {}\n", output.name, output.dtype, output.shape);
    for (const ops::OptionInfo& option : op.options)
      fmt::print("  option {:<14} {}, default {}: {}\n", option.name, ops::name_of(option.type),
                 option.default_text.empty() ? "chosen by the operator" : option.default_text,
                 option.meaning);
  }
}

void write_output(const std::string& text, const ops::Operator& op, const ops::Tensors& outputs) {
  const bool named = text.find('=') != std::string::npos;
  const auto [name, path] =
      named ? split_assignment(text, "output") : std::pair(op.outputs.front().name, text);
  const auto found = outputs.find(name);
  if (found == outputs.end())
    throw ArgumentError(fmt::format("{} has no output '{}'; see tegula list", op.name, name));
  write_npy(path, found->second);
  fmt::print("{}: {} -> {}\n", name, describe(found->second.ref()), path);
}

void run(const RunArguments& arguments) {
  const ops::Operator& op = ops::find_operator(arguments.op);
  ops::OptionTexts texts;
  for (const std::string& text : arguments.options) texts.insert(split_assignment(text, "option"));
  const ops::Options options = ops::Options::parse(op, texts);
  ops::Tensors inputs;
  for (const std::string& text : arguments.inputs) {
    const auto [name, path] = split_assignment(text, "input");
    inputs.insert_or_assign(name, read_tensor(path));
  }
  ops::check_inputs(op, inputs);
  const ops::Tensors outputs = op.run(inputs, options, Target::automatic());
  for (const std::string& text : arguments.outputs) write_output(text, op, outputs);
}

// Whether the case agrees with its formula; prints a line.
bool check_case(const ops::Operator& op, const ops::Case& example) {
  const ops::Options options = ops::Options::parse(op, example.options);
  const ops::Tensors inputs = example.inputs(1);
  const ops::Tensors expected = op.reference(inputs, options);
  const ops::Tensors actual = op.run(inputs, options, Target::automatic());
  const auto tolerance = op.tolerance(inputs, options);
  bool good = true;
  double worst = 0;
  for (const auto& [name, reference] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end()) throw InternalError(fmt::format("{} gave no output '{}'", op.name, name));
    good = good && all_close(found->second, reference, tolerance.absolute, tolerance.relative);
    const double error = max_abs_difference(found->second, reference);
    worst = std::isnan(error) ? error : std::max(worst, error);
  }
  fmt::print("{:<24} {:<40} {:>10.2e}  {}\n", op.name, example.name, worst, good ? "ok" : "WRONG");
  std::fflush(stdout);
  return good;
}

bool check(const std::string& name) {
  bool good = true;
  fmt::print("{:<24} {:<40} {:>10}\n", "operator", "case", "worst error");
  for (const ops::Operator& op : ops::operators()) {
    if (!name.empty() && op.name != ops::find_operator(name).name) continue;
    for (const ops::Case& example : op.check_cases) good = check_case(op, example) && good;
  }
  return good;
}

int dispatch(int argc, char** argv) {
  CLI::App app("Tegula: a tile language, its compiler, and operators for sparse attention.", "tegula");
  app.set_version_flag("--version", "tegula " TEGULA_VERSION);
  app.require_subcommand(1);
  CLI::App* list_command = app.add_subcommand("list", "The operators, their inputs, outputs and options");
  CLI::App* env_command = app.add_subcommand("env", "The environment variables");

  RunArguments arguments;
  CLI::App* run_command = app.add_subcommand("run", "Run an operator on files");
  run_command->add_option("operator", arguments.op, "Name of the operator")->required();
  run_command->add_option("--input", arguments.inputs, "name=file.npy or name=file.safetensors:member");
  run_command->add_option("--option", arguments.options, "name=value");
  run_command->add_option("--output", arguments.outputs, "file.npy for the first output, or name=file.npy")
      ->required();

  std::string checked;
  CLI::App* check_command = app.add_subcommand("check", "Compare operators with their formulas");
  check_command->add_option("operator", checked, "Name of the operator; all of them unless given");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? 0 : 2; }
  if (list_command->parsed()) list();
  if (env_command->parsed()) fmt::print("{}", describe_variables());
  if (run_command->parsed()) run(arguments);
  if (check_command->parsed()) return check(checked) ? 0 : 1;
  return 0;
}

}  // namespace
}  // namespace tegula

int main(int argc, char** argv) {
  try {
    return tegula::dispatch(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tegula: {}\n", error.what());
    return 1;
  }
}
