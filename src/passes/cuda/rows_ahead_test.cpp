// Numbers of rows that come beside operands: read under the first product of a step, and their slot let go
// behind the values; the simulation finds where it is not.
#include "passes/cuda/rows_ahead.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace rows_ahead_test {

using namespace lang;

// What is added to an element of a sum: of the product, of the tile's numbers, and of one of the step.
using Work = Expr (*)(const Expr& product, const Shared& scale, const Expr& row, const Index& column,
                      const Expr& of_step);

struct ReadCase {
  const char* name;
  Work work;
  DType type = f32;
  bool ahead = true;
  bool across = false;  // the tile's numbers lie in a column of their tensor
};

void PrintTo(const ReadCase& c, std::ostream* out) { *out << c.name; }

// Two sums of a tile, formed one after the other by two warp groups in turns; or one, of which the product
// has two sets of registers.
Kernel program(const ReadCase& c, int sums = 2) {
  return kernel("program", [&] {
    Dim K("K"), B("B");
    const int rows = 128 * sums;
    Tensor x = input("x", {B, rows, K}, e4m3), y = input("y", {64, K}, e4m3),
           s = c.across ? input("s", {rows, K}, c.type) : input("s", {K, rows}, c.type),
           t = input("t", {K}, f32), out = output("out", {B, rows, 64}, f32);
    grid(B, {.threads = 256}, [&](Index b) {
      std::vector<Fragment> parts;
      for (int i = 0; i < sums; ++i) parts.emplace_back(Fragment({128, 64}, f32, 0));
      pipelined(ceildiv(K, 128), {.stages = 2}, [&](Index k) {
        Shared p({rows, 128}, e4m3), q({64, 128}, e4m3), scale({rows}, c.type);
        copy(x.slice(b).at(0, k * 128), p);
        copy(y.at(0, k * 128), q);
        copy((c.across ? s.slice(all, k) : s.slice(k)).at(0), scale);
        Expr of_step = t(k);
        Fragment part({128, 64}, f32);
        int first = 0;
        for (Fragment& sum : parts) {
          fill(part, 0);
          gemm(p.slice(range(first, first + 128), all), q.T(), part, {.accumulate = Accumulate::tensor_core});
          parallel(sum,
                   [&](Index i, Index j) { sum(i, j) += c.work(part(i, j), scale, i + first, j, of_step); });
          first += 128;
        }
      });
      for (int i = 0; i < sums; ++i) copy(parts[static_cast<std::size_t>(i)], out.slice(b).at(i * 128, 0));
    });
  });
}

const ReadCase cases[] = {
    {"factor_of_a_row", [](const Expr& product, const Shared& scale, const Expr& row, const Index&,
                           const Expr& of_step) { return product * (scale(row) * of_step); }},
    {"one_factor_after_the_other", [](const Expr& product, const Shared& scale, const Expr& row, const Index&,
                                      const Expr& of_step) { return product * scale(row) * of_step; }},
    {"summand", [](const Expr& product, const Shared& scale, const Expr& row, const Index&,
                   const Expr& of_step) { return product * of_step + scale(row); }},
    {"converted",
     [](const Expr& product, const Shared& scale, const Expr& row, const Index&, const Expr& of_step) {
       return product * (f32(scale(row)) * of_step);
     },
     i32},
    {"of_columns_too",
     [](const Expr& product, const Shared& scale, const Expr& row, const Index& column, const Expr&) {
       return product * (scale(row) * scale(column));
     },
     f32, false},
    {"of_no_row",
     [](const Expr& product, const Shared& scale, const Expr&, const Index& column, const Expr& of_step) {
       return product * (scale(column) * of_step);
     },
     f32, false},
};

// Events of that kind that the consumers' loops have, each with its list.
template <class What, class F>
void for_each_event(schedule::Events& events, const F& f) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (auto* loop = std::get_if<schedule::Loop>(&events[i].what)) for_each_event<What>(loop->body, f);
    if (auto* own = std::get_if<What>(&events[i].what)) f(*own, events, i);
  }
}

class RowsAhead : public ::testing::TestWithParam<ReadCase> {};

TEST_P(RowsAhead, AreKeptInRegistersByOneStatement) {
  const testing::Lowered lowered(program(GetParam()));
  const ir::Body& body = lowered.plan.grids[0].consumers.body;
  std::size_t kept = 0;
  for (const ir::For* loop : testing::all_of<ir::For>(body))
    kept += kept_rows(ir::statement(*loop, loop->index[0]->at)).size();
  EXPECT_EQ(kept, GetParam().ahead ? 2u : 0u);
}

TEST_P(RowsAhead, LetTheirSlotGoBehindTheValues) {
  schedule::Schedule own = *testing::Lowered(program(GetParam())).plan.grids[0].schedule;
  std::vector<std::size_t> behind;
  for_each_event<schedule::Arrive>(own.roles[0].events,
                                   [&](schedule::Arrive& x, schedule::Events&, std::size_t) {
                                     if (!x.behind.empty()) behind.push_back(x.behind.size());
                                   });
  EXPECT_EQ(behind, GetParam().ahead ? std::vector<std::size_t>{2} : std::vector<std::size_t>{});
  EXPECT_FALSE(schedule::verify(own));
}

