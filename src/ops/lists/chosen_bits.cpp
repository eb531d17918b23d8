#include "ops/lists/chosen_bits.hpp"

namespace tegula::ops {

using namespace lang;

ChosenBits::ChosenBits(const InverseLists::List& list, const BlockTile& step, int fold)
    : words_(InverseLists::words_of(fold)), block_(step.shape.block) {
  const int blocks = step.shape.blocks();
  auto bits = [&](const Expr& n, const Expr& w) -> Expr { return (*list.bits)(list.begin + n, w); };
  if (step.row_of) {
    of_queries_ = std::make_shared<Shared>(std::initializer_list<int>{step.shape.extent, words_}, u32);
    parallel(*of_queries_, [&](Index query, Index w) {
      (*of_queries_)(query, w) = u32(0);
      Expr place = step.place(query);
      when(place < list.count, [&] { (*of_queries_)(query, w) = bits(place, w); });
    });
    return;
  }
  for (int i = 0; i < blocks; ++i)
    for (int w = 0; w < words_; ++w) {
      Expr n = blocks > 1 ? min(step.step * blocks + i, list.count - 1) : *step.entry;
      of_blocks_.push_back(bits(n, w));
    }
}

Expr ChosenBits::has(const Expr& query, const Expr& block) const {
  return (word_of(query, block) >> u32(block % InverseLists::word_bits) & 1u) != 0u;
}

// The word of a block, one of those from w on.
Expr ChosenBits::word_of(const Expr& query, const Expr& block, int w) const {
  Expr own = word(query, w);
  if (w + 1 == words_) return own;
  return select(block < (w + 1) * InverseLists::word_bits, own, word_of(query, block, w + 1));
}

// The word for the block of a query, one of the blocks from i on.
Expr ChosenBits::word(const Expr& query, int w, std::size_t i) const {
  if (of_queries_) return (*of_queries_)(query, w);
  const auto words = static_cast<std::size_t>(words_);
  Expr own = of_blocks_[i * words + static_cast<std::size_t>(w)];
  if ((i + 1) * words == of_blocks_.size()) return own;
  return select(query < static_cast<int>(i + 1) * block_, own, word(query, w, i + 1));
}

}  // namespace tegula::ops
