// Kernels: their signature, how they are built, looked at and called.
#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>

#include "call.hpp"
#include "dtypes.hpp"
#include "ir/kernel.hpp"
#include "lang.hpp"
#include "ops/schema/functions.hpp"
#include "options.hpp"
#include "spelling.hpp"
#include "tegula/analyze.hpp"
#include "tegula/explain.hpp"
#include "tegula/runtime.hpp"
#include "tegula/show.hpp"
#include "tegula/tune.hpp"

namespace tegula::python::language {

namespace {

// A kernel and what has been compiled of it.
struct BuiltKernel {
  lang::Kernel kernel;
  std::map<Target::Kind, Function> functions = {};  // guarded by the interpreter lock
};

BuiltKernel build_kernel(const std::string& name, const nb::object& body, const nb::tuple& place) {
  const Loc at = lang::made_place(nb::cast<const char*>(place[0]), nb::cast<const char*>(place[1]),
                                  nb::cast<unsigned>(place[2]), 0);
  forget_blocks();
  const auto describe = [&] {
    const nb::object given = body();
    refuse_unopened_blocks();
    if (!given.is_none())
      throw ProgramError(
          fmt::format("the function of a kernel returns nothing, but this one returns {}; declare an "
                      "output, and write it",
                      nb::type_name(given.type()).c_str()),
          at);
  };
  return {lang::detail::build(name, describe, at)};
}

lang::Extents extents_of(nb::handle shape, const Here& at) { return operands(shape, at); }

lang::Tensor plain_parameter(std::string_view kind, const char* name, const lang::Extents& shape, DType type,
                             const lang::OutputOptions& options, const Here& at) {
  if (kind == "input") return lang::input(name, shape, type, at.at);
  if (kind == "output") return lang::output(name, shape, type, options, at.at);
  if (kind == "inout") return lang::inout(name, shape, type, at.at);
  return lang::workspace(name, shape, type, options, at.at);
}

nb::object parameter(const char* kind, const char* name, nb::handle shape, nb::handle type, bool zero) {
  const Here at = here();
  const lang::Extents extents = extents_of(shape, at);
  lang::OutputOptions options;
  options.zero = zero;
  if (nb::isinstance<lang::PackedType>(type))
    return packed_parameter(kind, name, extents, nb::cast<const lang::PackedType&>(type), options, at);
  return nb::cast(plain_parameter(kind, name, extents, dtype_of_object(type), options, at));
}

void require(nb::handle condition, const char* message) {
  const Here at = here();
  if (PyBool_Check(condition.ptr()))
    lang::detail::require_now(condition.is(Py_True), message, at.at);
  else
    lang::require(operand(condition, at), message);
}

// An extent as numbers, names of dims and scalars, and (operation, arguments…).
nb::object tree_of(const ir::Expr& e) {
  if (e->op == ir::Op::constant)
    return e->type.is_floating() ? nb::object(nb::float_(e->real)) : nb::object(nb::int_(e->integer));
  if (e->op == ir::Op::variable) return nb::str(e->variable->name.c_str());
  nb::list nodes;
  nodes.append(nb::str(ir::name_of(e->op).data(), ir::name_of(e->op).size()));
  for (const ir::Expr& argument : e->args) nodes.append(tree_of(argument));
  return nb::tuple(nodes);
}

const char* role_name(ir::Role role) {
  return role == ir::Role::input ? "input" : role == ir::Role::output ? "output" : "inout";
}

// For each parameter (name, role, dtype, shape); scalars have no shape.
nb::list parameters(const BuiltKernel& self) {
  nb::list result;
  for (const ir::Parameter& each : self.kernel.ir()->parameters) {
    if (each.scalar) {
      result.append(nb::make_tuple(each.scalar->name, "scalar", each.scalar->type, nb::none()));
      continue;
    }
    nb::list shape;
    for (const ir::Expr& extent : each.tensor->shape) shape.append(tree_of(extent));
    result.append(
        nb::make_tuple(each.tensor->name, role_name(each.tensor->role), each.tensor->type, nb::tuple(shape)));
  }
  return result;
}

Argument number_of(const char* name, nb::handle given, DType type) {
  if (type.is_boolean()) return PyObject_IsTrue(given.ptr()) == 1;
  nb::object number =
      nb::steal(type.is_floating() ? PyNumber_Float(given.ptr()) : PyNumber_Index(given.ptr()));
  if (!number.is_valid()) {
    const nb::python_error error;
    throw nb::type_error(fmt::format("{}: expected a number for {}, given {}", name, type.name(),
                                     nb::type_name(given.type()).c_str())
                             .c_str());
  }
  if (type.is_floating()) return PyFloat_AsDouble(number.ptr());
  int overflow = 0;
  const std::int64_t value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) throw nb::value_error(fmt::format("{}: the number does not fit 64 bits", name).c_str());
  return value;
}

const Function& compiled(BuiltKernel& self, Target target) {
  const auto found = self.functions.find(target.kind());
  if (found != self.functions.end()) return found->second;
  std::optional<Function> made;
  {
    const WithoutLock released;
    made = compile(self.kernel, target);
  }
  return self.functions.emplace(target.kind(), *made).first->second;
}

// One call. `given` has an object for each parameter, None for an output that is to be made; `shapes` has
// those of the outputs.
class KernelCall {
 public:
  KernelCall(BuiltKernel& self, nb::handle given, nb::handle shapes) : self_(self) {
    const auto& all = self.kernel.ir()->parameters;
    labels_.reserve(all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      labels_.push_back(self.kernel.name() + ", argument '" +
                        (all[i].tensor ? all[i].tensor->name : all[i].scalar->name) + "'");
    arguments_.resize(all.size(), Argument(false));
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!all[i].tensor)
        arguments_[i] = number_of(labels_[i].c_str(), given[i], all[i].scalar->type);
      else if (all[i].tensor->role == ir::Role::input)
        read(i, given[i]);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].tensor && all[i].tensor->role != ir::Role::input)
        write(i, given[i], shapes[i], *all[i].tensor);
  }

  nb::object run(Target target) {
    if (like_.is_valid()) target = ops::target_for(target, like_ref_.device);
    const InModule here;
    const Function function = compiled(self_, target);
    call_.run([&] {
      function.call_in_order(arguments_);
      return 0;
    });
    nb::list results;
    for (auto& [tensor, output] : outputs_) results.append(call_.result(tensor, output));
    if (results.size() == 0) return nb::none();
    return results.size() == 1 ? nb::object(results[0]) : nb::object(nb::tuple(results));
  }

 private:
  void read(std::size_t i, nb::handle array) {
    const TensorRef ref = call_.input(labels_[i].c_str(), array);
    if (!like_.is_valid()) like_ = array, like_ref_ = ref;
    arguments_[i] = ref;
  }
  void write(std::size_t i, nb::handle given, nb::handle extents, const ir::Buffer& buffer) {
    Shape shape;
    if (given.is_none())
      for (const nb::handle extent : extents) shape.push_back(nb::cast<std::int64_t>(extent));
    Output output = call_.output(labels_[i].c_str(), given, {like_, like_ref_}, shape, buffer.type);
    if (!like_.is_valid()) like_ = output.array, like_ref_ = *output.ref;
    const Tensor tensor = output.ref ? Tensor::adopt(*output.ref, nullptr)
                                     : call_.new_tensor(shape, buffer.type, like_ref_.device);
    arguments_[i] = tensor;
    if (buffer.role == ir::Role::output) outputs_.emplace_back(tensor, std::move(output));
  }

  BuiltKernel& self_;
  Call call_;
  std::vector<std::string> labels_;
  std::vector<Argument> arguments_;
  std::vector<std::pair<Tensor, Output>> outputs_;
  nb::handle like_;
  TensorRef like_ref_;
};

