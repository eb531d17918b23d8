// Decode of one token with grouped heads, split along the keys, and its sparse forms: keys are chosen token
// by token, by a mask of blocks, or by a list of blocks in any order, where what is no block of the sequence
// counts for nothing; the cache may be in pages. Splits without keys have the lse −∞.
#include "tests/programs/decode/attention.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

enum class Choice { all, token_mask, block_mask, block_mask_in_branch, list };

struct GqaTile {
  int group = 4, dim = 128, block = 64;
  Choice choice = Choice::all;
  int page = 0;  // tokens; 0: keys of a request are one after another
  int stages = 3, rows = 64, threads = 128;
  DType type = bf16;
};

Extents with(Extents extents, std::initializer_list<Operand> more) {
  for (const Operand& extent : more) extents.push_back(extent);
  return extents;
}

// The parameters of the call, those that a form does not have left out.
class GqaDecode {
 public:
  explicit GqaDecode(const GqaTile& t) : t_(t) {
    require(t.page % t.block == 0, "a block does not cross a page");
    if (t.page > 0)
      pages_.emplace("pages"), width_.emplace("table_width");
    else
      S_.emplace("S");
    if (t.choice != Choice::all && t.choice != Choice::token_mask) chosen_.emplace("chosen");
    const Extents tokens = t.page > 0 ? Extents{*pages_, t.page} : Extents{B_, *S_};
    Q_.emplace(input("Q", {B_, H_, t.group, t.dim}, t.type));
    K_.emplace(input("K", with(tokens, {H_, t.dim}), t.type));
    V_.emplace(input("V", with(tokens, {H_, t.dim}), t.type));
    lengths_.emplace(input("lengths", {B_}, i32));
    if (t.page > 0) table_.emplace(input("table", {B_, *width_}, i32));
    if (t.choice == Choice::token_mask) mask_.emplace(input("mask", {B_, *S_, H_}, u8));
    if (is_block_mask()) mask_.emplace(input("mask", {B_, H_, *chosen_}, boolean));
    if (t.choice == Choice::list) list_.emplace(input("list", {B_, H_, *chosen_}, i32));
    declare_results();
  }

  void record() {
    if (t_.choice == Choice::block_mask) list_blocks();
    attend_splits();
    grid(t_.group, H_, B_, [&](Index g, Index h, Index b) {
      (*LSE_)(b, h, g) = merge_splits(split_out_->slice(b, h, g), split_lse_->slice(b, h, g), *splits_,
                                      t_.dim, O_->slice(b, h, g));
    });
  }

