// The rows of a cache that belong to a sequence: one after another, or in pages that a table lists.
#pragma once
#include <optional>
#include <vector>

#include "ops/schema/instance.hpp"
#include "ops/schema/launch.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// What a program is compiled for.
struct CacheForm {
  bool paged = false, lengths = false;
  // Tokens of a page where pages and tiles share a divisor that is worth a box of the copy engine. 1: each
  // token is looked up, by itself; 0: likewise, where only a call knows the page.
  int page = 0;
  // Threads bring the rows, wherever they begin: the copy engine takes none that begin off 16 bytes.
  bool by_threads = false;
  // On a CPU, pages of one token: rows are gathered, so that each is packed from where it is.
  bool gathers = false;
  auto fields() const {
    return std::tuple(labelled("paged", paged), labelled("lengths", lengths),
                      labelled("page", page > 0 ? std::optional(page) : std::nullopt),
                      labelled("by_threads", by_threads), labelled("gathers", gathers));
  }
};

inline constexpr const char* cache_is_too_short =
    "a sequence of cache_seqlens has more tokens than its cache has room for; give it more pages in "
    "block_table, "
    "or a longer cache";

// Whether rows of so many elements, one behind the other, begin at multiples of 16 bytes.
bool are_whole_pieces(int elements, DType type);
// By how many elements a row of `cache` is to be longer so that such rows, one behind the other, would begin
// where those of the cache may: 0 where that is at multiples of 16 bytes. Programs do not read the longer
// ends.
int elements_off_pieces(const TensorRef& cache);
// The cache with such rows.
TensorRef with_longer_rows(TensorRef cache, int elements);
// The page of a form, for tiles of `keys` rows.
int page_of_form(std::int64_t page, int keys);
// On a CPU: elements of 8 bits are widened for products.
void note_widened_cache(DType cache, Launch& launch);
// Of caches whose rows are so much longer.
void note_rows_off_pieces(int elements, Launch& launch);
// Where the copy engine cannot bring rows of pages of so many tokens.
void note_pages(const CacheForm& form, std::int64_t page, Launch& launch);

class CacheRows {
 public:
  // The rows of the `length` tokens of sequence b. `cache` is [batch, tokens, …], or [pages, page size, …]
  // with `table` [batch, width].
  CacheRows(const CacheForm& form, const lang::Expr& b, const lang::Expr& length,
            const std::optional<lang::Tensor>& table);

  // The tokens of a step of a loop: `keys` from `first` on.
  class Step {
   public:
    Step(const CacheRows& rows, const lang::Expr& first, int keys, const lang::Tensor& cache);
    // Columns of `cache`, from `column` on, of one head if there are heads. What is after the last token is
    // 0 if `clip` says so, and anything otherwise.
    void load(const lang::Tensor& cache, const std::optional<lang::Expr>& head, int column,
              lang::Shared& tile, bool clip) const;
    // Whether some token of the step may be in no page.
    lang::Expr has_gaps() const;
    // Whether token t of the step, which is before the end, is in a page.
    lang::Expr is_there(const lang::Expr& t) const;
    // Where token t of the step is: its page and its row there. After the end: page −1.
    std::pair<lang::Expr, lang::Expr> place(const lang::Expr& t) const;

   private:
    lang::Expr number(const lang::Expr& token) const;
    // Rows that are in one page, wherever the step begins.
    int rows_at_once() const;

    const CacheRows& rows_;
    lang::Expr first_, pages_, page_size_;
    int keys_;
    std::vector<lang::Expr> numbers_;  // of the pages of the step
  };

 private:
  CacheForm form_;
  lang::Expr b_, length_;
  std::optional<lang::Tensor> table_;
};

}  // namespace tegula::ops
