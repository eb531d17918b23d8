#include <algorithm>
#include <limits>

#include "ops/latent/topk_kernel.hpp"
#include "ops/lists/ranked.hpp"
#include "ops/pieces/sort_key.hpp"
#include "ops/schema/schema.hpp"
#include "tegula/ops/selection.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int topk_rows = 8;  // of a tile of scores

struct TopkInstance {
  bool first = false, diagonal = false;
  bool share = false;  // rows end where they have a share of the weights
  int columns = 256;   // of a tile of scores

  auto fields() const {
    return std::tuple(labelled("t", columns), labelled("first", first), labelled("diagonal", diagonal),
                      labelled("share", share));
  }
};

constexpr std::uint32_t kept = 0xffffffffu;  // above the key of every score

struct Topk {
  const TopkInstance& c;
  Dim all_rows{"rows"}, blocks{"blocks"}, count{"count"};
  Tensor scores = input("scores", {all_rows, blocks}, f32), out = output("out", {all_rows, count}, i32);
  std::optional<Expr> share = c.share ? std::optional(scalar("share", f32)) : std::nullopt;
  Expr q_blocks = of_diagonal("q_blocks"), q_block = of_diagonal("q_block_size");
  Expr k_block = of_diagonal("k_block_size"), offset = of_diagonal("key_offset");

  Expr of_diagonal(const char* name) const { return c.diagonal ? scalar(name, i32) : Expr(1); }
  Expr key_of(const Expr& score, const Expr& row, const Expr& block) const {
    Expr key = sort_key(score), last = (row % q_blocks + 1) * q_block - 1 + offset;
    Expr diagonal = block == min(floordiv(last, k_block), blocks - 1);
    if (!c.first && !c.diagonal) return key;
    Expr keep = !c.diagonal ? block == 0 : !c.first ? diagonal : block == 0 || diagonal;
    return select(keep && key != 0u, kept, key);
  }

  void load(const Expr& first, const Expr& step, Fragment& tile) {
    copy(scores.at(first, step * c.columns), tile, {.fill = -std::numeric_limits<double>::infinity()});
  }

  // How many keys of each row reach `bound`.
  void count_from(const Expr& first, Fragment& bound, Fragment& number) {
    fill(number, 0);
    serial(ceildiv(blocks, c.columns), [&](Index step) {
      Fragment tile({topk_rows, c.columns}, f32), reaches({topk_rows, c.columns}, i32);
      load(first, step, tile);
      parallel(tile, [&](Index r, Index j) {
        Expr key = key_of(tile(r, j), first + r, step * c.columns + j);
        reaches(r, j) = select(key >= bound(r), 1, 0);
      });
      reduce_sum(reaches, number);
    });
  }

  // The weights of keys are relative to the largest score of the row, which may be infinite.
  static Expr weight_of(const Expr& score, const Expr& key, const Expr& top) {
    return select(key == 0u, 0, select(score == top, 1.f, exp2((score - top) * log2e)));
  }

  // What the keys of each row that reach `bound` weigh together: sums of the same order, which do not grow
  // with the bound.
  void weigh_from(const Expr& first, Fragment& bound, Fragment& top, Fragment& weight) {
    fill(weight, 0);
    serial(ceildiv(blocks, c.columns), [&](Index step) {
      Fragment tile({topk_rows, c.columns}, f32);
      load(first, step, tile);
      parallel(tile, [&](Index r, Index j) {
        Expr key = key_of(tile(r, j), first + r, step * c.columns + j);
        tile(r, j) = select(key >= bound(r), weight_of(tile(r, j), key, top(r)), 0);
      });
      reduce_sum(tile, weight);
    });
  }

  // The largest bound that `reaches(tried)` says is low enough, for each row, bit by bit.
  template <class F>
  void search(Fragment& bound, Fragment& tried, const F& reaches) {
    serial(32, [&](Index bit) {
      parallel(bound, [&](Index r) { tried(r) = bound(r) | u32(1) << u32(31 - bit); });
      reaches();
    });
  }

  static void raise(Fragment& bound, Fragment& tried) {
    parallel(tried, [&](Index r) { tried(r) = select(bound(r) == kept, kept, bound(r) + 1u); });
  }

  // The count-th largest key of a row is found bit by bit; keys above it are chosen, and of equal ones the
  // first.
  void block(const Expr& first) {
    Fragment bound({topk_rows}, u32, 0u), tried({topk_rows}, u32), number({topk_rows}, i32);
    search(bound, tried, [&] {
      count_from(first, tried, number);
      parallel(bound, [&](Index r) { bound(r) = select(number(r) >= count, tried(r), bound(r)); });
    });
    if (c.share) return block_of_share(first, bound, tried, number);
    raise(bound, tried);
    count_from(first, tried, number);
    write(
        first, bound, number, [](const Expr&) { return Expr(true); }, [](const Expr&, const Expr&) {});
  }