 private:
  bool is_block_mask() const {
    return t_.choice == Choice::block_mask || t_.choice == Choice::block_mask_in_branch;
  }
  void declare_results() {
    O_.emplace(output("O", {B_, H_, t_.group, t_.dim}, t_.type));
    LSE_.emplace(output("LSE", {B_, H_, t_.group}, f32));
    scale_.emplace(scalar("scale", f32));  // times log2(e)
    splits_.emplace(scalar("splits", i32));
    split_out_.emplace(workspace("part", {B_, H_, t_.group, *splits_, t_.dim}, f32));
    split_lse_.emplace(workspace("part_lse", {B_, H_, t_.group, *splits_}, f32));
  }
  // A mask becomes a list, so that the loop over its blocks has no branch.
  void list_blocks() {
    list_.emplace(workspace("list", {B_, H_, *chosen_}, i32));
    count_.emplace(workspace("count", {B_, H_}, i32));
    grid(H_, B_, {.threads = 32}, [&](Index h, Index b) {
      Var found = 0;
      serial(*chosen_, [&](Index i) {
        when((*mask_)(b, h, i), [&] {
          (*list_)(b, h, found) = i;
          found += 1;
        });
      });
      (*count_)(b, h) = found;
    });
  }
  void attend_splits() {
    grid(*splits_, H_, B_, {.threads = t_.threads}, [&](Index split, Index h, Index b) {
      Shared q({t_.rows, t_.dim}, t_.type);
      copy(Q_->slice(b, h).at(0), q);  // rows from `group` on are zeros
      Fragment acc({t_.rows, t_.dim}, f32, 0);
      OnlineSoftmax softmax(t_.rows, *scale_);
      Expr steps = count_  ? Expr((*count_)(b, h))
                   : list_ ? Expr(*chosen_)
                           : ceildiv((*lengths_)(b), t_.block);
      Expr each = ceildiv(steps, *splits_);
      const Range own = range(split * each, min(steps, (split + 1) * each));
      pipelined(own, {.stages = t_.stages}, [&](Index j) {
        const auto attend = [&] { attend_block(q, softmax, acc, j, h, b); };
        if (t_.choice == Choice::block_mask_in_branch)
          when((*mask_)(b, h, j), attend);
        else
          attend();
      });
      softmax.normalize(acc);
      copy(acc, split_out_->slice(b, h, all, split).at(0));
      copy(softmax.lse(), split_lse_->slice(b, h, all, split).at(0));
    });
  }
  void attend_block(const Shared& q, OnlineSoftmax& softmax, Fragment& acc, const Index& j, const Index& h,
                    const Index& b) {
    Expr length = (*lengths_)(b), block = list_ ? Expr((*list_)(b, h, j)) : Expr(j), first = block * t_.block;
    const bool paged = t_.page > 0;
    const int page_size = paged ? t_.page : 1;
    Expr page =
        !paged ? Expr(b) : select(block >= 0 && first < length, (*table_)(b, max(first, 0) / page_size), -1);
    Expr row = paged ? first % page_size : first;
    Shared k({t_.block, t_.dim}, t_.type), v({t_.block, t_.dim}, t_.type);
    copy(K_->slice(page, all, h).at(row), k);
    copy(V_->slice(page, all, h).at(row), v);
    Fragment s({t_.rows, t_.block}, f32, 0);
    gemm(q, k.T(), s);
    if (t_.choice == Choice::token_mask) {
      parallel(s, [&](Index i, Index c) {
        s(i, c) = select(first + c < length && (*mask_)(b, first + c, h) != 0u, s(i, c), -inf);
      });
    } else {
      when(block < 0 || first + t_.block > length, [&] {
        parallel(
            s, [&](Index i, Index c) { s(i, c) = select(block >= 0 && first + c < length, s(i, c), -inf); });
      });
    }
    scale_rows(acc, softmax.update(s));
    gemm(s.to(t_.type), v, acc);
  }

  GqaTile t_;
  Dim B_{"B"}, H_{"H"};
  std::optional<Dim> S_, pages_, width_, chosen_;
  std::optional<Tensor> Q_, K_, V_, lengths_, table_, mask_, list_, count_, O_, LSE_, split_out_, split_lse_;
  std::optional<Expr> scale_, splits_;
};

Kernel gqa_decode_of(const GqaTile& t) {
  return kernel("gqa_decode", [&] { GqaDecode(t).record(); });
}

constexpr int B = 2, H = 2, S = 200, blocks = 7, dim = 64, group = 4;
const std::vector<int> lengths{200, 130};
const std::vector<int> listed{6, -1, 0, 3, 5, 1, 9, 2, 4, 4000, 0, -1, -1, -1, -1, -1};  // [B, H, 4]
const std::vector<int> pages{5, 2, 7, 0, 1, 6, 3, 4};  // [B, 4], of 64 tokens

std::vector<int> keys_of(const GqaTile& t, const Numbers& mask, int b, int h) {
  std::vector<int> keys;
  if (t.choice == Choice::list) {
    each(4, [&](int i) {
      const int block = listed[(b * H + h) * 4 + i];
      for (int key = block * t.block; block >= 0 && key < std::min((block + 1) * t.block, lengths[b]); ++key)
        keys.push_back(key);
    });
    return keys;
  }
  each(lengths[b], [&](int key) {
    const bool seen = t.choice == Choice::all          ? true
                      : t.choice == Choice::token_mask ? mask(b, key, h) != 0
                                                       : mask(b, h, key / t.block) != 0;
    if (seen) keys.push_back(key);
  });
  return keys;
}

