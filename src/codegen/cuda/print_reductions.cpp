// Reductions of fragments: by registers, by the lanes of a warp, among warps.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/combine.hpp"
#include "codegen/cuda/grid_printer.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/lane_sums.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr std::int64_t most_kept_bytes = 512;
constexpr std::size_t most_kept = 4;

// Whether every thread has all elements of the sum and there are so many parts that the lanes of a warp
// should share them: four or five exchanges instead of an addition for each part.
bool meets_in_lanes(const Meeting& m) {
  constexpr std::int64_t fewest = 16, lanes = 32;
  return m.sum.layout.register_count() == m.elements && m.parts >= fewest && m.parts <= lanes &&
         (m.parts & (m.parts - 1)) == 0;
}

// The same of parts that are no power of two, where rows are shifted, too, which takes instructions enough.
bool meets_in_fewer_lanes(const Meeting& m, const passes::CopyRings& rings) {
  constexpr std::int64_t fewest = 8, lanes = 32;
  return !rings.runs.empty() && m.sum.layout.register_count() == m.elements && m.parts > fewest &&
         m.parts < lanes;
}

// The same of more parts than lanes, as warps of several CTAs have them: every lane adds some up first.
bool meets_in_lanes_of_many(const Meeting& m) {
  constexpr std::int64_t lanes = 32;
  return m.sum.layout.register_count() == m.elements && m.parts > lanes && m.parts % lanes == 0;
}

}  // namespace

const char* identity_of(ReduceOp op, DType type) {
  if (op == ReduceOp::any) return "false";
  if (op == ReduceOp::all) return "true";
  if (op != ReduceOp::max && op != ReduceOp::min) return "0";
  const bool low = op == ReduceOp::max;
  if (type.is_floating()) return low ? "-tg::infinity()" : "tg::infinity()";
  if (type == u32) return low ? "0u" : "0xffffffffu";
  if (type == i64) return low ? "-9223372036854775807l - 1" : "9223372036854775807l";
  return low ? "-2147483647 - 1" : "2147483647";
}

const char* combination_of(ReduceOp op) {
  constexpr const char* names[] = {"tg::Add", "tg::Max", "tg::Min", "tg::Max", "tg::Or", "tg::And"};
  return names[static_cast<int>(op)];
}

void CudaGridPrinter::operator()(const Reduce& n, const Stmt& s) {
  const FragmentTile& from = fragments_.at(n.from.buffer.get());
  if (part_.is_all() || part_.first == 0) {
    partial_ = Partial{names_.unique(n.to.buffer->name + "_sum"), from.layout.slice(n.dim), 0};
    partial_->chains = static_cast<int>(partial_->layout.register_count()) * (part_.is_all() ? 1 : 2);
    begin_fold(n, s->at);
  }
  fold_registers(n, from);
  if (part_.last < 16) return;
  const FragmentTile sum = end_fold(n, s->at);
  if (const auto shares = layouts_.shares.find(n.to.buffer.get()); shares != layouts_.shares.end())
    return finish_reduction(n, shared_by_lanes(n, sum, shares->second), s->at);
  if (!lane_sums_.contains(n.to.buffer.get())) fold_threads(n, from, sum, s->at);
  finish_reduction(n, sum, s->at);
}

// Reductions that follow each other and do not need each other's results, with declarations of fragments
// between them: how many statements these are, or 0 for a single one.
std::size_t CudaGridPrinter::reductions_together(const Body& statements, std::size_t first) const {
  if (loop_ || roles_ || !part_.is_all() || !as<Reduce>(statements[first])) return 0;
  std::unordered_set<const Buffer*> results;
  std::size_t end = first, count = 0;
  for (std::size_t i = first; i < statements.size(); ++i) {
    const auto* declared = as<Declare>(statements[i]);
    if (declared && declared->tile->space == Space::fragment) continue;
    const auto* n = as<Reduce>(statements[i]);
    if (!n || lane_sums_.contains(n->to.buffer.get()) || layouts_.shares.contains(n->to.buffer.get()) ||
        results.contains(n->from.buffer.get()) || !results.insert(n->to.buffer.get()).second)
      break;
    // Sums of a thread's own elements meet nobody: they would keep those that need them out of the group.
    if (ctas_ > 1 && parting_of(*n).parts.empty()) break;
    end = i + 1, ++count;
  }
  return count > 1 ? end - first : 0;
}

passes::Parting CudaGridPrinter::parting_of(const Reduce& n) const {
  return passes::parting(fragments_.at(n.from.buffer.get()).layout, n.dim);
}

