// What statements need, and what they must not need.
#include "passes/slice.hpp"

#include <gtest/gtest.h>

#include "ir/print.hpp"
#include "tegula/lang.hpp"

namespace tegula::passes {
namespace slice_test {

using namespace lang;
using lang::Tensor;

// Rows that a list names come to a tile, and their sums go to `out`; `listed`: the list is one that the grid
// has written.
std::shared_ptr<const ir::Kernel> sums_of_rows(bool listed) {
  return kernel("sums_of_rows",
                [&] {
                  Tensor x = input("x", {64, 16}, f32), list = input("list", {8}, i32),
                         out = output("out", {16}, f32), own = output("own", {8}, i32);
                  grid(1, [&](Index) {
                    Fragment sum({16}, f32, 0);
                    if (listed) {
                      Fragment numbers = load(list.at(0), {8});
                      copy(numbers, own.at(0));
                    }
                    serial(8, [&](Index i) {
                      Shared row({16}, f32);
                      Expr number = listed ? own(i) : list(i);
                      copy(x.slice(number).at(0), row);
                      parallel(sum, [&](Index j) { sum(j) += row(j); });
                    });
                    copy(sum, out.at(0));
                  });
                })
      .ir();
}

Planned<ir::Body> of_copies_to_shared_tiles(const ir::Kernel& kernel) {
  SliceRules rules;
  rules.wanted = [](const ir::Stmt& s) {
    const auto* copy = ir::as<ir::Copy>(s);
    return copy && copy->to.buffer->space == ir::Space::shared;
  };
  rules.given = [](const ir::Buffer& b) { return b.name != "own"; };
  rules.refused = [](const ir::Stmt&) { return false; };
  rules.left_out = [](const ir::Stmt&) { return false; };
  return slice(kernel.grids[0].body, rules);
}

TEST(Slice, KeepsWhatComputesOperandsAndTheControlAround) {
  const auto kept = of_copies_to_shared_tiles(*sums_of_rows(false));
  ASSERT_TRUE(kept) << kept.reason().why;
  const std::string text = ir::print(*kept);
  for (const char* needed : {"serial ", "list[", "shared ", "copy(x["})
    EXPECT_NE(text.find(needed), std::string::npos) << needed << "\n" << text;
  for (const char* other : {"fragment ", "out"}) EXPECT_EQ(text.find(other), std::string::npos) << text;
}

TEST(Slice, IsRefusedWhereItNeedsWhatTheGridWrites) {
  const auto kept = of_copies_to_shared_tiles(*sums_of_rows(true));
  ASSERT_FALSE(kept);
  EXPECT_NE(kept.reason().why.find("`own`, which the grid writes,"), std::string::npos) << kept.reason().why;
}

}  // namespace slice_test
}  // namespace tegula::passes
