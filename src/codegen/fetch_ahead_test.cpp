// What products bring into the cache: which fetch what, and that nothing else changes.
#include <array>
#include <regex>

#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace fetch_ahead_test {

using namespace lang;
using lang::Tensor;

constexpr int side = 16;  // of all tiles

struct Problem {
  Tensor a, b, left, right, list;

  explicit Problem(Program& p)
      : a(p.in(floats({70, side}))),
        b(p.in(floats({70, side}, 2))),
        left(p.out({side, side}, f32)),
        right(p.out({side, side}, f32)),
        list(p.inout(codegen::list({4, 0, 2, 1, 3}))) {}
};

// A loop of one block; `step` may add to two sums, which are the results.
void loop(Program& p, const std::function<void(Problem&, const Expr& t, Fragment&, Fragment&)>& step) {
  Problem x(p);
  grid(1, [&](Index) {
    Fragment first({side, side}, f32, 0), second({side, side}, f32, 0);
    pipelined(5, [&](Index t) { step(x, t, first, second); });
    copy(first, x.left), copy(second, x.right);
  });
}

// Operands of `rows` rows by 80 KB.
void large(Program& p, int rows) {
  constexpr int depth = 1280, steps = 3;
  Tensor a = p.in(floats({rows, steps * depth})), b = p.in(floats({steps * depth, side}, 2)),
         out = p.out({rows, side}, f32);
  grid(1, [&](Index) {
    Fragment sum({rows, side}, f32, 0);
    pipelined(steps, [&](Index t) {
      Shared left({rows, depth}, f32), right({depth, side}, f32);
      copy(b.at(t * depth, 0), right), copy(a.at(0, t * depth), left);
      gemm(left, right, sum);
    });
    copy(sum, out);
  });
}

struct Fetching {
  Case program;
  std::vector<std::string> of_products;  // in their order: the tensors, with the result after the last step
};

const Fetching table[] = {
    {{"both operands at the beginning",
      [](Program& p) {
        loop(p, [](Problem& x, const Expr& t, Fragment& first, Fragment& second) {
          Shared a({side, side}, f32), b({side, side}, f32);
          copy(x.a.at(t * side, 0), a), copy(x.b.at(t * side, 0), b);
          gemm(a, b, first), gemm(b, a, second);
        });
      }},
     {"b right", "a left"}},
    {{"one operand behind the first product",
      [](Program& p) {
        loop(p, [](Problem& x, const Expr& t, Fragment& first, Fragment& second) {
          Shared a({side, side}, f32), b({side, side}, f32);
          copy(x.a.at(t * side, 0), a);
          gemm(a, a, first);
          copy(x.b.at(t * side, 0), b);
          gemm(a, b, second);
        });
      }},
     {"b", "a left"}},
    {{"more operands than products",
      [](Program& p) {
        loop(p, [](Problem& x, const Expr& t, Fragment& first, Fragment&) {
          Shared a({side, side}, f32), b({side, side}, f32);
          copy(x.a.at(t * side, 0), a), copy(x.b.at(t * side, 0), b);
          gemm(a, b, first);
        });
      }},
     {"a left"}},
    {{"more operands behind a product than have time",
      [](Program& p) {
        loop(p, [](Problem& x, const Expr& t, Fragment& first, Fragment& second) {
          Shared a({side, side}, f32), b({side, side}, f32), c({side, side}, f32);
          copy(x.a.at(t * side, 0), a);
          gemm(a, a, first);
          copy(x.b.at(t * side, 0), b), copy(x.a.at(t * 7, 0), c);
          gemm(b, c, second), gemm(a, c, second);
        });
      }},
     {"b", "a right", "a left"}},
    {{"rows that a list names",
      [](Program& p) {
        loop(p, [](Problem& x, const Expr& t, Fragment& first, Fragment&) {
          Shared a({side, side}, f32);
          copy(x.a.at(x.list(t) * side, 0), a);
          gemm(a, a, first);
        });
      }},
     {"a left"}},
    {{"a large operand of a product with many rows", [](Program& p) { large(p, 64); }, 1e-3}, {"b left"}},
    {{"and of one with fewer", [](Program& p) { large(p, 63); }, 1e-3}, {""}},
    {{"rows that a list names, which the loop writes",
      [](Program& p) {
        loop(p, [](Problem& x, const Expr& t, Fragment& first, Fragment&) {
          Shared a({side, side}, f32);
          x.list(4 - t) = 1;
          copy(x.a.at(x.list(t) * side, 0), a);
          gemm(a, a, first);
        });
      }},
     {""}},
};

// The tensors that the products fetch, in the order of the text.
std::vector<std::string> fetched(const Case& program) {
  const std::string text = print_cpu(Signature(Comparison(std::span(&program, 1)).kernel().ir())).text;
  std::vector<std::string> result;
  static const std::regex product("gemm_panel<.*"), rows("rows_ahead\\(c0_x(\\d)");
  static const std::array names{"a", "b", "left", "right", "list"};
  for (std::sregex_iterator line(text.begin(), text.end(), product), end; line != end; ++line) {
    const std::string call = line->str();
    std::string tensors;
    for (std::sregex_iterator fetch(call.begin(), call.end(), rows); fetch != end; ++fetch)
      tensors += std::string(tensors.empty() ? "" : " ") + names.at(std::stoul((*fetch)[1].str()));
    result.push_back(tensors);
  }
  return result;
}

TEST(FetchAhead, EveryProductFetchesForOneCopy) {
  for (const Fetching& one : table) EXPECT_EQ(fetched(one.program), one.of_products) << one.program.name;
}

class FetchingProducts : public OnEverySet {};
TEGULA_ON_EVERY_SET(FetchingProducts);
TEST_P(FetchingProducts, ChangeNoResult) {
  for (const Fetching& one : table) expect_agreement(std::span(&one.program, 1));
}

}  // namespace fetch_ahead_test
}  // namespace tegula::codegen
