#include "fuzz/shrink.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fuzz/edit.hpp"
#include "fuzz/run.hpp"
#include "ir/visit.hpp"
#include "reduce/reduction.hpp"
#include "runtime/execution/children.hpp"

namespace tegula::fuzz {
namespace {

using namespace ir;
using Clock = std::chrono::steady_clock;

constexpr std::size_t batch = 12;  // candidates in one child and one compilation
constexpr auto patience = std::chrono::seconds(90);

bool is_well_formed(const Program& program) {
  try {
    return reduce_kernels::is_well_formed(*program.kernel) && broken_contract(program).empty();
  } catch (const std::exception&) { return false; }
}

class Shrinker {
 public:
  Shrinker(const Program& program, const Failure& failure, std::span<const Executor> all,
           std::chrono::seconds timeout)
      : best_(program), failure_(failure), timeout_(timeout), end_(Clock::now() + patience) {
    for (const Executor& executor : all) {
      if (executors_.empty() || executor.name == failure.executor || failure.executor == "process")
        executors_.push_back(executor);
    }
  }

  Program run() {
    while (kernel() | extents() | layouts()) {}
    return best_;
  }
  const Failure& failure() const { return failure_; }

 private:
  using Candidates = std::vector<Program>;

  void add(Candidates& list, Program candidate) {
    if (!is_well_formed(candidate)) return;
    Kernel kernel = *candidate.kernel;
    kernel.name = fmt::format("fuzz_{}_{}", candidate.seed, number_++);  // kernels of one object
    list.push_back(with_kernel(candidate, std::move(kernel)));
  }

  // Takes the first candidate that still fails.
  std::optional<std::size_t> take(const Candidates& all) {
    for (std::size_t at = 0; at < all.size() && Clock::now() < end_; at += batch) {
      const std::span<const Program> some(all.data() + at, std::min(batch, all.size() - at));
      if (const auto taken = take_one_of(some)) return at + *taken;
    }
    return std::nullopt;
  }
  std::optional<std::size_t> take_one_of(std::span<const Program> some) {
    std::vector<Verdict> verdicts;
    if (failure_.executor != "process") verdicts = check_together(some, executors_, timeout_);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const Verdict verdict = verdicts.empty() ? check_alone(some[i], executors_, timeout_) : verdicts[i];
      if (verdict.discarded || !verdict.failure || verdict.failure->executor != failure_.executor) continue;
      best_ = some[i];
      failure_ = *verdict.failure;
      return i;
    }
    return std::nullopt;
  }

  // By the steps that the library has for users.
  bool kernel() {
    Kernel kernel = *best_.kernel;
    return reduce_kernels::reduce_once(kernel,
                                       [&](std::span<const Kernel> all) -> std::optional<std::size_t> {
                                         Candidates list;
                                         std::vector<std::size_t> numbers;
                                         for (std::size_t i = 0; i < all.size(); ++i) {
                                           const std::size_t before = list.size();
                                           add(list, with_kernel(best_, all[i]));
                                           if (list.size() > before) numbers.push_back(i);
                                         }
                                         const auto taken = take(list);
                                         return taken ? std::optional(numbers[*taken]) : std::nullopt;
                                       });
  }

  bool extents() {
    bool any = false;
    for (bool again = true; again;) {
      Candidates list;
      for (const std::int64_t from : extents_of(best_)) {
        for (const std::int64_t to : {std::int64_t{1}, from / 2, from - 1}) {
          if (to >= 1 && to < from) add(list, with_extent(best_, from, to));
        }
      }
      any |= again = take(list).has_value();
    }
    return any;
  }

  // Dense arguments.
  bool layouts() {
    if (std::none_of(best_.arguments.begin(), best_.arguments.end(),
                     [](const Given& g) { return g.layout != 0; }))
      return false;
    Candidates list;
    add(list, with_extent(best_, -1, -1));
    return take(list).has_value();
  }

  Program best_;
  Failure failure_;
  std::vector<Executor> executors_;
  std::chrono::seconds timeout_;
  Clock::time_point end_;
  int number_ = 0;
};

}  // namespace

Program shrink(const Program& program, Failure* failure, std::span<const Executor> executors,
               std::chrono::seconds timeout) {
  if (failure->executor == "contract") return program;
  Shrinker shrinker(program, *failure, executors, timeout);
  Program result = shrinker.run();
  *failure = shrinker.failure();
  return result;
}

}  // namespace tegula::fuzz
