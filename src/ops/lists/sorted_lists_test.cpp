// Lists of chosen blocks, made by a grid of their own, beside sets.
#include "ops/lists/sorted_lists.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "tegula/runtime.hpp"

namespace tegula::ops {
namespace sorted_lists_test {

constexpr int batches = 2, heads = 2, rows = 3;

struct ListCase {
  const char* name;
  std::int64_t entries, blocks;
  bool mask, counts;
};

const ListCase cases[] = {{"few", 5, 9, false, false},
                          {"none", 1, 0, false, false},
                          {"repeated", 100, 40, false, true},
                          {"many_words", 700, 3000, false, true},
                          {"two_parts", 90, 40000, false, false},
                          {"mask", 1100, 1100, true, false},
                          {"mask_of_a_word", 32, 32, true, false}};

lang::Kernel list_kernel(const ListCase& c) {
  using namespace lang;
  return kernel(fmt::format("sorted_lists_{}", c.name), [&] {
    Dim width("width");
    lang::Tensor choice = input("choice", {batches, heads, rows, width}, c.mask ? boolean : i32);
    lang::Tensor counts = input("counts", {batches, heads, rows}, i32);
    lang::Tensor out = output("out", {batches, heads, rows, width}, i32),
                 lengths = output("lengths", {batches, heads, rows}, i32);
    Expr blocks = scalar("blocks", i32);
    auto of_row = [&](const Expr& b, const Expr& h, const Expr& x) -> SortedLists::Row {
      return {{choice.slice(b, h, x), counts(b, h, x), c.mask}, blocks};
    };
    SortedLists lists{batches, heads, rows, width, c.blocks, of_row};
    lists.record_grid();
    grid(rows, heads, batches, [&](Index x, Index h, Index b) {
      const SortedLists::List list = lists.list(b, h, x);
      parallel(list.count, [&](Index n) { out(b, h, x, n) = list.blocks(n); });
      lengths(b, h, x) = list.count;
    });
  });
}

class Lists : public ::testing::TestWithParam<std::tuple<ListCase, Target>> {};

TEST_P(Lists, HoldEveryBlockOnceAscending) {
  const auto& [c, target] = GetParam();
  const Shape shape{batches, heads, rows, c.entries};
  const tegula::Tensor choice =
      tegula::Tensor::random_integers(shape, i32, 5, c.mask ? 0 : -2, c.mask ? 2 : c.blocks + 3);
  const tegula::Tensor counts =
      tegula::Tensor::random_integers({batches, heads, rows}, i32, 6, 0, c.entries + 1);
  if (!c.counts) counts.set({0, 0, 0}, static_cast<double>(c.entries));
  const tegula::Tensor out = tegula::Tensor::full(shape, i32, -7),
                       lengths = tegula::Tensor::full({batches, heads, rows}, i32, -7);
  compile(list_kernel(c), target)(c.mask ? choice.to(boolean) : choice, counts, out, lengths, c.blocks);
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t x = 0; x < rows; ++x) {
        std::set<std::int64_t> expected;
        const auto entries = c.mask ? c.entries : static_cast<std::int64_t>(counts.get({b, h, x}));
        for (std::int64_t n = 0; n < entries; ++n) {
          const auto value = static_cast<std::int64_t>(choice.get({b, h, x, n}));
          if (c.mask ? value != 0 : value >= 0 && value < c.blocks) expected.insert(c.mask ? n : value);
        }
        ASSERT_EQ(lengths.get({b, h, x}), static_cast<double>(expected.size()));
        std::int64_t n = 0;
        for (const std::int64_t block : expected)
          ASSERT_EQ(out.get({b, h, x, n++}), static_cast<double>(block));
      }
}

INSTANTIATE_TEST_SUITE_P(Rows, Lists,
                         ::testing::Combine(::testing::ValuesIn(cases),
                                            ::testing::Values(Target::interpreter(), Target::cpu(),
                                                              Target::emulated())),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param).name,
                                              std::get<1>(info.param).name());
                         });

}  // namespace
}  // namespace tegula::ops
