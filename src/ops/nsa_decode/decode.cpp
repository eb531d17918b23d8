// Native sparse attention of tokens that are decoded: table, plan and formula.
#include <algorithm>
#include <bit>

#include "ops/nsa/gates.hpp"
#include "ops/nsa_compressed/compressed.hpp"
#include "ops/nsa_decode/decode_kernel.hpp"
#include "ops/pieces/attention_table.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/reference/reference.hpp"
#include "ops/schema/functions.hpp"
#include "tegula/ops/nsa_decode.hpp"
#include "tegula/ops/nsa_select.hpp"

namespace tegula::ops {

namespace {

constexpr int least_columns = 32, most_columns = 2048;  // blocks that threads hold in registers
constexpr int least_keys = 16;                          // of a product
constexpr std::int64_t least_listed = 16;               // so that few instances serve all counts

// Steps leave the weights of blocks where they have whole ones, and where no entry reaches past the next.
void plan_weights(const Bound<NsaDecode>& c, NsaDecodeKernel& kernel) {
  const std::int64_t begun = c->block_size / c->stride, reaching = (c->length - 1) / c->stride;
  if (c->block_size % c->stride != 0 || begun < 2 || kernel.keys % begun != 0 || reaching > begun) return;
  kernel.begun = static_cast<int>(begun), kernel.reaching = static_cast<int>(reaching);
}

NsaDecodeKernel plan(const Bound<NsaDecode>& c) {
  NsaDecodeKernel kernel{.type = c.type("q"),
                         .compute = multiplied_type(c.type("q"), c.on_gpu()),
                         .gates = c.type("gates"),
                         .dim = c.small_dim("d"),
                         .dim_v = c.small_dim("d_v"),
                         .group = c.small_dim("group"),
                         .branches = c.small_dim("branches")};
  kernel.padded = tile_features(kernel.dim, kernel.dim_v, kernel.compute);
  kernel.rows = static_cast<int>(std::bit_ceil(static_cast<unsigned>(kernel.group)));
  if (c.on_gpu()) kernel.rows = std::max(kernel.rows, warp_group_rows);
  kernel.keys = fitting_extent(warp_group_rows, std::max(kernel.features(), kernel.features_v()),
                               kernel.compute.bytes());
  while (kernel.keys_of_block / 2 >= std::max<std::int64_t>(c->block_size, least_keys))
    kernel.keys_of_block /= 2;
  kernel.keys_of_block = std::min(kernel.keys_of_block, kernel.keys);
  const std::int64_t blocks = c.dim("blocks");
  kernel.columns = static_cast<int>(std::clamp<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(blocks)), least_columns, most_columns));
  kernel.held = blocks <= kernel.columns;
  kernel.listed = static_cast<int>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(c->count, least_listed))));
  plan_weights(c, kernel);
  return kernel;
}

void run(const Bound<NsaDecode>& c, Launch& launch) {
  const auto kernel = plan(c);
  note_packed_for_few_rows(kernel.rows, launch);
  launch(kernel, nsa_decode_program, {{"scale", program_scale(static_cast<float>(c.real("scale")), 0)}});
}

// The calls that native_sparse_attention leaves to this operator: tiles of more tokens share what they read,
// and the weights of more blocks do not stay in shared memory. It evaluates this before all dims are known.
constexpr const char* where_fast =
    "queries <= 4 & group <= 64 & max(d, d_v) <= 128 & group*(keys/block_size) <= 16384";

// The same entries as options of the operators that the formula is composed of.
template <class Op>
Op options_of_part(const Bound<NsaDecode>& c) {
  Op op;
  op.q = c["q"], op.k = c["compressed_k"];
  op.layout = c->layout, op.length = c->length, op.stride = c->stride;
  op.key_tokens = c.dim("keys"), op.scale = c->scale;
  return op;
}

// What tokens see of the compressed entries: out and lse.
Tensors formula_of_entries(const Bound<NsaDecode>& c, DType steps) {
  auto op = options_of_part<Compressed>(c);
  op.v = c["compressed_v"];
  return formula_of(find_schema("nsa_compressed_attention"), &op, steps);
}