// Their parts meet after one barrier.
void CudaGridPrinter::print_reductions_together(std::span<const Stmt> statements) {
  struct Open {
    Stmt stmt;
    FragmentTile sum;
    std::optional<Meeting> meeting;
  };
  std::vector<Open> open;
  std::vector<Meeting> meetings;
  const bool counts = std::all_of(statements.begin(), statements.end(), [&](const Stmt& s) {
    const auto* n = as<Reduce>(s);
    return !n || is_counted(n->to.buffer->type, parting_of(*n));
  });
  for (const Stmt& s : statements)
    if (as<Declare>(s)) stmt(s);
  for (const Stmt& s : statements) {
    const auto* n = as<Reduce>(s);
    if (!n) continue;
    const FragmentTile& from = fragments_.at(n->from.buffer.get());
    partial_ = Partial{names_.unique(n->to.buffer->name + "_sum"), from.layout.slice(n->dim), 0};
    partial_->chains = static_cast<int>(partial_->layout.register_count());
    begin_fold(*n, s->at);
    fold_registers(*n, from);
    const FragmentTile sum = end_fold(*n, s->at);
    const passes::Parting divided = passes::parting(from.layout, n->dim);
    fold_lanes(divided, sum, n->op);
    open.push_back({s, sum, begin_meeting(n->op, n->to.buffer->type, divided, sum, s->at, counts)});
    if (open.back().meeting) meetings.push_back(*open.back().meeting);
  }
  await_parts(meetings);
  for (const Open& own : open) {
    if (own.meeting) end_meeting(*own.meeting);
    finish_reduction(*as<Reduce>(own.stmt), own.sum, own.stmt->at);
  }
  leave_meeting(meetings);
}

void CudaGridPrinter::begin_fold(const Reduce& n, const Loc& at) {
  out_.code();
  if (part_.is_all())
    declare_fragment(partial_->name, n.to.buffer->type, partial_->layout, at);
  else
    out_.line(fmt::format("float {}[{}];  // {}", partial_->name, partial_->chains, location_in_folder(at)));
  out_.line("#pragma unroll");
  out_.line(fmt::format("for (int r = 0; r < {}; ++r) {}[r] = {};", partial_->chains, partial_->name,
                        identity_of(n.op, compute_type(n.to.buffer->type))));
}

// Two chains of a register become one.
FragmentTile CudaGridPrinter::end_fold(const Reduce& n, const Loc& at) {
  if (part_.is_all()) return {partial_->name, partial_->layout};
  const FragmentTile sum{names_.unique(n.to.buffer->name + "_sum"), partial_->layout};
  declare_fragment(sum.name, n.to.buffer->type, sum.layout, at);
  out_.line("#pragma unroll");
  out_.line(fmt::format("for (int r = 0; r < {0}; ++r) {1}[r] = {3}::of({2}[2 * r], {2}[2 * r + 1]);",
                        sum.layout.register_count(), sum.name, partial_->name, combination_of(n.op)));
  return sum;
}

void CudaGridPrinter::fold_registers(const Reduce& n, const FragmentTile& from) {
  const DType type = compute_type(n.to.buffer->type);
  const std::int64_t count = from.layout.register_count();
  out_.code();
  out_.open("{");
  const Texts base = base_coordinates(from.layout);
  out_.line("#pragma unroll");
  out_.open(
      fmt::format("for (int r = {}; r < {}; ++r) {{", count * part_.first / 16, count * part_.last / 16));
  const Coordinates x = register_coordinates(from.layout, base);
  std::int64_t step = 1, own = 1;
  Texts terms;
  for (const layout::Digit& digit : from.layout.registers()) {
    bool kept = false;
    for (std::size_t d = 0; d < digit.stride.size(); ++d)
      kept |= static_cast<int>(d) != n.dim && digit.stride[d] != 0;
    if (kept) {
      terms.push_back(times(digit_text("r", step, digit.extent, count), own));
      own *= digit.extent;
    }
    step *= digit.extent;
  }
  std::string at = terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
  if (!part_.is_all()) at = fmt::format("({}) * 2 + r % 2", at);
  const std::string to = fmt::format("{}[{}]", partial_->name, at);
  std::string element = fmt::format("{}({}[r])", scalar_type(type), from.name);
  if (n.op == ReduceOp::absmax) element = fmt::format("tg::abs({})", element);
  out_.line(fmt::format("{}{} = {}::of({}, {});", x.inside.empty() ? "" : fmt::format("if ({}) ", x.inside),
                        to, combination_of(n.op), to, element));
  out_.close();
  out_.close();
}

