#include "passes/cuda/lower.hpp"

#include <algorithm>
#include <limits>

#include "ir/effects.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"
#include "ir/zero.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/operand_place.hpp"
#include "passes/cuda/plan_additions.hpp"
#include "passes/cuda/store_forms.hpp"
#include "passes/cuda/written_tensors.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool is_fragment(const View& view) { return view.buffer->space == Space::fragment; }

// Whether threads that multiply read metadata where they are: the rows of a shared tile, or parts of them of
// whole 16 bits.
bool has_metadata_in_place(const View& view) {
  if (view.buffer->space != Space::shared || view.rank() != 2) return false;
  if (is_matrix(view)) return !is_transposed(view);
  const ViewDim &row = view.dims.front(), &column = view.dims.back();
  const auto is_whole = [&](const ViewDim& d) { return is_constant(d.offset, 0) && !d.low && !d.high; };
  return !swizzled_order(*view.buffer).is_swizzled() && view.shape.size() == 3 && view.extent(1) % 2 == 0 &&
         row.axis == 0 && column.axis == 1 && is_whole(row) && is_whole(column);
}

// Copies between a tensor and rows of a shared tile stay: there are better ways than element by element.
bool stays(const Copy& n) {
  const View& tile = n.to.is_tile() ? n.to : n.from;
  const View& other = n.to.is_tile() ? n.from : n.to;
  return !other.is_tile() && rows_of(tile).has_value();
}

Expr combined(ReduceOp op, const Expr& a, const Expr& b) {
  const DType type = a->held();
  constexpr Op ops[] = {Op::add, Op::max, Op::min, Op::max, Op::logical_or, Op::logical_and};
  return make(ops[static_cast<int>(op)], type, {a, b}, b->at);
}

class Lowering {
 public:
  // `sums` are fragments that the copy engine may store, except to `rewritten` tensors; branches on `choice`
  // have both forms of such stores.
  Lowering(const CudaTarget& target, HeldSums sums, TurnWords of_blocks, std::vector<BufferPtr> rewritten,
           VariablePtr choice)
      : target_(target),
        sums_(std::move(sums)),
        of_blocks_(std::move(of_blocks)),
        rewritten_(std::move(rewritten)),
        choice_(std::move(choice)) {}
  Body body(const Body& statements, int threads);

 private:
  Body stmt(const Stmt& s, int threads);
  Body nested(const Stmt& s, int threads);
  Body copy(const Copy& n, const Loc& at);
  Body by_elements(const Copy& n, const Loc& at);
  Body fill(const Fill& n, const Loc& at);
  Body gather(const Gather& n, const Loc& at);
  Body reduce(const Reduce& n, const Loc& at);
  Body scan(const Scan& n, const Loc& at);
  Body gemm(const Gemm& n, const Loc& at, int threads);
  Body accumulate(const Accumulate& n, const Loc& at);
  Body groups(const Stmt& s, int threads);
  // The view as a whole tile in that memory, copied there first.
  View moved(const View& view, Space space, Body& before, const Loc& at);
  // Both by the copy engine, where it can do it and nothing is cut off but what is outside the tensor, and
  // by threads; `by_elements` alone where it never can.
  Body stored(const View& from, const View& to, const Stmt& whole, Body by_elements) const;

  const CudaTarget& target_;
  const HeldSums sums_;
  const TurnWords of_blocks_;  // count turns of whole blocks
  const std::vector<BufferPtr> rewritten_;
  const VariablePtr choice_;
};

Body Lowering::copy(const Copy& n, const Loc& at) {
  if (stays(n)) return {statement(n, at)};
  const bool again = std::find(rewritten_.begin(), rewritten_.end(), n.to.buffer) != rewritten_.end();
  if (again) return by_elements(n, at);
  const auto sum = sums_.find(n.from.buffer.get());
  Copy own = n;
  own.turned_sum = sum != sums_.end() && sum->second.turned;
  return stored(n.from, n.to, statement(own, at), by_elements(n, at));
}

