#include "passes/cuda/late_products.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/chosen_steps.hpp"
#include "passes/cuda/declared_tiles.hpp"
#include "passes/note.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// Slots of a tile that two steps need: one per step, and one for the next load. Slots of another tile that
// the last product of a step reads: one, and one for the next load.
constexpr int slots_of_held = 3, slots_of_late = 2;

class StepProducts {
 public:
  StepProducts(const For& loop, const Roles& roles, const CudaTarget& target)
      : loop_(loop), roles_(roles), target_(target) {
    for (const Stmt& s : loop.body) {
      effects_.push_back(all_effects(s));
      // The delayed products of a step that was taken are issued whether or not there is another one.
      if (goes_on(loop) && s == loop.body[1]) effects_.back().leaves = false;
    }
  }

  Planned<LateProducts> run() {
    std::vector<std::size_t> products;
    for (std::size_t i = 0; i < loop_.body.size(); ++i)
      if (can_run_on(loop_.body[i], roles_, target_)) products.push_back(i);
    if (products.size() < 2) return Reason{};
    result_.late = last_products();
    if (result_.late.empty())
      return Reason{"work follows the last product of the step",
                    "move it after the loop, or before the product"};
    if (result_.late.size() == products.size())
      return Reason{"no product of the step needs the result of another one", ""};
    result_.early = last_early(products[0]);
    for (const std::size_t i : result_.late) {
      if (const Reason reason = reason_of(i); !reason.why.empty()) return reason;
    }
    for (const BufferPtr& tile : result_.held) {
      if (const Reason reason = reason_of_held(tile); !reason.why.empty()) return reason;
    }
    return result_;
  }

 private:
  const Gemm& product(std::size_t i) const { return *as<Gemm>(loop_.body[i]); }
  bool is_ring(const BufferPtr& b) const { return roles_.ring_of(b.get()) >= 0; }

  bool is_declared(const BufferPtr& tile) const { return declaration_of(loop_.body, tile) != nullptr; }

  bool touches(std::size_t i, const BufferPtr& tile) const {
    return std::any_of(effects_[i].regions.begin(), effects_[i].regions.end(),
                       [&](const Region& r) { return r.view->buffer == tile; });
  }

  // The products after which the step does nothing; if there are several, those that add to sums which
  // outlive the step.
  std::vector<std::size_t> last_products() const {
    std::vector<std::size_t> result;
    for (std::size_t i = loop_.body.size(); i-- > 0;) {
      if (as<Let>(loop_.body[i]) || as<Declare>(loop_.body[i])) continue;
      if (!can_run_on(loop_.body[i], roles_, target_) || is_declared(product(i).c.buffer)) break;
      result.insert(result.begin(), i);
    }
    return result;
  }

  // The last product before the first statement that needs the sum of one.
  std::size_t last_early(std::size_t first) const {
    std::size_t result = first;
    std::vector<BufferPtr> sums = {product(first).c.buffer};
    for (std::size_t i = first + 1; i < result_.late.front(); ++i) {
      const bool is_product = can_run_on(loop_.body[i], roles_, target_);
      const bool needs = std::any_of(sums.begin(), sums.end(), [&](const BufferPtr& sum) {
        return touches(i, sum) && !(is_product && product(i).c.buffer == sum && product(i).a.buffer != sum);
      });
      const Stmt& s = loop_.body[i];
      if (needs || !(is_product || as<Declare>(s) || as<Let>(s) || as<Fill>(s) || is_of_variables(s))) break;
      if (!is_product) continue;
      sums.push_back(product(i).c.buffer);
      result = i;
    }
    return result;
  }

  Reason reason_of(std::size_t at) {
    const Gemm& gemm = product(at);
    const Effects late = effects(loop_.body[at]);
    if (!late.used.empty())
      return {"the slice of a tile that the last product reads differs from step to step",
              "declare a tile for each slice"};
    if (gemm.metadata) return {"the last product is sparse", ""};
    if (is_ring(gemm.a.buffer) || !is_ring(gemm.b.buffer))
      return {"the last product does not multiply a result of the step with a tile that the step loads", ""};
    for (std::size_t i = 0; i <= result_.early; ++i) {
      if (conflict(effects_[i], late))
        return {"the first products of a step need the result of the previous step's last product", ""};
    }
    return reason_of_tile(gemm.b.buffer);
  }

  // Its tile is that of the step before.
  Reason reason_of_tile(const BufferPtr& tile) {
    bool shared = false;
    for (std::size_t i = 0; i < result_.late.front(); ++i) {
      if (!touches(i, tile)) continue;
      shared = true;
      if (i <= result_.early && as<Gemm>(loop_.body[i])) continue;
      return {fmt::format("work of the step reads tile {} of its last product", named(*tile)),
              "copy the tensor into another tile for that"};
    }
    if (!shared) return reason_of_slots(tile, "the last product of a step reads", slots_of_late);
    if (std::find(result_.held.begin(), result_.held.end(), tile) == result_.held.end())
      result_.held.push_back(tile);
    return {};
  }

  const RingPlan& ring_of(const BufferPtr& tile) const {
    return roles_.rings[static_cast<std::size_t>(roles_.ring_of(tile.get()))];
  }

  // The next step's tiles are awaited before the last product of this one.
  Reason reason_of_slots(const BufferPtr& tile, const char* who_reads, int slots) const {
    const int depth = ring_of(tile).depth;
    if (depth >= slots) return {};
    return {fmt::format("{} tile {}, of which there are {} slots instead of {}", who_reads, named(*tile),
                        depth, slots),
            fmt::format("use smaller tiles, or ask for .stages = {}", slots),
            loop_.body[result_.late.front()]->at};
  }

  // Only products may read any tile of its ring, which is let go with the tile.
  Reason reason_of_held(const BufferPtr& tile) const {
    const Reason of_slots =
        reason_of_slots(tile, "the first and the last product of a step read", slots_of_held);
    if (!of_slots.why.empty()) return of_slots;
    for (std::size_t i = 0; i < loop_.body.size(); ++i) {
      const bool is_late = std::find(result_.late.begin(), result_.late.end(), i) != result_.late.end();
      if (is_late || (i <= result_.early && as<Gemm>(loop_.body[i]))) continue;
      for (const BufferPtr& own : ring_of(tile).with(tile.get())) {
        if (touches(i, own))
          return {
              fmt::format("work of the step reads tile {}, which comes and goes with one of its last product",
                          named(*own)),
              "read the tensor there"};
      }
    }
    return {};
  }

  const For& loop_;
  const Roles& roles_;
  const CudaTarget& target_;
  std::vector<Effects> effects_;  // of the loop's statements
  LateProducts result_;
};

}  // namespace

bool can_run_on(const Stmt& s, const Roles& roles, const CudaTarget& target) {
  const auto* gemm = as<Gemm>(s);
  if (!gemm) return false;
  const GemmPlan plan = plan_gemm(*gemm, roles.consumers, target);
  return plan.instruction == GemmInstruction::wgmma && !needs_promotion(*gemm, plan);
}

Planned<LateProducts> late_products(const For& loop, const Roles& roles, const CudaTarget& target) {
  return StepProducts(loop, roles, target).run();
}

}  // namespace tegula::passes
