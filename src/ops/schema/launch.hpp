// Runs tile programs on a checked call, or lists them. Parameters of a program are matched by name: tensors
// of the table, its dims, derived values and options, and values that the operator provides instead.
#pragma once
#include <array>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>

#include "ops/pieces/plan_choices.hpp"
#include "ops/schema/bound.hpp"
#include "ops/schema/instance.hpp"

namespace tegula::ops {

struct NamedValue {
  std::string_view name;
  Argument value;
};

// A compiled program and where its parameters come from.
struct LaunchedProgram {
  struct Source {
    enum class Kind : std::uint8_t { given, tensor, number, option } kind = Kind::given;
    std::size_t index = 0;  // of the tensor, the position or the option
    std::string name;
  };
  Function function;
  std::vector<Source> sources;

  LaunchedProgram(const lang::Kernel& kernel, Target target, const OperatorSchema& schema);
};

class Launch {
 public:
  enum class Mode { run, list };

  Launch(const BoundCall& call, Mode mode) : call_(call), mode_(mode), plan_(call.schema().name) {}

  template <class Instance>
  void operator()(const Instance& instance, lang::Kernel (*program)(const Instance&),
                  std::initializer_list<NamedValue> values = {}) {
    if (mode_ == Mode::list) return list(program(instance));
    run(compiled(instance, program), values);
  }

  // A tensor for the time of the call, of undefined elements; without memory where nothing runs.
  Tensor scratch(const Shape& shape, DType type);
  bool runs() const { return mode_ == Mode::run; }
  // A tensor for all later programs that have a parameter of this name and are given none.
  void share(std::string_view name, Tensor tensor) { shared_.emplace_back(name, std::move(tensor)); }
  bool shares(std::string_view name) const { return shared(name) != nullptr; }
  const BoundCall& call() const { return call_; }
  // Those that were launched, each once.
  const std::vector<lang::Kernel>& kernels() const { return kernels_; }
  // Says why the plan takes a slower way, and what would be faster. `words` is called where programs are only
  // listed.
  template <class Words>
  void note(const Words& words) {
    if (mode_ == Mode::list) notes_.push_back(words());
  }
  const std::vector<std::string>& notes() const { return notes_; }
  // Programs get a copy of this tensor of the call, one row behind the other.
  void note_moved(std::string_view name) {
    if (mode_ == Mode::list) moved_.emplace_back(name);
  }
  const std::vector<std::string>& moved() const { return moved_; }

 private:
  template <class Instance>
  const LaunchedProgram& compiled(const Instance& instance, lang::Kernel (*program)(const Instance&)) {
    // The key contains the operator, because its table determines where the parameters come from.
    using Key = std::tuple<InstanceKey<Instance>, lang::Kernel (*)(const Instance&), const OperatorSchema*,
                           Target::Kind>;
    // Never destroyed: threads may still call while the process ends.
    static auto& mutex = *new std::mutex;
    static auto& programs = *new std::map<Key, std::unique_ptr<const LaunchedProgram>>;
    const Key key{key_of(instance), program, &call_.schema(), call_.target().kind()};
    {
      const std::lock_guard lock(mutex);
      const auto found = programs.find(key);
      if (found != programs.end()) return *found->second;
    }
    // Compiled without the lock, so that different kernels compile at the same time.
    auto made = std::make_unique<const LaunchedProgram>(program(instance), call_.target(), call_.schema());
    const std::lock_guard lock(mutex);
    return *programs.emplace(key, std::move(made)).first->second;
  }
  void run(const LaunchedProgram& program, std::initializer_list<NamedValue> values) const;
  void list(const lang::Kernel& kernel);
  const Tensor* shared(std::string_view name) const;

  const BoundCall& call_;
  Mode mode_;
  PlanScope plan_;
  std::vector<std::pair<std::string, Tensor>> shared_;
  std::vector<lang::Kernel> kernels_;
  std::vector<std::string> notes_, moved_;
};

}  // namespace tegula::ops
