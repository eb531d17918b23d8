#include "ops/nsa_compressed/select_kernel.hpp"

#include "ops/nsa_compressed/block_choice.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

// A tile of tokens leaves the weights of entries, summed over heads, in a workspace of its own, combined for
// each block where blocks begin with windows. Then a warp takes a query and chooses.
struct Select : CompressedProgram {
  const SelectKernel& kernel;
  Dim count{"count"};
  Tensor lse = input("lse", vector(), f32), out = output("out", {batch, queries, kv_heads, count}, i32);
  Expr block_size = scalar("block_size", i32), first_blocks = scalar("first_blocks", i32),
       local_blocks = scalar("local_blocks", i32), blocks = scalar("blocks", i32);
  Expr resident = processors() * kernel.resident;
  // One past the last is always there to be read.
  Expr last = c.packed ? max(longest / stride + 1, 0) : Expr(entries);
  Tensor weights =
      workspace("weights", {resident, kernel.begun > 0 ? 2 * c.queries : c.queries, width()}, f32);

  explicit Select(const SelectKernel& instance) : CompressedProgram(instance.heads), kernel(instance) {}

  // Of a row of weights. Of blocks, as many as a warp reads at a time and those of the last step after them;
  // what reaches into a block has a row of its own.
  Expr width() const {
    if (kernel.begun == 0) return last + 1;
    if (kernel.held) return Expr(kernel.columns + kernel.blocks_of_step());
    return ceildiv(blocks, kernel.columns) * kernel.columns + kernel.blocks_of_step();
  }

  // Blocks of the grid take tiles one after another, those of later queries first, which see more.
  void run() {
    grid(resident, [&](Index block) {
      Expr tiles = ceildiv(longest, c.queries), heads = tiles * kv_heads, all_tiles = heads * sequences();
      serial(ceildiv(all_tiles - block, resident), [&](Index n) {
        Expr tile = block + n * resident, others = kv_heads * sequences(), other = tile % others;
        const CompressedSequence s = sequence(other / kv_heads);
        const EntrySight sight_of = sight(s);
        if (c.packed) s.check(longest);
        Expr first = (tiles - 1 - tile / others) * c.queries;
        when(first < sight_of.queries, [&] {
          const Tensor own = weights.slice(block);
          for (int chunk = 0; chunk < kernel.chunks; ++chunk) weigh(first, other % kv_heads, chunk, s, own);
          choose(first, s, other % kv_heads, own);
        });
      });
    });
  }

  // Of the product: with all entries that some query of a tile sees.
  Expr steps(const EntrySight& sight_of, const Expr& first) const {
    return ceildiv(sight_of.limit(first + c.queries - 1), c.keys);
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
    std::optional<Shared> limits;
    if (kernel.begun > 0) {
      limits.emplace(std::initializer_list<int>{c.queries}, i32);
      parallel(c.queries, [&](Index i) { (*limits)(i) = sight(s).limit(first + i); });
    }
    pipelined(steps(sight(s), first), {.stages = 2}, [&](Index tile) {
      Shared k_tile({c.keys, c.features()}, c.compute);
      copy(k_of.at(tile * c.keys), k_tile);
      // Heads are columns: a thread has several of each row.
      Fragment scores({c.keys, c.rows()}, f32, 0);
      gemm(k_tile, q_tile.T(), scores);
      parallel(scores, [&](Index n, Index r) { scores(n, r) = exp2(scores(n, r) * scale - base(r)); });
      const auto leave = [&](const Fragment& found) {
        if (limits)
          add_blocks(found, *limits, own, tile, chunk > 0);
        else
          add_weights(found, own, tile * c.keys, chunk > 0);
      };
      if (c.pack == 1)
        leave(scores);
      else
        leave(reduce_sum(scores.reshape({c.keys, c.queries, c.pack}), 2));
    });
  }

  // The blocks of a step, by way of shared memory: a thread combines the entries of one of them that its
  // query sees.
  void add_blocks(const Fragment& found, const Shared& limits, const Tensor& own, const Expr& step,
                  bool add) const {
    Shared of_step({c.queries, c.keys}, f32);
    copy(found.T(), of_step);
    parallel(c.queries, kernel.blocks_of_step(), [&](Index i, Index block) {
      Var all = 0.0f, reaching = 0.0f;
      for (int n = 0; n < kernel.begun; ++n) {
        Expr entry = block * kernel.begun + n;
        const Var weight = select(step * c.keys + entry < limits(i), of_step(i, entry), 0);
        all = combined(all, weight);
        if (n >= kernel.begun - kernel.reaching()) reaching = combined(reaching, weight);
      }
      Expr at = step * kernel.blocks_of_step() + block;
      const auto leave = [&](const Expr& row, const Expr& column, const Expr& weight) {
        if (add)
          own(row, column) += weight;
        else
          own(row, column) = weight;
      };
      leave(i, at, all);
      if (kernel.reaching() > 0) leave(i + c.queries, at + 1, reaching);
    });
  }

