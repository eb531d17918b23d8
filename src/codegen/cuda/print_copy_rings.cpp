// Loops whose tiles all threads bring some steps ahead.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/cuda/run_copies.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr std::int64_t few_rounds = 4;  // of a thread that begins copies

}  // namespace

// The slots that are used next, which loops that are entered again go on with.
void CudaGridPrinter::declare_copy_rings() {
  if (plan_.copy_rings.empty()) return;
  out_.code();
  rings_.resize(static_cast<std::size_t>(plan_.copy_rings.count()));
  for (const auto& [loop, ring] : plan_.copy_rings.loops) {
    if (ring.goes_back) continue;
    rings_[static_cast<std::size_t>(ring.number)].depth = ring.depth;
    rings_[static_cast<std::size_t>(ring.number)].name = ring.tiles[0]->name + "_ring";
  }
  for (std::size_t r = 0; r < rings_.size(); ++r) {
    rings_[r].name = names_.unique(rings_[r].name);
    cursors_.push_back(static_cast<int>(r));
    out_.line(fmt::format("int {} = 0;", cursor_name(static_cast<int>(r))));
  }
}

void CudaGridPrinter::loop_with_ring(const For& n, const passes::CopyRing& ring, const Loc& at) {
  RingText& text = rings_[static_cast<std::size_t>(ring.number)];
  out_.code();
  const std::int64_t outer = ring_bytes_;
  if (!ring.goes_back) allocate_slots(ring);
  copy_rings_.push_back(&ring);
  events(ring.before);
  sequential(n, at, [&] {
    events(ring.begin);
    out_.code();
    for (const BufferPtr& tile : ring.tiles) {
      name_slot(tile, ring, 0);
      if (plan_.copy_rings.runs.contains(tile.get()) && !plan_.copy_rings.laid.contains(tile.get()))
        name_run(tile, "run_in");
    }
    lay_rows(ring);
    in_scope(n.body);
    events(ring.end);
  });
  events(ring.after);
  touch_brought(n.body);
  touch_slots(ring.number);
  copy_rings_.pop_back();
  if (!ring.stays)
    for (const RingText::Slots& slots : text.tiles) memory_.free(slots.begin);
  ring_bytes_ = outer;
}

// The tile begins in its slot where the run of its rows does, or where these are laid down.
void CudaGridPrinter::name_run(const BufferPtr& tile, const char* begin) {
  const std::string name = names_.unique(tile->name);
  std::string& slot = shared_.at(tile.get()).name;
  out_.line(fmt::format("{}* const {} = tg::{}({});", element_type(tile->type), name, begin, slot));
  slot = name;
}

// Rows that are read again are shifted once: all threads have what they lift before one of them lays it down.
void CudaGridPrinter::lay_rows(const passes::CopyRing& ring) {
  if (ring.laid.empty()) return;
  std::vector<std::pair<BufferPtr, std::string>> lifted;
  for (const BufferPtr& tile : ring.tiles) {
    if (!plan_.copy_rings.laid.contains(tile.get())) continue;
    const std::int64_t n = vector_bytes / tile->type.bytes(), pieces = (tile->elements() + n - 1) / n;
    const std::string name = names_.unique("lifted");
    out_.line(fmt::format("tg::Pack<{}, {}> {}[{}];", element_type(tile->type), n, name,
                          (pieces + team_.threads - 1) / team_.threads));
    out_.line(fmt::format("tg::lift_row<{}, {}>({}, {}, {});", tile->elements(), team_.threads,
                          shared_.at(tile.get()).name, name, team_.thread));
    lifted.emplace_back(tile, name);
  }
  events(ring.lifted);
  out_.code();
  for (const auto& [tile, name] : lifted) {
    out_.line(fmt::format("tg::lay_row<{}, {}>({}, {}, {});", tile->elements(), team_.threads,
                          shared_.at(tile.get()).name, name, team_.thread));
    name_run(tile, "row_in");
  }
  events(ring.laid);
  out_.code();
}

