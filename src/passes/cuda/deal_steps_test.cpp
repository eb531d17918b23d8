// Which steps are dealt to two warp groups, what their program becomes, and that its schedule needs all it
// has.
#include "passes/cuda/deal_steps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "passes/cuda/testing/plans.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace deal_steps_test {

using namespace lang;

// The scores of a step, the factors of its rows, and what outlives it.
struct Step {
  Index j;
  Shared &query, &k;
  Fragment &s, &factor, &most, &o;
  const Tensor& out;
};
using Work = void (*)(const Step& step);
// The scores, from the queries and the step's rows of the tensor, or those of a list.
using Scores = void (*)(const Step& step, const Tensor& x, const Tensor& list);

void scale(const Step& t) {
  parallel(t.o, [&](Index i, Index c) { t.o(i, c) *= t.factor(i); });
}
void multiply(const Step& t) { gemm(t.s.to(bf16), t.k, t.o); }

void by_all_columns(const Step& t, const Tensor& x, const Tensor&) {
  copy(x.at(t.j * 64, 0), t.k);
  gemm(t.query, t.k.T(), t.s);
}

// The producer finds rows in the tile of the list, or in the tensor.
void by_rows(const Step& t, const Tensor& x, const Tensor& list, bool in_tensor) {
  Shared rows({64}, i32);
  copy(list.at(t.j * 64), rows);
  if (in_tensor)
    gather(x, list.slice(range(t.j * 64, t.j * 64 + 64)), t.k);
  else
    gather(x, rows, t.k);
  gemm(t.query, t.k.T(), t.s);
  parallel(t.s, [&](Index i, Index c) { t.s(i, c) = select(rows(c) >= 0, t.s(i, c), -inf); });
}
void by_rows_of_a_list(const Step& t, const Tensor& x, const Tensor& list) { by_rows(t, x, list, false); }
void by_rows_of_a_tensor(const Step& t, const Tensor& x, const Tensor& list) { by_rows(t, x, list, true); }

void as_attention(const Step& t) {
  scale(t);
  multiply(t);
}

struct Shape {
  int rows = 64, threads = 256, stages = 2;
  Scores scores = by_all_columns;
  int columns = 256;  // of the tensor: more than the tile has
};

Kernel latents(Work work, const Shape& shape = {}) {
  return kernel("latents", [&] {
    Dim N("N");
    Tensor q = input("q", {N, 256}, bf16), x = input("x", {N, shape.columns}, bf16),
           list = input("list", {N}, i32), out = output("out", {N, 256}, f32),
           tops = output("tops", {N}, f32);
    grid(ceildiv(N, shape.rows), {.threads = shape.threads}, [&](Index b) {
      Shared query({shape.rows, 256}, bf16);
      copy(q.at(b * shape.rows, 0), query);
      Fragment o({shape.rows, 256}, f32, 0), most({shape.rows}, f32, -inf), total({shape.rows}, f32, 0);
      pipelined(ceildiv(N, 64), {.stages = shape.stages}, [&](Index j) {
        Shared k({64, 256}, bf16);
        Fragment s({shape.rows, 64}, f32, 0), factor({shape.rows}, f32);
        const Step step{j, query, k, s, factor, most, o, out};
        shape.scores(step, x, list);
        parallel(factor, [&](Index i) { factor(i) = most(i); });
        reduce_max(s, most, 1);
        parallel(factor, [&](Index i) { factor(i) = exp2(factor(i) - most(i)); });
        parallel(s, [&](Index i, Index c) { s(i, c) = exp2(s(i, c) - most(i)); });
        parallel(total, [&](Index i) { total(i) = total(i) * factor(i); });
        reduce_sum(s, total, 1);
        work(step);
      });
      parallel(o, [&](Index i, Index c) { out(b * shape.rows + i, c) = o(i, c); });
      parallel(most, [&](Index i) { tops(b * shape.rows + i) = most(i) + total(i); });
    });
  });
}

struct DealCase {
  const char* name;
  bool dealt;
  Work work;
  Shape shape = {};
};

void PrintTo(const DealCase& c, std::ostream* out) { *out << c.name; }

const DealCase cases[] = {
    {"as_attention", true, as_attention},
    {"without_factors", true, multiply},
    {"scaled_in_front_of_the_weights", true,
     [](const Step& t) {
       scale(t);
       parallel(t.s, [&](Index i, Index c) { t.s(i, c) = t.s(i, c) * 2; });
       multiply(t);
     }},
    {"weights_by_a_tile_of_the_program", true,
     [](const Step& t) {
       scale(t);
       Shared p({64, 64}, bf16);
       copy(t.s, p);
       gemm(p, t.k, t.o);
     }},
    {"scaled_behind_the_product", false,
     [](const Step& t) {
       multiply(t);
       scale(t);
     }},
    {"factors_that_change_again", false,
     [](const Step& t) {
       scale(t);
       parallel(t.factor, [&](Index i) { t.factor(i) *= 2; });
       multiply(t);
     }},
    {"step_that_writes_a_tensor", false,
     [](const Step& t) {
       parallel(t.factor, [&](Index i) { t.out(i, 0) = t.factor(i); });
       as_attention(t);
     }},
    {"sums_read_by_elements_of_the_step", false,
     [](const Step& t) {
       Fragment other({64}, f32);
       reduce_sum(t.o, other, 1);
       parallel(t.o, [&](Index i, Index c) { t.o(i, c) *= other(i); });
       multiply(t);
     }},
    {"rows_divided_instead_of_columns", false, as_attention, {.rows = 128}},
    {"one_warp_group", false, as_attention, {.threads = 128}},
    {"three_slots_delay_the_product", false, as_attention, {.stages = 3}},
    {"one_slot", false, as_attention, {.stages = 1}},
    {"rows_of_a_list_that_are_not_divided",
     false,
     as_attention,
     {.scores =
          [](const Step& t, const Tensor& x, const Tensor& list) {
            by_rows_of_a_list(t, x, list);
            parallel(t.s, [&](Index i, Index c) { t.s(i, c) += t.k(c, 0); });
          }}},
};

