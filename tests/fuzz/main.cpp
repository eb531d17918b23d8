// Random programs on all executors: `fuzz --seed 7 --count 1 --print` repeats the one that failed.
#include <cstdio>

#include "fuzz/run.hpp"
#include "tegula/error.hpp"
#include "tools/cli/cli.hpp"

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

int fuzz(const RunOptions& options, const std::vector<std::string>& names, bool print_programs) {
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

}  // namespace

int main(int argc, char** argv) {
  RunOptions options;
  std::vector<std::string> names;
  bool print_programs = false, keep = false;
  tegula::cli::Command app("fuzz", "Random tile programs: every executor must agree with the interpreter");
  app.add_option("--seed", options.seed, "of the first program")->environment("TEGULA_FUZZ_SEED");
  app.add_option("--count", options.count, "programs")->environment("TEGULA_FUZZ_COUNT");
  app.add_option("--batch", options.batch, "programs in one compilation")->check(tegula::cli::Range(1, 1000));
  app.add_option("--jobs", options.jobs, "processes at a time")->check(tegula::cli::Range(1, 256));
  app.add_option("--seconds", options.seconds, "no more programs are begun after this time");
  app.add_option("--failures", options.most_failures, "ends after so many");
  app.add_option("--optimise", options.optimise, "level for the host's compiler, in place of 2")
      ->check(tegula::cli::Range(0, 2));
  app.add_option("--executor", names,
                 "compare these only, also emulated, emulated_sm90, cuda, cuda_sm80; interpreter, passes and "
                 "cpu if none is given");
  app.add_flag("--print", print_programs, "write the programs");
  app.add_flag("--keep", keep, "do not reduce programs that fail");
  int status = 0;
  app.callback([&] {
    options.shrink = !keep;
    status = fuzz(options, names, print_programs);
  });
  try {
    app.run({argv + 1, argv + argc});
  } catch (const tegula::ArgumentError& error) {
    std::fprintf(stderr, "fuzz: %s\n", error.what());
    return 2;
  }
  return status;
}
