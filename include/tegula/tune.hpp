// Finds the fastest of several kernels for the same call.
//
//   const Tuned best = tune([](const Tiles& t) { return gemm_relu(t.rows, t.columns, t.depth); },
//                           tiles_of_product(4096, 4096, 4096, bf16, machine("h100")), {a, b, c});
//   std::puts(best.text().c_str());
//   best.best().candidate                                            its index among the candidates
//
// Candidates are compiled in parallel, checked, and measured one after another, each in a child process. A
// candidate that is refused, is wrong, crashes or does not end becomes a row of the table, and the search
// goes on. If this process has already used CUDA, however, its children cannot; then a candidate that does
// not end on the GPU ends the search, and the next search skips it. To avoid this, tune before any other use
// of CUDA, with arguments on the host. The fastest candidate is stored in the kernel cache.
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

// Tile parameters of a program; those that do not apply are 0.
struct Tiles {
  int rows = 0, columns = 0, depth = 0, threads = 0;
  double predicted = 0;  // seconds of the call, predicted from the rates of the machine

  std::string text() const;  // 128x256x64
};

// Tiles that fit the machine's shared memory and registers, the fastest first according to the model.
std::vector<Tiles> tiles_of_product(std::int64_t m, std::int64_t n, std::int64_t k, DType type,
                                    const Machine& machine);
// Rows are queries, columns are keys.
std::vector<Tiles> tiles_of_attention(std::int64_t queries, std::int64_t keys, std::int64_t features,
                                      DType type, const Machine& machine);
// For a reduction of each row, which a tile contains as a whole or processes in steps.
std::vector<Tiles> tiles_of_reduction(std::int64_t rows, std::int64_t columns, DType type,
                                      const Machine& machine);
std::vector<Tiles> tiles_of_elements(std::int64_t count, DType type, const Machine& machine);

struct TuneOptions {
  std::string name = {};  // in the cache; default: the name of the first kernel
  Target target = Target::automatic();
  double seconds = 60;      // per candidate, not counting compilation, after which it is abandoned
  int jobs = 0;             // candidates compiled in parallel; 0: one per processor
  double tolerance = 1e-2;  // of results, absolute and relative
  bool checks = true;
  // Writes the correct results to the outputs among copies of the arguments; default: the interpreter runs
  // the first candidate.
  std::function<void(std::span<const Argument> args)> expected = {};
  bool cached = true;
  TimeOptions time = {};
  std::function<void(const std::string& stage, double share)> progress =
      {};  // default: a progress bar on a terminal
};

struct Tuned {
  struct Row {
    std::size_t candidate = 0;  // its index
    std::string text;
    double seconds = 0, spread = 0;
    std::string failure = {};  // why it is excluded
  };
  std::vector<Row> rows;    // the fastest first, excluded ones last
  bool from_cache = false;  // if so, there is only the row of the best candidate

  // Throws an Error that lists all failures if every candidate is excluded.
  const Row& best() const;
  std::string text() const;  // a table
  std::string svg() const;   // a bar chart
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

// Writes the best candidates found on this machine to a file that can be shipped, and adds the entries of
// such a file, including those of other devices. Both return the number of entries.
std::size_t export_tuned(const std::string& path);
std::size_t import_tuned(const std::string& path);

}  // namespace tegula
TEGULA_API_END
