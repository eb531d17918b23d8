// The lightning indexer: logits(t, n) = scale(n) · Σ over heads of relu(q(t, h) · k(n)) · weight(t, h), in
// e4m3. Keys are the rows of the product, so that a thread adds up the heads that it has itself. For ranges
// of keys of every token, or at decode over a cache in pages.
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct IndexerTile {
  int heads = 64, dim = 128;
  int tokens = 2, block = 128;  // of a block of the grid, keys of a step
  int together = 1;             // tokens whose heads are columns of one product
  int stages = 3, threads = 256;
};

std::vector<Shared> queries_of(const IndexerTile& t) {
  std::vector<Shared> q;
  for (int i = 0; i < t.tokens; i += t.together)
    q.emplace_back(std::initializer_list<int>{t.together * t.heads, t.dim}, e4m3);
  return q;
}

template <class OfToken>
void load_queries(std::vector<Shared>& q, const IndexerTile& t, OfToken of_token) {
  for (int i = 0; i < t.tokens; ++i) {
    const int row = i % t.together * t.heads;
    copy(of_token(i).at(0, 0), q[i / t.together].slice(range(row, row + t.heads), all));
  }
}

// The sums over heads of the tokens of a product, [keys, tokens]; weight(token, h) is that of a head.
template <class Weight>
Fragment weighted_sums(const Shared& k, const Shared& q, const IndexerTile& t, Weight weight) {
  Fragment s({t.block, t.together * t.heads}, f32, 0);
  gemm(k, q.T(), s);
  Fragment of_tokens = s.reshape({t.block, t.together, t.heads});
  parallel(of_tokens, [&](Index n, Index token, Index h) {
    of_tokens(n, token, h) = max(of_tokens(n, token, h), 0) * weight(token, h);
  });
  return reduce_sum(of_tokens, 2);
}

// A grid that writes −∞ where a token has no key.
void leave_out(const Dim& S, const Dim& N, const Tensor& begins, const Tensor& ends, Tensor& logits) {
  constexpr int piece = 4096;
  grid(ceildiv(N, piece), S, {.threads = 256}, [&](Index x, Index token) {
    Expr begin = begins(token), end = ends(token);
    parallel(piece, [&](Index i) {
      Expr n = x * piece + i;
      when(n < N && (n < begin || n >= end), [&] { logits(token, n) = -inf; });
    });
  });
}

// Keys begins(t) … ends(t) of every token; what is outside is −∞.
Kernel indexer_of_ranges(const IndexerTile& t) {
  return kernel("lightning_indexer", [&] {
    Dim S("S"), N("N");
    Tensor Q = input("Q", {S, t.heads, t.dim}, e4m3), K = input("K", {N, t.dim}, e4m3);
    Tensor scales = input("scales", {N}, f32), weights = input("weights", {S, t.heads}, f32);
    Tensor begins = input("begins", {S}, i32), ends = input("ends", {S}, i32);
    Tensor logits = output("logits", {S, N}, f32);
    const int rows = t.tokens * t.heads;
    grid(ceildiv(S, t.tokens), {.threads = t.threads}, [&](Index x) {
      Expr t0 = x * t.tokens;
      std::vector<Shared> q = queries_of(t);
      load_queries(q, t, [&](int i) { return Q.slice(t0 + i); });
      Shared w({rows}, f32), from({t.tokens}, i32), to({t.tokens}, i32);
      copy(weights.reshape({S * t.heads}).at(x * rows), w);
      copy(begins.at(t0), from);
      copy(ends.at(t0), to);
      Var first = 0x7fffffff, last = 0;
      for (int i = 0; i < t.tokens; ++i) {
        Expr begin = begins(t0 + i), end = min(N, ends(t0 + i));
        when(t0 + i < S && begin < end, [&] {
          first = min(first, max(begin, 0));
          last = max(last, end);
        });
      }
      pipelined(range(first / t.block, ceildiv(last, t.block)), {.stages = t.stages}, [&](Index j) {
        Shared k({t.block, t.dim}, e4m3), scale({t.block}, f32);
        copy(K.at(j * t.block), k);
        copy(scales.at(j * t.block), scale);
        for (int i = 0; i < t.tokens; i += t.together) {
          Fragment sum = weighted_sums(k, q[i / t.together], t, [&](const Index& token, const Index& h) {
            return w((i + token) * t.heads + h);
          });
          parallel(sum, [&](Index n, Index token) {
            Expr at = j * t.block + n, own = i + token;
            when(at >= from(own) && at < to(own), [&] { logits(t0 + own, at) = sum(n, token) * scale(n); });
          });
        }
      });
    });
    leave_out(S, N, begins, ends, logits);
  });
}

