// Fragments of 16-bit floats as words of two, and of 8-bit floats as words of four.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

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

namespace {

std::string factors_of(const std::string& fragment) { return fragment + "factors_"; }

// Two neighbours as one word of bf16.
std::string neighbours(const std::string& array) {
  return fmt::format("tg::upper_halves({0}[2 * r], {0}[2 * r + 1])", array);
}

std::string loop_over_products(const passes::ExactFactors& own, const std::string& from,
                               const std::string& to, std::int64_t registers, int first, int last) {
  const std::int64_t words = registers / 2;
  const std::uint32_t power = std::bit_cast<std::uint32_t>(own.power);
  std::string product = fmt::format("{} & {}u", neighbours(from), own.mask | own.mask >> 16);
  if (own.power != 1) product = fmt::format("tg::times_bf16({}, {}u)", product, power | power >> 16);
  if (own.factor) product = fmt::format("tg::times_bf16({}, {})", product, neighbours(factors_of(from)));
  return fmt::format("for (int r = {}; r < {}; ++r) {}[r] = {};", words * first / 16, words * last / 16, to,
                     product);
}

}  // namespace

bool CudaGridPrinter::is_masked_later(const VariablePtr& v) const {
  return std::any_of(plan_.forms.factored.begin(), plan_.forms.factored.end(),
                     [&](const auto& own) { return own.second.masked == v; });
}

void CudaGridPrinter::declare_factors(const std::string& name, const layout::Layout& layout,
                                      const passes::ExactFactors& own, const Loc& at) {
  out_.line(fmt::format("uint32_t {}[{}];", name, layout.register_count()), at);
  if (own.factor) out_.line(fmt::format("uint32_t {}[{}];", factors_of(name), layout.register_count()), at);
}

void CudaGridPrinter::store_factors(const Access& to, const passes::ExactFactors& own) {
  const std::string name = fragments_.at(to.view.buffer.get()).name, place = register_text(to);
  const std::string bits = own.masked ? variable_text(own.masked) : value(own.bits);
  out_.line(fmt::format("{}[{}] = {};", name, place, bare(bits)));
  if (own.factor)
    out_.line(fmt::format("{}[{}] = tg::as_u32({});", factors_of(name), place, bare(value(own.factor))));
}

void CudaGridPrinter::pack(const passes::Conversion& n, const Loc& at) {
  const FragmentTile &from = fragments_.at(n.from.get()), &to = fragments_.at(n.to.get());
  const auto own = plan_.forms.factored.find(n.from.get());
  out_.code();
  out_.line("#pragma unroll");
  const std::int64_t registers = to.layout.register_count();
  out_.line(own == plan_.forms.factored.end()
                ? loop_over_words(n.to->type, from.name, to.name, registers, part_.first, part_.last)
                : loop_over_products(own->second, from.name, to.name, registers, part_.first, part_.last),
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
