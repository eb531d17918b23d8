#include "ops/selection/kernels.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

constexpr int topk_rows = 8;  // of a tile of scores

// A sum of many terms that is as exact as one of few: what rounding takes from it is added to the next term.
class LongSum {
 public:
  explicit LongSum(int extent) : sum_({extent}, f32, 0), lost_({extent}, f32, 0) {}

  void add(const Fragment& terms) {
    parallel(sum_, [&](Index d) {
      Expr term = terms(d) - lost_(d), before = sum_(d), after = before + term;
      lost_(d) = (after - before) - term;
      sum_(d) = after;
    });
  }
  Fragment& total() { return sum_; }

 private:
  Fragment sum_, lost_;
};

// pooled[block] = mean of the rows of `from` [tokens, group, d] in that block, over all members of the group.
void pool(const Tensor& from, const Tensor& pooled, const Expr& block, int size, int rows_at_once, int group,
          int dim) {
  const int rows = std::min(size, rows_at_once);
  Expr begin = block * size, end = min(begin + size, from.extent(0));
  Tensor members = from.slice(range(begin, end));
  LongSum total(dim);
  serial(group, [&](Index g) {
    serial(ceildiv(end - begin, rows), [&](Index step) {
      Fragment part({rows, dim}, f32);
      copy(members.slice(all, g).at(step * rows), part);
      total.add(reduce_sum(part, 0));
    });
  });
  Fragment& sum = total.total();
  Expr weight = 1.f / f32((end - begin) * group);
  parallel(sum, [&](Index d) { sum(d) *= weight; });
  copy(sum, pooled.slice(block));
}

// Blocks of keys that the last query of q block `block` does not reach lie behind the result.
Expr seen_blocks(const Expr& block, int q_block, int k_block, const Expr& queries, const Expr& keys) {
  Expr last = min((block + 1) * q_block, queries) + keys - queries;
  return ceildiv(clamp(last, 0, keys), k_block);
}

}  // namespace

Kernel block_scores_kernel(const BlockScoresKernel& c) {
  return kernel(instance_name("block_scores", c), [&] {
    Dim batch("batch"), queries("queries"), keys("keys"), heads("heads"), kv_heads("kv_heads");
    Tensor q = input("q", {batch, queries, heads, c.group, c.dim}, c.type);
    Tensor k = input("k", {batch, keys, kv_heads, c.dim}, c.type);
    Expr q_blocks = ceildiv(queries, c.q_block), k_blocks = ceildiv(keys, c.k_block);
    Tensor out = output("out", {batch, heads, q_blocks, k_blocks}, f32);
    Expr scale = scalar("scale", f32);
    Tensor q_means = workspace("q_means", {batch, heads, q_blocks, c.dim}, f32);
    Tensor k_means = workspace("k_means", {batch, kv_heads, k_blocks, c.dim}, f32);

    grid(q_blocks, heads, batch, [&](Index x, Index h, Index b) {
      pool(q.slice(b, all, h), q_means.slice(b, h), x, c.q_block, c.summed, c.group, c.dim);
    });
    grid(k_blocks, kv_heads, batch, [&](Index x, Index h, Index b) {
      pool(k.slice(b, all, range(h, h + 1)), k_means.slice(b, h), x, c.k_block, c.summed, 1, c.dim);
    });
    Expr all_heads = heads * batch;
    grid(ceildiv(k_blocks, c.columns), ceildiv(q_blocks, c.rows), all_heads, [&](Index x, Index y, Index z) {
      Expr b = z / heads, h = z % heads, row = y * c.rows, column = x * c.columns;
      Shared left({c.rows, c.dim}, f32), right({c.columns, c.dim}, f32);
      copy(q_means.slice(b, h).at(row), left);
      copy(k_means.slice(b, h / (heads / kv_heads)).at(column), right);
      Fragment scores({c.rows, c.columns}, f32, 0);
      gemm(left, right.T(), scores);
      parallel(scores, [&](Index i, Index j) {
        Expr score = scores(i, j) * scale;
        if (c.causal)
          scores(i, j) =
              select(column + j < seen_blocks(row + i, c.q_block, c.k_block, queries, keys), score, -inf);
        else
          scores(i, j) = score;
      });
      copy(scores, out.slice(b, h).at(row, column));
    });
  });
}

