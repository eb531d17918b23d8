#include "passes/cuda/rows_of_warps.hpp"

#include <algorithm>
#include <bit>

#include "ir/visit.hpp"
#include "passes/cuda/rows_of_groups.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr std::size_t warps_of_group = 4;
constexpr int enough = 3;  // warps of a group that are faster together; measured: with 2, 4 % slower

Expr any(const std::vector<Expr>& all) {
  Expr result = all[0];
  for (std::size_t i = 1; i < all.size(); ++i)
    result = make(Op::logical_or, boolean, {result, all[i]}, result->at);
  return result;
}

// The word of which each condition asks for a bit, and these bits; null if they are of another kind.
std::pair<Expr, std::int64_t> bits_of(const Expr* conditions) {
  std::pair<Expr, std::int64_t> result{nullptr, 0};
  for (std::size_t w = 0; w < warps_of_group; ++w) {
    const Expr& e = conditions[w];
    const bool is_bit = e->op == Op::ne && e->args[0]->op == Op::bit_and && is_constant(e->args[1], 0) &&
                        is_constant(e->args[0]->args[1]) && e->args[0]->held() == u32;
    if (!is_bit) return {};
    const Expr& word = e->args[0]->args[0];
    const auto bit = constant_value(e->args[0]->args[1]);
    if (!std::has_single_bit(static_cast<std::uint32_t>(bit)) || (result.second & bit) != 0) return {};
    if (result.first && !equal(word, result.first)) return {};
    result = {word, result.second | bit};
  }
  return result;
}

// How many of a warp group's conditions hold.
Expr count(const Expr* of_warps) {
  const Loc& at = of_warps[0]->at;
  if (const auto [word, bits] = bits_of(of_warps); word) {
    const Expr own = make(Op::bit_and, u32, {word, constant(u32, bits, at)}, at);
    return make(Op::cast, i32, {make(Op::popcount, u32, {own}, at)}, at);
  }
  Expr result;
  for (std::size_t w = 0; w < warps_of_group; ++w) {
    const Expr one = make(Op::select, i32, {of_warps[w], constant(i32, 1, at), constant(i32, 0, at)}, at);
    result = result ? make(Op::add, i32, {result, one}, at) : one;
  }
  return result;
}

Body with_products_by_warps(const Body& body) {
  Mapping mapping;
  mapping.body = with_products_by_warps;
  Body result;
  for (const Stmt& s : body) {
    if (const auto* gemm = as<Gemm>(s)) {
      Gemm own = *gemm;
      own.hints.by_warp = true;
      result.push_back(statement(own, s->at));
    } else {
      const auto* loop = as<For>(s);
      result.push_back(loop && loop->kind == LoopKind::parallel ? s : map(s, mapping));
    }
  }
  return result;
}

class Split {
 public:
  Split(int threads, const CudaTarget& target)
      : warps_(threads / 32), groups_(threads / 128), threads_(threads), target_(target) {}

  Body body(const Body& statements) {
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return body(inner); };
    Body result;
    for (const Stmt& s : statements) {
      const auto* branch = as<If>(s);
      const auto* loop = as<For>(s);
      if (branch && divides_groups(*branch) && has_products(branch->then))
        result.push_back(split(*branch, s->at));
      else
        result.push_back(loop && loop->kind == LoopKind::parallel ? s : map(s, mapping));
    }
    return result;
  }

  // Whether all branches that it made are decided as they must be.
  bool is_good(const Layouts& layouts) const {
    const auto decided = [&](const Stmt& s, Deciders by) {
      return deciders(*as<If>(s), threads_, layouts, target_) == by;
    };
    return std::all_of(made_.begin(), made_.end(), [&](const auto& pair) {
      return (groups_ == 1 || decided(pair.first, Deciders::warp_groups)) &&
             decided(pair.second, Deciders::warps);
    });
  }
  bool is_empty() const { return made_.empty(); }

 private:
  bool divides_groups(const If& branch) const {
    return static_cast<int>(branch.of_rows.size()) == warps_ && branch.otherwise.empty();
  }

  bool has_products(const Body& body) const {
    bool found = false;
    for_each_stmt(body, [&](const Stmt& s) {
      const auto* gemm = as<Gemm>(s);
      found |= gemm && plan_gemm(*gemm, threads_, target_).instruction == GemmInstruction::wgmma;
    });
    return found;
  }

  Stmt split(const If& branch, const Loc& at) {
    const Expr wanted = branch.together ? branch.together : constant(i32, enough, at);
    std::vector<Expr> together;
    for (int g = 0; g < groups_; ++g)
      together.push_back(make(Op::ge, boolean, {count(&branch.of_rows[warps_of_group * g]), wanted}, at));
    const Body apart = with_products_by_warps(fresh_copy(branch.then));
    const Stmt alone = statement(If{branch.condition, apart, {}, branch.of_rows}, at);
    made_.emplace_back(statement(If{any(together), branch.then, {alone}, together}, at), alone);
    return made_.back().first;
  }

  int warps_, groups_, threads_;
  const CudaTarget& target_;
  std::vector<std::pair<Stmt, Stmt>> made_;
};

}  // namespace

Body rows_of_warps(const Body& consumer, int threads, const CudaTarget& target) {
  Split split(threads, target);
  Body result = split.body(consumer);
  if (split.is_empty() || !split.is_good(infer_layouts(result, threads, target))) return consumer;
  return result;
}

}  // namespace tegula::passes
