#include "ir/simplify.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/print.hpp"
#include "ir/rules.hpp"
#include "ir/testing/random_expr.hpp"
#include "runtime/testing/test_environment.hpp"

namespace tegula::ir {
namespace {

using namespace testing;

// Values that satisfy the facts, for expressions that are valid with them.
struct Trial {
  Value wanted;
  Lookup values;
};

std::optional<Trial> trial(RandomExprs& random, const Expr& e, const Expr& assumed) {
  const Lookup values = random.assignment();
  bool overflow = false;
  const Value condition = evaluate(assumed, values, &overflow);
  if (condition.invalid || !condition.truth()) return std::nullopt;
  const Value wanted = evaluate(e, values, &overflow);
  if (overflow || wanted.invalid) return std::nullopt;
  return Trial{wanted, values};
}

// The rule is not called by its name: all run together, as in the compiler.
TEST(Simplify, RandomExpressionsKeepTheirValues) {
  const std::uint64_t seed = test_seed(20240607);
  RandomExprs random(seed);
  int compared = 0, shorter = 0;
  for (int round = 0; round < 20000; ++round) {
    const Expr assumed = random.number(0, 2) == 0 ? random.expr(boolean, 2) : truth(true);
    Facts facts = random.facts();
    facts.assume(assumed);
    const DType type = random.type();
    const Expr e = random.expr(type, static_cast<int>(random.number(1, 5)));
    const Expr simple = simplify(e, facts);
    const Interval range = bounds(e, facts);
    const std::string what = print(e) + "\nsimplified: " + print(simple) + "\nassuming: " + print(assumed) +
                             "\nTEGULA_TEST_SEED=" + std::to_string(seed);
    EXPECT_LE(simple->size, e->size) << what;
    EXPECT_TRUE(simple->held() == e->held()) << what;
    shorter += simple->size < e->size;
    for (int n = 0; n < 6; ++n) {
      const auto t = trial(random, e, assumed);
      if (!t) continue;
      ++compared;
      const Value got = evaluate(simple, t->values);
      const bool same = identical(got, t->wanted);
      ASSERT_TRUE(same) << what << "\nwanted " << t->wanted.integer << " " << t->wanted.real << ", got "
                        << got.integer << " " << got.real << (got.invalid ? " invalid" : "");
      if (!e->held().is_floating()) {
        ASSERT_TRUE(range.contains(t->wanted.integer))
            << t->wanted.integer << " is not in [" << range.low << ", " << range.high << "] of " << what;
      }
    }
  }
  EXPECT_GT(compared, 50000);
  EXPECT_GT(shorter, 5000);
}

// What an executor may rely on that leaves checks out, in programs with errors as well.
TEST(Simplify, BoundsHoldWhereValuesWrap) {
  const std::uint64_t seed = test_seed(20240608);
  RandomExprs random(seed);
  const Facts facts = random.facts(Overflow::wraps);
  int wrapped = 0, narrow = 0;
  for (int round = 0; round < 20000; ++round) {
    const Expr e = random.expr(random.number(0, 3) == 0 ? i64 : i32, static_cast<int>(random.number(1, 5)));
    const Interval range = bounds(e, facts);
    narrow += !range.contains(values_of(e->held()));
    for (int n = 0; n < 6; ++n) {
      bool overflow = false;
      const Value value = evaluate(e, random.assignment(), &overflow);
      if (value.invalid) continue;
      wrapped += overflow;
      ASSERT_TRUE(range.contains(value.integer))
          << value.integer << " is not in [" << range.low << ", " << range.high << "] of " << print(e)
          << "\nTEGULA_TEST_SEED=" << seed;
    }
  }
  EXPECT_GT(wrapped, 1000);
  EXPECT_GT(narrow, 1000);
}

int unused(const std::unordered_map<std::string, int>& uses) {
  return static_cast<int>(
      std::count_if(uses.begin(), uses.end(), [](const auto& use) { return use.second == 0; }));
}

// Every rule applies to expressions of the kind that the test above compares.
TEST(Simplify, RandomExpressionsReachEveryRule) {
  RandomExprs random(1);
  const Facts facts = random.facts();
  std::unordered_map<std::string, int> uses;
  for (int round = 0; round < 400000 && (round % 1000 != 1 || unused(uses) > 0); ++round) {
    const Expr e = random.expr(random.type(), static_cast<int>(random.number(1, 3)));
    for (const auto rules : {value_rules(), logic_rules(), division_rules(), sum_rules()}) {
      for (const RewriteRule& rule : rules) {
        uses[rule.name] += e->op >= rule.first && e->op <= rule.last && rule.apply(e, facts) != nullptr;
      }
    }
  }
  for (const auto& [name, count] : uses) EXPECT_GT(count, 0) << name;
}

// A loop index i in [0, 64), a warp w in [0, 4), a dim N that is a multiple of 16, a block b of ceildiv(N,
// 64).
struct Scene {
  Expr i = variable(named("i")), w = variable(named("w")), b = variable(named("b")), j = variable(named("j")),
       N = variable(named("N", VariableKind::dim)), M = variable(named("M", VariableKind::dim)),
       u = variable(named("u", VariableKind::let, u32)), x = variable(named("x", VariableKind::let, f32));
  Facts facts;