void CudaGridPrinter::allocate_slots(const passes::CopyRing& ring) {
  for (const BufferPtr& tile : ring.tiles) {
    const bool is_run = plan_.copy_rings.runs.contains(tile.get());
    const std::int64_t own = is_run ? passes::slot_bytes_of_run(*tile) : passes::slot_bytes(*tile),
                       bytes = own / ctas_, all = bytes * ring.depth;
    const std::int64_t begin = memory_.allocate(all, passes::slot_alignment(*tile),
                                                fmt::format("{}, {} slots", words_of(*tile), ring.depth));
    rings_[static_cast<std::size_t>(ring.number)].tiles.push_back({begin, bytes});
    ring_bytes_ += all;
    // Ordered after earlier accesses to this memory; within the loop, its events order everything.
    out_.touch({{-1, begin, begin + all}, MemoryUse::write, false, -1, ring.number});
  }
  ahead_bytes_ = std::max(ahead_bytes_, ring_bytes_);
}

// Other warps may still read the slots of the last steps: what takes their memory comes later, whatever
// barriers the loop has had since they were allocated.
void CudaGridPrinter::touch_slots(int number) {
  const RingText& text = rings_[static_cast<std::size_t>(number)];
  out_.code();
  for (const auto& [begin, bytes] : text.tiles)
    out_.touch({{-1, begin, begin + bytes * text.depth}, MemoryUse::write, false, -1, number, true});
}

// What copies have read ahead may be written after the loop, when all of them have arrived.
void CudaGridPrinter::touch_brought(const Body& body) {
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* copy = as<Copy>(s);
    if (!copy || !plan_.copy_rings.fills.contains(s.get()) || !written_.contains(copy->from.buffer.get()))
      return;
    out_.code();
    touch(copy->from, MemoryUse::read, false);
  });
}

// The tile is in the slot one before, at or after the cursor from here on.
void CudaGridPrinter::name_slot(const BufferPtr& tile, const passes::CopyRing& ring, int shift) {
  const auto number =
      static_cast<std::size_t>(std::find(ring.tiles.begin(), ring.tiles.end(), tile) - ring.tiles.begin());
  const auto& [begin, bytes] = rings_[static_cast<std::size_t>(ring.number)].tiles[number];
  const std::string cursor = cursor_name(ring.number), name = names_.unique(tile->name);
  const std::string slot = shift == 0  ? cursor
                           : shift < 0 ? fmt::format("({0} == 0 ? {1} : {0} - 1)", cursor, ring.depth - 1)
                                       : fmt::format("({0} + 1 == {1} ? 0 : {0} + 1)", cursor, ring.depth);
  // Of a block that is spread, a CTA has its own part of the tile: elements before it are elsewhere.
  const std::string elsewhere =
      ctas_ > 1 ? fmt::format(" - cta * {}", tile->elements() / ctas_) : std::string();
  out_.line(fmt::format("{0}* const {1} = ({0}*)({5} + {2} + {3} * {4}){6};", element_type(tile->type), name,
                        begin, slot, bytes, own_memory_, elsewhere));
  const TileOrder order = plan_.operands.contains(tile.get()) ? passes::swizzled_order(*tile) : TileOrder{};
  shared_[tile.get()] = {name, order, {-1, 0, 0}};
}

// The pieces around the rows, where these follow each other.
void CudaGridPrinter::bring_run(const Copy& n, const Stmt& s) {
  const Buffer& tile = *n.to.buffer;
  const Access first{n.from,
                     std::vector<Expr>(static_cast<std::size_t>(n.to.rank()), constant(i32, 0, s->at))};
  const std::vector<Expr> where = coordinates(first);
  const std::string slot = shared_.at(&tile).name;
  const bool begins =
      std::all_of(where.begin(), where.end(), [&](const Expr& c) { return values_.is_at_least(c, 0); });
  out_.code();
  if (!begins) {
    const std::string name = names_.unique(tile.name);
    out_.line(fmt::format("tg::begin_run({}, 0, {});", slot, team_.thread));
    out_.line(fmt::format("{0}* const {1} = ({0}*)((char*){2} + {3});", element_type(tile.type), name, slot,
                          passes::bytes_before_run));
    shared_.at(&tile).name = name;
    return (*this)(n, s);
  }
  out_.open(fmt::format("{{  // {}: begun, as a run of memory", location_in_folder(s->at)));
  Texts terms, guards, left;
  for (std::size_t d = 0; d < where.size(); ++d) {
    const std::string c = names_.unique("c");
    out_.line(fmt::format("const int64_t {} = {};", c, bare(value(where[d]))));
    if (n.from.dims[d].axis < 0)
      add_limits(n.from, d, where[d], c, guards);
    else
      left.push_back(fmt::format("int64_t({}) - {}", bare(value(n.from.shape[d])), c));
    terms.push_back(fmt::format("{} * {}", c, stride_text(n.from, d)));
  }
  if (left.size() == 1) left.insert(left.begin(), "1");
  if (!guards.empty()) left[0] = fmt::format("{} ? {} : 0", fmt::join(guards, " && "), left[0]);
  const int rank = n.to.rank();
  out_.line(fmt::format("tg::bring_rows<{}, {}, {}>({}, {} + ({}), {}, {}, {}, {}, {});",
                        rank == 1 ? 1 : tile.extent(0), tile.extent(rank - 1), team_.threads, slot,
                        tensors_.at(n.from.buffer.get()), fmt::join(terms, " + "),
                        where.size() > 1 ? stride_text(n.from, where.size() - 2) : "0",
                        stride_text(n.from, where.size() - 1), left[0], left[1], team_.thread));
  out_.close();
}

