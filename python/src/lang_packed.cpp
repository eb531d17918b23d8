// Numbers of 4 and 2 bits: their types, tensors, tiles and copies.
#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "lang.hpp"
#include "lang_windows.hpp"

namespace tegula::python::language {

using lang::PackedShared;
using lang::PackedTensor;
using lang::PackedType;
using lang::PackedWindow;

namespace {

lang::PackedSource source_of(nb::handle given) {
  if (nb::isinstance<PackedWindow>(given)) return nb::cast<const PackedWindow&>(given);
  if (nb::isinstance<PackedTensor>(given)) return nb::cast<const PackedTensor&>(given);
  return nb::cast<const PackedShared&>(given);
}
lang::PackedTarget target_of(nb::handle given) {
  if (nb::isinstance<PackedWindow>(given)) return nb::cast<const PackedWindow&>(given);
  if (nb::isinstance<PackedTensor>(given)) return nb::cast<const PackedTensor&>(given);
  return nb::cast<PackedShared&>(given);
}

// Numbers are read one by one, and written by copies.
[[noreturn]] void refuse_store(nb::handle, nb::handle, nb::handle) {
  throw nb::type_error("one packed number is not written alone; write a tile with copy()");
}

template <class Class>
void define_numbers(Class& type) {
  using T = typename Class::Type;
  type.def("as_f32",
           [](const T& self, const nb::args& index) {
             const Here at = here();
             return self.view().as_f32(operands(index, at), at.at);
           })
      .def_prop_ro("rank", [](const T& self) { return self.rank(); })
      .def_prop_ro("type", [](const T& self) { return self.type(); })
      .def("__setitem__", refuse_store);
}

PackedTensor slice(const PackedTensor& self, nb::handle key) {
  const Here at = here();
  const std::vector<lang::Subscript> s = subscripts_of(
      self.rank(), [&](int axis) { return self.extent(axis, at.at); }, key, 6, at);
  return self.slice(s[0], s[1], s[2], s[3], s[4], s[5], at.at);
}

void define_packed_tensors(nb::module_& module) {
  nb::class_<PackedWindow>(module, "PackedWindow", "The window of a packed tensor that begins at an offset.");
  nb::class_<PackedTensor> type(module, "PackedTensor", "Numbers of 4 or 2 bits in a tensor of u8 or u32.");
  type.def(
          "__init__",
          [](PackedTensor* self, const lang::Tensor& elements, const PackedType& packed) {
            new (self) PackedTensor(elements, packed, here().at);
          },
          nb::arg("elements"), nb::arg("type"))
      .def("__getitem__",
           [](const PackedTensor& self, nb::handle key) -> nb::object {
             if (has_ranges(key)) return nb::cast(slice(self, key));
             const Here at = here();
             return nb::cast(self.view().number(operands(key, at), at.at));
           })
      .def(
          "slice", [](const PackedTensor& self, const nb::args& key) { return slice(self, key); },
          "A view that keeps the last dimension; missing trailing dimensions are kept.")
      .def(
          "at",
          [](const PackedTensor& self, const nb::args& offsets) {
            return window_of(self, operands(offsets, here()));
          },
          "The window that starts there; missing trailing offsets are 0.")
      .def(
          "extent", [](const PackedTensor& self, int dim) { return self.extent(dim, here().at); },
          nb::arg("dim"))
      .def_prop_ro("elements", [](const PackedTensor& self) { return self.elements(); });
  define_numbers(type);
}

void define_packed_tiles(nb::module_& module) {
  nb::class_<PackedShared> type(module, "PackedShared",
                                "Numbers of 4 or 2 bits in the block's shared memory.");
  type.def(
          "__init__",
          [](PackedShared* self, nb::handle shape, const PackedType& packed, const char* name) {
            new (self) PackedShared(name, constants(shape), packed, here().at);
          },
          nb::arg("shape"), nb::arg("type"), nb::kw_only(), nb::arg("name") = "")
      .def("__getitem__",
           [](const PackedShared& self, nb::handle key) {
             const Here at = here();
             return self.view().number(operands(key, at), at.at);
           })
      .def(
          "extent", [](const PackedShared& self, int dim) { return self.extent(dim); }, nb::arg("dim"))
      .def_prop_ro(
          "elements", [](PackedShared& self) -> lang::Shared& { return self.elements(); },
          nb::rv_policy::reference_internal);
  define_numbers(type);
}

}  // namespace

bool is_packed(nb::handle given) {
  return nb::isinstance<PackedWindow>(given) || nb::isinstance<PackedTensor>(given) ||
         nb::isinstance<PackedShared>(given);
}

bool copied_packed(nb::handle from, nb::handle to, const Here& at) {
  if (!is_packed(from) && !is_packed(to)) return false;
  if (is_packed(from) && is_packed(to)) {
    lang::copy(source_of(from), target_of(to), at.at);
  } else if (is_packed(from)) {
    tile_of("copy", to);
    lang::copy(source_of(from), nb::cast<lang::Tile&>(to), at.at);
  } else {
    lang::copy(tile_of("copy", from), target_of(to), at.at);
  }
  return true;
}

nb::object packed_parameter(std::string_view kind, const char* name, const lang::Extents& shape,
                            const PackedType& type, const lang::OutputOptions& options, const Here& at) {
  if (kind == "input") return nb::cast(lang::input(name, shape, type, at.at));
  if (kind == "output") return nb::cast(lang::output(name, shape, type, options, at.at));
  if (kind == "inout") return nb::cast(lang::inout(name, shape, type, at.at));
  return nb::cast(lang::workspace(name, shape, type, options, at.at));
}

void define_packed(nb::module_& module) {
  nb::class_<PackedType>(module, "PackedType", "How numbers of 4 or 2 bits are packed.")
      .def_prop_ro("name", &PackedType::name)
      .def_prop_ro("bits", [](const PackedType& self) { return self.bits; })
      .def("minus", &PackedType::minus, nb::arg("number"), "The same numbers, stored with an excess.")
      .def("in_words", &PackedType::in_words, "The same bytes, in a tensor of u32.")
      .def("__repr__", &PackedType::name);
  nb::dict all;
  for (const PackedType& type : {lang::i4, lang::u4, lang::i2, lang::u2, lang::e2m1})
    all[type.name().c_str()] = type;
  module.attr("lang_packed_types") = all;
  define_packed_tensors(module);
  define_packed_tiles(module);
}

}  // namespace tegula::python::language
