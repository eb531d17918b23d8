// Lines that the tables of attention's operators share.
#pragma once
#include <fmt/format.h>

#include <string>

#include "ops/pieces/heads.hpp"
#include "ops/schema/schema.hpp"
#include "tegula/ops/heads.hpp"

namespace tegula::ops {

// A tensor over tokens in the order that the layout says. Programs get it as [batch, tokens, heads,
// features].
inline std::string batch_dims(const char* tokens, const char* heads, const char* features) {
  return fmt::format("layout=bshd ? batch {0} {1} {2} : batch {1} {0} {2}", tokens, heads, features);
}
// The same, or packed sequences, which have no batch.
inline std::string token_dims(const char* tokens, const char* heads, const char* features) {
  return fmt::format("cu_seqlens_q ? {} {} {} : {}", tokens, heads, features,
                     batch_dims(tokens, heads, features));
}
// Head h of q uses head h / group of k and v. Programs get the heads of q as two dims.
inline constexpr const char* query_heads = "(kv_heads*group)";
inline const std::string q_dims = token_dims("queries", query_heads, "d");
inline const std::string out_dims = token_dims("queries", query_heads, "d_v");
inline const std::string k_dims = token_dims("keys", "kv_heads", "d");
inline const std::string v_dims = token_dims("keys", "kv_heads", "d_v");
inline const std::string lse_dims =
    "cu_seqlens_q ? (kv_heads*group) queries : batch (kv_heads*group) queries";

// q and k, of which sequences may be packed or not.
template <class Op>
void add_queries_and_keys(Schema<Op>& table, const std::string& of_q, const std::string& of_k,
                          const TypeRule& types = floats) {
  table.in(&Op::q, "q", of_q, types, "queries")
      .unit_stride()
      .ordered()
      .remedy("give q a multiple of the heads of k, and check the layout")
      .in(&Op::k, "k", of_k, same_as("q"), "keys")
      .unit_stride()
      .ordered()
      .remedy("give it the batch and the features of q, and check the layout")
      .require("k", "group >= 1", "no heads, as q", "give q a head for each of k, or more")
      .require("q", "1 <= d & d <= 576", "1 to 576 features", "split the heads");
}

// q, k and v of one of these types.
template <class Op>
void add_heads_of(Schema<Op>& table, const TypeRule& types) {
  add_queries_and_keys(table, q_dims, k_dims, types);
  table.in(&Op::v, "v", v_dims, same_as("q"), "values")
      .unit_stride()
      .ordered()
      .remedy("give it the batch, keys and heads of k, and check the layout")
      .option(&Op::layout, "layout", "order of batch, sequence, heads, features; packed sequences have none")
      .require("v", "1 <= d_v & d_v <= 512", "1 to 512 features", "split the heads");
}

template <class Op>
void add_heads(Schema<Op>& table) {
  add_heads_of(table, floats);
}

// The results, of these types.
template <class Op>
void add_results_of_types(Schema<Op>& table, const TypeRule& types) {
  table.out(&Op::out, "out", out_dims, types, "the weighted sums of values; 0 where no key is seen")
      .unit_stride()
      .ordered()
      .out(&Op::lse, "lse", lse_dims, is(f32),
           "natural logarithm of the sum of exp(score); -inf where no key is seen, with a sink its logit");
}
template <class Op>
void add_attention_results(Schema<Op>& table) {
  add_results_of_types(table, same_as("q"));
}

// Factors of q, k and v in 8 bits, which are beside those that all attention has.
template <class Op>
void add_head_scales(Schema<Op>& table) {
  static const std::string dims = "cu_seqlens_q ? ~sequences ~kv_heads : ~batch ~kv_heads";
  table
      .in(&Op::q_scale, "q_scale", dims, is(f32),
          "positive factors of queries in 8 bits: one, or one for each sequence or head of k")
      .range("1", "3")
      .in(&Op::k_scale, "k_scale", dims, is(f32), "positive factors of keys, likewise")
      .range("1", "3")
      .in(&Op::v_scale, "v_scale", dims, is(f32), "factors of values, likewise")
      .range("1", "3")
      .require(
          "q_scale", [](const Bound<Op>& c) { return c.type("q").bits() == 8 || !c.has("q_scale"); },
          "q of 8 bits", "put the factor of all scores into scale")
      .require(
          "k_scale", [](const Bound<Op>& c) { return c.type("q").bits() == 8 || !c.has("k_scale"); },
          "k of 8 bits", "put the factor of all scores into scale")
      .require(
          "v_scale", [](const Bound<Op>& c) { return c.type("q").bits() == 8 || !c.has("v_scale"); },
          "v of 8 bits", "multiply the result by it");
}

// Sequences packed one after another; `longest_q` and `longest_k` are what is known of their lengths.
template <class Op>
void add_packing(Schema<Op>& table) {
  const OptionRule tokens{0, {}, false, "a number of tokens, or 0 if unknown", "leave it out"};
  const char* beside = "leave it out: without them all sequences are equally long";
  table
      .in(&Op::cu_seqlens_q, "cu_seqlens_q", "sequences+1", index,
          "boundaries of packed sequences of queries: sequence i has the tokens from entry i up to entry i + "
          "1")
      .remedy("give every sequence a range of queries and one of keys, possibly empty")
      .packs("queries", "max_seqlen_q", "longest_q")
      .in(&Op::cu_seqlens_k, "cu_seqlens_k", "sequences+1", index, "boundaries of packed sequences of keys")
      .remedy("give every sequence a range of queries and one of keys, possibly empty")
      .packs("keys", "max_seqlen_k", "longest_k")
      .option(&Op::max_seqlen_q, "max_seqlen_q",
              "upper bound on the queries of a packed sequence, which the caller promises", tokens)
      .option(&Op::max_seqlen_k, "max_seqlen_k",
              "upper bound on the keys of a packed sequence, which the caller promises", tokens)
      .require("cu_seqlens_q", "cu_seqlens_q == cu_seqlens_k", "cu_seqlens_q and cu_seqlens_k together",
               "give both")
      .require("max_seqlen_q", "cu_seqlens_q ? 1 : max_seqlen_q <= 0",
               "cu_seqlens_q and cu_seqlens_k as well", beside)
      .require("max_seqlen_k", "cu_seqlens_q ? 1 : max_seqlen_k <= 0",
               "cu_seqlens_q and cu_seqlens_k as well", beside);
}

template <class Op>
void add_scale(Schema<Op>& table) {
  table
      .option(&Op::scale, "scale", "factor of the scores",
              {0, {}, true, "a positive finite number", "negate q for a negative scale"})
      .otherwise("rsqrt(d)");
}

template <class Op>
void add_softcap(Schema<Op>& table) {
  table.option(&Op::softcap, "softcap", "scores become softcap * tanh(score / softcap); 0 is off",
               {0, {}, false, "a positive number, or 0 for none", "leave it out"});
}

template <class Op>
void add_tiles(Schema<Op>& table) {
  const OptionRule extents =
      between(0, 1024, "extents from 1 to 1024, or 0 for the plan's choice", "leave them out");
  table.option(&Op::tiles, &AttentionTiles::queries, "tile_queries", "queries of a tile; 0: planned", extents)
      .option(&Op::tiles, &AttentionTiles::keys, "tile_keys", "keys of a tile; 0: planned", extents);
}

// ---- of gradients: in front of the heads, after them, and what they give
template <class Op>
void add_gradient_of_out(Schema<Op>& table) {
  table.in(&Op::dout, "dout", out_dims, same_as("q"), "gradient of out").unit_stride().ordered().follows();
}

template <class Op>
auto add_results_of(const char* meaning) {
  return [meaning](Schema<Op>& table) {
    table.in(&Op::out, "out", out_dims, same_as("q"), meaning)
        .unit_stride()
        .ordered()
        .in(&Op::lse, "lse", lse_dims, is(f32), "the lse of that result")
        .in(&Op::dlse, "dlse", lse_dims, is(f32), "gradient of lse; ignored where lse is -inf");
  };
}

template <class Op>
void add_deterministic(Schema<Op>& table) {
  table.option(&Op::deterministic, "deterministic",
               "makes results bitwise reproducible; if false, the contributions to dq are added in any order "
               "if that is faster");
}

template <class Op>
void add_gradients(Schema<Op>& table) {
  table.out(&Op::dq, "dq", q_dims, same_as("q"), "gradient of q")
      .unit_stride()
      .ordered()
      .out(&Op::dk, "dk", k_dims, same_as("k"), "gradient of k")
      .unit_stride()
      .ordered()
      .out(&Op::dv, "dv", v_dims, same_as("v"), "gradient of v")
      .unit_stride()
      .ordered();
}

}  // namespace tegula::ops