void CudaGridPrinter::begin_copies(const Stmt& s, int shift) {
  const passes::CopyRing& ring = *copy_rings_.back();
  const Effects e = all_effects(s);
  out_.code();
  for (const BufferPtr& tile : ring.tiles)
    if (e.writes(tile)) name_slot(tile, ring, shift);
  if (const auto* copy = as<Copy>(s))
    return plan_.copy_rings.runs.contains(copy->to.buffer.get()) ? bring_run(*copy, s) : bring(*copy, s);
  is_ahead_ = true;
  rows(*passes::plan_rows(s), false);
  is_ahead_ = false;
}

// Copies by vectors along rows, or by elements that can be copied one by one; others are awaited.
void CudaGridPrinter::bring(const Copy& n, const Stmt& s) {
  const Facts before = facts_;
  const Body lowered = element_copies(n, s->at);
  const auto& loop = *as<For>(lowered[0]);
  const Access& from = as<Load>(loop.body[0])->from;
  const int bytes = n.to.buffer->type.bytes(), in_vector = vector_bytes / bytes;
  const std::int64_t columns = constant_value(loop.end.back());
  for (std::size_t d = 0; d + 1 < loop.index.size(); ++d)
    facts_.add_range(loop.index[d], {0, constant_value(loop.end[d]) - 1});
  const bool rows = passes::rows_of(n.to) && is_own_shape(n.to) && columns % in_vector == 0;
  if (rows) facts_.add_range(loop.index.back(), {0, columns - in_vector});
  const auto along = rows ? vector_dim(n, coordinates(from)) : std::nullopt;
  if (along || bytes >= 4)
    print_pieces(loop, along, along ? in_vector : 1, s->at);
  else
    (*this)(n, s);
  facts_ = before;
}

void CudaGridPrinter::print_pieces(const For& loop, std::optional<std::size_t> along, int elements,
                                   const Loc& at) {
  const std::int64_t columns = constant_value(loop.end.back()), pieces = columns / elements;
  std::int64_t count = 1;
  for (std::size_t d = 0; d + 1 < loop.end.size(); ++d) count *= constant_value(loop.end[d]);
  out_.code();
  out_.open(fmt::format("{{  // {}: begun, by {} of {} bytes", location_in_folder(at),
                        along ? "vectors" : "elements",
                        elements * as<Load>(loop.body[0])->from.view.buffer->type.bytes()));
  const std::string f = names_.unique("f");
  facts_.add_range(loop.index.back(), {0, columns - elements});
  // A thread that stays in its column computes less.
  const bool stays = team_.threads % pieces == 0;
  if (stays) name_column(loop, team_.thread, pieces, elements);
  // No thread waits here, and registers are needed for computing; but a few rounds take no registers and less
  // time.
  const bool few = supposes_alignment(*as<Load>(loop.body[0])->from.view.buffer) &&
                   count * pieces <= few_rounds * team_.threads;
  const std::string whole = stays && along ? whole_pieces(loop, *along, elements) : "";
  const auto print_loop = [&](bool is_whole) {
    out_.line(few ? "#pragma unroll" : "#pragma unroll 1");
    if (stays)
      out_.open(fmt::format("for (int {0} = {1} / {2}; {0} < {3}; {0} += {4}) {{", f, team_.thread, pieces,
                            count, team_.threads / pieces));
    else
      out_.open(fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{", f, team_.thread, count * pieces,
                            team_.threads));
    if (!stays) name_column(loop, f, pieces, elements);
    name_rows(loop, stays ? f : fmt::format("{} / {}", f, pieces));
    print_piece(*as<Load>(loop.body[0]), *as<Store>(loop.body[1]), along, elements, is_whole);
    out_.close();
  };
  if (!whole.empty()) {
    out_.open(fmt::format("if ({}) {{", whole));
    print_loop(true);
    out_.reopen("} else {");
  }
  print_loop(false);
  if (!whole.empty()) out_.close();
  out_.close();
}

