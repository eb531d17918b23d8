// The gradients of attention to listed rows: their table, formula and calls.
#include <algorithm>
#include <cmath>

#include "ops/latent/sparse_mla_backward_kernel.hpp"
#include "ops/latent/sparse_mla_call.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/room.hpp"

namespace tegula::ops {

namespace {

// The forward's call.
SparseMla forward_of(const SparseMlaBackward& op) {
  return {static_cast<const SparseMlaOptions&>(op), op.q, op.kv, op.indices};
}

constexpr std::int64_t bytes_of_marks = std::int64_t{1} << 29;
constexpr std::int64_t most_listed = 16384;
constexpr int some_queries = 16, most_rounds = 8;  // of a GPU's processors
constexpr int whole_vectors = 4;                   // numbers of i32 that the copies of a row's marks move

// One of the two sources of rows.
struct Source {
  const char *kv, *indices, *counts, *dkv;
  const char *keys, *entries;
  bool second;
};
constexpr Source sources[] = {
    {"kv", "indices", "counts", "dkv", "keys", "entries", false},
    {"more_kv", "more_indices", nullptr, "dmore_kv", "more_keys", "more_entries", true}};

// As many queries as keep the processors of a GPU equally busy and whose pairs and marks fit their share of
// memory.
int tokens_at_a_time(std::int64_t queries, std::int64_t bytes_of_pairs, std::int64_t marks) {
  const auto fits = [&](int tokens) {
    return tokens * bytes_of_pairs <= bytes_of_partials && tokens * marks <= bytes_of_marks;
  };
  const auto of_rounds = [](int halves) {
    return halves * (gpu_processors / 2) / whole_vectors * whole_vectors;
  };
  int tokens = queries <= few_queries ? few_queries : some_queries;
  if (queries > 2 * some_queries) {
    int halves = 1;
    while (halves < 2 * most_rounds && of_rounds(halves) < queries) ++halves;
    while (halves > 1 && !fits(of_rounds(halves))) --halves;
    tokens = of_rounds(halves);
  }
  while (tokens > 1 && !fits(tokens)) tokens /= 2;
  return tokens;
}

// In steps of a block: what splits save beside what their sums take, which a grid of its own adds.
double time_of_splits(const SparseMlaBackwardKernel& kernel, std::int64_t blocks, std::int64_t steps,
                      int splits) {
  constexpr double of_block = 1, of_sums = 1.5, of_megabyte = 0.2;
  const auto each = static_cast<double>((steps + splits - 1) / splits),
             rounds = std::ceil(static_cast<double>(blocks * splits) / gpu_processors);
  const double megabytes =
      1e-6 * static_cast<double>(f32.bytes() * blocks * splits * kernel.forward.rows * kernel.forward.dim);
  return rounds * (each + of_block) + (splits > 1 ? of_sums + of_megabyte * megabytes : 0);
}

// The parts of a list that keep the processors of a GPU busy where there are few queries. Their gradients of
// queries are added by a grid of its own, which takes longer than the steps that are saved if lists are
// short. Somewhat more blocks than processors have parts, too, where those leave fewer processors without
// work in the last round.
int splits_of(const SparseMlaBackwardKernel& kernel, std::int64_t blocks, std::int64_t entries) {
  constexpr int some_blocks = 3 * gpu_processors;
  const std::int64_t steps = (entries + kernel.forward.keys - 1) / kernel.forward.keys;
  int splits = 1;
  while (2 * splits * blocks <= gpu_processors && 2 * splits <= steps && splits * blocks <= 4 * steps)
    splits *= 2;
  if (blocks <= gpu_processors || blocks > some_blocks) return splits;
  for (const int parts : {2, 4})
    if (parts <= steps &&
        time_of_splits(kernel, blocks, steps, parts) < time_of_splits(kernel, blocks, steps, splits))
      splits = parts;
  return splits;
}

// Entries of a step that fit: queries and gradients of heads, listed rows, weights and their gradients.
int fitting_entries(const SparseMlaKernel& own, std::int64_t room) {
  return fitting_rows(own.keys, room, [&](int entries) {
    return (own.rows * (own.dim + own.dim_v + 2 * entries) + std::int64_t{entries} * own.dim) *
           own.compute.bytes();
  });
}

SparseMlaBackwardKernel instance_of(const Bound<SparseMlaBackward>& c, const Source& source) {
  const SparseMla forward = forward_of(*c);
  SparseMlaBackwardKernel kernel{sparse_mla_instance(Bound<SparseMla>(c.call(), forward))};
  SparseMlaKernel& own = kernel.forward;
  own.sinks = {}, own.more = own.numbers_ahead = false, own.padded = {};
  own.causal = c->causal && !source.second, own.counts = own.counts && !source.second;
  const bool small = c.on_gpu() && own.compute == f32;
  if (small) own.keys = 16;
  if (c.on_gpu() && c.dim("group") <= 32) own.rows = std::min(own.rows, 32);  // gradients take less time so
  if (c.on_gpu()) own.keys = fitting_entries(own, room_of_block(c.call()));
  own.whole = true;  // the lists that the program makes
  kernel.dlse = c.has("dlse"), kernel.adds = source.second;
  kernel.exchanged = has_copy_engine(c.call()) && own.compute.bits() == 16 &&
                     own.dim % exchanged_features == 0 && own.dim_v % exchanged_features == 0;
  const std::int64_t blocks = (c.dim("group") + own.rows - 1) / own.rows;
  kernel.blocks = static_cast<int>(blocks);
  const std::int64_t kv_heads = c.dim("kv_heads"),
                     of_token = kv_heads * c.dim(source.entries) * blocks * own.dim * own.type.bytes(),
                     marks_of_token = kv_heads * c.dim(source.keys) * i32.bytes();
  kernel.tokens = tokens_at_a_time(c.dim("queries"), of_token, marks_of_token);
  if (!c.on_gpu()) return kernel;
  kernel.few = kernel.tokens <= few_queries;
  const std::int64_t queries = std::min<std::int64_t>(c.dim("queries"), kernel.tokens);
  kernel.splits =
      splits_of(kernel, std::max<std::int64_t>(queries * kv_heads * blocks, 1), c.dim(source.entries));
  return kernel;
}

// The gradients that come by one source, query by query and batch by batch.
class Gradients {
 public:
  Gradients(const Bound<SparseMlaBackward>& c, const Source& source, const Tensor& delta, Launch& launch)
      : c_(c), source_(source), delta_(delta), launch_(launch), kernel_(instance_of(c, source)) {}

