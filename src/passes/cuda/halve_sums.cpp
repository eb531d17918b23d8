#include "passes/cuda/halve_sums.hpp"

#include <algorithm>
#include <unordered_map>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int threads_of_halves = 256, rows_of_both = 256;
// Registers that a thread of two warp groups has for fragments.
constexpr std::int64_t room = 200;

bool is_of_both(const Buffer& b) {
  return b.space == Space::fragment && b.rank() == 2 && b.type == f32 && b.extent(0) == rows_of_both;
}

// The product of the grid that each step of a loop forms anew; with registers for its sums and those that
// they are added to, but not in whole, on two warp groups.
const Gemm* product_of(const Grid& grid) {
  const Gemm* result = nullptr;
  int products = 0;
  for_each_stmt(grid.body, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    products += as<Gemm>(s) != nullptr;
    if (!loop || loop->kind != LoopKind::pipelined) return;
    for (const Stmt& own : loop->body)
      if (const auto* gemm = as<Gemm>(own); gemm && gemm->overwrite) result = gemm;
  });
  if (!result || products != 1 || !is_whole(result->c) || !is_of_both(*result->c.buffer)) return nullptr;
  const bool is_promoted =
      result->a.buffer->type.bits() == 8 && result->hints.accumulation == Accumulation::promoted;
  const std::int64_t sums = result->c.buffer->elements() / threads_of_halves;
  const bool only_as_halves = 2 * sums > room && sums + sums / 2 <= room;
  return only_as_halves && !is_promoted && result->a.buffer->space == Space::shared ? result : nullptr;
}

View half_of_rows(View view, int half, std::int64_t rows) {
  for (ViewDim& dim : view.dims) {
    if (dim.axis != 0 || half == 0) continue;
    const Expr moved = constant(dim.offset->held(), half * rows);
    dim.offset = make(Op::add, dim.offset->held(), {dim.offset, moved}, dim.offset->at);
  }
  if (view.is_tile()) view.extents[0] = constant(view.extents[0]->held(), rows);
  return view;
}

class Halves {
 public:
  explicit Halves(const Gemm& gemm) : product_(gemm.c.buffer), rows_(product_->extent(0) / 2) {
    product_half_ = half(product_, "");
  }

  // Nothing where a statement is in the way.
  std::optional<Body> run(const Body& body) {
    find_sums(body);
    Body result;
    bool declared = false;
    for (const Stmt& s : body) {
      if (const auto* own = as<Declare>(s); own && !declared && touched(own->tile)) {
        declared = true;
        result.push_back(statement(Declare{product_half_}, own->tile->at));
      }
      append(result, rewritten(s));
    }
    if (failed_ || sums_.empty() || !declared) return std::nullopt;
    return result;
  }

 private:
  BufferPtr half(const BufferPtr& whole, const char* suffix) const {
    Buffer own = *whole;
    own.name += suffix;
    own.shape[0] = constant(own.shape[0]->held(), rows_);
    return std::make_shared<const Buffer>(std::move(own));
  }

  // What elementwise loops access beside the product, of its shape.
  void find_sums(const Body& body) {
    for_each_stmt(body, [&](const Stmt& s) {
      const auto* own = as<Declare>(s);
      if (!own || !is_of_both(*own->tile) || own->tile == product_) return;
      if (own->tile->extent(1) != product_->extent(1)) return;
      sums_.emplace(own->tile.get(), std::pair(half(own->tile, ""), half(own->tile, "_below")));
    });
  }

  bool touched(const BufferPtr& b) const { return b == product_ || sums_.contains(b.get()); }

  bool touches(const Stmt& s) const {
    const Effects all = all_effects(s);
    return std::any_of(all.regions.begin(), all.regions.end(),
                       [&](const Region& r) { return touched(r.view->buffer); }) ||
           std::any_of(all.declared.begin(), all.declared.end(),
                       [&](const BufferPtr& b) { return touched(b); });
  }

  BufferPtr of(const BufferPtr& b, int which) const {
    if (b == product_) return product_half_;
    const auto& [above, below] = sums_.at(b.get());
    return which == 0 ? above : below;
  }

  static void append(Body& to, const Body& from) { to.insert(to.end(), from.begin(), from.end()); }

