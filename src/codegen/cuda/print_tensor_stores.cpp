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
  const std::int64_t across = columns / plan.columns, count = from.buffer->extent(0) / rows_of_all * across;
  std::vector<Box> boxes;
  for (std::int64_t box = 0; box < count; ++box)
    boxes.push_back({std::to_string(box % passes::store_buffers * passes::store_rows * plan.columns),
                     static_cast<int>(box % across * plan.columns),
                     static_cast<int>(box / across * rows_of_all / plan.pack)});
  coordinates[row_at] += fmt::format(" + {} * {}", group, passes::store_rows / plan.pack);
  const bool gives = turn && hands_over() && adders_.empty() && count <= passes::store_buffers;
  std::string word;
  if (turn) {
    word = names_.unique("word");
    out_.line(fmt::format("int* const {} = {};", word, turn_word(turn->word)));
  }
  if (hands_over()) out_.line("giver.wait();");
  // All at once where there is a buffer for each, otherwise one after the other.
  const std::int64_t batch = count <= passes::store_buffers ? count : 1;
  for (std::int64_t first = 0; first < count; first += batch) {
    if (!gives)
      out_.line(fmt::format("tg::begin_staging<{}>();", first == 0 ? 0 : passes::store_buffers - 1));
    for (std::int64_t i = first; i < first + batch; ++i)
      out_.line(fmt::format("tg::stage_words_of({} + {}, {} + {});", staging,
                            boxes[static_cast<std::size_t>(i)].buffer, tile.name, i * registers));
    if (gives) break;
    out_.line("tg::end_staging();");
    if (turn && first == 0) out_.line(fmt::format("if (thread % 128 == 0) {}", wait_text(*turn, word, at)));
    for (std::int64_t i = first; i < first + batch; ++i) {
      const Box& box = boxes[static_cast<std::size_t>(i)];
      Texts own = coordinates;
      own[row_at] += fmt::format(" + {}", box.row);
      out_.line(fmt::format("if (thread % 128 == 0) tg::{}_box(&call.map[{}], {} + {}, {} + {}, {});",
                            adds ? "add" : "store", map, staging, box.buffer, column, box.column,
                            fmt::join(own, ", ")));
    }
  }
  if (gives) {
    out_.line(fmt::format("giver.give({}, {}, {}, {});", word, turn_text(*turn), column,
                          fmt::join(coordinates, ", ")));
    print_adders(map, boxes, coordinates.size(), row_at, at);
  } else if (turn) {
    out_.line("if (thread % 128 == 0) tg::stores_done<0>();");
    out_.line(fmt::format("if (thread % 128 == 0) tg::pass_turn({}, 1);", word));
  } else if (hands_over()) {
    // Who hands over next does not ask whether these stores have left the buffers.
    out_.line("tg::begin_staging<0>();");
  }
  out_.close();
}

}  // namespace tegula::codegen
