#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "ops/nsa/compressed.hpp"
#include "ops/pieces/scores.hpp"
#include "tegula/ops/nsa_select.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct SelectKernel {
  CompressedKernel heads;
  int chunks = 1;       // of the heads of a group, each of `pack`
  int columns = 32;     // blocks that a warp holds at a time
  bool held = true;     // all of them
  bool aligned = true;  // blocks begin with windows
  int entries = 0;      // that share a token with a block, at most; 0: too many to write out

  auto fields() const {
    return std::tuple(heads, joined("b", columns, entries), labelled("n", chunks), labelled("held", held),
                      labelled("aligned", aligned));
  }
};

constexpr std::uint32_t kept = 0xffffffffu;  // above the key of every weight
// Of so many queries at a time; of more the weights would not stay in the cache.
constexpr int blocks_of_processor = 2;
// A warp counts chosen blocks of a chunk in the lower bits of a number and ties in the others.
constexpr int count_bits = 13, most_columns = 2048, most_written_out = 8;

// A tile of tokens leaves the weights of entries, summed over heads, in a workspace of its own. Then a warp
// takes a query: it forms a key for every block, larger for those that matter more and 0 for those that
// cannot be chosen, holds the keys in registers, and finds the count-th largest bit by bit.
struct Select : CompressedProgram {
  const SelectKernel& kernel;
  Dim count{"count"};
  Tensor lse = input("lse", vector(), f32), out = output("out", {batch, queries, kv_heads, count}, i32);
  Expr block_size = scalar("block_size", i32), first_blocks = scalar("first_blocks", i32),
       local_blocks = scalar("local_blocks", i32), blocks = scalar("blocks", i32);
  Expr slots = processors() * blocks_of_processor;
  Tensor weights =
      workspace("weights", {slots, c.queries, c.packed ? longest / stride + 1 : Expr(entries)}, f32);

  explicit Select(const SelectKernel& instance) : CompressedProgram(instance.heads), kernel(instance) {}

  // Blocks of the grid take tiles in turn, those of later queries first, which see more.
  void run() {
    grid(slots, [&](Index slot) {
      Expr tiles = ceildiv(longest, c.queries), heads = tiles * kv_heads, all_tiles = heads * sequences();
      serial(ceildiv(all_tiles - slot, slots), [&](Index n) {
        Expr tile = slot + n * slots, others = kv_heads * sequences(), other = tile % others;
        const CompressedSequence s = sequence(other / kv_heads);
        const EntrySight sight_of = sight(s);
        if (c.packed) assert_that(sight_of.queries <= longest, "a sequence has more tokens than max_seqlen");
        Expr first = (tiles - 1 - tile / others) * c.queries;
        when(first < sight_of.queries, [&] {
          const Tensor own = weights.slice(slot);
          for (int chunk = 0; chunk < kernel.chunks; ++chunk) weigh(first, other % kv_heads, chunk, s, own);
          choose(first, out.slice(s.batch, s.tokens, other % kv_heads), own, sight_of);
        });
      });
    });
  }

  // What the heads of a chunk add to the weights of the entries that some query sees. Those of entries that a
  // query does not see nobody reads.
  void weigh(const Expr& first, const Expr& kv_head, int chunk, const CompressedSequence& s,
             const Tensor& own) {
    Expr head = kv_head * kernel.chunks + chunk;
    Shared q_tile({c.rows(), c.features()}, c.compute);
    load_queries(queries_of(q, s, head), first, q_tile, c.pack);
    Fragment base({c.rows()}, f32);
    load_base(vector_of(lse, s, head), first, base);
    const Tensor k_of = entries_of(k, s, kv_head);
    pipelined(ceildiv(sight(s).limit(first + c.queries - 1), c.keys), {.stages = 2}, [&](Index tile) {
      Shared k_tile({c.keys, c.features()}, c.compute);
      copy(k_of.at(tile * c.keys), k_tile);
      // Heads are columns: a thread has several of each row.
      Fragment scores({c.keys, c.rows()}, f32, 0);
      gemm(k_tile, q_tile.T(), scores);
      parallel(scores, [&](Index n, Index r) { scores(n, r) = exp2(scores(n, r) * scale - base(r)); });
      if (c.pack == 1)
        add_weights(scores, own, tile * c.keys, chunk > 0);
      else
        add_weights(reduce_sum(scores.reshape({c.keys, c.queries, c.pack}), 2), own, tile * c.keys,
                    chunk > 0);
    });
  }

