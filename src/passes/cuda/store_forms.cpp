#include "passes/cuda/store_forms.hpp"

#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

Body with_stores(const Body& body, const StoreForms& forms, bool by_engine) {
  if (!has_choices(body, forms)) return body;
  return map_body(body, [&](const Stmt& s) -> Body {
    const auto found = forms.find(s.get());
    if (found == forms.end()) return {s};
    return by_engine ? found->second.by_engine : found->second.by_threads;
  });
}

bool has_choices(const Body& body, const StoreForms& forms) {
  bool found = false;
  for_each_stmt(body, [&](const Stmt& s) { found |= forms.contains(s.get()); });
  return found;
}

Body substitute(const Body& body, const Substitution& by, StoreForms& forms) {
  Body result = ir::substitute(body, by);
  std::vector<Stmt> now;
  for_each_stmt(result, [&](const Stmt& s) { now.push_back(s); });
  std::size_t at = 0;
  for_each_stmt(body, [&](const Stmt& s) {
    const Stmt& own = now[at++];
    const auto found = forms.find(s.get());
    if (found == forms.end() || own == s) return;
    const StoreForm form = found->second;
    forms.emplace(own.get(),
                  StoreForm{own, ir::substitute(form.by_engine, by), ir::substitute(form.by_threads, by)});
  });
  return result;
}

}  // namespace tegula::passes
