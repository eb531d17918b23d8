// Fragments to tensors by the copy engine, by way of shared memory.
#include <fmt/format.h>

#include "codegen/cuda/arithmetic.hpp"
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

void stage_boxes(StepWriter& out, const BoxStores& n, const std::string& fragment, std::size_t first,
                 std::size_t count) {
  if (n.turned)
    return out.line(fmt::format("tg::stage_columns_of<{}>({}, {});", n.rows, n.staging, fragment));
  for (std::size_t i = first; i < first + count; ++i)
    out.line(fmt::format("tg::stage_words_of({}, {});", plus(n.staging, n.boxes[i].buffer),
                         plus(fragment, static_cast<std::int64_t>(i) * n.registers)));
}

void send_boxes(StepWriter& out, const BoxStores& n, const char* verb, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) {
    const Box& box = n.boxes[i];
    std::vector<std::string> own = n.coordinates;
    own[n.row_at] = plus(own[n.row_at], box.row);
    out.line(fmt::format("if (thread % 128 == 0) tg::{}_box(&call.map[{}], {}, {}, {});", verb, n.map,
                         plus(n.staging, box.buffer), plus(n.column, box.column), fmt::join(own, ", ")));
  }
}

}  // namespace

// The boxes of the fragment's rows and columns that a warp group has, as texts.
BoxStores CudaGridPrinter::boxes_of(const View& from, const View& to, const layout::Division& parts,
                                    const passes::TensorStore& plan) {
  BoxStores result;
  result.map = tensor_map({signature_.slot_of(to.buffer.get()), plan.box, plan.columns, true});
  result.registers = plan.columns / 2;
  result.rows = plan.rows, result.turned = plan.turned;
  for (std::size_t d = to.dims.size() - 1; d-- > 0;)
    result.coordinates.push_back(fmt::format("int({})", bare(value(to.dims[d].offset))));
  result.column = value(to.dims.back().offset);
  for (std::size_t d = 0; d + 1 < to.dims.size(); ++d) {
    if (to.dims[d].axis == 0) result.row_at = to.dims.size() - 2 - d;
  }
  if (plan.turned) {
    result.column += fmt::format(" + thread / 128 * {}", passes::store_rows);
    for (int box = 0; box < passes::store_buffers; ++box)
      result.boxes.push_back({std::to_string(box * plan.rows * plan.columns), box * plan.columns, 0});
    return result;
  }
  const std::int64_t columns = from.buffer->extent(1) / parts.along_n;
  if (parts.along_n > 1) result.column += fmt::format(" + thread / {} * {}", 128 * parts.along_m, columns);
  const std::string group =
      fmt::format("thread / 128{}", parts.along_n > 1 ? fmt::format(" % {}", parts.along_m) : "");
  result.coordinates[result.row_at] += fmt::format(" + {} * {}", group, passes::store_rows / plan.pack);
  const std::int64_t rows = passes::store_rows * parts.along_m, across = columns / plan.columns,
                     count = from.buffer->extent(0) / rows * across;
  for (std::int64_t box = 0; box < count; ++box)
    result.boxes.push_back({std::to_string(box % passes::store_buffers * passes::store_rows * plan.columns),
                            static_cast<int>(box % across * plan.columns),
                            static_cast<int>(box / across * rows / plan.pack)});
  return result;
}

void CudaGridPrinter::send_by_itself(const BoxStores& n, const Accumulate* sum, std::size_t first,
                                     std::size_t count) {
  if (!sum || !sum->overwrite) return send_boxes(out_, n, sum ? "add" : "store", first, count);
  out_.open(fmt::format("if ({} == 0) {{", value(sum->order)));
  send_boxes(out_, n, "store", first, count);
  out_.close();
  out_.open("else {");
  send_boxes(out_, n, "add", first, count);
  out_.close();
}

// By the warp group itself: all at once where there is a buffer for each, otherwise one after the other.
void CudaGridPrinter::store_by_itself(const BoxStores& n, const std::string& fragment, const Accumulate* sum,
                                      const std::string& word, const Loc& at) {
  const std::size_t count = n.boxes.size(), batch = count <= passes::store_buffers ? count : 1;
  const bool in_turn = sum && sum->turn;
  for (std::size_t first = 0; first < count; first += batch) {
    out_.line(fmt::format("tg::begin_staging<{}>();", first == 0 ? 0 : passes::store_buffers - 1));
    stage_boxes(out_, n, fragment, first, batch);
    out_.line("tg::end_staging();");
    if (in_turn && first == 0)
      out_.line(fmt::format("if (thread % 128 == 0) {}", wait_text({*sum->turn, sum->order}, word, at)));
    send_by_itself(n, sum, first, batch);
  }
  if (in_turn) {
    out_.line("if (thread % 128 == 0) tg::stores_done<0>();");
    out_.line(fmt::format("if (thread % 128 == 0) tg::pass_turn({});", word));
  }
  // Who hands over next does not ask whether these stores have left the buffers.
  if (hands_over()) out_.line("tg::begin_staging<0>();");
}

// Each warp group stores, or adds, its own rows and columns, block of columns by block of columns, from two
// buffers in turn.
void CudaGridPrinter::store_boxes(const View& from, const View& to, const Accumulate* sum, const Loc& at) {
  const FragmentTile& tile = fragments_.at(from.buffer.get());
  const layout::Division parts = division_of(tile.layout, team_.threads / 128);
  const passes::TensorStore plan = *passes::plan_store(from, to, parts);
  const std::string type = element_type(to.buffer->type), staging = names_.unique("staging");
  out_.code();
  touch(to, sum ? MemoryUse::combine : MemoryUse::write, false);
  out_.open(fmt::format("{{  // {}: by the copy engine", location_in_folder(at)));
  out_.line(fmt::format("{0}* const {1} = ({0}*)(shared_memory + {2}) + thread / 128 * {3};", type, staging,
                        store_staging_, roles_->store_bytes / to.buffer->type.bytes()));
  BoxStores stores = boxes_of(from, to, parts, plan);
  stores.staging = staging;
  const bool in_turn = sum && sum->turn;
  std::string word;
  if (in_turn) {
    word = names_.unique("word");
    out_.line(fmt::format("int* const {} = {};", word, turn_word(*sum->turn, "thread / 128")));
  }
  if (hands_over()) out_.line("giver.wait();");
  if (in_turn && hands_over() && adders_.empty() && stores.boxes.size() <= passes::store_buffers) {
    stage_boxes(out_, stores, tile.name, 0, stores.boxes.size());
    out_.line(fmt::format("giver.give({}, {}, {}, {});", word, value(sum->order), stores.column,
                          fmt::join(stores.coordinates, ", ")));
    print_adders(stores, *sum, at);
  } else {
    store_by_itself(stores, tile.name, sum, word, at);
  }
  out_.close();
}

}  // namespace tegula::codegen
