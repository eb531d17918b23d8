#include <cmath>

#include "ops/nsa_compressed/compressed_backward.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"
#include "ops/reference/problem.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Forward : CompressedProgram {
  Tensor v = input("v", of_entries(c.dim_v), c.type), out = output("out", of_queries(c.dim_v), c.type),
         lse = output("lse", vector(), f32);

  using CompressedProgram::CompressedProgram;

  void run() {
    grid(ceildiv(longest, c.queries), packs, sequences(), {.order = later_queries_first()},
         [&](Index x, Index h, Index b) { block(x * c.queries, h, sequence(b)); });
  }

  void block(const Expr& first, const Expr& head, const CompressedSequence& s) {
    const EntrySight sight_of = sight_from(first, s);
    Shared q_tile({c.rows(), c.features()}, c.compute);
    load_queries(queries_of(q, s, head), first, q_tile, c.pack);
    Fragment sum({c.rows(), c.features_v()}, f32, 0);
    OnlineSoftmax softmax(c.rows(), scale);
    const Tensor k_of = entries_of(k, s, head / packs_of_group()),
                 v_of = entries_of(v, s, head / packs_of_group());
    Expr least = sight_of.limit(first), most = sight_of.limit(first + c.queries - 1);
    pipelined(ceildiv(most, c.keys), {.stages = 2}, [&](Index j) {
      Shared k_tile({c.keys, c.features()}, c.compute), v_tile({c.keys, c.features_v()}, c.compute);
      copy(k_of.at(j * c.keys), k_tile);
      Fragment scores({c.rows(), c.keys}, f32, 0);
      gemm(q_tile, k_tile.T(), scores);
      when((j + 1) * c.keys > least, [&] {
        parallel(scores, [&](Index r, Index n) {
          scores(r, n) = select(sight_of.sees(first + r / c.pack, j * c.keys + n), scores(r, n), -inf);
        });
      });
      scale_rows(sum, softmax.update(scores));
      copy(v_of.at(j * c.keys), v_tile);
      add_product(scores, v_tile, sum, c.compute);
    });
    softmax.normalize(sum);
    store_rows(sum, queries_of(out, s, head), first, c.pack);
    store_lse(softmax.lse(), vector_of(lse, s, head), first, c.pack);
  }
};

constexpr int most_group_splits = 16;

Kernel forward_program(const CompressedKernel& c) {
  return kernel(instance_name("nsa_compressed_attention", c), [&] { Forward(c).run(); });
}

// Blocks of entries add to dq in order, so that every run has the same bits: 5 products for each pair instead
// of
// 7. Of packed sequences no window of dq begins at a multiple of its rows.
CompressedBackwardKernel plan_backward(const Bound<CompressedBackward>& c) {
  CompressedBackwardKernel kernel{compressed_kernel(c, c.small_dim("d_v")), c.has("dlse")};
  CompressedKernel& heads = kernel.heads;
  const int widest = std::max(heads.features(), heads.features_v());
  const bool divides = widest <= 64 || widest == 128;
  kernel.one_pass = c.on_gpu() && heads.compute.bits() == 16 && !heads.packed && divides;
  if (!kernel.one_pass) return kernel;
  heads.pack = 1, heads.queries = 64, heads.keys = 128;
  const std::int64_t group = std::max(c.small_dim("group"), 1);
  const double tiles = std::ceil(static_cast<double>(c.dim("entries")) / heads.keys),
               blocks = tiles * static_cast<double>(c.dim("kv_heads") * c.dim("batch")),
               wanted = gpu_table.gradients.even_waves * gpu_processors;
  while (kernel.splits * 2 <= group && kernel.splits < most_group_splits && blocks * kernel.splits < wanted)
    kernel.splits *= 2;
  return kernel;
}

// Warp groups of a tile, entries of a step, and the time of a score.
struct CompressedTiles {
  int groups = 1, keys = 64;
  double cost = 1;
};

// Two warp groups share the entries of a step, as in dense attention, where the queries fill their rows.
CompressedKernel plan_forward(const Bound<Compressed>& c) {
  const CompressedKernel small = compressed_kernel(c, c.small_dim("d_v"));
  const int widest = std::max(small.features(), small.features_v());
  const bool fills = c.on_gpu() && small.compute.bits() == 16 && widest <= 128 &&
                     small.rows() == warp_group_rows && c.dim("longest") > small.queries;
  if (!fills) return small;
  Candidates<CompressedTiles, 4> candidates{{2, 128, 1}, {1, 64, 1.25}, {2, 64, 1.2}, {3, 64, 1.08}};
  // A query sees half of the entries in the mean, and half of a step more.
  const CompressedTiles best = best_of(candidates, [&](const CompressedTiles& own) {
    return own.cost * static_cast<double>(c.dim("entries") + own.keys);
  });
  CompressedKernel kernel = small;
  kernel.queries *= best.groups, kernel.keys = best.keys;
  return kernel;
}

