// Registers that threads hold: which elements they are, and their way through shared memory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/element_printer.hpp"
#include "ir/effects.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// The sum over digits along a dimension: digit = number / step % extent.
std::string coordinate_text(const layout::Digits& digits, std::size_t dim, const std::string& number) {
  std::vector<std::string> terms;
  std::int64_t step = 1, count = 1;
  for (const layout::Digit& digit : digits) count *= digit.extent;
  for (const layout::Digit& digit : digits) {
    if (digit.stride[dim] != 0) {
      terms.push_back(times(digit_text(number, step, digit.extent, count), digit.stride[dim]));
    }
    step *= digit.extent;
  }
  return terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
}

// Where the element with these coordinates is in a tile of the shape, row by row.
std::string element_text(const std::vector<std::string>& names, const std::vector<std::int64_t>& shape) {
  std::vector<std::string> terms;
  std::int64_t stride = 1;
  for (std::size_t d = names.size(); d-- > 0; stride *= shape[d]) terms.push_back(times(names[d], stride));
  return terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
}

}  // namespace

std::string ElementPrinter::first_replica(const Layout& layout) const {
  Texts terms;
  std::int64_t step = 1;
  for (const layout::Digit& digit : layout.threads()) {
    if (digit.is_replica())
      terms.push_back(fmt::format("{} == 0", digit_text(team_.thread, step, digit.extent)));
    step *= digit.extent;
  }
  return terms.empty() ? "" : fmt::format("{}", fmt::join(terms, " && "));
}

ElementPrinter::Texts ElementPrinter::base_coordinates(const Layout& layout) {
  Texts result;
  for (std::size_t d = 0; d < layout.shape().size(); ++d) {
    result.push_back(names_.unique("base"));
    out_.define("int", result.back(), coordinate_text(layout.threads(), d, team_.thread));
  }
  return result;
}

Coordinates ElementPrinter::register_coordinates(const Layout& layout, const Texts& base) {
  Coordinates result;
  Texts inside;
  const std::int64_t run = run_along_rows(layout);
  for (std::size_t d = 0; d < layout.shape().size(); ++d) {
    result.names.push_back(names_.unique("x"));
    const std::string steps = coordinate_text(layout.registers(), d, "r");
    out_.define("int", result.names.back(), plus(base[d], steps));
    // All elements of a piece of a row exist, or none: the compiler shall ask for its first one only.
    const std::string in_piece =
        run > 1 && d + 1 == layout.shape().size() ? fmt::format(" - r % {}", run) : std::string();
    if (layout.overhangs(static_cast<int>(d)))
      inside.push_back(fmt::format("{}{} < {}", result.names.back(), in_piece, layout.shape()[d]));
  }
  result.inside = fmt::format("{}", fmt::join(inside, " && "));
  return result;
}

void ElementPrinter::touch_all(const Body& statements) {
  for (const Region& region : all_effects(statements).regions) {
    const MemoryUse use = region.touch == Touch::read      ? MemoryUse::read
                          : region.touch == Touch::combine ? MemoryUse::combine
                                                           : MemoryUse::write;
    touch(*region.view, use, false, region.index);
  }
}

SharedTile ElementPrinter::stage(const std::string& name, std::int64_t elements, DType type) {
  refuse_to_spread(fmt::format("elements of fragment {} change their threads", name),
                   "use the fragment in the same way in all loops");
  return place_between_threads(name, elements, type);
}

SharedTile ElementPrinter::place_between_threads(const std::string& name, std::int64_t elements, DType type) {
  const std::int64_t bytes = elements * type.bytes(), each = (bytes + 15) / 16 * 16;
  const std::int64_t begin = memory_.allocate(
      each * team_.count, 128, fmt::format("{}[{}] on their way between threads", type.name(), elements));
  SharedTile tile{names_.unique(name + "_staged"), {}, {-1, begin, begin + each * team_.count}};
  const std::string offset =
      team_.slot.empty() ? std::to_string(begin) : fmt::format("{} + {} * {}", begin, team_.slot, each);
  out_.code();
  out_.line(
      fmt::format("{0}* const {1} = ({0}*)({3} + {2});", element_type(type), tile.name, offset, own_memory_));
  return tile;
}

void ElementPrinter::release(const SharedTile& tile) { memory_.free(tile.memory.begin); }

void ElementPrinter::to_shared(const FragmentTile& from, const SharedTile& to, const Loc& at) {
  out_.code();
  out_.touch({to.memory, MemoryUse::write});
  out_.open(fmt::format("{{  // {}: to shared memory", location_in_folder(at)));
  const Texts base = base_coordinates(from.layout);
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", from.layout.register_count()));
  const Coordinates x = register_coordinates(from.layout, base);
  Texts guards;
  if (!x.inside.empty()) guards.push_back(x.inside);
  if (const std::string first = first_replica(from.layout); !first.empty()) guards.push_back(first);
  out_.line(fmt::format("{}tg::store({} + {}, {}[r]);",
                        guards.empty() ? "" : fmt::format("if ({}) ", fmt::join(guards, " && ")), to.name,
                        element_text(x.names, from.layout.shape()), from.name));
  out_.close();
  out_.close();
}

void ElementPrinter::from_shared(const SharedTile& from, const FragmentTile& to, const Loc& at) {
  out_.code();
  out_.touch({from.memory, MemoryUse::read});
  out_.open(fmt::format("{{  // {}: from shared memory", location_in_folder(at)));
  const Texts base = base_coordinates(to.layout);
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", to.layout.register_count()));
  const Coordinates x = register_coordinates(to.layout, base);
  out_.line(fmt::format("{}{}[r] = tg::load({} + {});",
                        x.inside.empty() ? "" : fmt::format("if ({}) ", x.inside), to.name, from.name,
                        element_text(x.names, to.layout.shape())));
  out_.close();
  out_.close();
}

}  // namespace tegula::codegen
