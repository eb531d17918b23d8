// Fragments of 16-bit floats as words of two, and of 8-bit floats as words of four.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "codegen/cuda/packed_words.hpp"
#include "layout/byte_operand.hpp"

namespace tegula::codegen {

using namespace ir;

std::string loop_over_words(DType type, const std::string& from, const std::string& to,
                            std::int64_t registers, int first, int last) {
  const std::int64_t words = registers / elements_of_word(type);
  const std::string element = element_type(type);
  if (type.bits() == 8)
    return fmt::format("for (int w = {}; w < {}; ++w) {}[w] = tg::operand_word<{}>({} + {});",
                       words * first / 16, words * last / 16, to, element, from, layout::byte_word_register);
  return fmt::format("for (int r = {0}; r < {1}; ++r) {2}[r] = tg::pair<{3}>({4}[2 * r], {4}[2 * r + 1]);",
                     words * first / 16, words * last / 16, to, element, from);
}

void CudaGridPrinter::pack(const passes::Conversion& n, const Loc& at) {
  const FragmentTile &from = fragments_.at(n.from.get()), &to = fragments_.at(n.to.get());
  out_.code();
  out_.line("#pragma unroll");
  out_.line(
      loop_over_words(n.to->type, from.name, to.name, to.layout.register_count(), part_.first, part_.last),
      at);
}

void CudaGridPrinter::fill_words(const passes::Filling& n, const Loc& at) {
  const FragmentTile& tile = fragments_.at(n.to.get());
  const std::string type = element_type(n.to->type), element = value(n.value);
  out_.code();
  out_.line("#pragma unroll");
  out_.line(fmt::format("for (int r = 0; r < {}; ++r) {}[r] = tg::pair<{}>({}, {});",
                        tile.layout.register_count() / elements_of_word(n.to->type), tile.name, type, element,
                        element),
            at);
}

}  // namespace tegula::codegen
