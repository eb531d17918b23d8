#include "ir/spec.hpp"

#include <algorithm>
#include <span>

namespace tegula::ir {
namespace {

template <class Node>
struct Rule {
  std::string_view text;
  bool (*holds)(const Node&);
};

template <class Node>
Broken first_broken(std::span<const Rule<Node>> rules, const Node& node) {
  for (const Rule<Node>& rule : rules) {
    if (!rule.holds(node)) return rule.text;
  }
  return std::nullopt;
}

bool is_index(const Expr& e) { return e != nullptr && (e->held() == i32 || e->held() == i64); }
bool is_truth(const Expr& e) { return e != nullptr && e->held() == boolean; }
bool is_positive(const Expr& e) { return is_index(e) && is_constant(e) && constant_value(e) > 0; }
bool all_index(const std::vector<Expr>& list) { return std::all_of(list.begin(), list.end(), is_index); }

DType element_type(const View& view) { return compute_type(view.buffer->type); }
bool is_kind(const Expr& value, const View& view) {
  return value != nullptr && value->held().kind() == view.buffer->type.kind();
}
bool same_kind(const View& a, const View& b) { return a.buffer->type.kind() == b.buffer->type.kind(); }
bool is_writable(const View& view) { return view.buffer->is_writable(); }
bool defines(const VariablePtr& v, VariableKind kind) { return v != nullptr && v->kind == kind; }

bool same_extents(const View& a, const View& b, int from = 0) {
  if (a.rank() != b.rank()) return false;
  for (int axis = from; axis < a.rank(); ++axis) {
    if (a.extent(axis) != b.extent(axis)) return false;
  }
  return true;
}

bool each_axis_once(const View& view) {
  std::vector<int> count(view.extents.size());
  for (const ViewDim& dim : view.dims) {
    if (dim.axis >= view.rank()) return false;
    if (dim.axis >= 0) ++count[static_cast<std::size_t>(dim.axis)];
  }
  return std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
}

bool has_tile_shape(const View& view) {
  if (!view.is_tile()) return true;
  std::int64_t elements = 1;
  for (const Expr& e : view.shape) {
    if (!is_positive(e)) return false;
    elements *= constant_value(e);
  }
  return elements == view.buffer->elements() &&
         std::all_of(view.extents.begin(), view.extents.end(), is_positive);
}

bool is_number_for(AtomicOp op, DType type) {
  const bool bits = op == AtomicOp::bit_or || op == AtomicOp::bit_and;
  if (type.is_integer()) return type.bits() >= 32;
  return type.is_floating() && type.bits() >= 16 && !bits;
}

bool has_accumulator_type(const Gemm& n) {
  const DType operand = n.a.buffer->type, c = n.c.buffer->type;
  if (operand.is_boolean() || operand == i64 || operand == u32) return false;
  if (operand == f16 && c == f16) return !n.metadata;
  return c == (operand == f64 ? f64 : operand.is_floating() ? f32 : i32);
}

bool fits_reduction(const Reduce& n) {
  if (n.dim < 0 || n.dim >= n.from.rank() || n.to.rank() != n.from.rank() - 1) return false;
  for (int axis = 0; axis < n.to.rank(); ++axis) {
    if (n.to.extent(axis) != n.from.extent(axis < n.dim ? axis : axis + 1)) return false;
  }
  return true;
}

template <class Node>
const std::vector<Rule<Node>> rules;

template <>
const std::vector<Rule<View>> rules<View> = {
    {"a view shows a buffer", [](const View& v) { return v.buffer != nullptr; }},
    {"every dimension has its way of addressing",
     [](const View& v) { return v.dims.size() == v.shape.size(); }},
    {"each axis of a view belongs to one dimension", each_axis_once},
    {"offsets, limits and extents are i32 or i64",
     [](const View& v) {
       return all_index(v.shape) && all_index(v.extents) &&
              std::all_of(v.dims.begin(), v.dims.end(), [](const ViewDim& d) {
                return is_index(d.offset) && (!d.low || is_index(d.low)) && (!d.high || is_index(d.high));
              });
     }},
    {"views of tiles have constant positive extents and reshape all elements", has_tile_shape},
};

template <>
const std::vector<Rule<Access>> rules<Access> = {
    {"an access has an index for each axis",
     [](const Access& a) { return static_cast<int>(a.index.size()) == a.view.rank(); }},
    {"indices are i32 or i64", [](const Access& a) { return all_index(a.index); }},
};

template <>
const std::vector<Rule<Let>> rules<Let> = {
    {"a let defines a value", [](const Let& n) { return defines(n.variable, VariableKind::let); }},
    {"a value has the type of its variable",
     [](const Let& n) { return n.value->held() == n.variable->type; }},
};

template <>
const std::vector<Rule<Load>> rules<Load> = {
    {"a load defines a value", [](const Load& n) { return defines(n.variable, VariableKind::let); }},
    {"elements are widened to their compute type",
     [](const Load& n) { return n.variable->type == element_type(n.from.view); }},
};

template <>
const std::vector<Rule<Store>> rules<Store> = {
    {"inputs are not written", [](const Store& n) { return is_writable(n.to.view); }},
    {"a store converts within a kind", [](const Store& n) { return is_kind(n.value, n.to.view); }},
};

template <>
const std::vector<Rule<Declare>> rules<Declare> = {
    {"a tile is declared", [](const Declare& n) { return n.tile->is_tile() && n.tile->role == Role::tile; }},
};

template <>
const std::vector<Rule<DeclareVar>> rules<DeclareVar> = {
    {"a variable that changes is declared",
     [](const DeclareVar& n) { return defines(n.variable, VariableKind::mutable_); }},
    {"a value has the type of its variable",
     [](const DeclareVar& n) { return n.value->held() == n.variable->type; }},
};

template <>
const std::vector<Rule<Assign>> rules<Assign> = {
    {"only variables that change are assigned",
     [](const Assign& n) { return defines(n.variable, VariableKind::mutable_); }},
    {"a value has the type of its variable",
     [](const Assign& n) { return n.value->held() == n.variable->type; }},
};

template <>
const std::vector<Rule<Atomic>> rules<Atomic> = {
    {"inputs are not written", [](const Atomic& n) { return is_writable(n.to.view); }},
    {"an atomic is on a tensor or a shared tile",
     [](const Atomic& n) { return n.to.view.buffer->space != Space::fragment; }},
    {"an atomic converts within a kind", [](const Atomic& n) { return is_kind(n.value, n.to.view); }},
    {"an atomic exists for the element type",
     [](const Atomic& n) { return is_number_for(n.op, n.to.view.buffer->type); }},
};

template <>
const std::vector<Rule<Copy>> rules<Copy> = {
    {"inputs are not written", [](const Copy& n) { return is_writable(n.to); }},
    {"one side of a copy is a tile", [](const Copy& n) { return n.from.is_tile() || n.to.is_tile(); }},
    {"both sides of a copy have one rank", [](const Copy& n) { return n.from.rank() == n.to.rank(); }},
    {"two tiles of a copy have equal extents",
     [](const Copy& n) { return !n.from.is_tile() || !n.to.is_tile() || same_extents(n.from, n.to); }},
    {"a copy converts within a kind", [](const Copy& n) { return same_kind(n.from, n.to); }},
    {"a copy is between two buffers", [](const Copy& n) { return n.from.buffer != n.to.buffer; }},
    {"the fill is a value of the source", [](const Copy& n) { return !n.fill || is_kind(n.fill, n.from); }},
};

template <>
const std::vector<Rule<Gather>> rules<Gather> = {
    {"a gather fills a tile", [](const Gather& n) { return n.to.is_tile() && n.to.rank() > 0; }},
    {"both sides of a gather have one rank", [](const Gather& n) { return n.from.rank() == n.to.rank(); }},
    {"rows of two tiles have equal extents",
     [](const Gather& n) { return !n.from.is_tile() || same_extents(n.from, n.to, 1); }},
    {"a gather converts within a kind", [](const Gather& n) { return same_kind(n.from, n.to); }},
    {"a gather is between two buffers", [](const Gather& n) { return n.from.buffer != n.to.buffer; }},
    {"a gather defines an index", [](const Gather& n) { return defines(n.index, VariableKind::index); }},
    {"indices are i32 or i64", [](const Gather& n) { return is_index(n.row); }},
};

template <>
const std::vector<Rule<Fill>> rules<Fill> = {
    {"a tile is filled", [](const Fill& n) { return n.to.is_tile(); }},
    {"a fill converts within a kind", [](const Fill& n) { return is_kind(n.value, n.to); }},
};

template <>
const std::vector<Rule<Gemm>> rules<Gemm> = {
    {"operands of gemm are tiles",
     [](const Gemm& n) { return n.a.is_tile() && n.b.is_tile() && n.c.is_tile(); }},
    {"operands of gemm have rank 2",
     [](const Gemm& n) { return n.a.rank() == 2 && n.b.rank() == 2 && n.c.rank() == 2; }},
    {"shapes of gemm are [m, k], [k, n] and [m, n]; a sparse operand has k / 2 columns",
     [](const Gemm& n) {
       return n.a.extent(0) == n.c.extent(0) && n.a.extent(1) * (n.metadata ? 2 : 1) == n.depth() &&
              n.b.extent(1) == n.c.extent(1);
     }},
    {"metadata of a sparse operand is a tile of u8 [m, k / 8]",
     [](const Gemm& n) {
       return !n.metadata || (n.metadata->is_tile() && n.metadata->rank() == 2 &&
                              n.metadata->buffer->type == u8 && n.metadata->extent(0) == n.a.extent(0) &&
                              n.metadata->extent(1) * 8 == n.depth() && n.metadata->buffer != n.c.buffer);
     }},
    {"both operands of gemm have one type",
     [](const Gemm& n) { return n.a.buffer->type == n.b.buffer->type; }},
    {"gemm accumulates in f32, dense f16 in f16, too, f64 in f64 and integers in i32", has_accumulator_type},
    {"the accumulator of gemm is no operand",
     [](const Gemm& n) { return n.c.buffer != n.a.buffer && n.c.buffer != n.b.buffer; }},
};

template <>
const std::vector<Rule<Reduce>> rules<Reduce> = {
    {"a reduction is from a tile to a tile",
     [](const Reduce& n) { return n.from.is_tile() && n.to.is_tile(); }},
    {"a reduction leaves out one axis", fits_reduction},
    {"any and all are of bools, other reductions of numbers",
     [](const Reduce& n) {
       return n.from.buffer->type.is_boolean() == (n.op == ReduceOp::any || n.op == ReduceOp::all);
     }},
    {"a reduction stays within a kind", [](const Reduce& n) { return same_kind(n.from, n.to); }},
    {"a reduction is between two buffers", [](const Reduce& n) { return n.from.buffer != n.to.buffer; }},
};

template <>
const std::vector<Rule<Scan>> rules<Scan> = {
    {"a scan is from a tile to a tile", [](const Scan& n) { return n.from.is_tile() && n.to.is_tile(); }},
    {"a scan runs along a dimension of its tile",
     [](const Scan& n) { return n.dim >= 0 && n.dim < n.from.rank(); }},
    {"both sides of a scan have one shape",
     [](const Scan& n) { return n.from.rank() == n.to.rank() && same_extents(n.from, n.to); }},
    {"a scan is a sum, a maximum or a minimum of numbers",
     [](const Scan& n) { return n.op <= ReduceOp::min && !n.from.buffer->type.is_boolean(); }},
    {"a scan stays within a kind", [](const Scan& n) { return same_kind(n.from, n.to); }},
    {"a scan is between two buffers", [](const Scan& n) { return n.from.buffer != n.to.buffer; }},
    {"starts of a scan are bools of its shape",
     [](const Scan& n) {
       return !n.starts || (n.starts->is_tile() && n.starts->buffer->type.is_boolean() &&
                            n.starts->rank() == n.from.rank() && same_extents(n.from, *n.starts));
     }},
};

template <>
const std::vector<Rule<Accumulate>> rules<Accumulate> = {
    {"a tile is accumulated into a tensor",
     [](const Accumulate& n) { return !n.to.is_tile() && n.tile.is_tile(); }},
    {"inputs are not written", [](const Accumulate& n) { return is_writable(n.to); }},
    {"both sides have one rank", [](const Accumulate& n) { return n.to.rank() == n.tile.rank(); }},
    {"an accumulation converts within a kind", [](const Accumulate& n) { return same_kind(n.to, n.tile); }},
    {"an atomic exists for the element type",
     [](const Accumulate& n) { return is_number_for(n.op, n.to.buffer->type); }},
    {"the order is an integer", [](const Accumulate& n) { return !n.order || is_index(n.order); }},
    {"only the first of turns overwrites", [](const Accumulate& n) { return !n.overwrite || n.turn; }},
    {"turns are taken in order", [](const Accumulate& n) { return !n.turn || n.order; }},
};
template <>
const std::vector<Rule<Turn>> rules<Turn> = {
    {"turns are counted in a workspace", [](const Turn& n) { return !n.word.view.is_tile(); }},
};

bool starts_at_zero(const For& n) {
  return std::all_of(n.begin.begin(), n.begin.end(), [](const Expr& e) { return is_constant(e, 0); });
}
bool is_group(const For& n) { return n.kind == LoopKind::warps || n.kind == LoopKind::warp_groups; }

template <>
const std::vector<Rule<For>> rules<For> = {
    {"a loop has a start and an end for each index",
     [](const For& n) { return n.begin.size() == n.index.size() && n.end.size() == n.index.size(); }},
    {"a loop has an index, only parallel has more",
     [](const For& n) { return n.index.size() == 1 || (n.kind == LoopKind::parallel && !n.index.empty()); }},
    {"a loop defines indices of type i32 or i64",
     [](const For& n) {
       return std::all_of(n.index.begin(), n.index.end(), [](const VariablePtr& v) {
         return defines(v, VariableKind::index) && (v->type == i32 || v->type == i64);
       });
     }},
    {"ranges of loops are i32 or i64", [](const For& n) { return all_index(n.begin) && all_index(n.end); }},
    {"parallel and each_group begin at 0",
     [](const For& n) { return (n.kind != LoopKind::parallel && !is_group(n)) || starts_at_zero(n); }},
    {"the number of groups is constant", [](const For& n) { return !is_group(n) || is_positive(n.end[0]); }},
    {"an unrolled loop has a constant range",
     [](const For& n) {
       return n.kind != LoopKind::unrolled || (is_constant(n.begin[0]) && is_constant(n.end[0]));
     }},
    {"stages are of pipelined loops",
     [](const For& n) { return n.stages == 0 || (n.stages > 0 && n.kind == LoopKind::pipelined); }},
};

constexpr std::string_view by_a_bool = "a condition is a bool";
template <>
const std::vector<Rule<If>> rules<If> = {
    {by_a_bool, [](const If& n) { return is_truth(n.condition); }},
    {"conditions of rows are bools",
     [](const If& n) { return std::all_of(n.of_rows.begin(), n.of_rows.end(), is_truth); }},
    {"a number of warps is an i32 of a branch for rows",
     [](const If& n) { return !n.together || (!n.of_rows.empty() && n.together->held() == i32); }}};
template <>
const std::vector<Rule<While>> rules<While> = {
    {by_a_bool, [](const While& n) { return is_truth(n.condition); }}};
template <>
const std::vector<Rule<Break>> rules<Break> = {
    {by_a_bool, [](const Break& n) { return is_truth(n.condition); }}};
template <>
const std::vector<Rule<Exit>> rules<Exit> = {
    {by_a_bool, [](const Exit& n) { return is_truth(n.condition); }}};
template <>
const std::vector<Rule<Assert>> rules<Assert> = {
    {by_a_bool, [](const Assert& n) { return is_truth(n.condition); }}};
template <>
const std::vector<Rule<Print>> rules<Print> = {
    {"there is a value to print", [](const Print& n) { return n.value != nullptr; }}};

template <>
const std::vector<Rule<Grid>> rules<Grid> = {
    {"a grid has one to three indices",
     [](const Grid& g) { return !g.index.empty() && g.index.size() <= 3; }},
    {"a grid has an extent for each index", [](const Grid& g) { return g.index.size() == g.extents.size(); }},
    {"a grid defines indices of type i32",
     [](const Grid& g) {
       return std::all_of(g.index.begin(), g.index.end(), [](const VariablePtr& v) {
         return defines(v, VariableKind::index) && v->type == i32;
       });
     }},
    {"extents of a grid are i32 or i64", [](const Grid& g) { return all_index(g.extents); }},
    {"heavy_first has a cost, other orders have none",
     [](const Grid& g) { return (g.hints.order == GridOrder::heavy_first) == (g.hints.cost != nullptr); }},
    {"only heavy_first has blocks that begin together",
     [](const Grid& g) { return g.hints.order == GridOrder::heavy_first || g.hints.together == nullptr; }},
    {"the number of blocks that begin together is i32 or i64",
     [](const Grid& g) { return !g.hints.together || all_index({g.hints.together}); }},
    {"a cost is a number", [](const Grid& g) { return !g.hints.cost || !is_truth(g.hints.cost); }},
    {"grid options are in their ranges",
     [](const Grid& g) {
       const GridHints& h = g.hints;
       return h.threads >= 0 && h.cluster >= 1 && h.blocks_per_processor >= 0 &&
              (h.order != GridOrder::grouped || h.group >= 1);
     }},
};

template <>
const std::vector<Rule<Buffer>> rules<Buffer> = {
    {"tensors are in global memory, tiles are not",
     [](const Buffer& b) { return b.is_tile() == (b.role == Role::tile); }},
    {"extents are i32 or i64", [](const Buffer& b) { return all_index(b.shape); }},
    {"extents of tiles are constant and positive",
     [](const Buffer& b) {
       return !b.is_tile() || std::all_of(b.shape.begin(), b.shape.end(), is_positive);
     }},
    {"only tensors that are written are cleared",
     [](const Buffer& b) { return !b.zero || (!b.is_tile() && b.is_writable()); }},
};

const Access* access_of(const Stmt& stmt) {
  if (const auto* n = as<Load>(stmt)) return &n->from;
  if (const auto* n = as<Store>(stmt)) return &n->to;
  if (const auto* n = as<Atomic>(stmt)) return &n->to;
  return nullptr;
}

}  // namespace

Broken broken_rule(const View& view) { return first_broken<View>(rules<View>, view); }
Broken broken_rule(const Grid& grid) { return first_broken<Grid>(rules<Grid>, grid); }
Broken broken_rule(const Buffer& buffer) { return first_broken<Buffer>(rules<Buffer>, buffer); }

Broken broken_rule(const Stmt& stmt) {
  if (const Access* access = access_of(stmt)) {
    if (const Broken broken = first_broken<Access>(rules<Access>, *access)) return broken;
  }
  return std::visit(
      []<class Node>(const Node& node) {
        static_assert(sizeof(rules<Node>) > 0);
        return first_broken<Node>(rules<Node>, node);
      },
      stmt->node);
}

}  // namespace tegula::ir
