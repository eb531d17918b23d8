// The weights that attention gives to listed rows, as the mean over heads: what an indexer learns.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/latent/sparse_mla_call.hpp"
#include "ops/pieces/gradient.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Instance {
  DType type = f32, compute = f32;
  int dim = 64;
  TileFeatures padded = {};
  int rows = 64, keys = 64;  // heads and entries of a tile
  bool causal = false;

  auto fields() const {
    return std::tuple(type, compute, labelled("d", dim), padded, labelled("h", rows), labelled("k", keys),
                      labelled("causal", causal));
  }
};

// A block has entries of one list, and walks through the heads.
struct TargetProgram {
  const Instance& c;
  Dim batch{"batch"}, queries{"queries"}, keys{"keys"}, kv_heads{"kv_heads"}, group{"group"},
      entries{"entries"};
  Tensor q = input("q", {batch, queries, kv_heads, group, c.dim}, c.type);
  Tensor kv = input("kv", {batch, keys, kv_heads, c.dim}, c.type);
  Tensor indices = input("indices", {batch, queries, kv_heads, entries}, i32);
  Tensor lse = input("lse", {batch, queries, kv_heads, group}, f32);
  Tensor out = output("out", {batch, queries, kv_heads, entries}, f32);
  Expr scale = scalar("scale", f32);
  std::optional<Expr> offset;

  explicit TargetProgram(const Instance& instance) : c(instance) {
    if (c.causal) offset.emplace(scalar("offset", i32));
  }
  void block(const Expr& b, const Expr& query, const Expr& h, const Expr& entry) const {
    Shared rows({c.keys}, i32), k({c.keys, c.padded.of(c.dim)}, c.compute);
    copy(indices.slice(b, query, h).at(entry), rows, {.fill = -1});
    gather(kv.slice(b, all, h), rows, k);
    Fragment sum({c.keys}, f32, 0);
    Expr last = offset ? min(keys, query + *offset + 1) : Expr(keys);
    pipelined(ceildiv(group, c.rows), {.stages = 2}, [&](Index j) {
      Shared own({c.rows, c.padded.of(c.dim)}, c.compute);
      copy(q.slice(b, query, h).at(j * c.rows), own);
      Fragment base({c.rows}, f32), s({c.rows, c.keys}, f32, 0);
      copy(lse.slice(b, query, h).at(j * c.rows), base, {.fill = -std::numeric_limits<double>::infinity()});
      gemm(own, k.T(), s);
      // ∞ gives weights of 0: for an empty list, and after the last head.
      parallel(base,
               [&](Index i) { base(i) = select(base(i) == -inf, inf, LargeScores::base(base(i) * log2e)); });
      parallel(s, [&](Index i, Index n) {
        Expr seen = rows(n) >= 0 && rows(n) < last;
        s(i, n) = select(seen, min(exp2(s(i, n) * scale - base(i)), 1), 0);
      });
      reduce_sum(s, sum, 0);
    });
    parallel(sum, [&](Index n) { sum(n) *= rcp(f32(group)); });
    copy(sum, out.slice(b, query, h).at(entry));
  }
};

Kernel program(const Instance& c) {
  return kernel(instance_name("sparse_mla_target", c), [&] {
    TargetProgram own(c);
    Expr tiles = ceildiv(own.entries, c.keys);
    grid(own.queries * tiles, own.kv_heads * own.batch, [&](Index x, Index z) {
      own.block(z / own.kv_heads, x / tiles, z % own.kv_heads, x % tiles * c.keys);
    });
  });
}

void run(const Bound<SparseMlaTarget>& c, Launch& launch) {
  Instance kernel{.type = c.type("q"), .compute = multiplied_type(c.type("q"), c.on_gpu())};
  kernel.dim = c.small_dim("d"), kernel.causal = c->causal;
  kernel.padded = tile_features(kernel.dim, kernel.dim, kernel.compute);
  kernel.padded.copied = false;
  const bool small = c.on_gpu() && kernel.compute == f32;
  kernel.rows = small || c.dim("group") <= 16 ? 16 : 64, kernel.keys = small ? 32 : 64;
  launch(kernel, program,
         {{"scale", program_scale(static_cast<float>(c.real("scale")), 0)},
          {"offset", c.dim("keys") - c.dim("queries")}});
}

