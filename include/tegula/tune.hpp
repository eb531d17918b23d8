// The fastest of several kernels for the same call.
//
//   const Tuned best = tune([](const Tiles& t) { return gemm_relu(t.rows, t.columns, t.depth); },
//                           tiles_of_product(4096, 4096, 4096, bf16, machine("h100")), {a, b, c});
//   std::puts(best.text().c_str());
//   best.best().candidate                                            its number among them
//
// Candidates are compiled in parallel, checked, and measured one after the other. A candidate that is refused,
// wrong, crashes or does not end is a row of the table, and the search goes on: each runs in a child process.
// Only where this process has used CUDA already can children not use it; then a candidate that does not end
// on the GPU ends the search, and the next search skips it. To avoid that, tune before the first other use of
// CUDA, with arguments on the host. The fastest is kept in the cache of kernels.
#pragma once
#include <array>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tegula/analyze.hpp"
#include "tegula/runtime.hpp"
#include "tegula/time.hpp"

TEGULA_API_BEGIN
namespace tegula {

// What programs of tiles are made of; those that a program has not are 0.
struct Tiles {
  int rows = 0, columns = 0, depth = 0, threads = 0;
  double predicted = 0;  // seconds of the call, by the rates of the machine

  std::string text() const;  // 128x256x64
};

// Tiles worth a try, by the model the fastest first: those that fit the machine's shared memory and
// registers.
std::vector<Tiles> tiles_of_product(std::int64_t m, std::int64_t n, std::int64_t k, DType type,
                                    const Machine& machine);
// Rows of queries and columns of keys.
std::vector<Tiles> tiles_of_attention(std::int64_t queries, std::int64_t keys, std::int64_t features,
                                      DType type, const Machine& machine);
// A reduction of each row, which a tile has as a whole or in steps.
std::vector<Tiles> tiles_of_reduction(std::int64_t rows, std::int64_t columns, DType type,
                                      const Machine& machine);
std::vector<Tiles> tiles_of_elements(std::int64_t count, DType type, const Machine& machine);

struct TuneOptions {
  std::string name = {};  // in the cache; the first kernel's unless given
  Target target = Target::automatic();
  double seconds = 60;      // of one candidate, compiling apart, after which it is given up
  int jobs = 0;             // candidates that compile side by side; 0: as many as there are processors
  double tolerance = 1e-2;  // of results, absolute and relative
  bool checks = true;
  // Writes what is right to the outputs among copies of the arguments; unless given, the interpreter does,
  // with the first candidate.
  std::function<void(std::span<const Argument> args)> expected = {};
  bool cached = true;
  TimeOptions time = {};
  std::function<void(const std::string& stage, double share)> progress =
      {};  // unless given, a bar on a terminal
};

struct Tuned {
  struct Row {
    std::size_t candidate = 0;  // its number
    std::string text;
    double seconds = 0, spread = 0;
    std::string failure;  // why it does not count
  };
  std::vector<Row> rows;    // the fastest first, those that do not count last
  bool from_cache = false;  // then there is one row, that of the best

  // An Error with all failures if no candidate counts.
  const Row& best() const;
  std::string text() const;  // a table
  std::string svg() const;   // bars
};

struct Candidate {
  std::string text;
  std::function<lang::Kernel()> kernel;
};
Tuned tune_candidates(std::span<const Candidate> candidates, std::span<const Argument> args,
                      const TuneOptions& options = {});

namespace detail {
template <class T>
std::string candidate_text(const T& candidate) {
  if constexpr (requires { candidate.text(); })
    return candidate.text();
  else if constexpr (std::is_arithmetic_v<T>)
    return std::to_string(candidate);
  else {
    std::string text;
    for (const auto& part : candidate) text += (text.empty() ? "" : " ") + candidate_text(part);
    return text;
  }
}
}  // namespace detail

// Candidates are numbers, arrays of numbers, Tiles, or anything else with text().
template <class Make, class C>
Tuned tune(const Make& kernel_of, const std::vector<C>& candidates, const std::vector<Argument>& args,
           const TuneOptions& options = {}) {
  std::vector<Candidate> all;
  for (const C& own : candidates)
    all.push_back({detail::candidate_text(own), [&kernel_of, &own] { return kernel_of(own); }});
  return tune_candidates(all, args, options);
}

// What was found best on this machine, as a file that can be shipped; and such a file taken over, of which
// entries of other devices are kept too. How many entries it has.
std::size_t export_tuned(const std::string& path);
std::size_t import_tuned(const std::string& path);

}  // namespace tegula
TEGULA_API_END
