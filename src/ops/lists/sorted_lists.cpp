#include "ops/lists/sorted_lists.hpp"

#include "ops/lists/running_sums.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int word = 32;          // blocks of a word of marks
constexpr int most_words = 1024;  // that are marked at a time

Expr bit(const Expr& n) { return u32(1) << u32(n); }

void mark(const SortedLists::Row& row, const Expr& begin, Shared& marks) {
  const int words = marks.extent(0);
  const ChoiceRow& choice = row.choice;
  clear(marks);
  if (choice.mask) {
    parallel(min(row.blocks - begin, words * word), [&](Index at) {
      when(choice.row(begin + at), [&] { atomic_or(marks(at / word), bit(at % word)); });
    });
    return;
  }
  parallel(choice.entries, [&](Index n) {
    Expr entry = choice.row(n), at = entry - begin;
    when(entry >= begin && entry < min(row.blocks, begin + words * word),
         [&] { atomic_or(marks(at / word), bit(at % word)); });
  });
}

// Where the blocks of each word stand in the list, of which `count` are there already.
void find_places(const Shared& marks, Shared& places, Var& count) {
  const Fragment numbers = map(
      marks, [&](Index w) { return i32(popcount(marks(w))); }, i32);
  add_up(numbers, places, count);
}

// Every marked block stands in the list behind those that are marked before it.
void list_marked(const SortedLists::Row& row, const Expr& begin, const Shared& marks, const Shared& places,
                 const Tensor& list) {
  parallel(min(row.blocks - begin, marks.extent(0) * word), [&](Index at) {
    Expr bits = marks(at / word), own = bit(at % word);
    when((bits & own) != 0u,
         [&] { list(places(at / word) + i32(popcount(bits & (own - 1u)))) = begin + at; });
  });
}

}  // namespace

int marked_blocks(std::int64_t blocks) { return blocks <= word * word ? word * word : most_words * word; }

Expr blocks_in_question(bool causal, int q_block, int k_block, const Expr& queries, const Expr& keys) {
  const int blocks = ceildiv(q_block, k_block);
  const bool even = q_block % k_block == 0 || k_block % q_block == 0;
  if (causal && even) return select((keys - queries) % k_block == 0, blocks, blocks + 1);
  if (causal) return Operand(blocks + 1);
  return select(keys % k_block == 0, 0, 1);
}

SortedLists::SortedLists(const Expr& batches, const Expr& heads, const Expr& rows, const Expr& width,
                         std::int64_t blocks, OfRow of_row)
    : words_(marked_blocks(blocks) / word),
      batches_(batches),
      heads_(heads),
      rows_(rows),
      of_row_(std::move(of_row)),
      lists_(workspace("sorted_lists", {batches, heads, rows, width}, i32)),
      lengths_(workspace("sorted_lengths", {batches, heads, rows}, i32)) {}

void SortedLists::record_grid() const {
  const int words = words_, threads = words / 4 < 64 ? 64 : 256;
  grid(rows_, heads_, batches_, {.threads = threads}, [&](Index x, Index h, Index b) {
    const Row row = of_row_(b, h, x);
    Tensor list = lists_.slice(b, h, x);
    Var count = 0;
    serial(ceildiv(row.blocks, words * word), [&](Index n) {
      Expr begin = n * (words * word);
      Shared marks({words}, u32), places({words}, i32);
      mark(row, begin, marks);
      find_places(marks, places, count);
      list_marked(row, begin, marks, places, list);
    });
    lengths_(b, h, x) = count;
  });
}

SortedLists::List SortedLists::list(const Expr& batch, const Expr& head, const Expr& row) const {
  return {lists_.slice(batch, head, row), lengths_(batch, head, row)};
}

}  // namespace tegula::ops