void CudaGridPrinter::fold_lanes(const passes::Parting& parting, const FragmentTile& sum, ReduceOp op) {
  for (const auto& [step, lanes] : parting.lanes) {
    out_.line("#pragma unroll");
    out_.line(fmt::format("for (int r = 0; r < {0}; ++r) {1}[r] = tg::across_lanes<{2}, {3}, {4}>({1}[r]);",
                          sum.layout.register_count(), sum.name, combination_of(op), step, lanes));
  }
}

// Each lane gets the sums of its part.
FragmentTile CudaGridPrinter::shared_by_lanes(const Reduce& n, const FragmentTile& sum,
                                              const std::vector<layout::Halving>& steps) {
  std::string from = sum.name;
  std::int64_t count = sum.layout.register_count();
  for (const layout::Halving& step : steps) {
    const std::string to = names_.unique(sum.name + "_part");
    out_.line(fmt::format("{} {}[{}];", scalar_type(compute_type(n.to.buffer->type)), to, count /= 2));
    out_.line(fmt::format("tg::halve_among_lanes<{}, {}, {}>({}, {});", combination_of(n.op), step.lanes,
                          step.registers, from, to));
    from = to;
  }
  return {from, fragments_.at(n.to.buffer.get()).layout};
}

// Partial results meet by exchanges within a warp, and through shared memory among warps.
void CudaGridPrinter::fold_threads(const Reduce& n, const FragmentTile& from, const FragmentTile& sum,
                                   const Loc& at) {
  const passes::Parting divided = passes::parting(from.layout, n.dim);
  fold_lanes(divided, sum, n.op);
  fold_warps(n.op, n.to.buffer->type, divided, sum, at);
}

void CudaGridPrinter::fold_warps(ReduceOp op, DType type, const passes::Parting& divided,
                                 const FragmentTile& sum, const Loc& at) {
  const auto meeting = begin_meeting(op, type, divided, sum, at, is_counted(type, divided));
  if (!meeting) return;
  await_parts({&*meeting, 1});
  end_meeting(*meeting);
  leave_meeting({&*meeting, 1});
}

