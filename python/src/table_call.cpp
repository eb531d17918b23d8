// Calls of operators by their tables: one function for all of them.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>

#include "call.hpp"
#include "dtypes.hpp"
#include "errors.hpp"
#include "operators.hpp"
#include "ops/schema/exact.hpp"
#include "ops/schema/example.hpp"
#include "ops/schema/judge.hpp"
#include "ops/schema/launch.hpp"
#include "ops/schema/words.hpp"
#include "options.hpp"
#include "table.hpp"
#include "tegula/error.hpp"

namespace tegula::python {

using ops::BoundCall;
using ops::OperatorSchema;
using ops::OptionKind;
using ops::OptionSpec;
using ops::OptionValue;

namespace {

// "float32" of "float32", numpy.float32 and torch.float32.
std::string dtype_text(nb::handle given) {
  if (PyUnicode_Check(given.ptr())) return nb::str(given).c_str();
  if (PyType_Check(given.ptr())) return nb::str(given.attr("__name__")).c_str();
  const std::string text = nb::str(given).c_str();
  return text.substr(text.rfind('.') + 1);
}

// The whole text, also after a zero character.
std::string whole_text(nb::handle given) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(given.ptr(), &size);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<std::size_t>(size)};
}

std::string_view library_name(std::string_view python) {
  for (const DType dtype : all_dtypes)
    if (python == python_name(dtype)) return dtype.name();
  return python;
}

// The value of an option, converted by its kind.
class OptionReader {
 public:
  OptionReader(const OperatorSchema& schema, const OptionSpec& option, nb::handle given)
      : schema_(schema), option_(option), given_(given) {}

  OptionValue value() const {
    switch (option_.kind) {
      case OptionKind::boolean:
        if (given_.ptr() != Py_True && given_.ptr() != Py_False) refuse_type("bool");
        return given_.ptr() == Py_True;
      case OptionKind::integer:
        return integer();
      case OptionKind::real:
        return real();
      case OptionKind::choice:
        if (!PyUnicode_Check(given_.ptr())) refuse_type("str");
        return choice(whole_text(given_));
      case OptionKind::dtype:
        break;
    }
    return choice(std::string(library_name(dtype_text(given_))));
  }

 private:
  [[noreturn]] void refuse_type(const char* expected) const {
    const std::string type = given_.is_none() ? "None" : nb::type_name(given_.type()).c_str();
    throw nb::type_error(fmt::format("{}, argument '{}': expected {}, given {}; {}", schema_.name,
                                     option_.name, expected, type, option_.meaning)
                             .c_str());
  }
  [[noreturn]] void refuse_failed(const char* expected) const {
    const nb::python_error error;
    if (passes_through(error)) throw error;
    refuse_type(expected);
  }
  OptionValue integer() const {
    nb::object index = nb::borrow(given_);
    if (!PyLong_Check(given_.ptr())) {
      index = nb::steal(PyNumber_Index(given_.ptr()));
      if (!index.is_valid()) refuse_failed("int");
    }
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    const bool is_small = value == static_cast<std::int32_t>(value);
    if (overflow != 0 || (option_.small && !is_small))
      throw nb::type_error(fmt::format("{}, argument '{}': expected an integer of {} bits, given {}",
                                       schema_.name, option_.name, option_.small ? 32 : 64,
                                       nb::str(index).c_str())
                               .c_str());
    return value;
  }
  OptionValue real() const {
    const double value = PyFloat_AsDouble(given_.ptr());
    if (value == -1.0 && PyErr_Occurred()) refuse_failed("float");
    return value;
  }
  OptionValue choice(std::string text) const {
    const auto& choices = option_.choices;
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return text;
    for (std::size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) text.replace(at, 1, "\\0");
    throw ArgumentError(fmt::format("{}, argument '{}': expected {}, given '{}'; {}", schema_.name,
                                    option_.name, expected_of(option_), text, option_.meaning));
  }

  const OperatorSchema& schema_;
  const OptionSpec& option_;
  nb::handle given_;
};

// "gemm, argument 'bias'" for every tensor of every table.
const char* label_of(const OperatorSchema& schema, std::size_t tensor) {
  // Guarded by the interpreter lock. Never destroyed, as the interpreter may end before the process.
  static auto* known = new std::unordered_map<const OperatorSchema*, std::vector<std::string>>();
  std::vector<std::string>& labels = (*known)[&schema];
  if (labels.empty())
    for (const ops::TensorSpec& each : schema.tensors)
      labels.push_back(fmt::format("{}, argument '{}'", schema.name, each.name));
  return labels[tensor].c_str();
}

