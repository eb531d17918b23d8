#include "passes/cuda/passing_tensors.hpp"

#include <algorithm>
#include <unordered_map>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/places_in_block.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

using Variables = std::unordered_set<const Variable*>;

bool depends(const Expr& e, const Variables& on) {
  bool found = false;
  for_each_variable(e, [&](const VariablePtr& v) { found |= on.contains(v.get()); });
  return found;
}

bool depends(const Access& access, const Variables& on) {
  for (const Expr& e : coordinates(access))
    if (depends(e, on)) return true;
  return false;
}

// Those and what is computed from them, or read at places that they decide.
Variables with_results(Variables on, const Body& body) {
  for (std::size_t known = 0; known != on.size();) {
    known = on.size();
    for_each_stmt(body, [&](const Stmt& s) {
      bool found = false;
      for_each_expr(s, [&](const Expr& e) { found |= depends(e, on); });
      if (found) for_each_definition(s, [&](const VariablePtr& v) { on.insert(v.get()); });
    });
  }
  return on;
}

bool is_loop_of_steps(const For& loop) {
  return loop.kind == LoopKind::serial || loop.kind == LoopKind::pipelined;
}

// What the steps of a loop read of a tensor.
struct Reads {
  std::vector<PlacesInBlock> places;
  std::vector<bool> of_index;  // whether they depend on these indices of the block
};

// Whether each statement reads places of its own.
bool are_apart(const Reads& reads) {
  for (std::size_t i = 0; i < reads.places.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (!are_apart(reads.places[i], reads.places[j])) return false;
  return true;
}

class Passing {
 public:
  explicit Passing(const Grid& grid) : grid_(grid) {
    for (const VariablePtr& index : grid.index) of_index_.push_back(with_results({index.get()}, grid.body));
    for_each_stmt(grid.body, [&](const Stmt& s) {
      for (const Region& r : effects(s).regions)
        if (!r.view->is_tile()) ++touched_[r.view->buffer.get()];
    });
  }

  Buffers find() {
    for_each_stmt(grid_.body, [&](const Stmt& s) {
      const auto* loop = as<For>(s);
      if (loop && is_loop_of_steps(*loop)) add(read_by(*loop));
    });
    return result_;
  }

 private:
  using ReadsOfTensors = std::unordered_map<const Buffer*, Reads>;

  ReadsOfTensors read_by(const For& loop) const {
    const Variables of_step = with_results({loop.index[0].get()}, loop.body);
    ReadsOfTensors result;
    for_each_stmt(loop.body, [&](const Stmt& s) {
      const auto* load = as<Load>(s);
      if (!load || load->from.view.is_tile() || !depends(load->from, of_step)) return;
      Reads& own = result[load->from.view.buffer.get()];
      own.places.push_back(places_in_block(load->from.view, &load->from.index, grid_.index));
      own.of_index.resize(of_index_.size());
      for (std::size_t i = 0; i < of_index_.size(); ++i)
        own.of_index[i] = own.of_index[i] || depends(load->from, of_index_[i]);
    });
    return result;
  }

  void add(const ReadsOfTensors& reads) {
    const auto shares_with = [&](const Reads& own) {
      return std::any_of(reads.begin(), reads.end(), [&](const auto& other) {
        for (std::size_t i = 0; i < own.of_index.size(); ++i)
          if (own.of_index[i] && !other.second.of_index[i]) return true;
        return false;
      });
    };
    for (const auto& [tensor, own] : reads)
      if (touched_.at(tensor) == static_cast<int>(own.places.size()) && are_apart(own) && shares_with(own))
        result_.insert(tensor);
  }

  const Grid& grid_;
  std::vector<Variables> of_index_;                 // what each index of the block decides
  std::unordered_map<const Buffer*, int> touched_;  // by how many statements
  Buffers result_;
};

}  // namespace

Buffers passing_tensors(const Grid& grid) { return Passing(grid).find(); }

}  // namespace tegula::passes