  Expr combined(const Expr& a, const Expr& b) const {
    return kernel.weight == BlockWeight::sum ? a + b : max(a, b);
  }

  void add_weights(const Fragment& found, const Tensor& own, const Expr& entry, bool add) const {
    if (!add) return copy(found.T(), own.at(0, entry));
    parallel(found, [&](Index n, Index i) { own(i, entry + n) += found(n, i); });
  }

  // What a warp asks of each of its blocks, computed once: divisions by numbers known at run time, written
  // out for every register, are most of a program.
  struct Row {
    Tensor weights;  // of the tile; this row's is the `at`-th
    Var at, query, seen, limit, each, before;
    Expr filled;  // blocks that steps combined

    Row(const Select& own, const EntrySight& sight_of, const Tensor& of_tile, const Expr& first,
        const Expr& i)
        : weights(of_tile),
          at(i),
          query(first + i),
          seen(clamp(floordiv(query + sight_of.shift, own.block_size) + 1, 0, own.blocks)),
          limit(sight_of.limit(query)),
          each(own.block_size / own.stride),
          before(ceildiv(own.length, own.stride) - 1),
          filled(own.kernel.begun > 0 ? Expr(Var(own.steps(sight_of, first) * own.kernel.blocks_of_step()))
                                      : Expr(0)) {}
  };

  // The entries that share a token with a block.
  Range entries_at(const Expr& block, const EntrySight& sight_of, const Row& row) const {
    const Windows& windows = sight_of.windows;
    if (!kernel.aligned)
      return range(windows.ending_behind(block * block_size),
                   min(windows.beginning_before((block + 1) * block_size), row.limit));
    return range(max(block * row.each - row.before, 0), min((block + 1) * row.each, row.limit));
  }

  // The weights of the blocks from `begin` on, from those of entries.
  Fragment weights_of_entries(const EntrySight& sight_of, const Row& row, const Expr& begin,
                              const Fragment& keys) const {
    const Tensor own = row.weights.slice(row.at);
    // A separate loop that reads every entry, so that no load waits for a branch.
    return map(keys, [&](Index j) -> Expr {
      const Range near = entries_at(begin + j, sight_of, row);
      Var weight = 0.0f;
      const auto add = [&](const Expr& n) {
        Expr read = own(min(n, last));
        weight = combined(weight, select(n < near.end, read, 0));
      };
      if (kernel.entries == 0)
        serial(near, [&](Index n) { add(n); });
      else
        for (int n = 0; n < kernel.entries; ++n) add(near.begin + n);
      return weight;
    });
  }

  // The same from what steps combined. Blocks after them have no entries.
  Fragment weights_of_steps(const Row& row, const Expr& begin) const {
    Fragment found = load(row.weights.slice(row.at).at(begin), {kernel.columns});
    std::optional<Fragment> reaching;
    if (kernel.reaching() > 0)
      reaching.emplace(load(row.weights.slice(row.at + c.queries).at(begin), {kernel.columns}));
    parallel(found, [&](Index j) {
      Expr here = begin + j, own = select(here < row.filled, found(j), 0);
      found(j) = reaching ? combined(own, select(here > 0 && here <= row.filled, (*reaching)(j), 0)) : own;
    });
    return found;
  }

  void choose(const Expr& first, const CompressedSequence& s, const Expr& kv_head, const Tensor& own) const {
    const EntrySight sight_of = sight(s);
    const BlockChoice choice{kernel.columns, kernel.held, count, first_blocks, local_blocks};
    each_group(c.queries, Group::warp, [&](Index i) {
      when(first + i < sight_of.queries, [&] {
        const Var b = s.batch, head = kv_head;
        const Row row(*this, sight_of, own, first, i);
        const Tensor list = out.slice(b, s.tokens, head).slice(row.query);
        choice.choose(
            [&](const Expr& begin, const Fragment& keys) {
              return kernel.begun > 0 ? weights_of_steps(row, begin)
                                      : weights_of_entries(sight_of, row, begin, keys);
            },
            row.seen, [&](const Expr& place, const Expr& number) { list(place) = number; });
      });
    });
  }
};

}  // namespace

Kernel select_program(const SelectKernel& c) {
  return kernel(instance_name("nsa_select", c), [&] { Select(c).run(); });
}

}  // namespace tegula::ops
