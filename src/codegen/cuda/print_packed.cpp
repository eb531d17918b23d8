// Fragments of 16-bit floats as words of two.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

void CudaGridPrinter::pack(const passes::Conversion& n, const Loc& at) {
  const FragmentTile &from = fragments_.at(n.from.get()), &to = fragments_.at(n.to.get());
  out_.code();
  out_.line("#pragma unroll");
  const std::int64_t words = to.layout.register_count() / 2;
  out_.line(fmt::format("for (int r = {}; r < {}; ++r) {}[r] = tg::pair<{}>({}[2 * r], {}[2 * r + 1]);",
                        words * part_.first / 16, words * part_.last / 16, to.name, element_type(n.to->type),
                        from.name, from.name),
            at);
}

}  // namespace tegula::codegen
