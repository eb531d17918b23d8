#include "passes/cuda/role_reasons.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/plan_rows.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// At most this many of a consumer's 248 registers; the remainder is for addresses and operands.
constexpr std::int64_t most_fragment_registers = 208;

// A product, and the statements around it from the outside to the inside.
struct Product {
  Stmt stmt;
  std::vector<Stmt> around;
};

void find_products(const Body& body, std::vector<Stmt>& around, std::vector<Product>& found) {
  for (const Stmt& s : body) {
    if (as<Gemm>(s)) found.push_back({s, around});
    around.push_back(s);
    for_each_body(s, [&](const Body& inner) { find_products(inner, around, found); });
    around.pop_back();
  }
}

std::vector<Product> products_in(const Grid& grid) {
  std::vector<Product> found;
  std::vector<Stmt> around;
  find_products(grid.body, around, found);
  return found;
}

GemmPlan plan(const Product& product, int threads, const CudaTarget& target) {
  for (const Stmt& s : product.around)
    if (const auto* loop = as<For>(s)) threads = threads_of(*loop, threads);
  return plan_gemm(*as<Gemm>(product.stmt), threads, target);
}

bool is_by_wgmma(const Product& product, int threads, const CudaTarget& target) {
  return plan(product, threads, target).instruction == GemmInstruction::wgmma;
}

// The reason for a product in the body of a pipelined loop.
Reason reason_of_operands(const Gemm& gemm, const Loc& at, const RefusedTiles& refused) {
  for (const View* operand : operands(gemm)) {
    const RefusedTile* found = find(refused, operand->buffer);
    if (!found) continue;
    Reason reason = found->reason;
    reason.why = fmt::format("tile {}, an operand of the product at {}, cannot be loaded ahead: {}",
                             named(*operand->buffer), short_location(at), reason.why);
    return reason;
  }
  return {"the operands of the product are not loaded in the body of its loop",
          "declare and copy at least one of them there, from a tensor", at};
}

Reason reason_of_product(const Product& product, const RefusedTiles& refused) {
  for (std::size_t i = product.around.size(); i-- > 0;) {
    const Stmt& s = product.around[i];
    const auto* loop = as<For>(s);
    if (!loop && !as<While>(s)) continue;
    if (loop && (loop->kind == LoopKind::warps || loop->kind == LoopKind::warp_groups)) continue;
    if (!loop || loop->kind != LoopKind::pipelined)
      return {"the loop around the product is not pipelined", "write `pipelined` for it", s->at};
    return reason_of_operands(*as<Gemm>(product.stmt), product.stmt->at, refused);
  }
  return {"the product is in no loop",
          "put the loads and the product into a `pipelined` loop, even one with a single step: the next "
          "block's loads then overlap with this block's work",
          product.stmt->at};
}

std::int64_t register_bytes(const Buffer& tile) { return tile.elements() * tile.type.bytes(); }

// The maximum bytes of fragments that are live at the same time, each from its first to its last use.
std::int64_t live_bytes(const Body& body) {
  std::int64_t most = 0;
  std::vector<std::int64_t> live(body.size());
  for (const Stmt& s : body) {
    const auto* declared = as<Declare>(s);
    if (!declared || declared->tile->space != Space::fragment) continue;
    std::size_t first = body.size(), last = 0;
    for (std::size_t i = 0; i < body.size(); ++i) {
      for (const Region& r : all_effects(body[i]).regions) {
        if (r.view->buffer == declared->tile) first = std::min(first, i), last = i;
      }
    }
    for (std::size_t i = first; i <= last && i < body.size(); ++i) live[i] += register_bytes(*declared->tile);
  }
  for (std::size_t i = 0; i < body.size(); ++i) {
    std::int64_t inner = 0;
    for_each_body(body[i], [&](const Body& own) { inner = std::max(inner, live_bytes(own)); });
    most = std::max(most, live[i] + inner);
  }
  return most;
}

std::string bytes_of_tiles(const std::vector<BufferPtr>& tiles) {
  std::string text;
  for (const BufferPtr& tile : tiles)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", named(*tile), slot_bytes(*tile));
  return text;
}

// Of the tiles in a part of a slot.
BufferPtr largest(const std::vector<BufferPtr>& tiles) {
  return *std::max_element(tiles.begin(), tiles.end(), [](const BufferPtr& a, const BufferPtr& b) {
    return slot_bytes(*a) < slot_bytes(*b);
  });
}

// What else takes shared memory.
std::string bytes_of_others(const Roles& roles, const RingPlan& ring) {
  std::vector<BufferPtr> tiles;
  for (const RingPlan& other : roles.rings) {
    if (&other == &ring) continue;
    for (std::size_t i = 0; i < other.tiles.size(); ++i) tiles.push_back(largest(other.at(i)));
  }
  for (const Body* body : {&roles.consumer, &roles.producer}) {
    for_each_stmt(*body, [&](const Stmt& s) {
      const auto* n = as<Declare>(s);
      const bool own = n && n->tile->space == Space::shared && roles.ring_of(n->tile.get()) < 0;
      if (own && std::find(tiles.begin(), tiles.end(), n->tile) == tiles.end()) tiles.push_back(n->tile);
    });
  }
  std::string text = bytes_of_tiles(tiles);
  if (roles.stores())
    text += fmt::format("{}stores {}", text.empty() ? "" : ", ", roles.consumers / 128 * roles.store_bytes);
  return text;
}

}  // namespace

