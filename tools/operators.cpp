// list, run and show.
#include <fmt/format.h>

#include "calls.hpp"
#include "commands.hpp"
#include "tegula/error.hpp"
#include "tegula/files.hpp"

namespace tegula::tool {

namespace {

struct Call {
  std::string op, target = "auto";
  std::vector<std::string> inputs, options, outputs;
};

std::string dtype_names(const std::vector<DType>& dtypes) {
  std::string names;
  for (auto type : dtypes) names += (names.empty() ? "" : "|") + std::string(type.name());
  return names;
}

void describe(const ops::Operator& op) {
  fmt::print("{}: {}\n", op.name, op.summary);
  for (auto& input : op.inputs)
    fmt::print("  --input {}=…  {} {}{}  {}\n", input.name, dtype_names(input.dtypes), input.shape,
               input.required ? "" : " (optional)", input.meaning);
  for (auto& option : op.options)
    fmt::print("  --option {}=…  {}{}  {}\n", option.name, ops::name_of(option.type),
               option.default_text.empty() ? "" : ", default " + option.default_text, option.meaning);
  for (auto& output : op.outputs)
    fmt::print("  --output {}=…  {} {}\n", output.name, output.dtype, output.shape);
}

void list(const std::string& name) {
  if (!name.empty()) return describe(ops::find_operator(name));
  for (auto& op : ops::operators()) fmt::print("{:<24} {}\n", op.name, op.summary);
}

// `out.npy` stands for the only output; others are named.
void write_outputs(const ops::Operator& op, const ops::Tensors& results,
                   const std::vector<std::string>& texts) {
  for (auto& text : texts) {
    bool named = text.find('=') != std::string::npos;
    auto [name, path] = named ? split_pair("--output", text) : std::pair(op.outputs.front().name, text);
    auto found = results.find(name);
    if (found == results.end())
      throw ArgumentError(
          fmt::format("--output {}: {} has no such output; see `tegula list {}`", name, op.name, op.name));
    write_npy(path, found->second);
    fmt::print("{}: {} -> {}\n", name, describe(found->second.ref()), path);
  }
}

void run(const Call& call) {
  auto& op = ops::find_operator(call.op);
  auto options = ops::Options::parse(op, option_texts(call.options));
  auto results = op.run(read_inputs(call.inputs), options, target_named(call.target));
  if (!call.outputs.empty()) return write_outputs(op, results, call.outputs);
  for (auto& [name, tensor] : results) fmt::print("{}: {}\n", name, describe(tensor.ref()));
}

// Without inputs, those of the operator's first example.
void show(const Call& call) {
  auto& op = ops::find_operator(call.op);
  auto& example = op.check_cases.front();
  auto texts = option_texts(call.options);
  if (call.inputs.empty() && texts.empty()) texts = example.options;
  auto options = ops::Options::parse(op, texts);
  auto inputs = call.inputs.empty() ? example.inputs(1) : read_inputs(call.inputs);
  for (auto& kernel : op.kernels(inputs, options, target_named(call.target)))
    fmt::print("{}\n", kernel.text());
}

void add_call_options(CLI::App& command, Call& call) {
  command.add_option("operator", call.op, "Name of the operator; see `tegula list`")->required();
  command.add_option("--input", call.inputs, "name=file.npy, or name=file.safetensors:tensor");
  command.add_option("--option", call.options, "name=value; see `tegula list OPERATOR`");
  command.add_option("--target", call.target, "auto, interpreter or cpu")
      ->check(CLI::IsMember({"auto", "interpreter", "cpu"}))
      ->capture_default_str();
}

}  // namespace

void add_list(CLI::App& app) {
  auto* command = app.add_subcommand("list", "The operators, or the inputs, options and outputs of one");
  auto name = std::make_shared<std::string>();
  command->add_option("operator", *name, "Name of the operator");
  command->callback([name] { list(*name); });
}

void add_run(CLI::App& app) {
  auto* command = app.add_subcommand("run", "Runs an operator on tensors in files");
  auto call = std::make_shared<Call>();
  add_call_options(*command, *call);
  command->add_option("--output", call->outputs, "name=file.npy, or file.npy for the first output");
  command->callback([call] { run(*call); });
}

void add_show(CLI::App& app) {
  auto* command = app.add_subcommand("show", "The tile programs that an operator runs");
  auto call = std::make_shared<Call>();
  add_call_options(*command, *call);
  auto as_text = std::make_shared<bool>(true);
  command->add_flag("--ir", *as_text, "As text of the language (the default)");
  command->callback([call, as_text] { show(*call); });
}

}  // namespace tegula::tool
