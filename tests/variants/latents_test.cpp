// Attention to one latent head by many query heads: keys that are values, whole or from records of 8 bits.
#include <functional>

#include "ops/pieces/softmax.hpp"
#include "tests/variants/variants.hpp"

namespace variants::latent_variants {
namespace {

using namespace tegula::lang;
using tegula::ops::OnlineSoftmax;
using tegula::ops::scale_rows;

constexpr int heads = 64, dim = 256, block = 64, group = 128;

std::string text_of(const Kernel& kernel) {
  return tegula::codegen::print_cuda(tegula::Signature(kernel.ir()), tegula::passes::CudaTarget{}).text;
}
int count_of(const std::string& text, const std::string& words) {
  int count = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

using Fill = std::function<void(const Tensor& list, const Index& j, Shared& k)>;
using Softmax = std::function<Fragment(OnlineSoftmax&, Fragment& sum, Fragment& s)>;

Fragment as_shipped(OnlineSoftmax& softmax, Fragment&, Fragment& s) { return softmax.update(s); }

// Two warp groups divide the columns of the sums.
Kernel attention(const std::function<void()>& inputs, const Fill& fill, const Softmax& update) {
  return kernel("latents", [&] {
    Dim B("B"), N("N");
    Tensor Q = input("Q", {B, heads, dim}, bf16), list = input("list", {B, N}, i32);
    inputs();
    Tensor O = output("O", {B, heads, dim}, bf16);
    Expr scale = scalar("scale", f32);
    grid(B, {.threads = 256}, [&](Index b) {
      Shared q({heads, dim}, bf16);
      copy(Q.slice(b).at(0, 0), q);
      Fragment acc({heads, dim}, f32, 0), sum({heads}, f32, 0);
      OnlineSoftmax softmax(heads, scale);
      pipelined(ceildiv(N, block), {.stages = 2}, [&](Index j) {
        Shared k({block, dim}, bf16);
        fill(list.slice(b), j, k);
        Fragment s({heads, block}, f32, 0);
        gemm(q, k.T(), s);
        scale_rows(acc, update(softmax, sum, s));
        gemm(s.to(bf16), k, acc);
      });
      softmax.normalize(acc);
      parallel(acc, [&](Index h, Index d) { O(b, h, d) = acc(h, d) + sum(h); });
    });
  });
}

Fragment added_beside(OnlineSoftmax& softmax, Fragment& sum, Fragment& s) {
  Fragment factor = softmax.update(s);
  Fragment own = reduce_sum(s, 1);
  parallel(sum, [&](Index i) { sum(i) = sum(i) * factor(i); });
  parallel(sum, [&](Index i) { sum(i) += own(i); });
  return factor;
}

Fragment added_in_one_loop(OnlineSoftmax& softmax, Fragment& sum, Fragment& s) {
  Fragment factor = softmax.update(s);
  Fragment own = reduce_sum(s, 1);
  parallel(sum, [&](Index i) { sum(i) = sum(i) * factor(i) + own(i); });
  return factor;
}
Fragment scaled_first(OnlineSoftmax& softmax, Fragment& sum, Fragment& s) {
  parallel(s, [&](Index i, Index j) { s(i, j) = s(i, j) * 0.5f; });
  return added_beside(softmax, sum, s);
}
Fragment masked(OnlineSoftmax& softmax, Fragment&, Fragment& s) {
  parallel(s, [&](Index i, Index j) { s(i, j) = select(s(i, j) < 100, s(i, j), -inf); });
  return softmax.update(s);
}

// Rows of 16-bit latents.
Kernel whole(const Softmax& update) {
  std::optional<Tensor> rows;
  const auto inputs = [&] {
    Dim R("R");
    rows = input("rows", {R, dim}, bf16);
  };
  return attention(
      inputs, [&](const Tensor&, const Index& j, Shared& k) { copy(rows->at(j * block, 0), k); }, update);
}

TEST(LatentsInSeveralWays, HaveStepsThatAreDealtToWarpGroups) {
  const std::vector<Variant> all = {{"as shipped", whole(as_shipped)},
                                    {"a sum beside it", whole(added_beside)},
                                    {"a sum in one loop", whole(added_in_one_loop)},
                                    {"scaled first", whole(scaled_first)},
                                    {"masked", whole(masked)}};
  for (const Variant& own : all) {
    const std::string text = text_of(own.kernel);
    EXPECT_EQ(count_of(text, "tg::give_turn<5, 2>"), 2) << own.name << ": of the first step, and of a pair";
    EXPECT_EQ(count_of(text, "tg::take_turn<5, 2>"), 2) << own.name << ": of a pair, and of what is left";
    EXPECT_EQ(count_of(text, "parts to shared memory"), 0) << own.name << ": no row is divided";
  }
  EXPECT_EQ(count_of(text_of(all[0].kernel), "lanes keep their parts"), 1);
  expect_planned_alike(all);
}

struct Records {
  Tensor bytes, factors;
};
using Element = std::function<Expr(const Records&, const Expr& row, const Index& d)>;

Kernel from_records(const Element& element, bool looked_up) {
  std::optional<Records> records;
  const auto inputs = [&] {
    Dim R("R");
    records = Records{input("bytes", {R, dim}, e4m3), input("factors", {R, dim / group}, f32)};
  };
  return attention(
      inputs,
      [&](const Tensor& list, const Index& j, Shared& k) {
        parallel(k, [&](Index i, Index d) {
          Expr n = j * block + i;
          Expr row = looked_up ? list(n) : n;
          k(i, d) = element(*records, row, d);
        });
      },
      as_shipped);
}

Expr in_one_expression(const Records& x, const Expr& row, const Index& d) {
  return x.bytes(row, d) * x.factors(row, d / group);
}
Expr with_names(const Records& x, const Expr& row, const Index& d) {
  Expr own = d / group;
  Expr factor = x.factors(row, own);
  Expr byte = x.bytes(row, d);
  return factor * byte;
}
Expr only_some_rows(const Records& x, const Expr& row, const Index& d) {
  Expr own = select(row >= 4, row, -1);
  return x.bytes(own, d) * x.factors(own, d / group);
}
Expr without_factors(const Records& x, const Expr& row, const Index& d) { return x.bytes(row, d) * 2; }

TEST(RecordsInSeveralWays, ComeInPieces) {
  std::vector<Variant> all;
  for (const auto& [name, element] : {std::pair<std::string, Element>{"in one expression", in_one_expression},
                                      {"with names", with_names},
                                      {"only some rows", only_some_rows},
                                      {"without factors", without_factors}}) {
    for (const bool looked_up : {false, true}) {
      all.push_back({name + (looked_up ? ", looked up" : ""), from_records(element, looked_up)});
      EXPECT_EQ(count_of(text_of(all.back().kernel), ": read a step ahead"), 1) << all.back().name;
    }
  }
  expect_planned_alike(all);
}

}  // namespace
}  // namespace variants::latent_variants