  void run() {
    const std::int64_t keys = c_.dim(source_.keys), kv_heads = c_.dim("kv_heads");
    const Tensor sums = launch_.scratch({keys, kv_heads, kernel_.forward.dim}, f32);
    for (std::int64_t b = 0; b < c_.dim("batch"); ++b) {
      // A call without queries also writes gradients, which are zeros.
      std::int64_t begin = 0;
      do {
        const std::int64_t end = std::min(begin + kernel_.tokens, c_.dim("queries"));
        add(b, begin, end, sums);
        begin = end;
      } while (begin < c_.dim("queries"));
    }
  }

 private:
  // The queries [begin, end) of batch b.
  TensorRef some(const TensorRef& of, std::int64_t b, std::int64_t begin, std::int64_t end) const {
    return of.rank() == 0 ? of : of.select(0, b).slice(0, begin, end);
  }
  void add(std::int64_t b, std::int64_t begin, std::int64_t end, const Tensor& sums) {
    const auto own = [&](const char* name) {
      return name == nullptr || !c_.has(name) ? TensorRef() : some(c_.formed(name), b, begin, end);
    };
    const LatentViews q(own("q"), c_->d_v), kv(c_.formed(source_.kv).select(0, b), c_->d_v);
    launch_(kernel_, sparse_mla_backward_kernel,
            {{"q_values", q.values},
             {"q_rest", q.rest},
             {"kv_values", kv.values},
             {"kv_rest", kv.rest},
             {"indices", own(source_.indices)},
             {"counts", own(source_.counts)},
             {"dout", own("dout")},
             {"out", own("out")},
             {"lse", own("lse")},
             {"dlse", own("dlse")},
             {"delta", some(delta_.ref(), b, begin, end)},
             {"dq", own("dq")},
             {"sums", sums},
             {"dkv", c_.formed(source_.dkv).select(0, b)},
             {"scale", program_scale(static_cast<float>(c_.real("scale")), 0)},
             {"is_first", begin == 0 ? 1 : 0},
             {"is_last", end == c_.dim("queries") ? 1 : 0},
             {"offset", c_.dim("keys") - c_.dim("queries") + begin}});
  }