  void add_weights(const Fragment& found, const Tensor& own, const Expr& entry, bool add) const {
    if (!add) return copy(found.T(), own.at(0, entry));
    parallel(found, [&](Index n, Index i) { own(i, entry + n) += found(n, i); });
  }

  // Times log2(e). A query that sees nothing gives no weight.
  void load_base(const Tensor& from, const Expr& first, Fragment& to) const {
    if (c.pack == 1)
      copy(from.at(first), to);
    else
      copy(from.at(0, first), to.reshape({c.queries, c.pack}).T());
    parallel(to, [&](Index r) { to(r) = select(to(r) == -inf, inf, to(r) * log2e); });
  }

  // The entries that share a token with a block.
  Range entries_at(const Expr& block, const EntrySight& sight_of, const Expr& limit) const {
    const Windows& windows = sight_of.windows;
    if (!kernel.aligned)
      return range(windows.ending_behind(block * block_size),
                   min(windows.beginning_before((block + 1) * block_size), limit));
    Expr each = block_size / stride;
    return range(max(block * each - ceildiv(length, stride) + 1, 0), min((block + 1) * each, limit));
  }

  // The keys of the blocks from `begin` on, of which the query sees those before `seen`.
  void form_keys(const Tensor& own, const EntrySight& sight_of, const Expr& query, const Expr& begin,
                 const Expr& seen, Fragment& keys) const {
    Expr limit = sight_of.limit(query);
    parallel(keys, [&](Index j) {
      Expr here = begin + j;
      const Range near = entries_at(here, sight_of, limit);
      Var weight = 0.0f;
      if (kernel.entries == 0)
        serial(near, [&](Index n) { weight += own(n); });
      else
        for (int n = 0; n < kernel.entries; ++n)
          when(near.begin + n < near.end, [&] { weight += own(near.begin + n); });
      Expr forced = here < first_blocks || here >= seen - local_blocks;
      Expr key = select(isnan(weight), 1u, bitcast(weight, u32) + 1u);
      keys(j) = select(here < seen, select(forced, kept, key), 0u);
    });
  }

  void choose(const Expr& first, const Tensor& to, const Tensor& own, const EntrySight& sight_of) const {
    each_group(c.queries, Group::warp, [&](Index i) {
      Expr query = first + i;
      when(query < sight_of.queries, [&] {
        Expr seen = clamp(floordiv(query + sight_of.shift, block_size) + 1, 0, blocks);
        choose_blocks(to.slice(query), own.slice(i), sight_of, query, seen);
      });
    });
  }

  void choose_blocks(const Tensor& to, const Tensor& own, const EntrySight& sight_of, const Expr& query,
                     const Expr& seen) const {
    Fragment all_keys({kernel.columns}, u32);
    const auto form = [&](const Expr& begin, Fragment& keys) {
      form_keys(own, sight_of, query, begin, seen, keys);
    };
    if (kernel.held) form(0, all_keys);
    const std::function<void(const ChunkBody&)> each = [&](const ChunkBody& body) {
      if (kernel.held) return body(0, all_keys);
      serial(ceildiv(seen, kernel.columns), [&](Index chunk) {
        Fragment keys({kernel.columns}, u32);
        form(chunk * kernel.columns, keys);
        body(chunk * kernel.columns, keys);
      });
    };
    Var bound = 0u;
    find_bound(each, seen, bound);
    write(each, to, bound);
  }

  using ChunkBody = std::function<void(const Expr& begin, const Fragment& keys)>;
  using EachChunk = std::function<void(const ChunkBody&)>;

