#include "lang/deferred.hpp"

#include <bit>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "lang/builder.hpp"

namespace tegula::lang {

namespace {

// What std::source_location points to: both compilers fill in these members, in this order, for the C++
// library (libstdc++, source_location; Clang, `__builtin_source_location`).
struct PlaceRecord {
  const char* file;
  const char* function;
  unsigned line, column;
};
static_assert(sizeof(Loc) == sizeof(const PlaceRecord*));

Loc place_at(const PlaceRecord& record) { return std::bit_cast<Loc>(&record); }

}  // namespace

Expr read_later(const Element& element, int statement) {
  auto& builder = Builder::current(element.at());
  if (!builder.within(ScopeKind::grid))
    fail(
        element.at(),
        "an element of `" + element.view()->buffer->name +
            "` is read outside grid(…); extents and conditions outside a grid may use dims and scalars only");
  return builder.defer(compute_type(element.view()->buffer->type),
                       ir::Access{*element.view(), element.index()}, statement, element.at());
}

Expr read_later(const Var& variable, int statement, const Loc& at) {
  auto& builder = Builder::current(at);
  builder.check_scope(variable.variable(), at);
  return builder.defer(variable.variable()->type, variable.variable(), statement, at);
}

void read_in_order(const Expr& first, const Expr& second) {
  if (auto* builder = Builder::active()) builder->order_deferred(first, second);
}

void leave_out(const Expr& read) {
  if (auto* builder = Builder::active()) builder->forget(read);
}

Loc made_place(const std::string& file, const std::string& function, unsigned line, unsigned column) {
  // Never destroyed: kernels keep places, and the last of them may end with the process.
  static auto* guard = new std::mutex();
  static auto* texts = new std::set<std::string>();
  static auto* records =
      new std::map<std::tuple<const char*, const char*, unsigned, unsigned>, PlaceRecord>();
  const std::lock_guard lock(*guard);
  const char* name = texts->insert(file).first->c_str();
  const char* inside = texts->insert(function).first->c_str();
  const auto found =
      records->try_emplace({name, inside, line, column}, PlaceRecord{name, inside, line, column});
  const Loc place = place_at(found.first->second);
  internal_assert(place.line() == line && place.file_name() == name,
                  "std::source_location is made of other parts in this C++ library");
  return place;
}

}  // namespace tegula::lang