// The blocks that they choose.
tegula::Tensor formula_of_choice(const Bound<NsaDecode>& c) {
  const tegula::Tensor lse = formula_of_entries(c, f64).at("lse").to(f32);
  auto op = options_of_part<NsaSelect>(c);
  op.lse = lse, op.count = c->count, op.block_size = c->block_size;
  op.first_blocks = c->first_blocks, op.local_blocks = c->local_blocks;
  return formula_of(find_schema("nsa_select"), &op).at("out").to(i32);
}

void formula(const Bound<NsaDecode>& c, Exact& exact) {
  const tegula::Tensor blocks = formula_of_choice(c), seen = formula_of_entries(c, exact.steps()).at("out");
  NsaSelectedOptions options;
  options.layout = c->layout, options.block_size = c->block_size, options.window = c->window;
  options.scale = c->scale;
  const NsaSelectedResult fine =
      reference::nsa_selected_attention(c["q"], c["k"], c["v"], blocks, options, exact.steps());
  exact.set("out", sum_by_gates({seen, fine.out, fine.window_out}, c["gates"]));
}

const OptionRule some_blocks =
    between(0, 1 << 20, "a number of blocks from 0 to 2^20", "give another number");

template <class Op>
void add_inputs(Schema<Op>& table) {
  table.in(&Op::q, "q", batch_dims("queries", query_heads, "d"), floats, "queries, the last of all tokens")
      .unit_stride()
      .ordered()
      .remedy("give q a multiple of the heads of k, and check the layout")
      .in(&Op::k, "k", batch_dims("keys", "kv_heads", "d"), same_as("q"), "keys of all tokens")
      .unit_stride()
      .ordered()
      .remedy("give it the batch and the features of q, and check the layout")
      .in(&Op::v, "v", batch_dims("keys", "kv_heads", "d_v"), same_as("q"), "values of all tokens")
      .unit_stride()
      .ordered()
      .remedy("give it the batch, keys and heads of k, and check the layout")
      .in(&Op::compressed_k, "compressed_k", batch_dims("entries", "kv_heads", "d"), same_as("q"),
          "compressed keys")
      .unit_stride()
      .ordered()
      .remedy("give it the batch, heads and features of k, and check the layout")
      .in(&Op::compressed_v, "compressed_v", batch_dims("entries", "kv_heads", "d_v"), same_as("q"),
          "compressed values")
      .unit_stride()
      .ordered()
      .remedy("give it the entries of compressed_k and the features of v, and check the layout")
      .in(&Op::gates, "gates", batch_dims("queries", query_heads, "branches"), floats, meaning_of_gates)
      .ordered();
}

template <class Op>
void add_options(Schema<Op>& table) {
  table.option(&Op::layout, "layout", "order of batch, sequence, heads, features")
      .option(&Op::length, "length", "tokens of a window, of which each is an entry", block_size)
      .option(&Op::stride, "stride", "tokens from the start of one window to the start of the next",
              block_size)
      .option(&Op::block_size, "block_size", "tokens of a selected block", block_size)
      .option(&Op::count, "count", "blocks that a token selects, at most 4096")
      .option(&Op::first_blocks, "first_blocks", "number of leading blocks that are always selected first",
              some_blocks)
      .option(&Op::local_blocks, "local_blocks",
              "number of blocks up to the query's own that are always selected first", some_blocks)
      .option(&Op::window, "window",
              "keys of the sliding window, which ends at the token and has its own softmax; 0: no window",
              between(0, 1 << 29, "a number of keys, at most 2^29, or 0 for no window", "leave it out"))
      .with(add_scale<Op>)
      .let("blocks", "ceildiv(keys, block_size)")
      .let("fast", where_fast);
}

