// Elements that are only moved, from one place to another of their type.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

// The byte of an element, which a store of the same type takes.
void CudaGridPrinter::move_element(const Load& n, const Stmt& s) {
  const std::string type = element_type(n.from.view.buffer->type);
  std::string text;
  if (is_packed(s)) {
    text = fmt::format("{}.get(e)", vectors_->names.at(s.get()));
  } else {
    const GuardedAddress at = address(n.from);
    text = fmt::format("*({})", at.pointer);
    if (!at.guard.empty()) text = fmt::format("{} ? {} : {}{{}}", at.guard, text, type);
  }
  out_.line(fmt::format("const {} {} = {};", type, name_variable(n.variable), text), s->at);
}

}  // namespace tegula::codegen
