// Attention to listed records of a cache: its table, plan and formula.
#include <algorithm>
#include <cmath>

#include "ops/latent/sparse_mla_call.hpp"
#include "ops/latent/sparse_mla_decode_kernel.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

namespace {

int planned_splits(const Bound<SparseMlaDecode>& c, const SparseMlaDecodeKernel& kernel) {
  if (c->splits > 0) return c->splits;
  if (!c.on_gpu()) return 1;
  const std::int64_t of_query = (c.dim("heads") + kernel.rows - 1) / kernel.rows,
                     steps = (c.dim("entries") + kernel.keys - 1) / kernel.keys;
  return planned_splits(c.dim("queries") * of_query, steps, gpu_table.latents,
                        planned_gpu_processors(c.call()));
}

bool has_powers(const Bound<SparseMlaDecode>& c) { return c.type("scales") == u8; }

std::int64_t page_of(const Bound<SparseMlaDecode>& c) { return c["values"].size(-2); }

// Fields of records with exponents are at other distances than these, which stand behind all others of a
// page. Other records are, as a rule, one behind the other across pages.
bool is_paged(const Bound<SparseMlaDecode>& c) {
  const auto are_rows = [&](const char* name) {
    const TensorRef field = c.given(name);
    return field.rank() < 3 || nelements(field) == 0 ||
           field.try_reshape({c.dim("rows"), field.size(-1)}).has_value();
  };
  const bool has_pages = c["values"].rank() > 2 && page_of(c) > 0;
  return has_pages && (has_powers(c) || !are_rows("values") || !are_rows("scales") || !are_rows("ropes"));
}

// A field of the cache in the form of the program.
TensorRef field_of(const Bound<SparseMlaDecode>& c, const char* name) {
  if (!c.has(name)) return {};
  return is_paged(c) ? c.rows(name, c[name].rank() - 2) : c.formed(name);
}

SparseMlaDecodeKernel instance_of(const Bound<SparseMlaDecode>& c) {
  SparseMlaDecodeKernel kernel;
  kernel.type = c.type("q"), kernel.compute = multiplied_type(kernel.type, c.on_gpu());
  kernel.dim_v = c.small_dim("d_v"), kernel.dim = c.small_dim("d");
  kernel.in_8_bits = c.small_dim("in_8_bits");
  kernel.scaled = kernel.in_8_bits / std::max(c.small_dim("groups"), 1);
  kernel.powers = has_powers(c), kernel.page = is_paged(c) ? static_cast<int>(page_of(c)) : 0;
  kernel.padded = tile_features(kernel.dim_v, kernel.rest(), kernel.compute);
  kernel.padded.copied = false;
  kernel.counts = c.has("counts"), kernel.sinks = c.type_if("sinks");
  const std::int64_t heads = c.dim("heads");
  kernel.rows = heads <= 16 ? 16 : heads <= 32 ? 32 : heads <= 64 || c.on_gpu() ? 64 : 128;
  return kernel;
}

void run(const Bound<SparseMlaDecode>& c, Launch& launch) {
  const SparseMlaDecodeKernel kernel = instance_of(c);
  note_packed_for_few_rows(c.dim("heads"), launch);
  const LatentViews q(c.formed("q"), c.dim("d_v"));
  launch(kernel, sparse_mla_decode_kernel,
         {{"q_values", q.values},
          {"q_rest", q.rest},
          {"values", field_of(c, "values")},
          {"scales", field_of(c, "scales")},
          {"ropes", field_of(c, "ropes")},
          {"scale", program_scale(static_cast<float>(c.real("scale")), 0)},
          {"splits", planned_splits(c, kernel)}});
}

// The rows of the cache as they are multiplied, f64 [rows, d].
Tensor widened(const Bound<SparseMlaDecode>& c, Exact& exact) {
  const std::int64_t rows = c.dim("rows"), d = c.dim("d"), in_8_bits = c.dim("in_8_bits"),
                     scaled = in_8_bits / std::max<std::int64_t>(c.dim("groups"), 1);
  Tensor k = Tensor::zeros({rows, d}, f64);
  const auto values = exact.array("values");
  const TensorRef scales = c.formed("scales");
  const auto scale = [&](std::int64_t i, std::int64_t group) {
    const double stored = scales.get({i, group});
    return has_powers(c) ? std::ldexp(1, static_cast<int>(stored) - 127) : stored;
  };
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t f = 0; f < d; ++f)
      k.at<double>(i, f) = f < in_8_bits ? exact.rounded(values(i, f) * scale(i, f / scaled))
                                         : exact.array("ropes")(i, f - in_8_bits);
  return k;
}