  Body rewritten(const Stmt& s) {
    if (!touches(s)) return {s};
    if (const auto* own = as<Declare>(s)) return declared(*own, s->at);
    if (const auto* own = as<Fill>(s)) return filled(*own, s->at);
    if (const auto* own = as<Copy>(s)) return copied(*own, s->at);
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::parallel) return joined(elements(*loop, s, 0), elements(*loop, s, 1));
    if (loop && loop->kind == LoopKind::pipelined) return {steps(*loop, s->at)};
    failed_ = true;
    return {s};
  }

  static Body joined(Body a, const Body& b) {
    append(a, b);
    return a;
  }

  Body declared(const Declare& own, const Loc& at) const {
    if (own.tile == product_) return {};
    return {statement(Declare{of(own.tile, 0)}, at), statement(Declare{of(own.tile, 1)}, at)};
  }

  Body filled(const Fill& own, const Loc& at) {
    failed_ |= !is_whole(own.to) || own.to.buffer == product_;
    Body result;
    for (const int which : {0, 1})
      result.push_back(statement(Fill{whole(of(own.to.buffer, which)), own.value}, at));
    return result;
  }

  // To a tensor, by way of the product's registers.
  Body copied(const Copy& own, const Loc& at) {
    failed_ |=
        !is_whole(own.from) || !touched(own.from.buffer) || own.from.buffer == product_ || own.to.is_tile();
    if (failed_) return {};
    Body result;
    for (const int which : {0, 1}) {
      result.push_back(
          statement(Copy{whole(of(own.from.buffer, which)), whole(product_half_), own.fill}, at));
      result.push_back(
          statement(Copy{whole(product_half_), half_of_rows(own.to, which, rows_), own.fill}, at));
    }
    return result;
  }

  bool is_at(const Access& access, const For& loop) const {
    return is_whole(access.view) && loop.index.size() == 2 && is_variable(access.index[0], loop.index[0]) &&
           is_variable(access.index[1], loop.index[1]);
  }

  // A loop over elements, for those of a half.
  Body elements(const For& loop, const Stmt& s, int which) {
    bool flat = constant_value(loop.end[0]) == 2 * rows_;
    for_each_stmt(loop.body, [&](const Stmt& own) {
      const auto* load = as<Load>(own);
      const auto* store = as<Store>(own);
      const Access* access = load ? &load->from : store ? &store->to : nullptr;
      if (access && touched(access->view.buffer)) flat &= is_at(*access, loop);
      if (!access && touches(own) && !as<If>(own)) flat = false;
    });
    failed_ |= !flat;
    if (failed_) return {};
    const VariablePtr row = new_variable("i", loop.index[0]->type, VariableKind::index, s->at);
    For half = loop;
    half.index[0] = row;
    half.end[0] = constant(loop.end[0]->held(), rows_);
    half.body = of_half(loop, row, which);
    return fresh_copy({statement(std::move(half), s->at)});
  }

  // Rows of the halves are those of the loop; of all else, they begin at the half.
  Body of_half(const For& loop, const VariablePtr& row, int which) const {
    const Expr own = variable(row, row->at);
    const Expr moved = make(Op::add, own->held(), {own, constant(own->held(), which * rows_)}, row->at);
    const auto access = [&](Access a) {
      if (!touched(a.view.buffer)) return a;
      return Access{whole(of(a.view.buffer, which)), {own, a.index[1]}};
    };
    const Body body = map_body(loop.body, [&](const Stmt& s) -> Body {
      if (const auto* load = as<Load>(s)) return {statement(Load{load->variable, access(load->from)}, s->at)};
      if (const auto* store = as<Store>(s)) return {statement(Store{access(store->to), store->value}, s->at)};
      return {s};
    });
    return substitute(body, {{loop.index[0], which == 0 ? own : moved}});
  }

  // What does not touch the sums stands in front; then all that does, for one half after the other.
  Stmt steps(const For& loop, const Loc& at) {
    For result = loop;
    result.body.clear();
    Body halves[2];
    for (const Stmt& s : loop.body) {
      if (!touches(s)) {
        result.body.push_back(s);
      } else if (const auto* gemm = as<Gemm>(s)) {
        for (const int which : {0, 1}) halves[which].push_back(product(*gemm, which, s->at));
      } else if (const auto* own = as<For>(s); own && own->kind == LoopKind::parallel) {
        for (const int which : {0, 1}) append(halves[which], elements(*own, s, which));
      } else {
        failed_ |= !as<Declare>(s) || as<Declare>(s)->tile != product_;
      }
    }
    for (const Body& own : halves) append(result.body, own);
    failed_ |= conflicts(loop.body);
    return statement(std::move(result), at);
  }

  Stmt product(Gemm gemm, int which, const Loc& at) {
    failed_ |= gemm.metadata.has_value() || !gemm.overwrite || gemm.c.buffer != product_;
    gemm.a = half_of_rows(gemm.a, which, rows_);
    gemm.c = whole(product_half_);
    return statement(std::move(gemm), at);
  }

  // Whether a statement that does not touch the sums writes what one in front of it reads, or the other way
  // round: it would overtake it. Nor may a half see what the other one has written.
  bool conflicts(const Body& body) const {
    Effects before;
    bool found = false;
    for (const Stmt& s : body) {
      const Effects own = all_effects(s);
      if (!touches(s)) {
        found |= conflict(before, own);
        continue;
      }
      for (const Region& r : own.regions) {
        found |= is_write(r.touch) && !touched(r.view->buffer);
        before.regions.push_back(r);
      }
      before.statements.insert(before.statements.end(), own.statements.begin(), own.statements.end());
      before.statements.push_back(s);
      found |= own.leaves || own.reports || !own.assigned.empty();
    }
    return found;
  }

  const BufferPtr product_;
  const std::int64_t rows_;
  BufferPtr product_half_;
  std::unordered_map<const Buffer*, std::pair<BufferPtr, BufferPtr>> sums_;
  bool failed_ = false;
};

}  // namespace

Kernel halve_sums(const Kernel& kernel, const CudaTarget& target) {
  if (!target.has_wgmma()) return kernel;
  return map_grids(kernel, [&](const Grid& grid) -> Body {
    const int threads = grid.hints.threads;
    const Gemm* product = threads == 0 || threads == threads_of_halves ? product_of(grid) : nullptr;
    if (!product) return grid.body;
    return Halves(*product).run(grid.body).value_or(grid.body);
  });
}

}  // namespace tegula::passes
