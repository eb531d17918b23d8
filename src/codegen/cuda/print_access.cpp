// Elements of tensors and tiles, never outside their bounds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/element_limits.hpp"
#include "codegen/cuda/element_printer.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/element_bits.hpp"
#include "passes/cuda/fragment_axes.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

bool is_reshaped_view(const View& view) {
  if (view.shape.size() != view.buffer->shape.size()) return true;
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    if (!equal(view.shape[d], view.buffer->shape[d])) return true;
  }
  return false;
}

std::string conjunction(const std::vector<std::string>& conditions) {
  return fmt::format("{}", fmt::join(conditions, " && "));
}

std::string scaled(const std::string& index, const std::string& stride) {
  if (index == "0" || stride == "0") return "0";
  return stride == "1" ? index : fmt::format("{} * {}", index, stride);
}

}  // namespace

std::string compared(const Expr& e, const std::string& text) {
  return needs_parentheses(Op::lt, e->op, false) ? text : bare(text);
}

std::string element_of(const SharedTile& tile, const std::string& offset) {
  if (offset == "0") return tile.name;
  return fmt::format("{} + {}", tile.name, tile.order.is_swizzled() ? offset : grouped(offset));
}

std::string ElementPrinter::stride_text(const View& view, std::size_t dim) {
  if (!is_reshaped_view(view)) {
    const std::string stride = fmt::format("{}_s{}", tensors_.at(view.buffer.get()), dim);
    const auto known = has_whole_rows(*view.buffer) ? stride_of_workspace(*view.buffer, dim) : std::nullopt;
    if (known) return std::to_string(*known);
    if (view.buffer.get() != aligned_) return stride;
    if (dim + 1 == view.shape.size()) return "1";
    const bool narrow = dim + narrow_strides >= view.shape.size() && view.buffer->role != Role::workspace;
    return narrow ? fmt::format("int64_t(int({}))", stride) : stride;
  }
  std::int64_t known = 1;
  std::string text;
  for (std::size_t d = dim + 1; d < view.shape.size(); ++d) {
    if (is_constant(view.shape[d]))
      known *= constant_value(view.shape[d]);
    else
      text += fmt::format(" * int64_t({})", value(view.shape[d]));
  }
  return text.empty() ? std::to_string(known) : fmt::format("(int64_t({}){})", known, text);
}

// The conditions under which a coordinate exists, as far as they are not known to hold.
void ElementPrinter::add_limits(const View& view, std::size_t dim, const Expr& at, const std::string& text,
                                Texts& guards) {
  const ViewDim& d = view.dims[dim];
  if (!values_.is_at_least(at, 0)) guards.push_back(fmt::format("{} >= 0", text));
  if (!values_.is_less(at, view.shape[dim]))
    guards.push_back(fmt::format("{} < {}", text, value(view.shape[dim])));
  if (d.low && !values_.is_less(d.low, at, 0) && !is_constant(d.low, 0))
    guards.push_back(fmt::format("{} >= {}", text, value(d.low)));
  if (d.high && !values_.is_less(at, d.high) && !equal(d.high, view.shape[dim]))
    guards.push_back(fmt::format("{} < {}", text, value(d.high)));
}

GuardedAddress ElementPrinter::tensor_address(const Access& access, const std::vector<Expr>& at) {
  Texts terms, guards;
  for (std::size_t d = 0; d < at.size(); ++d) {
    std::string text = value(at[d]);
    if (!at[d]->args.empty()) {
      const std::string name = names_.unique("c");
      out_.define(scalar_type(at[d]->held()), name, bare(text));
      text = name;
    }
    const bool asked = std::find(unlimited_.begin(), unlimited_.end(), d) != unlimited_.end();
    if (!asked) add_limits(access.view, d, at[d], text, guards);
    const std::string term = scaled(fmt::format("int64_t({})", bare(text)), stride_text(access.view, d));
    if (term != "0" && text != "0") terms.push_back(term);
  }
  const std::string base = tensors_.at(access.view.buffer.get());
  return {terms.empty() ? base : fmt::format("{} + ({})", base, fmt::join(terms, " + ")),
          conjunction(guards)};
}

