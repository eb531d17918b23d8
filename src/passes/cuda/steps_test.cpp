// What becomes of the steps of a loop: parts of it before and after a mask, and sums whose lanes keep their
// parts.
#include <gtest/gtest.h>

#include "ir/simplify.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/lane_sums.hpp"
#include "passes/cuda/split_steps.hpp"
#include "tegula/lang.hpp"

namespace tegula::passes {
namespace steps_test {

using namespace lang;

struct Steps {
  std::shared_ptr<const ir::Kernel> kernel;
  const ir::For* loop = nullptr;
  ir::VariablePtr limit;
};

// A serial loop of nine steps of 16 columns, whose body is given what to do in step j with the scores.
Steps steps_of(const std::function<void(Expr limit, Index j, Fragment& scores, Fragment& sum)>& body) {
  Steps result;
  result.kernel = kernel("steps", [&] {
                    Expr limit = scalar("limit", i32);
                    Tensor X = input("X", {8, 144}, f32), Y = output("Y", {8}, f32);
                    grid(1, [&](Index) {
                      Fragment sum({8}, f32, 0), scores({8, 16}, f32);
                      serial(9, [&](Index j) {
                        copy(X.at(0, j * 16), scores);
                        body(limit, j, scores, sum);
                      });
                      copy(sum, Y.at(0));
                    });
                  }).ir();
  ir::for_each_stmt(*result.kernel, [&](const ir::Stmt& s) {
    const auto* loop = ir::as<ir::For>(s);
    if (loop && loop->kind == ir::LoopKind::serial) result.loop = loop;
  });
  ir::for_each_stmt(result.loop->body, [&](const ir::Stmt& s) {
    ir::for_each_expr(s, [&](const ir::Expr& e) {
      ir::for_each_variable(e, [&](const ir::VariablePtr& v) {
        if (v->name == "limit") result.limit = v;
      });
    });
  });
  return result;
}

void mask(Fragment& scores) {
  parallel(scores, [&](Index r, Index c) { scores(r, c) = select(c < 3, scores(r, c), 0); });
}

int at_limit(const ir::Expr& e, const ir::VariablePtr& limit, int x) {
  const ir::Expr value = ir::substitute(e, {{limit, ir::constant(limit->type, x)}});
  return static_cast<int>(ir::constant_value(ir::simplify(value, ir::Facts())));
}

TEST(SplitSteps, DividesWhereAConditionBecomesTrue) {
  struct Case {
    const char* name;
    Expr (*condition)(Expr limit, Index j);
    bool (*holds)(int limit, int j);
  };
  const Case cases[] = {
      {"end beyond", [](Expr limit, Index j) { return j * 16 + 16 > limit; },
       [](int limit, int j) { return j * 16 + 16 > limit; }},
      {"not yet", [](Expr limit, Index j) { return limit <= j * 3 - 2; },
       [](int limit, int j) { return limit <= j * 3 - 2; }},
      {"below", [](Expr limit, Index j) { return limit - 7 < j; },
       [](int limit, int j) { return limit - 7 < j; }},
      {"the last step", [](Expr limit, Index j) { return limit - j == limit - 8; }, [](int, int j) { return j == 8; }},
  };
  for (const Case& c : cases) {
    const Steps steps = steps_of([&](Expr limit, Index j, Fragment& scores, Fragment& sum) {
      when(c.condition(limit, j), [&] { mask(scores); });
      reduce_sum(scores, sum);
    });
    const auto split = split_steps(*steps.loop, steps.loop->begin[0]->at);
    ASSERT_TRUE(split) << c.name;
    EXPECT_EQ(split->before.body.size() + 1, split->behind.body.size()) << c.name;
    for (int limit = -40; limit < 200; ++limit) {
      int j = 0;
      for (; j < at_limit(split->before.end[0], steps.limit, limit); ++j)
        EXPECT_FALSE(c.holds(limit, j)) << c.name << ", limit " << limit << ", step " << j;
      EXPECT_EQ(std::min(9, at_limit(split->behind.begin[0], steps.limit, limit)), j)
          << c.name << ", limit " << limit;
      for (; j < 9; ++j) EXPECT_TRUE(c.holds(limit, j)) << c.name << ", limit " << limit << ", step " << j;
    }
  }
}

TEST(SplitSteps, LeavesOtherLoopsWhole) {
  using Body = void (*)(Expr, Index, Fragment&, Fragment&);
  const std::pair<const char*, Body> cases[] = {
      {"no branch", [](Expr, Index, Fragment& scores, Fragment& sum) { reduce_sum(scores, sum); }},
      {"true at first, then false",
       [](Expr limit, Index j, Fragment& scores, Fragment&) { when(j < limit, [&] { mask(scores); }); }},
      {"true in one step",
       [](Expr limit, Index j, Fragment& scores, Fragment&) { when(j == limit, [&] { mask(scores); }); }},
      {"true before the last step",
       [](Expr, Index j, Fragment& scores, Fragment&) { when(j == 7, [&] { mask(scores); }); }},
      {"true in the middle",
       [](Expr limit, Index j, Fragment& scores, Fragment&) { when(j % 3 > limit, [&] { mask(scores); }); }},
      {"both sides", [](Expr limit, Index j, Fragment& scores,
                        Fragment&) { when(j > limit || j < limit - 4, [&] { mask(scores); }); }},
      {"two branches",
       [](Expr limit, Index j, Fragment& scores, Fragment&) {
         when(j > limit, [&] { mask(scores); });
         when(j > limit + 1, [&] { mask(scores); });
       }},
      {"another part",
       [](Expr limit, Index j, Fragment& scores, Fragment& sum) {
         when(j > limit, [&] { mask(scores); }).otherwise([&] { reduce_sum(scores, sum); });
       }},
  };
  for (const auto& [name, body] : cases) {
    const Steps steps = steps_of(body);
    EXPECT_FALSE(split_steps(*steps.loop, steps.loop->begin[0]->at)) << name;
  }
}

// Loops whose products have few rows or columns wait for operands, whatever they mask.
TEST(SplitSteps, LeavesProductsOfFewRowsWhole) {
  for (const int rows : {8, 16, 32}) {
    const lang::Kernel program = kernel("products", [&] {
      Expr limit = scalar("limit", i32);
      Tensor X = input("X", {144, 64}, bf16), Q = input("Q", {rows, 64}, bf16), Y = output("Y", {rows}, f32);
      grid(1, [&](Index) {
        Fragment sum({rows}, f32, 0);
        Shared q({rows, 64}, bf16), x({64, 64}, bf16);
        copy(Q.at(0, 0), q);
        serial(9, [&](Index j) {
          copy(X.at(j * 16, 0), x);
          Fragment scores({rows, 64}, f32, 0);
          gemm(q, x.T(), scores);
          when(j * 16 + 64 > limit, [&] { mask(scores); });
          reduce_sum(scores, sum);
        });
        copy(sum, Y.at(0));
      });
    });
    ir::for_each_stmt(*program.ir(), [&](const ir::Stmt& s) {
      const auto* loop = ir::as<ir::For>(s);
      if (loop && loop->kind == ir::LoopKind::serial) {
        EXPECT_EQ(bool(split_steps(*loop, loop->begin[0]->at)), rows > 16) << rows;
      }
    });
  }
}

TEST(LaneSums, AreScaledAndAddedToOnly) {
  using Body = void (*)(Expr, Index, Fragment&, Fragment&);
  struct Case {
    const char* name;
    std::size_t found;
    Body body;
  };
  const Case cases[] = {
      {"added to", 1, [](Expr, Index, Fragment& scores, Fragment& sum) { reduce_sum(scores, sum); }},
      {"scaled and added to", 1,
       [](Expr, Index j, Fragment& scores, Fragment& sum) {
         parallel(sum, [&](Index r) { sum(r) *= select(r > j, 0.5f, 2.0f); });
         reduce_sum(scores, sum);
       }},
      {"a maximum", 0, [](Expr, Index, Fragment& scores, Fragment& sum) { reduce_max(scores, sum); }},
      {"read", 0,
       [](Expr, Index, Fragment& scores, Fragment& sum) {
         reduce_sum(scores, sum);
         parallel(scores, [&](Index r, Index c) { scores(r, c) *= sum(r); });
       }},
      {"squared", 0,
       [](Expr, Index, Fragment& scores, Fragment& sum) {
         parallel(sum, [&](Index r) { sum(r) *= sum(r); });
         reduce_sum(scores, sum);
       }},
      {"something added", 0,
       [](Expr, Index, Fragment& scores, Fragment& sum) {
         parallel(sum, [&](Index r) { sum(r) += 1; });
         reduce_sum(scores, sum);
       }},
      {"read in a branch", 0,
       [](Expr limit, Index j, Fragment& scores, Fragment& sum) {
         reduce_sum(scores, sum);
         when(j > limit, [&] { parallel(scores, [&](Index r, Index c) { scores(r, c) = sum(r); }); });
       }},
  };
  for (const Case& c : cases) {
    const Steps steps = steps_of(c.body);
    EXPECT_EQ(lane_sums(steps.loop->body).size(), c.found) << c.name;
  }
}

}  // namespace
}  // namespace tegula::passes
