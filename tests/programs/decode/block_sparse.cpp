// Attention to chosen blocks and columns of keys: by a mask of blocks with queries and keys of any lengths,
// causal at the bottom right, and by verticals and slashes, whose index a program of its own makes.
#include "tests/programs/decode/attention.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct BlockTile {
  int dim = 128, m = 64, n = 64;
  bool listed = true;  // a grid makes lists of the mask, or the loop has a branch
  int threads = 0, stages = 2;
  DType type = bf16;
};

// The queries of a block, and what they take from blocks of keys.
struct Queries {
  const BlockTile& t;
  Shared q;
  Fragment acc;
  OnlineSoftmax softmax;

  Queries(const BlockTile& tile, const Tensor& Q, const Expr& row, const Expr& scale)
      : t(tile), q({t.m, t.dim}, t.type), acc({t.m, t.dim}, f32, 0), softmax(t.m, scale) {
    copy(Q.at(row), q);
  }
  template <class Mask>
  void attend(const Shared& k, const Shared& v, Mask mask) {
    Fragment s({t.m, t.n}, f32, 0);
    gemm(q, k.T(), s);
    mask(s);
    scale_rows(acc, softmax.update(s));
    gemm(s.to(t.type), v, acc);
  }
};

// Where the keys of a block of queries end, in blocks.
Expr end_of(const Expr& x, const Expr& Sq, const Expr& Sk, const BlockTile& t) {
  return clamp(ceildiv((x + 1) * t.m + Sk - Sq, t.n), 0, ceildiv(Sk, t.n));
}

void list_mask(const Tensor& mask, const Tensor& list, const Tensor& count, const Expr& Sq, const Expr& Sk,
               const BlockTile& t) {
  constexpr int rows = 64;
  Expr M = mask.extent(2);
  grid(ceildiv(M, rows), mask.extent(1), mask.extent(0), {.threads = rows}, [&](Index x, Index h, Index b) {
    parallel(rows, [&](Index i) {
      Expr m = x * rows + i;
      Var found = 0;
      serial(select(m < M, end_of(m, Sq, Sk, t), 0), [&](Index n) {
        when(mask(b, h, m, n) != 0, [&] {
          list(b, h, m, found) = n;
          found += 1;
        });
      });
      when(m < M, [&] { count(b, h, m) = found; });
    });
  });
}

Kernel attention_by_mask(const BlockTile& t) {
  return kernel("masked_attention", [&] {
    Dim B("B"), H("H"), Sq("Sq"), Sk("Sk"), M("M"), N("N");
    Tensor Q = input("Q", {B, H, Sq, t.dim}, t.type), K = input("K", {B, H, Sk, t.dim}, t.type);
    Tensor V = input("V", {B, H, Sk, t.dim}, t.type), mask = input("mask", {B, H, M, N}, i8);
    Tensor O = output("O", {B, H, Sq, t.dim}, t.type);
    Expr scale = scalar("scale", f32);  // times log2(e)
    require(M >= ceildiv(Sq, t.m) && N >= ceildiv(Sk, t.n), "the mask has all blocks of queries and of keys");
    std::optional<Tensor> list, count;
    if (t.listed) {
      list.emplace(workspace("list", {B, H, M, N}, i32));
      count.emplace(workspace("count", {B, H, M}, i32));
      list_mask(mask, *list, *count, Sq, Sk, t);
    }
    const GridOptions options{.threads = t.threads,
                              .order = Order::heavy_first([](Index x, Index, Index) { return Expr(x); })};
    grid(ceildiv(Sq, t.m), H, B, options, [&](Index x, Index h, Index b) {
      Queries own(t, Q.slice(b, h), x * t.m, scale);
      Expr position = x * t.m + Sk - Sq;
      const auto step = [&](const Expr& n) {
        Expr first = n * t.n;
        Shared k({t.n, t.dim}, t.type), v({t.n, t.dim}, t.type);
        copy(K.slice(b, h).at(first), k);
        copy(V.slice(b, h).at(first), v);
        own.attend(k, v, [&](Fragment& s) {
          when(first + t.n > min(Sk, position + 1), [&] {
            parallel(s, [&](Index i, Index j) {
              s(i, j) = select(first + j < Sk && first + j <= position + i, s(i, j), -inf);
            });
          });
        });
      };
      if (t.listed)
        pipelined((*count)(b, h, x), {.stages = t.stages}, [&](Index j) { step((*list)(b, h, x, j)); });
      else
        pipelined(end_of(x, Sq, Sk, t), {.stages = t.stages},
                  [&](Index n) { when(mask(b, h, x, n) != 0, [&] { step(n); }); });
      own.softmax.normalize(own.acc);
      copy(own.acc, O.slice(b, h).at(x * t.m));
    });
  });
}

