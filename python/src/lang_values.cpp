// Values of the language: operators and functions.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "lang.hpp"

namespace tegula::python::language {

using lang::Expr;
using lang::Operand;

Here here() {
  // Never destroyed, as the interpreter may end before the process.
  static auto* function = new nb::object(nb::module_::import_("tegula._places").attr("here"));
  const nb::object found = (*function)();
  const auto statement = nb::cast<int>(found[4]);
  return {lang::made_place(nb::cast<const char*>(found[0]), nb::cast<const char*>(found[1]),
                           nb::cast<unsigned>(found[2]), nb::cast<unsigned>(found[3])),
          statement};
}

ElementValue element_value(lang::ViewPtr view, const std::vector<Operand>& index, const Here& at) {
  auto place = std::make_shared<lang::Element>(std::move(view), index, at.at);
  Expr value = lang::read_later(*place, at.statement);
  return {value, std::move(place), at.statement};
}

lang::Element&& place_of(const char* what, nb::handle given) {
  if (!nb::isinstance<ElementValue>(given))
    throw nb::type_error(fmt::format("{}: expected an element, such as counts[i], given {}", what,
                                     nb::type_name(given.type()).c_str())
                             .c_str());
  auto& element = nb::cast<ElementValue&>(given);
  lang::leave_out(element);
  return std::move(*element.place);
}

bool is_value(nb::handle given) {
  return nb::isinstance<Expr>(given) || nb::isinstance<ElementValue>(given) ||
         nb::isinstance<Variable>(given) || nb::isinstance<lang::Dim>(given);
}

namespace {

const char* remedy_for(nb::handle given) {
  if (nb::isinstance<lang::Tile>(given) && nb::cast<const lang::Tile&>(given).rank() == 0)
    return "; the value of a tile of rank 0 is tile.scalar()";
  if (nb::isinstance<lang::Tile>(given) || nb::isinstance<lang::Tensor>(given))
    return "; compute with elements, as `with parallel(tile) as (i, j): tile[i, j] *= 2`";
  if (nb::isinstance<nb::tuple>(given))
    return "; several indices have a name each, as in `with grid(m, n) as (i, j):`";
  return is_block(given) ? "; an index is what `with … as i:` gives" : "";
}

[[noreturn]] void refuse_operand(nb::handle given) {
  const std::string type = given.is_none() ? "None" : nb::type_name(given.type()).c_str();
  throw nb::type_error(
      fmt::format("expected a value or a number, given {}{}", type, remedy_for(given)).c_str());
}

// A number of NumPy's, or another that says its value. NumPy's truth values are `bool` or, before its second
// release, `bool_`.
Operand foreign_number(nb::handle given, const Here& at) {
  const auto type = nb::cast<std::string>(given.type().attr("__name__"));
  if (type == "bool" || type == "bool_") return {PyObject_IsTrue(given.ptr()) == 1, at.at};
  if (nb::hasattr(given, "__index__")) {
    const nb::object number = nb::steal(PyNumber_Index(given.ptr()));
    if (!number.is_valid()) throw nb::python_error();
    return operand(number, at);
  }
  if (nb::hasattr(given, "__float__")) return {nb::cast<double>(nb::float_(given)), at.at};
  refuse_operand(given);
}

}  // namespace

Operand operand(nb::handle given, const Here& at) {
  if (nb::isinstance<Expr>(given)) return {nb::cast<const Expr&>(given), at.at};
  if (nb::isinstance<ElementValue>(given)) return {Expr(nb::cast<const ElementValue&>(given)), at.at};
  if (nb::isinstance<lang::Dim>(given)) return {Expr(nb::cast<const lang::Dim&>(given)), at.at};
  if (nb::isinstance<Variable>(given))
    return {lang::read_later(*nb::cast<Variable&>(given).var, at.statement, at.at), at.at};
  if (PyBool_Check(given.ptr())) return {given.is(Py_True), at.at};
  if (PyFloat_Check(given.ptr())) return {PyFloat_AsDouble(given.ptr()), at.at};
  if (!PyLong_Check(given.ptr())) return foreign_number(given, at);
  int overflow = 0;
  const std::int64_t value = PyLong_AsLongLongAndOverflow(given.ptr(), &overflow);
  if (overflow != 0)
    throw nb::value_error(fmt::format("{} does not fit 64 bits", nb::str(given).c_str()).c_str());
  return {value, at.at};
}

std::vector<Operand> operands(nb::handle sequence, const Here& at) {
  std::vector<Operand> result;
  if (!nb::isinstance<nb::tuple>(sequence) && !nb::isinstance<nb::list>(sequence))
    return {operand(sequence, at)};
  for (const nb::handle each : sequence) result.push_back(operand(each, at));
  return result;
}

namespace {

using Binary = Expr (*)(const Operand&, const Operand&);
using Unary = Expr (*)(const Operand&);

bool is_boolean(const Operand& a, const Operand& b) { return a.type().is_boolean() || b.type().is_boolean(); }
// Python has no operators for booleans that its objects could define: those of bits stand for them.
Expr both(const Operand& a, const Operand& b) {
  if (!is_boolean(a, b)) return a & b;
  lang::read_in_order(a, b);
  return a && b;
}
Expr either(const Operand& a, const Operand& b) {
  if (!is_boolean(a, b)) return a | b;
  lang::read_in_order(a, b);
  return a || b;
}
Expr shift_left(const Operand& a, const Operand& b) {
  lang::read_in_order(a, b);
  return a << b;
}
Expr shift_right(const Operand& a, const Operand& b) {
  lang::read_in_order(a, b);
  return a >> b;
}
Expr differ(const Operand& a, const Operand& b) { return is_boolean(a, b) ? a != b : a ^ b; }
Expr invert(const Operand& a) { return a.type().is_boolean() ? !a : ~a; }
Expr divide(const Operand& a, const Operand& b) {
  if (a.type().is_integer() && b.type().is_integer())
    throw ProgramError(
        "`/` of integers; write a // b, which rounds down, div(a, b), which truncates, or f32(a) / f32(b)",
        a.at);
  return a / b;
}

constexpr struct {
  const char *name, *reflected;
  Binary function;
} operators[] = {
    {"__add__", "__radd__", [](const Operand& a, const Operand& b) { return a + b; }},
    {"__sub__", "__rsub__", [](const Operand& a, const Operand& b) { return a - b; }},
    {"__mul__", "__rmul__", [](const Operand& a, const Operand& b) { return a * b; }},
    {"__truediv__", "__rtruediv__", divide},
    {"__floordiv__", "__rfloordiv__", lang::floordiv},
    {"__mod__", "__rmod__", lang::floormod},
    {"__and__", "__rand__", both},
    {"__or__", "__ror__", either},
    {"__xor__", "__rxor__", differ},
    {"__lshift__", "__rlshift__", shift_left},
    {"__rshift__", "__rrshift__", shift_right},
    {"__eq__", nullptr, [](const Operand& a, const Operand& b) { return a == b; }},
    {"__ne__", nullptr, [](const Operand& a, const Operand& b) { return a != b; }},
    {"__lt__", nullptr, [](const Operand& a, const Operand& b) { return a < b; }},
    {"__le__", nullptr, [](const Operand& a, const Operand& b) { return a <= b; }},
    {"__gt__", nullptr, [](const Operand& a, const Operand& b) { return a > b; }},
    {"__ge__", nullptr, [](const Operand& a, const Operand& b) { return a >= b; }},
};

constexpr struct {
  const char* name;
  Binary function;
} functions_of_two[] = {
    {"max", lang::max},
    {"min", lang::min},
    {"floordiv", lang::floordiv},
    {"floormod", lang::floormod},
    {"ceildiv", lang::ceildiv},
    {"pow", lang::pow},
    {"mul_high", lang::mul_high},
    {"div", [](const Operand& a, const Operand& b) { return a / b; }},
    {"mod", [](const Operand& a, const Operand& b) { return a % b; }},
};

constexpr struct {
  const char* name;
  Unary function;
} functions_of_one[] = {
    {"exp", lang::exp},   {"exp2", lang::exp2},       {"log", lang::log},           {"log2", lang::log2},
    {"sqrt", lang::sqrt}, {"rsqrt", lang::rsqrt},     {"rcp", lang::rcp},           {"tanh", lang::tanh},
    {"sin", lang::sin},   {"cos", lang::cos},         {"round", lang::round},       {"floor", lang::floor},
    {"ceil", lang::ceil}, {"abs", lang::abs},         {"popcount", lang::popcount}, {"isnan", lang::isnan},
    {"erf", lang::erf},   {"uniform", lang::uniform},
};

// Both operands first, so that all reads of the expression are known before anything is made of them.
nb::object apply(Binary function, nb::handle a, nb::handle b) {
  const Here at = here();
  const Operand x = operand(a, at), y = operand(b, at);
  return nb::cast(Expr(function(x, y)));
}

// What Python and NumPy ask of numbers and sequences, and operators of theirs that values lack, and what to
// write instead. Without these they would speak of their own protocols.
template <class Class>
void refuse_as_number(Class& type) {
  type.def("__index__", [](nb::handle) -> int {
    throw nb::type_error(
        "a value of a kernel is no number while the program is built; loop with `with serial(n) as i:`, and "
        "keep what a device's index chooses from in a tile or a tensor");
  });
  type.def("__float__", [](nb::handle) -> double {
    throw nb::type_error(
        "a value of a kernel is no number while the program is built; use the functions of tegula.lang, such "
        "as exp(x), and casts, such as f32(i)");
  });
  type.def("__iter__", [](nb::handle) -> nb::object {
    throw nb::type_error(
        "a value of a kernel is one value; one index has one name, as in `with grid(n) as i:`");
  });
  for (const char* name : {"__pow__", "__rpow__"})
    type.def(name, [](const nb::args&) {
      throw nb::type_error("`**` of values of a kernel; write x * x, or pow(x, y), exp2(x) and sqrt(x)");
    });
  for (const char* name : {"__matmul__", "__rmatmul__"})
    type.def(name, [](const nb::args&) {
      throw nb::type_error("`@` of values of a kernel; gemm(a, b, c) multiplies tiles, and `*` elements");
    });
  // Operators of NumPy's numbers leave the operation to the value; its functions refuse it.
  type.attr("__array_ufunc__") = nb::none();
}

// Each class defines its own operators instead of deriving them: Python asks a derived class first, so `i <
// N` would become `N > i`.
template <class Class>
void define_operators(Class& type) {
  for (const auto& each : operators) {
    const Binary function = each.function;
    type.def(
        each.name, [function](nb::handle a, nb::handle b) { return apply(function, a, b); },
        nb::arg("other").none());
    if (each.reflected)
      type.def(each.reflected, [function](nb::handle a, nb::handle b) { return apply(function, b, a); });
  }
  type.def("__neg__", [](nb::handle a) { return Expr(-operand(a, here())); });
  type.def("__pos__", [](nb::handle a) { return Expr(operand(a, here())); });
  type.def("__invert__", [](nb::handle a) { return invert(operand(a, here())); });
  type.def("__abs__", [](nb::handle a) { return lang::abs(operand(a, here())); });
  type.def("__round__", [](nb::handle a) { return lang::round(operand(a, here())); });
  type.def("__hash__", [](nb::handle a) { return reinterpret_cast<std::intptr_t>(a.ptr()) >> 4; });
  type.def("__bool__", [](nb::handle) -> bool {
    throw ProgramError(
        "a device value is used as a Python condition (`if`, `while`, `and`, `or`, `not`, or a chain such as "
        "0 <= i < n), which is evaluated while the program is built; write `with when(c):` or "
        "select(c, a, b), & | ~ between conditions, and (0 <= i) & (i < n)",
        here().at);
  });
  refuse_as_number(type);
}

nb::object store_combined(nb::handle self, nb::handle value, const char* fallback,
                          void (*store)(lang::Element&&, const Operand&)) {
  const Here at = here();
  auto& element = nb::cast<ElementValue&>(self);
  // `x = a[i]` and then `x += 1` make another value.
  if (element.statement != at.statement) return self.attr(fallback)(value);
  lang::Element&& place = place_of("the assignment", self);
  store(std::move(place), operand(value, at));
  return nb::cast(Stored{});
}

void define_elements(nb::module_& module) {
  nb::class_<Stored>(module, "Stored");
  nb::class_<ElementValue> element(module, "Element", "One element of a tensor or a tile.");
  define_operators(element);
  element.def_prop_ro("type", [](const ElementValue& self) { return self.type(); });
  constexpr struct {
    const char *name, *plain;
    void (*store)(lang::Element&&, const Operand&);
  } stores[] = {
      {"__iadd__", "__add__", [](lang::Element&& e, const Operand& x) { std::move(e) += x; }},
      {"__isub__", "__sub__", [](lang::Element&& e, const Operand& x) { std::move(e) -= x; }},
      {"__imul__", "__mul__", [](lang::Element&& e, const Operand& x) { std::move(e) *= x; }},
      {"__itruediv__", "__truediv__", [](lang::Element&& e, const Operand& x) { std::move(e) /= x; }},
  };
  for (const auto& each : stores)
    element.def(each.name, [each](nb::handle self, nb::handle value) {
      return store_combined(self, value, each.plain, each.store);
    });
}

void define_variables(nb::module_& module) {
  nb::class_<Variable> variable(module, "Var", "A scalar that changes, by += and the like or by set(value).");
  variable.def(
      "__init__",
      [](Variable* self, nb::handle value) {
        new (self) Variable{std::make_unique<lang::Var>(operand(value, here()))};
      },
      nb::arg("value"));
  variable.def(
      "set", [](Variable& self, nb::handle value) { *self.var = operand(value, here()); }, nb::arg("value"),
      "Assigns a new value to the variable.");
  define_operators(variable);
  constexpr struct {
    const char* name;
    void (*assign)(lang::Var&, const Operand&);
  } assignments[] = {
      {"__iadd__", [](lang::Var& v, const Operand& x) { v += x; }},
      {"__isub__", [](lang::Var& v, const Operand& x) { v -= x; }},
      {"__imul__", [](lang::Var& v, const Operand& x) { v *= x; }},
      {"__itruediv__", [](lang::Var& v, const Operand& x) { v /= x; }},
      {"__ior__", [](lang::Var& v, const Operand& x) { v |= x; }},
      {"__iand__", [](lang::Var& v, const Operand& x) { v &= x; }},
      {"__ixor__", [](lang::Var& v, const Operand& x) { v ^= x; }},
  };
  for (const auto& each : assignments)
    variable.def(each.name, [each](nb::object self, nb::handle value) {
      each.assign(*nb::cast<Variable&>(self).var, operand(value, here()));
      return self;
    });
}

nb::object philox(nb::handle counter, nb::handle key) {
  const Here at = here();
  const std::vector<Operand> c = operands(counter, at), k = operands(key, at);
  if (c.size() != 4 || k.size() != 2)
    throw nb::value_error(
        fmt::format("philox: expected a counter of 4 words and a key of 2, given {} and {}; pad with zeros",
                    c.size(), k.size())
            .c_str());
  const lang::RandomWords words = lang::philox({c[0], c[1], c[2], c[3]}, {k[0], k[1]}, at.at);
  return nb::make_tuple(words.x, words.y, words.z, words.w);
}

void define_functions(nb::module_& module) {
  for (const auto& each : functions_of_two) {
    const Binary function = each.function;
    module.def(("lang_" + std::string(each.name)).c_str(),
               [function](nb::handle a, nb::handle b) { return apply(function, a, b); });
  }
  for (const auto& each : functions_of_one) {
    const Unary function = each.function;
    module.def(("lang_" + std::string(each.name)).c_str(),
               [function](nb::handle a) { return function(operand(a, here())); });
  }
  const auto of_three = [&](const char* name,
                            Expr (*function)(const Operand&, const Operand&, const Operand&)) {
    module.def(name, [function](nb::handle a, nb::handle b, nb::handle c) {
      const Here at = here();
      const Operand x = operand(a, at), y = operand(b, at), z = operand(c, at);
      return function(x, y, z);
    });
  };
  of_three("lang_clamp", lang::clamp);
  of_three("lang_select", lang::select);
  of_three("lang_fma", lang::fma);
  module.def("lang_bitcast", [](nb::handle x, nb::handle type) {
    return lang::bitcast(operand(x, here()), dtype_of_object(type));
  });
  module.def("lang_philox", philox);
  module.def("lang_is_value", is_value);
}

}  // namespace

void define_values(nb::module_& module) {
  define_dtypes(module);
  nb::class_<Expr> value(module, "Expr", "A value: it is computed where it is written and never changes.");
  define_operators(value);
  value.def_prop_ro("type", [](const Expr& self) { return self.type(); });
  nb::class_<lang::Dim> dim(module, "Dim", "An extent that the shapes of a call determine.");
  define_operators(dim);
  dim.def(
         "__init__", [](lang::Dim* self, const char* name) { new (self) lang::Dim(name, here().at); },
         nb::arg("name"))
      .def_prop_ro("type", [](const lang::Dim& self) { return self.type(); })
      .def(
          "multiple_of",
          [](nb::object self, int factor) {
            nb::cast<lang::Dim&>(self).multiple_of(factor, here().at);
            return self;
          },
          nb::arg("factor"), "A promise that is checked at every call.");
  define_elements(module);
  define_variables(module);
  define_functions(module);
}

}  // namespace tegula::python::language
