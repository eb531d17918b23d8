// Fragments to tensors by the copy engine, by way of shared memory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/grid_printer.hpp"
#include "ir/lists.hpp"
#include "passes/cuda/plan_stores.hpp"
#include "passes/cuda/store_events.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// How the warp groups divide the sum of a product, or its transpose.
layout::Division division_of(const layout::Layout& held, bool is_turned, int groups) {
  const layout::Layout layout = is_turned ? held.permute({1, 0}) : held;
  for (int along_n = 1; along_n <= groups; ++along_n) {
    const layout::Division parts{groups / along_n, along_n};
    if (groups % along_n == 0 && layout.shape()[1] % along_n == 0 &&
        layout::wgmma_accumulator(layout.shape()[0], layout.shape()[1], parts) == layout)
      return parts;
  }
  throw InternalError("what the copy engine stores is the sum of a product of warp groups");
}

// The columns of the tensor are rows of the fragment, whose warp groups have 64 of them each.
void add_transposed_boxes(std::int64_t extent, DType type, const layout::Division& parts,
                          const passes::TensorStore& plan, BoxStores& result) {
  result.column += plan.by_warps ? fmt::format(" + thread / 32 * {}", passes::store_warp_rows)
                                 : fmt::format(" + thread / 128 * {}", passes::store_rows);
  const bool by_rows = type != f32;
  const int step = static_cast<int>(passes::store_rows * parts.along_m),
            all = plan.rows * (by_rows ? plan.across : 1) - plan.rows_twice;
  result.apart = plan.across > passes::store_buffers;
  result.rows = result.apart ? plan.rows : all;
  for (int first = 0; first < extent; first += step)
    for (int box = 0; box < plan.across; ++box) {
      const int row = by_rows ? std::min(box * plan.rows, all - plan.rows) : 0,
                registers = first / step * all / 2;
      const auto place = static_cast<int>(result.boxes.size()) % passes::store_buffers;
      const int buffer = result.apart || !by_rows ? place * plan.rows : row;
      result.boxes.push_back({std::to_string(buffer * plan.columns),
                              first + (by_rows ? 0 : box * plan.columns), row,
                              registers + (result.apart ? row / 2 : 0)});
    }
}

}  // namespace

// The boxes of the fragment's rows and columns that a warp group has, as texts.
BoxStores CudaGridPrinter::boxes_of(const View& from, const View& to, const layout::Division& parts,
                                    const passes::TensorStore& plan) {
  BoxStores result;
  result.map = tensor_map({signature_.position_of(to.buffer.get()), plan.box, plan.columns, true});
  result.transposed = plan.transposed;
  if (plan.by_warps)
    result.of_warp = plan.columns * plan.rows * (plan.transposed ? passes::store_buffers : 1);
  for (std::size_t d = to.dims.size() - 1; d-- > 0;)
    result.coordinates.push_back(fmt::format("int({})", bare(value(to.dims[d].offset))));
  result.column = value(to.dims.back().offset);
  for (std::size_t d = 0; d + 1 < to.dims.size(); ++d) {
    if (to.dims[d].axis == 0) result.row_at = to.dims.size() - 2 - d;
  }
  if (plan.transposed) {
    add_transposed_boxes(from.extent(1), to.buffer->type, parts, plan, result);
    return result;
  }
  const std::int64_t columns = from.buffer->extent(1) / parts.along_n;
  if (parts.along_n > 1) result.column += fmt::format(" + thread / {} * {}", 128 * parts.along_m, columns);
  const int together = plan.by_warps ? passes::store_warps : 1;
  const std::string part =
      fmt::format("thread / {}{}", 128 / together,
                  parts.along_n > 1 ? fmt::format(" % {}", parts.along_m * together) : "");
  result.coordinates[result.row_at] += fmt::format(" + {} * {}", part, plan.rows / plan.pack);
  const std::int64_t rows = passes::store_rows * parts.along_m, across = columns / plan.columns,
                     count = from.buffer->extent(0) / rows * across;
  for (std::int64_t box = 0; box < count; ++box)
    result.boxes.push_back({std::to_string(box % passes::store_buffers * passes::store_rows * plan.columns),
                            static_cast<int>(box % across * plan.columns),
                            static_cast<int>(box / across * rows / plan.pack), box * plan.columns / 2});
  return result;
}

// Names for what the events of a store have in common; the block that is opened ends with them.
void CudaGridPrinter::begin_store(const Stmt& s) {
  const auto* sum = as<Accumulate>(s);
  const View &from = sum ? sum->tile : as<Copy>(s)->from, &to = sum ? sum->to : as<Copy>(s)->to;
  const bool is_turned = !sum && as<Copy>(s)->turned_sum;
  const layout::Division parts =
      division_of(fragments_.at(from.buffer.get()).layout, is_turned, team_.threads / 128);
  const std::string type = element_type(to.buffer->type), staging = names_.unique("staging");
  out_.code();
  touch(to, sum ? MemoryUse::combine : MemoryUse::write, false);
  out_.open(fmt::format("{{  // {}: by the copy engine", location_in_folder(s->at)));
  std::int64_t before = 0;  // the buffers of other stores of the step
  const Body apart = passes::stores_of_step(roles_->consumer, roles_->consumers);
  const bool by_warps = passes::are_stored_by_warps(apart);
  const passes::TensorStore plan = *passes::plan_store(from, to, {parts, is_turned}, by_warps);
  if (ir::contains(apart, s))
    for (auto own = apart.begin(); *own != s; ++own) before += passes::staging_bytes(*own);
  out_.line(fmt::format("{0}* const {1} = ({0}*)(shared_memory + {2}) + thread / 128 * {3};", type, staging,
                        store_staging_ + before, roles_->store_bytes / to.buffer->type.bytes()));
  store_ = OpenStore{s, boxes_of(from, to, parts, plan), {}};
  store_->boxes.staging = staging;
  if (!sum || !sum->turn) return;
  store_->word = names_.unique("word");
  out_.line(fmt::format("int* const {} = {};", store_->word, turn_word(*sum->turn, "thread / 128")));
}

