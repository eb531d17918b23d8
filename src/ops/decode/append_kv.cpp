#include "tegula/ops/append_kv.hpp"

#include <algorithm>
#include <cmath>

#include "ops/decode/cache_rows.hpp"
#include "ops/decode/table.hpp"
#include "ops/pieces/rope_pairing.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr float largest_e4m3 = 448, smallest_scale = 0x1p-126f;

struct AppendInstance {
  DType type = f32, cache = f32;
  int dim = 0, dim_v = 0;  // 0: there are no values
  // Factors that are given; those of each token, which are written.
  bool k_scale = false, v_scale = false, k_tokens = false, v_tokens = false;
  bool paged = false, lengths = false, positions = false;
  int pairs = 0, first = 0;  // of features that are rotated: none, or from which on
  RopePairing pairing = RopePairing::halves;
  int heads = 1;  // of a tile
  auto fields() const {
    return std::tuple(
        type, labelled("cache", cache), labelled("d", dim), labelled("v", dim_v), labelled("ks", k_scale),
        labelled("vs", v_scale), labelled("kt", k_tokens), labelled("vt", v_tokens), labelled("paged", paged),
        labelled("lengths", lengths), labelled("positions", positions),
        labelled("pairs", pairs > 0 ? std::optional(pairs) : std::nullopt),
        labelled("first", first > 0 ? std::optional(first) : std::nullopt), pairing, labelled("h", heads));
  }
};

AppendInstance append_plan(const Bound<AppendKv>& c) {
  AppendInstance kernel{.type = c.type("k"),
                        .cache = c.type("k_cache"),
                        .dim = c.small_dim("d"),
                        .dim_v = c.has("v") ? c.small_dim("d_v") : 0,
                        .k_scale = c.has("k_scale"),
                        .v_scale = c.has("v_scale"),
                        .k_tokens = c.has("k_token_scale"),
                        .v_tokens = c.has("v_token_scale"),
                        .paged = c.has("block_table"),
                        .lengths = c.has("cache_seqlens"),
                        .positions = c.has("positions"),
                        .pairing = c->pairing};
  if (c.has("cosine")) kernel.pairs = c.small_dim("half"), kernel.first = c.small_dim("first_rotated");
  const int features = std::max(kernel.dim, kernel.dim_v);
  kernel.heads = static_cast<int>(
      std::clamp<std::int64_t>(std::min<std::int64_t>(4096 / features, c.dim("kv_heads")), 1, 16));
  return kernel;
}

struct AppendProgram {
  const AppendInstance& c;
  Dim batch{"batch"}, tokens{"tokens"}, heads{"kv_heads"};
  std::optional<Dim> pages = c.paged ? std::optional<Dim>(Dim("pages")) : std::nullopt;
  Dim page_size{c.paged ? "page_size" : "keys"};
  Extents rows{pages ? Operand(*pages) : Operand(batch), page_size, heads};
  std::optional<Tensor> table, lengths, positions, cosine, sine;

  // The tensors of keys or values.
  struct Side {
    std::optional<Tensor> from, to, scale, token_scale;
  };
  Side keys = side("k", c.dim, c.k_scale, c.k_tokens), values = side("v", c.dim_v, c.v_scale, c.v_tokens);

  explicit AppendProgram(const AppendInstance& instance) : c(instance) {
    if (c.paged) {
      Dim width("table_width");
      table.emplace(input("block_table", {batch, width}, i32));
    }
    if (c.lengths) lengths.emplace(input("cache_seqlens", {batch}, i32));
    if (c.pairs == 0) return;
    Dim length("length");
    cosine.emplace(input("cosine", {length, c.pairs}, f32));
    sine.emplace(input("sine", {length, c.pairs}, f32));
    if (c.positions) positions.emplace(input("positions", {batch, tokens}, i32));
  }

