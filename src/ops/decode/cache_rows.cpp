#include "ops/decode/cache_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int least_of_page = 8;  // rows that the copy engine brings at a time

}  // namespace

bool are_whole_pieces(int elements, DType type) {
  constexpr int piece = 16;  // bytes
  return elements * type.bytes() % piece == 0;
}

int elements_off_pieces(const TensorRef& cache) {
  constexpr std::int64_t piece = 16;
  const std::int64_t bytes = cache.dtype.bytes();
  auto unit =
      std::gcd(piece, static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(cache.data) % piece));
  for (int dim = 0; dim + 1 < cache.rank(); ++dim)
    if (cache.size(dim) > 1) unit = std::gcd(unit, cache.stride(dim) * bytes);
  int more = 0;
  while (unit < piece && std::gcd(piece, (cache.size(-1) + more) * bytes) != unit) ++more;
  return more;
}

TensorRef with_longer_rows(TensorRef cache, int elements) {
  cache.shape.back() += elements;
  return cache;
}

int page_of_form(std::int64_t page, int keys) {
  return page == 1 || std::gcd(page, keys) >= least_of_page ? static_cast<int>(page) : 0;
}

void note_pages(const CacheForm& form, std::int64_t page, Launch& launch) {
  if (!form.paged || form.page != 0) return;
  launch.note([&] {
    return fmt::format(
        "plan: threads look up each row of pages of {} tokens; of pages that have a multiple of "
        "{}, the copy engine brings rows",
        page, least_of_page);
  });
}

void note_widened_cache(DType cache, Launch& launch) {
  if (launch.call().on_gpu() || cache.bits() != 8) return;
  launch.note([] {
    return std::string(
        "plan: a cache of 8 bits takes half the memory of one of 16, not half the time: each element is "
        "widened and packed for products, which takes longer than to read it");
  });
}

void note_rows_off_pieces(int elements, Launch& launch) {
  if (elements == 0) return;
  launch.note([] {
    return std::string(
        "plan: threads bring rows of a cache that do not begin at multiples of 16 bytes; a contiguous cache "
        "is faster");
  });
}

CacheRows::CacheRows(const CacheForm& form, const Expr& b, const Expr& length,
                     const std::optional<Tensor>& table)
    : form_(form), b_(b), length_(length), table_(table) {}

CacheRows::Step::Step(const CacheRows& rows, const Expr& first, int keys, const Tensor& cache)
    : rows_(rows), first_(first), pages_(cache.extent(0)), page_size_(cache.extent(1)), keys_(keys) {
  if (!rows.form_.paged || rows.form_.page < least_of_page) return;
  for (int t = 0; t < keys; t += rows_at_once()) numbers_.push_back(number(first_ + t));
}

int CacheRows::Step::rows_at_once() const { return std::gcd(rows_.form_.page, keys_); }

Expr CacheRows::Step::number(const Expr& token) const {
  if (!rows_.form_.paged) return rows_.b_;
  return select(token < rows_.length_, (*rows_.table_)(rows_.b_, token / page_size_), -1);
}

void CacheRows::Step::load(const Tensor& cache, const std::optional<Expr>& head, int column, Shared& tile,
                           bool clip) const {
  const auto sliced = [&](const Expr& page, const Subscript& rows) {
    return head ? cache.slice(page, rows, *head) : cache.slice(page, rows);
  };
  if (rows_.form_.gathers) {
    const Tensor rows = head ? cache.slice(all, 0, *head) : cache.slice(all, 0);
    return gather(
        column == 0 ? rows : rows.slice(all, range(column, rows.extent(1))),
        [&](const Index& t) { return number(first_ + t); }, tile);
  }
  if (rows_.form_.by_threads || (rows_.form_.paged && rows_.form_.page < least_of_page)) {
    parallel(tile, [&](Index t, Index d) {
      const auto [page, row] = place(t);
      tile(t, d) = head ? cache(page, row, *head, column + d) : cache(page, row, column + d);
    });
    return;
  }
  if (!rows_.form_.paged)
    return copy(
        sliced(rows_.b_, clip ? Subscript(range(0, rows_.length_)) : Subscript(all)).at(first_, column),
        tile);
  const int count = rows_at_once();
  for (int i = 0; i < keys_ / count; ++i) {
    Expr begin = rows_.form_.page > count ? (first_ + i * count) % rows_.form_.page : Expr(0),
         left = clamp(rows_.length_ - first_ - i * count, 0, count);
    const Expr& page = numbers_[static_cast<std::size_t>(i)];
    Shared rows = tile.slice(range(i * count, (i + 1) * count), all);
    if (clip)
      copy(sliced(page, range(begin, begin + left)).at(0, column), rows);
    else
      copy(sliced(page, all).at(begin, column), rows);
  }
}

Expr CacheRows::Step::has_gaps() const {
  if (!rows_.form_.paged) return false;
  Operand result = numbers_.empty();  // nobody has looked
  for (const Expr& page : numbers_) result = Operand(result || page < 0 || page >= pages_);
  return result;
}

Expr CacheRows::Step::is_there(const Expr& t) const {
  if (!rows_.form_.paged) return true;
  Expr page = number(first_ + t);
  return page >= 0 && page < pages_;
}

std::pair<Expr, Expr> CacheRows::Step::place(const Expr& t) const {
  Expr token = first_ + t;
  if (numbers_.size() == 1)
    return {select(token < rows_.length_, numbers_.front(), -1), first_ % rows_.form_.page + t};
  if (!rows_.form_.paged) return {select(token < rows_.length_, rows_.b_, -1), token};
  return {number(token), token % page_size_};
}

}  // namespace tegula::ops