// The parameters of a kernel as tuning copies them: arrays that are all given, and numbers.
std::vector<Argument> arguments_of(const lang::Kernel& kernel, nb::handle given, Call& call) {
  std::vector<Argument> arguments;
  const auto& all = kernel.ir()->parameters;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].tensor)
      arguments.emplace_back(call.input(all[i].tensor->name.c_str(), given[i]));
    else
      arguments.push_back(number_of(all[i].scalar->name.c_str(), given[i], all[i].scalar->type));
  }
  return arguments;
}

nb::object tuned_rows(const Tuned& tuned) {
  nb::list rows;
  for (const Tuned::Row& row : tuned.rows)
    rows.append(nb::make_tuple(row.candidate, row.text, row.seconds, row.spread, row.failure));
  return nb::make_tuple(rows, tuned.from_cache, tuned.text(), tuned.svg());
}

// `built` has a kernel for each candidate, or in its place what is wrong with it.
nb::object tune_kernels(const nb::list& built, const std::vector<std::string>& texts, nb::handle given,
                        const std::string& target, const nb::dict& named) {
  TuneOptions options{.target = target_of(target)};
  options.name = nb::cast<std::string>(named["name"]);
  options.seconds = nb::cast<double>(named["seconds"]), options.jobs = nb::cast<int>(named["jobs"]);
  options.tolerance = nb::cast<double>(named["tolerance"]);
  options.checks = nb::cast<bool>(named["checks"]), options.cached = nb::cast<bool>(named["cached"]);
  std::vector<Candidate> candidates;
  std::optional<std::vector<Argument>> arguments;
  Call call;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const nb::handle own = built[i];
    if (!nb::isinstance<BuiltKernel>(own)) {
      candidates.push_back(
          {texts[i], [why = nb::cast<std::string>(own)]() -> lang::Kernel { throw Error(why); }});
      continue;
    }
    const lang::Kernel kernel = nb::cast<BuiltKernel&>(own).kernel;
    if (!arguments) arguments = arguments_of(kernel, given, call);
    candidates.push_back({texts[i], [kernel] { return kernel; }});
  }
  if (!arguments) arguments.emplace();
  const Tuned tuned = call.run([&] { return tune_candidates(candidates, *arguments, options); });
  return tuned_rows(tuned);
}