// For every option of a table an object that was given for it and says what the struct says already: most
// arguments of most calls are those of the function's signature. They have types whose objects never change.
class KnownDefaults {
 public:
  explicit KnownDefaults(const OperatorSchema& schema) : objects_(known()[&schema]) {
    objects_.resize(schema.options.size());
  }
  bool has(std::size_t option, nb::handle given) const { return objects_[option] == given.ptr(); }
  void keep(std::size_t option, nb::handle given) {
    PyObject* object = given.ptr();
    const bool is_plain = PyBool_Check(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
                          PyUnicode_CheckExact(object);
    if (is_plain && objects_[option] == nullptr) objects_[option] = given.inc_ref().ptr();
  }

 private:
  using All = std::unordered_map<const OperatorSchema*, std::vector<PyObject*>>;
  // Guarded by the interpreter lock. Never destroyed, as the interpreter may end before the process.
  static All& known() {
    static auto* all = new All();
    return *all;
  }
  std::vector<PyObject*>& objects_;
};

// One call: the number of its table, then inputs, options and outputs in the table's order, and the target.
// What is not given is None.
class TableCall {
 public:
  TableCall(const OperatorSchema& schema, nb::handle arguments)
      : schema_(schema), given_(arguments.ptr()), count_(PyTuple_Size(arguments.ptr())), op_(schema.make()) {
    read_tensors(0, schema.inputs);
    read_options();
    outputs_.resize(schema.tensors.size() - schema.inputs);
  }

  // Computes the formula in double precision, into new arrays.
  nb::object formula() {
    const BoundCall bound(schema_, op_.get(), BoundCall::Memory::unused);
    ops::Exact exact(bound, f64);
    schema_.formula(bound, exact);
    nb::dict results;
    for (const auto& [name, tensor] : exact.outputs()) results[name.c_str()] = call_.result(tensor, {});
    return results;
  }

  void check() const { const BoundCall bound(schema_, op_.get(), BoundCall::Memory::unused); }

  nb::object run() {
    read_outputs();
    const BoundCall::Allocate allocate = [this](std::size_t tensor, const Shape& shape, DType type,
                                                const Device&) { return new_output(tensor, shape, type); };
    const BoundCall bound(schema_, op_.get(), BoundCall::Memory::used, &allocate);
    call_.run([&] {
      if (bound.is_empty()) return 0;
      ops::Launch launch(bound, ops::Launch::Mode::run);
      schema_.run(bound, launch);
      return 0;
    });
    return results(bound);
  }

 private:
  nb::handle argument(std::size_t number) const {
    const auto at = static_cast<Py_ssize_t>(number + 1);
    return at < count_ ? PyTuple_GetItem(given_, at) : Py_None;
  }
  std::size_t first_output() const { return schema_.inputs + schema_.options.size(); }

  void read_tensors(std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) {
      const nb::handle array = argument(i);
      if (array.is_none() && schema_.tensors[i].optional) continue;
      const TensorRef ref =
          schema_.tensors[i].written ? written(i, array) : call_.input(label_of(schema_, i), array);
      if (i == 0) like_ = array, like_ref_ = ref;
      schema_.tensors[i].set(op_.get(), ref);
    }
  }
  // An array that the operator writes in place.
  TensorRef written(std::size_t i, nb::handle array) {
    if (array.is_none()) return call_.input(label_of(schema_, i), array);  // which refuses it
    return *call_.output(label_of(schema_, i), array, {like_, like_ref_}, {}, f32).ref;
  }
  void read_options() {
    KnownDefaults defaults(schema_);
    for (std::size_t i = 0; i < schema_.options.size(); ++i) {
      const OptionSpec& option = schema_.options[i];
      const nb::handle given = argument(schema_.inputs + i);
      const bool may_be_none = !option.needed && std::holds_alternative<std::monostate>(option.fallback);
      if ((given.is_none() && may_be_none) || defaults.has(i, given)) continue;
      const OptionValue value = OptionReader(schema_, option, given).value();
      option.set(op_.get(), value);
      if (value == option.fallback) defaults.keep(i, given);
    }
    const nb::handle target = argument(first_output() + schema_.tensors.size() - schema_.inputs);
    if (target.is_none()) return;
    if (!PyUnicode_Check(target.ptr()))
      throw nb::type_error(fmt::format("{}, argument 'target': expected str, given {}", schema_.name,
                                       nb::type_name(target.type()).c_str())
                               .c_str());
    try {
      schema_.set_target(op_.get(), target_of(nb::str(target).c_str()));
    } catch (const ArgumentError& error) {
      throw ArgumentError(fmt::format("{}, {}", schema_.name, error.what()));
    }
  }
  void read_outputs() {
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const nb::handle given = argument(first_output() + i);
      if (given.is_none()) continue;
      const ops::TensorSpec& spec = schema_.tensors[schema_.inputs + i];
      outputs_[i] = call_.output(label_of(schema_, schema_.inputs + i), given, {like_, like_ref_}, {}, f32);
      spec.set(op_.get(), *outputs_[i].ref);
    }
  }
  Tensor new_output(std::size_t tensor, const Shape& shape, DType type) {
    Output& output = outputs_[tensor - schema_.inputs];
    output = call_.output(label_of(schema_, tensor), Py_None, {like_, like_ref_}, shape, type);
    return output.ref ? Tensor::adopt(*output.ref, nullptr) : call_.new_tensor(shape, type, like_ref_.device);
  }
  nb::object results(const BoundCall& bound) const {
    if (outputs_.empty()) return nb::none();
    if (outputs_.size() == 1) return result(bound, 0);
    nb::object all = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(outputs_.size())));
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      PyTuple_SetItem(all.ptr(), static_cast<Py_ssize_t>(i), result(bound, i).release().ptr());
    return all;
  }
  nb::object result(const BoundCall& bound, std::size_t i) const {
    if (bound.at(schema_.inputs + i) == nullptr) return nb::none();
    return outputs_[i].array.is_none()
               ? call_.result(bound.output(schema_.tensors[schema_.inputs + i].name), outputs_[i])
               : outputs_[i].array;
  }

  const OperatorSchema& schema_;
  PyObject* given_;
  Py_ssize_t count_;
  Call call_;
  std::shared_ptr<void> op_;
  nb::handle like_;
  TensorRef like_ref_;
  std::vector<Output> outputs_;
};