Data paged(const Data& tokens) {
  const Data cache = Data::zeros({8, 64, H, dim}, bf16);
  each(B, S, [&](int b, int i) {
    tegula::copy_elements(tokens.select(0, b).select(0, i),
                          cache.select(0, pages[b * 4 + i / 64]).select(0, i % 64));
  });
  return cache;
}

Prepared gqa_call(GqaTile t) {
  t.dim = dim, t.block = 32;
  const Data q = normal({B, H, group, dim}, bf16, 1), k = normal({B, S, H, dim}, bf16, 2);
  const Data v = normal({B, S, H, dim}, bf16, 3);
  const Data mask = t.choice == Choice::token_mask ? integers({B, S, H}, u8, 4, 0, 2)
                                                   : integers({B, H, blocks}, boolean, 4, 0, 2);
  const Numbers Q(q), K(k), V(v), M(mask);
  const double scale = 1 / std::sqrt(dim);
  Numbers O(Q.shape), LSE({B, H, group});
  each(B, H, group, [&](int b, int h, int g) {
    const std::vector<int> keys = keys_of(t, M, b, h);
    const auto score = [&](int i) {
      return scale * sum_of(dim, [&](int d) { return Q(b, h, g, d) * K(b, keys[i], h, d); });
    };
    const Attended own =
        attend(static_cast<int>(keys.size()), dim, score, [&](int i, int d) { return V(b, keys[i], h, d); });
    each(dim, [&](int d) { O(b, h, g, d) = own.out[d]; });
    LSE(b, h, g) = own.lse;
  });
  std::vector<Value> values{q, t.page ? paged(k) : k, t.page ? paged(v) : v, Data::from(lengths)};
  if (t.page) values.emplace_back(Data::from(pages, {B, 4}));
  if (t.choice == Choice::list) values.emplace_back(Data::from(listed, {B, H, 4}));
  if (t.choice != Choice::list && t.choice != Choice::all) values.emplace_back(mask);
  for (Value value :
       {Value(Wanted{O, bf16}), Value(Wanted{LSE, f32, 1e-3}), Value(scale * log2_of_e), Value(3)})
    values.push_back(std::move(value));
  return {gqa_decode_of(t), values};
}

}  // namespace

Program gqa_decode() {
  return {
      "decode",
      "gqa_decode",
      "one token of grouped heads against all keys or chosen ones, in splits that a second grid merges",
      {{"all", [] { return gqa_call({}); }},
       {"token_mask", [] { return gqa_call({.choice = Choice::token_mask}); }},
       {"block_mask", [] { return gqa_call({.choice = Choice::block_mask}); }},
       {"branch", [] { return gqa_call({.choice = Choice::block_mask_in_branch}); }},
       {"list", [] { return gqa_call({.choice = Choice::list}); }},
       {"paged_list", [] { return gqa_call({.choice = Choice::list, .page = 64}); }}},
      {{"all keys", [] { return gqa_decode_of({}); }},
       {"all keys, the compiler's threads", [] { return gqa_decode_of({.threads = 0}); }},
       {"mask of tokens", [] { return gqa_decode_of({.choice = Choice::token_mask}); }},
       {"mask of blocks, made a list", [] { return gqa_decode_of({.choice = Choice::block_mask}); }},
       {"mask of blocks, a branch", [] { return gqa_decode_of({.choice = Choice::block_mask_in_branch}); }},
       {"list of blocks", [] { return gqa_decode_of({.choice = Choice::list}); }},
       {"list of blocks in pages", [] { return gqa_decode_of({.choice = Choice::list, .page = 64}); }}}};
}

}  // namespace programs