  // The bound becomes the largest whose keys weigh enough, if that is above it.
  void block_of_share(const Expr& first, Fragment& bound, Fragment& tried, Fragment& number) {
    Fragment top({topk_rows}, f32, -inf), weight({topk_rows}, f32), goal({topk_rows}, f32),
        heavy({topk_rows}, u32, 0u);
    serial(ceildiv(blocks, c.columns), [&](Index step) {
      Fragment tile({topk_rows, c.columns}, f32);
      load(first, step, tile);
      reduce_max(tile, top);
    });
    weigh_from(first, heavy, top, goal);
    parallel(goal, [&](Index r) { goal(r) *= *share; });
    search(heavy, tried, [&] {
      weigh_from(first, tried, top, weight);
      parallel(heavy, [&](Index r) { heavy(r) = select(weight(r) >= goal(r), tried(r), heavy(r)); });
    });
    parallel(bound, [&](Index r) { bound(r) = max(bound(r), heavy(r)); });
    raise(bound, tried);
    count_from(first, tried, number);
    weigh_from(first, tried, top, weight);
    // Of keys that are equal only so many are taken as are needed.
    write(
        first, bound, number, [&](const Expr& r) { return bound(r) == kept || weight(r) < goal(r); },
        [&](const Expr& r, const Expr& j) {
          weight(r) += weight_of(scores(first + r, j), bound(r), top(r));
        });
  }

  // Keys above the bound, of which there are `number`, and of equal ones the first, while `wants` says so.
  template <class Wants, class Took>
  void write(const Expr& first, Fragment& bound, Fragment& number, const Wants& wants, const Took& took) {
    parallel(topk_rows, [&](Index r) {
      // Rows with fewer blocks than wanted have the bound 0: all their keys are above it.
      Expr row = first + r, above = select(bound(r) == kept, 0, number(r));
      Var taken = 0, equal = select(bound(r) == 0u, 0, count - above);
      serial(blocks, [&](Index j) {
        Expr key = key_of(scores(row, j), row, j);
        Expr tie = c.share ? key == bound(r) && equal > 0 && wants(r) : key == bound(r) && equal > 0;
        when(row < all_rows && (key > bound(r) || tie), [&] {
          out(row, taken) = j;
          taken += 1;
          when(tie, [&] {
            equal -= 1;
            took(r, j);
          });
        });
      });
      serial(range(taken, count), [&](Index j) { out(row, j) = -1; });
    });
  }
};

Kernel topk_program(const TopkInstance& c) {
  return kernel(instance_name("topk_blocks", c), [&] {
    Topk topk{c};
    grid(ceildiv(topk.all_rows, topk_rows), [&](Index x) { topk.block(x * topk_rows); });
  });
}

// By digits of the keys, as `topk_select` chooses: a GPU's threads count what a CPU compares by vectors.
void choose_by_digits(const Bound<TopkBlocks>& c, Launch& launch) {
  const std::int64_t rows = c.dim("q_blocks"), columns = c.dim("k_blocks"),
                     lists = c.dim("batch") * c.dim("heads");
  TopkKernel kernel = topk_instance(lists * rows, columns, c->count, false, false, false);
  kernel.first = c->keep_first, kernel.diagonal = c->keep_diagonal;
  launch(kernel, topk_kernel,
         {{"scores", c.rows("scores", 3).reshape({lists, rows, columns})},
          {"out", c.rows("out", 3).reshape({lists, rows, c->count})}});
}

void run(const Bound<TopkBlocks>& c, Launch& launch) {
  if (c.on_gpu() && c->share == 0) return choose_by_digits(c, launch);
  launch(TopkInstance{c->keep_first, c->keep_diagonal, c->share > 0, c.dim("k_blocks") <= 32 ? 32 : 256},
         topk_program, {{"scores", c.rows("scores", 3)}, {"out", c.rows("out", 3)}});
}

// How many of the blocks, in the order in which they are selected, have the share of the weights.
std::size_t blocks_of_share(const TopkBlocks& op, const double* scores, std::vector<Ranked>& order) {
  if (op.share == 0) return order.size();
  std::sort(order.begin(), order.end());
  double top = -std::numeric_limits<double>::infinity(), total = 0, sum = 0;
  for (const Ranked& own : order) top = std::max(top, scores[own.number]);
  const auto weight = [&](const Ranked& own) {
    return scores[own.number] == top ? 1 : std::exp(scores[own.number] - top);
  };
  for (const Ranked& own : order) total += weight(own);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i].later && sum >= static_cast<double>(op.share) * total) return i;
    sum += weight(order[i]);
  }
  return order.size();
}

