// Declarations, copies, reductions and products of tiles.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

const char* identity_of(ReduceOp op, DType type) {
  if (op == ReduceOp::any) return "false";
  if (op == ReduceOp::all) return "true";
  if (op != ReduceOp::max && op != ReduceOp::min) return "0";
  const bool low = op == ReduceOp::max;
  if (type.is_floating()) return low ? "-tg::infinity()" : "tg::infinity()";
  if (type == u32) return low ? "0u" : "0xffffffffu";
  if (type == i64) return low ? "-9223372036854775807l - 1" : "9223372036854775807l";
  return low ? "-2147483647 - 1" : "2147483647";
}

const char* combination_of(ReduceOp op) {
  constexpr const char* names[] = {"tg::Add", "tg::Max", "tg::Min", "tg::Max", "tg::Or", "tg::And"};
  return names[static_cast<int>(op)];
}

bool is_power_of_two(std::int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

}  // namespace

void CudaGridPrinter::declare_fragment(const std::string& name, DType type, const Layout& layout,
                                       const Loc& at) {
  out_.line(fmt::format("{} {}[{}];", scalar_type(type), name, layout.register_count()), at);
}

void CudaGridPrinter::declare_shared(const BufferPtr& tile, const Loc& at) {
  const TileOrder order = swizzled_.contains(tile.get()) ? swizzled_order(*tile) : TileOrder{};
  const std::int64_t alignment = order.is_swizzled() ? 1024 : 128;
  const std::int64_t each = (tile->elements() * tile->type.bytes() + alignment - 1) / alignment * alignment;
  const std::int64_t begin = memory_.allocate(each * team_.count, alignment);
  const std::string name = names_.unique(tile->name);
  shared_[tile.get()] = {name, order, {-1, begin, begin + each * team_.count}};
  out_.code();
  const std::string offset =
      team_.slot.empty() ? std::to_string(begin) : fmt::format("{} + {} * {}", begin, team_.slot, each);
  out_.line(
      fmt::format("{0}* const {1} = ({0}*)(shared_memory + {2});", element_type(tile->type), name, offset),
      at);
}

void CudaGridPrinter::clear_registers(const FragmentTile& tile) {
  out_.line("#pragma unroll");
  out_.line(fmt::format("for (int r = 0; r < {}; ++r) {}[r] = 0;", tile.layout.register_count(), tile.name));
}

void CudaGridPrinter::operator()(const Reduce& n, const Stmt& s) {
  const FragmentTile& from = fragments_.at(n.from.buffer.get());
  const FragmentTile sum{names_.unique(n.to.buffer->name + "_sum"), from.layout.slice(n.dim)};
  out_.code();
  declare_fragment(sum.name, n.to.buffer->type, sum.layout, s->at);
  fold_registers(n, from, sum);
  fold_threads(n, from, sum, s->at);
  finish_reduction(n, sum, s->at);
}

