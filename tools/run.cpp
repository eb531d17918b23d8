// list and run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "call.hpp"
#include "commands.hpp"
#include "markdown.hpp"
#include "names.hpp"
#include "runtime/execution/explain.hpp"
#include "tegula/error.hpp"
#include "tensor_files.hpp"

namespace tegula::tool {

namespace {

std::string dtype_names(const std::vector<DType>& dtypes) {
  std::string names;
  for (auto type : dtypes) names += fmt::format("{}{}", names.empty() ? "" : "|", type.name());
  return names;
}

std::string values_of(const ops::OptionInfo& option) {
  if (option.choices.empty()) return std::string(ops::name_of(option.type));
  return fmt::format("{}", fmt::join(option.choices, "|"));
}

std::string case_names(const std::vector<ops::Case>& cases) {
  std::string names;
  for (auto& each : cases) names += " " + each.name;
  return names;
}

void describe(const ops::Operator& op) {
  fmt::print("{}: {}\n", op.name, op.summary);
  for (auto& input : op.inputs)
    fmt::print("  --input {}=…  {} {}{}  {}\n", input.name, dtype_names(input.dtypes), input.shape,
               input.required ? "" : " (optional)", input.meaning);
  for (auto& option : op.options)
    fmt::print("  --option {}=…  {}{}  {}\n", option.name, values_of(option),
               option.default_text.empty() ? "" : ", default " + option.default_text, option.meaning);
  for (auto& output : op.outputs)
    fmt::print("  --output {}=…  {} {}\n", output.name, output.dtype, output.shape);
  fmt::print("  --case, small:{}\n  --case, as measured:{}\n", case_names(op.check_cases),
             case_names(op.bench_cases));
}

void list(const std::string& name, bool markdown, const std::string& links) {
  if (!links.empty()) return fmt::print("{}", operators_in_brief(links));
  if (markdown) {
    fmt::print("{}", name.empty() ? operators_in_markdown() : operator_in_markdown(ops::find_schema(name)));
    return;
  }
  if (!name.empty()) return describe(operator_named(name));
  for (auto& op : ops::operators()) fmt::print("{:<24} {}\n", op.name, op.summary);
}

// Tensors stay on the host: what a GPU would do is told without one.
void explain_call(const CallTexts& texts, const std::vector<std::string>& outputs) {
  if (!outputs.empty()) throw ArgumentError("run: --explain runs nothing, so there is no output to write");
  auto call = resolve(texts);
  const ops::ListedCall listed = call.op.listed(call.inputs, call.options, call.target);
  for (auto& kernel : listed.kernels)
    fmt::print("{}", tegula::explain_call(kernel, call.target, call.inputs).text());
  for (auto& note : listed.notes) fmt::print("note: {}\n", note);
}

void run(const CallTexts& texts, const std::vector<std::string>& outputs) {
  auto files = destinations(operator_named(texts.op), outputs);
  expect_device(target_named(texts.target));
  auto call = resolve(texts);
  files = existing(files, call.op.results(call.inputs, call.options));
  auto results = ops::run_from_host(call.op, call.inputs, call.options, call.target);
  if (!files.empty()) return write_outputs(results, files);
  for (auto& [name, tensor] : results) fmt::print("{}: {}\n", name, describe(tensor.ref()));
}

}  // namespace

void add_list(cli::App& app) {
  auto* command =
      app.add_subcommand("list", "The operators, or the inputs, options, outputs and examples of one");
  auto name = std::make_shared<std::string>();
  command->add_option("operator", *name, "Name of the operator");
  auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown,
                    "Print the table of docs/reference, or the page of one operator there");
  command->footer("Examples:\n  tegula list\n  tegula list attention\n  tegula list gemm --markdown");
  auto links = std::make_shared<std::string>();
  command->add_option("--links", *links,
                      "Print a table of all operators with links to their pages in this folder");
  command->callback([name, markdown, links] { list(*name, *markdown, *links); });
}

void add_run(cli::App& app) {
  auto* command = app.add_subcommand("run", "Runs an operator on tensors in files");
  auto texts = std::make_shared<CallTexts>();
  auto outputs = std::make_shared<std::vector<std::string>>();
  add_call_options(*command, *texts);
  command->add_option("--output", *outputs,
                      "name=file.npy or name=file.safetensors[:tensor]; file.npy alone takes the first "
                      "output, file.safetensors alone all of them");
  auto explains = std::make_shared<bool>(false);
  command->add_flag("--explain", *explains,
                    "Run nothing: print the kernels of the call, how each is executed on --target, what "
                    "falls back to slower code and why; no GPU is needed");
  command->footer(
      "Inputs that are not given are taken from --case, if given. Without --output, results are only\n"
      "described.\n"
      "\n"
      "Examples:\n"
      "  tegula run gemm --input a=a.npy --input b=w.safetensors:proj --output c.npy\n"
      "  tegula run attention --input q=q.npy k=k.npy v=v.npy --option causal=true --output all.safetensors\n"
      "  tegula run gemm --random a=512x64:bf16 --random b=64x32:bf16\n"
      "  tegula run gemm --random a=512x64:bf16 --random b=64x32:bf16 --target cuda --explain");
  command->callback(
      [texts, outputs, explains] { *explains ? explain_call(*texts, *outputs) : run(*texts, *outputs); });
}

}  // namespace tegula::tool
