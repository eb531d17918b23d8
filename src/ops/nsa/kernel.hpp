// The tile programs of attention over blocks selected by each token.
#pragma once
#include "ops/lists/selected_blocks.hpp"
#include "ops/lists/walk.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// Fields of a kernel that are named together: `_g3of4`, and `_from2_24` where it divides.
struct NsaHeads {
  int members, pack;
};
struct NsaDivision {
  int fewest, least_gain;
};
template <>
struct FieldOf<NsaHeads> {
  static constexpr std::size_t words = 2, members = 2;
  static void key(const NsaHeads& field, std::int64_t* words) {
    words[0] = field.members, words[1] = field.pack;
  }
  static std::string name(const NsaHeads& field) {
    const std::string of = field.pack > field.members ? fmt::format("of{}", field.pack) : "";
    return fmt::format("_g{}{}", field.members, of);
  }
};
template <>
struct FieldOf<NsaDivision> {
  static constexpr std::size_t words = 2, members = 2;
  static void key(const NsaDivision& field, std::int64_t* words) {
    words[0] = field.fewest, words[1] = field.least_gain;
  }
  static std::string name(const NsaDivision& field) {
    return field.fewest > 1 ? fmt::format("_from{}_{}", field.fewest, field.least_gain) : "";
  }
};

struct NsaKernel {
  DType type = f32, compute = f32;
  int dim = 64, dim_v = 64;
  int block = 64;    // keys of a block
  int entries = 16;  // of a row, at most
  int pack = 1;      // rows of a token in a tile: query heads of one group that share it
  int members = 1;   // these heads; other rows stay empty
  int queries = 1;   // neighbouring tokens that share a tile
  int keys = 64;
  bool causal = true, diagonal = false, repeats = false;
  bool counts = false, varlen = false;
  bool lists = false;  // of tiles are joined by a grid of their own: for GPUs
  // With more than 1, and `lists`: blocks that fewer tokens of a warp group selected are left to a pass over
  // keys, where that saves the group at least so many blocks; a pair of a token and a block costs there what
  // 1 / fewest of a block costs here. See NsaInvertedKernel.
  int fewest = 1, least_gain = 0;
  int chunk = chunk_tokens;  // where pairs are sorted by blocks
  // Results are summed by gates, of this type, with those of the compressed branch and, with 3 branches, of a
  // window.
  int branches = 0;
  DType gates = f32;
  bool keeps = false;  // the selected branch and its lse are results, too

  int rows() const { return queries * pack; }
  int width() const { return entries + (diagonal ? 1 : 0); }  // of a row, with the token's own block
  int partials() const { return width() * tiles_of_block(); }
  // With `lists`: steps of a block, and blocks of a step.
  int tiles_of_block() const { return (block + keys - 1) / keys; }
  int joined() const { return keys % block == 0 && (block % 8 == 0 || keys == block) ? keys / block : 1; }
  // Groups of rows that a warp group multiplies at a time, each made of whole tokens.
  int row_groups() const {
    const int groups = rows() / 64;
    return rows() % 64 == 0 && queries % groups == 0 ? groups : 1;
  }
  // Runs of rows that leave a block out if none of their tokens selected it: of a token that has the rows of
  // a warp, else of a warp group.
  int row_runs() const { return pack == 16 && row_groups() > 1 ? queries : row_groups(); }
  SelectedBlocks selected() const {
    return {block,  entries,      queries, causal,     diagonal, repeats,
            varlen, row_groups(), fewest,  least_gain, chunk};
  }
  // A tile serves rows that chose differently.
  bool has_times() const { return selected().has_times(); }
  TileOfBlocks tiles() const { return {block, keys}; }
  bool divides() const { return fewest > 1; }
  auto fields() const {
    return std::tuple(
        type, compute, labelled("d", dim), labelled("v", dim_v), labelled("b", block), labelled("e", entries),
        NsaHeads{members, pack}, labelled("q", queries), labelled("k", keys), labelled("causal", causal),
        labelled("diagonal", diagonal), labelled("repeats", repeats), labelled("counts", counts),
        labelled("varlen", varlen), labelled("lists", lists), NsaDivision{fewest, least_gain},
        labelled("c", chunk > chunk_tokens ? std::optional(chunk) : std::nullopt),
        labelled("branches", branches > 0 ? std::optional(branches) : std::nullopt),
        labelled("gates", branches > 0 ? std::optional(gates) : std::nullopt), labelled("keeps", keeps));
  }
};

// Arguments: q [batch, tokens, kv heads, group, d], k, v, out, lse [batch, kv heads, group, tokens], choice
// [batch, tokens, kv heads, group, entries], scale (with log2(e)); then, where the instance has them, counts
// [batch, tokens, kv heads, group], and for packed sequences q_begin, k_begin [sequences + 1] and longest,
// without the batch dimensions. With branches compressed and window as out, and gates [batch, tokens, kv
// heads, group, branches], but no lse; where it keeps branches also selected as out, and lse. With pack > 1
// the entries of group member 0 are those of all. With fewest > 1, for nsa_inverted_kernel: how many segments
// the tokens have, the tokens of one, and as outputs the most that a token of each segment [segments] and of
// each warp group of a tile [kv heads, batch · tiles · groups] left to it, and the pairs of each segment, as
// PairLists has them.
lang::Kernel nsa_kernel(const NsaKernel& instance);

// The pass over inverted lists: what tiles of tokens leave out, blocks that few of their tokens selected.
//
// nsa_kernel sorts such pairs of a token and a block by blocks, segment by segment of the tokens. Here the
// blocks of keys meet the queries of their lists, whose results are partials; then every token merges its
// partials with what its tile has found. A call is for one segment, so that partials take no more memory than
// they may.
struct NsaInvertedKernel {
  NsaKernel forward;
  auto fields() const { return std::tuple(forward); }
};

// Arguments: q, k, v of the segment as in nsa_kernel, out and lse as that left them, out and lse (the same,
// or others, of which only the tiles are written that left something out), scale, the number of tokens after
// the segment, its number, the number of segments, the tokens of one and of all; then what nsa_kernel made,
// of all segments.
lang::Kernel nsa_inverted_kernel(const NsaInvertedKernel& instance);

// The kernel for whose lists the pairs are sorted; longer lists are divided.
NsaKernel lists_left_out(const NsaKernel& forward);
int longest_inverted(const NsaKernel& forward);

}  // namespace tegula::ops
