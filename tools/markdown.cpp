#include "markdown.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/schema/words.hpp"

namespace tegula::tool {

namespace {

using ops::OperatorSchema;
using ops::OptionSpec;
using ops::TensorSpec;

// A cell of a table, where a bar would end it.
std::string cell_text(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '|' ? std::string("\\|") : std::string(1, c);
  return result.empty() ? " " : result;
}

std::string table_row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += " " + cell_text(cell) + " |";
  return row + "\n";
}

std::string table_head(const std::vector<std::string>& names) {
  std::string rule = "|";
  for (std::size_t i = 0; i < names.size(); ++i) rule += "---|";
  return table_row(names) + rule + "\n";
}

std::string extents_text(const ops::DimList& list) {
  std::string result;
  for (const ops::DimItem& item : list.items) {
    const std::string extent = item.leading ? "..." : item.extent.text();
    result += (result.empty() ? "" : ", ") + (item.optional ? "(" + extent + ")" : extent);
  }
  return "[" + result + "]";
}

std::string shapes_text(const TensorSpec& tensor) {
  std::string result;
  for (const ops::DimList& list : tensor.lists)
    result += fmt::format("{}`{}`{}", result.empty() ? "" : "; ", extents_text(list),
                          list.condition ? fmt::format(" if `{}`", list.condition->text()) : "");
  return result;
}

std::string dtypes_text(const TensorSpec& tensor) {
  const ops::TypeRule& rule = tensor.type;
  std::string text = rule.like.empty() ? ops::names_of(rule.types) : fmt::format("that of `{}`", rule.like);
  if (rule.of_8_bits) text += fmt::format(", {} for fp8", rule.of_8_bits->name());
  return rule.option.empty() ? text : fmt::format("`{}`, or {}", rule.option, text);
}

std::string meaning_text(const TensorSpec& tensor) {
  std::string text = tensor.meaning;
  if (tensor.written) text += "; written in place";
  if (tensor.optional) text += "; optional";
  if (tensor.unit_stride) text += "; stride 1 along the last dimension";
  if (tensor.when) text += fmt::format("; if `{}`", tensor.when->text());
  return text;
}

std::string default_text(const OptionSpec& option) {
  if (option.needed) return "must be given";
  if (option.otherwise) return fmt::format("`{}`", option.otherwise->text());
  if (std::holds_alternative<std::monostate>(option.fallback)) return "chosen by the operator";
  return fmt::format("`{}`", ops::text_of(option.fallback));
}

// Arithmetic that is longer, as that of windows is, tells a reader nothing.
std::string operations_text(const OperatorSchema& schema) {
  constexpr std::size_t longest = 200;
  const std::string text = schema.flops ? schema.flops->text() : "";
  return text.empty() || text.size() > longest ? "" : fmt::format("Operations: `{}`.\n\n", text);
}

std::string names_of_tensors(const OperatorSchema& schema, bool outputs) {
  std::string names;
  for (const TensorSpec& tensor : schema.tensors)
    if (tensor.output == outputs)
      names += fmt::format("{}`{}`{}", names.empty() ? "" : ", ", tensor.name, tensor.optional ? "?" : "");
  return names;
}

std::string tensors_table(const OperatorSchema& schema, bool outputs) {
  std::string text = table_head({outputs ? "result" : "input", "dims", "dtype", "what"});
  for (const TensorSpec& tensor : schema.tensors)
    if (tensor.output == outputs)
      text += table_row(
          {"`" + tensor.name + "`", shapes_text(tensor), dtypes_text(tensor), meaning_text(tensor)});
  return text + "\n";
}

std::string options_table(const OperatorSchema& schema) {
  if (schema.options.empty()) return "";
  std::string text = table_head({"option", "values", "default", "what"});
  for (const OptionSpec& option : schema.options)
    text +=
        table_row({"`" + option.name + "`", ops::expected_of(option), default_text(option), option.meaning});
  return text + "\n";
}

std::string rules_list(const OperatorSchema& schema) {
  if (schema.requirements.empty()) return "";
  std::string text = "Rules beyond dims and dtypes:\n\n";
  for (const ops::RequirementSpec& rule : schema.requirements)
    text += fmt::format("- `{}`: {}; {}\n", rule.argument, rule.expected, rule.remedy);
  return text + "\n";
}

std::string gradient_text(const OperatorSchema& schema) {
  if (!schema.gradient.empty()) return fmt::format("Gradient: [`{0}`]({0}.md).\n\n", schema.gradient);
  return schema.no_gradient.empty()
             ? ""
             : fmt::format("No operator for its gradient: {}.\n\n", schema.no_gradient);
}

std::string examples_text(const OperatorSchema& schema) {
  std::string text = "```\n";
  for (const ops::Example& example : schema.examples)
    text += fmt::format("tegula check {} --case {:<20}  # {}\n", schema.name, example.name, example.text);
  return text + "```\n";
}

}  // namespace

std::string operators_in_markdown() {
  std::string text = table_head({"operator", "what", "inputs", "results", "gradient"});
  for (const OperatorSchema* schema : ops::operator_schemas())
    text += table_row({fmt::format("[`{0}`]({0}.md)", schema->name), schema->doc,
                       names_of_tensors(*schema, false), names_of_tensors(*schema, true),
                       schema->gradient.empty() ? "" : fmt::format("[`{0}`]({0}.md)", schema->gradient)});
  return text;
}

std::string operators_in_brief(const std::string& folder) {
  std::string text = table_head({"operator", "what"});
  for (const OperatorSchema* schema : ops::operator_schemas()) {
    if (schema->forward() != nullptr) continue;
    const std::string gradients =
        schema->gradient.empty() ? ""
                                 : fmt::format("; gradients: [`{0}`]({1}/{0}.md)", schema->gradient, folder);
    text += table_row({fmt::format("[`{0}`]({1}/{0}.md)", schema->name, folder), schema->doc + gradients});
  }
  return text;
}

std::string operator_in_markdown(const OperatorSchema& schema) {
  std::string text = fmt::format("# {}\n\n", schema.name);
  text += static_cast<char>(std::toupper(static_cast<unsigned char>(schema.doc[0]))) + schema.doc.substr(1) +
          ".\n\n";
  text += fmt::format("`ops::{0}` in C++, `tegula.{0}` in Python, `tegula run {0}` on the command line.\n\n",
                      schema.name);
  text += tensors_table(schema, false) + options_table(schema) + tensors_table(schema, true);
  if (schema.tensors.size() > schema.inputs && !schema.dims.empty())
    text += "Dims in parentheses may be missing; `...` stands for any number of leading ones.\n\n";
  text += rules_list(schema) + gradient_text(schema);
  text += operations_text(schema);
  if (!schema.source.empty()) text += fmt::format("Source: {}.\n\n", schema.source);
  return text + examples_text(schema);
}

}  // namespace tegula::tool