// The loop over the registers of a sum, with the place of each among the elements.
void CudaGridPrinter::each_sum(const Meeting& m, const std::string& header,
                               const std::function<void(const Coordinates&, const std::string&)>& body) {
  out_.open(fmt::format("{{  // {}: {}", location_in_folder(m.at), header));
  const Texts base = base_coordinates(m.sum.layout);
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", m.sum.layout.register_count()));
  const Coordinates x = register_coordinates(m.sum.layout, base);
  Texts terms;
  std::int64_t stride = 1;
  for (std::size_t d = x.names.size(); d-- > 0; stride *= m.sum.layout.shape()[d])
    terms.push_back(times(x.names[d], stride));
  body(x, terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + ")));
  out_.close();
  out_.close();
}

// Nothing, if the parts are in one warp.
std::optional<Meeting> CudaGridPrinter::begin_meeting(ReduceOp op, DType type, const passes::Parting& divided,
                                                      const FragmentTile& sum, const Loc& at, bool counts) {
  if (divided.parts.empty()) return std::nullopt;
  Meeting m{op, sum, at, {}};
  m.is_counted = counts;
  std::string part;
  for (const auto& [step, number] : divided.numbers) {
    part += (part.empty() ? "" : " + ") + times(digit_text(team_.thread, step, number), m.parts);
    m.parts *= number;
  }
  for (const std::int64_t extent : sum.layout.shape()) m.elements *= extent;
  if (sum.layout.register_count() != m.elements)
    refuse_to_spread(fmt::format("threads have different elements of the sum {}", sum.name),
                     "reduce vectors, one number a thread or warp");
  m.tile = place_between_threads(sum.name, m.elements * m.parts * (counts ? meeting_places : 1),
                                 type_of_parts(type));
  out_.code();
  if (!counts) out_.touch({m.tile.memory, MemoryUse::write});
  // Threads that hold the same partial result store the same value.
  each_sum(m, "parts to shared memory", [&](const Coordinates& x, const std::string& flat) {
    const std::string place =
        fmt::format("{} + {}({}) * {} + {}", m.tile.name, place_of_meeting(m), part, m.elements, flat);
    const std::string condition = x.inside.empty() ? "" : fmt::format("if ({}) ", x.inside);
    if (counts)
      out_.line(fmt::format("{}tg::send_to_all<{}>({}, {}[r], meetings.barrier());", condition, ctas_, place,
                            sum.name));
    else
      out_.line(fmt::format("{}tg::store{}({}, {}[r]);", condition,
                            ctas_ > 1 ? fmt::format("_in_all<{}>", ctas_) : "", place, sum.name));
  });
  return m;
}

void CudaGridPrinter::end_meeting(const Meeting& m) {
  out_.code();
  if (!m.is_counted) out_.touch({m.tile.memory, MemoryUse::read});
  each_sum(m, "and together", [&](const Coordinates& x, const std::string& own) {
    const std::string flat = place_of_meeting(m) + own;
    if (meets_in_lanes(m)) {
      out_.line(fmt::format("{0}[r] = tg::across_lanes<{1}, 1, {2}>(tg::load({3} + {4} % {2} * {5} + {6}));",
                            m.sum.name, combination_of(m.op), m.parts, m.tile.name, team_.thread, m.elements,
                            flat));
      return;
    }
    if (meets_in_fewer_lanes(m, plan_.copy_rings)) {
      out_.line(fmt::format("{}[r] = tg::across_some_parts<{}, {}, {}>({} + {});", m.sum.name,
                            combination_of(m.op), m.parts, m.elements, m.tile.name, flat));
      return;
    }
    if (meets_in_lanes_of_many(m)) {
      out_.line(fmt::format("{}[r] = tg::across_parts<{}, {}, {}>({} + {});", m.sum.name,
                            combination_of(m.op), m.parts, m.elements, m.tile.name, flat));
      return;
    }
    if (!x.inside.empty()) out_.open(fmt::format("if ({}) {{", x.inside));
    out_.line(fmt::format("{}[r] = tg::load({} + {});", m.sum.name, m.tile.name, flat));
    out_.line("#pragma unroll");
    out_.line(fmt::format(
        "for (int part = 1; part < {0}; ++part) {1}[r] = {2}::of({1}[r], tg::load({3} + part * {4} + {5}));",
        m.parts, m.sum.name, combination_of(m.op), m.tile.name, m.elements, flat));
    if (!x.inside.empty()) out_.close();
  });
  // Warps of other CTAs send parts whenever they want: nothing else is ever here.
  if (m.is_counted) return;
  // The next ones meet elsewhere, so that nobody waits for those who still read here.
  if (roles_ || m.tile.memory.end - m.tile.memory.begin > most_kept_bytes) return release(m.tile);
  kept_.push_back(m.tile);
  if (kept_.size() <= most_kept) return;
  release(kept_.front());
  kept_.pop_front();
}

void CudaGridPrinter::finish_reduction(const Reduce& n, const FragmentTile& sum, const Loc& at) {
  const FragmentTile to = fragments_.at(n.to.buffer.get());
  FragmentTile part = sum;
  if (to.layout != sum.layout) {
    fragments_[n.to.buffer.get()] = sum;
    part = converted(n.to.buffer, to.layout, true, at);
    fragments_[n.to.buffer.get()] = to;
  }
  const DType type = n.to.buffer->type;
  std::string text = fmt::format("{}[r]", part.name);
  if (!n.overwrite) text = fmt::format("{}::of({}[r], {})", combination_of(n.op), to.name, text);
  if (type.bits() < 32 && !type.is_boolean())
    text = fmt::format("tg::rounded<{}>({})", element_type(type), text);
  out_.line("#pragma unroll");
  out_.line(
      fmt::format("for (int r = 0; r < {}; ++r) {}[r] = {};", to.layout.register_count(), to.name, text), at);
}

// What there was before belongs to the first lane of the first warp.
void CudaGridPrinter::begin_lane_sum(const passes::LaneSum& n) {
  const FragmentTile& sum = fragments_.at(n.sum.get());
  Texts first;
  for (const auto* units : {&n.parting.lanes, &n.parting.numbers})
    for (const auto& [step, count] : *units)
      first.push_back(fmt::format("{} == 0", digit_text(team_.thread, step, count)));
  out_.code();
  out_.line("#pragma unroll");
  out_.line(fmt::format("for (int r = 0; r < {}; ++r) {}[r] = {} ? {}[r] : 0.0f;  // lanes keep their parts",
                        sum.layout.register_count(), sum.name, fmt::join(first, " && "), sum.name));
  lane_sums_.insert(n.sum.get());
}

void CudaGridPrinter::end_lane_sum(const passes::LaneSum& n) {
  lane_sums_.erase(n.sum.get());
  const FragmentTile& sum = fragments_.at(n.sum.get());
  out_.code();
  fold_lanes(n.parting, sum, ReduceOp::sum);
  if (n.parting.parts.empty()) return;
  fold_warps(ReduceOp::sum, n.sum->type, n.parting, sum, n.sum->at);
  // Here once, for who still reads the parts: else the next block's steps would each wait for them.
  out_.barrier(team_.count > 1 ? team_.barrier : team_barrier_);
}

}  // namespace tegula::codegen
