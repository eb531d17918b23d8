// Every mutation of the targets' schedules is rejected, or named here with the reason why it is harmless.
#include "schedule/testing/mutations.hpp"

#include <gtest/gtest.h>

#include "schedule/examples/examples.hpp"
#include "schedule/verify.hpp"

namespace tegula::schedule {
using namespace examples;

namespace {

struct Harmless {
  std::string mutation;
  const char* reason;
};

struct Case {
  const char* name;
  Schedule (*make)();
  std::vector<Harmless> harmless;
};

// Fences that the texts carry without need: a gemm is printed with its own fence, which costs nothing.
constexpr const char* fenced_before =
    "no register of this gemm is touched between the fence of the gemm before and this one";

Harmless second_fence(const char* mutation) { return {mutation, fenced_before}; }

std::vector<Case> cases() {
  const Harmless steady = second_fence("consumer 21: gemm fence for P V, removed");
  return {
      {"gemm", [] { return gemm({1}); }, {}},
      {"gemm_cluster", [] { return gemm({2}); }, {}},
      {"forward_128", [] { return attention_forward(full_128()); }, {steady}},
      {"forward_128_causal",
       [] { return attention_forward(causal_128()); },
       {steady, second_fence("consumer 41: gemm fence for P V, removed")}},
      {"forward_64_ping_pong",
       [] { return attention_forward(full_64()); },
       {second_fence("consumer 24: gemm fence for P V, removed"),
        {"consumer 2: barrier 1 + group+1, 256 threads, arrive only, one number for all groups",
         "only the last group executes it, for group 0: the number is the same"}}},
      {"block_sparse_128_rows", [] { return block_sparse_forward(sparse_128_rows()); }, {steady}},
      {"block_sparse_64_rows", [] { return block_sparse_forward(sparse_64_rows()); }, {steady}},
      {"looked_up", [] { return looked_up(Numbers::by_engine); }, {}},
      {"looked_up_by_threads",
       [] { return looked_up(Numbers::by_engine_or_threads); },
       {{"producer 9: proxy fence, of the other memory",
         "the consumers fence what they have seen before they release it"},
        {"producer 9: proxy fence, removed", "as above"}}},
      {"looked_up_by_rows",
       [] { return looked_up(Numbers::by_rows); },
       {{"prologue 1: fence initialisation by one thread, removed",
         "there is no copy engine, and no other CTA"}}},
  };
}

class Mutations : public testing::TestWithParam<Case> {};

TEST_P(Mutations, AreRejected) {
  const Case& c = GetParam();  // the reasons are for the reader
  std::vector<std::string> expected, accepted;
  for (const Harmless& h : c.harmless) expected.push_back(h.mutation);
  for (const Mutation& m : mutations(c.make()))
    if (!verify(m.schedule)) accepted.push_back(m.name);
  std::sort(expected.begin(), expected.end());
  std::sort(accepted.begin(), accepted.end());
  EXPECT_EQ(accepted, expected) << print(c.make());
}

INSTANTIATE_TEST_SUITE_P(Targets, Mutations, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tegula::schedule