  Scene() {
    facts.add_range(N->variable, {0, INT32_MAX});
    facts.add_multiple(N->variable, 16);
    facts.add_index(i->variable, int32(0), int32(64));
    facts.add_index(w->variable, int32(0), int32(4));
    facts.add_index(b->variable, int32(0), make(Op::ceildiv, i32, {N, int32(64)}));
    facts.add_index(j->variable, i, M);
  }
};

TEST(Simplify, WritesWhatAPersonWouldWrite) {
  const Scene s;
  const auto op = [](Op o, const Expr& a, const Expr& b) { return binary(o, a, b); };
  const auto one = constant(f32, 1.0), zero = constant(f32, 0.0);
  const std::pair<Expr, const char*> table[] = {
      {s.i + s.w - s.i, "w"},
      {(s.i + 3) * 4 - 12, "i * 4"},
      {s.i * 2 + s.i * 3, "i * 5"},
      {int32(0) - s.i, "-i"},
      {(s.b * 8 + s.w) / 8, "b"},
      {(s.b * 8 + s.w) % 8, "w"},
      {(s.b * 128 + s.i) / 8, "b * 16 + i / 8"},
      {(s.b * 128 + s.i) % 8, "i % 8"},
      {s.i / 64, "0"},
      {s.i % 64, "i"},
      {op(Op::floordiv, s.i, int32(8)), "i / 8"},
      {op(Op::floormod, s.i - 64, int32(64)), "i"},
      {s.N % 16, "0"},
      {s.N % 8, "0"},
      {op(Op::ceildiv, s.N, int32(16)), "N / 16"},
      {op(Op::ceildiv, s.b * 64 + 1, int32(64)), "b + 1"},
      {s.i / 4 / 8, "i / 32"},
      {op(Op::min, s.i, int32(63)), "i"},
      {op(Op::max, s.i - 100, int32(0)), "0"},
      {op(Op::min, op(Op::min, s.M, int32(9)), int32(5)), "min(M, 5)"},
      {lt(s.i, int32(64)), "true"},
      {lt(s.b * 64, s.N), "b * 64 < N"},
      {lt(s.b, op(Op::ceildiv, s.N, int32(64))), "true"},
      {le(s.i, s.j), "true"},
      {lt(s.i - 1, s.M), "i - 1 < M"},
      {lt(s.j * 8, s.M * 8), "true"},
      {lt(s.w * 4 + 3, s.M * 4), "w < M"},
      {eq(s.N + 8, int32(0)), "false"},
      {eq(s.N + s.w * 0, int32(24)), "false"},
      {make(Op::logical_not, boolean, {lt(s.i, s.w)}), "i >= w"},
      {make(Op::logical_not, boolean, {lt(s.x, one)}), "!(x < 1.0)"},
      {select(truth(true), s.i, s.w), "i"},
      {select(lt(s.i, s.w), s.i, s.i), "i"},
      {op(Op::logical_and, lt(s.i, int32(64)), lt(s.i, s.w)), "i < w"},
      {op(Op::bit_and, s.i, int32(63)), "i"},
      {op(Op::bit_and, s.i, int32(31)), "i & 31"},
      {s.u + 0, "u"},
      {s.u * 0, "0u"},
      {s.u - s.u, "u - u"},
      {s.x * zero, "x * 0.0"},
      {s.x * one, "x"},
      {s.x + zero, "x + 0.0"},
      {s.x - s.x, "x - x"},
      {make(Op::cast, i32, {make(Op::cast, i64, {s.i})}), "i"},
      {make(Op::cast, i8, {s.i}), "i"},
      {make(Op::cast, bf16, {make(Op::cast, bf16, {s.x})}), "bf16(x)"},
      {int32(3) / int32(0), "3 / 0"},
      {int32(INT32_MAX) + 1, "2147483647 + 1"},
  };
  for (const auto& [e, text] : table) EXPECT_EQ(print(simplify(e, s.facts)), text) << print(e);
}

TEST(Simplify, ProvesFromConditions) {
  Scene s;
  const auto proves = [](const Expr& condition, const Facts& facts) {
    return is_constant(simplify(condition, facts), 1);
  };
  EXPECT_FALSE(proves(lt(s.w, s.i), s.facts));
  s.facts.assume(lt(s.w + 2, s.i));
  EXPECT_TRUE(proves(lt(s.w, s.i), s.facts));
  EXPECT_TRUE(proves(ge(s.i, int32(3)), s.facts));
  s.facts.assume(lt(s.M, int32(5)), false);
  EXPECT_TRUE(proves(ge(s.M, int32(5)), s.facts));
  const Expr q = make(Op::div, i32, {s.M, s.i});
  s.facts.assume(binary(Op::logical_and, ge(q, int32(2)), lt(q, int32(3))));
  EXPECT_EQ(bounds(q, s.facts).low, 2);
  EXPECT_EQ(bounds(q, s.facts).high, 2);
}

// Of an index below n / c, c whole indices are below n.
TEST(Simplify, ProvesFromQuotients) {
  Scene s;
  const auto block = named("block"), of_odd = named("of_odd");
  s.facts.add_index(block, int32(0), s.M / 128);
  s.facts.add_index(of_odd, int32(0), (s.M - 500) / 128);
  const auto proves = [&](const Expr& condition) { return is_constant(simplify(condition, s.facts), 1); };
  EXPECT_TRUE(proves(lt(variable(block) * 128 + 127, s.M)));
  EXPECT_TRUE(proves(lt(variable(block) * 128 + s.i, s.M)));  // i < 64
  EXPECT_FALSE(proves(lt(variable(block) * 128 + 128, s.M)));
  EXPECT_FALSE(
      proves(lt(variable(of_odd) * 128 + 500, s.M)));  // a quotient toward zero of what may be negative
}

TEST(Simplify, LargeSharedExpressionsTakeNoTime) {
  const Scene s;
  Expr e = s.i;
  for (int n = 0; n < 200; ++n) e = binary(Op::max, e + e, e - s.w);
  EXPECT_NE(simplify(e, s.facts), nullptr);
}

}  // namespace
}  // namespace tegula::ir
