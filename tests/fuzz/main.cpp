// Random programs on all executors: `fuzz --seed 7 --count 1 --print` repeats the one that failed.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "fuzz/run.hpp"

namespace {

using namespace tegula::fuzz;

std::vector<Executor> chosen(const std::vector<std::string>& names) {
  std::vector<Executor> result;
  const auto is_named = [&](const Executor& executor) {
    return std::find(names.begin(), names.end(), executor.name) != names.end();
  };
  for (const Executor& executor : executors()) {
    if (result.empty() || names.empty() || is_named(executor)) result.push_back(executor);
  }
  for (const Executor& executor : more_executors()) {
    if (is_named(executor)) result.push_back(executor);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  RunOptions options;
  std::vector<std::string> names;
  bool print_programs = false, keep = false;
  CLI::App app("Random tile programs: every executor must agree with the interpreter");
  app.add_option("--seed", options.seed, "of the first program")->envname("TEGULA_FUZZ_SEED");
  app.add_option("--count", options.count, "programs")->envname("TEGULA_FUZZ_COUNT");
  app.add_option("--batch", options.batch, "programs in one compilation")->check(CLI::Range(1, 1000));
  app.add_option("--jobs", options.jobs, "processes at a time")->check(CLI::Range(1, 256));
  app.add_option("--seconds", options.seconds, "no more programs are begun after this time");
  app.add_option("--failures", options.most_failures, "ends after so many");
  app.add_option("--optimise", options.optimise, "level for the host's compiler, in place of 2")
      ->check(CLI::Range(0, 2));
  app.add_option("--executor", names,
                 "compare these only, also emulated, emulated_sm90, cuda, cuda_sm80; interpreter, passes and "
                 "cpu if none is given");
  app.add_flag("--print", print_programs, "write the programs");
  app.add_flag("--keep", keep, "do not reduce programs that fail");
  CLI11_PARSE(app, argc, argv);
  options.shrink = !keep;
  if (print_programs) {
    for (int i = 0; i < options.count; ++i)
      std::puts(print(generate(options.seed + static_cast<std::uint64_t>(i))).c_str());
  }
  const Summary summary = run(options, chosen(names));
  std::printf(
      "seeds %llu to %llu: %s", static_cast<unsigned long long>(options.seed),
      static_cast<unsigned long long>(options.seed) + static_cast<unsigned long long>(options.count) - 1,
      summary.text().c_str());
  return summary.failures.empty() ? 0 : 1;
}
