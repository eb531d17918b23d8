// Fragments in the layout of tensor cores to shared tiles that tensor cores read: by
// stmatrix; and transposed tiles to fragments: by ldmatrix.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr int block_columns = 64;  // of a swizzled block whose rows have 128 bytes

}  // namespace

std::optional<passes::Conversion> CudaGridPrinter::matrix_load(const Stmt& s) const {
  const auto found = passes::matrix_load(s, computing());
  return found && !plan_.forms.packed.contains(found->to.get()) ? found : std::nullopt;
}

// The 64 rows of a warp group are a block of columns of the tile.
void CudaGridPrinter::load_matrices(const passes::Conversion& n, const View& from, const Loc& at) {
  out_.code();
  touch(from, MemoryUse::read, false);
  const SharedTile& tile = shared_.at(n.from.get());
  const std::int64_t rows = n.from->extent(0);
  out_.line(fmt::format("tg::take_columns<{}>({}, {} + {} / 128 * {}, {});  // {}", rows,
                        fragments_.at(n.to.get()).name, tile.name, team_.thread, rows * block_columns,
                        team_.thread, location_in_folder(at)));
}

// Every warp group its own rows; eight registers of 16 rows and 16 columns at a time.
void CudaGridPrinter::store_matrices(const passes::Conversion& n, const View& to, const Loc& at) {
  out_.code();
  touch(to, MemoryUse::write, false);
  out_.open(fmt::format("{{  // {}: by matrices", location_in_folder(at)));
  if (n.transposed)
    store_transposed_matrices(n);
  else
    store_plain_matrices(n);
  out_.close();
}

void CudaGridPrinter::store_plain_matrices(const passes::Conversion& n) {
  const FragmentTile& from = fragments_.at(n.from.get());
  const SharedTile& tile = shared_.at(n.to.get());
  const std::int64_t m = n.to->extent(0), columns = n.to->extent(1), groups = team_.threads / 128;
  const std::int64_t registers = block_columns / (from.is_packed ? 4 : 2);
  const std::string row = names_.unique("row");
  out_.line(fmt::format("{0}* const {1} = {2} + ({3} / 32 * 16 + {3} % 16) * {4};", element_type(n.to->type),
                        row, tile.name, team_.thread, block_columns));
  std::int64_t block = 0;
  for (std::int64_t i = 0; i < m / (64 * groups); ++i) {
    for (std::int64_t j = 0; j < columns / block_columns; ++j, ++block)
      out_.line(fmt::format("tg::stage_words({} + {}, {} + {}, {} % 8);", row,
                            (j * m + i * 64 * groups) * block_columns, from.name, block * registers,
                            team_.thread));
  }
}

// The 64 rows of a warp group are a block of columns of the tile.
void CudaGridPrinter::store_transposed_matrices(const passes::Conversion& n) {
  const FragmentTile& from = fragments_.at(n.from.get());
  const SharedTile& tile = shared_.at(n.to.get());
  const std::int64_t rows = n.to->extent(0), groups = team_.threads / 128,
                     blocks = n.to->extent(1) / (block_columns * groups);
  for (std::int64_t i = 0; i < blocks; ++i)
    out_.line(fmt::format("tg::stage_columns<{}>({} + ({} / 128 + {}) * {}, {} + {}, {});", rows, tile.name,
                          team_.thread, i * groups, rows * block_columns, from.name,
                          i * rows / (from.is_packed ? 4 : 2), team_.thread));
}

}  // namespace tegula::codegen