// One statement in each of the two steps of a turn of the loop, and behind it.
TEST_P(RowsAhead, AreKeptWhereTwoSetsOfSumsAlternate) {
  const testing::Lowered lowered(program(GetParam(), 1));
  std::size_t kept = 0;
  for (const ir::For* loop : testing::all_of<ir::For>(lowered.plan.grids[0].consumers.body))
    kept += kept_rows(ir::statement(*loop, loop->index[0]->at)).size();
  EXPECT_EQ(kept, GetParam().ahead ? 4u : 0u);
  schedule::Schedule own = *lowered.plan.grids[0].schedule;
  EXPECT_FALSE(schedule::verify(own));
  if (!GetParam().ahead) return;
  for_each_event<schedule::Arrive>(
      own.roles[0].events, [](schedule::Arrive& x, schedule::Events&, std::size_t) { x.behind.clear(); });
  EXPECT_TRUE(schedule::verify(own)) << "a slot is let go before its values are there";
}

// Of numbers that threads bring, and of two products, the rows are read where the work needs them.
TEST(RowsAheadOfAlternatingSums, AreNotOfNumbersThatThreadsBring) {
  ReadCase across = cases[0];
  across.across = true;
  for (const int sums : {1, 2}) {
    const testing::Lowered lowered(program(across, sums));
    std::size_t kept = 0;
    for (const ir::For* loop : testing::all_of<ir::For>(lowered.plan.grids[0].consumers.body))
      kept += kept_rows(ir::statement(*loop, loop->index[0]->at)).size();
    EXPECT_EQ(kept, sums == 1 ? 0u : 2u);
    EXPECT_FALSE(schedule::verify(*lowered.plan.grids[0].schedule));
  }
}

void expect_rejected(const schedule::Schedule& changed) {
  const auto found = schedule::verify(changed);
  ASSERT_TRUE(found);
  EXPECT_NE(found->message.find("its values may be on their way"), std::string::npos) << found->message;
}

TEST(RowsAheadOfProducts, AreNotLeftToArriveAfterTheRelease) {
  const schedule::Schedule right = *testing::Lowered(program(cases[0])).plan.grids[0].schedule;
  schedule::Schedule own = right;
  for_each_event<schedule::Arrive>(
      own.roles[0].events, [](schedule::Arrive& x, schedule::Events&, std::size_t) { x.behind.clear(); });
  expect_rejected(own);
  own = right;
  for_each_event<schedule::Arrive>(own.roles[0].events,
                                   [](schedule::Arrive& x, schedule::Events&, std::size_t) {
                                     if (!x.behind.empty()) x.behind.pop_back();
                                   });
  EXPECT_FALSE(schedule::verify(own)) << "one statement has read for both";
}

// The same step with the reads on the other side of the release.
TEST(RowsAheadOfProducts, AreNotReadBehindTheRelease) {
  schedule::Schedule own = *testing::Lowered(program(cases[0])).plan.grids[0].schedule;
  for_each_event<schedule::Arrive>(own.roles[0].events,
                                   [](schedule::Arrive& x, schedule::Events& events, std::size_t i) {
                                     if (x.behind.empty()) return;
                                     const auto reads = events.begin() + static_cast<std::ptrdiff_t>(i) - 2;
                                     std::rotate(reads, reads + 1, reads + 3);
                                   });
  EXPECT_TRUE(schedule::verify(own));
}

// The same steps: what the first product needs is awaited in the step before, under the last product.
TEST(ProductsInTurns, AwaitTheTilesOfTheNextStep) {
  const schedule::Schedule right = *testing::Lowered(program(cases[0])).plan.grids[0].schedule;
  const auto changed = [&](const auto& change) {
    schedule::Schedule own = right;
    int found = 0;
    for_each_event<schedule::Guard>(own.roles[0].events,
                                    [&](schedule::Guard& x, schedule::Events&, std::size_t) {
                                      if (x.kind != schedule::Guard::Kind::not_last) return;
                                      const auto* wait = std::get_if<schedule::WaitFull>(&x.body.at(0).what);
                                      ASSERT_TRUE(wait);
                                      EXPECT_EQ(wait->place.shift, 1);
                                      ++found;
                                      change(x);
                                    });
    EXPECT_EQ(found, 1);
    return schedule::verify(own).has_value();
  };
  EXPECT_FALSE(changed([](schedule::Guard&) {}));
  EXPECT_TRUE(changed([](schedule::Guard& x) { x.body.clear(); })) << "nobody waits";
  EXPECT_TRUE(changed([](schedule::Guard& x) { x.kind = schedule::Guard::Kind::data; }))
      << "in the last step, too";
}

INSTANTIATE_TEST_SUITE_P(Table, RowsAhead, ::testing::ValuesIn(cases),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace rows_ahead_test
}  // namespace tegula::passes