  // With fewer blocks than wanted the bound stays 0. A bound that just as many keys reach needs no more bits.
  void find_bound(const EachChunk& each, const Expr& seen, Var& bound) const {
    serial(select(seen > count, 32, 0), [&](Index bit) {
      Expr tried = bound | u32(1) << u32(31 - bit);
      Var number = 0;
      each([&](const Expr&, const Fragment& keys) {
        number += reduce_sum(map(
                                 keys, [&](Index j) { return select(keys(j) >= tried, 1, 0); }, i32))
                      .scalar();
      });
      when(number >= count, [&] { bound = tried; });
      break_if(number == count);
    });
  }

  // Keys above the bound are chosen, and of those at the bound the first.
  void write(const EachChunk& each, const Tensor& to, const Expr& bound) const {
    const auto counted = [&](const Fragment& keys) {
      return map(
          keys,
          [&](Index j) {
            return select(keys(j) > bound, 1, select(keys(j) == bound && keys(j) != 0u, 1 << count_bits, 0));
          },
          i32);
    };
    constexpr int of_count = (1 << count_bits) - 1;
    Var over = 0, same = 0, over_before = 0, same_before = 0;
    each([&](const Expr&, const Fragment& keys) {
      Expr number = reduce_sum(counted(keys)).scalar();
      over += number & of_count, same += number >> count_bits;
    });
    Expr room = max(count - over, 0), chosen = over + min(same, room);
    each([&](const Expr& begin, const Fragment& keys) {
      const Fragment own = counted(keys), before = scan_sum(own, {.exclusive = true});
      Expr over_here = over_before, same_here = same_before;
      parallel(keys, [&](Index j) {
        Expr above = over_here + (before(j) & of_count), ties = same_here + (before(j) >> count_bits);
        when(own(j) == 1 || (own(j) > 1 && ties < room), [&] { to(above + min(ties, room)) = begin + j; });
      });
      if (kernel.held) return;
      Expr number = reduce_sum(own).scalar();
      over_before += number & of_count, same_before += number >> count_bits;
    });
    parallel(count, [&](Index n) { when(n >= chosen, [&] { to(n) = -1; }); });
  }
};

Kernel program(const SelectKernel& c) {
  return kernel(instance_name("nsa_select", c), [&] { Select(c).run(); });
}

// Columns of a product in warp groups' rows, entries of a step, and the time of a score.
struct SelectTiles {
  int rows = 1, keys = 64;
  double cost = 1;
};

SelectKernel plan(const Bound<NsaSelect>& c) {
  SelectKernel kernel{compressed_kernel(c, c.small_dim("d"))};
  CompressedKernel& heads = kernel.heads;
  kernel.chunks = std::max(c.small_dim("group") / heads.pack, 1);
  if (c.on_gpu() && heads.pack > 1 && heads.rows() == warp_group_rows && heads.features() <= 128) {
    // More columns of a product take the same rows of entries from shared memory; two blocks of one warp
    // group fill each other's waits.
    const Candidates<SelectTiles, 4> candidates{{2, 64, 1}, {1, 64, 1.2}, {2, 128, 1.3}, {1, 128, 1.3}};
    const SelectTiles best = best_of(candidates, [](const SelectTiles& own) { return own.cost; });
    heads.queries *= best.rows, heads.keys = best.keys;
  }
  kernel.columns = static_cast<int>(
      std::clamp<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(c.dim("blocks"))), 32, most_columns));
  kernel.held = c.dim("blocks") <= kernel.columns;
  kernel.aligned = c->block_size % c->stride == 0;
  const std::int64_t around = c->length + c->block_size - 1,
                     most = kernel.aligned ? c->block_size / c->stride + (c->length - 1) / c->stride
                                           : (around + c->stride - 1) / c->stride;
  kernel.entries = most <= most_written_out ? static_cast<int>(most) : 0;
  return kernel;
}