// What a block of queries walks through: verticals, which ascend, and slashes, distances that descend. Blocks
// are those that slashes touch, by their first key; columns the verticals outside of them.
struct SlashWalk {
  static constexpr int block = 64;
  Tensor vertical, slash, blocks, columns;
  Expr end;  // of the queries
  Var block_count = 0, column_count = 0, v = 0, s = 0, first = 0, behind = 0, going = true;

  SlashWalk(const Tensor& verticals, const Tensor& slashes, const Tensor& block_rows,
            const Tensor& column_rows, const Expr& end_of_queries)
      : vertical(verticals), slash(slashes), blocks(block_rows), columns(column_rows), end(end_of_queries) {}

  void save() {
    loop_while([&] { return first < behind; },
               [&] {
                 when(block_count < blocks.extent(0), [&] {
                   blocks(block_count) = first;
                   block_count += 1;
                 });
                 first += block;
               });
  }
  void take_slash() {
    going = s < slash.extent(0);
    when(s < slash.extent(0), [&] {
      Expr next = max(end - slash(s), block);
      s += 1;
      when(next > behind + block, [&] {
        save();
        first = next - block;
        behind = next;
      }).otherwise([&] { when(next > behind, [&] { behind += block; }); });
    });
  }
  void walk() {
    loop_while([&] { return s < slash.extent(0) && slash(s) >= end; }, [&] { s += 1; });
    Expr none = s >= slash.extent(0);
    first = select(none, 0, max(end - slash(s), block) - block);
    behind = select(none, 0, first + block);
    s += 1;
    loop_while([&] { return Expr(going); },
               [&] {
                 Expr column = select(v < vertical.extent(0), vertical(v), end + block);
                 when(column < behind, [&] {
                   when(column < first && column >= 0, [&] {
                     columns(column_count) = column;
                     column_count += 1;
                   });
                   v += 1;
                 }).otherwise([&] { take_slash(); });
               });
    save();
  }
};

// A thread for every block of queries.
Kernel index_of_verticals_and_slashes() {
  return kernel("vertical_slash_index", [&] {
    Dim B("B"), H("H"), NB("blocks"), NS("NS"), NV("NV"), most("most_blocks");
    Tensor lengths = input("lengths", {B}, i32), verticals = input("verticals", {B, H, NV}, i32);
    Tensor slashes = input("slashes", {B, H, NS}, i32), block_count = output("block_count", {B, H, NB}, i32);
    Tensor blocks = output("block_offset", {B, H, NB, most}, i32);
    Tensor column_count = output("column_count", {B, H, NB}, i32);
    Tensor columns = output("column_index", {B, H, NB, NV}, i32);
    constexpr int rows = 64;
    grid(ceildiv(NB, rows), H, B, {.threads = rows}, [&](Index x, Index h, Index b) {
      parallel(rows, [&](Index i) {
        Expr m = x * rows + i, start = m * SlashWalk::block;
        when(m < NB, [&] {
          SlashWalk own(verticals.slice(b, h), slashes.slice(b, h), blocks.slice(b, h, m),
                        columns.slice(b, h, m), start + SlashWalk::block);
          when(start < lengths(b), [&] { own.walk(); });
          block_count(b, h, m) = own.block_count;
          column_count(b, h, m) = own.column_count;
        });
      });
    });
  });
}

