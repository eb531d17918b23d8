// Loops of one step and branches of two parts.
#include "passes/plain_control.hpp"

#include <gtest/gtest.h>

#include "ir/print.hpp"
#include "tegula/lang.hpp"

namespace tegula::passes {
namespace plain_control_test {

using lang::Expr, lang::Index, lang::Tensor;

ir::Body block_of(const std::function<void(Expr n, const Tensor& x, const Tensor& y)>& body) {
  const auto kernel = lang::kernel("control", [&] {
                        const Expr n = lang::scalar("n", i32);
                        const Tensor x = lang::input("x", {64}, f32), y = lang::output("y", {64}, f32);
                        lang::grid(1, [&](Index) { body(n, x, y); });
                      }).ir();
  return kernel->grids[0].body;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t result = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++result;
  return result;
}

void move(const Tensor& x, const Tensor& y, const Expr& at) {
  lang::Fragment tile = lang::load(x.at(at * 8), {8});
  lang::copy(tile, y.at(at * 8));
}

TEST(PlainControl, LoopsOfOneStepAreTheirBodies) {
  const ir::Body body = block_of([](const Expr& n, const Tensor& x, const Tensor& y) {
    lang::serial(lang::range(3, 4), [&](Index i) { move(x, y, i); });
    lang::serial(2, [&](Index i) { move(x, y, i); });
    lang::serial(1, [&](Index i) {
      lang::break_if(n > i);
      move(x, y, i);
    });
  });
  const std::string text = ir::print(without_single_steps(body));
  EXPECT_EQ(count(text, "serial "), 2u) << "of two steps, and one that may be left\n" << text;
  EXPECT_NE(text.find("x[3 * 8"), std::string::npos) << "of step 3\n" << text;
}

TEST(PlainControl, BranchesBecomeTwoWhereTheOtherPartHoldsWhatIsWanted) {
  const ir::Body body = block_of([](const Expr& n, const Tensor& x, const Tensor& y) {
    lang::when(n > 1, [&] { move(x, y, 0); }).otherwise([&] { move(x, y, 1); });
  });
  const auto is_declaration = [](const ir::Stmt& s) { return ir::as<ir::Declare>(s) != nullptr; };
  const std::string two = ir::print(with_one_part(body, is_declaration));
  EXPECT_EQ(count(two, "when "), 2u) << two;
  EXPECT_EQ(count(two, "otherwise"), 0u) << two;
  const ir::Body same = with_one_part(body, [](const ir::Stmt& s) { return ir::as<ir::Gemm>(s) != nullptr; });
  EXPECT_EQ(ir::print(same), ir::print(body));
}

}  // namespace plain_control_test
}  // namespace tegula::passes