Body Lowering::stored(const View& from, const View& to, const Stmt& whole, Body by_elements) const {
  const auto sum = sums_.find(from.buffer.get());
  if (sum == sums_.end() || !plan_store(from, to, sum->second)) return by_elements;
  const Stmt by_engine = statement(If{can_transfer(to, from, whole->at), {whole}, by_elements}, whole->at);
  return {statement(If{variable(choice_, whole->at), {by_engine}, std::move(by_elements)}, whole->at)};
}

Body Lowering::by_elements(const Copy& n, const Loc& at) {
  const bool to_tile = n.to.is_tile() && (is_fragment(n.to) || !is_fragment(n.from));
  return over_view(to_tile ? n.to : n.from, at, [&](const std::vector<Expr>& index, const Access& own) {
    const Access from = to_tile ? Access{n.from, index} : own;
    const Access to = to_tile ? own : Access{n.to, index};
    const VariablePtr x = new_variable("x", compute_type(n.from.buffer->type), VariableKind::let, at);
    Expr value = variable(x, at);
    if (!is_zero(n.fill) && !n.from.is_tile()) {
      const Expr fill = as_stored(n.fill, x->type);
      value = make(Op::select, x->type, {exists(from, at), value, fill}, at);
    }
    return Body{statement(Load{x, from}, at), statement(Store{to, as_stored(value, n.to.buffer->type)}, at)};
  });
}

Body Lowering::fill(const Fill& n, const Loc& at) {
  return over_view(n.to, at, [&](const std::vector<Expr>&, const Access& to) {
    return Body{statement(Store{to, n.value}, at)};
  });
}

Body Lowering::gather(const Gather& n, const Loc& at) {
  return over_view(n.to, at, [&](const std::vector<Expr>& index, const Access& to) {
    Body result = substitute(n.body, {{n.index, index[0]}});
    std::vector<Expr> source = index;
    source[0] = substitute(n.row, {{n.index, index[0]}});
    const VariablePtr x = new_variable("x", compute_type(n.from.buffer->type), VariableKind::let, at);
    result.push_back(statement(Load{x, {n.from, source}}, at));
    result.push_back(statement(Store{to, as_stored(variable(x, at), n.to.buffer->type)}, at));
    return result;
  });
}

View Lowering::moved(const View& view, Space space, Body& before, const Loc& at) {
  const char* name = view.buffer->name.c_str();
  const BufferPtr tile = new_tile(name, space, view.buffer->type, view.extents, at);
  before.push_back(statement(Declare{tile}, at));
  for (const Stmt& s : copy({view, whole(tile), nullptr}, at)) before.push_back(s);
  return whole(tile);
}

Body Lowering::reduce(const Reduce& n, const Loc& at) {
  Body result;
  Reduce own = n;
  if (!is_fragment(n.from) || !is_whole(n.from)) own.from = moved(n.from, Space::fragment, result, at);
  const bool direct = is_fragment(n.to) && is_whole(n.to);
  if (!direct) {
    const BufferPtr tile =
        new_tile(n.to.buffer->name.c_str(), Space::fragment, n.to.buffer->type, n.to.extents, at);
    result.push_back(statement(Declare{tile}, at));
    own.to = whole(tile);
    own.overwrite = true;
  }
  result.push_back(statement(own, at));
  if (direct) return result;
  const Body store = over_view(own.to, at, [&](const std::vector<Expr>& index, const Access& element) {
    const DType type = compute_type(n.to.buffer->type);
    const VariablePtr x = new_variable("x", type, VariableKind::let, at);
    const VariablePtr old = new_variable("old", type, VariableKind::let, at);
    Body body{statement(Load{x, element}, at)};
    Expr value = variable(x, at);
    if (!n.overwrite) {
      body.push_back(statement(Load{old, {n.to, index}}, at));
      value = combined(n.op, variable(old, at), value);
    }
    body.push_back(statement(Store{{n.to, index}, value}, at));
    return body;
  });
  result.insert(result.end(), store.begin(), store.end());
  return result;
}

