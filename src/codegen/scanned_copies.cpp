#include "codegen/scanned_copies.hpp"

#include "ir/ir.hpp"
#include "ir/representable.hpp"
#include "passes/tile_versions.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// The copy and the scan mention the tile, of which both take everything.
bool is_between(const View& of_copy, const View& of_scan, const TileUses& uses) {
  const auto mentions = uses.mentions.find(of_scan.buffer.get());
  return of_copy.buffer == of_scan.buffer && is_whole(of_copy) && is_whole(of_scan) &&
         mentions != uses.mentions.end() && mentions->second == 2;
}

bool is_held(DType from, DType to) { return contains(to, from) && compute_type(to) == compute_type(from); }

// The next statement in one direction that is no declaration; null at the end of the body.
Stmt neighbour(const Body& body, std::size_t of, std::ptrdiff_t step) {
  for (std::size_t i = of + static_cast<std::size_t>(step); i < body.size();
       i += static_cast<std::size_t>(step))
    if (!as<Declare>(body[i])) return body[i];
  return nullptr;
}

}  // namespace

CopiesOfScans copies_of_scans(const Body& body, const TileUses& uses) {
  CopiesOfScans result;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const auto* scan = as<Scan>(body[i]);
    if (!scan) continue;
    ScannedCopies own{neighbour(body, i, -1), neighbour(body, i, 1)};
    const auto* in = own.in ? as<Copy>(own.in) : nullptr;
    if (!in || in->from.is_tile() || !is_between(in->to, scan->from, uses) ||
        !passes::is_along_rows(in->from) || !is_held(in->from.buffer->type, in->to.buffer->type))
      own.in = nullptr;
    const auto* out = own.out ? as<Copy>(own.out) : nullptr;
    if (!out || out->to.is_tile() || !is_between(out->from, scan->to, uses) ||
        !passes::is_along_rows(out->to) || (own.in && in->from.buffer == out->to.buffer))
      own.out = nullptr;
    if (own.in || own.out) result.emplace(body[i].get(), own);
  }
  return result;
}

}  // namespace tegula::codegen