void CudaGridPrinter::fold_registers(const Reduce& n, const FragmentTile& from, const FragmentTile& sum) {
  const DType type = compute_type(n.to.buffer->type);
  out_.open("{");
  out_.line("#pragma unroll");
  out_.line(fmt::format("for (int r = 0; r < {}; ++r) {}[r] = {};", sum.layout.register_count(), sum.name,
                        identity_of(n.op, type)));
  const Texts base = base_coordinates(from.layout);
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", from.layout.register_count()));
  const Coordinates x = register_coordinates(from.layout, base);
  std::int64_t step = 1, own = 1;
  Texts terms;
  for (const layout::Digit& digit : from.layout.registers()) {
    bool kept = false;
    for (std::size_t d = 0; d < digit.stride.size(); ++d)
      kept |= static_cast<int>(d) != n.dim && digit.stride[d] != 0;
    if (kept) {
      terms.push_back(fmt::format("r / {} % {} * {}", step, digit.extent, own));
      own *= digit.extent;
    }
    step *= digit.extent;
  }
  const std::string to =
      fmt::format("{}[{}]", sum.name, terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + ")));
  std::string element = fmt::format("{}({}[r])", scalar_type(type), from.name);
  if (n.op == ReduceOp::absmax) element = fmt::format("tg::abs({})", element);
  out_.line(fmt::format("{}{} = {}::of({}, {});", x.inside.empty() ? "" : fmt::format("if ({}) ", x.inside),
                        to, combination_of(n.op), to, element));
  out_.close();
  out_.close();
}

// Partial results meet by exchanges within a warp, and through shared memory among warps.
void CudaGridPrinter::fold_threads(const Reduce& n, const FragmentTile& from, const FragmentTile& sum,
                                   const Loc& at) {
  std::int64_t step = 1;
  layout::Digits parts;
  Texts numbers;
  for (const layout::Digit& digit : from.layout.threads()) {
    const bool reduced = digit.stride[static_cast<std::size_t>(n.dim)] != 0;
    std::int64_t in_warp = 1;
    if (reduced && step < 32 && is_power_of_two(step) && is_power_of_two(digit.extent))
      in_warp = std::min<std::int64_t>(digit.extent, 32 / step);
    if (in_warp > 1) {
      out_.line("#pragma unroll");
      out_.line(fmt::format("for (int r = 0; r < {0}; ++r) {1}[r] = tg::across_lanes<{2}, {3}, {4}>({1}[r]);",
                            sum.layout.register_count(), sum.name, combination_of(n.op), step, in_warp));
    }
    if (reduced && digit.extent > in_warp) {
      parts.push_back({digit.extent / in_warp, digit.stride});
      numbers.push_back(fmt::format("{} / {} % {}", team_.thread, step * in_warp, digit.extent / in_warp));
    }
    step *= digit.extent;
  }
  if (!parts.empty()) fold_warps(n, parts, numbers, sum, at);
}

void CudaGridPrinter::fold_warps(const Reduce& n, const layout::Digits& parts, const Texts& part_numbers,
                                 const FragmentTile& sum, const Loc& at) {
  std::int64_t count = 1, elements = 1;
  std::string part;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    part += fmt::format("{}({}) * {}", i == 0 ? "" : " + ", part_numbers[i], count);
    count *= parts[i].extent;
  }
  for (const std::int64_t extent : sum.layout.shape()) elements *= extent;
  const DType type = n.to.buffer->type;
  const SharedTile tile =
      stage(sum.name, elements * count, type.bits() < 32 && !type.is_boolean() ? compute_type(type) : type);
  const auto loop = [&](const std::string& header,
                        const std::function<void(const Coordinates&, const std::string&)>& f) {
    out_.open(fmt::format("{{  // {}: {}", short_location(at), header));
    const Texts base = base_coordinates(sum.layout);
    out_.line("#pragma unroll");
    out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", sum.layout.register_count()));
    const Coordinates x = register_coordinates(sum.layout, base);
    Texts terms;
    std::int64_t stride = 1;
    for (std::size_t d = x.names.size(); d-- > 0; stride *= sum.layout.shape()[d])
      terms.push_back(fmt::format("{} * {}", x.names[d], stride));
    f(x, terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + ")));
    out_.close();
    out_.close();
  };
  out_.code();
  out_.touch({tile.memory, MemoryUse::write});
  // Threads that hold the same partial result store the same value.
  loop("parts to shared memory", [&](const Coordinates& x, const std::string& flat) {
    out_.line(fmt::format("{}tg::store({} + ({}) * {} + {}, {}[r]);",
                          x.inside.empty() ? "" : fmt::format("if ({}) ", x.inside), tile.name, part,
                          elements, flat, sum.name));
  });
  out_.code();
  out_.touch({tile.memory, MemoryUse::read});
  loop("and together", [&](const Coordinates& x, const std::string& flat) {
    if (!x.inside.empty()) out_.open(fmt::format("if ({}) {{", x.inside));
    out_.line(fmt::format("{}[r] = tg::load({} + {});", sum.name, tile.name, flat));
    out_.line("#pragma unroll");
    out_.line(fmt::format(
        "for (int part = 1; part < {0}; ++part) {1}[r] = {2}::of({1}[r], tg::load({3} + part * {4} + {5}));",
        count, sum.name, combination_of(n.op), tile.name, elements, flat));
    if (!x.inside.empty()) out_.close();
  });
  release(tile);
}

void CudaGridPrinter::finish_reduction(const Reduce& n, const FragmentTile& sum, const Loc& at) {
  const FragmentTile to = fragments_.at(n.to.buffer.get());
  FragmentTile part = sum;
  if (to.layout != sum.layout) {
    fragments_[n.to.buffer.get()] = sum;
    part = converted(n.to.buffer, to.layout, true, at);
    fragments_[n.to.buffer.get()] = to;
  }
  const DType type = n.to.buffer->type;
  std::string text = fmt::format("{}[r]", part.name);
  if (!n.overwrite) text = fmt::format("{}::of({}[r], {})", combination_of(n.op), to.name, text);
  if (type.bits() < 32 && !type.is_boolean())
    text = fmt::format("tg::rounded<{}>({})", element_type(type), text);
  out_.line("#pragma unroll");
  out_.line(
      fmt::format("for (int r = 0; r < {}; ++r) {}[r] = {};", to.layout.register_count(), to.name, text), at);
}

}  // namespace tegula::codegen
