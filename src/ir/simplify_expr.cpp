#include "ir/rules.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"

namespace tegula::ir {
namespace {

// More rewrites of one place than this mean that two rules undo each other.
constexpr int most_rewrites = 64;

class Simplifier {
 public:
  explicit Simplifier(const Facts& facts) : facts_(facts) {}

  Expr operator()(const Expr& e) {
    if (e->op == Op::constant) return e;
    if (const auto found = known_.find(e); found != known_.end()) return found->second;
    Expr result = operands(e);
    for (int n = 0; n < most_rewrites && result->op != Op::constant; ++n) {
      const Expr next = rewritten(result);
      if (!next) break;
      result = operands(next);
    }
    known_.emplace(result, result);
    return known_[e] = result;
  }

 private:
  Expr operands(const Expr& e) {
    if (const auto found = known_.find(e); found != known_.end()) return found->second;
    std::vector<Expr> args;
    for (const Expr& arg : e->args) args.push_back((*this)(arg));
    return with_args(e, std::move(args));
  }

  Expr rewritten(const Expr& e) const {
    for (const auto rules : {value_rules(), logic_rules(), division_rules(), sum_rules()}) {
      for (const RewriteRule& rule : rules) {
        if (e->op < rule.first || e->op > rule.last) continue;
        if (Expr result = rule.apply(e, facts_); result && result != e) return result;
      }
    }
    return nullptr;
  }

  const Facts& facts_;
  std::unordered_map<Expr, Expr> known_;
};

}  // namespace

Expr simplify(const Expr& e, const Facts& facts) { return Simplifier(facts)(e); }

}  // namespace tegula::ir
