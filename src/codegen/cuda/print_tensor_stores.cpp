// Fragments to tensors by the copy engine, by way of shared memory.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/plan_stores.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// How the warp groups divide the sum of a product.
layout::Division division_of(const layout::Layout& layout, int groups) {
  for (int along_n = 1; along_n <= groups; ++along_n) {
    const layout::Division parts{groups / along_n, along_n};
    if (groups % along_n == 0 && layout.shape()[1] % along_n == 0 &&
        layout::wgmma_accumulator(layout.shape()[0], layout.shape()[1], parts) == layout)
      return parts;
  }
  throw InternalError("what the copy engine stores is the sum of a product of warp groups");
}

}  // namespace

// Each warp group stores, or adds, its own rows and columns, block of columns by block of columns, from two
// buffers in turn.
void CudaGridPrinter::store_boxes(const View& from, const View& to, bool adds,
                                  const std::optional<Turn>& turn, const Loc& at) {
  const FragmentTile& tile = fragments_.at(from.buffer.get());
  const layout::Division parts = division_of(tile.layout, team_.threads / 128);
  const passes::TensorStore plan = *passes::plan_store(from, to, parts);
  const std::int64_t columns = from.buffer->extent(1) / parts.along_n;
  const std::int64_t rows_of_all = passes::store_rows * parts.along_m, registers = plan.columns / 2;
  const std::size_t map = tensor_map({signature_.slot_of(to.buffer.get()), plan.box, plan.columns, true});
  const std::string type = element_type(to.buffer->type), staging = names_.unique("staging");
  out_.code();
  touch(to, adds ? MemoryUse::combine : MemoryUse::write, false);
  out_.open(fmt::format("{{  // {}: by the copy engine", short_location(at)));
  out_.line(fmt::format("{0}* const {1} = ({0}*)(shared_memory + {2}) + thread / 128 * {3};", type, staging,
                        store_staging_, passes::store_buffers * passes::store_rows * plan.columns));
  Texts coordinates;
  for (std::size_t d = to.dims.size() - 1; d-- > 0;)
    coordinates.push_back(fmt::format("int({})", value(to.dims[d].offset)));
  std::string column = value(to.dims.back().offset);
  if (parts.along_n > 1) column += fmt::format(" + thread / {} * {}", 128 * parts.along_m, columns);
  std::size_t row_at = 0;
  for (std::size_t d = 0; d + 1 < to.dims.size(); ++d) {
    if (to.dims[d].axis == 0) row_at = to.dims.size() - 2 - d;
  }
  const std::string group =
      fmt::format("thread / 128{}", parts.along_n > 1 ? fmt::format(" % {}", parts.along_m) : "");
  std::string word;
  if (turn) {
    word = names_.unique("word");
    out_.line(fmt::format("int* const {} = {};", word, turn_word(turn->word)));
    out_.line("if (thread % 128 == 0) pending_turn.pass();");
  }
  bool waits = turn.has_value();
  const std::int64_t across = columns / plan.columns, boxes = from.buffer->extent(0) / rows_of_all * across;
  // All at once where there is a buffer for each, otherwise one after the other.
  const std::int64_t batch = boxes <= passes::store_buffers ? boxes : 1;
  for (std::int64_t first = 0; first < boxes; first += batch) {
    out_.line(fmt::format("tg::begin_staging<{}>();", first == 0 ? 0 : passes::store_buffers - 1));
    const auto buffer_of = [&](std::int64_t box) {
      return fmt::format("{} + {}", staging, box % passes::store_buffers * passes::store_rows * plan.columns);
    };
    for (std::int64_t box = first; box < first + batch; ++box)
      out_.line(fmt::format("tg::stage_words_of({}, {} + {});", buffer_of(box), tile.name, box * registers));
    out_.line("tg::end_staging();");
    if (waits) out_.line(fmt::format("if (thread % 128 == 0) {}", wait_text(*turn, word, at)));
    waits = false;
    for (std::int64_t box = first; box < first + batch; ++box) {
      Texts own = coordinates;
      own[row_at] += fmt::format(" + ({} * {} + {}) / {}", group, passes::store_rows,
                                 box / across * rows_of_all, plan.pack);
      out_.line(fmt::format("if (thread % 128 == 0) tg::{}_box(&call.map[{}], {}, {} + {}, {});",
                            adds ? "add" : "store", map, buffer_of(box), column, box % across * plan.columns,
                            fmt::join(own, ", ")));
    }
  }
  if (turn) out_.line(fmt::format("if (thread % 128 == 0) pending_turn.word = {};", word));
  out_.close();
}

}  // namespace tegula::codegen
