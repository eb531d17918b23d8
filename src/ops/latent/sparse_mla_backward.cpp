// The gradients of attention to listed rows: their table, formula and calls.
#include <algorithm>

#include "ops/latent/sparse_mla_backward_kernel.hpp"
#include "ops/latent/sparse_mla_call.hpp"
#include "ops/latent/sparse_mla_pairs_kernel.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/schema/beside.hpp"

namespace tegula::ops {

namespace {

// The forward's call.
SparseMla forward_of(const SparseMlaBackward& op) {
  return {static_cast<const SparseMlaOptions&>(op), op.q, op.kv, op.indices};
}

constexpr std::int64_t bytes_of_marks = std::int64_t{1} << 29;
constexpr std::int64_t most_listed = 16384;
constexpr int few_tokens = 16, most_rounds = 8;
constexpr int whole_vectors = 4;  // numbers of i32 that the copies of a row's marks move
// Of a GPU's processors, on which pairs are added while the others form those of the next queries: as many as
// read in that time what the others write.
constexpr int adding_processors = 20, forming_processors = gpu_processors - adding_processors;

// One of the two sources of rows.
struct Source {
  const char *kv, *indices, *counts, *dkv;
  const char *keys, *entries;
  bool second;
};
constexpr Source sources[] = {
    {"kv", "indices", "counts", "dkv", "keys", "entries", false},
    {"more_kv", "more_indices", nullptr, "dmore_kv", "more_keys", "more_entries", true}};

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

// All queries, or as many as keep the forming processors of a GPU equally busy: so many that their pairs and
// marks, and in parts those of the next queries, fit their share of memory.
int tokens_at_a_time(std::int64_t queries, std::int64_t bytes_of_pairs, std::int64_t marks) {
  const auto fits = [&](std::int64_t tokens, int parts) {
    return tokens * parts * bytes_of_pairs <= bytes_of_partials && tokens * parts * marks <= bytes_of_marks;
  };
  const auto of_halves = [](int halves, int processors) {
    return halves * (processors / 2) / whole_vectors * whole_vectors;
  };
  int tokens = few_tokens, halves = 1;
  if (queries > 2 * few_tokens) {
    while (halves < 2 * most_rounds && of_halves(halves, gpu_processors) < queries) ++halves;
    tokens = of_halves(halves, gpu_processors);
    if (tokens < queries || !fits(tokens, 1)) {
      while (halves > 1 && !fits(of_halves(halves, forming_processors), 2)) --halves;
      tokens = of_halves(halves, forming_processors);
    }
  }
  while (tokens > 1 && !fits(tokens, tokens < queries ? 2 : 1)) tokens /= 2;
  return tokens;
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
  return kernel;
}

// The gradients that come by one source, some queries of a batch at a time.
class Gradients {
 public:
  Gradients(const Bound<SparseMlaBackward>& c, const Source& source, const Tensor& delta, Launch& launch)
      : c_(c),
        source_(source),
        delta_(delta),
        launch_(launch),
        kernel_(instance_of(c, source)),
        sums_(launch.scratch({c.dim(source.keys), c.dim("kv_heads"), kernel_.forward.dim}, f32)) {
    const std::int64_t tokens = std::min<std::int64_t>(kernel_.tokens, c.dim("queries"));
    for (int i = 0; i < std::min(2, parts()); ++i) between_.push_back(make_between(tokens));
  }

  // While the pairs of a part are added, those of the next one are formed.
  void run() {
    for (std::int64_t b = 0; b < c_.dim("batch"); ++b) {
      Beside next(launch_);
      list({b, 0});
      if (parts() > 1) list({b, 1});
      form({b, 0});
      for (int i = 0; i < parts(); ++i) {
        if (i + 1 < parts()) next.run([&] { form({b, i + 1}); }, forming_processors);
        add({b, i});
        if (i + 2 < parts()) list({b, i + 2});
        next.join();
      }
    }
  }

 private:
  // Queries of a batch.
  struct Part {
    std::int64_t b;
    int number;
  };
  // What the kernels of a part leave for the next ones.
  struct Between {
    Tensor base, marks, rows, times, pairs;
  };