void run(const Bound<NsaSelect>& c, Launch& launch) {
  const SelectKernel kernel = plan(c);
  launch(kernel, program,
         {{"q", rows_of_queries(c, "q", kernel.heads.pack)},
          {"k", rows_of_entries(c, "k")},
          {"lse", vector_of_queries(c, "lse", kernel.heads.pack)},
          {"out", rows_of_entries(c, "out")},
          {"scale", program_scale(static_cast<float>(c.real("scale")), 0)}});
}

// A query of one sequence: its position, and where its row and its entries stand.
struct Place {
  std::int64_t batch, row, position, first_entry, entries;
};

template <class F>
void each_query(const Bound<NsaSelect>& c, const F& visit) {
  if (!c.has("cu_seqlens")) {
    for (std::int64_t b = 0; b < c.dim("batch"); ++b)
      for (std::int64_t i = 0; i < c.dim("queries"); ++i)
        visit(Place{b, i, i + c.dim("tokens") - c.dim("queries"), 0, c.dim("entries")});
    return;
  }
  const auto fence = [&](std::int64_t i) { return static_cast<std::int64_t>(c["cu_seqlens"].get({i})); };
  for (std::int64_t s = 0; s < c.dim("sequences"); ++s)
    for (std::int64_t i = fence(s); i < fence(s + 1); ++i)
      visit(Place{0, i, i - fence(s), fence(s) / c->stride, c.dim("entries") - fence(s) / c->stride});
}

// How much each block up to the query's own matters.
std::vector<double> weights_of(const Bound<NsaSelect>& c, const Place& at, std::int64_t kv_head) {
  const TensorRef q = batched(c["q"], c->layout), k = batched(c["k"], c->layout),
                  lse = batched_vector(c["lse"]);
  std::vector<double> result(static_cast<std::size_t>(
      at.position < 0 ? 0 : std::min(at.position / c->block_size + 1, c.dim("blocks"))));
  for (std::int64_t n = 0; n < at.entries && n * c->stride + c->length <= at.position + 1; ++n) {
    double weight = 0;
    for (std::int64_t h = kv_head * c.dim("group"); h < (kv_head + 1) * c.dim("group"); ++h) {
      const double base = lse.get({at.batch, h, at.row});
      double score = 0;
      for (std::int64_t d = 0; d < c.dim("d"); ++d)
        score += q.get({at.batch, at.row, h, d}) * k.get({at.batch, at.first_entry + n, kv_head, d});
      if (base > -std::numeric_limits<double>::infinity()) weight += std::exp(score * c.real("scale") - base);
    }
    const std::int64_t last = (n * c->stride + c->length - 1) / c->block_size;
    for (std::int64_t j = n * c->stride / c->block_size; j <= last; ++j)
      result.at(static_cast<std::size_t>(j)) += weight;
  }
  return result;
}

void formula(const Bound<NsaSelect>& c, Exact& exact) {
  const tegula::Tensor result = tegula::Tensor::full(c["out"].shape, i32, -1);
  const TensorRef out = batched(result, c->layout);
  each_query(c, [&](const Place& at) {
    for (std::int64_t h = 0; h < c.dim("kv_heads"); ++h) {
      const std::vector<double> weights = weights_of(c, at, h);
      const auto visible = static_cast<std::int64_t>(weights.size());
      std::vector<std::tuple<bool, double, std::int64_t>> order;
      for (std::int64_t j = 0; j < visible; ++j) {
        const bool forced = j < c->first_blocks || j >= visible - c->local_blocks;
        order.emplace_back(!forced, forced ? 0 : -weights[static_cast<std::size_t>(j)], j);
      }
      std::sort(order.begin(), order.end());
      std::vector<std::int64_t> chosen;
      for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), c->count); ++i)
        chosen.push_back(std::get<2>(order[i]));
      std::sort(chosen.begin(), chosen.end());
      for (std::size_t i = 0; i < chosen.size(); ++i)
        out.set({at.batch, at.row, h, static_cast<std::int64_t>(i)}, static_cast<double>(chosen[i]));
    }
  });
  exact.set("out", result);
}