// Lowers a scan to one of whole fragments.
Body Lowering::scan(const Scan& n, const Loc& at) {
  Body result;
  Scan own = n;
  if (!is_fragment(n.from) || !is_whole(n.from)) own.from = moved(n.from, Space::fragment, result, at);
  if (n.starts && (!is_fragment(*n.starts) || !is_whole(*n.starts)))
    own.starts = moved(*n.starts, Space::fragment, result, at);
  const bool direct = is_fragment(n.to) && is_whole(n.to);
  if (!direct) {
    const BufferPtr tile =
        new_tile(n.to.buffer->name.c_str(), Space::fragment, n.to.buffer->type, n.to.extents, at);
    result.push_back(statement(Declare{tile}, at));
    own.to = whole(tile);
  }
  result.push_back(statement(own, at));
  if (direct) return result;
  for (const Stmt& s : copy({own.to, n.to, nullptr}, at)) result.push_back(s);
  return result;
}

Body Lowering::gemm(const Gemm& n, const Loc& at, int threads) {
  Body result;
  Gemm own = n;
  if (is_fragment(n.a) && !plan_gemm(n, threads, target_).a_in_registers)
    own.a = moved(n.a, Space::shared, result, at);
  if (is_fragment(n.b)) own.b = moved(n.b, Space::shared, result, at);
  if (n.metadata && !has_metadata_in_place(*n.metadata))
    own.metadata = moved(*n.metadata, Space::shared, result, at);
  if (is_whole(n.c)) {
    result.push_back(statement(own, at));
    return result;
  }
  const BufferPtr sum =
      new_tile(n.c.buffer->name.c_str(), Space::fragment, n.c.buffer->type, n.c.extents, at);
  result.push_back(statement(Declare{sum}, at));
  own.c = whole(sum);
  own.overwrite = true;
  result.push_back(statement(own, at));
  const Body add = over_view(n.c, at, [&](const std::vector<Expr>& index, const Access& c) {
    const DType type = n.c.buffer->type;
    const VariablePtr x = new_variable("x", type, VariableKind::let, at);
    const VariablePtr old = new_variable("old", type, VariableKind::let, at);
    Expr value = variable(x, at);
    if (!n.overwrite) value = make(Op::add, type, {variable(old, at), value}, at);
    return Body{statement(Load{x, {whole(sum), index}}, at), statement(Load{old, c}, at),
                statement(Store{c, value}, at)};
  });
  result.insert(result.end(), add.begin(), add.end());
  return result;
}

Body Lowering::accumulate(const Accumulate& n, const Loc& at) {
  if (n.order && !n.turn) {
    throw ProgramError(
        "on GPUs `accumulate` needs consecutive orders: promise .consecutive = true if the orders of every "
        "element are 0, 1, 2, …, use target cpu or the interpreter, or leave out the order if the rounding "
        "of the sum may differ from run to run",
        at);
  }
  Body atomics = over_view(n.tile, at, [&](const std::vector<Expr>& index, const Access& element) {
    const VariablePtr x = new_variable("x", compute_type(n.tile.buffer->type), VariableKind::let, at);
    const Access to{n.to, index};
    const Expr value = as_stored(variable(x, at), n.to.buffer->type);
    Stmt add = statement(Atomic{n.op, to, value}, at);
    if (n.overwrite)
      add = statement(If{make(Op::eq, boolean, {n.order, constant(n.order->type, 0, at)}, at),
                         {statement(Store{to, value}, at)},
                         {add}},
                      at);
    return Body{statement(Load{x, element}, at), add};
  });
  if (n.turn) {
    atomics.insert(atomics.begin(), statement(Turn{*n.turn, n.order}, at));
    atomics.push_back(statement(Turn{*n.turn, nullptr}, at));
  }
  const bool of_block = n.turn && of_blocks_.contains(n.turn->view.buffer.get());
  if (of_block || !plan_addition(n, sums_, at)) return atomics;
  return stored(n.tile, n.to, statement(n, at), atomics);
}