Kernel attention_to_verticals_and_slashes(const BlockTile& t) {
  return kernel("vertical_slash_attention", [&] {
    Dim B("B"), H("H"), S("S"), NB("blocks"), most("most_blocks"), NV("NV");
    Tensor Q = input("Q", {B, H, S, t.dim}, t.type), K = input("K", {B, H, S, t.dim}, t.type);
    Tensor V = input("V", {B, H, S, t.dim}, t.type), block_count = input("block_count", {B, H, NB}, i32);
    Tensor blocks = input("block_offset", {B, H, NB, most}, i32);
    Tensor column_count = input("column_count", {B, H, NB}, i32);
    Tensor columns = input("column_index", {B, H, NB, NV}, i32), O = output("O", {B, H, S, t.dim}, t.type);
    Expr scale = scalar("scale", f32);  // times log2(e)
    grid(NB, H, B, {.threads = t.threads}, [&](Index x, Index h, Index b) {
      Queries own(t, Q.slice(b, h), x * t.m, scale);
      pipelined(block_count(b, h, x), {.stages = t.stages}, [&](Index j) {
        Expr first = blocks(b, h, x, j);
        Shared k({t.n, t.dim}, t.type), v({t.n, t.dim}, t.type);
        copy(K.slice(b, h).at(first), k);
        copy(V.slice(b, h).at(first), v);
        own.attend(k, v, [&](Fragment& s) {
          when(first + t.n > x * t.m + 1, [&] {
            parallel(s, [&](Index i, Index c) { s(i, c) = select(first + c <= x * t.m + i, s(i, c), -inf); });
          });
        });
      });
      Expr count = column_count(b, h, x);
      pipelined(ceildiv(count, t.n), {.stages = t.stages}, [&](Index j) {
        const auto row = [&](Index i) -> Expr {
          Expr n = j * t.n + i;
          return select(n < count, columns(b, h, x, n), -1);
        };
        Shared k({t.n, t.dim}, t.type), v({t.n, t.dim}, t.type);
        gather(K.slice(b, h), row, k);
        gather(V.slice(b, h), row, v);
        own.attend(k, v, [&](Fragment& s) {
          when((j + 1) * t.n > count, [&] { mask_columns(s, count - j * t.n); });
        });
      });
      own.softmax.normalize(own.acc);
      copy(own.acc, O.slice(b, h).at(x * t.m));
    });
  });
}

// Results of one query of head h against these keys; Q and O [heads, queries, dim].
void attend_query(const Numbers& Q, const Numbers& K, const Numbers& V, int h, int query,
                  const std::vector<int>& keys, double scale, Numbers& O) {
  const int dim = static_cast<int>(Q.shape[2]);
  const auto score = [&](int i) {
    return scale * sum_of(dim, [&](int d) { return Q(h, query, d) * K(h, keys[i], d); });
  };
  const Attended own =
      attend(static_cast<int>(keys.size()), dim, score, [&](int i, int d) { return V(h, keys[i], d); });
  each(dim, [&](int d) { O(h, query, d) = own.out[d]; });
}
Data batch(const Data& data) {
  Shape shape = data.shape();
  shape.insert(shape.begin(), 1);
  return data.reshape(shape);
}
Wanted batch(Numbers exact, DType type) {
  exact.shape.insert(exact.shape.begin(), 1);
  return {std::move(exact), type};
}

Prepared mask_call(bool listed) {
  const BlockTile t{.dim = 64, .listed = listed};
  const int H = 2, Sq = 100, Sk = 200, M = 2, N = 4;
  const double scale = 1 / std::sqrt(t.dim);
  const Data q = normal({H, Sq, t.dim}, bf16, 1), k = normal({H, Sk, t.dim}, bf16, 2);
  const Data v = normal({H, Sk, t.dim}, bf16, 3), mask = integers({H, M, N}, i8, 4, 0, 2);
  const Numbers Q(q), K(k), V(v), keep(mask);
  Numbers O(Q.shape);
  each(H, Sq, [&](int h, int i) {
    std::vector<int> keys;
    for (int key = 0; key <= i + Sk - Sq; ++key)
      if (keep(h, i / t.m, key / t.n) != 0) keys.push_back(key);
    attend_query(Q, K, V, h, i, keys, scale, O);
  });
  return {attention_by_mask(t),
          {batch(q), batch(k), batch(v), batch(mask), batch(O, bf16), scale * log2_of_e}};
}

// The index of a call of two heads, 400 tokens.
struct SlashCall {
  static constexpr int H = 2, S = 400, NB = 7, NV = 40, NS = 5, most = 16, block = 64;
  std::vector<int> verticals, slashes;
  Numbers block_count{{1, H, NB}}, blocks{{1, H, NB, most}, NAN}, column_count{{1, H, NB}},
      columns{{1, H, NB, NV}, NAN};