const RefusedTile* find(const RefusedTiles& refused, const BufferPtr& tile) {
  const auto found =
      std::find_if(refused.begin(), refused.end(), [&](const RefusedTile& own) { return own.tile == tile; });
  return found == refused.end() ? nullptr : &*found;
}

Reason reason_of_loops(const Grid& grid, const CudaTarget& target, const RefusedTiles& refused) {
  const std::vector<Product> products = products_in(grid);
  for (const Product& product : products) {
    if (is_by_wgmma(product, grid.hints.threads, target)) return reason_of_product(product, refused);
  }
  return {};
}

// One of them would move the sum to its own registers while another, of those before it, may still add to it.
Reason reason_of_layouts(const Grid& grid, const CudaTarget& target) {
  std::unordered_map<const Buffer*, Layout> sums;
  for (const Product& product : products_in(grid)) {
    const GemmPlan own = plan(product, grid.hints.threads, target);
    if (own.instruction != GemmInstruction::wgmma) continue;
    const auto sum = sums.emplace(as<Gemm>(product.stmt)->c.buffer.get(), own.accumulator).first;
    if (sum->second != own.accumulator)
      return {"products of one sum hold it in different layouts",
              "give all of them the same .swap, or sum into two fragments", product.stmt->at};
  }
  return {};
}

Reason reason_of_leaving(const Stmt& s) {
  if (as<Break>(s))
    return {"`break_if` is between the load of a tile and its last use, or in a branch of the step",
            "write it in the body of the loop, before the step's copies", s->at};
  return {as<Exit>(s) ? "`exit_if` is after a load or inside a loop or branch"
                      : "an assertion is after a load or inside a loop or branch",
          "move it before all loads, to the top of the grid's body", s->at};
}

void note_load(std::vector<Note>& notes, const Stmt& fill, const RingPlan& ring, const Reason& engine) {
  if (engine.why.empty()) return;
  const auto rows = plan_rows(fill);
  if (!rows) return add(notes, {NoteKind::by_threads, fill->at, engine.why, engine.remedy});
  add(notes, {NoteKind::by_threads, fill->at,
              fmt::format("rows are loaded and awaited one step at a time, because their tile shares slots "
                          "with a tile that is loaded in another way: {}",
                          bytes_of_tiles(ring.tiles)),
              "load both in the same way, or use them in different statements"});
}

void note_stages(Roles& roles, const RingPlan& ring) {
  const int asked = ring.asked;
  const int wanted = asked > 0 ? asked : 2;
  // Tiles to be transposed have as many slots as what they become, whose note names them.
  if (ring.depth >= wanted || ring.to_transpose) return;
  std::vector<BufferPtr> tiles;
  for (std::size_t i = 0; i < ring.tiles.size(); ++i) tiles.push_back(largest(ring.at(i)));
  const std::string others = bytes_of_others(roles, ring);
  std::string text = fmt::format("{} became {}: a stage takes {} bytes of shared memory",
                                 asked > 0 ? fmt::format(".stages = {}", asked) : "two stages", ring.depth,
                                 bytes_of_tiles(tiles));
  if (!others.empty()) text += fmt::format(", beside {}", others);
  if (roles.blocks_per_processor > 1)
    text += fmt::format(", and {} blocks share a processor", roles.blocks_per_processor);
  add(roles.notes, {NoteKind::stages, ring.loop_at, text,
                    asked > 0 ? fmt::format("use smaller tiles, or ask for .stages = {}", ring.depth)
                              : std::string("use smaller tiles")});
}

void note_consumers(Roles& roles, const Grid& grid, const RefusedTiles& refused) {
  for (const RefusedTile& own : refused) {
    if (own.is_load)
      add(roles.notes,
          {NoteKind::by_threads, own.reason.at,
           fmt::format("tile {} is loaded by the consumers: {}", named(*own.tile), own.reason.why),
           own.reason.remedy});
  }
  for_each_stmt(grid.body, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::pipelined || loop->stages <= 1) return;
    bool brings = false;
    for_each_stmt(loop->body, [&](const Stmt& inner) {
      const auto* declared = as<Declare>(inner);
      brings |= roles.fills.contains(inner.get()) || (declared && roles.ring_of(declared->tile.get()) >= 0);
    });
    if (!brings)
      add(roles.notes, {NoteKind::stages, s->at,
                        fmt::format(".stages = {} became 1: the loop loads no tile that can be loaded ahead",
                                    loop->stages),
                        "declare Shared tiles in its body and copy them from tensors, or leave out .stages"});
  });
}

void note_warp_groups(Roles& roles, const Grid& grid, const CudaTarget& target) {
  const std::int64_t registers = live_bytes(roles.consumer) / 4 / roles.consumers;
  if (roles.consumers != 128 || registers <= most_fragment_registers) return;
  for (const Product& product : products_in(grid)) {
    if (is_by_wgmma(product, 128, target) && !is_by_wgmma(product, 256, target)) return;
  }
  add(roles.notes,
      {NoteKind::one_warp_group, grid.at,
       fmt::format("fragments take {} registers of each of 128 threads", registers), "use .threads = 256"});
}

}  // namespace tegula::passes
