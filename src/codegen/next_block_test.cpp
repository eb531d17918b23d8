// What a block fetches for the next one: which kernels do, and that nothing else changes.
#include <array>

#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace next_block_test {

using namespace lang;
using lang::Tensor;

constexpr int width = 16;  // of all tiles

// Queries meet the keys from a row on, weighed by exponentials.
void meet(const Shared& queries, const Tensor& k, const Expr& key, Fragment& sum) {
  Shared keys({width, width}, f32);
  copy(k.at(key, 0), keys);
  Fragment scores({width, width}, f32, 0);
  gemm(queries, keys.T(), scores);
  parallel(width, width, [&](Index i, Index j) { scores(i, j) = exp2(scores(i, j) * 0.002f); });
  gemm(scores, keys, sum);
}

// A block of queries and the blocks of keys that a list names.
void attend(const Tensor& q, const Tensor& k, const Tensor& out, const Expr& first, const Expr& count,
            const std::function<Expr(const Expr&)>& block) {
  Shared queries({width, width}, f32);
  copy(q.at(first, 0), queries);
  Fragment sum({width, width}, f32, 0);
  pipelined(count, [&](Index t) {
    Expr key = block(t) * width;
    meet(queries, k, key, sum);
  });
  copy(sum, out.at(first, 0));
}

Data lists(const Shape& shape, std::int32_t seed) {
  Data data = Data::empty(shape, i32);
  for (std::int64_t i = 0; i < nelements(data); ++i)
    data.data_as<std::int32_t>()[i] = static_cast<std::int32_t>((seed + 7 * i) % 5);
  return data;
}

const Case fetching[] = {
    {"a list of each block, the last block ragged",
     [](Program& p) {
       Tensor q = p.in(floats({300, width})), k = p.in(floats({70, width}, 2)),
              list = p.in(lists({19, 3}, 1)), out = p.out({300, width}, f32);
       grid(19, [&](Index b) {
         attend(q, k, out, b * width, 3, [&](const Expr& t) -> Expr { return list(b, t); });
       });
     },
     1e-3},
    {"blocks that a tile names, which is brought before the rows and used after them",
     [](Program& p) {
       Tensor q = p.in(floats({64, width})), k = p.in(floats({80, width}, 2)), list = p.in(lists({8}, 1)),
              out = p.out({64, width}, f32);
       grid(4, [&](Index b) {
         Shared queries({width, width}, f32), at({1}, i32);
         copy(q.at(b * width, 0), queries);
         at(0) = b;
         Fragment sum({width, width}, f32, 0);
         pipelined(2, [&](Index) {
           Shared block({1}, i32), keys({width, width}, f32);
           copy(list.at(at(0)), block);
           Expr key = block(0) * width;
           Fragment weights({width, width}, f32);
           parallel(weights, [&](Index i, Index j) { weights(i, j) = exp2(queries(i, j) * 0.002f); });
           copy(k.at(key, 0), keys);
           gemm(weights, keys.T(), sum);
         });
         copy(sum, out.at(b * width, 0));
       });
     },
     1e-3},
    {"lists of lengths, of which some are zero",
     [](Program& p) {
       Tensor q = p.in(floats({256, width})), k = p.in(floats({80, width}, 2)),
              list = p.in(lists({16, 4}, 2)), lengths = p.in(lists({16}, 0)), out = p.out({256, width}, f32);
       grid(16, [&](Index b) {
         attend(q, k, out, b * width, lengths(b), [&](const Expr& t) -> Expr { return list(b, t); });
       });
     },
     1e-3},
    {"entries outside, and a tensor of lists that is too short",
     [](Program& p) {
       Tensor q = p.in(floats({320, width})), k = p.in(floats({40, width}, 2)),
              list = p.in(lists({11, 2}, 3)), out = p.out({320, width}, f32);
       grid(20, [&](Index b) {
         attend(q, k, out, b * width, 2,
                [&](const Expr& t) -> Expr { return list(b, t) * 1000000 - 2000000; });
       });
     },
     1e-3},
    {"blocks that end early",
     [](Program& p) {
       Tensor q = p.in(floats({400, width})), k = p.in(floats({80, width}, 2)), ends = p.in(lists({25}, 4)),
              out = p.out({400, width}, f32);
       grid(25, [&](Index b) {
         Expr end = ends(b);
         exit_if(end == 2);
         attend(q, k, out, b * width, 4, [&](const Expr& t) -> Expr { return min(t, end); });
       });
     },
     1e-3},
    {"packed sequences",
     [](Program& p) {
       Data starts = Data::empty({5}, i32);
       for (int i = 0; i < 5; ++i) starts.data_as<std::int32_t>()[i] = std::array{0, 40, 40, 41, 150}[i];
       Tensor q = p.in(floats({150, width})), k = p.in(floats({150, width}, 2)), start = p.in(starts),
              out = p.out({150, width}, f32);
       grid(7, 4, [&](Index x, Index sequence) {
         Expr begin = start(sequence), end = start(sequence + 1), first = begin + x * width;
         exit_if(first >= end);
         attend(q.slice(range(0, end)), k.slice(range(0, end)), out.slice(range(0, end)), first,
                ceildiv(end - begin, width), [&](const Expr& t) -> Expr { return begin / width + t; });
       });
     },
     1e-3},
    {"a list that the block makes, in chunks",
     [](Program& p) {
       Tensor q = p.in(floats({256, width})), k = p.in(floats({80, width}, 2)),
              list = p.in(lists({16, 6}, 5)), out = p.out({256, width}, f32);
       grid(16, [&](Index b) {
         Shared queries({width, width}, f32);
         copy(q.at(b * width, 0), queries);
         Fragment sum({width, width}, f32, 0);
         serial(2, [&](Index n) {
           Shared chosen({3}, i32);
           Var count = 0;
           serial(3, [&](Index i) {
             Expr entry = list(b, n * 3 + i);
             when(entry > 1, [&] { chosen(count) = entry, count += 1; });
           });
           pipelined(count, [&](Index t) { meet(queries, k, chosen(t) * width, sum); });
         });
         copy(sum, out.at(b * width, 0));
       });
     },
     1e-3},
};

