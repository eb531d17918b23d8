// Packed numbers are recorded as operations on the elements that hold them, so that every executor, check and
// pass knows them.
#include "tegula/lang/packed.hpp"

#include "ir/bounds.hpp"
#include "lang/builder.hpp"
#include "lang/packed_numbers.hpp"

namespace tegula::lang {

namespace {

ir::Expr product_of_extents(const ir::Expr& extent, int factor, const Loc& at) {
  if (ir::is_constant(extent)) return ir::int32(ir::constant_value(extent) * factor, at);
  return ir::make(ir::Op::mul, i32, {extent, ir::int32(factor, at)}, at);
}

std::string in_elements(PackedType type) {
  return std::to_string(type.in_element()) + " numbers of " + type.name() + " share an element";
}

bool is_multiple(const Builder& builder, const ir::Affine& sum, int factor) {
  ir::Facts facts;
  for (const auto& dim : builder.kernel.dims) facts.add_multiple(dim.variable, dim.multiple);
  return ir::divisor(sum, facts) % factor == 0;
}

ir::Expr quotient(const ir::Affine& sum, const ir::Expr& e, int divisor, const Loc& at) {
  ir::Affine divided{{}, sum.constant / divisor};
  bool whole = sum.constant % divisor == 0;
  for (const auto& term : sum.terms) {
    whole = whole && term.factor % divisor == 0;
    divided.terms.push_back({term.atom, term.factor / divisor});
  }
  if (whole) return ir::to_expr(divided, i32, at);
  return ir::make(ir::Op::div, i32, {e, ir::int32(divisor, at)}, at);
}

// An offset or an end of the last dimension, in elements.
Operand whole_elements(const char* what, const Operand& numbers, PackedType type) {
  const ir::Expr e = use_integer(what, numbers);
  const ir::Affine sum = ir::affine(e);
  if (!is_multiple(Builder::current(numbers.at), sum, type.in_element()))
    fail(numbers.at, std::string(what) + " of the last dimension is not known to be a multiple of " +
                         std::to_string(type.in_element()) + ": " + in_elements(type) +
                         "; write it as a multiple, such as step * 64, or give its Dim multiple_of()");
  return Operand(Expr(quotient(sum, e, type.in_element(), numbers.at), false), numbers.at);
}

// The shape of the elements that hold numbers of this shape.
Extents shape_of_elements(const std::string& name, const Extents& shape, PackedType type, const Loc& at) {
  if (shape.empty()) fail(at, "`" + name + "` has rank 0; packed numbers are those of a last dimension");
  Extents result = shape;
  const Operand last = shape.back();
  const ir::Expr extent = use_integer("an extent", last);
  const ir::Affine sum = ir::affine(extent);
  auto& builder = Builder::current(at);
  const int count = type.in_element();
  if (!is_multiple(builder, sum, count)) {
    const std::string message = "the rows of `" + name + "` fill whole elements: " + in_elements(type);
    if (ir::is_constant(extent)) fail(last.at, message + "; pad the rows");
    builder.kernel.requirements.push_back(
        {ir::make(ir::Op::eq, boolean,
                  {ir::make(ir::Op::mod, i32, {extent, ir::int32(count, at)}, at), ir::int32(0, at)}, at),
         message, at});
  }
  result.back() = Operand(Expr(quotient(sum, extent, count, last.at), false), last.at);
  return result;
}

std::vector<int> shape_of_elements(std::vector<int> shape, PackedType type, const Loc& at) {
  if (shape.empty() || shape.back() % type.in_element() != 0)
    fail(at, "a tile of packed numbers whose rows do not fill elements: " + in_elements(type) +
                 "; use a multiple of " + std::to_string(type.in_element()) + " columns");
  shape.back() /= type.in_element();
  return shape;
}

// The element that holds a number, and where.
struct Found {
  Expr element;
  PackedPlace place;
};
Found find(const PackedView& view, const std::vector<Operand>& index, const Loc& at) {
  if (static_cast<int>(index.size()) != view.rank() || index.empty())
    fail(at, described(*view.elements) + " has rank " + std::to_string(view.rank()) +
                 " here and is indexed with " + counted(static_cast<int>(index.size()), "value", "values") +
                 "; give it one index for each dimension");
  const Operand last(Expr(use_integer("an index", index.back()), false), at);
  std::vector<Operand> element = index;
  element.back() = Operand(last / Operand(view.type.in_element(), at), at);
  return {Expr(Element(view.elements, element, at)), packed_place(view.type, last)};
}

}  // namespace

std::string PackedType::name() const {
  const std::string of_bits = std::to_string(bits);
  const std::string base = code == Code::e2m1 ? "e2m1" : (code == Code::signed_integer ? "i" : "u") + of_bits;
  return base + (excess != 0 ? " minus " + std::to_string(excess) : "") + (storage == u32 ? " in words" : "");
}

int PackedView::rank() const { return elements->rank(); }
Expr PackedView::number(const std::vector<Operand>& index, Loc at) const {
  const Found found = find(*this, index, at);
  return packed_number(type, Operand(found.element, at), found.place);
}
Expr PackedView::as_f32(const std::vector<Operand>& index, Loc at) const {
  const Found found = find(*this, index, at);
  return packed_as_f32(type, Operand(found.element, at), found.place);
}

// ---- tensors and tiles

PackedTensor::PackedTensor(const Tensor& elements, PackedType type, Loc at) : view_{elements.view(), type} {
  if (elements.type() != type.storage)
    fail(at, "packed numbers in a tensor of " + std::string(elements.type().name()) + "; " + type.name() +
                 " is stored in " + std::string(type.storage.name()));
  if (elements.rank() == 0)
    fail(at, "packed numbers in a tensor of rank 0; they are those of a last dimension");
}

PackedTensor PackedTensor::slice(Subscript a, Subscript b, Subscript c, Subscript d, Subscript e, Subscript f,
                                 Loc at) const {
  std::vector<Subscript> subscripts{a, b, c, d, e, f};
  const auto last = static_cast<std::size_t>(rank() - 1);
  if (last < subscripts.size()) {
    if (std::holds_alternative<Operand>(subscripts[last].what))
      fail(at, "slice() drops the last dimension of `" + view_.elements->buffer->name + "`, whose numbers " +
                   "are packed; keep it, and index it where a number is read");
    if (const auto* range = std::get_if<Range>(&subscripts[last].what))
      subscripts[last] = lang::range(whole_elements("the beginning of a range", range->begin, type()),
                                     whole_elements("the end of a range", range->end, type()));
  }
  return {elements().slice(subscripts[0], subscripts[1], subscripts[2], subscripts[3], subscripts[4],
                           subscripts[5], at),
          type(), at};
}

PackedWindow PackedTensor::window(std::vector<Operand> offsets, Loc at) const {
  if (static_cast<int>(offsets.size()) == rank())
    offsets.back() = whole_elements("an offset", offsets.back(), type());
  return {{std::make_shared<const ir::View>(shift_view(*view_.elements, offsets, at)), type()}, at};
}

Expr PackedTensor::extent(int dim, Loc at) const {
  const Expr extent = elements().extent(dim, at);
  if (dim != rank() - 1) return extent;
  return Expr(product_of_extents(extent.node(), type().in_element(), at), false);
}

PackedShared::PackedShared(const char* name, const std::vector<int>& shape, PackedType type, Loc at)
    : elements_(name, shape_of_elements(shape, type, at), type.storage, at), type_(type) {}

int PackedShared::extent(int dim) const {
  return elements_.extent(dim) * (dim == rank() - 1 ? type_.in_element() : 1);
}

PackedTensor input(const std::string& name, const Extents& shape, PackedType type, Loc at) {
  return {input(name, shape_of_elements(name, shape, type, at), type.storage, at), type, at};
}
PackedTensor output(const std::string& name, const Extents& shape, PackedType type, OutputOptions options,
                    Loc at) {
  return {output(name, shape_of_elements(name, shape, type, at), type.storage, options, at), type, at};
}
PackedTensor inout(const std::string& name, const Extents& shape, PackedType type, Loc at) {
  return {inout(name, shape_of_elements(name, shape, type, at), type.storage, at), type, at};
}
PackedTensor workspace(const std::string& name, const Extents& shape, PackedType type, OutputOptions options,
                       Loc at) {
  return {workspace(name, shape_of_elements(name, shape, type, at), type.storage, options, at), type, at};
}

// ---- copies

namespace {

void check_copy(const PackedView& view, const Tile& tile, const Loc& at) {
  if (view.rank() != tile.rank() || tile.rank() > 3)
    fail(at, "copy: " + described(*view.elements) + " has rank " + std::to_string(view.rank()) + ", " +
                 described(*tile.view()) + " has rank " + std::to_string(tile.rank()) +
                 "; packed numbers are converted between views of equal rank, 1 to 3");
  if (!view.elements->is_tile()) return;
  for (int axis = 0; axis < tile.rank(); ++axis)
    if (view.elements->extent(axis) * (axis == tile.rank() - 1 ? view.type.in_element() : 1) !=
        tile.extent(axis))
      fail(at, "copy: the shapes " + shape_text(*view.elements) + " of elements of " + view.type.name() +
                   " and " + shape_text(*tile.view()) + " of numbers differ; slice() the larger one");
}

std::vector<Operand> operands_of(const std::vector<Index>& indices, const Loc& at) {
  std::vector<Operand> result;
  for (const Index& index : indices) result.emplace_back(index, at);
  return result;
}

bool is_plain_integer(DType type) { return type.kind() == Kind::integer; }

}  // namespace

void copy(const PackedSource& from, const PackedTarget& to, Loc at) {
  if (!(from.view.type == to.view.type))
    fail(at, "copy from " + from.view.type.name() + " to " + to.view.type.name() +
                 "; packed types are converted through a tile of floats or integers");
  copy(Window{from.view.elements, at}, Window{to.view.elements, at}, {}, at);
}

void copy(const PackedSource& from, Tile& to, Loc at) {
  const bool is_real = to.type().is_floating();
  check_copy(from.view, to, at);
  if (!is_real && (from.view.type.value() == f32 || !is_plain_integer(to.type())))
    fail(at, "copy from " + from.view.type.name() + " to " + std::string(to.type().name()) +
                 "; e2m1 is converted to floats, integers to floats and to i8, i16, i32, i64 and u8");
  detail::parallel(detail::extents_of(to, to.rank(), at), at, [&](const std::vector<Index>& indices) {
    const std::vector<Operand> index = operands_of(indices, at);
    const Expr number = is_real ? from.view.as_f32(index, at) : from.view.number(index, at);
    Element(to.view(), index, at) = Operand(number, at);
  });
}

void copy(const Tile& from, const PackedTarget& to, Loc at) {
  const PackedType type = to.view.type;
  check_copy(to.view, from, at);
  if (type.value() == f32 ? !from.type().is_floating() : !is_plain_integer(from.type()))
    fail(at,
         "copy from " + std::string(from.type().name()) + " to " + type.name() +
             "; e2m1 is rounded from floats, integers are packed from integers: cast, such as i32(round(x))");
  if (from.extent(from.rank() - 1) % type.in_element() != 0)
    fail(at, "copy: rows of " + std::to_string(from.extent(from.rank() - 1)) +
                 " numbers do not fill elements: " + in_elements(type) + "; copy whole rows of elements");
  std::vector<Operand> extents = detail::extents_of(from, from.rank(), at);
  extents.back() = Operand(from.extent(from.rank() - 1) / type.in_element(), at);
  detail::parallel(extents, at, [&](const std::vector<Index>& indices) {
    const std::vector<Operand> index = operands_of(indices, at);
    Operand element(0u, at);
    for (int i = 0; i < type.in_element(); ++i) {
      std::vector<Operand> own = index;
      const Operand first(index.back() * Operand(type.in_element(), at), at);
      own.back() = Operand(first + Operand(i, at), at);
      const Operand code(packed_code(type, Operand(Expr(Element(from.view(), own, at)), at)), at);
      const Operand placed(code << Operand(static_cast<unsigned>(i * type.bits), at), at);
      element = i == 0 ? placed : Operand(element | placed, at);
    }
    Element(to.view.elements, index, at) = type.storage == u32 ? element : Operand(i32(element), at);
  });
}

Fragment load(const PackedSource& from, std::initializer_list<int> shape, DType type, Loc at) {
  Fragment result(shape, type, at);
  copy(from, result, at);
  return result;
}

}  // namespace tegula::lang