  // A call without queries also writes gradients, which are zeros.
  int parts() const {
    return static_cast<int>(
        std::max<std::int64_t>(round_up(c_.dim("queries"), kernel_.tokens) / kernel_.tokens, 1));
  }
  std::int64_t padded() const { return round_up(c_.dim(source_.entries), kernel_.forward.keys); }
  Between make_between(std::int64_t tokens) {
    const std::int64_t kv_heads = c_.dim("kv_heads");
    const SparseMlaKernel& own = kernel_.forward;
    return {launch_.scratch({tokens, kv_heads, c_.dim("group")}, f32),
            launch_.scratch({kv_heads, c_.dim(source_.keys), kernel_.tokens}, i32),
            launch_.scratch({tokens, kv_heads, padded()}, i32),
            launch_.scratch({tokens, kv_heads, padded()}, f32),
            launch_.scratch({kv_heads, tokens * padded() * kernel_.blocks, own.dim}, own.type)};
  }
  Between between(const Part& part) const {
    const Between& all = between_[static_cast<std::size_t>(part.number) % between_.size()];
    const std::int64_t tokens = end(part) - begin(part);
    return {all.base.slice(0, 0, tokens), all.marks, all.rows.slice(0, 0, tokens),
            all.times.slice(0, 0, tokens), all.pairs.slice(1, 0, tokens * padded() * kernel_.blocks)};
  }
  std::int64_t begin(const Part& part) const { return std::int64_t{part.number} * kernel_.tokens; }
  std::int64_t end(const Part& part) const {
    return std::min(begin(part) + kernel_.tokens, c_.dim("queries"));
  }
  TensorRef own(const TensorRef& of, const Part& part) const {
    return of.rank() == 0 ? of : of.select(0, part.b).slice(0, begin(part), end(part));
  }
  TensorRef own(const char* name, const Part& part) const {
    return name == nullptr || !c_.has(name) ? TensorRef() : own(c_.formed(name), part);
  }

  void list(const Part& part) {
    const Between to = between(part);
    launch_(kernel_, sparse_mla_lists_kernel,
            {{"indices", own(source_.indices, part)},
             {"counts", own(source_.counts, part)},
             {"dout", own("dout", part)},
             {"out", own("out", part)},
             {"lse", own("lse", part)},
             {"dlse", own("dlse", part)},
             {"delta", own(delta_.ref(), part)},
             {"base", to.base},
             {"marks", to.marks},
             {"rows", to.rows},
             {"times", to.times},
             {"offset", c_.dim("keys") - c_.dim("queries") + begin(part)}});
  }
  void form(const Part& part) {
    const LatentViews q(own("q", part), c_->d_v), kv(c_.formed(source_.kv).select(0, part.b), c_->d_v);
    const Between from = between(part);
    launch_(kernel_, sparse_mla_backward_kernel,
            {{"q_values", q.values},
             {"q_rest", q.rest},
             {"kv_values", kv.values},
             {"kv_rest", kv.rest},
             {"counts", own(source_.counts, part)},
             {"dout", own("dout", part)},
             {"base", from.base},
             {"delta", own(delta_.ref(), part)},
             {"rows", from.rows},
             {"times", from.times},
             {"dq", own("dq", part)},
             {"parts", from.pairs},
             {"scale", program_scale(static_cast<float>(c_.real("scale")), 0)},
             {"entries", c_.dim(source_.entries)}});
  }
  void add(const Part& part) {
    const Between from = between(part);
    launch_(kernel_, sparse_mla_sums_kernel,
            {{"marks", from.marks},
             {"parts", from.pairs},
             {"sums", sums_},
             {"dkv", c_.formed(source_.dkv).select(0, part.b)},
             {"entries", c_.dim(source_.entries)},
             {"is_first", part.number == 0 ? 1 : 0},
             {"is_last", part.number + 1 == parts() ? 1 : 0}});
  }

  const Bound<SparseMlaBackward>& c_;
  const Source& source_;
  const Tensor& delta_;
  Launch& launch_;
  SparseMlaBackwardKernel kernel_;
  Tensor sums_;
  std::vector<Between> between_;
};

void run(const Bound<SparseMlaBackward>& c, Launch& launch) {
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
          .examples(
              {{"small", "queries=5 keys=11 kv_heads=1 group=3 d=12 d_v=8 entries=7 dlse"},
               {"two_heads_counts_f16",
                "batch=2 queries=2 keys=20 kv_heads=2 group=17 d=160 d_v=144 f16 entries=33 counts causal "
                "sinks:f32 dlse"},
               {"exchanged_bf16", "queries=3 keys=70 kv_heads=1 group=20 d=352 d_v=320 bf16 entries=66"},
               {"two_sources_and_passes_bf16",
                "queries=18 keys=40 kv_heads=1 group=3 d=24 d_v=16 bf16 entries=70 sinks:f32 more_kv "
                "more_indices more_keys=30 more_entries=20"}})
          .measured({{"64", "queries=64 keys=2048 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=256"},
                     {"8192_64_heads",
                      "queries=8192 keys=8192 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=2048"},
                     {"4096_128_heads",
                      "queries=4096 keys=32768 kv_heads=1 group=128 d=576 d_v=512 bf16 entries=2048"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
