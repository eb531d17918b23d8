// A step that stores rows of several queries: where rows are known to be different, warp groups do not meet
// between the stores, however the rows are named.
#include <functional>

#include "tests/variants/variants.hpp"

namespace variants::logit_variants {
namespace {

using namespace tegula::lang;

constexpr int heads = 64, dim = 128, block = 256, queries = 2;

using Store =
    std::function<void(const Tensor& logits, const Expr& first, int i, const Expr& key, Fragment& sum)>;

Kernel logits_by(const Store& store) {
  return kernel("logits", [&] {
    Dim S("S"), N("N");
    Tensor Q = input("Q", {S, heads, dim}, e4m3), K = input("K", {N, dim}, e4m3),
           rows = input("rows", {S}, i32);
    Tensor logits = output("logits", {S, N}, f32);
    grid(ceildiv(S, queries), {.threads = 256}, [&](Index x) {
      Expr first = x * queries;
      std::vector<Shared> q;
      for (int i = 0; i < queries; ++i) {
        q.emplace_back(std::initializer_list<int>{heads, dim}, e4m3);
        copy(Q.slice(first + i).at(0, 0), q.back());
      }
      pipelined(ceildiv(N, block), {.stages = 3}, [&](Index j) {
        Shared k({block, dim}, e4m3);
        copy(K.at(j * block), k);
        for (int i = 0; i < queries; ++i) {
          Fragment s({block, heads}, f32, 0);
          gemm(k, q[static_cast<std::size_t>(i)].T(), s);
          parallel(s, [&](Index n, Index h) { s(n, h) = max(s(n, h), 0); });
          Fragment sum = reduce_sum(s, 1);
          store(logits, first, i, j * block, sum);
        }
      });
    });
  });
}

int meetings(const Kernel& kernel) {
  const std::string text =
      tegula::codegen::print_cuda(tegula::Signature(kernel.ir()), tegula::passes::CudaTarget{}).text;
  int count = 0;
  for (std::size_t at = text.find("for (int32_t"); at != std::string::npos;
       at = text.find("tg::team_sync<14, 256>", at + 1))
    count += text.compare(at, 4, "tg::") == 0 ? 1 : 0;
  return count;
}

TEST(Logits, WarpGroupsDoNotMeetBetweenRows) {
  const std::map<std::string, Store> ways{
      {"elements",
       [](const Tensor& logits, const Expr& first, int i, const Expr& key, Fragment& sum) {
         parallel(sum, [&](Index n) { logits(first + i, key + n) = sum(n); });
       }},
      {"elements of a row",
       [](const Tensor& logits, const Expr& first, int i, const Expr& key, Fragment& sum) {
         Tensor row = logits.slice(first + i);
         parallel(sum, [&](Index n) { row(key + n) = sum(n); });
       }},
      {"those that are there",
       [](const Tensor& logits, const Expr& first, int i, const Expr& key, Fragment& sum) {
         Expr query = i + first;
         parallel(sum, [&](Index n) {
           when(query < logits.extent(0) && key + n < logits.extent(1),
                [&] { logits(query, key + n) = sum(n); });
         });
       }},
      {"a copy", [](const Tensor& logits, const Expr& first, int i, const Expr& key, Fragment& sum) {
         copy(sum, logits.slice(first + i).at(key));
       }}};
  for (const auto& [name, store] : ways) EXPECT_EQ(meetings(logits_by(store)), 0) << name;
}

// Two queries may have the same row.
TEST(Logits, WarpGroupsMeetWhereRowsMayBeTheSame) {
  EXPECT_GT(
      meetings(logits_by([](const Tensor& logits, const Expr& first, int i, const Expr& key, Fragment& sum) {
        Tensor row = logits.slice((first + i) / 2);
        parallel(sum, [&](Index n) { row(key + n) = sum(n); });
      })),
      0);
}

}  // namespace
}  // namespace variants::logit_variants