ShowOptions show_options(const nb::dict& given) {
  ShowOptions o;
  const auto flag = [&](const char* name, bool& value) {
    if (given.contains(name)) value = nb::cast<bool>(given[name]);
  };
  flag("ir", o.ir), flag("passes", o.passes), flag("cpp", o.cpp), flag("cuda", o.cuda);
  flag("layout", o.layout), flag("schedule", o.schedule), flag("shared_memory", o.shared_memory);
  flag("resources", o.resources), flag("for_gpu", o.for_gpu);
  if (given.contains("architecture")) o.architecture = nb::cast<int>(given["architecture"]);
  return o;
}

void define_views_of_kernels(nb::class_<BuiltKernel>& kernel) {
  kernel
      .def("show",
           [](const BuiltKernel& self, const nb::dict& options) {
             return with_spelled_notes(show(self.kernel, show_options(options)));
           })
      .def("draw",
           [](const BuiltKernel& self, const nb::dict& options) {
             std::map<std::string, std::string> pictures;
             for (const Picture& picture : draw(self.kernel, show_options(options)))
               pictures[picture.name] = picture.svg;
             return pictures;
           })
      .def("report",
           [](const BuiltKernel& self, int architecture, const std::map<std::string, double>& extents,
              const std::string& name) {
             ReportOptions options;
             options.architecture = architecture;
             if (!extents.empty()) options.analyses = {{analyze(self.kernel, extents, machine(name))}};
             return report(std::vector{self.kernel}, options);
           })
      .def("explain",
           [](const BuiltKernel& self, const std::string& target) {
             return spelled_as_its_source(explain(self.kernel, target_of(target)).text());
           })
      .def("notes",
           [](const BuiltKernel& self, const std::string& target) {
             std::vector<std::string> notes = explain(self.kernel, target_of(target)).notes;
             for (std::string& note : notes) note = spelled_as_its_source(note);
             return notes;
           })
      .def("analyze", [](const BuiltKernel& self, const std::map<std::string, double>& extents,
                         const std::string& name) {
        const Analysis a = analyze(self.kernel, extents, machine(name));
        return nb::make_tuple(a.text(), a.seconds, a.bound);
      });
}

}  // namespace

nb::object adopt_kernel(const std::shared_ptr<const ir::Kernel>& kernel) {
  return nb::cast(BuiltKernel{lang::Kernel(kernel)});
}

void define_kernels(nb::module_& module) {
  nb::class_<BuiltKernel> kernel(module, "Kernel", "A tile program.");
  kernel.def_prop_ro("name", [](const BuiltKernel& self) { return self.kernel.name(); })
      .def_prop_ro("text", [](const BuiltKernel& self) { return self.kernel.text(); })
      .def_prop_ro("parameters", parameters)
      .def("call", [](BuiltKernel& self, nb::handle given, nb::handle shapes, const std::string& target) {
        return KernelCall(self, given, shapes).run(target_of(target));
      });
  define_views_of_kernels(kernel);
  module.def("build_kernel", build_kernel);
  module.def("tune_kernels", tune_kernels);
  module.def("lang_parameter", parameter);
  module.def("lang_scalar", [](const char* name, nb::handle type) {
    return lang::scalar(name, dtype_of_object(type), here().at);
  });
  module.def("lang_may_alias",
             [](const lang::Tensor& a, const lang::Tensor& b) { lang::may_alias(a, b, here().at); });
  module.def("lang_require", require);
  module.def("lang_processors", [] { return lang::processors(here().at); });
}

}  // namespace tegula::python::language