struct PagedTile : IndexerTile {
  int page = 64;
};

// The queries of a request are its last tokens; each sees the keys up to its own position, and columns after
// are −∞.
Kernel indexer_of_pages(const PagedTile& t) {
  return kernel("paged_indexer", [&] {
    Dim B("B"), P("pages"), W("table_width"), N("N");
    Tensor Q = input("Q", {B, t.tokens, t.heads, t.dim}, e4m3), K = input("K", {P, t.page, t.dim}, e4m3);
    Tensor scales = input("scales", {P, t.page}, f32),
           weights = input("weights", {B, t.tokens, t.heads}, f32);
    Tensor lengths = input("lengths", {B}, i32), table = input("table", {B, W}, i32);
    Tensor logits = output("logits", {B, t.tokens, N}, f32);
    Expr splits = scalar("splits", i32);
    const int pages = t.block / t.page;
    grid(splits, B, {.threads = t.threads}, [&](Index split, Index b) {
      Expr length = min(lengths(b), N), steps = ceildiv(N, t.block), each = ceildiv(steps, splits);
      Expr begin = split * each, end = min(steps, begin + each), seen = min(end, ceildiv(length, t.block));
      std::vector<Shared> q = queries_of(t);
      load_queries(q, t, [&](int i) { return Q.slice(b, i); });
      Shared w({t.tokens, t.heads}, f32);
      copy(weights.slice(b).at(0, 0), w);
      pipelined(range(begin, seen), {.stages = t.stages}, [&](Index j) {
        Shared k({t.block, t.dim}, e4m3), scale({t.block}, f32);
        for (int i = 0; i < pages; ++i)
          copy(K.slice(table(b, j * pages + i)).at(0, 0), k.slice(range(i * t.page, (i + 1) * t.page), all));
        parallel(scale, [&](Index n) { scale(n) = scales(table(b, j * pages + n / t.page), n % t.page); });
        for (int i = 0; i < t.tokens; i += t.together) {
          Fragment sum = weighted_sums(k, q[i / t.together], t,
                                       [&](const Index& token, const Index& h) { return w(i + token, h); });
          parallel(sum, [&](Index n, Index token) {
            Expr at = j * t.block + n, own = i + token, is_seen = at < length - t.tokens + 1 + own;
            when(at < N, [&] { logits(b, own, at) = select(is_seen, sum(n, token) * scale(n), -inf); });
          });
        }
      });
      for (int i = 0; i < t.tokens; ++i) {
        Expr first = max(seen, begin) * t.block;
        parallel(max(min(N, end * t.block) - first, 0), [&](Index n) { logits(b, i, first + n) = -inf; });
      }
    });
  });
}

// q, weight: rows of heads of one token.
double logit(const Numbers& Q, int token, const Numbers& K, int key, const Numbers& weights) {
  return sum_of(Q.shape[1], [&](int h) {
    const double dot = sum_of(Q.shape[2], [&](int d) { return Q(token, h, d) * K(key, d); });
    return std::max(dot, 0.0) * weights(token, h);
  });
}