std::string ElementPrinter::offset_in(const SharedTile& tile, const Buffer& buffer, const Texts& at) const {
  const auto number = [&](std::size_t dims) {
    Texts terms;
    std::int64_t stride = 1;
    for (std::size_t d = dims; d-- > 0; stride *= buffer.extent(static_cast<int>(d))) {
      if (at[d] != "0") terms.insert(terms.begin(), scaled(grouped(at[d]), std::to_string(stride)));
    }
    return terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
  };
  if (!tile.order.is_swizzled()) return number(at.size());
  return fmt::format("tg::swizzled<{}, {}{}>({}, {})", passes::tile_rows(buffer), tile.order.columns,
                     buffer.type.bytes() == 2 ? "" : fmt::format(", {}", buffer.type.bytes()),
                     at.size() == 2 ? bare(at[0]) : number(at.size() - 1), bare(at.back()));
}

GuardedAddress ElementPrinter::shared_address(const Access& access, const std::vector<Expr>& at) {
  const Buffer& buffer = *access.view.buffer;
  const SharedTile& tile = shared_.at(&buffer);
  Texts texts, guards;
  for (std::size_t d = 0; d < at.size(); ++d) {
    texts.push_back(value(at[d]));
    if (!values_.is_at_least(at[d], 0))
      guards.push_back(fmt::format("{} >= 0", compared(at[d], texts.back())));
    if (!values_.is_less(at[d], access.view.shape[d]))
      guards.push_back(
          fmt::format("{} < {}", compared(at[d], texts.back()), constant_value(access.view.shape[d])));
  }
  if (is_reshaped_view(access.view)) {
    // Back to the buffer's own coordinates by way of the row-major number.
    Texts terms;
    std::int64_t stride = 1;
    for (std::size_t d = at.size(); d-- > 0; stride *= constant_value(access.view.shape[d]))
      terms.push_back(times(fmt::format("int({})", bare(texts[d])), stride));
    const std::string flat = names_.unique("flat");
    out_.line(fmt::format("const int {} = {};", flat,
                          terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "))));
    texts.assign(buffer.shape.size(), "0");
    stride = 1;
    for (std::size_t d = buffer.shape.size(); d-- > 0; stride *= buffer.extent(static_cast<int>(d)))
      texts[d] = digit_text(flat, stride, buffer.extent(static_cast<int>(d)));
  }
  return {element_of(tile, offset_in(tile, buffer, texts)), conjunction(guards)};
}

GuardedAddress ElementPrinter::address(const Access& access) {
  const std::vector<Expr> at = coordinates(access);
  return access.view.is_tile() ? shared_address(access, at) : tensor_address(access, at);
}

// The register that holds the element, as a function of the loop's register `r`: both number the digits that
// the fragment has in the same order.
std::string ElementPrinter::register_text(const Access& access) const {
  const auto axes = passes::loop_axes(*loop_->loop, access);
  if (!axes) return register_of_bits(access);
  std::int64_t step = 1, own = 1;
  Texts terms;
  for (const layout::Digit& digit : loop_->layout->registers()) {
    bool kept = false;
    for (const int axis : *axes) kept |= digit.stride[static_cast<std::size_t>(axis)] != 0;
    if (kept) {
      terms.push_back(times(digit_text("r", step, digit.extent, loop_->layout->register_count()), own));
      own *= digit.extent;
    }
    step *= digit.extent;
  }
  if (own == step) return "r";
  return terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
}

// The register of an element if an iteration accesses several elements of the fragment: the loop's registers
// number the bits of its indices, those of the fragment also the constant bits.
std::string ElementPrinter::register_of_bits(const Access& access) const {
  const auto bits = *passes::element_bits(*loop_->loop, access);
  const auto held = *passes::bits_of(fragments_.at(access.view.buffer.get()).layout);
  const std::int64_t elements = access.view.buffer->elements();
  std::int64_t fixed = 0, own = 1, step = 1;
  std::vector<std::array<std::int64_t, 3>> pieces;  // step in the loop's number, extent, factor
  for (const int at : held.registers) {
    const passes::ElementBit& bit = bits[static_cast<std::size_t>(at)];
    const std::int64_t values = at < passes::log2_of(elements) ? 2 : passes::odd_factor(elements);
    if (bit.axis < 0) {
      fixed += bit.bit * own;
    } else {
      const bool follows = !pieces.empty() && pieces.back()[2] * pieces.back()[1] == own;
      if (follows)
        pieces.back()[1] *= values;
      else
        pieces.push_back({step, values, own});
      step *= values;
    }
    own *= values;
  }
  std::string text = fixed > 0 ? std::to_string(fixed) : "0";
  for (const auto& [from, extent, factor] : pieces)
    text = plus(times(digit_text("r", from, extent, loop_->layout->register_count()), factor), text);
  return text;
}

std::string ElementPrinter::load_text(const Access& access, bool as_stored) {
  const BufferPtr& buffer = access.view.buffer;
  if (buffer->space == Space::fragment && !shared_.contains(buffer.get())) {
    const FragmentTile& tile = fragments_.at(buffer.get());
    if (tile.is_packed)
      return fmt::format("tg::element<{0}>({1}[({2}) / 2], ({2}) % 2)", element_type(buffer->type), tile.name,
                         register_text(access));
    // Outside parallel only a tile of rank 0 is read, and every thread holds it.
    return fmt::format("{}[{}]", tile.name, loop_ ? register_text(access) : "0");
  }
  const GuardedAddress at = address(access);
  if (as_stored)
    return at.guard.empty()
               ? fmt::format("*({})", at.pointer)
               : fmt::format("({} ? *({}) : {}{{}})", at.guard, at.pointer, element_type(buffer->type));
  if (at.guard.empty()) return fmt::format("tg::load({})", at.pointer);
  return fmt::format("({} ? tg::load({}) : {}(0))", at.guard, at.pointer, scalar_type(buffer->type));
}

void ElementPrinter::store(const Access& access, const Expr& value, const std::string& text) {
  const BufferPtr& buffer = access.view.buffer;
  const std::string type = element_type(buffer->type);
  if (buffer->space == Space::fragment && !shared_.contains(buffer.get())) {
    const bool rounds = buffer->type.bits() < 32 && !plan_.forms.unrounded.contains(buffer.get()) &&
                        !values_.is_exact(value, buffer->type);
    const std::string converted = rounds ? fmt::format("tg::rounded<{}>({})", type, text) : text;
    out_.line(fmt::format("{}[{}] = {};", fragments_.at(buffer.get()).name,
                          loop_ ? register_text(access) : "0", bare(converted)));
    return;
  }
  const GuardedAddress at = address(access);
  Texts guards;
  if (!at.guard.empty()) guards.push_back(at.guard);
  if (const std::string one = only_one(); !one.empty()) guards.push_back(one);
  const std::string condition = guards.empty() ? "" : fmt::format("if ({}) ", conjunction(guards));
  out_.line(fmt::format("{}tg::store({}, {});", condition, at.pointer, bare(text)));
}

void ElementPrinter::touch(const View& view, MemoryUse use, bool by_one, const std::vector<Expr>* index) {
  const Buffer* buffer = view.buffer.get();
  if (view.is_tile()) {
    if (const auto tile = shared_.find(buffer); tile != shared_.end()) {
      Memory memory = tile->second.memory;
      memory.part = passes::part_of_tile(view);
      out_.touch({memory, use, by_one, tile->second.alternates ? 0 : -1});
    }
    return;
  }
  if (written_.contains(buffer)) out_.touch({tensor_memory(view, index), use, by_one});
}

// Other rows and slices of other columns of a tensor are other memory, unless tensors may share bytes.
Memory ElementPrinter::tensor_memory(const View& view, const std::vector<Expr>* index) const {
  const int number = memory_of_.at(view.buffer.get());
  const auto shares = [&](const auto& other) { return other.second == number; };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto limit = [](const Expr& given, std::int64_t otherwise) {
    return given && is_constant(given) ? constant_value(given) : otherwise;
  };
  if (view.dims.empty() || !is_own_shape(view) ||
      std::count_if(memory_of_.begin(), memory_of_.end(), shares) > 1)
    return {number, 0, most};
  return {number, limit(view.dims.back().low, 0), limit(view.dims.back().high, most),
          passes::places_in_block(view, index, planned_.index)};
}

void ElementPrinter::require_aligned(const BufferPtr& tensor, int unit) {
  if (tensor->role == Role::workspace) return;  // where the runtime places it
  int& known = program_.aligned[signature_.position_of(tensor.get())];
  known = std::max(known, unit);
}

std::string ElementPrinter::only_one() const {
  return loop_ ? loop_->first : fmt::format("{} == 0", team_.thread);
}

}  // namespace tegula::codegen
