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

}  // namespace tegula::passes