void run(const Bound<Compressed>& c, Launch& launch) {
  const CompressedKernel kernel = plan_forward(c);
  launch(kernel, forward_program,
         {{"q", rows_of_queries(c, "q", kernel.pack)},
          {"k", rows_of_entries(c, "k")},
          {"v", rows_of_entries(c, "v")},
          {"out", rows_of_queries(c, "out", kernel.pack)},
          {"lse", vector_of_queries(c, "lse", kernel.pack)},
          {"scale", program_scale(static_cast<float>(c.real("scale")), 0)}});
}

void run_backward(const Bound<CompressedBackward>& c, Launch& launch) {
  const CompressedBackwardKernel kernel = plan_backward(c);
  launch(kernel, compressed_backward_program,
         {{"dout", rows_of_queries(c, "dout", kernel.heads.pack)},
          {"q", rows_of_queries(c, "q", kernel.heads.pack)},
          {"k", rows_of_entries(c, "k")},
          {"v", rows_of_entries(c, "v")},
          {"out", rows_of_queries(c, "out", kernel.heads.pack)},
          {"lse", vector_of_queries(c, "lse", kernel.heads.pack)},
          {"dlse", kernel.dlse ? vector_of_queries(c, "dlse", kernel.heads.pack) : TensorRef()},
          {"dq", rows_of_queries(c, "dq", kernel.heads.pack)},
          {"dk", rows_of_entries(c, "dk")},
          {"dv", rows_of_entries(c, "dv")},
          {"scale", program_scale(static_cast<float>(c.real("scale")), 0)}});
}

// Where the entries of packed sequences begin and end: `made` holds them.
std::optional<TensorRef> entry_fences(const NsaCompressedOptions& options, tegula::Tensor& made) {
  if (!options.cu_seqlens) return {};
  made = tegula::Tensor::zeros(options.cu_seqlens->shape, i32);
  for (std::int64_t i = 0; i < made.nelements(); ++i)
    made.set({i}, std::floor(options.cu_seqlens->get({i}) / options.stride));
  return made.ref();
}

template <class Op>
reference::Problem problem(const Bound<Op>& c, const std::optional<TensorRef>& fences, DType steps) {
  const std::int64_t shift = c.has("cu_seqlens") ? 0 : c.dim("tokens") - c.dim("queries");
  return {reference::Inputs(c["q"], c["k"], c["v"], c->layout),
          c->cu_seqlens,
          fences,
          {},
          reference::softmax_of(c->scale, c.dim("d"), 0, steps),
          [=, length = c->length, stride = c->stride](const reference::SequenceHead&) {
            return [=](std::int64_t i, std::vector<double>& times) {
              for (std::size_t n = 0; n < times.size(); ++n)
                times[n] = static_cast<std::int64_t>(n) * stride + length <= i + shift + 1;
            };
          }};
}

void formula(const Bound<Compressed>& c, Exact& exact) {
  tegula::Tensor made;
  const AttentionResult result = reference::forward(problem(c, entry_fences(*c, made), exact.steps()));
  exact.set("out", result.out);
  exact.set("lse", result.lse);
}

void formula_backward(const Bound<CompressedBackward>& c, Exact& exact) {
  tegula::Tensor made;
  const AttentionGradients result =
      reference::backward(problem(c, entry_fences(*c, made), exact.steps()), c["dout"], c->dlse);
  exact.set("dq", result.dq);
  exact.set("dk", result.dk);
  exact.set("dv", result.dv);
}

const std::string q_rows = compressed_dims("queries", query_heads, "d"),
                  out_rows = compressed_dims("queries", query_heads, "d_v"),
                  k_rows = compressed_dims("entries", "kv_heads", "d"),
                  v_rows = compressed_dims("entries", "kv_heads", "d_v");

template <class Op>
void add_inputs(Schema<Op>& table) {
  table.with(add_compressed_keys<Op>)
      .in(&Op::v, "v", v_rows, same_as("q"), "compressed values")
      .unit_stride()
      .remedy("give it the batch, entries and heads of k, and check the layout");
}

template <class Op>
void add_options(Schema<Op>& table) {
  table.with(add_windows<Op>("queries"))
      .with(add_positions<Op>)
      .require("v", "1 <= d_v & d_v <= 512", "1 to 512 features", "split the heads")
      .source("Yuan et al. 2025, Native Sparse Attention: the compressed branch");
}

