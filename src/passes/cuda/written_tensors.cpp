#include "passes/cuda/written_tensors.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/affine.hpp"
#include "ir/effects.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"
#include "passes/by_any_name.hpp"
#include "passes/cuda/steps_apart.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// A tensor that a statement writes, and the copy if it is one of a tile: then nothing but its window.
struct Write {
  BufferPtr tensor;
  const Copy* window = nullptr;
};

std::int64_t extent_of(const Copy& copy, const ViewDim& dim) {
  return dim.axis < 0 ? 1 : copy.from.extent(dim.axis);
}

// Whether the windows lie one behind the other along a dimension.
bool are_apart(const Write& a, const Write& b) {
  if (!a.window || !b.window || !is_own_shape(a.window->to) || !is_own_shape(b.window->to)) return false;
  for (std::size_t d = 0; d < a.window->to.dims.size(); ++d) {
    const ViewDim &first = a.window->to.dims[d], &second = b.window->to.dims[d];
    const auto distance = difference(affine(second.offset), affine(first.offset));
    if (!distance || !distance->is_constant()) continue;
    if (distance->constant >= extent_of(*a.window, first) ||
        -distance->constant >= extent_of(*b.window, second))
      return true;
  }
  return false;
}

// The tensors that statements write, and those of which more than one statement, or one of a loop, may write
// an element.
struct TensorWrites {
  std::vector<Write> once;
  std::vector<BufferPtr> again;

  bool meets(const Write& own) const {
    return std::any_of(once.begin(), once.end(),
                       [&](const Write& w) { return w.tensor == own.tensor && !are_apart(w, own); });
  }
  void add_again(const BufferPtr& b) {
    if (!contains(again, b)) again.push_back(b);
  }
  void append(const TensorWrites& other) {
    for (const BufferPtr& b : other.again) add_again(b);
    once.insert(once.end(), other.once.begin(), other.once.end());
  }
};

TensorWrites tensor_writes(const Body& body, const Kernel& kernel);

// Of a branch either part runs: what both write is written once.
TensorWrites tensor_writes(const If& branch, const Kernel& kernel) {
  TensorWrites result = tensor_writes(branch.then, kernel);
  result.append(tensor_writes(branch.otherwise, kernel));
  return result;
}

// Whether every step of the loop stores to the same window.
bool stays_in_place(const Stmt& loop, const Write& w) {
  if (!w.window) return false;
  std::unordered_set<const Variable*> of_steps;
  const auto add = [&](const VariablePtr& v) { of_steps.insert(v.get()); };
  for_each_definition(loop, add);
  for_each_stmt(Body{loop}, [&](const Stmt& inner) { for_each_definition(inner, add); });
  bool stays = true;
  for_each_expr(w.window->to, [&](const Expr& e) {
    if (e)
      for_each_variable(e, [&](const VariablePtr& v) {
        stays = stays && v->kind != VariableKind::mutable_ && !of_steps.contains(v.get());
      });
  });
  return stays;
}

// What the body of a loop writes, and again what two of its statements, or each step of a loop in it, do.
TensorWrites writes_of_body(const Stmt& loop) {
  TensorWrites result;
  for_each_stmt(Body{loop}, [&](const Stmt& s) {
    const auto* copy = as<Copy>(s);
    if (!copy || !copy->from.is_tile() || copy->to.is_tile()) return;
    const Write own{copy->to.buffer, copy};
    if (result.meets(own)) result.add_again(own.tensor);
    result.once.push_back(own);
  });
  for_each_stmt(Body{loop}, [&](const Stmt& s) {
    const auto* inner = as<For>(s);
    const bool repeats = inner && inner->kind != LoopKind::parallel && !is_constant(inner->end[0], 1);
    if (!as<While>(s) && !repeats) return;
    for_each_stmt(Body{s}, [&](const Stmt& own) {
      const auto* copy = as<Copy>(own);
      if (copy && !copy->to.is_tile() && stays_in_place(s, {copy->to.buffer, copy}))
        result.add_again(copy->to.buffer);
    });
  });
  return result;
}

// Of a loop: what its body writes, and again what two of its steps may, or one may and another one read under
// another name.
TensorWrites tensor_writes_of_loop(const Stmt& s, const Kernel& kernel) {
  TensorWrites result;
  const Effects effects = all_effects(s);
  for (const Region& r : effects.regions)
    if (is_tensor_write(r)) result.once.push_back({r.view->buffer});
  for (const BufferPtr& b : writes_of_body(s).again) result.add_again(b);
  const auto* loop = as<For>(s);
  // Sums of 32 bits, which take registers that products in flight have on their way through shared memory,
  // stay with the threads that hold them.
  const auto is_apart = [&](const Write& w) {
    const bool alone = by_any_name({w.tensor.get()}, kernel).size() == 1;
    return loop && alone && w.tensor->type.bits() < 32 && steps_are_apart(*loop, *w.tensor);
  };
  for (const Write& w : result.once)
    if (!is_apart(w)) result.add_again(w.tensor);
  return result;
}

TensorWrites tensor_writes(const Stmt& s, const Kernel& kernel) {
  if (const auto* branch = as<If>(s)) return tensor_writes(*branch, kernel);
  const auto* loop = as<For>(s);
  if (as<While>(s) || (loop && loop->kind != LoopKind::parallel)) return tensor_writes_of_loop(s, kernel);
  TensorWrites result;
  const auto* copy = as<Copy>(s);
  const Effects effects = all_effects(s);
  for (const Region& r : effects.regions)
    if (is_tensor_write(r))
      result.once.push_back({r.view->buffer, copy && copy->from.is_tile() ? copy : nullptr});
  return result;
}

// Whether the statement touches the tensor under another name.
bool touches_by_another_name(const Stmt& s, const BufferPtr& tensor, const Kernel& kernel) {
  const Tensors named = by_any_name({tensor.get()}, kernel);
  if (named.size() == 1) return false;
  const Effects effects = all_effects(s);
  return std::any_of(effects.regions.begin(), effects.regions.end(), [&](const Region& r) {
    return r.view->buffer != tensor && named.contains(r.view->buffer.get());
  });
}

TensorWrites tensor_writes(const Body& body, const Kernel& kernel) {
  TensorWrites result;
  for (const Stmt& s : body) {
    for (const Write& w : result.once)
      if (touches_by_another_name(s, w.tensor, kernel)) result.add_again(w.tensor);
    const TensorWrites own = tensor_writes(s, kernel);
    for (const Write& w : own.once)
      if (result.meets(w)) result.add_again(w.tensor);
    result.append(own);
  }
  return result;
}

}  // namespace

std::vector<BufferPtr> written_tensors(const Grid& grid, const Kernel& kernel) {
  const TensorWrites writes = tensor_writes(grid.body, kernel);
  const Effects all = all_effects(grid.body);
  std::vector<BufferPtr> result;
  for (const auto& [tensor, window] : writes.once)
    if (!contains(result, tensor) && (contains(writes.again, tensor) || all.reads(tensor)))
      result.push_back(tensor);
  return result;
}

}  // namespace tegula::passes
