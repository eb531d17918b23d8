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
  int words = 2048;  // of 32 columns, whose bits a block holds at a time
  int threads = 1024;
  int loads = 8;  // scores that a thread has under way where it reads a row from memory
  bool begins = false, ends = false, pages = false;
  bool own_pages = false;  // of each row
  std::optional<DType> any = {};  // of numbers that may all be chosen, −∞ and, as the largest, NaN

  auto fields() const {
    return std::tuple(labelled("digit", digit),
                      labelled("candidates", candidates > 0 ? std::optional(candidates) : std::nullopt),
                      labelled("words", words), labelled("t", threads), labelled("loads", loads),
                      labelled("begins", begins), labelled("ends", ends), labelled("pages", pages),
                      labelled("own", own_pages), labelled("any", any));
  }
};

// For `count` of so many columns of so many rows.
TopkKernel topk_instance(std::int64_t rows, std::int64_t columns, std::int64_t count, bool begins, bool ends,
                         bool pages);

// Arguments: scores [batch, rows, columns], out [batch, rows, count]; then, where the instance has them,
// begins and ends [batch, rows], page_table [batch, pages], or
// [batch, rows, pages], and page_size.
lang::Kernel topk_kernel(const TopkKernel& instance);

}  // namespace tegula::ops
