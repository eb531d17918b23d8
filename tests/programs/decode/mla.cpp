// Decode and sparse prefill with one latent head (MLA): a row of the cache is the latent, which is also the
// value, and the rotary part. The cache is in pages, in bf16 or with its latent in e4m3 and a scale for
// every 128 features, or its rows are chosen by lists.
#include "tests/programs/decode/mla.hpp"

#include "tests/programs/list.hpp"

namespace programs {
namespace {

constexpr int scale_group = 128;  // features with one scale

Kernel mla_decode_of(const MlaTile& t) {
  return kernel("mla_decode", [&] {
    require(t.page % t.block_k == 0, "a block of keys does not cross a page");
    Dim B("B"), P("pages"), W("table_width");
    const int width = t.latent + t.rope;
    Tensor Q = input("Q", {B, t.heads, width}, bf16), cache = input("cache", {P, t.page, width}, bf16);
    Tensor table = input("table", {B, W}, i32), lengths = input("lengths", {B}, i32);
    Tensor O = output("O", {B, t.heads, t.latent}, bf16), LSE = output("LSE", {B, t.heads}, f32);
    Expr scale = scalar("scale", f32);  // times log2(e)
    const bool whole = t.splits == 1;
    Tensor split_out = whole ? O : workspace("part", {B, t.heads, t.splits, t.latent}, f32);
    Tensor split_lse = whole ? LSE : workspace("part_lse", {B, t.heads, t.splits}, f32);
    grid(t.heads / t.block_h, t.splits, B, {.threads = t.threads}, [&](Index x, Index split, Index b) {
      Expr length = lengths(b), blocks = ceildiv(length, t.block_k), each = ceildiv(blocks, t.splits);
      Expr h0 = x * t.block_h;
      Latents own(t, Q.slice(b), h0, scale);
      const Range steps_of_split = range(split * each, min(blocks, (split + 1) * each));
      pipelined(steps_of_split, {.stages = t.stages}, [&](Index j) {
        Expr first = j * t.block_k, row = first % t.page, page = table(b, first / t.page);
        Expr there = t.clip ? Expr(min(t.block_k, length - first)) : Expr(Operand(t.block_k));
        Tensor rows = cache.slice(page, range(row, row + there));
        Shared latent({t.block_k, t.latent}, bf16), rope({t.block_k, t.rope}, bf16);
        copy(rows.at(0, 0), latent);
        copy(rows.at(0, t.latent), rope);
        own.attend(latent, rope, [&](Fragment& s) {
          when(first + t.block_k > length, [&] { mask_columns(s, length - first); });
        });
      });
      const Range heads = range(h0, h0 + t.block_h);
      own.store(whole ? O.slice(b, heads) : split_out.slice(b, heads, split));
      copy(own.softmax.lse(), (whole ? LSE.slice(b) : split_lse.slice(b, all, split)).at(h0));
    });
    if (whole) return;
    grid(t.heads, B, [&](Index h, Index b) {
      LSE(b, h) =
          merge_splits(split_out.slice(b, h), split_lse.slice(b, h), t.splits, t.latent, O.slice(b, h));
    });
  });
}

// The latent in e4m3 with its scales becomes bf16 on its way into shared memory.
Kernel mla_decode_fp8_of(const MlaTile& t) {
  return kernel("mla_decode_fp8", [&] {
    Dim B("B"), P("pages"), W("table_width");
    Tensor Q = input("Q", {B, t.heads, t.latent + t.rope}, bf16);
    Tensor latents = input("latents", {P, t.page, t.latent}, e4m3);
    Tensor scales = input("scales", {P, t.page, t.latent / scale_group}, f32);
    Tensor ropes = input("ropes", {P, t.page, t.rope}, bf16), table = input("table", {B, W}, i32);
    Tensor lengths = input("lengths", {B}, i32), O = output("O", {B, t.heads, t.latent}, bf16);
    Expr scale = scalar("scale", f32);  // times log2(e)
    grid(t.heads / t.block_h, B, {.threads = t.threads}, [&](Index x, Index b) {
      Expr length = lengths(b), h0 = x * t.block_h;
      Latents own(t, Q.slice(b), h0, scale);
      pipelined(ceildiv(length, t.block_k), {.stages = t.stages}, [&](Index j) {
        Expr first = j * t.block_k, page = table(b, first / t.page), row = first % t.page;
        const Range rows = range(row, row + t.block_k);
        Tensor from = latents.slice(page, rows), factor = scales.slice(page, rows);
        Shared latent({t.block_k, t.latent}, bf16), rope({t.block_k, t.rope}, bf16);
        parallel(latent, [&](Index i, Index d) { latent(i, d) = from(i, d) * factor(i, d / scale_group); });
        copy(ropes.slice(page).at(row), rope);
        own.attend(latent, rope, [&](Fragment& s) {
          when(first + t.block_k > length, [&] { mask_columns(s, length - first); });
        });
      });
      own.store(O.slice(b, range(h0, h0 + t.block_h)));
    });
  });
}

// Every query token has a list of rows of such a cache, −1 for none.
Kernel mla_sparse_decode_fp8_of(const MlaTile& t) {
  return kernel("mla_sparse_decode_fp8", [&] {
    Dim T("tokens"), R("rows"), N("list_length");
    Tensor Q = input("Q", {T, t.heads, t.latent + t.rope}, bf16),
           latents = input("latents", {R, t.latent}, e4m3);
    Tensor scales = input("scales", {R, t.latent / scale_group}, f32), ropes = input("ropes", {R, t.rope}, bf16);
    Tensor chosen = input("chosen", {T, N}, i32), O = output("O", {T, t.heads, t.latent}, bf16);
    Tensor LSE = output("LSE", {T, t.heads}, f32);
    Expr scale = scalar("scale", f32), splits = scalar("splits", i32);
    Tensor split_out = workspace("part", {T, t.heads, splits, t.latent}, f32);
    Tensor split_lse = workspace("part_lse", {T, t.heads, splits}, f32);
    grid(t.heads / t.block_h, splits, T, {.threads = t.threads}, [&](Index x, Index split, Index token) {
      Expr h0 = x * t.block_h, steps = ceildiv(N, t.block_k), each = ceildiv(steps, splits);
      Latents own(t, Q.slice(token), h0, scale);
      const Range steps_of_split = range(split * each, min(steps, (split + 1) * each));
      pipelined(steps_of_split, {.stages = t.stages}, [&](Index j) {
        auto row = [&](const Index& i) -> Expr {
          Expr n = j * t.block_k + i;
          return select(n < N, chosen(token, n), -1);
        };
        Shared latent({t.block_k, t.latent}, bf16), rope({t.block_k, t.rope}, bf16),
            seen({t.block_k}, boolean);
        parallel(latent, [&](Index i, Index d) {
          Expr r = row(i);
          latent(i, d) = latents(r, d) * scales(r, d / scale_group);
        });
        gather(ropes, row, rope);
        parallel(seen, [&](Index i) {
          Expr r = row(i);
          seen(i) = r >= 0 && r < R;
        });
        own.attend(latent, rope, [&](Fragment& s) {
          parallel(s, [&](Index i, Index c) { s(i, c) = select(seen(c), s(i, c), -inf); });
        });
      });
      own.store(split_out.slice(token, range(h0, h0 + t.block_h), split));
      copy(own.softmax.lse(), split_lse.slice(token, all, split).at(h0));
    });
    grid(t.heads, T, [&](Index h, Index token) {
      LSE(token, h) = merge_splits(split_out.slice(token, h), split_lse.slice(token, h), splits, t.latent,
                                   O.slice(token, h));
    });
  });
}

// Every query token has a list of tokens, of which those up to its own position count. Latents and rotary
// parts are two views of one tensor, so that rows of each are looked up whole; the numbers of rows are read
// from the list, or from a tile of it that the consumers read as well.
struct SparseTile : MlaTile {
  int top = 2048;
  bool rows_in_shared = false;
};
Kernel mla_sparse_prefill_of(const SparseTile& t) {
  return kernel("mla_sparse_prefill", [&] {
    Dim B("B"), Sq("Sq"), Sk("Sk");
    Tensor Q = input("Q", {B, Sq, t.heads, t.latent + t.rope}, bf16);
    Tensor latents = input("latents", {B, Sk, t.latent}, bf16), ropes = input("ropes", {B, Sk, t.rope}, bf16);
    Tensor tokens = input("tokens", {B, Sq, t.top}, i32), O = output("O", {B, Sq, t.heads, t.latent}, bf16);
    Tensor LSE = output("LSE", {B, Sq, t.heads}, f32);
    Expr scale = scalar("scale", f32);  // times log2(e)
    grid(t.heads / t.block_h, Sq, B, {.threads = t.threads}, [&](Index x, Index query, Index b) {
      Expr h0 = x * t.block_h, newest = query + Sk - Sq;
      Latents own(t, Q.slice(b, query), h0, scale);
      pipelined(t.top / t.block_k, {.stages = t.stages}, [&](Index j) {
        Shared latent({t.block_k, t.latent}, bf16), rope({t.block_k, t.rope}, bf16), rows({t.block_k}, i32);
        Tensor list = tokens.slice(b, query, range(j * t.block_k, (j + 1) * t.block_k));
        copy(list.at(0), rows);
        if (t.rows_in_shared) {
          gather(latents.slice(b), rows, latent);
          gather(ropes.slice(b), rows, rope);
        } else {
          gather(latents.slice(b), list, latent);
          gather(ropes.slice(b), list, rope);
        }
        own.attend(latent, rope, [&](Fragment& s) {
          parallel(s, [&](Index i, Index c) {
            s(i, c) = select(rows(c) >= 0 && rows(c) <= newest, s(i, c), -inf);
          });
        });
      });
      own.store(O.slice(b, query, range(h0, h0 + t.block_h)));
      copy(own.softmax.lse(), LSE.slice(b, query).at(h0));
    });
  });
}

const std::vector<int> key_lengths{150, 40, 0}, page_table{3, 0, 5, 6, -1, -1, -1, -1, -1};
constexpr int requests = 3, cache_pages = 7, page = 64;
const MlaTile small{.heads = 64, .latent = 128, .block_k = 32, .threads = 256};

// Results over pages whose rows are K [pages · page, width].
void attend_pages(const Numbers& Q, const Numbers& K, double scale, Numbers& O, Numbers& LSE) {
  each(requests, [&](int b) {
    const auto key = [&](int i) { return page_table[b * 3 + i / page] * page + i % page; };
    attend_token(Q, b, K, key_lengths[b], key, scale, O, LSE);
  });
}

Prepared mla_call(int splits, bool clip) {
  MlaTile t = small;
  t.splits = splits, t.clip = clip;
  const int width = t.latent + t.rope;
  const Data q = normal({requests, t.heads, width}, bf16, 1), cache = normal({cache_pages * page, width}, bf16, 2);
  // What follows the end of a request in its last page.
  if (clip)
    for (int i = 150 % page; i < page; ++i)
      tegula::copy_elements(Data::full({width}, bf16, NAN), cache.select(0, 5 * page + i));
  const double scale = 1 / std::sqrt(width);
  Numbers O({requests, t.heads, t.latent}), LSE({requests, t.heads});
  attend_pages(Numbers(q), Numbers(cache), scale, O, LSE);
  return {mla_decode_of(t),
          {q, cache.reshape({cache_pages, page, width}), Data::from(page_table, {requests, 3}), Data::from(key_lengths),
           Wanted{O, bf16}, Wanted{LSE, f32, 1e-3}, scale * log2_of_e}};
}

struct Cache8 {
  Data latents, scales, ropes;
  Numbers K;  // the rows that they stand for, rounded as tiles of bf16 are
};
Cache8 cache_in_8_bits(int rows, const MlaTile& t) {
  Cache8 c{normal({rows, t.latent}, e4m3, 2), uniform({rows, t.latent / scale_group}, f32, 3, .5, 1.5),
           normal({rows, t.rope}, bf16, 4), Numbers({rows, t.latent + t.rope})};
  const Numbers latents(c.latents), scales(c.scales), ropes(c.ropes);
  each(rows, t.latent,
       [&](int i, int d) { c.K(i, d) = tegula::round_to(bf16, latents(i, d) * scales(i, d / scale_group)); });
  each(rows, t.rope, [&](int i, int d) { c.K(i, t.latent + d) = ropes(i, d); });
  return c;
}

Prepared mla_fp8_call() {
  const MlaTile& t = small;
  const Data q = normal({requests, t.heads, t.latent + t.rope}, bf16, 1);
  const Cache8 cache = cache_in_8_bits(cache_pages * page, t);
  const double scale = 1 / std::sqrt(t.latent + t.rope);
  Numbers O({requests, t.heads, t.latent}), LSE({requests, t.heads});
  attend_pages(Numbers(q), cache.K, scale, O, LSE);
  return {mla_decode_fp8_of(t),
          {q, cache.latents.reshape({cache_pages, page, t.latent}),
           cache.scales.reshape({cache_pages, page, t.latent / scale_group}), cache.ropes.reshape({cache_pages, page, t.rope}),
           Data::from(page_table, {requests, 3}), Data::from(key_lengths), Wanted{O, bf16}, scale * log2_of_e}};
}

// The entries of a list that count, for a token at this position.
std::vector<int> counted_entries(const Numbers& lists, int token, int newest) {
  std::vector<int> keys;
  each(lists.shape[1], [&](int i) {
    const int key = static_cast<int>(lists(token, i));
    if (key >= 0 && key <= newest) keys.push_back(key);
  });
  return keys;
}

Prepared mla_sparse_decode_call() {
  const MlaTile& t = small;
  const int tokens = 2, rows = 200, chosen = 90;
  const Data q = normal({tokens, t.heads, t.latent + t.rope}, bf16, 1);
  const Data lists = integers({tokens, chosen}, i32, 5, -40, rows);
  const Cache8 cache = cache_in_8_bits(rows, t);
  const double scale = 1 / std::sqrt(t.latent + t.rope);
  Numbers O({tokens, t.heads, t.latent}), LSE({tokens, t.heads});
  each(tokens, [&](int token) {
    const auto keys = counted_entries(Numbers(lists), token, rows - 1);
    attend_token(
        Numbers(q), token, cache.K, static_cast<int>(keys.size()), [&](int i) { return keys[i]; }, scale, O,
        LSE);
  });
  return {mla_sparse_decode_fp8_of(t),
          {q, cache.latents, cache.scales, cache.ropes, lists, Wanted{O, bf16}, Wanted{LSE, f32, 1e-3},
           scale * log2_of_e, 2}};
}

Prepared mla_sparse_prefill_call(bool rows_in_shared) {
  SparseTile t{small, 64, rows_in_shared};
  const int queries = 3, keys = 150, width = t.latent + t.rope;
  const Data q = normal({queries, t.heads, width}, bf16, 1), kv = normal({keys, width}, bf16, 2);
  const Data lists = integers({queries, t.top}, i32, 3, -20, keys);
  const double scale = 1 / std::sqrt(width);
  Numbers O({queries, t.heads, t.latent}), LSE({queries, t.heads});
  each(queries, [&](int token) {
    const auto own = counted_entries(Numbers(lists), token, token + keys - queries);
    attend_token(
        Numbers(q), token, Numbers(kv), static_cast<int>(own.size()), [&](int i) { return own[i]; }, scale, O,
        LSE);
  });
  O.shape.insert(O.shape.begin(), 1), LSE.shape.insert(LSE.shape.begin(), 1);
  const Data rows = kv.reshape({1, keys, width});
  return {
      mla_sparse_prefill_of(t),
      {q.reshape({1, queries, t.heads, width}), rows.slice(2, 0, t.latent), rows.slice(2, t.latent, width),
       lists.reshape({1, queries, t.top}), Wanted{O, bf16}, Wanted{LSE, f32, 1e-3}, scale * log2_of_e}};
}

}  // namespace

Program mla_decode() {
  return {"decode",
          "mla_decode",
          "one token of 128 heads against latent keys in pages, whole or in splits that a second grid merges",
          {{"whole", [] { return mla_call(1, false); }},
           {"splits", [] { return mla_call(3, false); }},
           {"clipped", [] { return mla_call(1, true); }}},
          {{"the compiler's threads", [] { return mla_decode_of({}); }},
           {"256 threads", [] { return mla_decode_of({.threads = 256}); }},
           {"256 threads, three splits", [] { return mla_decode_of({.threads = 256, .splits = 3}); }},
           {"256 threads, clipped", [] { return mla_decode_of({.threads = 256, .clip = true}); }}}};
}

Program mla_decode_fp8() {
  return {"decode",
          "mla_decode_fp8",
          "the same with latents in e4m3 and a scale for every 128 features",
          {{"", mla_fp8_call}},
          {{"the compiler's threads", [] { return mla_decode_fp8_of({}); }},
           {"256 threads", [] { return mla_decode_fp8_of({.threads = 256}); }}}};
}

Program mla_sparse_decode_fp8() {
  return {"decode",
          "mla_sparse_decode_fp8",
          "the same against chosen rows of such a cache",
          {{"", mla_sparse_decode_call}},
          {{"the compiler's threads", [] { return mla_sparse_decode_fp8_of({}); }},
           {"256 threads", [] { return mla_sparse_decode_fp8_of({.threads = 256}); }}}};
}

Program mla_sparse_prefill() {
  return {"decode",
          "mla_sparse_prefill",
          "tokens of 128 heads, each against its own list of latent keys",
          {{"", [] { return mla_sparse_prefill_call(false); }},
           {"rows_in_shared", [] { return mla_sparse_prefill_call(true); }}},
          {{"the compiler's threads", [] { return mla_sparse_prefill_of({}); }},
           {"256 threads", [] { return mla_sparse_prefill_of({{.threads = 256}}); }},
           {"256 threads, rows in shared memory", [] {
              return mla_sparse_prefill_of({{.threads = 256}, 2048, true});
            }}}};
}

}  // namespace programs