void formula(const Bound<SparseMlaTarget>& c, Exact& exact) {
  const auto q = exact.array("q"), kv = exact.array("kv"), lse = exact.array("lse"), out = exact.array("out");
  const auto* lists = exact["indices"].data_as<std::int32_t>();
  const std::int64_t keys = c.dim("keys"), queries = c.dim("queries"), group = c.dim("group"), d = c.dim("d");
  out.each([&](auto b, auto i, auto h, auto n) {
    const std::int64_t row = lists[((b * queries + i) * c.dim("kv_heads") + h) * c.dim("entries") + n];
    const std::int64_t last = c->causal ? std::min(keys, i + keys - queries + 1) : keys;
    double sum = 0;
    for (std::int64_t g = 0; g < group && row >= 0 && row < last; ++g) {
      double product = 0;
      for (std::int64_t f = 0; f < d; ++f) product += q(b, i, h, g, f) * kv(b, row, h, f);
      const double of_row = lse(b, i, h, g);
      if (std::isinf(of_row)) continue;
      sum += std::min(std::exp(exact.rounded(product) * c.real("scale") - of_row), 1.0);
    }
    return sum / static_cast<double>(std::max<std::int64_t>(group, 1));
  });
}

// The lse in examples: larger than the scores of rows, so that weights are below 1.
tegula::Tensor example_lse(const Shape& shape, DType type, std::uint64_t seed,
                           const std::function<std::int64_t(const std::string&)>&) {
  return tegula::Tensor::random_uniform(shape, type, seed, 6, 8);
}

}  // namespace

const OperatorSchema& sparse_mla_target_schema() {
  using Op = SparseMlaTarget;
  static const OperatorSchema table =
      Schema<Op>("sparse_mla_target", "the mean over heads of the weights of the listed rows in sparse_mla")
          .in(&Op::q, "q", latent_query_dims, floats, "queries")
          .unit_stride()
          .remedy("give q a multiple of the heads of kv, and all of them a batch or none")
          .in(&Op::kv, "kv", latent_key_dims, same_as("q"), "keys")
          .unit_stride()
          .remedy("give it the batch and the features of q")
          .in(&Op::indices, "indices", "[batch] queries kv_heads entries", index, "the lists")
          .converts()
          .range("-2", "keys+2")
          .remedy("give every query and head of kv a list")
          .in(&Op::lse, "lse", latent_lse_dims, is(f32), "the lse of sparse_mla")
          .values(example_lse)
          .remedy("give every head of a query one")
          .option(&Op::causal, "causal", "entries for rows after the query's position are padding")
          .with(add_scale<Op>)
          .require("kv", "group >= 1", "no heads, as q", "give q a head for each of kv, or more")
          .require("q", "1 <= d & d <= 576", "1 to 576 features", "split the features")
          .out(&Op::out, "out", "[batch] queries kv_heads entries", is(f32),
               "mean over the heads of a group of exp(score - lse); 0 of padding")
          .steps_of("q")
          .source("DeepSeek-AI 2025, DeepSeek-V3.2: what the indexer is trained to follow")
          .no_gradient("it is a target")
          .flops("2*batch*queries*kv_heads*group*entries*d")
          .examples(
              {{"small", "queries=5 keys=11 kv_heads=1 group=3 d=12 entries=7 causal"},
               {"two_heads_bf16", "batch=2 queries=2 keys=20 kv_heads=2 group=70 d=80 bf16 entries=70"}})
          .measured({{"64", "queries=64 keys=2048 kv_heads=1 group=64 d=576 bf16 entries=512"},
                     {"2048_64_heads", "queries=2048 keys=8192 kv_heads=1 group=64 d=576 bf16 entries=2048"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