void CudaGridPrinter::end_store() {
  store_.reset();
  out_.close();
}

void CudaGridPrinter::stage_boxes(std::size_t count) {
  const auto* sum = as<Accumulate>(store_->stmt);
  const Buffer& from = *(sum ? sum->tile : as<Copy>(store_->stmt)->from).buffer;
  const BoxStores& n = store_->boxes;
  const std::string& fragment = fragments_.at(&from).name;
  store_->first = store_->end;
  store_->end += count;
  if (n.transposed && n.of_warp > 0)
    return out_.line(
        fmt::format("tg::stage_columns_of_warp<{}>({}, {}, {});", n.rows, n.staging, fragment, team_.thread));
  const bool is_f32 = (sum ? sum->to : as<Copy>(store_->stmt)->to).buffer->type == f32;
  if (n.transposed && is_f32)
    return out_.line(fmt::format("tg::stage_columns_of<{}>({}, {});", n.rows, n.staging,
                                 plus(fragment, n.boxes[store_->first].held)));
  for (std::size_t i = store_->first; n.transposed && i < (n.apart ? store_->end : store_->first + 1); ++i)
    out_.line(fmt::format("tg::stage_columns<{}>({}, {}, {});", n.rows,
                          n.apart ? plus(n.staging, n.boxes[i].buffer) : n.staging,
                          plus(fragment, n.boxes[i].held), team_.thread));
  if (n.transposed) return;
  for (std::size_t i = store_->first; i < store_->end; ++i)
    out_.line(fmt::format("tg::stage_words_of({}, {});", plus(n.staging, n.boxes[i].buffer),
                          plus(fragment, n.boxes[i].held)));
}

// Before it with the wait for the buffers, and behind it with the fence.
void CudaGridPrinter::meet_around_staging(const char* of_whom) {
  out_.line(store_->pending ? fmt::format("tg::begin_staging{}<{}>();", of_whom, *store_->pending)
                            : fmt::format("tg::end_staging{}();", of_whom));
  store_->pending.reset();
}

void CudaGridPrinter::send_boxes(const char* verb) {
  const BoxStores& n = store_->boxes;
  const std::string own =
      n.of_warp > 0 ? fmt::format(" + thread / 32 % {} * {}", passes::store_warps, n.of_warp) : "";
  for (std::size_t i = store_->first; i < store_->end; ++i) {
    const Box& box = n.boxes[i];
    Texts at = n.coordinates;
    at[n.row_at] = plus(at[n.row_at], box.row);
    out_.line(fmt::format("if (thread % {} == 0) tg::{}_box(&call.map[{}], {}{}, {}, {});",
                          n.of_warp > 0 ? 32 : 128, verb, n.map, plus(n.staging, box.buffer), own,
                          plus(n.column, box.column), fmt::join(at, ", ")));
  }
}

void CudaGridPrinter::send_boxes() {
  const auto* sum = as<Accumulate>(store_->stmt);
  if (!sum || !sum->overwrite) return send_boxes(sum ? "add" : "store");
  out_.open(fmt::format("if ({} == 0) {{", value(sum->order)));
  send_boxes("store");
  out_.close();
  out_.open("else {");
  send_boxes("add");
  out_.close();
}

// All that are staged, with the first of their events.
void CudaGridPrinter::event(const schedule::Store&, const schedule::Event&) {
  if (store_->first < store_->end) send_boxes();
  store_->first = store_->end;
}

void CudaGridPrinter::give() {
  const auto& sum = *as<Accumulate>(store_->stmt);
  const BoxStores& n = store_->boxes;
  out_.line(fmt::format("giver.give({}, {}, {}, {});", sum.turn ? store_->word : "nullptr",
                        sum.turn ? value(sum.order) : "0", n.column, fmt::join(n.coordinates, ", ")));
  if (adders_.empty()) print_adders(n, sum, store_->stmt->at);
}

void CudaGridPrinter::event(const schedule::StoreWait& n, const schedule::Event& e) {
  if (store_ && n.reads_only) {
    store_->pending = n.pending;
    return;
  }
  const char* waits = n.reads_only ? "read" : "done";
  const int threads = e.who == schedule::Who::each_warp ? 32 : 128;
  const std::string text =
      fmt::format("if (thread % {} == 0) tg::stores_{}<{}>();", threads, waits, n.pending);
  if (store_) return out_.line(text);
  sync_line(text);
}

}  // namespace tegula::codegen