  Side side(const std::string& name, int dim, bool scale, bool tokens) const {
    Side made;
    if (dim == 0) return made;
    made.from.emplace(input(name, {batch, this->tokens, heads, dim}, c.type));
    made.to.emplace(output(name + "_cache", joined(rows, {dim}), c.cache));
    if (scale) made.scale.emplace(input(name + "_scale", rows, f32));
    if (tokens) made.token_scale.emplace(output(name + "_token_scale", rows, f32));
    return made;
  }
  Expr room() const { return c.paged ? table->extent(1) * page_size : Expr(page_size); }
  void block(const Expr& b, const Expr& i, const Expr& head) const;
  Fragment rotated(const Shared& tile, const Expr& position) const;
  void store(const Side& side, Fragment& values, const Expr& page, const Expr& row, const Expr& head) const;
};

// The tile with pairs of features rotated by the angles of the position.
Fragment AppendProgram::rotated(const Shared& tile, const Expr& position) const {
  const bool halves = c.pairing == RopePairing::halves;
  return map(tile, [&](Index h, Index d) {
    Expr j = d - c.first, is_pair = j >= 0 && j < 2 * c.pairs, of_pair = clamp(j, 0, 2 * c.pairs - 1);
    Expr angle = halves ? of_pair % c.pairs : of_pair / 2,
         other = halves ? (of_pair + c.pairs) % (2 * c.pairs) : of_pair ^ 1,
         is_first = halves ? of_pair < c.pairs : of_pair % 2 == 0;
    Expr across = (*sine)(position, angle) * tile(h, c.first + other);
    return select(is_pair, tile(h, d) * (*cosine)(position, angle) + select(is_first, -across, across),
                  tile(h, d));
  });
}

// Rows of page −1 are outside of the cache, and not written.
void AppendProgram::store(const Side& side, Fragment& values, const Expr& page, const Expr& row,
                          const Expr& head) const {
  if (side.scale) {
    Fragment factors({c.heads}, f32, 1);
    copy(side.scale->slice(page, row).at(head), factors, {.fill = 1});
    parallel(values, [&](Index h, Index d) { values(h, d) /= factors(h); });
  }
  if (side.token_scale) {
    Fragment factors = reduce_absmax(values);
    parallel(factors, [&](Index h) { factors(h) = max(factors(h) * (1.f / largest_e4m3), smallest_scale); });
    parallel(values, [&](Index h, Index d) { values(h, d) /= factors(h); });
    copy(factors, side.token_scale->slice(page, row).at(head));
  }
  copy(values, side.to->slice(page, row).at(head, 0));
}

void AppendProgram::block(const Expr& b, const Expr& i, const Expr& head) const {
  Expr length = lengths ? Expr((*lengths)(b)) : room();
  assert_that(length <= room(), cache_is_too_short);
  assert_that(length == 0 || length >= tokens,
              "a sequence of cache_seqlens has fewer tokens than are appended to it; lengths include the new "
              "tokens, and are 0 where there is no sequence");
  Expr token = length - tokens + i, is_there = length >= tokens && length <= room();
  Expr place = max(token, 0);
  Expr entry = c.paged ? select(is_there, (*table)(b, place / page_size), -1) : select(is_there, b, -1);
  if (c.paged)
    assert_that(
        entry < *pages,
        "block_table names a page that is not there; give pages of the cache, or -1 where it has none");
  Expr row = c.paged ? place % page_size : place;
  when(entry >= 0, [&] {
    Shared tile({c.heads, c.dim}, f32);
    copy(keys.from->slice(b, i).at(head, 0), tile);
    if (c.pairs > 0) {
      Expr position = c.positions ? Expr((*positions)(b, i)) : place;
      assert_that(position >= 0 && position < cosine->extent(0), "a position is outside of cosine and sine");
      Fragment values = rotated(tile, position);
      store(keys, values, entry, row, head);
    } else {
      Fragment values = clone(tile);
      store(keys, values, entry, row, head);
    }
    if (!values.from) return;
    Fragment own = load(values.from->slice(b, i).at(head, 0), {c.heads, c.dim_v}, f32);
    store(values, own, entry, row, head);
  });
}

