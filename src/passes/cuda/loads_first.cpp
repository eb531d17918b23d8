#include "passes/cuda/loads_first.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/plan_conversions.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class LoadsFirst {
 public:
  explicit LoadsFirst(const Roles& roles) : roles_(roles) {}

  Body body(const Body& statements) const {
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return body(inner); };
    Body result;
    std::ptrdiff_t first = -1;  // of what threads convert
    for (const Stmt& s : statements) {
      if (first < 0 && is_converted(s)) first = std::ssize(result);
      const bool goes_ahead = first >= 0 && is_only_begun(s) && is_free(s, result, first);
      if (goes_ahead)
        result.insert(result.begin() + first++, s);
      else
        result.push_back(roles_.fills.contains(s.get()) ? s : map(s, mapping));
    }
    return result;
  }

 private:
  const RingPlan& ring_of(const BufferPtr& tile) const {
    return roles_.rings[static_cast<std::size_t>(roles_.ring_of(tile.get()))];
  }

  // By threads that wait for what they load.
  bool is_converted(const Stmt& s) const {
    const auto fill = roles_.fills.find(s.get());
    return fill != roles_.fills.end() && !ring_of(fill->second).by_rows && plan_conversion(s);
  }

  bool is_begun(const StmtNode* fill, const BufferPtr& tile) const {
    const auto copy = roles_.copies.find(fill);
    return ring_of(tile).by_rows || (copy != roles_.copies.end() && !copy->second.is_clipped);
  }

  // The load, or the declaration of a tile all of whose loads are so.
  bool is_only_begun(const Stmt& s) const {
    const auto own = roles_.fills.find(s.get());
    if (own != roles_.fills.end()) return is_begun(own->first, own->second);
    const auto* declared = as<Declare>(s);
    bool any = false, all = true;
    for (const auto& [fill, tile] : roles_.fills) {
      if (!declared || tile != declared->tile) continue;
      any = true;
      all &= is_begun(fill, tile);
    }
    return any && all;
  }

  bool is_free(const Stmt& s, const Body& before, std::ptrdiff_t first) const {
    const Effects own = all_effects(s);
    return std::none_of(before.begin() + first, before.end(), [&](const Stmt& other) {
      const auto* declared = as<Declare>(other);
      return conflict(all_effects(other), own) || (declared && own.writes(declared->tile));
    });
  }

  const Roles& roles_;
};

}  // namespace

Body loads_first(const Roles& roles) { return LoadsFirst(roles).body(roles.producer); }

}  // namespace tegula::passes
