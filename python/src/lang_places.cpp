// Tensors, tiles, their views and elements.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <utility>

#include "lang.hpp"
#include "lang_windows.hpp"

namespace tegula::python::language {

using lang::Fragment;
using lang::Operand;
using lang::Shared;
using lang::Subscript;
using lang::Tile;

lang::ViewPtr view_of(const char* what, nb::handle given) {
  if (nb::isinstance<lang::Window>(given)) return nb::cast<const lang::Window&>(given).view;
  if (nb::isinstance<lang::Tensor>(given)) return nb::cast<const lang::Tensor&>(given).view();
  return tile_of(what, given).view();
}

const Tile& tile_of(const char* what, nb::handle given) {
  if (!nb::isinstance<Tile>(given))
    throw nb::type_error(fmt::format("{}: expected a tile, given {}", what,
                                     given.is_none() ? "None" : nb::type_name(given.type()).c_str())
                             .c_str());
  return nb::cast<const Tile&>(given);
}

namespace {

nb::object arguments_of(nb::handle key) {
  return nb::isinstance<nb::tuple>(key) ? nb::borrow(key) : nb::object(nb::make_tuple(key));
}

// `lo:hi`; an end that is missing is that of the dimension.
template <class Extent>
Subscript subscript_of_range(nb::handle range, const Extent& extent, const Here& at) {
  if (!range.attr("step").is_none()) throw nb::type_error("a range with a step; ranges of views have none");
  const nb::object begin = range.attr("start"), end = range.attr("stop");
  if (begin.is_none() && end.is_none()) return Subscript();
  if (PyLong_Check(end.ptr()) && nb::cast<std::int64_t>(end) < 0)
    throw ProgramError(
        fmt::format("a range that ends at {}, where nothing is: ends count from the beginning; write "
                    "extent(dim) - {}",
                    nb::cast<std::int64_t>(end), -nb::cast<std::int64_t>(end)),
        at.at);
  return lang::range(begin.is_none() ? Operand(0, at.at) : operand(begin, at),
                     end.is_none() ? Operand(extent(), at.at) : operand(end, at));
}

}  // namespace

// Extents of tiles are numbers of Python: one that the device computes has no place there.
std::vector<int> constants(nb::handle shape) {
  std::vector<int> result;
  const auto add = [&](nb::handle extent) {
    if (is_value(extent))
      throw ProgramError(
          "the extents of a tile are Python numbers, not Dims or values: the kernel's function makes one "
          "program for each",
          here().at);
    result.push_back(nb::cast<int>(nb::steal(PyNumber_Index(extent.ptr()))));
  };
  if (nb::isinstance<nb::tuple>(shape) || nb::isinstance<nb::list>(shape))
    for (const nb::handle extent : shape) add(extent);
  else
    add(shape);
  return result;
}

bool has_ranges(nb::handle key) {
  for (const nb::handle each : arguments_of(key))
    if (PySlice_Check(each.ptr()) || each.is(Py_Ellipsis)) return true;
  return false;
}

std::vector<Subscript> subscripts_of(int dimensions, const std::function<lang::Expr(int)>& extent,
                                     nb::handle key, std::size_t most, const Here& at) {
  std::vector<Subscript> subscripts;
  const nb::object all = arguments_of(key);
  const std::size_t given = nb::len(all);
  const auto rank = static_cast<std::size_t>(dimensions);
  for (const nb::handle each : all) {
    const int axis = static_cast<int>(subscripts.size());
    if (each.is(Py_Ellipsis))
      subscripts.resize(subscripts.size() + (rank + 1 > given ? rank + 1 - given : 0));
    else if (PySlice_Check(each.ptr()))
      subscripts.push_back(subscript_of_range(
          each, [&] { return extent(axis); }, at));
    else
      subscripts.emplace_back(lang::Expr(operand(each, at)), at.at);
  }
  if (subscripts.size() > most)
    throw nb::index_error(
        fmt::format("a view takes up to {} arguments, given {}", most, subscripts.size()).c_str());
  subscripts.resize(most);
  return subscripts;
}

namespace {

lang::Tensor slice(const lang::Tensor& tensor, nb::handle key) {
  const Here at = here();
  const std::vector<Subscript> s = subscripts_of(
      tensor.rank(), [&](int axis) { return tensor.extent(axis); }, key, 6, at);
  return tensor.slice(s[0], s[1], s[2], s[3], s[4], s[5], at.at);
}
template <class T>
T slice_of_tile(const T& tile, nb::handle key) {
  const Here at = here();
  const std::vector<Subscript> s = subscripts_of(
      tile.rank(), [&](int axis) { return lang::Expr(tile.extent(axis)); }, key, 4, at);
  return tile.slice(s[0], s[1], s[2], s[3], at.at);
}

ElementValue element(const lang::ViewPtr& view, nb::handle key) {
  const Here at = here();
  return element_value(view, operands(key, at), at);
}

void set_element(const lang::ViewPtr& view, nb::handle key, nb::handle value) {
  // The value of `a[i] += x` is recorded before this call.
  if (nb::isinstance<Stored>(value)) return;
  if (has_ranges(key))
    throw nb::type_error("assignment to a view; write copy(tile, view), or assign elements in parallel()");
  const Here at = here();
  const Operand stored = operand(value, at);
  lang::Element(view, operands(key, at), at.at) = stored;
}

[[noreturn]] void refuse_iteration(nb::handle) {
  throw nb::type_error("tensors and tiles are not iterable; loop with `with serial(n) as i:` or parallel()");
}

// Whole tensors and tiles are in no arithmetic; without these Python would say that there is no such
// operator.
template <class Class>
void refuse_arithmetic(Class& type) {
  for (const char* name : {"__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__",
                           "__rtruediv__", "__neg__", "__matmul__", "__lt__", "__le__", "__gt__", "__ge__"})
    type.def(name, [](const nb::args&) {
      throw nb::type_error(
          "arithmetic on a whole tensor or tile is not defined; compute with elements, as `with "
          "parallel(tile) as (i, j): "
          "tile[i, j] *= 2`, and multiply matrices with gemm()");
    });
}

void define_tensors(nb::module_& module) {
  nb::class_<lang::Window>(module, "Window", "The window of a tensor that begins at an offset.");
  nb::class_<lang::Tensor> tensor(module, "Tensor", "A tensor in global memory, or a view of one.");
  refuse_arithmetic(tensor);
  tensor
      .def("__getitem__",
           [](const lang::Tensor& self, nb::handle key) -> nb::object {
             if (has_ranges(key)) return nb::cast(slice(self, key));
             return nb::cast(element(self.view(), key));
           })
      .def("__setitem__", [](const lang::Tensor& self, nb::handle key,
                             nb::handle value) { set_element(self.view(), key, value); })
      .def("__iter__", refuse_iteration)
      .def(
          "slice", [](const lang::Tensor& self, const nb::args& key) { return slice(self, key); },
          "A view: an index drops its dimension, a slice keeps it; missing trailing dimensions are kept.")
      .def(
          "at",
          [](const lang::Tensor& self, const nb::args& offsets) {
            return window_of(self, operands(offsets, here()));
          },
          "The window that starts there; missing trailing offsets are 0.")
      .def(
          "reshape",
          [](const lang::Tensor& self, nb::handle shape) {
            const Here at = here();
            return self.reshape(operands(shape, at), at.at);
          },
          nb::arg("shape"))
      .def(
          "extent", [](const lang::Tensor& self, int dim) { return self.extent(dim, here().at); },
          nb::arg("dim"))
      .def_prop_ro("rank", [](const lang::Tensor& self) { return self.rank(); })
      .def_prop_ro("type", [](const lang::Tensor& self) { return self.type(); });
}

template <class T>
void define_views(nb::class_<T, Tile>& type) {
  type.def_prop_ro("T", [](const T& self) { return self.T(here().at); })
      .def("__getitem__",
           [](const T& self, nb::handle key) -> nb::object {
             if (has_ranges(key)) return nb::cast(slice_of_tile(self, key));
             return nb::cast(element(self.view(), key));
           })
      .def("slice", [](const T& self, const nb::args& key) { return slice_of_tile(self, key); })
      .def(
          "reshape",
          [](const T& self, nb::handle shape) { return self.reshape(constants(shape), here().at); },
          nb::arg("shape"));
}

void define_tiles(nb::module_& module) {
  nb::class_<Tile> tile(module, "Tile", "A tile: constant shape, owned by one block.");
  refuse_arithmetic(tile);
  tile.def_prop_ro("shape", [](const Tile& self) { return nb::tuple(nb::cast(self.shape())); })
      .def_prop_ro("rank", [](const Tile& self) { return self.rank(); })
      .def_prop_ro("type", [](const Tile& self) { return self.type(); })
      .def(
          "extent", [](const Tile& self, int dim) { return self.extent(dim); }, nb::arg("dim"))
      .def(
          "scalar",
          [](const Tile& self) {
            if (self.rank() != 0) return nb::cast(lang::Expr(self.scalar(here().at)));
            return nb::cast(element_value(self.view(), {}, here()));
          },
          "The value of a tile of rank 0, such as the sum of a vector.")
      .def("__iter__", refuse_iteration)
      .def("__setitem__",
           [](const Tile& self, nb::handle key, nb::handle value) { set_element(self.view(), key, value); });
  nb::class_<Shared, Tile> shared(module, "Shared", "A tile in the block's shared memory, undefined.");
  shared.def(
      "__init__",
      [](Shared* self, nb::handle shape, nb::handle type, const char* name) {
        new (self) Shared(name, constants(shape), dtype_of_object(type), here().at);
      },
      nb::arg("shape"), nb::arg("type"), nb::kw_only(), nb::arg("name") = "");
  define_views(shared);
  nb::class_<Fragment, Tile> fragment(module, "Fragment",
                                      "A tile in the registers of the block's threads, undefined or filled.");
  fragment.def(
      "__init__",
      [](Fragment* self, nb::handle shape, nb::handle type, nb::handle value, const char* name) {
        const Here at = here();
        new (self) Fragment(name, constants(shape), dtype_of_object(type), at.at);
        if (!value.is_none()) lang::fill(*self, operand(value, at), at.at);
      },
      nb::arg("shape"), nb::arg("type"), nb::arg("value") = nb::none(), nb::kw_only(), nb::arg("name") = "");
  define_views(fragment);
  fragment.def(
      "to", [](const Fragment& self, nb::handle type) { return self.to(dtype_of_object(type), here().at); },
      nb::arg("type"), "A new Fragment with the same contents in another type.");
}

}  // namespace

void define_places(nb::module_& module) {
  define_tensors(module);
  define_tiles(module);
}

}  // namespace tegula::python::language
