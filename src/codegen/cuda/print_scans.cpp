// Scans of fragments: within registers, by shuffles within a warp, through shared memory among warps. What
// stands before an element is found level by level, from neighbours to the farthest, and put together on the
// way back.
#include <fmt/format.h>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/combine.hpp"
#include "codegen/cuda/grid_printer.hpp"
#include "layout/fragments.hpp"
#include "passes/cuda/scan_levels.hpp"

namespace tegula::codegen {

using namespace ir;
using passes::ScanLevel;

namespace {

constexpr int lanes_of_warp = 32;

// How a level's `before` is indexed by the registers of the level below.
std::string digits_left_out(const ScanLevel& level) {
  return level.kind == ScanLevel::Kind::registers ? fmt::format("{}, {}", level.step, level.extent)
                                                  : std::string("1, 1");
}

// Whether all lanes of a warp have the same total, because lower levels went over all of them.
bool warps_agree(const std::vector<ScanLevel>& levels, std::size_t level) {
  std::int64_t lanes = 1;
  for (std::size_t i = 0; i < level; ++i)
    if (levels[i].kind == ScanLevel::Kind::lanes) lanes *= levels[i].extent;
  return lanes == lanes_of_warp;
}

}  // namespace

// The names of a scan in progress.
struct CudaGridPrinter::ScanTexts {
  std::string op, type, value_type, none;  // of the device
  std::string elements;                    // what is scanned
  std::string reverse;
  bool is_segmented = false;
  bool in_place = false;  // elements become sums that include what stands before them in a thread
  DType stored;           // what totals are stored as
};

void CudaGridPrinter::operator()(const Scan& n, const Stmt& s) {
  const FragmentTile own = fragments_.at(n.from.buffer.get());
  auto levels = passes::scan_levels(own.layout, n.dim);
  FragmentTile from = own;
  if (!levels) {
    from = converted(n.from.buffer, layout::blocked(team_.threads, own.layout.shape(), 1), true, s->at);
    levels = passes::scan_levels(from.layout, n.dim);
  }
  const DType type = compute_type(n.to.buffer->type);
  ScanTexts texts;
  texts.is_segmented = n.starts.has_value();
  texts.value_type = scalar_type(type);
  texts.type = n.starts ? fmt::format("tg::Marked<{}>", texts.value_type) : texts.value_type;
  texts.op = n.starts ? fmt::format("tg::Segmented<{}>", combination_of(n.op)) : combination_of(n.op);
  const std::string identity = fmt::format("{}({})", texts.value_type, identity_of(n.op, type));
  texts.none = n.starts ? fmt::format("{}{{{}, false}}", texts.type, identity) : identity;
  texts.reverse = n.reverse ? "true" : "false";
  texts.stored = type;
  texts.elements = names_.unique(n.to.buffer->name + "_each");
  texts.in_place = !n.exclusive && !levels->empty() && levels->front().kind == ScanLevel::Kind::registers;
  scan_elements(n, from, texts, s->at);
  const std::string before = scan_levels(*levels, texts, s->at);
  finish_scan(n, from, texts, before, s->at);
}

// The registers as values to be combined; those outside the tile change nothing.
void CudaGridPrinter::scan_elements(const Scan& n, const FragmentTile& from, const ScanTexts& texts,
                                    const Loc& at) {
  std::string starts;
  if (n.starts) {
    const FragmentTile& own = fragments_.at(n.starts->buffer.get());
    starts = own.layout == from.layout ? own.name : converted(n.starts->buffer, from.layout, true, at).name;
  }
  const std::int64_t count = from.layout.register_count();
  out_.code();
  // An exclusive scan of one register reads none of its elements.
  out_.line(fmt::format("[[maybe_unused]] {} {}[{}];  // {}", texts.type, texts.elements, count,
                        location_in_folder(at)));
  out_.open("{");
  const Texts base = base_coordinates(from.layout);
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", count));
  const Coordinates x = register_coordinates(from.layout, base);
  std::string element = fmt::format("{}({}[r])", texts.value_type, from.name);
  if (n.starts) element = fmt::format("{}{{{}, {}[r] != 0}}", texts.type, element, starts);
  if (!x.inside.empty()) element = fmt::format("{} ? {} : {}", x.inside, element, texts.none);
  out_.line(fmt::format("{}[r] = {};", texts.elements, element));
  out_.close();
  out_.close();
}

// The combination of what is in registers, of which each may take in what stands before it.
void CudaGridPrinter::scan_registers(const ScanLevel& level, const ScanTexts& texts, const std::string& total,
                                     const std::string& before, const std::string& next, const Loc& at) {
  const std::string how = fmt::format("<{}, {}, {}, {}>", texts.op, level.step, level.extent, texts.reverse);
  out_.line(fmt::format("{} {}[{}];", texts.type, next, level.registers / level.extent));
  if (before.empty())
    out_.line(fmt::format("tg::scan_in_place{}({}, {});", how, total, next), at);
  else
    out_.line(fmt::format("tg::scan_registers{}({}, {}, {}, {});", how, total, before, next, texts.none), at);
}

// What stands before each register's element, with its index there; empty if nothing does.
std::string CudaGridPrinter::scan_levels(const std::vector<ScanLevel>& levels, const ScanTexts& texts,
                                         const Loc& at) {
  std::vector<std::string> before;
  std::string total = texts.elements;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const ScanLevel& level = levels[i];
    const bool in_place = i == 0 && texts.in_place;
    before.push_back(in_place ? "" : names_.unique("before"));
    out_.code();
    if (!in_place) out_.line(fmt::format("{} {}[{}];", texts.type, before.back(), level.registers));
    if (level.kind != ScanLevel::Kind::registers && total == texts.elements) {
      total = names_.unique("total");
      out_.line(fmt::format("{} {}[{}];", texts.type, total, level.registers));
      out_.line("#pragma unroll");
      out_.line(
          fmt::format("for (int r = 0; r < {}; ++r) {}[r] = {}[r];", level.registers, total, texts.elements));
    }
    if (level.kind == ScanLevel::Kind::registers) {
      const std::string next = names_.unique("total");
      scan_registers(level, texts, total, before.back(), next, at);
      total = next;
    } else if (level.kind == ScanLevel::Kind::lanes) {
      out_.line(fmt::format("tg::scan_lanes<{}, {}, {}, {}>({}, {}, {});", texts.op, level.step, level.extent,
                            texts.reverse, total, before.back(), texts.none),
                at);
    } else {
      scan_threads(level, warps_agree(levels, i), texts, total, before.back(), at);
    }
  }
  const std::size_t first = texts.in_place ? 1 : 0;
  for (std::size_t i = levels.size(); i-- > first + 1;)
    out_.line(fmt::format("tg::add_before<{}, {}>({}, {});", texts.op, digits_left_out(levels[i - 1]),
                          before[i], before[i - 1]));
  if (before.size() <= first) return "";
  if (!texts.in_place) return before.front() + "[r]";
  return fmt::format("{}[tg::without_digit<{}>(r)]", before[first], digits_left_out(levels.front()));
}