  SlashCall() {
    each(H, [&](int h) {
      each(NV, [&](int i) { verticals.push_back(i * 9 + h); });
      for (const int distance : {370, 200, h ? 130 : 140, 60, 0}) slashes.push_back(distance);
    });
    each(H, NB, [&](int h, int m) { fill_row(h, m); });
  }
  // The keys that a query sees.
  std::vector<int> keys_of(int h, int query) const {
    const int m = query / block;
    std::vector<int> keys;
    each(static_cast<int>(column_count(0, h, m)),
         [&](int i) { keys.push_back(static_cast<int>(columns(0, h, m, i))); });
    each(static_cast<int>(block_count(0, h, m)), [&](int i) {
      for (int key = static_cast<int>(blocks(0, h, m, i)), end = key + block; key < end && key <= query;
           ++key)
        keys.push_back(key);
    });
    return keys;
  }

 private:
  // Slashes cut stretches of blocks out of the sequence, and verticals in front of each are columns.
  void fill_row(int h, int m) {
    const int end = (m + 1) * block;
    std::vector<std::pair<int, int>> stretches;
    for (int s = 0; s < NS; ++s) {
      const int distance = slashes[h * NS + s], behind = std::max(end - distance, block);
      if (distance >= end) continue;
      if (stretches.empty() || behind > stretches.back().second + block)
        stretches.emplace_back(behind - block, behind);
      else if (behind > stretches.back().second)
        stretches.back().second += block;
    }
    double &count = block_count(0, h, m), &single = column_count(0, h, m);
    for (const auto& [first, behind] : stretches)
      for (int at = first; at < behind; at += block) blocks(0, h, m, count++) = at;
    std::size_t stretch = 0;
    for (int v = 0; v < NV && stretch < stretches.size(); ++v) {
      const int column = verticals[h * NV + v];
      while (stretch < stretches.size() && column >= stretches[stretch].second) ++stretch;
      if (stretch < stretches.size() && column < stretches[stretch].first)
        columns(0, h, m, single++) = column;
    }
  }
};

Prepared index_call() {
  const SlashCall c;
  return {index_of_verticals_and_slashes(),
          {Data::from(std::vector<int>{c.S}), Data::from(c.verticals, {1, c.H, c.NV}),
           Data::from(c.slashes, {1, c.H, c.NS}), Wanted{c.block_count, i32, 0}, Wanted{c.blocks, i32, 0},
           Wanted{c.column_count, i32, 0}, Wanted{c.columns, i32, 0}}};
}

Prepared slash_call() {
  const SlashCall c;
  const BlockTile t{.dim = 64, .type = f16};
  const double scale = 1 / std::sqrt(t.dim);
  const Data q = normal({c.H, c.S, t.dim}, f16, 1), k = normal({c.H, c.S, t.dim}, f16, 2);
  const Data v = normal({c.H, c.S, t.dim}, f16, 3);
  const Numbers Q(q), K(k), V(v);
  Numbers O(Q.shape);
  each(c.H, c.S, [&](int h, int i) { attend_query(Q, K, V, h, i, c.keys_of(h, i), scale, O); });
  return {attention_to_verticals_and_slashes(t),
          {batch(q), batch(k), batch(v), c.block_count.to(i32), c.blocks.to(i32), c.column_count.to(i32),
           c.columns.to(i32), batch(O, f16), scale * log2_of_e}};
}

}  // namespace

Program masked_attention() {
  return {"decode",
          "masked_attention",
          "attention to the blocks of keys that a mask has, causal at the bottom right",
          {{"list", [] { return mask_call(true); }}, {"branch", [] { return mask_call(false); }}},
          {{"lists, 64 x 64", [] { return attention_by_mask({}); }},
           {"lists, 128 x 64", [] { return attention_by_mask({.m = 128}); }},
           {"a branch, 64 x 64", [] { return attention_by_mask({.listed = false}); }},
           {"a branch, 128 x 64", [] { return attention_by_mask({.m = 128, .listed = false}); }}}};
}
Program vertical_slash_index() {
  return {"decode",
          "vertical_slash_index",
          "blocks and columns of keys that verticals and slashes have for each block of queries",
          {{"", index_call}},
          {{"64 rows", index_of_verticals_and_slashes}}};
}
Program vertical_slash_attention() {
  return {"decode",
          "vertical_slash_attention",
          "attention to such blocks and columns",
          {{"", slash_call}},
          {{"features of 64", [] { return attention_to_verticals_and_slashes({.dim = 64, .type = f16}); }},
           {"features of 128", [] { return attention_to_verticals_and_slashes({.type = f16}); }}}};
}

}  // namespace programs
