// Operations on whole tiles.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>

#include "ir/view.hpp"
#include "lang.hpp"
#include "tegula/lang/sparse.hpp"

namespace tegula::python::language {

using lang::Fragment;
using lang::Tile;

namespace {

lang::Source read_by(const char* what, nb::handle given) { return lang::Window{view_of(what, given), {}}; }
lang::Target written_by(const char* what, nb::handle given) { return lang::Window{view_of(what, given), {}}; }

Fragment& fragment_of(const char* what, nb::handle given) {
  if (!nb::isinstance<Fragment>(given))
    throw nb::type_error(fmt::format("{}: expected a Fragment, given {}", what,
                                     given.is_none() ? "None" : nb::type_name(given.type()).c_str())
                             .c_str());
  return nb::cast<Fragment&>(given);
}

DType type_of(nb::handle from) {
  if (is_packed(from)) throw nb::type_error("load of packed numbers: give their new type, such as f32");
  return view_of("load", from)->buffer->type;
}

nb::object load(nb::handle from, nb::handle shape, nb::handle type) {
  const Here at = here();
  const bool has_type = !type.is_none();
  const DType own = has_type ? dtype_of_object(type) : type_of(from);
  nb::object result = nb::cast(Fragment(constants(shape), own, at.at));
  if (!copied_packed(from, result, at))
    lang::copy(read_by("load", from), written_by("load", result), {}, at.at);
  return result;
}

void gather(nb::handle from, nb::handle rows, nb::handle tile) {
  const Here at = here();
  if (!nb::isinstance<lang::Tensor>(from)) throw nb::type_error("gather: the source is a tensor");
  const auto& tensor = nb::cast<const lang::Tensor&>(from);
  const lang::Target target = written_by("gather", tile);
  if (nb::isinstance<lang::Tensor>(rows))
    lang::gather(tensor, nb::cast<const lang::Tensor&>(rows), target, at.at);
  else if (nb::isinstance<Tile>(rows))
    lang::gather(tensor, nb::cast<const Tile&>(rows), target, at.at);
  else
    lang::detail::gather(
        tensor, [&](const lang::Index& i) -> lang::Expr { return operand(rows(lang::Expr(i)), at); }, target,
        at.at);
}

template <class T>
T choice(const char* option, std::string_view given,
         std::initializer_list<std::pair<std::string_view, T>> all) {
  std::string names;
  for (const auto& [name, value] : all) {
    if (name == given) return value;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
  }
  throw nb::value_error(fmt::format("{}: expected one of {}, given '{}'", option, names, given).c_str());
}

lang::Accumulate accumulate_of(const char* option, const char* given) {
  return choice<lang::Accumulate>(
      option, given,
      {{"promoted", lang::Accumulate::promoted}, {"tensor_core", lang::Accumulate::tensor_core}});
}

lang::Warps warps_of(const char* option, const char* given) {
  return choice<lang::Warps>(option, given,
                             {{"automatic", lang::Warps::automatic},
                              {"rows", lang::Warps::rows},
                              {"columns", lang::Warps::columns},
                              {"square", lang::Warps::square}});
}

void gemm(nb::handle a, nb::handle b, nb::handle c, const char* accumulate, const char* precision,
          const char* warps, std::optional<bool> swap, std::optional<bool> from_registers) {
  lang::GemmOptions options;
  options.accumulate = accumulate_of("gemm, accumulate", accumulate);
  options.precision = choice<lang::Precision>("gemm, precision", precision,
                                              {{"ieee", lang::Precision::ieee},
                                               {"tf32", lang::Precision::tf32},
                                               {"tf32x3", lang::Precision::tf32x3}});
  options.warps = warps_of("gemm, warps", warps);
  options.swap = swap, options.from_registers = from_registers;
  lang::gemm(tile_of("gemm", a), tile_of("gemm", b), fragment_of("gemm", c), options, here().at);
}

void gemm_sparse(nb::handle values, nb::handle metadata, nb::handle b, nb::handle c, const char* accumulate,
                 const char* warps) {
  lang::GemmOptions options;
  options.accumulate = accumulate_of("gemm_sparse, accumulate", accumulate);
  options.warps = warps_of("gemm_sparse, warps", warps);
  lang::gemm_sparse(tile_of("gemm_sparse", values), tile_of("gemm_sparse", metadata),
                    tile_of("gemm_sparse", b), fragment_of("gemm_sparse", c), options, here().at);
}

void define_reductions(nb::module_& module) {
  constexpr struct {
    const char* name;
    void (*into)(const Tile&, Fragment&, int, Loc);
    Fragment (*made)(const Tile&, int, Loc);
  } reductions[] = {{"reduce_sum", lang::reduce_sum, lang::reduce_sum},
                    {"reduce_max", lang::reduce_max, lang::reduce_max},
                    {"reduce_min", lang::reduce_min, lang::reduce_min},
                    {"reduce_absmax", lang::reduce_absmax, lang::reduce_absmax},
                    {"reduce_any", lang::reduce_any, lang::reduce_any},
                    {"reduce_all", lang::reduce_all, lang::reduce_all}};
  for (const auto& each : reductions)
    module.def(("lang_" + std::string(each.name)).c_str(),
               [each](nb::handle tile, nb::handle into, int dim) -> nb::object {
                 if (into.is_none()) return nb::cast(each.made(tile_of(each.name, tile), dim, here().at));
                 each.into(tile_of(each.name, tile), fragment_of(each.name, into), dim, here().at);
                 return nb::none();
               },
               nb::arg("tile"), nb::arg("into").none(), nb::arg("dim"));
}

void define_arg_reductions(nb::module_& module) {
  constexpr struct {
    const char* name;
    Fragment (*made)(const Tile&, int, Loc);
  } reductions[] = {{"reduce_argmax", lang::reduce_argmax}, {"reduce_argmin", lang::reduce_argmin}};
  for (const auto& each : reductions)
    module.def(("lang_" + std::string(each.name)).c_str(), [each](nb::handle tile, int dim) {
      return each.made(tile_of(each.name, tile), dim, here().at);
    });
}

void define_scans(nb::module_& module) {
  constexpr struct {
    const char* name;
    Fragment (*whole)(const Tile&, lang::ScanOptions, Loc);
    Fragment (*segments)(const Tile&, const Tile&, lang::ScanOptions, Loc);
  } scans[] = {{"scan_sum", lang::scan_sum, lang::scan_sum},
               {"scan_max", lang::scan_max, lang::scan_max},
               {"scan_min", lang::scan_min, lang::scan_min}};
  for (const auto& each : scans)
    module.def(("lang_" + std::string(each.name)).c_str(),
               [each](nb::handle tile, nb::handle starts, int dim, bool exclusive, bool reverse) {
                 const Loc at = here().at;
                 const Tile& own = tile_of(each.name, tile);
                 lang::ScanOptions options;
                 options.dim = dim, options.exclusive = exclusive, options.reverse = reverse;
                 if (starts.is_none()) return each.whole(own, options, at);
                 return each.segments(own, tile_of(each.name, starts), options, at);
               },
               nb::arg("tile"), nb::arg("starts").none(), nb::arg("dim"), nb::arg("exclusive"),
               nb::arg("reverse"));
}

void define_atomics(nb::module_& module) {
  constexpr struct {
    const char* name;
    void (*element)(lang::Element&&, const lang::Operand&);
    void (*window)(const lang::Window&, const Tile&, Loc);  // null if there is none
  } atomics[] = {{"atomic_add", lang::atomic_add, lang::atomic_add},
                 {"atomic_max", lang::atomic_max, lang::atomic_max},
                 {"atomic_min", lang::atomic_min, lang::atomic_min},
                 {"atomic_or", lang::atomic_or, nullptr},
                 {"atomic_and", lang::atomic_and, nullptr}};
  for (const auto& each : atomics)
    module.def(("lang_" + std::string(each.name)).c_str(), [each](nb::handle place, nb::handle value) {
      const Here at = here();
      if (each.window && nb::isinstance<lang::Window>(place))
        return each.window(nb::cast<const lang::Window&>(place), tile_of(each.name, value), at.at);
      lang::Element&& element = place_of(each.name, place);
      each.element(std::move(element), operand(value, at));
    });
  module.def(
      "lang_accumulate",
      [](const lang::Window& window, nb::handle tile, nb::handle order, bool consecutive, bool overwrite) {
        const Here at = here();
        lang::AccumulateOptions options;
        if (!order.is_none()) options.order.emplace(operand(order, at));
        options.consecutive = consecutive, options.overwrite = overwrite;
        lang::accumulate(window, tile_of("accumulate", tile), options, at.at);
      },
      nb::arg("window"), nb::arg("tile"), nb::arg("order").none(), nb::arg("consecutive"),
      nb::arg("overwrite"));
}

}  // namespace

void define_tile_ops(nb::module_& module) {
  module.def("lang_copy", [](nb::handle from, nb::handle to, double fill) {
    lang::CopyOptions options;
    options.fill = fill;
    if (copied_packed(from, to, here())) return;
    lang::copy(read_by("copy", from), written_by("copy", to), options, here().at);
  });
  module.def("lang_load", load, nb::arg("window"), nb::arg("shape"), nb::arg("type").none());
  module.def("lang_clone", [](nb::handle tile) { return lang::clone(tile_of("clone", tile), here().at); });
  module.def("lang_fill", [](nb::handle tile, nb::handle value) {
    const Here at = here();
    lang::fill(written_by("fill", tile), operand(value, at), at.at);
  });
  module.def("lang_clear", [](nb::handle tile) { lang::clear(written_by("clear", tile), here().at); });
  module.def("lang_gather", gather);
  module.def("lang_gemm", gemm, nb::arg("a"), nb::arg("b"), nb::arg("c"), nb::arg("accumulate"),
             nb::arg("precision"), nb::arg("warps"), nb::arg("swap").none(),
             nb::arg("from_registers").none());
  module.def("lang_gemm_sparse", gemm_sparse);
  module.def("lang_print_tile", [](const char* label, nb::handle tile) {
    lang::print(label, tile_of("print", tile), here().at);
  });
  module.def("lang_is_tile", [](nb::handle given) { return nb::isinstance<Tile>(given); });
  define_reductions(module);
  define_arg_reductions(module);
  define_scans(module);
  define_atomics(module);
}

}  // namespace tegula::python::language