// Fragments of the block that groups read are put where all its warps can see them.
Body Lowering::groups(const Stmt& s, int threads) {
  const auto& loop = *as<For>(s);
  const Effects inside = all_effects(loop.body);
  Body result;
  BufferRenaming renaming;
  for (const Region& region : inside.regions) {
    const BufferPtr& buffer = region.view->buffer;
    const bool own =
        std::find(inside.declared.begin(), inside.declared.end(), buffer) != inside.declared.end();
    if (own || buffer->space != Space::fragment || renaming.contains(buffer)) continue;
    renaming.emplace(buffer, moved(whole(buffer), Space::shared, result, s->at).buffer);
  }
  For own = loop;
  own.body = body(rename_buffers(loop.body, renaming), threads_of(loop, threads));
  result.push_back(statement(std::move(own), s->at));
  return result;
}

Body Lowering::nested(const Stmt& s, int threads) {
  const auto* loop = as<For>(s);
  if (loop && (loop->kind == LoopKind::warps || loop->kind == LoopKind::warp_groups))
    return groups(s, threads);
  if (loop && loop->kind == LoopKind::parallel) return {s};
  Mapping mapping;
  mapping.body = [&](const Body& inner) { return body(inner, threads); };
  return {map(s, mapping)};
}

Body Lowering::stmt(const Stmt& s, int threads) {
  if (const auto* n = as<Copy>(s)) return copy(*n, s->at);
  if (const auto* n = as<Fill>(s)) return fill(*n, s->at);
  if (const auto* n = as<Gather>(s)) return gather(*n, s->at);
  if (const auto* n = as<Scan>(s)) return scan(*n, s->at);
  if (const auto* n = as<Reduce>(s)) return reduce(*n, s->at);
  if (const auto* n = as<Gemm>(s)) return gemm(*n, s->at, threads);
  if (const auto* n = as<Accumulate>(s)) return accumulate(*n, s->at);
  return nested(s, threads);
}

Body Lowering::body(const Body& statements, int threads) {
  Body result;
  for (const Stmt& s : statements) {
    for (const Stmt& lowered : stmt(s, threads)) result.push_back(lowered);
  }
  return result;
}

// The statements that the copy engine could do take the place of branches on `choice`, both of whose parts
// are kept apart.
Body without_choices(const Body& body, const VariablePtr& choice, StoreForms& forms) {
  return map_body(body, [&](const Stmt& s) -> Body {
    const auto* branch = as<If>(s);
    if (!branch || branch->condition->op != Op::variable || branch->condition->variable != choice) return {s};
    Stmt whole;
    for_each_stmt(branch->then, [&](const Stmt& inner) {
      if (as<Copy>(inner) || as<Accumulate>(inner)) whole = inner;
    });
    if (!whole) return branch->otherwise;
    forms.emplace(whole.get(), StoreForm{whole, branch->then, branch->otherwise});
    return {whole};
  });
}

}  // namespace

int threads_of(const For& loop, int threads) {
  if (loop.kind == LoopKind::warps) return 32;
  return loop.kind == LoopKind::warp_groups ? 128 : threads;
}

std::vector<TeamProduct> team_products(const Body& body, int threads) {
  std::vector<TeamProduct> result;
  for (const Stmt& s : body) {
    if (const auto* gemm = as<Gemm>(s)) result.push_back({gemm, threads});
    const auto* loop = as<For>(s);
    for_each_body(s, [&](const Body& inner) {
      for (const TeamProduct& own : team_products(inner, loop ? threads_of(*loop, threads) : threads))
        result.push_back(own);
    });
  }
  return result;
}

Body lower_plainly(const Grid& grid, int threads, const CudaTarget& target) {
  return Lowering(target, {}, {}, {}, nullptr).body(grid.body, threads);
}

Kernel lower_for_cuda(const Kernel& kernel, const CudaTarget& target, StoreForms& forms) {
  const VariablePtr choice = new_variable("by_engine", boolean, VariableKind::let, kernel.at);
  const Kernel lowered = simplify(map_grids(kernel, [&](const Grid& grid) {
    const HeldSums sums = held_sums(grid, target);
    return Lowering(target, sums, words_of_blocks(grid, sums), written_tensors(grid, kernel), choice)
        .body(grid.body, grid.hints.threads);
  }));
  return map_grids(lowered, [&](const Grid& grid) { return without_choices(grid.body, choice, forms); });
}

}  // namespace tegula::passes