const OptionRule some_blocks =
    between(0, 1 << 20, "a number of blocks from 0 to 2^20", "give another number");

}  // namespace

const OperatorSchema& nsa_select_schema() {
  using Op = NsaSelect;
  static const OperatorSchema table =
      Schema<Op>("nsa_select", "the key blocks that matter most by the weights of compressed entries")
          .with(add_compressed_keys<Op>)
          .in(&Op::lse, "lse", vector_dims, is(f32),
              "the lse that nsa_compressed_attention gives for q and k")
          .with(add_windows<Op>("queries"))
          .option(&Op::count, "count", "entries of a row, at most 4096")
          .needed()
          .option(&Op::block_size, "block_size", "tokens of a block that is selected", block_size)
          .option(&Op::first_blocks, "first_blocks", "blocks of the beginning that are chosen before others",
                  some_blocks)
          .option(&Op::local_blocks, "local_blocks", "and blocks that end with the query's own", some_blocks)
          .with(add_positions<Op>)
          .let("blocks", "ceildiv(cu_seqlens ? longest : tokens, block_size)")
          .require("count", "0 <= count & count <= 4096", "a number of blocks from 0 to 4096",
                   "select larger blocks")
          .out(&Op::out, "out", compressed_dims("queries", "kv_heads", "count"), is(i32),
               "block numbers in ascending order, -1 where fewer exist")
          .source("Yuan et al. 2025, Native Sparse Attention: selection by the compressed branch")
          .no_gradient("it chooses")
          .flops(
              "2*batch*kv_heads*group*d*(key_tokens > 0 ? queries*entries : "
              "queries*queries/(2*stride))")
          .examples(
              {{"small",
                "batch=1 queries=19 entries=9 kv_heads=1 group=2 d=8 length=4 stride=2 block_size=4 count=3 "
                "key_tokens=21"},
               {"grouped_bhsd",
                "batch=2 queries=150 entries=36 kv_heads=2 group=6 d=16 length=8 stride=4 block_size=8 "
                "count=5 local_blocks=1 layout=bhsd"},
               {"packed_f16",
                "sequences=4 queries=170 entries=42 kv_heads=2 group=4 d=16 f16 length=6 stride=4 "
                "block_size=10 count=4 first_blocks=0 cu_seqlens"},
               {"group_of_16_bf16",
                "batch=1 queries=90 entries=80 kv_heads=1 group=16 d=64 bf16 length=2 stride=1 block_size=3 "
                "count=9"},
               {"more_blocks_than_a_warp_holds",
                "batch=1 queries=3 entries=1040 kv_heads=1 group=1 d=8 length=2 stride=2 block_size=1 "
                "count=5 key_tokens=2080"},
               {"many_entries_of_a_block",
                "batch=1 queries=100 entries=49 kv_heads=2 group=2 d=16 f16 length=4 stride=2 block_size=32 "
                "count=2"},
               {"forced_more_than_count",
                "batch=1 queries=70 entries=9 kv_heads=1 group=1 d=8 length=4 stride=4 block_size=4 count=2 "
                "first_blocks=2 local_blocks=3"}})
          .measured({{"8192_bf16",
                      "batch=1 queries=8192 entries=511 kv_heads=4 group=16 d=128 bf16 length=32 stride=16 "
                      "count=16"},
                     {"65536_of_16_heads_bf16",
                      "batch=1 queries=65536 entries=4095 kv_heads=1 group=16 d=128 bf16 length=32 stride=16 "
                      "count=16"},
                     {"decode_65536_bf16",
                      "batch=32 queries=1 entries=4095 kv_heads=4 group=16 d=128 bf16 length=32 stride=16 "
                      "key_tokens=65536 count=16"}})
          .run(run, formula);
  return table;
}

tegula::Tensor nsa_select(const TensorRef& q, const TensorRef& k, const TensorRef& lse, std::int64_t count,
                          NsaSelect options) {
  options.count = count;
  return results_of<tegula::Tensor>(nsa_select_schema(), options, {q, k, lse});
}

}  // namespace tegula::ops
