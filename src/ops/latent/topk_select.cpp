// The choice of the largest scores of rows: its table and formula.
#include <algorithm>
#include <limits>

#include "ops/latent/topk_table.hpp"
#include "ops/lists/ranked.hpp"

namespace tegula::ops {

namespace {

void run(const Bound<TopkSelect>& c, Launch& launch) {
  launch(topk_instance(c.dim("batch") * c.dim("rows"), c.dim("columns"), c->count, c.has("begins"),
                       c.has("ends"), c.has("page_table")),
         topk_kernel);
}

void formula(const Bound<TopkSelect>& c, Exact& exact) {
  const std::int64_t rows = c.dim("rows"), columns = c.dim("columns");
  const auto* begins = c.has("begins") ? exact["begins"].data_as<std::int32_t>() : nullptr;
  const auto* ends = c.has("ends") ? exact["ends"].data_as<std::int32_t>() : nullptr;
  const double* scores = exact.data("scores");
  auto* out = exact["out"].data_as<std::int32_t>();
  for (std::int64_t row = 0; row < c.dim("batch") * rows; ++row, scores += columns, out += c->count) {
    const auto begin = begins == nullptr ? 0 : std::max<std::int64_t>(begins[row], 0);
    const auto end = ends == nullptr ? columns : std::min<std::int64_t>(ends[row], columns);
    const PageTable pages(c.call(), exact, row / rows, c->page_size);
    write_largest(scores, begin, end, std::span(out, static_cast<std::size_t>(c->count)), pages);
  }
}

}  // namespace

PageTable::PageTable(const BoundCall& c, Exact& exact, std::int64_t batch, std::int64_t page_size)
    : size(page_size) {
  if (!c.has("page_table")) return;
  const auto pages = static_cast<std::size_t>(c.dim("pages"));
  table =
      std::span(exact["page_table"].data_as<std::int32_t>() + static_cast<std::size_t>(batch) * pages, pages);
  is_given = true;
}

std::int32_t PageTable::placed(std::int64_t column) const {
  if (!is_given) return static_cast<std::int32_t>(column);
  const auto page = static_cast<std::size_t>(column / size);
  if (page >= table.size() || table[page] < 0) return -1;
  return static_cast<std::int32_t>(table[page] * size + column % size);
}

void write_largest(const double* scores, std::int64_t begin, std::int64_t end, std::span<std::int32_t> out,
                   const PageTable& pages) {
  std::fill(out.begin(), out.end(), -1);
  std::vector<Ranked> order;
  for (std::int64_t n = begin; n < end; ++n)
    if (scores[n] > -std::numeric_limits<double>::infinity()) order.emplace_back(false, scores[n], n);
  std::ranges::transform(chosen_of(order, out.size()), out.begin(),
                         [&](std::int64_t n) { return pages.placed(n); });
}

const OperatorSchema& topk_select_schema() {
  using Op = TopkSelect;
  static const OperatorSchema table =
      Schema<Op>("topk_select", "columns of the largest scores of every row, ascending")
          .in(&Op::scores, "scores", "[batch] rows columns", is(f32), "-inf and NaN are never selected")
          .range("-9", "9")
          .in(&Op::begins, "begins", "[batch] rows", index, "the first column of a row; 0 if omitted")
          .converts()
          .range("-3", "columns/2+1")
          .remedy("give every row one")
          .in(&Op::ends, "ends", "[batch] rows", index, "one past the last column of a row; all if omitted")
          .converts()
          .range("columns/4", "columns+4")
          .remedy("give every row one")
          .with(add_count<Op>)
          .out(&Op::out, "out", "[batch] rows count", is(i32),
               "column numbers, or rows of pages; -1 where fewer exist")
          .source("Alabi et al. 2012, Fast k-selection algorithms for graphics processing units: by radix")
          .no_gradient("it chooses")
          .examples({{"small", "rows=3 columns=7 count=4"},
                     {"ties_of_pages",
                      "batch=2 rows=2 columns=70 count=20 begins ends page_table page_size=8 pages=7"},
                     {"more_than_there_are", "rows=2 columns=30 count=50"},
                     {"many_columns", "rows=2 columns=2100 count=300"},
                     {"of_a_sample", "rows=3 columns=20000 count=500 begins ends"}})
          .measured({{"2048_of_64x65536", "rows=64 columns=65536 count=2048"},
                     {"2048_of_4096x65536", "rows=4096 columns=65536 count=2048"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