// Loops of which less is fetched, or nothing.
const Case fetching_less[] = {
    {"a loop that a branch may leave",
     [](Program& p) {
       Tensor q = p.in(floats({64, width})), k = p.in(floats({160, width}, 2)), list = p.in(lists({4, 3}, 1)),
              out = p.out({64, width}, f32);
       grid(4, [&](Index b) {
         Shared queries({width, width}, f32);
         copy(q.at(b * width, 0), queries);
         Fragment sum({width, width}, f32, 0);
         Var n = 0;
         pipelined(3, [&](Index t) {
           when(list(b, t) > 0, [&] {
             n += 1;
             break_if(n > 2);
           });
           meet(queries, k, n * width, sum);
         });
         copy(sum, out.at(b * width, 0));
       });
     },
     1e-3},
    {"a list that is copied to a tile",
     [](Program& p) {
       Tensor q = p.in(floats({64, width})), k = p.in(floats({80, width}, 2)), list = p.in(lists({4, 3}, 1)),
              out = p.out({64, width}, f32);
       grid(4, [&](Index b) {
         Shared own({1, 3}, i32);
         copy(list.at(b, 0), own);
         attend(q, k, out, b * width, 3, [&](const Expr& t) -> Expr { return own(0, t); });
       });
     },
     1e-3},
};

class NextBlocks : public OnEverySet {};
TEGULA_ON_EVERY_SET(NextBlocks);
TEST_P(NextBlocks, ChangeNoResult) {
  expect_agreement(fetching);
  expect_agreement(fetching_less);
}

std::string text_of(const Case& one) {
  return print_cpu(Signature(Comparison(std::span(&one, 1)).kernel().ir())).text;
}

// Once for each place that is fetched.
int fetched_places(const Case& one) {
  const std::string text = text_of(one);
  int count = 0;
  while (text.find(fmt::format("  ahead[{}] = rows_ahead(", count)) != std::string::npos) ++count;
  EXPECT_EQ(text.find(".fetch(") != std::string::npos, count > 0) << one.name;
  return count;
}

TEST(NextBlock, QueriesAndFirstKeysAreFetched) {
  for (const Case& one : fetching) EXPECT_EQ(fetched_places(one), 2) << one.name;
}

const Case fetching_nothing[] = {
    {"a list that the grid writes",
     [](Program& p) {
       Tensor q = p.in(floats({64, width})), k = p.in(floats({80, width}, 2)),
              list = p.inout(lists({4, 2}, 1)), out = p.out({64, width}, f32);
       grid(4, [&](Index b) {
         list(b, 0) = 1;
         attend(q, k, out, b * width, 2, [&](const Expr& t) -> Expr { return list(b, t); });
       });
     }},
    {"keys that a sum chooses",
     [](Program& p) {
       Tensor q = p.in(floats({64, width})), k = p.in(floats({80, width}, 2)), out = p.out({64, width}, f32);
       grid(4, [&](Index b) {
         Expr sum = reduce_sum(load(k.slice(b), {width})).scalar();
         attend(q, k, out, b * width, 2, [&](const Expr& t) -> Expr { return t + select(sum > 0.0f, 1, 0); });
       });
     }},
    {"no rows that take long",
     [](Program& p) {
       Tensor a = p.in(floats({64, width})), out = p.out({64, width}, f32);
       grid(4, [&](Index b) {
         Fragment sum({width, width}, f32, 0);
         pipelined(4, [&](Index t) {
           Shared left({width, width}, f32), right({width, width}, f32);
           copy(a.at(b * width, 0), left), copy(a.at(t * width, 0), right);
           gemm(left, right, sum);
         });
         copy(sum, out.at(b * width, 0));
       });
     }},
};

TEST(NextBlock, NothingIsFetchedWhereTheBeginningIsMoreThanAddresses) {
  for (const Case& one : fetching_nothing) EXPECT_EQ(fetched_places(one), 0) << one.name;
}

}  // namespace next_block_test
}  // namespace tegula::codegen
