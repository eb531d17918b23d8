#include "ops/pieces/moved_rows.hpp"

#include <algorithm>
#include <bit>

#include "ops/pieces/matrices.hpp"
#include "ops/products/tile_types.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

namespace {

constexpr int rank_of_copies = 4;

struct RowCopyKernel {
  DType type = bf16;
  int features = 128;

  int columns() const { return std::min(features, 512); }
  int rows() const {
    constexpr int elements = 4096;
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(elements / columns())));
  }
  auto fields() const { return std::tuple(type, labelled("d", features)); }
};

// Arguments: from, to [outer, rows, inner, features], wherever their rows begin.
lang::Kernel row_copy_kernel(const RowCopyKernel& c) {
  using namespace lang;
  using lang::Tensor;
  return kernel(instance_name("copy_rows", c), [&] {
    Dim outer("outer"), rows("rows"), inner("inner");
    const Extents extents{outer, rows, inner, c.features};
    const Tensor from = input("from", extents, c.type), to = output("to", extents, c.type);
    const int pieces = (c.features + c.columns() - 1) / c.columns();
    grid(ceildiv(rows, c.rows()) * pieces, inner, outer, [&](Index x, Index y, Index z) {
      Expr row = x / pieces * c.rows(), column = x % pieces * c.columns();
      Fragment tile = load(from.slice(z, all, y).at(row, column), {c.rows(), c.columns()});
      copy(tile, to.slice(z, all, y).at(row, column));
    });
  });
}

bool may_move(const TensorRef& tensor) {
  constexpr int piece = 8;  // elements of 16 bits that the copy engine takes
  return tensor.dtype.is_floating() && tensor.dtype.bits() == 16 && tensor.rank() >= 2 &&
         tensor.rank() <= rank_of_copies && tensor.size(-1) % piece == 0;
}

std::int64_t elements_of_results(const BoundCall& call) {
  std::int64_t result = 0;
  for (std::size_t i = call.schema().inputs; i < call.schema().tensors.size(); ++i)
    if (const TensorRef* own = call.at(i)) result += nelements(*own);
  return result;
}

bool are_keys(const TensorSpec& tensor) { return tensor.dims.find("keys") != std::string::npos; }

// The numbers of those that are copied.
std::vector<std::size_t> moved_tensors(const BoundCall& call, RowsToMove which) {
  constexpr std::int64_t most = 16;  // elements that are read, for one of results
  const std::int64_t few = most * elements_of_results(call);
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < call.schema().tensors.size(); ++i) {
    const TensorRef* own = call.at(i);
    if (own == nullptr || !may_move(*own) || !starts_off_pieces(*own)) continue;
    if (which == RowsToMove::keys && !are_keys(call.schema().tensors[i])) continue;
    if (which == RowsToMove::whole || nelements(*own) <= few)
      result.push_back(i);
    else if (which == RowsToMove::all)
      return {};
  }
  return result;
}

// The longest dim before the last one is that of tiles.
TensorRef in_order_of_copies(TensorRef tensor, int longest) {
  if (longest > 0) tensor = tensor.transpose(0, longest);
  while (tensor.rank() < rank_of_copies) {
    tensor.shape.insert(tensor.shape.begin(), 1);
    tensor.strides.insert(tensor.strides.begin(), 0);
  }
  return tensor.transpose(0, 1);
}

}  // namespace

MovedRows::MovedRows(const BoundCall& call, Launch& launch, RowsToMove which) : call_(call), launch_(launch) {
  if (!has_copy_engine(call)) return;
  for (const std::size_t i : moved_tensors(call, which)) {
    const TensorRef& own = *call.at(i);
    moved_.push_back({i, launch.scratch(own.shape, own.dtype)});
    launch.note_moved(call.schema().tensors[i].name);
    if (i < call.schema().inputs) copy(own, moved_.back().rows.ref());
  }
  if (!empty())
    launch.note([] {
      return std::string(
          "plan: rows that do not begin at multiples of 16 bytes are copied first, or written last; pass "
          "contiguous tensors");
    });
}

void MovedRows::copy(const TensorRef& from, const TensorRef& to) {
  const auto last = from.shape.end() - 1;
  const auto longest = static_cast<int>(std::max_element(from.shape.begin(), last) - from.shape.begin());
  launch_(RowCopyKernel{from.dtype, static_cast<int>(from.size(-1))}, row_copy_kernel,
          {{"from", in_order_of_copies(from, longest)}, {"to", in_order_of_copies(to, longest)}});
}

void MovedRows::set_tensors(void* op) const {
  const auto& tensors = call_.schema().tensors;
  for (std::size_t i = call_.schema().inputs; i < tensors.size(); ++i)
    if (const TensorRef* own = call_.at(i)) tensors[i].set(op, *own);
  for (const Moved& own : moved_) tensors[own.number].set(op, own.rows.ref());
}

void MovedRows::copy_results() {
  for (const Moved& own : moved_)
    if (call_.schema().tensors[own.number].written || own.number >= call_.schema().inputs)
      copy(own.rows.ref(), *call_.at(own.number));
}

Tensors tensors_of_programs(const ListedCall& listed, Tensors tensors) {
  for (const std::string& name : listed.moved) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) continue;  // a result
    const TensorRef& own = found->second.ref();
    found->second = Tensor::adopt(TensorRef(own.data, own.dtype, own.shape, own.device), nullptr);
  }
  return tensors;
}

}  // namespace tegula::ops