Kernel append_program(const AppendInstance& c) {
  return kernel(instance_name("append_kv", c), [&] {
    const AppendProgram p(c);
    grid(ceildiv(p.heads, c.heads), p.tokens, p.batch,
         [&](Index head, Index token, Index b) { p.block(b, token, head * c.heads); });
  });
}

double rotated_key(const Bound<AppendKv>& c, Exact& exact, std::int64_t b, std::int64_t i, std::int64_t h,
                   std::int64_t d, std::int64_t token) {
  const auto k = exact.array("k");
  const std::int64_t pairs = c.has("cosine") ? c.dim("half") : 0, j = d - c->first_rotated;
  if (j < 0 || j >= 2 * pairs) return k(b, i, h, d);
  const bool halves = c->pairing == RopePairing::halves;
  const std::int64_t angle = halves ? j % pairs : j / 2, second = halves ? j / pairs : j % 2;
  const std::int64_t other = c->first_rotated + (halves ? (j + pairs) % (2 * pairs) : j ^ 1);
  const std::int64_t position =
      c.has("positions") ? exact["positions"].data_as<std::int32_t>()[b * c.dim("tokens") + i] : token;
  const double across = exact.array("sine")(position, angle) * k(b, i, h, other);
  return k(b, i, h, d) * exact.array("cosine")(position, angle) + (second == 1 ? across : -across);
}

// One head of one token, at a row of a page.
void store_exactly(const Bound<AppendKv>& c, Exact& exact, const std::string& name,
                   std::vector<double> values, std::int64_t page, std::int64_t row, std::int64_t h) {
  double factor = 1;
  if (c.has(name + "_scale")) factor = exact.array(name + "_scale")(page, row, h);
  if (c.has(name + "_token_scale")) {
    double largest = 0;
    for (const double value : values) largest = std::max(largest, std::abs(value / factor));
    const double own = std::max<double>(largest / largest_e4m3, smallest_scale);
    exact.array(name + "_token_scale")(page, row, h) = own;
    factor *= own;
  }
  const auto cache = exact.array(name + "_cache");
  const bool in_8_bits = c.type("k_cache") == e4m3;
  for (std::size_t d = 0; d < values.size(); ++d) {
    const double value = exact.rounded(values[d] / factor);
    cache(page, row, h, d) = in_8_bits ? std::clamp<double>(value, -largest_e4m3, largest_e4m3) : value;
  }
}

void append_formula(const Bound<AppendKv>& c, Exact& exact) {
  for (const char* written : {"k_cache", "v_cache", "k_token_scale", "v_token_scale"}) exact.data_if(written);
  for (std::int64_t b = 0; b < c.dim("batch"); ++b) {
    const SequencePlaces sequence(c.call(), b);
    for (std::int64_t i = 0; i < c.dim("tokens"); ++i) {
      const std::int64_t token = sequence.length - c.dim("tokens") + i;
      if (token < 0) continue;
      const auto [page, row] = sequence.places[static_cast<std::size_t>(token)];
      if (page < 0) continue;
      for (std::int64_t h = 0; h < c.dim("kv_heads"); ++h) {
        std::vector<double> key, value;
        for (std::int64_t d = 0; d < c.dim("d"); ++d) key.push_back(rotated_key(c, exact, b, i, h, d, token));
        store_exactly(c, exact, "k", key, page, row, h);
        if (!c.has("v")) continue;
        for (std::int64_t d = 0; d < c.dim("d_v"); ++d) value.push_back(exact.array("v")(b, i, h, d));
        store_exactly(c, exact, "v", value, page, row, h);
      }
    }
  }
}