void formula(const Bound<SparseMlaDecode>& c, Exact& exact) {
  const Tensor k = widened(c, exact), &out = exact["out"], &lse = exact["lse"], &indices = exact["indices"];
  const std::int64_t entries = c.dim("entries"), rows = c.dim("rows");
  for (std::int64_t h = 0; h < c.dim("heads"); ++h) {
    reference::Softmax softmax{c.real("scale"), 0};
    softmax.steps = exact.steps();
    if (c.has("sinks")) softmax.sink = exact["sinks"].at<double>(h);
    const auto times = [&](std::int64_t query, std::vector<double>& of_rows) {
      const std::int64_t count =
          c.has("counts") ? std::clamp<std::int64_t>(exact["counts"].at<std::int32_t>(query), 0, entries)
                          : entries;
      for (std::int64_t n = 0; n < count; ++n)
        if (const std::int64_t row = indices.at<std::int32_t>(query, n); row >= 0 && row < rows)
          of_rows[static_cast<std::size_t>(row)] += 1;
    };
    const reference::Head head{exact["q"].select(1, h), k, k.slice(1, 0, c.dim("d_v")), times};
    reference::attend(softmax, head, out.select(1, h), lse.select(1, h));
  }
}

void add_rules(Schema<SparseMlaDecode>& table) {
  table.require("values", "1 <= in_8_bits & in_8_bits <= 512", "1 to 512 features", "split the features")
      .require("scales", "groups >= 1 & in_8_bits % max(groups, 1) == 0",
               "a number of scales that divides {in_8_bits}", "give equal parts of the values a scale")
      .require("q", "d == in_8_bits + (ropes ? d_rope : 0)", "the features of values and of ropes",
               "give ropes the features that the values lack")
      .require("ropes", "ropes_are_values ? ropes & d <= 512 : 1",
               "at most 512 features together with the values, where they are values",
               "give them, or leave ropes_are_values out")
      .require("q", "d <= 576", "at most 576 features", "split the features")
      .require(
          "ropes",
          [](const Bound<SparseMlaDecode>& c) { return !c.has("ropes") || c.type("ropes") == c.type("q"); },
          "the dtype of q", "convert it");
}

// Exponents of 2 from 1/2 to 2, or factors.
Tensor random_scales(const Shape& shape, DType type, std::uint64_t seed,
                     const std::function<std::int64_t(const std::string&)>&) {
  if (type == u8) return Tensor::random_integers(shape, i32, seed, 126, 129).to(u8);
  return Tensor::random_normal(shape, type, seed);
}

// Records of DeepSeek-V4.
std::string of_584(const char* others) {
  return std::string("in_8_bits=448 groups=7 scales:u8 ropes:bf16 d_rope=64 d=512 ropes_are_values ") +
         others;
}

std::vector<Example> measured_calls() {
  return {{"64", "...=4096 in_8_bits=512 groups=4 ropes:bf16 d_rope=64 d=576 queries=8 heads=64 entries=512"},
          {"256x128_heads",
           "...=16384,64 in_8_bits=512 groups=4 ropes:bf16 d_rope=64 d=576 queries=256 heads=128 "
           "entries=2048"},
          {"256x16_heads",
           "...=16384,64 in_8_bits=512 groups=4 ropes:bf16 d_rope=64 d=576 queries=256 heads=16 "
           "entries=2048"},
          {"256x128_heads_584_bytes", of_584("...=16384,64 queries=256 heads=128 entries=2048")},
          {"256x64_heads_584_bytes", of_584("...=16384,64 queries=256 heads=64 entries=2048")}};
}