// Every thread, or one for each warp where its lanes agree, leaves its totals in shared memory.
void CudaGridPrinter::scan_threads(const ScanLevel& level, bool by_warp, const ScanTexts& texts,
                                   const std::string& total, const std::string& before, const Loc& at) {
  const std::int64_t unit = by_warp ? lanes_of_warp : 1, slots = team_.threads / unit,
                     step = level.step / unit;
  const SharedTile values = stage(total, slots * level.registers, texts.stored);
  std::optional<SharedTile> starts;
  if (texts.is_segmented) starts = stage(total + "_starts", slots * level.registers, boolean);
  const std::string slot = digit_text(team_.thread, unit, slots, slots * unit);
  const std::string own = digit_text(team_.thread, level.step, level.extent);
  const auto touch = [&](MemoryUse use) {
    out_.code();
    out_.touch({values.memory, use});
    if (starts) out_.touch({starts->memory, use});
  };
  touch(MemoryUse::write);
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{  // {}: totals of {}", level.registers,
                        location_in_folder(at), by_warp ? "warps" : "threads"));
  const std::string place = fmt::format("{} + r * {}", slot, slots);
  const std::string total_value = texts.is_segmented ? fmt::format("{}[r].value", total) : total + "[r]";
  out_.line(fmt::format("tg::store({} + {}, {});", values.name, place, total_value));
  if (starts) out_.line(fmt::format("tg::store({} + {}, {}[r].start);", starts->name, place, total));
  out_.close();
  touch(MemoryUse::read);
  std::string read = fmt::format("tg::load({} + i)", values.name);
  if (starts) read = fmt::format("{}{{{}, tg::load({} + i)}}", texts.type, read, starts->name);
  out_.line(
      fmt::format("tg::scan_parts<{}, {}, {}, {}, {}>({}, {}, {}, {} - ({}) * {}, {}, [&](int i) {{ return "
                  "{}; }});",
                  texts.op, step, level.extent, slots, texts.reverse, total, before, texts.none, slot, own,
                  step, own, read),
      at);
  if (starts) release(*starts);
  release(values);
}

void CudaGridPrinter::finish_scan(const Scan& n, const FragmentTile& from, const ScanTexts& texts,
                                  const std::string& before, const Loc& at) {
  const FragmentTile to = fragments_.at(n.to.buffer.get());
  FragmentTile result = to;
  if (to.layout != from.layout) {
    result = {names_.unique(n.to.buffer->name), from.layout};
    declare_fragment(result.name, n.to.buffer->type, from.layout, at);
  }
  const std::string each = texts.elements + "[r]", none = texts.none;
  const std::string first = before.empty() ? none : before;
  std::string value = texts.in_place && before.empty()
                          ? fmt::format("tg::value_of({})", each)
                          : fmt::format("tg::value_of({}::of({}, {}))", texts.op, first, each);
  if (n.exclusive) {
    value = fmt::format("tg::value_of({})", first);
    if (n.starts) value = fmt::format("{}.start ? tg::value_of({}) : {}", each, none, value);
  }
  const DType type = n.to.buffer->type;
  if (type.bits() < 32) value = fmt::format("tg::rounded<{}>({})", element_type(type), value);
  out_.line("#pragma unroll");
  out_.line(fmt::format("for (int r = 0; r < {}; ++r) {}[r] = {};", from.layout.register_count(), result.name,
                        value),
            at);
  if (to.layout == from.layout) return;
  fragments_[n.to.buffer.get()] = result;
  const FragmentTile part = converted(n.to.buffer, to.layout, true, at);
  fragments_[n.to.buffer.get()] = to;
  out_.line("#pragma unroll");
  out_.line(fmt::format("for (int r = 0; r < {}; ++r) {}[r] = {}[r];", to.layout.register_count(), to.name,
                        part.name),
            at);
}

}  // namespace tegula::codegen