// Pages of examples belong to one sequence each; where they do not suffice, entries are −1.
tegula::Tensor own_pages(const Shape& shape, DType, std::uint64_t seed,
                         const std::function<std::int64_t(const std::string&)>& dim) {
  const tegula::Tensor table = tegula::Tensor::full(shape, i32, -1);
  const std::int64_t pages = dim("pages"), count = table.nelements();
  auto* entries = table.data_as<std::int32_t>();
  for (std::int64_t i = 0; i < std::min(pages, count); ++i)
    entries[count - 1 - i] = static_cast<std::int32_t>((i + static_cast<std::int64_t>(seed)) % pages);
  return table;
}

bool has_appended_type(const Bound<AppendKv>& c) {
  return c.type("k_cache") == e4m3 || c.type("k_cache") == c.type("k");
}

std::vector<Example> append_examples() {
  return {
      {"small", "batch=2 tokens=2 keys=9 kv_heads=2 d=16 d_v=12 v v_cache cache_seqlens"},
      {"rotary_bf16",
       "batch=3 tokens=4 keys=20 kv_heads=3 d=32 d_v=32 bf16 v v_cache cache_seqlens cosine sine "
       "length=20 half=12"},
      {"pages_neighbours_f16",
       "batch=3 tokens=3 pages=14 page_size=5 table_width=4 kv_heads=2 d=24 d_v=24 f16 v v_cache "
       "block_table cache_seqlens cosine sine positions length=30 half=8 pairing=neighbours first_rotated=8"},
      {"e4m3_factors",
       "batch=2 tokens=2 pages=7 page_size=16 table_width=3 kv_heads=9 d=64 d_v=64 bf16 v v_cache "
       "k_cache:e4m3 k_scale v_scale block_table cache_seqlens"},
      {"e4m3_tokens",
       "batch=2 tokens=3 keys=12 kv_heads=2 d=64 d_v=48 bf16 v v_cache k_cache:e4m3 k_token_scale "
       "v_token_scale cache_seqlens cosine sine length=12 half=32"},
      {"latents",
       "batch=2 tokens=1 pages=5 page_size=8 table_width=2 kv_heads=1 d=80 bf16 block_table cache_seqlens "
       "cosine sine length=16 half=8 pairing=neighbours first_rotated=64"}};
}

std::vector<Example> append_measured() {
  const std::string heads = " kv_heads=8 d=128 d_v=128 bf16 v v_cache ";
  return {{"128x1_pages_of_64",
           "batch=128 tokens=1 pages=16384 page_size=64 table_width=128 block_table cache_seqlens" + heads},
          {"128x1_rotary_e4m3",
           "batch=128 tokens=1 keys=8192 cache_seqlens k_cache:e4m3 k_token_scale v_token_scale cosine sine "
           "length=8192 half=64" +
               heads},
          {"8x4096", "batch=8 tokens=4096 keys=8192 cache_seqlens" + heads}};
}

constexpr const char* of_tokens = "block_table ? pages page_size kv_heads : batch keys kv_heads";
constexpr const char* of_factors = "block_table ? ~pages ~page_size ~kv_heads : ~batch ~keys ~kv_heads";

void add_factors(Schema<AppendKv>& table) {
  table
      .in(&AppendKv::k_scale, "k_scale", of_factors, is(f32),
          "positive factors by which keys are divided: one, one for each head, or for each token and "
          "head")
      .range("1", "3")
      .in(&AppendKv::v_scale, "v_scale", of_factors, is(f32), "factors of values, likewise")
      .range("1", "3")
      .inout(&AppendKv::k_token_scale, "k_token_scale", of_tokens, is(f32),
             "factors of each token and head of keys, which are its largest magnitude / 448")
      .inout(&AppendKv::v_token_scale, "v_token_scale", of_tokens, is(f32), "factors of values, likewise");
}