const OperatorSchema& schema_number(nb::handle number) {
  const auto& all = ops::operator_schemas();
  const auto at = nb::cast<std::size_t>(number);
  if (at >= all.size()) throw nb::index_error("there is no such table");
  return *all[at];
}

// Texts of the library as they are: tables have one name for a thing.
template <class F>
auto with_errors_of_tables(const F& body) {
  try {
    return body();
  } catch (const ArgumentError& error) { throw nb::value_error(error.what()); } catch (const Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    throw nb::python_error();
  }
}

nb::object call(const nb::args& arguments) {
  return with_errors_of_tables([&] { return TableCall(schema_number(arguments[0]), arguments).run(); });
}

nb::object formula(const nb::args& arguments) {
  return with_errors_of_tables([&] { return TableCall(schema_number(arguments[0]), arguments).formula(); });
}

void check(const nb::args& arguments) {
  with_errors_of_tables([&] { TableCall(schema_number(arguments[0]), arguments).check(); });
}

nb::tuple example(nb::handle number, const char* text, std::uint64_t seed) {
  const OperatorSchema& schema = schema_number(number);
  const Call call;
  const auto made = ops::ExampleCall::parse(schema, text);
  nb::dict inputs, options;
  for (const auto& [name, tensor] : made.inputs(schema, seed)) inputs[name.c_str()] = call.result(tensor, {});
  for (const auto& [name, value] : made.options) options[name.c_str()] = value_of_option(value);
  return nb::make_tuple(inputs, options);
}

nb::str faults(nb::handle number, const char* text, std::uint64_t seed, const nb::dict& results) {
  const OperatorSchema& schema = schema_number(number);
  return with_errors_of_tables([&] {
    Call call;
    const auto made = ops::ExampleCall::parse(schema, text);
    ops::Tensors given;
    for (const auto& [key, array] : results) {
      const std::string name = nb::str(key).c_str();
      given.emplace(name, Tensor::adopt(call.input(name.c_str(), array), nullptr));
    }
    return nb::str(
        ops::faults_of(ops::judge_call(schema, made.inputs(schema, seed), made.options, given)).c_str());
  });
}

}  // namespace

void define_table_call(nb::module_& module) {
  module.def("call", call, nb::sig("def call(number: int, *arguments: object) -> object"),
             "Calls the operator of the table with this number. Arguments: inputs, options and outputs in "
             "its order, and the target; None if not given. Results that the call does not have are None.");
  module.def("formula", formula, nb::sig("def formula(number: int, *arguments: object) -> dict[str, Array]"),
             "The results of the same call by the table's formula, in double precision, by name.");
  module.def("check", check, nb::sig("def check(number: int, *arguments: object) -> None"),
             "Refuses the same call if it is wrong; runs nothing.");
  module.def(
      "example", example, nb::arg("number"), nb::arg("text"), nb::arg("seed"),
      nb::sig("def example(number: int, text: str, seed: int) -> tuple[dict[str, Array], dict[str, object]]"),
      "Inputs and options of an example, in the notation of tables.");
  module.def("faults", faults, nb::arg("number"), nb::arg("text"), nb::arg("seed"), nb::arg("results"),
             nb::sig("def faults(number: int, text: str, seed: int, results: dict[str, object]) -> str"),
             "What is wrong with the named results of an example, as judged by the library's tests; empty if "
             "all are right.");
}

}  // namespace tegula::python
