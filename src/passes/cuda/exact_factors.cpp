#include "passes/cuda/exact_factors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "ir/effects.hpp"
#include "ir/representable.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/fragment_forms.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int upper_half = 16;
// Products of bf16's numbers are multiples of f32's least one if the power is no less.
constexpr float least_power = 0x1p117f;

// What the variables of a loop's body are.
class Definitions {
 public:
  explicit Definitions(const For& loop) : loop_(loop) {
    for (const Stmt& s : loop.body) {
      if (const auto* let = as<Let>(s)) values_.emplace(let->variable.get(), let->value);
      if (const auto* load = as<Load>(s)) types_.emplace(load->variable.get(), load->from.view.buffer->type);
    }
  }

  Expr value(Expr e) const {
    while (e->op == Op::variable) {
      const auto found = values_.find(e->variable.get());
      if (found == values_.end()) break;
      e = found->second;
    }
    return e;
  }
  std::optional<DType> stored_type(const VariablePtr& v) const {
    const auto found = types_.find(v.get());
    return found == types_.end() ? std::nullopt : std::optional(found->second);
  }
  // Whether one expression of the loop reads the variable, and once.
  bool is_read_once(const VariablePtr& v) const {
    int count = 0;
    for_each_stmt(loop_.body, [&](const Stmt& s) {
      for_each_expr(s, [&](const Expr& e) {
        for_each_node(e, [&](const Expr& node) {
          for (const Expr& arg : node->args) count += is_variable(arg, v) ? 1 : 0;
        });
        count += is_variable(e, v) ? 1 : 0;
      });
    });
    return count == 1;
  }

 private:
  const For& loop_;
  std::unordered_map<const Variable*, Expr> values_;
  std::unordered_map<const Variable*, DType> types_;
};

// Lowest bits of a word that are surely 0.
int zero_bits(const Expr& given, const Definitions& known) {
  const Expr e = known.value(given);
  const auto of = [&](std::size_t arg) { return zero_bits(e->args[arg], known); };
  switch (e->op) {
    case Op::constant:
      return std::countr_zero(static_cast<std::uint32_t>(e->integer));
    case Op::shl:
      return is_constant(e->args[1])
                 ? static_cast<int>(std::min<std::int64_t>(32, of(0) + constant_value(e->args[1])))
                 : of(0);
    case Op::bit_and:
      return std::max(of(0), of(1));
    case Op::bit_or:
    case Op::bit_xor:
    case Op::min:
    case Op::max:
      return std::min(of(0), of(1));
    case Op::select:
      return std::min(of(1), of(2));
    default:
      return 0;
  }
}

bool is_word_as_number(const Expr& e) {
  return e->op == Op::bitcast && e->type == f32 && e->args[0]->type == u32;
}

bool is_in_bf16(const Expr& given, const Definitions& known) {
  const Expr e = known.value(given);
  if (is_word_as_number(e)) return zero_bits(e->args[0], known) >= upper_half;
  return is_representable(e, bf16, [&](const VariablePtr& v) { return known.stored_type(v); });
}

// A word's bits that a mask leaves, which are a finite number in its upper half, times a power of two that it
// is finite with.
std::optional<ExactFactors> number(const Expr& given, const Definitions& known) {
  const Expr e = known.value(given);
  if (e->op == Op::mul) {
    for (const std::size_t side : {0, 1}) {
      const Expr power = known.value(e->args[1 - side]);
      if (!is_constant(power)) continue;
      auto result = number(e->args[side], known);
      int exponent = 0;
      const auto value = static_cast<float>(power->real);
      if (!result || result->power != 1 || value < 1 || std::frexp(value, &exponent) != 0.5f)
        return std::nullopt;
      const float largest = std::bit_cast<float>(result->mask & 0x7fffffffu) * value;
      result->power = value;
      return std::isfinite(largest) ? result : std::nullopt;
    }
    return std::nullopt;
  }
  if (!is_word_as_number(e)) return std::nullopt;
  const Expr word = known.value(e->args[0]);
  if (word->op != Op::bit_and || !is_constant(word->args[1])) return std::nullopt;
  ExactFactors result{word->args[0], static_cast<std::uint32_t>(constant_value(word->args[1]))};
  const bool is_upper = result.mask << upper_half == 0;
  if (!is_upper || !std::isfinite(std::bit_cast<float>(result.mask & 0x7fffffffu))) return std::nullopt;
  if (const Expr& name = e->args[0]; name->op == Op::variable && known.is_read_once(name->variable))
    result.masked = name->variable;
  return result;
}

}  // namespace

std::optional<ExactFactors> exact_factors(const For& loop) {
  if (loop.kind != LoopKind::parallel || loop.body.empty()) return std::nullopt;
  const auto* store = as<Store>(loop.body.back());
  if (!store || store->to.view.buffer->space != Space::fragment || store->to.view.buffer->type != f32)
    return std::nullopt;
  for (std::size_t i = 0; i + 1 < loop.body.size(); ++i)
    if (!as<Let>(loop.body[i]) && !as<Load>(loop.body[i])) return std::nullopt;
  const Definitions known(loop);
  if (auto whole = number(store->value, known)) return whole->power == 1 ? std::nullopt : whole;
  const Expr value = known.value(store->value);
  if (value->op != Op::mul) return std::nullopt;
  for (const std::size_t side : {0, 1}) {
    auto result = number(value->args[side], known);
    if (!result || result->power < least_power || !is_in_bf16(value->args[1 - side], known)) continue;
    result->factor = value->args[1 - side];
    return result;
  }
  return std::nullopt;
}

FactoredFragments factored_fragments(const Body& body, const Layouts& layouts,
                                     const std::unordered_set<const Buffer*>& words) {
  FactoredFragments result;
  std::unordered_set<const Buffer*> converted, other;
  const std::function<void(const Body&)> walk = [&](const Body& statements) {
    for (const Stmt& s : statements) {
      const auto found = conversion(s, layouts);
      if (found && found->to->type == bf16 && words.contains(found->to.get()) &&
          converted.insert(found->from.get()).second)
        continue;
      const auto* loop = as<For>(s);
      const bool is_loop = loop && loop->kind == LoopKind::parallel;
      const auto own = is_loop ? exact_factors(*loop) : std::nullopt;
      const Buffer* written = own ? as<Store>(loop->body.back())->to.view.buffer.get() : nullptr;
      if (written && !result.emplace(written, *own).second) other.insert(written);
      const Effects e = is_loop ? all_effects(s) : effects(s);
      for (const Region& r : e.regions)
        if (const Buffer* buffer = r.view->buffer.get(); buffer != written || r.touch != ir::Touch::write)
          other.insert(buffer);
      if (!is_loop) for_each_body(s, walk);
    }
  };
  walk(body);
  std::erase_if(result,
                [&](const auto& own) { return other.contains(own.first) || !converted.contains(own.first); });
  return result;
}

}  // namespace tegula::passes
