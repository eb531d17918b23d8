// Fragments to tensors by the copy engine, by way of shared memory.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/plan_stores.hpp"

namespace tegula::codegen {

using namespace ir;

// Each warp group stores its own rows, block of columns by block of columns, from two buffers in turn.
void CudaGridPrinter::store_boxes(const Copy& n, const passes::TensorStore& plan, const Loc& at) {
  const FragmentTile& tile = fragments_.at(n.from.buffer.get());
  const std::int64_t columns = n.from.buffer->extent(1), groups = team_.threads / 128;
  const std::int64_t rows_of_all = passes::store_rows * groups, registers = plan.columns / 2;
  const std::size_t map = tensor_map({signature_.slot_of(n.to.buffer.get()), plan.box, plan.columns, true});
  const std::string type = element_type(n.to.buffer->type), staging = names_.unique("staging");
  out_.code();
  touch(n.to, MemoryUse::write, false);
  out_.open(fmt::format("{{  // {}: by the copy engine", short_location(at)));
  out_.line(fmt::format("{0}* const {1} = ({0}*)(shared_memory + {2}) + thread / 128 * {3};", type, staging,
                        store_staging_, passes::store_buffers * passes::store_rows * plan.columns));
  Texts coordinates;
  for (std::size_t d = n.to.dims.size() - 1; d-- > 0;)
    coordinates.push_back(fmt::format("int({})", value(n.to.dims[d].offset)));
  const std::string column = value(n.to.dims.back().offset);
  std::size_t row_at = 0;
  for (std::size_t d = 0; d + 1 < n.to.dims.size(); ++d) {
    if (n.to.dims[d].axis == 0) row_at = n.to.dims.size() - 2 - d;
  }
  std::int64_t step = 0;
  for (std::int64_t i = 0; i < n.from.buffer->extent(0) / rows_of_all; ++i) {
    for (std::int64_t j = 0; j < columns / plan.columns; ++j, ++step) {
      const std::string buffer =
          fmt::format("{} + {}", staging, step % passes::store_buffers * passes::store_rows * plan.columns);
      out_.line(fmt::format("tg::stage<{}>({}, {} + {});", step == 0 ? 0 : passes::store_buffers - 1, buffer,
                            tile.name, (i * columns / plan.columns + j) * registers));
      Texts own = coordinates;
      own[row_at] +=
          fmt::format(" + (thread / 128 * {} + {}) / {}", passes::store_rows, i * rows_of_all, plan.pack);
      out_.line(fmt::format("if (thread % 128 == 0) tg::store_box(&call.map[{}], {}, {} + {}, {});", map,
                            buffer, column, j * plan.columns, fmt::join(own, ", ")));
    }
  }
  out_.close();
}

}  // namespace tegula::codegen
