// What the tables of attention over selected blocks and of its gradient share.
#pragma once
#include "ops/nsa/call.hpp"
#include "ops/pieces/attention_table.hpp"

namespace tegula::ops {

// Past blocks, drawn for each token by itself, among them the first and the one of the token.
Tensor random_selection(const Shape& shape, DType type, std::uint64_t seed,
                        const std::function<std::int64_t(const std::string&)>& dim);

// Which blocks tokens selected: rows of heads of k, for all query heads of a group, or of q.
template <class Op>
void add_block_indices(Schema<Op>& table) {
  table
      .in(&Op::block_indices, "block_indices", token_dims("queries", "selecting", "entries"), index,
          "numbers of the key blocks that a token sees; block i begins at key i * block_size; other numbers, "
          "such as -1, select nothing")
      .ordered()
      .converts()
      .remedy("give every token and head a row, and check the layout")
      .values(random_selection)
      .let("heads", "kv_heads*group")
      .require("block_indices", "selecting == heads ? 1 : selecting == kv_heads",
               "{heads} heads, as q, or {kv_heads}, as k", "give a row for each head")
      .require("block_indices", "entries <= 4096", "at most 4096 entries of a row",
               "select larger blocks, or use block_sparse_attention");
}

// What stands beside them.
template <class Op>
void add_selection(Schema<Op>& table) {
  table
      .in(&Op::block_counts, "block_counts", token_dims("queries", "selecting", ""), index,
          "number of used entries of each row; all if omitted")
      .ordered()
      .remedy("give every row of entries a count")
      .range("0", "entries+1")
      .in(&Op::sel_scale, "sel_scale", token_dims("queries", "selecting", "entries"), floats,
          "factors of 1 on the scores of each entry's block: results do not depend on them, but their "
          "gradient trains a selector")
      .ordered()
      .remedy("give every entry a factor")
      .with(add_packing<Op>)
      .option(&Op::block_size, "block_size", "keys of a block", block_size)
      .option(&Op::causal, "causal", "hides later keys; the last query is aligned with the last key")
      .option(&Op::diagonal, "diagonal", "a token sees its own block, selected or not")
      .option(&Op::repeats, "repeats", "a block that is listed several times counts several times")
      .option(&Op::window, "window",
              "keys of the sliding window, which ends at the token and has its own softmax; 0: no window",
              between(0, 1 << 29, "a number of keys, at most 2^29, or 0 for no window", "leave it out"))
      .with(add_scale<Op>)
      .with(add_tiles<Op>);
}

// Programs of gradients count the entries of a head, of all batches together.
template <class Op>
bool has_room_for_entries(const Bound<Op>& c) {
  return static_cast<double>(c.dim("batch")) * static_cast<double>(c.dim("queries")) *
             static_cast<double>(c.dim("entries") + c.dim("heads")) <
         2147483648.0;
}
template <class Op>
void add_room_for_entries(Schema<Op>& table) {
  table.require("block_indices", has_room_for_entries<Op>,
                "fewer than 2^31 entries of a head, of all batches together", "split the batch");
}

template <class Op>
void add_gradient_of_scale(Schema<Op>& table) {
  table
      .out(&Op::dsel_scale, "dsel_scale", token_dims("queries", "selecting", "entries"), is(f32),
           "gradient of sel_scale; 0 where an entry selects nothing, or a block that an earlier entry "
           "has selected")
      .ordered()
      .steps_of("q")
      .when("sel_scale_gradient");
}

// Pairs of a query and a key that the selection of a call has, of all heads.
double selected_pairs(const BoundCall& bound, const NsaSelectedOptions& options);
// The same for a table, if all entries name different blocks; and those of the window.
inline constexpr const char* most_pairs_of_selection =
    "batch*queries*heads*(min(entries*block_size, keys) + min(window, keys))";

}  // namespace tegula::ops