  const Bound<SparseMlaBackward>& c_;
  const Source& source_;
  const Tensor& delta_;
  Launch& launch_;
  SparseMlaBackwardKernel kernel_;
};

// Tensor cores multiply a pair of a query and a row of 32 heads for as long as memory takes for its gradient.
void note_few_heads(const Bound<SparseMlaBackward>& c, Launch& launch) {
  constexpr int many_heads = 32;
  if (!c.on_gpu() || c.dim("group") >= many_heads) return;
  launch.note([&] {
    return fmt::format(
        "plan: the gradient of a listed row by a query takes {} bytes that are written and read again, which "
        "takes longer than the products of {} heads",
        c.dim("d") * c.type("q").bytes(), c.dim("group"));
  });
}

void run(const Bound<SparseMlaBackward>& c, Launch& launch) {
  note_few_heads(c, launch);
  note_packed_for_few_rows(c.dim("group"), launch);
  const Shape rows{c.dim("batch"), c.dim("queries"), c.dim("kv_heads"), c.dim("group")};
  const Tensor delta = launch.scratch(rows, f32);
  for (const Source& source : sources)
    if (c.has(source.kv)) Gradients(c, source, delta, launch).run();
  if (!c.has("sinks")) return;
  launch(SinkGradientKernel{c.type("sinks")}, sink_gradient_kernel, {{"delta", delta}});
}

// The results of the forward are formed anew.
void formula(const Bound<SparseMlaBackward>& c, Exact& exact) {
  const SparseMla forward = forward_of(*c);
  const Bound<SparseMla> call(c.call(), forward);
  const ListedHeads heads(call, exact);
  const std::int64_t keys = c.dim("keys"), more = c.has("more_kv") ? c.dim("more_keys") : 0;
  const Tensor none = Tensor::zeros({c.dim("queries")}, f64);
  heads.each([&](const ListedHeads::One& own) {
    const Tensor sum = Tensor::zeros({keys + more, c.dim("d")}, f64);
    reference::HeadGradients gradients{own.rows(exact["dq"]), sum, sum.slice(1, 0, c->d_v), 0, {}};
    reference::differentiate(own.softmax, own.head, own.rows(exact["dout"]),
                             c.has("dlse") ? own.rows(exact["dlse"]).contiguous() : none, gradients);
    const auto add = [&](const char* name, std::int64_t begin, std::int64_t count) {
      const Tensor to = exact[name].select(0, own.b).select(1, own.h);
      for (std::int64_t n = 0; n < count; ++n)
        for (std::int64_t d = 0; d < c.dim("d"); ++d) to.at<double>(n, d) += sum.at<double>(begin + n, d);
    };
    add("dkv", 0, keys);
    if (more > 0) add("dmore_kv", keys, more);
    if (c.has("sinks")) exact["dsinks"].at<double>(own.h, own.member) += gradients.dsink;
  });
}

bool has_room(const Bound<SparseMlaBackward>& c) {
  return c.dim("entries") <= most_listed && (!c.has("more_kv") || c.dim("more_entries") <= most_listed);
}

std::vector<Example> backward_examples() {
  return {{"small", "queries=5 keys=11 kv_heads=1 group=3 d=12 d_v=8 entries=7 dlse"},
          {"two_heads_counts_f16",
           "batch=2 queries=2 keys=20 kv_heads=2 group=17 d=160 d_v=144 f16 entries=33 counts causal "
           "sinks:f32 dlse"},
          {"exchanged_bf16", "queries=3 keys=70 kv_heads=1 group=20 d=352 d_v=320 bf16 entries=66"},
          {"many_queries_bf16", "queries=34 keys=40 kv_heads=1 group=3 d=96 d_v=64 bf16 entries=20"},
          {"few_queries_two_sources_bf16",
           "queries=2 keys=90 kv_heads=1 group=3 d=24 d_v=16 bf16 entries=200 sinks:f32 more_kv "
           "more_indices more_keys=70 more_entries=150"},
          {"two_sources_and_passes_bf16",
           "queries=18 keys=40 kv_heads=1 group=3 d=24 d_v=16 bf16 entries=70 sinks:f32 more_kv "
           "more_indices more_keys=30 more_entries=20"},
          {"odd_strides_bf16",
           "batch=2 queries=40 keys=70 kv_heads=2 group=3 d=80 d_v=64 bf16 entries=66 counts "
           "strides=odd"},
          {"more_blocks_than_processors_bf16",
           "queries=134 keys=50 kv_heads=1 group=2 d=24 d_v=16 bf16 entries=640"},
          {"512_features",
           "queries=8 keys=200 kv_heads=1 group=64 d=512 d_v=512 bf16 entries=128 sinks:f32 dlse"}};
}

std::vector<Example> backward_measured() {
  return {{"64", "queries=64 keys=2048 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=256"},
          {"one_token", "queries=1 keys=32768 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=2048"},
          {"8192_64_heads", "queries=8192 keys=8192 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=2048"},
          {"4096_128_heads", "queries=4096 keys=32768 kv_heads=1 group=128 d=576 d_v=512 bf16 entries=2048"}};
}

}  // namespace

const OperatorSchema& sparse_mla_backward_schema() {
  using Op = SparseMlaBackward;
  static const OperatorSchema table =
      Schema<Op>("sparse_mla_backward",
                 "gradients of sparse_mla with respect to q, both sources of rows and the sinks")
          .in(&Op::dout, "dout", latent_out_dims, same_as("q"), "gradient of out")
          .unit_stride()
          .follows()
          .with(add_latents<Op>)
          .in(&Op::out, "out", latent_out_dims, same_as("q"), "the result of sparse_mla")
          .unit_stride()
          .in(&Op::lse, "lse", latent_lse_dims, is(f32), "the lse of that result")
          .in(&Op::dlse, "dlse", latent_lse_dims, is(f32), "gradient of lse; ignored where lse is -inf")
          .require("indices", has_room, "at most 16384 entries of a list", "divide the list")
          .out(&Op::dq, "dq", latent_query_dims, same_as("q"), "gradient of q")
          .unit_stride()
          .out(&Op::dkv, "dkv", latent_key_dims, same_as("kv"), "gradient of kv, as keys and as values")
          .unit_stride()
          .out(&Op::dsinks, "dsinks", "(kv_heads*group)", is(f32), "gradient of the sinks")
          .steps_of("q")
          .when("sinks")
          .out(&Op::dmore_kv, "dmore_kv", latent_more_dims, same_as("kv"), "gradient of more_kv")
          .unit_stride()
          .when("more_kv")
          .source(
              "Dao 2023, FlashAttention-2, over lists; what pairs add to rows is added in the order of "
              "queries")
          .no_gradient("those of gradients are not implemented")
          .flops("2*batch*queries*kv_heads*group*(entries + more_entries)*(3*d + 2*d_v)")
          .examples(backward_examples())
          .measured(backward_measured())
          .maps(sparse_mla_maps())
          .run(on_moved_rows<Op, run>, formula);
  return table;
}

}  // namespace tegula::ops
