#include "passes/slice.hpp"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class Slice {
 public:
  explicit Slice(const SliceRules& rules) : rules_(rules) {}

  Planned<Body> of(const Body& body) {
    do changed_ = false, walk(body);
    while (changed_ && !refusal_);
    if (refusal_) return *refusal_;
    return kept(body);
  }

 private:
  // Statements that are decided as a whole.
  static bool is_atomic(const Stmt& s) {
    if (const auto* loop = as<For>(s))
      return loop->kind == LoopKind::parallel || loop->kind == LoopKind::warps ||
             loop->kind == LoopKind::warp_groups;
    return !as<If>(s) && !as<While>(s);
  }

  // Whether something in the body is part of the slice.
  bool walk(const Body& body) {
    bool any = false;
    for (const Stmt& s : body) any |= is_atomic(s) ? leaf(s) : control(s);
    if (!any) return false;
    for (const Stmt& s : body) {
      if (as<Break>(s) || as<Exit>(s) || as<Assert>(s)) take(s);
    }
    return true;
  }

  bool control(const Stmt& s) {
    bool any = false;
    for_each_body(s, [&](const Body& inner) { any |= walk(inner); });
    if (any) take(s);
    return any;
  }

  bool leaf(const Stmt& s) {
    if (rules_.left_out(s)) return false;
    if (taken_.contains(s.get())) return true;
    if (!rules_.wanted(s) && !provides(s)) return false;
    take(s);
    return true;
  }

  // Statements are asked again in every round.
  const Effects& effects_of(const Stmt& s) {
    const auto [found, is_new] = effects_.try_emplace(s.get());
    if (is_new) found->second = is_atomic(s) ? all_effects(s) : effects(s);
    return found->second;
  }

  bool provides(const Stmt& s) {
    const Effects& e = effects_of(s);
    for (const VariablePtr& v : e.defined) {
      if (variables_.contains(v.get())) return true;
    }
    for (const VariablePtr& v : e.assigned) {
      if (variables_.contains(v.get())) return true;
    }
    for (const Region& r : e.regions) {
      if (is_write(r.touch) && tiles_.contains(r.view->buffer.get())) return true;
    }
    for (const BufferPtr& tile : e.declared) {
      if (tiles_.contains(tile.get()) || told_.contains(tile.get())) return true;
    }
    return false;
  }

  void take(const Stmt& s) {
    if (!taken_.insert(s.get()).second) return;
    changed_ = true;
    if (rules_.refused(s)) refuse("what is computed", s);
    const Effects& e = effects_of(s);
    for (const VariablePtr& v : e.used) variables_.insert(v.get());
    for (const VariablePtr& v : e.assigned) variables_.insert(v.get());
    for (const Region& r : e.regions) {
      const Buffer& buffer = *r.view->buffer;
      if (rules_.told(buffer))
        told_.insert(&buffer);
      else if (buffer.is_tile())
        tiles_.insert(&buffer);
      else if (is_read(r.touch) && !rules_.given(buffer))
        refuse(fmt::format("`{}`, which the grid writes,", buffer.name), s);
    }
  }

  void refuse(const std::string& what, const Stmt& s) {
    if (refusal_) return;
    refusal_ =
        Reason{fmt::format("it depends on {} at {}", what, short_location(s->at)),
               "compute what loads depend on in another grid, from the block's index alone, or outside of "
               "loops into a vector in shared memory"};
  }

  Body kept(const Body& body) const {
    Body result;
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return kept(inner); };
    for (const Stmt& s : body) {
      if (!taken_.contains(s.get())) continue;
      result.push_back(is_atomic(s) ? s : map(s, mapping));
    }
    return result;
  }

  const SliceRules& rules_;
  std::unordered_set<const StmtNode*> taken_;
  std::unordered_map<const StmtNode*, Effects> effects_;
  std::unordered_set<const Variable*> variables_;
  std::unordered_set<const Buffer*> tiles_, told_;
  bool changed_ = false;
  std::optional<Reason> refusal_;
};

}  // namespace

Planned<Body> slice(const Body& body, const SliceRules& rules) { return Slice(rules).of(body); }

}  // namespace tegula::passes
