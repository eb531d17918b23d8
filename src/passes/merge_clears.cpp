#include "ir/effects.hpp"
#include "ir/ir.hpp"
#include "ir/visit.hpp"
#include "passes/passes.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool is_zero(const Expr& e) {
  return is_constant(e) && (e->held().is_floating() ? e->real == 0 : e->integer == 0);
}

// Where, after `at`, the cleared tile becomes the result of a product; -1 if something else touches it first.
int product_after(const Body& body, std::size_t at, const BufferPtr& tile) {
  for (std::size_t i = at + 1; i < body.size(); ++i) {
    const auto* gemm = as<Gemm>(body[i]);
    if (gemm && gemm->c.buffer == tile && is_whole(gemm->c) && gemm->a.buffer != tile &&
        gemm->b.buffer != tile) {
      return static_cast<int>(i);
    }
    const Effects e = all_effects(body[i]);
    if (e.reads(tile) || e.writes(tile) || e.leaves) return -1;
  }
  return -1;
}

}  // namespace

Body merge_clears(const Body& body) {
  Mapping nested;
  nested.body = [](const Body& inner) { return merge_clears(inner); };
  Body result = map(body, nested);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto* fill = as<Fill>(result[i]);
    if (!fill || !is_zero(fill->value) || !is_whole(fill->to)) continue;
    const int at = product_after(result, i, fill->to.buffer);
    if (at < 0) continue;
    Gemm gemm = *as<Gemm>(result[static_cast<std::size_t>(at)]);
    gemm.overwrite = true;
    result[static_cast<std::size_t>(at)] = statement(gemm, result[static_cast<std::size_t>(at)]->at);
    result.erase(result.begin() + static_cast<std::ptrdiff_t>(i));
    --i;
  }
  return result;
}

}  // namespace tegula::passes
