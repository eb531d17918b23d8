// The tile program of the choice of the largest scores of rows.
#pragma once
#include <optional>

#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

struct TopkKernel {
  int digit = 11;  // bits of a score that a pass over a row fixes
  // Scores among which those of a long row are sought that a sample lets through; 0: rows are searched whole.
  int candidates = 8192;
  int held = 0;      // columns of rows that threads hold in registers, at most; 0: rows may be longer
  int words = 2048;  // of 32 columns, whose bits a block holds at a time
  int threads = 1024;
  int loads = 8;   // scores that a thread has under way where it reads a row from memory
  int blocks = 0;  // that share a processor; 0: as many as there are registers for
  bool begins = false, ends = false, pages = false;
  bool own_pages = false;  // of each row
  // Which columns are chosen before all others: the first, and that of a row's last query.
  bool first = false, diagonal = false;
  std::optional<DType> any = {};  // of numbers that may all be chosen, −∞ and, as the largest, NaN

  auto fields() const {
    const bool holds = held > 0;
    return std::tuple(labelled("held", holds ? std::optional(held) : std::nullopt), labelled("digit", digit),
                      labelled("candidates", candidates > 0 ? std::optional(candidates) : std::nullopt),
                      labelled("words", holds ? std::nullopt : std::optional(words)), labelled("t", threads),
                      labelled("loads", holds ? std::nullopt : std::optional(loads)),
                      labelled("blocks", blocks > 0 ? std::optional(blocks) : std::nullopt),
                      labelled("begins", begins), labelled("ends", ends), labelled("pages", pages),
                      labelled("own", own_pages), labelled("first", first), labelled("diagonal", diagonal),
                      labelled("any", any));
  }
};

// For `count` of so many columns of so many rows.
TopkKernel topk_instance(std::int64_t rows, std::int64_t columns, std::int64_t count, bool begins, bool ends,
                         bool pages);

// Arguments: scores [batch, rows, columns], out [batch, rows, count]; then, where the instance has them,
// begins and ends [batch, rows], page_table [batch, pages], or
// [batch, rows, pages], and page_size; q_block_size, k_block_size and key_offset of the diagonal.
lang::Kernel topk_kernel(const TopkKernel& instance);

}  // namespace tegula::ops
