// The tables of operators as data of Python: functions, stubs, documents, fake tensors and gradients are made
// from them.
#include "ops/schema/table.hpp"

#include <nanobind/nanobind.h>

#include "dtypes.hpp"
#include "operators.hpp"
#include "ops/schema/words.hpp"
#include "table.hpp"

namespace tegula::python {

namespace nb = nanobind;

using ops::DimItem;
using ops::DimList;
using ops::Expression;
using ops::OperatorSchema;
using ops::OptionSpec;
using ops::OptionValue;
using ops::TensorSpec;
using ops::TypeRule;

namespace {

// A number, a name, ("is", name, position of the choice), or an operation and its arguments.
nb::object exported(const Expression& e) {
  if (e.op == Expression::Op::constant) return nb::int_(e.value);
  if (e.op == Expression::Op::name) return nb::str(e.name.c_str());
  if (e.op == Expression::Op::is_choice) return nb::make_tuple("is", e.name.c_str(), e.value);
  nb::list nodes;
  nodes.append(nb::str(name_of(e.op).data(), name_of(e.op).size()));
  for (const Expression& arg : e.args) nodes.append(exported(arg));
  return nb::tuple(nodes);
}

nb::object exported(const std::optional<Expression>& e) { return e ? exported(*e) : nb::none(); }

nb::list strings(const std::vector<std::string>& texts) {
  nb::list result;
  for (const std::string& text : texts) result.append(nb::str(text.c_str()));
  return result;
}

nb::list dtypes(const std::vector<DType>& types) {
  nb::list result;
  for (const DType type : types) result.append(nb::str(python_name(type)));
  return result;
}

nb::dict exported(const DimItem& item) {
  nb::dict result;
  result["extent"] = exported(item.extent);
  result["text"] = item.leading ? "..." : item.extent.text().c_str();
  result["optional"] = item.optional, result["repeats"] = item.repeats, result["leading"] = item.leading;
  return result;
}

nb::dict exported(const DimList& list) {
  nb::list items;
  for (const DimItem& item : list.items) items.append(exported(item));
  nb::dict result;
  result["condition"] = exported(list.condition);
  result["condition_text"] = list.condition ? list.condition->text().c_str() : "";
  result["items"] = items;
  return result;
}

nb::dict exported(const TensorSpec& tensor) {
  nb::list lists;
  for (const DimList& list : tensor.lists) lists.append(exported(list));
  const TypeRule& rule = tensor.type;
  nb::dict result;
  result["name"] = tensor.name.c_str(), result["meaning"] = tensor.meaning.c_str();
  result["lists"] = lists;
  result["dtypes"] = dtypes(rule.types);
  result["like"] = rule.like.c_str(), result["dtype_option"] = rule.option.c_str();
  result["of_8_bits"] = rule.of_8_bits ? python_name(*rule.of_8_bits) : "";
  result["optional"] = tensor.optional, result["unit_stride"] = tensor.unit_stride;
  result["converts"] = tensor.converts, result["written"] = tensor.written;
  result["steps_of"] = tensor.steps_of.c_str();
  result["when"] = exported(tensor.when);
  result["when_text"] = tensor.when ? tensor.when->text().c_str() : "";
  return result;
}

nb::dict exported(const OptionSpec& option) {
  nb::dict result;
  result["name"] = option.name.c_str(), result["meaning"] = option.meaning.c_str();
  result["kind"] = nb::str(name_of(option.kind).data(), name_of(option.kind).size());
  result["default"] = value_of_option(option.fallback, option.small);
  result["otherwise"] = option.otherwise ? option.otherwise->text().c_str() : "";
  result["needed"] = option.needed;
  result["choices"] = strings(option.choices);
  result["expected"] = expected_of(option).c_str();
  result["rule"] = option.rule.expected.c_str();
  result["low"] = option.rule.low ? nb::object(nb::float_(*option.rule.low)) : nb::none();
  result["high"] = option.rule.high ? nb::object(nb::float_(*option.rule.high)) : nb::none();
  return result;
}

nb::list exported(const std::vector<ops::Example>& examples) {
  nb::list result;
  for (const ops::Example& example : examples)
    result.append(nb::make_tuple(example.name.c_str(), example.text.c_str()));
  return result;
}

nb::list rules(const OperatorSchema& schema) {
  nb::list result;
  for (const ops::RequirementSpec& rule : schema.requirements)
    result.append(nb::make_tuple(rule.argument.c_str(), rule.expected.c_str(), rule.remedy.c_str(),
                                 exported(rule.condition)));
  return result;
}

nb::dict exported(const OperatorSchema& schema) {
  nb::list inputs, outputs, options, derived;
  for (std::size_t i = 0; i < schema.tensors.size(); ++i)
    (i < schema.inputs ? inputs : outputs).append(exported(schema.tensors[i]));
  for (const OptionSpec& option : schema.options) options.append(exported(option));
  for (const ops::NamedExpression& each : schema.derived)
    derived.append(nb::make_tuple(each.name.c_str(), exported(each.value)));
  nb::dict result;
  result["name"] = schema.name.c_str(), result["doc"] = schema.doc.c_str();
  result["source"] = schema.source.c_str();
  result["inputs"] = inputs, result["outputs"] = outputs, result["options"] = options;
  result["dims"] = strings(schema.dims), result["derived"] = derived;
  result["gradient"] = schema.gradient.c_str(), result["no_gradient"] = schema.no_gradient.c_str();
  result["composed"] = schema.composed;
  result["flops"] = exported(schema.flops);
  result["rules"] = rules(schema);
  result["examples"] = exported(schema.examples);
  return result;
}

nb::list tables() {
  nb::list result;
  for (const OperatorSchema* schema : ops::operator_schemas()) result.append(exported(*schema));
  return result;
}

}  // namespace

nb::object value_of_option(const OptionValue& value, bool small) {
  struct {
    bool small;
    nb::object operator()(std::monostate) const { return nb::none(); }
    nb::object operator()(bool b) const { return nb::bool_(b); }
    nb::object operator()(std::int64_t i) const { return nb::int_(i); }
    nb::object operator()(double x) const {
      return small ? nb::float_(nb::str(ops::text_of(OptionValue(x)).c_str())) : nb::float_(x);
    }
    nb::object operator()(const std::string& text) const { return nb::str(text.c_str()); }
  } export_value{small};
  return std::visit(export_value, value);
}

void define_tables(nb::module_& module) {
  module.def(
      "dtypes",
      [] {
        nb::list result;
        for (const DType dtype : all_dtypes)
          result.append(nb::make_tuple(python_name(dtype), std::string(dtype.name()).c_str()));
        return result;
      },
      "The names of dtypes, each in Python and in the library.");
  module.def("tables", tables, "The tables of all operators.");
}

}  // namespace tegula::python
