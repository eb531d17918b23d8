#include "passes/cuda/word_sums.hpp"

#include <functional>
#include <numeric>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/fragment_axes.hpp"

namespace tegula::passes {

using namespace ir;

std::optional<Filling> filling(const Stmt& s) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() != 1) return std::nullopt;
  const auto* store = as<Store>(loop->body[0]);
  if (!store || !is_constant(store->value) || store->to.view.buffer->space != Space::fragment)
    return std::nullopt;
  const BufferPtr& to = store->to.view.buffer;
  std::vector<int> identity(static_cast<std::size_t>(to->rank()));
  std::iota(identity.begin(), identity.end(), 0);
  if (!is_whole(store->to.view) || loop_axes(*loop, store->to) != identity) return std::nullopt;
  return Filling{to, store->value};
}

namespace {

// Whether the statement leaves the sum in words.
bool keeps_words(const Stmt& s, const Buffer& sum, const Computing& own) {
  const auto* gemm = as<Gemm>(s);
  if (gemm && &sum == gemm->c.buffer.get()) {
    const GemmPlan plan = plan_gemm(*gemm, own.threads, own.target);
    return plan.instruction != GemmInstruction::fma && own.layouts.fragments.at(&sum) == plan.accumulator;
  }
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel) return false;
  const auto filled = filling(s);
  return (filled && filled->to.get() == &sum) || reads_words(s, sum, own.layouts);
}

}  // namespace

Buffers sums_in_words(const Body& body, const Computing& own) {
  Buffers sums, other;
  const std::function<void(const Body&)> walk = [&](const Body& statements) {
    for (const Stmt& s : statements) {
      if (as<Declare>(s)) continue;
      const auto* gemm = as<Gemm>(s);
      const bool is_loop = as<For>(s) && as<For>(s)->kind == LoopKind::parallel;
      for (const Region& r : (is_loop ? all_effects(s) : effects(s)).regions) {
        const Buffer* buffer = r.view->buffer.get();
        if (buffer->type != f16 || !own.layouts.fragments.contains(buffer)) continue;
        if (gemm && buffer == gemm->c.buffer.get()) sums.insert(buffer);
        if (!keeps_words(s, *buffer, own)) other.insert(buffer);
      }
      if (!is_loop) for_each_body(s, walk);
    }
  };
  walk(body);
  std::erase_if(sums, [&](const Buffer* buffer) { return other.contains(buffer); });
  return sums;
}

}  // namespace tegula::passes
