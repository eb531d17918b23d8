#include "passes/cuda/written_tensors.hpp"

#include "ir/effects.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// The tensors that statements write, and those of them that more than one, or one of a loop, writes.
struct TensorWrites {
  std::vector<BufferPtr> once, again;

  void add(const BufferPtr& b) {
    if (!contains(once, b))
      once.push_back(b);
    else if (!contains(again, b))
      again.push_back(b);
  }
};

TensorWrites tensor_writes(const Body& body);

// Of a branch either part runs: what both write is written once.
TensorWrites tensor_writes(const If& branch) {
  TensorWrites result = tensor_writes(branch.then);
  const TensorWrites other = tensor_writes(branch.otherwise);
  for (const BufferPtr& b : other.once)
    if (!contains(result.once, b)) result.once.push_back(b);
  result.again.insert(result.again.end(), other.again.begin(), other.again.end());
  return result;
}

TensorWrites tensor_writes(const Stmt& s) {
  if (const auto* branch = as<If>(s)) return tensor_writes(*branch);
  TensorWrites result;
  const Effects effects = all_effects(s);
  for (const Region& r : effects.regions)
    if (is_write(r.touch) && !r.view->buffer->is_tile() && !contains(result.once, r.view->buffer))
      result.once.push_back(r.view->buffer);
  const auto* loop = as<For>(s);
  if ((loop && loop->kind != LoopKind::parallel) || as<While>(s)) result.again = result.once;
  return result;
}

TensorWrites tensor_writes(const Body& body) {
  TensorWrites result;
  for (const Stmt& s : body) {
    const TensorWrites own = tensor_writes(s);
    for (const BufferPtr& b : own.once) result.add(b);
    for (const BufferPtr& b : own.again) result.add(b);
  }
  return result;
}

}  // namespace

std::vector<BufferPtr> written_tensors(const Grid& grid) {
  const TensorWrites writes = tensor_writes(grid.body);
  const Effects all = all_effects(grid.body);
  std::vector<BufferPtr> result;
  for (const BufferPtr& b : writes.once)
    if (contains(writes.again, b) || all.reads(b)) result.push_back(b);
  return result;
}

}  // namespace tegula::passes