// A condition under which all pieces of the thread's column are whole and begin at multiples of 16 bytes.
// Asked only between products by multiply-add, whose instructions every other one delays.
std::string CudaGridPrinter::whole_pieces(const For& loop, std::size_t along, int elements) {
  const Load& load = *as<Load>(loop.body[0]);
  const View& from = load.from.view;
  if (!multiplied_plainly_.contains(as<Store>(loop.body[1])->to.view.buffer.get())) return "";
  const Expr at = coordinates(load.from)[along];
  bool in_rows = false;
  for_each_variable(at, [&](const VariablePtr& v) {
    in_rows |=
        v != loop.index.back() && std::find(loop.index.begin(), loop.index.end(), v) != loop.index.end();
  });
  if (in_rows) return "";
  const std::string c = names_.unique("c");
  out_.line(fmt::format("const int64_t {} = {};", c, bare(value(at))));
  std::string strides;
  for (std::size_t d = 0; d < from.shape.size(); ++d)
    if (d != along) strides += ", " + stride_text(from, d);
  const std::string count = vector_count(from, along, at, c, elements), whole = std::to_string(elements);
  return fmt::format("{} == 1 && tg::is_aligned<{}>({}{}) && {} % {} == 0{}", stride_text(from, along),
                     vector_bytes, tensors_.at(from.buffer.get()), strides, c, elements,
                     count == whole ? "" : fmt::format(" && {} == {}", count, whole));
}

void CudaGridPrinter::print_piece(const Load& load, const Store& store, std::optional<std::size_t> along,
                                  int elements, bool is_whole) {
  const View& from = load.from.view;
  const std::vector<Expr> where = coordinates(load.from);
  Texts terms, guards;
  std::string count;
  if (along && supposes_alignment(*from.buffer)) {
    require_aligned(from.buffer);
    aligned_ = from.buffer.get();
  }
  const std::string stride = along ? stride_text(from, *along) : "";
  for (std::size_t d = 0; d < where.size(); ++d) {
    const std::string c = names_.unique("c");
    out_.line(fmt::format("const int64_t {} = {};", c, bare(value(where[d]))));
    if (d == along)
      count = vector_count(from, d, where[d], c, elements);
    else
      add_limits(from, d, where[d], c, guards);
    terms.push_back(d == along && is_whole ? c : fmt::format("{} * {}", c, stride_text(from, d)));
  }
  aligned_ = nullptr;
  const std::string source =
      tensors_.at(from.buffer.get()) + (terms.empty() ? "" : fmt::format(" + ({})", fmt::join(terms, " + ")));
  const std::string exists = guards.empty() ? "true" : fmt::format("{}", fmt::join(guards, " && "));
  const std::string to = address(store.to).pointer;
  if (!along) return out_.line(fmt::format("tg::bring_element({}, {}, {});", to, source, exists));
  if (is_whole) return out_.line(fmt::format("tg::bring_piece({}, {}, {});", to, source, exists));
  if (!guards.empty()) count = fmt::format("{} ? {} : 0", exists, count);
  out_.line(fmt::format("tg::bring({}, {}, {}, {});", to, source, stride, count));
}

void CudaGridPrinter::event(const schedule::CopyCommit&, const schedule::Event&) {
  sync_line("tg::commit_copies();");
}

void CudaGridPrinter::event(const schedule::CopyWait& n, const schedule::Event&) {
  sync_line(fmt::format("tg::wait_copies<{}>();", n.pending));
  out_.brings();
}

}  // namespace tegula::codegen