// Each with what a gradient has more.
std::vector<Example> attention_examples(const std::string& more) {
  std::vector<Example> result{
      {"small", "batch=1 queries=9 entries=4 kv_heads=1 group=2 d=8 d_v=4 length=4 stride=2 key_tokens=11"},
      {"grouped_bhsd",
       "batch=2 queries=70 entries=16 kv_heads=2 group=6 d=16 d_v=24 length=8 stride=4 layout=bhsd"},
      {"packed_f16",
       "sequences=4 queries=150 entries=37 kv_heads=2 group=4 d=16 d_v=16 f16 length=6 stride=4 cu_seqlens"},
      {"packed_without_entries",
       "sequences=2 queries=3 entries=0 kv_heads=2 group=2 d=8 d_v=8 length=6 stride=4 cu_seqlens"},
      {"group_of_16_bf16",
       "batch=1 queries=90 entries=80 kv_heads=1 group=16 d=64 d_v=64 bf16 length=2 stride=1"},
      {"features_20_bf16",
       "batch=1 queries=40 entries=9 kv_heads=2 group=1 d=20 d_v=12 bf16 length=8 stride=4"}};
  for (Example& example : result) example.text += more;
  return result;
}

std::vector<Example> attention_measured() {
  return {{"8192_bf16",
           "batch=1 queries=8192 entries=511 kv_heads=4 group=16 d=128 d_v=128 bf16 length=32 stride=16"},
          {"65536_of_16_heads_bf16",
           "batch=1 queries=65536 entries=4095 kv_heads=1 group=16 d=128 d_v=128 bf16 length=32 stride=16"},
          {"decode_65536_bf16",
           "batch=32 queries=1 entries=4095 kv_heads=4 group=16 d=128 d_v=128 bf16 length=32 stride=16 "
           "key_tokens=65536"}};
}

// Three tiles of entries add to dq in order, and splits of an uneven group.
std::vector<Example> examples_of_gradients() {
  std::vector<Example> result = attention_examples(" dlse");
  result.push_back(
      {"in_turn_bf16",
       "batch=2 queries=270 entries=269 kv_heads=1 group=3 d=64 d_v=128 bf16 length=2 stride=1"});
  return result;
}

// Pairs of a query and an entry that it sees, where queries are as many as tokens; at most all.
constexpr const char* pairs =
    "batch*kv_heads*group*(key_tokens > 0 ? queries*entries : queries*queries/(2*stride))";

}  // namespace

const OperatorSchema& nsa_compressed_attention_schema() {
  using Op = Compressed;
  static const OperatorSchema table =
      Schema<Op>("nsa_compressed_attention",
                 "attention over compressed entries that end at the query or before it")
          .with(add_inputs<Op>)
          .with(add_options<Op>)
          .out(&Op::out, "out", out_rows, same_as("q"),
               "the weighted sums of values; 0 where no entry is seen")
          .unit_stride()
          .out(&Op::lse, "lse", vector_dims, is(f32),
               "natural logarithm of the sum of exp(score); -inf where no entry is seen")
          .gradient("nsa_compressed_attention_backward")
          .flops(fmt::format("2*{}*(d + d_v)", pairs))
          .examples(attention_examples(""))
          .measured(attention_measured())
          .run(run, formula);
  return table;
}

const OperatorSchema& nsa_compressed_attention_backward_schema() {
  using Op = CompressedBackward;
  static const OperatorSchema table =
      Schema<Op>("nsa_compressed_attention_backward", "gradients of nsa_compressed_attention")
          .in(&Op::dout, "dout", out_rows, same_as("q"), "gradient of out")
          .unit_stride()
          .follows()
          .with(add_inputs<Op>)
          .in(&Op::out, "out", out_rows, same_as("q"), "the result of nsa_compressed_attention")
          .unit_stride()
          .in(&Op::lse, "lse", vector_dims, is(f32), "the lse of that result")
          .in(&Op::dlse, "dlse", vector_dims, is(f32), "gradient of lse; ignored where lse is -inf")
          .with(add_options<Op>)
          .out(&Op::dq, "dq", q_rows, same_as("q"), "gradient of q")
          .unit_stride()
          .out(&Op::dk, "dk", k_rows, same_as("k"), "gradient of k")
          .unit_stride()
          .out(&Op::dv, "dv", v_rows, same_as("v"), "gradient of v")
          .unit_stride()
          .no_gradient("those of gradients are not implemented")
          .flops(fmt::format("2*{}*(3*d + 2*d_v)", pairs))
          .examples(examples_of_gradients())
          .measured({attention_measured()[0], attention_measured()[1]})
          .run(run_backward, formula_backward);
  return table;
}

}  // namespace tegula::ops