std::vector<Example> decode_examples() {
  return {
      {"small_bf16",
       "...=3,16 in_8_bits=16 groups=2 ropes:bf16 d_rope=4 d=20 queries=3 heads=5 entries=20 splits=2"},
      {"counts_bf16",
       "...=70 in_8_bits=128 groups=1 ropes:bf16 d_rope=64 d=192 queries=2 heads=20 entries=70 "
       "sinks:f32 counts"},
      {"records_of_656",
       "...=3,64 in_8_bits=512 groups=4 ropes:bf16 d_rope=64 d=576 queries=2 heads=6 entries=90"},
      {"records_of_584", of_584("...=3,64 queries=2 heads=6 entries=90")},
      {"records_of_584_64_heads", of_584("...=5,16 queries=1 heads=64 entries=80 counts sinks:f32 splits=2")},
      {"records_of_584_8_tokens_128_heads", of_584("...=30,64 queries=8 heads=128 entries=500 sinks:f32")},
      {"exponents_f16",
       "...=3,5 in_8_bits=32 groups=2 scales:u8 ropes:f16 d_rope=8 d=40 f16 queries=2 heads=3 entries=20"}};
}

void add_records(Schema<SparseMlaDecode>& table) {
  using Op = SparseMlaDecode;
  table
      .in(&Op::values, "values", "... in_8_bits", is(e4m3),
          "the values of records, which are features of the keys too")
      .in(&Op::scales, "scales", "... groups", one_of({f32, u8}),
          "factors of equal parts of the values of a record; u8: exponents of 2, plus 127")
      .values(random_scales)
      .remedy("give every record one, or several that divide its values")
      .in(&Op::indices, "indices", "queries entries", index,
          "records that a query sees; numbers of no record, such as -1, are padding; a record "
          "counts as often as it is listed")
      .converts()
      .range("-2", "rows+2")
      .remedy("give every query a list")
      .in(&Op::ropes, "ropes", "... d_rope", one_of({bf16, f16, f32}),
          "the features of keys after their values")
      .remedy("give every record a row");
}

}  // namespace

const OperatorSchema& sparse_mla_decode_schema() {
  using Op = SparseMlaDecode;
  static const OperatorSchema table =
      Schema<Op>("sparse_mla_decode", "attention of every query to the 8-bit cache records in its list")
          .in(&Op::q, "q", "queries heads d", one_of({bf16, f16, f32}), "queries")
          .unit_stride()
          .remedy("give every query all features of its heads")
          .with(add_records)
          .in(&Op::counts, "counts", "queries", index, "number of used entries of each list; all if omitted")
          .range("0", "entries+1")
          .remedy("give every list a count")
          .in(&Op::sinks, "sinks", "heads", floats,
              "one logit per head that is added to the sum of the softmax but has no value")
          .remedy("give every head one")
          .with(add_scale<Op>)
          .option(&Op::ropes_are_values, "ropes_are_values", "the features of ropes are values, too")
          .let("d_v", "ropes_are_values ? d : in_8_bits")
          .option(&Op::splits, "splits", "splits of a list, which are merged; 0: planned",
                  between(0, gpu_table.latents.most, "a number from 1 to 32, or 0 for the plan's choice",
                          "leave it out"))
          .with(add_rules)
          .out(&Op::out, "out", "queries heads d_v", same_as("q"),
               "the weighted sums of values; 0 where no record is seen")
          .unit_stride()
          .out(&Op::lse, "lse", "queries heads", is(f32),
               "natural logarithm of the sum of exp(score); -inf where no record is seen, with a sink its "
               "logit")
          .steps_of("q")
          .source(
              "DeepSeek-AI 2025, DeepSeek-V3.2: decode from its cache of 656 bytes a record; of DeepSeek-V4, "
              "584 bytes")
          .no_gradient("a cache of 8 bits has none")
          .flops("2*queries*heads*entries*(d + d_v)")
          .examples(decode_examples())
          .measured(measured_calls())
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
