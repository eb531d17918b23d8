#include <algorithm>
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
  int blocks = 15;    // of a step, whose entries mostly fill a tile of keys
  int chunks = 1;     // of the heads of a group, each of `pack`
  int columns = 256;  // of a step of the search
  // Of a row, each written by one thread.
  int parts() const { return columns / 8; }

  auto fields() const { return std::tuple(heads, joined("b", blocks, columns), labelled("n", chunks)); }
};

constexpr std::uint32_t kept = 0xffffffffu;  // above the key of every weight
// Of 128 threads, as many as have registers for their tiles.
constexpr int blocks_of_processor = 4;

// A tile of tokens writes a key for every block of its rows to a workspace of its own, larger for those that
// matter more and 0 for those that cannot be chosen; then it finds the count-th largest bit by bit.
struct Select : CompressedProgram {
  const SelectKernel& kernel;
  Dim count{"count"};
  Tensor lse = input("lse", vector(), f32), out = output("out", {batch, queries, kv_heads, count}, i32);
  Expr block_size = scalar("block_size", i32), first_blocks = scalar("first_blocks", i32),
       local_blocks = scalar("local_blocks", i32), blocks = scalar("blocks", i32);
  Expr slots = processors() * blocks_of_processor;
  Tensor keys = workspace("keys", {slots, c.queries, blocks}, u32);

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
          const Tensor own = keys.slice(slot);
          Expr visible = visible_blocks(min(first + c.queries, sight_of.queries) - 1, sight_of);
          weigh(first, other % kv_heads, s, own, visible);
          choose(first, out.slice(s.batch, s.tokens, other % kv_heads), own, visible);
        });
      });
    });
  }

  // Blocks up to the query's own.
  Expr visible_blocks(const Expr& query, const EntrySight& sight_of) const {
    return clamp(floordiv(query + sight_of.shift, block_size) + 1, 0, blocks);
  }

  void weigh(const Expr& first, const Expr& kv_head, const CompressedSequence& s, const Tensor& own,
             const Expr& visible) {
    const EntrySight sight_of = sight(s);
    Shared q_tile({c.rows(), c.features()}, c.compute), matter({c.queries, kernel.blocks}, f32);
    if (kernel.chunks == 1) load_queries(queries_of(q, s, kv_head), first, q_tile, c.pack);
    serial(ceildiv(visible, kernel.blocks), [&](Index step) {
      Expr block = step * kernel.blocks;
      clear(matter);
      for (int chunk = 0; chunk < kernel.chunks; ++chunk) {
        Expr head = kv_head * kernel.chunks + chunk;
        if (kernel.chunks > 1) load_queries(queries_of(q, s, head), first, q_tile, c.pack);
        add_entries(q_tile, first, head, kv_head, s, block, matter);
      }
      parallel(c.queries, kernel.blocks, [&](Index i, Index j) {
        Expr here = block + j, seen = visible_blocks(first + i, sight_of);
        Expr forced = here < first_blocks || here >= seen - local_blocks;
        Expr weight = matter(i, j);
        Expr key = select(isnan(weight), 1u, bitcast(weight, u32) + 1u);
        when(here < blocks, [&] { own(i, here) = select(here < seen, select(forced, kept, key), 0u); });
      });
    });
  }

  // What the heads of a tile add to the weights of the blocks from `block` on.
  void add_entries(const Shared& q_tile, const Expr& first, const Expr& head, const Expr& kv_head,
                   const CompressedSequence& s, const Expr& block, Shared& matter) {
    const EntrySight sight_of = sight(s);
    const Windows windows = sight_of.windows;
    Fragment base({c.rows()}, f32);
    load_lse(vector_of(lse, s, head), first, base);
    Expr begin = windows.ending_behind(block * block_size),
         end = min(windows.beginning_before((block + kernel.blocks) * block_size),
                   sight_of.limit(first + c.queries - 1));
    const Tensor k_of = entries_of(k, s, kv_head);
    pipelined(ceildiv(end - begin, c.keys), {.stages = 2}, [&](Index tile) {
      Expr entry = begin + tile * c.keys;
      Shared k_tile({c.keys, c.features()}, c.compute), weights({c.queries, c.keys}, f32);
      copy(k_of.at(entry), k_tile);
      Fragment scores({c.rows(), c.keys}, f32, 0);
      gemm(q_tile, k_tile.T(), scores);
      parallel(scores, [&](Index r, Index n) {
        Expr sees = sight_of.sees(first + r / c.pack, entry + n) && base(r) != -inf;
        scores(r, n) = select(sees, exp2(scores(r, n) * scale - base(r)), 0);
      });
      if (c.pack == 1)
        copy(scores, weights);
      else
        copy(reduce_sum(scores.reshape({c.queries, c.pack, c.keys}), 1), weights);
      parallel(c.queries, kernel.blocks, [&](Index i, Index j) {
        Expr from = max(windows.ending_behind((block + j) * block_size) - entry, 0),
             to = min(min(windows.beginning_before((block + j + 1) * block_size), end) - entry, c.keys);
        Var sum = matter(i, j);
        serial(range(from, to), [&](Index n) { sum += weights(i, n); });
        matter(i, j) = sum;
      });
    });
  }

  // Times log2(e).
  void load_lse(const Tensor& from, const Expr& first, Fragment& to) const {
    if (c.pack == 1)
      copy(from.at(first), to);
    else
      copy(from.at(0, first), to.reshape({c.queries, c.pack}).T());
    parallel(to, [&](Index r) { to(r) = to(r) * log2e; });
  }

  // How many keys of each row reach its bound.
  void count_from(const Tensor& own, const Expr& visible, const Fragment& bound, Fragment& number) const {
    clear(number);
    const int columns = kernel.columns;
    serial(ceildiv(visible, columns), [&](Index step) {
      Fragment part({c.queries, columns}, u32), reaches({c.queries, columns}, i32);
      copy(own.slice(all, range(0, visible)).at(0, step * columns), part);
      parallel(part, [&](Index i, Index j) { reaches(i, j) = select(part(i, j) >= bound(i), 1, 0); });
      reduce_sum(reaches, number);
    });
  }

  void choose(const Expr& first, const Tensor& to, const Tensor& own, const Expr& visible) {
    Fragment bound({c.queries}, u32, 0u), tried({c.queries}, u32), number({c.queries}, i32);
    Fragment found({c.queries}, boolean, false);
    // With fewer blocks than wanted the bound stays 0. A bound that just as many keys reach needs no more
    // bits.
    serial(select(visible > count, 32, 0), [&](Index bit) {
      parallel(bound, [&](Index i) { tried(i) = bound(i) | u32(1) << u32(31 - bit); });
      count_from(own, visible, tried, number);
      parallel(bound, [&](Index i) { bound(i) = select(number(i) >= count, tried(i), bound(i)); });
      parallel(found, [&](Index i) { found(i) = found(i) || number(i) == count; });
      break_if(reduce_all(found).scalar());
    });
    Shared bounds({c.queries}, u32);
    copy(bound, bounds);
    write(first, to, own, visible, bounds);
  }

  // Keys above the bound are chosen, and of those at the bound the first.
  void write(const Expr& first, const Tensor& to, const Tensor& own, const Expr& visible,
             const Shared& bounds) const {
    const int parts = kernel.parts();
    Shared above({c.queries, parts}, i32), equal({c.queries, parts}, i32);
    Expr each = ceildiv(visible, parts);
    const auto of_part = [&](const Expr& part) {
      return range(part * each, min((part + 1) * each, visible));
    };
    parallel(c.queries, parts, [&](Index i, Index part) {
      Var over = 0, same = 0;
      serial(of_part(part), [&](Index j) {
        Expr key = own(i, j);
        over += select(key > bounds(i), 1, 0);
        same += select(key == bounds(i) && key != 0u, 1, 0);
      });
      above(i, part) = over, equal(i, part) = same;
    });
    parallel(c.queries, parts, [&](Index i, Index part) {
      Var over = 0, same = 0, over_before = 0, same_before = 0;
      serial(parts, [&](Index other) {
        over += above(i, other), same += equal(i, other);
        over_before += select(other < part, above(i, other), 0);
        same_before += select(other < part, equal(i, other), 0);
      });
      Expr room = max(count - over, 0), taken = min(same_before, room);
      Var place = over_before + taken, left = room - taken;
      serial(of_part(part), [&](Index j) {
        Expr key = own(i, j), tie = key == bounds(i) && key != 0u && left > 0;
        when(key > bounds(i) || tie, [&] {
          to(first + i, place) = j;
          place += 1;
          when(tie, [&] { left -= 1; });
        });
      });
      Expr chosen = over + min(same, room);
      when(part == 0, [&] { serial(range(chosen, count), [&](Index n) { to(first + i, n) = -1; }); });
    });
  }
};

Kernel program(const SelectKernel& c) {
  return kernel(instance_name("nsa_select", c), [&] { Select(c).run(); });
}

SelectKernel plan(const Bound<NsaSelect>& c) {
  SelectKernel kernel{compressed_kernel(c, c.small_dim("d"))};
  const std::int64_t entries = std::int64_t{kernel.heads.keys - 1} * c->stride - c->length;
  kernel.blocks = static_cast<int>(std::clamp<std::int64_t>(entries / c->block_size, 1, kernel.heads.keys));
  kernel.chunks = std::max(c.small_dim("group") / kernel.heads.pack, 1);
  kernel.columns = c.dim("blocks") <= 32 ? 32 : 256;
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
          .option(&Op::block_size, "block_size", "tokens of a selected block", block_size)
          .option(&Op::first_blocks, "first_blocks", "leading blocks that are chosen before all others",
                  some_blocks)
          .option(&Op::local_blocks, "local_blocks",
                  "blocks up to the query's own that are chosen before all others", some_blocks)
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
