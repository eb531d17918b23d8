#include "passes/cuda/step_groups.hpp"

#include "ir/visit.hpp"
#include "passes/cuda/element_bits.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/fragment_axes.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

const BufferPtr& made_by(const Stmt& loop) { return as<Store>(as<For>(loop)->body.back())->to.view.buffer; }

// Sums that can be formed as the exponentials are.
bool adds_up(const Stmt& s, const Stmt& exponentials) {
  const auto* reduce = as<Reduce>(s);
  const BufferPtr& made = made_by(exponentials);
  return reduce && reduce->op == ReduceOp::sum && reduce->from.buffer == made && is_whole(reduce->from) &&
         reduce->to.buffer->type == f32 && made->type == f32;
}

// Whether the statement makes all of the left operand, each element from that of another fragment.
bool makes_operand(const Stmt& s, const Gemm& gemm) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() != 2) return false;
  const auto* load = as<Load>(loop->body[0]);
  const auto* store = as<Store>(loop->body[1]);
  if (!load || !store || load->from.view.buffer->space != Space::fragment ||
      store->to.view.buffer != gemm.a.buffer || !is_whole(gemm.a))
    return false;
  const std::vector<int> in_order{0, 1};
  return loop_axes(*loop, load->from) == in_order && loop_axes(*loop, store->to) == in_order;
}

// The same where the elements come from places of other numbers, those of a thread from its own registers:
// the last bits that registers count have to be those of the loop, so that a part of it makes steps of the
// product.
bool makes_operand_by_bits(const Stmt& s, const Gemm& gemm, const GemmPlan& plan, int parts) {
  const auto* loop = as<For>(s);
  const auto held = passes::bits_of(plan.operand_a);
  if (!loop || loop->kind != LoopKind::parallel || !held || !is_whole(gemm.a)) return false;
  if (!is_power_of_two(plan.operand_a.register_count())) return false;
  bool all = true, stores = false;
  for (const Stmt& inner : loop->body) {
    const Access* access = fragment_access(inner);
    const auto bits = access ? element_bits(*loop, *access) : std::nullopt;
    all &= bits.has_value();
    if (!as<Store>(inner)) continue;
    all &= access && access->view.buffer == gemm.a.buffer;
    stores = true;
    const std::size_t count = held->registers.size(), last = static_cast<std::size_t>(log2_of(parts));
    for (std::size_t i = count - std::min(count, last); bits && i < count; ++i)
      all &= (*bits)[static_cast<std::size_t>(held->registers[i])].axis >= 0;
  }
  return all && stores;
}

// In how many parts a left operand is made and multiplied, 1 if it is not made here.
int parts_of_operand(const Stmt& made, const Stmt& product, const GemmPlan& plan) {
  const auto* gemm = as<Gemm>(product);
  if (!gemm || plan.instruction != GemmInstruction::wgmma || !plan.a_in_registers ||
      needs_promotion(*gemm, plan) || accumulators(*gemm, plan) != 1)
    return 1;
  const std::int64_t steps = gemm->depth() / plan.k;
  const int parts = steps % 4 == 0 ? 4 : steps % 2 == 0 ? 2 : 1;
  return makes_operand(made, *gemm) || makes_operand_by_bits(made, *gemm, plan, parts) ? parts : 1;
}

}  // namespace

bool has_exponentials(const Stmt& s) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->index.size() < 2) return false;
  const auto* store = as<Store>(loop->body.back());
  return store && store->to.view.buffer->space == Space::fragment &&
         (store->value->op == Op::exp2 || store->value->op == Op::exp);
}

std::vector<StepGroup> step_groups(const Body& body, const std::vector<bool>& waits,
                                   const std::vector<GemmPlan>& plans) {
  using Kind = StepGroup::Kind;
  std::vector<StepGroup> result;
  for (std::size_t i = 0; i < body.size(); i += result.back().count) {
    const bool has_next = i + 1 < body.size();
    const int parts = has_next && !waits[i + 1] ? parts_of_operand(body[i], body[i + 1], plans[i + 1]) : 1;
    if (parts > 1)
      result.push_back({Kind::operand, i, 2, parts});
    else if (has_exponentials(body[i]))
      result.push_back({Kind::exponentials, i, has_next && adds_up(body[i + 1], body[i]) ? 2u : 1u});
    else
      result.push_back({Kind::one, i, 1});
  }
  return result;
}

}  // namespace tegula::passes
