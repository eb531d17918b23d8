#include "schedule/build.hpp"

namespace tegula::schedule {

Count operator+(Count a, const Count& b) {
  a.constant += b.constant;
  a.terms.insert(a.terms.end(), b.terms.begin(), b.terms.end());
  return a;
}

Count operator*(const Count& a, const Count& b) {
  Count product{a.constant * b.constant, {}};
  for (const auto& x : a.terms) {
    if (b.constant != 0) product.terms.push_back({x.factor * b.constant, x.variables});
    for (const auto& y : b.terms) {
      Count::Term term{x.factor * y.factor, x.variables};
      term.variables.insert(term.variables.end(), y.variables.begin(), y.variables.end());
      product.terms.push_back(std::move(term));
    }
  }
  if (a.constant != 0)
    for (const auto& y : b.terms) product.terms.push_back({y.factor * a.constant, y.variables});
  return product;
}

Count Builder::variable(const Variable& variable) {
  schedule_.variables.push_back(variable);
  return {0, {{1, {static_cast<int>(schedule_.variables.size()) - 1}}}};
}

int Builder::buffer(Buffer buffer) {
  schedule_.buffers.push_back(std::move(buffer));
  return static_cast<int>(schedule_.buffers.size()) - 1;
}

int Builder::ring(Ring ring) {
  schedule_.rings.push_back(std::move(ring));
  return static_cast<int>(schedule_.rings.size()) - 1;
}

void Builder::prologue(const Body& body) {
  open_ = &schedule_.prologue;
  body();
  open_ = nullptr;
}

void Builder::role(Role role, const Body& body) {
  open_ = &role.events;
  body();
  open_ = nullptr;
  schedule_.roles.push_back(std::move(role));
}

Event& Builder::emit(What what, Who who, std::string name) {
  internal_assert(open_ != nullptr, "an event is written inside the prologue or a role");
  return open_->emplace_back(Event{std::move(what), who, std::move(name), nullptr, std::nullopt});
}

void Builder::nested(Event event, Events& (*body_of)(Event&), const Body& body) {
  Events* const outer = std::exchange(open_, &body_of(event));
  body();
  open_ = outer;
  open_->push_back(std::move(event));
}

namespace {
Events& body_of_loop(Event& event) { return std::get<Loop>(event.what).body; }
Events& body_of_guard(Event& event) { return std::get<Guard>(event.what).body; }
}  // namespace

void Builder::loop(std::string name, Count count, const Body& body) {
  nested({Loop{Loop::Kind::counted, std::move(count), {}}, Who::all, std::move(name), nullptr, std::nullopt},
         body_of_loop, body);
}

void Builder::tiles(const Body& body) {
  nested({Loop{Loop::Kind::tiles, {}, {}}, Who::all, "tiles", nullptr, std::nullopt}, body_of_loop, body);
}

void Builder::forever(const Body& body) {
  nested({Loop{Loop::Kind::forever, {}, {}}, Who::all, "tiles", nullptr, std::nullopt}, body_of_loop, body);
}

void Builder::guard(Guard::Kind kind, std::string name, const Body& body) {
  nested({Guard{kind, {}}, Who::all, std::move(name), nullptr, std::nullopt}, body_of_guard, body);
}

void Builder::only(Who who, const Body& body) {
  nested({Guard{Guard::Kind::chosen, {}}, who, "", nullptr, std::nullopt}, body_of_guard, body);
}

void Builder::operation(std::string name, std::vector<Access> accesses, Who who) {
  emit(Operation{std::move(accesses)}, who, std::move(name));
}

void Builder::gemm(const std::string& name, std::vector<Access> accesses) {
  emit(GemmFence{}, Who::all, name);
  emit(Gemm{std::move(accesses)}, Who::all, name);
  emit(GemmCommit{}, Who::all, name);
}

}  // namespace tegula::schedule