Prepared ranges_call(const IndexerTile& t) {
  const int S = 7, N = 300;
  const Data q = normal({S, t.heads, t.dim}, e4m3, 1), k = normal({N, t.dim}, e4m3, 2);
  const Data scales = uniform({N}, f32, 3, .5, 1.5), weights = normal({S, t.heads}, f32, 4);
  const std::vector<int> begins{0, 0, 10, 100, 130, 200, 5}, ends{300, 5, 140, 100, 300, 290, 6};
  const Numbers Q(q), K(k), F(scales), W(weights);
  Numbers logits({S, N}, -INFINITY);
  each(S, [&](int i) {
    for (int n = begins[i]; n < ends[i]; ++n) logits(i, n) = logit(Q, i, K, n, W) * F(n);
  });
  return {indexer_of_ranges(t),
          {q, k, scales, weights, Data::from(begins), Data::from(ends), Wanted{logits, f32, 1e-5}}};
}

Prepared pages_call(int together) {
  PagedTile t{{.heads = 32, .dim = 64, .together = together}};
  const std::vector<int> lengths{290, 70, 1}, table{3, 1, 8, 0, 5, 2, 4, -1, -1, -1, 7, -1, -1, -1, -1};
  const int B = 3, P = 9, N = 300;
  const Data q = normal({B * t.tokens, t.heads, t.dim}, e4m3, 1), k = normal({P * t.page, t.dim}, e4m3, 2);
  const Data scales = uniform({P * t.page}, f32, 3, .5, 1.5),
             weights = normal({B * t.tokens, t.heads}, f32, 4);
  const Numbers Q(q), K(k), F(scales), W(weights);
  Numbers logits({B, t.tokens, N}, -INFINITY);
  each(B, t.tokens, [&](int b, int i) {
    for (int n = 0; n < lengths[b] - t.tokens + 1 + i; ++n) {
      const int row = table[b * 5 + n / t.page] * t.page + n % t.page;
      logits(b, i, n) = logit(Q, b * t.tokens + i, K, row, W) * F(row);
    }
  });
  return {indexer_of_pages(t),
          {q.reshape({B, t.tokens, t.heads, t.dim}), k.reshape({P, t.page, t.dim}),
           scales.reshape({P, t.page}), weights.reshape({B, t.tokens, t.heads}), Data::from(lengths),
           Data::from(table, {B, 5}), Wanted{logits, f32, 1e-5}, 2}};
}

}  // namespace

Program lightning_indexer() {
  return {
      "decode",
      "lightning_indexer",
      "weighted sums over heads of products of e4m3, for a range of keys of every token",
      {{"", [] { return ranges_call({.heads = 32, .dim = 64, .tokens = 3}); }},
       {"in a product", [] { return ranges_call({.heads = 32, .dim = 64, .tokens = 4, .together = 2}); }}},
      {{"2 tokens, 128 keys", [] { return indexer_of_ranges({}); }},
       {"2 tokens, 256 keys", [] { return indexer_of_ranges({.block = 256}); }},
       {"2 tokens in a product, 256 keys", [] { return indexer_of_ranges({.block = 256, .together = 2}); }},
       {"4 tokens, 256 keys, two stages",
        [] { return indexer_of_ranges({.tokens = 4, .block = 256, .stages = 2}); }},
       {"2 tokens, 128 keys, the compiler's threads", [] { return indexer_of_ranges({.threads = 0}); }}}};
}

Program paged_indexer() {
  return {"decode",
          "paged_indexer",
          "the same for the last tokens of requests over a cache in pages",
          {{"", [] { return pages_call(1); }}, {"in a product", [] { return pages_call(2); }}},
          {{"2 tokens, two pages of 64", [] { return indexer_of_pages({}); }},
           {"2 tokens in a product, two pages of 64", [] { return indexer_of_pages({{.together = 2}}); }},
           {"2 tokens in a product, four pages of 64",
            [] { return indexer_of_pages({{.block = 256, .together = 2}}); }}}};
}

}  // namespace programs