void formula(const Bound<TopkBlocks>& c, Exact& exact) {
  const std::int64_t blocks = c.dim("k_blocks");
  const double* scores = exact.data("scores");
  auto* out = exact["out"].data_as<std::int32_t>();
  std::fill_n(out, exact["out"].nelements(), -1);
  for (std::int64_t row = 0; row * c->count < exact["out"].nelements(); ++row, scores += blocks) {
    const auto last =
        static_cast<double>((row % c.dim("q_blocks") + 1) * c->q_block_size - 1 + c->key_offset);
    const double diagonal = std::min<double>(std::floor(last / c->k_block_size), blocks - 1);
    const auto kept = [&](auto j) {
      return (c->keep_first && j == 0) || (c->keep_diagonal && j == diagonal);
    };
    std::vector<Ranked> order;
    for (std::int64_t j = 0; j < blocks; ++j)
      if (scores[j] > -std::numeric_limits<double>::infinity()) order.emplace_back(kept(j), scores[j], j);
    const std::size_t most = blocks_of_share(*c, scores, order);
    std::ranges::copy(chosen_of(order, std::min<std::size_t>(most, c->count)), out + row * c->count);
  }
}

std::vector<Example> choice_examples() {
  return {
      {"small", "batch=1 heads=1 q_blocks=2 k_blocks=6 count=4"},
      {"ties", "batch=1 heads=2 q_blocks=5 k_blocks=40 count=7"},
      {"more_than_blocks", "batch=2 heads=1 q_blocks=3 k_blocks=6 count=9"},
      {"share", "batch=1 heads=2 q_blocks=5 k_blocks=40 count=40 share=0.9"},
      {"share_kept", "batch=1 heads=1 q_blocks=12 k_blocks=12 count=6 share=0.5 keep_first keep_diagonal"},
      {"kept", "batch=1 heads=1 q_blocks=12 k_blocks=12 count=3 keep_first keep_diagonal"}};
}

}  // namespace

const OperatorSchema& topk_blocks_schema() {
  using Op = TopkBlocks;
  constexpr double largest = (1 << 29) - 1;
  static const OperatorSchema table =
      Schema<Op>("topk_blocks", "the blocks with the largest scores of every row, in ascending order")
          .in(&Op::scores, "scores", "batch heads q_blocks k_blocks", is(f32),
              "-inf and NaN are never selected")
          .range("-9", "9")
          .option(&Op::count, "count", "blocks of a row")
          .needed()
          .option(&Op::keep_first, "keep_first", "block 0 is always selected first")
          .option(&Op::keep_diagonal, "keep_diagonal",
                  "the block of the row's last query is always selected first")
          .option(&Op::q_block_size, "q_block_size", "queries of a block, for the diagonal", block_size)
          .option(&Op::k_block_size, "k_block_size", "keys of a block, for the diagonal", block_size)
          .option(&Op::key_offset, "key_offset", "keys - queries, for the diagonal",
                  between(-largest, largest, "a number below 2^29 in magnitude", "give keys - queries"))
          .option(&Op::share, "share",
                  "only the fewest blocks whose weights, exp(score), have this share of the row's sum; 0: "
                  "count blocks, whatever they weigh",
                  between(0, 1, "a share from 0 to 1", "give a fraction of the row's weight"))
          // Lists of calls of many lengths may have one width.
          .let("most", "max(k_blocks, 4096)")
          .require("count", "0 <= count & count <= most",
                   "a number of blocks from 0 to {most}: there are {k_blocks}",
                   "request no more than there are")
          .out(&Op::out, "out", "batch heads q_blocks count", is(i32), "block numbers, -1 where fewer exist")
          .source(
              "the selection of Yuan et al. 2025, Native Sparse Attention, with its first and local blocks; "
              "shares as in Xu et al. 2025, XAttention")
          .no_gradient("it chooses")
          .examples(choice_examples())
          .measured({{"1024_of_1024x1024", "batch=1 heads=1 q_blocks=1024 k_blocks=1024 count=100"},
                     {"16_of_8x256x256", "batch=1 heads=8 q_blocks=256 k_blocks=256 count=16"}})
          .built_in({"batch=1 heads=1 q_blocks=64 k_blocks=64 count=1 {|keep_first keep_diagonal}"})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