namespace {

// Larger scores have larger keys. 0: not to be chosen, −∞ and NaN; both zeros have one key.
Expr sort_key(const Expr& score) {
  Expr bits = bitcast(select(score == 0, 0, score), u32);
  Expr ordered = select(bits >> 31 == 1u, ~bits, bits | 0x80000000u);
  return select(score > -inf, ordered, 0u);
}

constexpr std::uint32_t kept = 0xffffffffu;  // above the key of every score

struct Topk {
  const TopkKernel& c;
  Dim all_rows{"rows"}, blocks{"blocks"}, count{"count"};
  Tensor scores, out;
  std::optional<Expr> q_blocks, q_block, k_block, offset;

  explicit Topk(const TopkKernel& instance)
      : c(instance),
        scores(input("scores", {all_rows, blocks}, f32)),
        out(output("out", {all_rows, count}, i32)) {
    if (!c.diagonal) return;
    q_blocks.emplace(scalar("q_blocks", i32));
    q_block.emplace(scalar("q_block", i32));
    k_block.emplace(scalar("k_block", i32));
    offset.emplace(scalar("offset", i32));
  }

  Expr key_of(const Expr& score, const Expr& row, const Expr& block) const {
    Expr key = sort_key(score);
    std::optional<Expr> keep;
    if (c.first) keep.emplace(block == 0);
    if (c.diagonal) {
      Expr last = (row % *q_blocks + 1) * *q_block - 1 + *offset;
      Expr diagonal = block == min(floordiv(last, *k_block), blocks - 1);
      Expr both = keep ? *keep || diagonal : diagonal;
      keep.emplace(both);
    }
    return keep ? select(*keep && key != 0u, kept, key) : key;
  }

  // How many keys of each row reach `bound`.
  void count_from(const Expr& first, Fragment& bound, Fragment& number) {
    fill(number, 0);
    serial(ceildiv(blocks, c.columns), [&](Index step) {
      Fragment part({topk_rows, c.columns}, f32), reaches({topk_rows, c.columns}, i32);
      copy(scores.at(first, step * c.columns), part, {.fill = -std::numeric_limits<double>::infinity()});
      parallel(part, [&](Index r, Index j) {
        Expr key = key_of(part(r, j), first + r, step * c.columns + j);
        reaches(r, j) = select(key >= bound(r), 1, 0);
      });
      reduce_sum(reaches, number);
    });
  }

  void block(const Expr& first);
};

// The count-th largest key of a row is found bit by bit; keys above it are chosen, and of equal ones the
// first.
void Topk::block(const Expr& first) {
  Fragment bound({topk_rows}, u32, 0u), tried({topk_rows}, u32), number({topk_rows}, i32);
  serial(32, [&](Index bit) {
    parallel(bound, [&](Index r) { tried(r) = bound(r) | u32(1) << u32(31 - bit); });
    count_from(first, tried, number);
    parallel(bound, [&](Index r) { bound(r) = select(number(r) >= count, tried(r), bound(r)); });
  });
  parallel(tried, [&](Index r) { tried(r) = select(bound(r) == kept, kept, bound(r) + 1u); });
  count_from(first, tried, number);
  parallel(topk_rows, [&](Index r) {
    // Rows with fewer blocks than wanted have the bound 0: all their keys are above it.
    Expr row = first + r, above = select(bound(r) == kept, 0, number(r));
    Var taken = 0, equal = select(bound(r) == 0u, 0, count - above);
    serial(blocks, [&](Index j) {
      Expr key = key_of(scores(row, j), row, j);
      Expr tie = key == bound(r) && equal > 0;
      when(row < all_rows && (key > bound(r) || tie), [&] {
        out(row, taken) = j;
        taken += 1;
        when(tie, [&] { equal -= 1; });
      });
    });
    serial(range(taken, count), [&](Index j) { out(row, j) = -1; });
  });
}

}  // namespace

Kernel topk_kernel(const TopkKernel& c) {
  return kernel(instance_name("topk_blocks", c), [&] {
    Topk program(c);
    grid(ceildiv(program.all_rows, topk_rows), [&](Index x) { program.block(x * topk_rows); });
  });
}

}  // namespace tegula::ops
