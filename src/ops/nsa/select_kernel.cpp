#include "ops/nsa/select_kernel.hpp"

#include <functional>

#include "ops/pieces/scores.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr std::uint32_t kept = 0xffffffffu;  // above the key of every weight
// Only the weights of the queries of so many resident blocks stay in the cache.
constexpr int blocks_of_processor = 2;
// A warp counts chosen blocks of a chunk in the lower bits of a number and ties in the others.
constexpr int count_bits = 13;

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
  // One past the last is always there to be read.
  Expr last = c.packed ? max(longest / stride + 1, 0) : Expr(entries);
  Tensor weights = workspace("weights", {slots, c.queries, last + 1}, f32);

  explicit Select(const SelectKernel& instance) : CompressedProgram(instance.heads), kernel(instance) {}

  // Blocks of the grid take tiles in turn, those of later queries first, which see more.
  void run() {
    grid(slots, [&](Index slot) {
      Expr tiles = ceildiv(longest, c.queries), heads = tiles * kv_heads, all_tiles = heads * sequences();
      serial(ceildiv(all_tiles - slot, slots), [&](Index n) {
        Expr tile = slot + n * slots, others = kv_heads * sequences(), other = tile % others;
        const CompressedSequence s = sequence(other / kv_heads);
        const EntrySight sight_of = sight(s);
        if (c.packed) s.check(longest);
        Expr first = (tiles - 1 - tile / others) * c.queries;
        when(first < sight_of.queries, [&] {
          const Tensor own = weights.slice(slot);
          for (int chunk = 0; chunk < kernel.chunks; ++chunk) weigh(first, other % kv_heads, chunk, s, own);
          choose(first, s, other % kv_heads, own);
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
    Shared lse_tile({c.rows()}, f32);
    load_vector(vector_of(lse, s, head), first, lse_tile, c.pack);
    // Times log2(e). A query that sees nothing gives no weight.
    const Fragment base =
        map(lse_tile, [&](Index r) { return select(lse_tile(r) == -inf, inf, lse_tile(r) * log2e); });
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

  // What a warp asks of each of its blocks, computed once: divisions by numbers known at run time, written
  // out for every register, are most of a program.
  struct Row {
    Var query, seen, limit, each, before;

    Row(const Select& own, const EntrySight& sight_of, const Expr& at)
        : query(at),
          seen(clamp(floordiv(at + sight_of.shift, own.block_size) + 1, 0, own.blocks)),
          limit(sight_of.limit(at)),
          each(own.block_size / own.stride),
          before(ceildiv(own.length, own.stride) - 1) {}
  };

  // The entries that share a token with a block.
  Range entries_at(const Expr& block, const EntrySight& sight_of, const Row& row) const {
    const Windows& windows = sight_of.windows;
    if (!kernel.aligned)
      return range(windows.ending_behind(block * block_size),
                   min(windows.beginning_before((block + 1) * block_size), row.limit));
    return range(max(block * row.each - row.before, 0), min((block + 1) * row.each, row.limit));
  }

  // The keys of the blocks from `begin` on.
  void form_keys(const Tensor& own, const EntrySight& sight_of, const Row& row, const Expr& begin,
                 Fragment& keys) const {
    // A separate loop that reads every entry, so that no load waits for a branch.
    const Fragment found = map(keys, [&](Index j) -> Expr {
      const Range near = entries_at(begin + j, sight_of, row);
      Var weight = 0.0f;
      const auto add = [&](const Expr& n) {
        Expr read = own(min(n, last)), own_weight = select(n < near.end, read, 0);
        if (kernel.weight == BlockWeight::sum)
          weight += own_weight;
        else
          weight = max(weight, own_weight);
      };
      if (kernel.entries == 0)
        serial(near, [&](Index n) { add(n); });
      else
        for (int n = 0; n < kernel.entries; ++n) add(near.begin + n);
      return weight;
    });
    parallel(keys, [&](Index j) {
      Expr here = begin + j, forced = here < first_blocks || here >= row.seen - local_blocks;
      Expr key = select(isnan(found(j)), 1u, bitcast(found(j), u32) + 1u);
      keys(j) = select(here < row.seen, select(forced, kept, key), 0u);
    });
  }

  void choose(const Expr& first, const CompressedSequence& s, const Expr& kv_head, const Tensor& own) const {
    const EntrySight sight_of = sight(s);
    each_group(c.queries, Group::warp, [&](Index i) {
      when(first + i < sight_of.queries, [&] {
        const Var b = s.batch, head = kv_head;
        const Row row(*this, sight_of, first + i);
        choose_blocks(out.slice(b, s.tokens, head).slice(row.query), own.slice(i), sight_of, row);
      });
    });
  }

  void choose_blocks(const Tensor& to, const Tensor& own, const EntrySight& sight_of, const Row& row) const {
    Fragment all_keys({kernel.columns}, u32);
    const auto form = [&](const Expr& begin, Fragment& keys) { form_keys(own, sight_of, row, begin, keys); };
    if (kernel.held) form(0, all_keys);
    const std::function<void(const ChunkBody&)> each = [&](const ChunkBody& body) {
      if (kernel.held) return body(0, all_keys);
      serial(ceildiv(row.seen, kernel.columns), [&](Index chunk) {
        Fragment keys({kernel.columns}, u32);
        form(chunk * kernel.columns, keys);
        body(chunk * kernel.columns, keys);
      });
    };
    Var bound = 0u;
    find_bound(each, row.seen, bound);
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

}  // namespace

Kernel select_program(const SelectKernel& c) {
  return kernel(instance_name("nsa_select", c), [&] { Select(c).run(); });
}

}  // namespace tegula::ops