template <class Op>
void add_rules(Schema<Op>& table) {
  require_gates(table, "branches == (window > 0 ? 3 : 2)");
  table
      .require("stride", "stride <= length", "at most {length}, the length of a window",
               "give a longer window: tokens between windows would be ignored")
      .require("count", "0 <= count & count <= 4096", "a number of blocks from 0 to 4096",
               "select larger blocks")
      .require("q", "queries <= 16", "at most 16 queries, as are decoded at a time",
               "call native_sparse_attention for more")
      .require("k", "1 <= group & group <= 64", "a head for each 1 to 64 of q",
               "call native_sparse_attention for larger groups")
      .require("q", "1 <= d & d <= 256", "1 to 256 features", "call native_sparse_attention for more")
      .require("v", "1 <= d_v & d_v <= 256", "1 to 256 features", "call native_sparse_attention for more");
}

std::vector<Example> decode_examples() {
  return {
      {"small",
       "batch=2 queries=1 keys=21 entries=9 kv_heads=1 group=2 d=8 d_v=4 branches=3 length=4 stride=2 "
       "block_size=4 count=3 window=5"},
      {"no_window_bhsd_f16",
       "batch=1 queries=3 keys=75 entries=17 kv_heads=2 group=6 d=16 d_v=24 f16 branches=2 length=8 "
       "stride=4 block_size=10 count=4 local_blocks=1 window=0 layout=bhsd"},
      {"group_of_16_bf16",
       "batch=1 queries=2 keys=300 entries=149 kv_heads=2 group=16 d=64 d_v=128 bf16 gates:f32 branches=3 "
       "length=4 stride=2 block_size=8 count=4 window=70"},
      {"more_blocks_than_are_held",
       "batch=1 queries=1 keys=2080 entries=1040 kv_heads=1 group=1 d=8 d_v=8 branches=3 length=2 stride=2 "
       "block_size=1 count=5 window=9"},
      {"no_entries_bf16",
       "batch=2 queries=1 keys=3 entries=0 kv_heads=2 group=4 d=32 d_v=32 bf16 branches=3 length=4 stride=2 "
       "block_size=4 count=2 window=2"},
      {"before_the_first_window",
       "batch=1 queries=9 keys=7 entries=1 kv_heads=1 group=3 d=16 d_v=16 branches=3 length=5 stride=3 "
       "block_size=6 count=2 first_blocks=0 local_blocks=0 window=4"}};
}

// Whole caches are the bound of bytes, of which a call reads a part: those of a map have as many keys.
std::vector<CallMap> decode_maps() {
  const std::string base =
      "batch=32 queries=1 keys=8192 entries=511 kv_heads=4 group=16 d=128 d_v=128 bf16 branches=3";
  return {{"heads",
           base,
           {"kv_heads=64 group=1 batch=2", "kv_heads=16 group=4 batch=8", "kv_heads=8 group=8 batch=16",
            "kv_heads=4", "kv_heads=2 group=32 batch=64", "kv_heads=1 group=64 batch=128",
            "kv_heads=1 group=20 batch=128"},
           {"", "queries=2", "queries=4", "d=192", "d=64 d_v=64", "layout=bhsd", "block_size=32", "f16"}}};
}

// Keys that tokens meet, of each head.
constexpr const char* keys_met = "(entries + min(count*block_size, keys) + min(window, keys))";

}  // namespace

const OperatorSchema& nsa_decode_schema() {
  using Op = NsaDecode;
  static const OperatorSchema table =
      Schema<Op>("nsa_decode", "native sparse attention of few tokens, the last of many")
          .with(add_inputs<Op>)
          .with(add_options<Op>)
          .with(add_rules<Op>)
          .out(&Op::out, "out", batch_dims("queries", query_heads, "d_v"), same_as("q"), sum_of_branches)
          .unit_stride()
          .ordered()
          .source("Yuan et al. 2025, Native Sparse Attention")
          .no_gradient("tokens are decoded without one; native_sparse_attention has gradients")
          .flops(fmt::format("2*batch*queries*kv_heads*group*(d + d_v)*{}", keys_met))
          .examples(decode_examples())
          .measured({{"8192_bf16",
                      "batch=32 queries=1 keys=8192 entries=511 kv_heads=4 group=16 d=128 d_v=128 bf16 "
                      "branches=3"}})
          .maps(decode_maps())
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