void add_angles(Schema<AppendKv>& table) {
  table
      .in(&AppendKv::cosine, "cosine", "length half", is(f32),
          "cosines of the angles of every position, by which pairs of features of keys are rotated")
      .in(&AppendKv::sine, "sine", "length half", is(f32), "sines of the same angles")
      .in(&AppendKv::positions, "positions", "batch tokens", index,
          "positions of the tokens; default: their positions in their sequences")
      .converts()
      .range("0", "length");
}

void add_append_rules(Schema<AppendKv>& table) {
  table.require("k_cache", has_appended_type, "the dtype of k, or e4m3", "convert it")
      .require("v", "v == v_cache", "v and v_cache together", "give both")
      .require("cosine", "cosine == sine", "cosine and sine together", "give both")
      .require("positions", "positions ? cosine : 1", "cosine and sine as well", "leave it out")
      .require("v_scale", "v_scale ? v : 1", "v as well", "leave it out")
      .require("v_token_scale", "v_token_scale ? v : 1", "v as well", "leave it out")
      .require("k", "1 <= d & d <= 1024", "1 to 1024 features", "split the heads")
      .require("v", "v ? 1 <= d_v & d_v <= 1024 : 1", "1 to 1024 features", "split the heads")
      .require("cosine", "cosine ? 1 <= half & first_rotated + 2*half <= d : 1",
               "1 pair or more, among the {d} features of k", "give the angles of fewer pairs")
      .require("cosine", "cosine ? (positions ? 1 <= length : room <= length) : 1",
               "angles for all {room} tokens of the capacity", "give longer tables, or positions")
      .require("k_cache", "tokens <= room", "room for the {tokens} new tokens of each sequence",
               "append fewer, or give more pages")
      .require("block_table", "room < 536870912", "a capacity of fewer than 2^29 tokens",
               "give shorter tables");
}

}  // namespace

const OperatorSchema& append_kv_schema() {
  static const OperatorSchema table =
      Schema<AppendKv>("append_kv", "writes the newest tokens of sequences to a cache of keys and values")
          .in(&AppendKv::k, "k", "batch tokens kv_heads d", floats, "keys: the last tokens")
          .unit_stride()
          .inout(&AppendKv::k_cache, "k_cache", cache_dims("kv_heads d"), one_of({f32, f16, bf16, e4m3}),
                 "keys of all tokens")
          .unit_stride()
          .remedy(
              "give it the heads and features of k, and a row for each sequence or pages with a block table")
          .in(&AppendKv::v, "v", "batch tokens kv_heads d_v", same_as("k"), "values of the same tokens")
          .unit_stride()
          .remedy("give it the tokens and heads of k")
          .inout(&AppendKv::v_cache, "v_cache", cache_dims("kv_heads d_v"), same_as("k_cache"),
                 "values of all tokens")
          .unit_stride()
          .remedy("give it the rows and heads of k_cache, and the features of v")
          .in(&AppendKv::block_table, "block_table", "batch table_width", index,
              "page numbers of each sequence, in order; tokens of a negative entry are not stored")
          .remedy("give every sequence a row")
          .values(own_pages)
          .in(&AppendKv::cache_seqlens, "cache_seqlens", "batch", index,
              "length of each sequence, including the new tokens, or 0 where there is none; if omitted, "
              "sequences fill the cache")
          .remedy("give every sequence a length")
          .range("tokens", "room+1")
          .with(add_factors)
          .with(add_angles)
          .option(&AppendKv::pairing, "pairing",
                  "features that are rotated together: j and j + half, or 2j and 2j + 1")
          .option(&AppendKv::first_rotated, "first_rotated", "the first feature that is rotated",
                  between(0, 4096, "a feature", "give one of k"))
          .let("room", "block_table ? table_width*page_size : keys")
          .with(add_append_rules)
          .source("pages as in Kwon et al. 2023, PagedAttention")
          .no_gradient("a cache is for inference")
          .flops("6*batch*tokens*kv_heads*d")
          .examples(append_examples())
          .measured(append_measured())
          .run(append_plan, append_program, append_formula);
  return table;
}

}  // namespace tegula::ops
