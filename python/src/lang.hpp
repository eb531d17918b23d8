// The language as objects of Python: values, places, and where in the user's file they were written.
#pragma once
#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <vector>

#include "lang/deferred.hpp"
#include "tegula/lang.hpp"

namespace tegula::python::language {

namespace nb = nanobind;

// Where Python is: the place in the innermost function outside of this package, and a number of its
// statement.
struct Here {
  Loc at;
  int statement;
};
Here here();

// `a[i, j]`: a value that is read where it is written, unless it turns out to be what is written.
struct ElementValue : lang::Expr {
  std::shared_ptr<lang::Element> place;
  int statement;
};
ElementValue element_value(lang::ViewPtr view, const std::vector<lang::Operand>& index, const Here& at);

// The place for an operation that writes it; the read is left out. TypeError for what is no element.
lang::Element&& place_of(const char* what, nb::handle given);

// What stands for an element in `a[i] += x` once that is recorded.
struct Stored {};

struct Variable {
  std::unique_ptr<lang::Var> var;
};

// A value of the language, or a number of Python. TypeError for other objects.
lang::Operand operand(nb::handle given, const Here& at);
std::vector<lang::Operand> operands(nb::handle sequence, const Here& at);
// Whether the object is a value of the language, and no number of Python.
bool is_value(nb::handle given);

// A type of the language, of NumPy or of PyTorch, or the name of one.
DType dtype_of_object(nb::handle given);

// A tile, a tensor or a window of one.
lang::ViewPtr view_of(const char* what, nb::handle given);
const lang::Tile& tile_of(const char* what, nb::handle given);

// Extents of a tile, the arguments of a view `a[i, :, lo:hi]`, and whether a key is that of a view.
std::vector<int> constants(nb::handle shape);
std::vector<lang::Subscript> subscripts_of(int dimensions, const std::function<lang::Expr(int)>& extent,
                                           nb::handle key, std::size_t most, const Here& at);
bool has_ranges(nb::handle key);

// A parameter or workspace of packed numbers.
nb::object packed_parameter(std::string_view kind, const char* name, const lang::Extents& shape,
                            const lang::PackedType& type, const lang::OutputOptions& options, const Here& at);
bool is_packed(nb::handle given);
// Copies if one of the two is packed.
bool copied_packed(nb::handle from, nb::handle to, const Here& at);

// Loops, branches and grids that are made, but opened by no `with`, would be left out without a word.
void forget_blocks();
void refuse_unopened_blocks();
bool is_block(nb::handle given);

void define_dtypes(nb::module_& module);
void define_values(nb::module_& module);
void define_packed(nb::module_& module);
void define_places(nb::module_& module);
void define_control(nb::module_& module);
void define_tile_ops(nb::module_& module);
void define_kernels(nb::module_& module);
void define_load(nb::module_& module);
// A kernel that another library of the process has built.
nb::object adopt_kernel(const std::shared_ptr<const ir::Kernel>& kernel);

}  // namespace tegula::python::language