class StepsOf : public ::testing::TestWithParam<DealCase> {};

TEST_P(StepsOf, AreDealtWhereRowsAreAllThatOutlivesThem) {
  const testing::Lowered lowered(latents(GetParam().work, GetParam().shape));
  const auto dealt = deal_steps(lowered.undealt(), lowered.target);
  ASSERT_EQ(dealt.has_value(), GetParam().dealt);
  if (!dealt) return;
  // Scores by two halves and the last product of the first step, the same and one more of a pair, and the
  // last one of a step that is left over.
  EXPECT_EQ(testing::all_of<ir::Gemm>(dealt->consumer).size(), 3u + 4u + 1u);
  for (const auto* gemm : testing::all_of<ir::Gemm>(dealt->consumer))
    EXPECT_EQ(plan_gemm(*gemm, threads_of_group, lowered.target).instruction, GemmInstruction::wgmma);
  for (const auto* declared : testing::all_of<ir::Declare>(dealt->consumer)) {
    if (declared->tile->rank() != 2 || declared->tile->space != ir::Space::fragment) continue;
    EXPECT_LE(declared->tile->extent(1), 128) << declared->tile->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, StepsOf, ::testing::ValuesIn(cases),
                         [](auto& info) { return std::string(info.param.name); });

struct HalvesCase {
  const char* name;
  int of_one_group;  // rings whose slots one warp group lets go
  Scores scores;
  int columns = 256;
};

void PrintTo(const HalvesCase& c, std::ostream* out) { *out << c.name; }

const HalvesCase halves_cases[] = {
    {"scores_by_all_columns", 2, by_all_columns},
    {"scores_by_two_products", 2,
     [](const Step& t, const Tensor& x, const Tensor& list) {
       by_all_columns(t, x, list);
       gemm(t.query, t.k.T(), t.s);
     }},
    {"scores_by_further_columns_of_the_tensor", 2,
     [](const Step& t, const Tensor& x, const Tensor& list) {
       Shared more({64, 64}, bf16);
       copy(x.at(t.j * 64, 256), more);
       by_all_columns(t, x, list);
       gemm(t.query.slice(all, range(0, 64)), more.T(), t.s);
     },
     320},
    {"columns_in_the_middle_of_the_tensor", 2,
     [](const Step& t, const Tensor& x, const Tensor&) {
       copy(x.at(t.j * 64, 64), t.k);
       gemm(t.query, t.k.T(), t.s);
     },
     384},
    {"rows_of_a_list", 3, by_rows_of_a_list},
    {"rows_of_a_tensor_whose_tile_one_group_reads", 3, by_rows_of_a_tensor},
    {"scores_by_some_columns", 0,
     [](const Step& t, const Tensor& x, const Tensor&) {
       copy(x.at(t.j * 64, 0), t.k);
       gemm(t.query.slice(all, range(0, 128)), t.k.slice(all, range(0, 128)).T(), t.s);
     }},
    {"threads_that_read_the_tile", 0,
     [](const Step& t, const Tensor& x, const Tensor& list) {
       by_all_columns(t, x, list);
       parallel(t.s, [&](Index i, Index c) { t.s(i, c) += t.k(c, 0); });
     }},
    {"rows_from_two_places", 0,
     [](const Step& t, const Tensor& x, const Tensor&) {
       copy(x.at(t.j * 64, 0), t.k.slice(range(0, 32)));
       copy(x.at(t.j * 64 + 32, 0), t.k.slice(range(32, 64)));
       gemm(t.query, t.k.T(), t.s);
     }},
};

class TileOf : public ::testing::TestWithParam<HalvesCase> {};

TEST_P(TileOf, ADealtStepIsDividedWhereOnlyItsLastProductsReadOneHalf) {
  const HalvesCase& c = GetParam();
  const testing::Lowered lowered(latents(as_attention, {.scores = c.scores, .columns = c.columns}));
  const auto& roles = lowered.plan.grids[0].roles;
  ASSERT_TRUE(roles && roles->dealt);
  int of_one_group = 0;
  for (const RingPlan& ring : roles->rings) of_one_group += ring.by_one_group;
  EXPECT_EQ(of_one_group, c.of_one_group) << print(lowered.plan);
  // What brings the tiles stands in the producer's program.
  std::set<const ir::StmtNode*> loads;
  ir::for_each_stmt(roles->producer, [&](const ir::Stmt& s) { loads.insert(s.get()); });
  for (const auto& [fill, tile] : roles->fills) {
    EXPECT_TRUE(loads.contains(fill)) << tile->name;
    EXPECT_GE(roles->ring_of(tile.get()), 0) << tile->name;
  }
  const auto found = schedule::verify(*lowered.plan.grids[0].schedule, schedule::thorough);
  EXPECT_FALSE(found) << found->message;
}

INSTANTIATE_TEST_SUITE_P(Table, TileOf, ::testing::ValuesIn(halves_cases),
                         [](auto& info) { return std::string(info.param.name); });

// Of what the groups say to each other, and of slots that one of them lets go.
bool is_of_groups(const std::string& mutation) {
  if (mutation.starts_with("ring s") && !mutation.starts_with("ring s0")) return true;
  if (!mutation.starts_with("consumer")) return false;
  for (const char* words : {"barrier", "group", "proxy", "pairs", "empty", "advance", "wait full"})
    if (mutation.find(words) != std::string::npos) return true;
  return false;
}

// What the schedule can do without: without their places.
std::multiset<std::string> not_needed(const Kernel& kernel) {
  const testing::Lowered lowered(kernel);
  const schedule::Schedule& s = *lowered.plan.grids[0].schedule;
  std::multiset<std::string> result;
  for (const schedule::Mutation& m : schedule::mutations(s))
    if (is_of_groups(m.name) && !schedule::verify(m.schedule, schedule::thorough))
      result.insert(m.name.substr(m.name.find(": ") + 2));
  return result;
}

// Groups meet among themselves in turn, a sender may wait for its receiver, and the next block's queries do
// not come before both groups are done with this one's. A group that is told of a step's weights knows that
// the step's tile has come.
const std::multiset<std::string> harmless = {
    "barrier 1 + group, 128 threads, one number for all groups",
    "barrier 5 + group+1, 256 threads, arrive only, waiting",
    "barrier 5 + group+1, 256 threads, arrive only, waiting",
    "barrier 14, 256 threads, removed",
    "barrier 14, 256 threads, removed",
    "wait full s1_other[n], one slot earlier",
    "wait full s1_other[n], one slot later",
    "wait full s1_other[n], removed",
    "wait full s1_other[n], removed",
};

TEST(DealtSteps, AreNotToBeChanged) { EXPECT_EQ(not_needed(latents(as_attention)), harmless); }

// Fences whose part another one takes (the next test says which part). A list that the producer reads came
// before its rows, and the copy engine does not overtake the threads that read it.
TEST(DealtSteps, WithRowsOfAListAreNotToBeChanged) {
  std::multiset<std::string> expected = harmless;
  const auto add = [&](int times, const std::vector<std::string>& changes) {
    for (int i = 0; i < times; ++i) expected.insert(changes.begin(), changes.end());
  };
  add(4, {"proxy fence, of the other memory", "proxy fence, removed"});
  EXPECT_EQ(not_needed(latents(as_attention, {.scores = by_rows_of_a_tensor})), expected);
  add(2, {"proxy fence, of the other memory", "proxy fence, removed", "wait full s2[n], removed"});
  EXPECT_EQ(not_needed(latents(as_attention, {.scores = by_rows_of_a_list})), expected);
}

// The schedule without one fence, by the name of that change.
std::map<std::string, schedule::Schedule> without_a_fence(const schedule::Schedule& s) {
  std::map<std::string, schedule::Schedule> result;
  for (const schedule::Mutation& m : schedule::mutations(s))
    if (m.name.ends_with("proxy fence, removed")) result.emplace(m.name, m.schedule);
  return result;
}

// One fence on the way from a write to a product is enough, whichever group has it: that of the sender of
// weights or that of their receiver, and of rows that the other group has seen, its fence or the own one. So
// it is with reads of the list: the consumers fence them before they release its slot, the producer before
// the slot is filled.
TEST(DealtSteps, HaveNoFenceThatIsNeverNeeded) {
  const testing::Lowered lowered(latents(as_attention, {.scores = by_rows_of_a_list}));
  const auto accepts = [](const schedule::Schedule& s) { return !schedule::verify(s, schedule::thorough); };
  std::map<std::string, schedule::Schedule> accepted = without_a_fence(*lowered.plan.grids[0].schedule);
  EXPECT_EQ(accepted.size(), 11u);
  std::erase_if(accepted, [&](const auto& own) { return !accepts(own.second); });
  EXPECT_EQ(accepted.size(), 7u);
  for (const auto& [name, without] : accepted) {
    const auto both = without_a_fence(without);
    EXPECT_TRUE(std::any_of(
        both.begin(), both.end(),
        [&](const auto& other) { return accepted.contains(other.first) && !accepts(other.second); }))
        << name << "\n"
        << schedule::print(without);
  }
}

}  // namespace deal_steps_test
}  // namespace tegula::passes
