#include "fuzz/run.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "fuzz/coverage.hpp"
#include "fuzz/edit.hpp"
#include "fuzz/shrink.hpp"
#include "runtime/execution/children.hpp"
#include "runtime/execution/host_compiler.hpp"
#include "tegula/error.hpp"

namespace tegula::fuzz {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

Json json_of(const Verdict& verdict) {
  Json result{{"discarded", verdict.discarded}, {"reason", verdict.reason}};
  if (verdict.failure) result["failure"] = {verdict.failure->executor, verdict.failure->message};
  return result;
}

Verdict verdict_of(const Json& json) {
  Verdict result{json.at("discarded"), json.at("reason"), std::nullopt};
  if (json.contains("failure")) result.failure = Failure{json["failure"][0], json["failure"][1]};
  return result;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

std::string check_batch(std::uint64_t seed, int count, std::span<const Executor> executors) {
  std::vector<Program> programs;
  for (int i = 0; i < count; ++i) programs.push_back(generate(seed + static_cast<std::uint64_t>(i)));
  const std::vector<Verdict> verdicts = check(programs, executors);
  Json list = Json::array();
  std::map<std::string, std::int64_t> covered;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    list.push_back(json_of(verdicts[i]));
    if (!verdicts[i].discarded) add_coverage(*programs[i].kernel, covered);
  }
  return dump({{"verdicts", list}, {"coverage", covered}});
}

// Compiled programs are of no use to anybody later. A compiler that optimises less than the CPU target asks
// for stands here too.
class TemporaryCache {
 public:
  explicit TemporaryCache(int optimise) {
    std::string path = std::filesystem::temp_directory_path() / "tegula-fuzz-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) throw DeviceError("a temporary directory cannot be made");
    path_ = path;
    setenv("TEGULA_CACHE_DIR", path_.c_str(), 1);
    const auto compiler = HostCompiler::find();
    if (optimise == 2 || !compiler) return;
    const std::string wrapper = path_ / "c++";
    std::ofstream(wrapper) << fmt::format("#!/bin/sh\nexec '{}' \"$@\" -O{}\n", compiler->path(), optimise);
    std::filesystem::permissions(wrapper, std::filesystem::perms::owner_all);
    setenv("TEGULA_CXX", wrapper.c_str(), 1);
  }
  ~TemporaryCache() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryCache(const TemporaryCache&) = delete;

 private:
  std::filesystem::path path_;
};

class Run {
 public:
  Run(const RunOptions& options, std::span<const Executor> executors)
      : options_(options), executors_(executors), begin_(Clock::now()), cache_(options.optimise) {}

  Summary operator()() {
    const auto batches = static_cast<std::size_t>((options_.count + options_.batch - 1) / options_.batch);
    run_children(
        batches, options_.jobs, options_.timeout,
        [&](std::size_t i) { return check_batch(first(i), size(i), executors_); },
        [&](std::size_t i, const ChildResult& result) { collect(i, result); }, [&] { return goes_on(); });
    return std::move(summary_);
  }

 private:
  std::uint64_t first(std::size_t batch) const {
    return options_.seed + batch * static_cast<std::uint64_t>(options_.batch);
  }
  int size(std::size_t batch) const {
    return std::min(options_.batch, options_.count - static_cast<int>(batch) * options_.batch);
  }
  bool goes_on() const {
    const std::chrono::duration<double> passed = Clock::now() - begin_;
    return passed.count() < options_.seconds &&
           static_cast<int>(summary_.failures.size()) < options_.most_failures;
  }

  void collect(std::size_t batch, const ChildResult& result) {
    if (!result.end.empty()) return search(batch);
    const Json json = Json::parse(result.output);
    std::uint64_t seed = first(batch);
    for (const Json& verdict : json.at("verdicts")) judge(seed++, verdict_of(verdict));
    for (const auto& [name, count] : json.at("coverage").items())
      summary_.coverage[name] += count.get<std::int64_t>();
  }

  // One of the programs ends the process: each alone.
  void search(std::size_t batch) {
    for (int i = 0; i < size(batch) && goes_on(); ++i) {
      const std::uint64_t seed = first(batch) + static_cast<std::uint64_t>(i);
      judge(seed, check_alone(generate(seed), executors_, options_.program_timeout));
    }
  }

  void judge(std::uint64_t seed, const Verdict& verdict) {
    ++summary_.programs;
    if (verdict.discarded) {
      ++summary_.discarded;
      ++summary_.reasons[std::regex_replace(verdict.reason, std::regex("[a-z]*[0-9]+|\\[.*\\]|-"), "")];
    }
    if (!verdict.failure || static_cast<int>(summary_.failures.size()) >= options_.most_failures) return;
    Program program = generate(seed);
    Failure failure = *verdict.failure;
    fmt::print(stderr, "fuzz: seed {}: {}: {}\n", seed, failure.executor, failure.message);
    if (options_.shrink) program = shrink(program, &failure, executors_, options_.program_timeout);
    summary_.failures.push_back({seed, failure, print(program), count_statements(*program.kernel)});
  }

  const RunOptions& options_;
  std::span<const Executor> executors_;
  Clock::time_point begin_;
  TemporaryCache cache_;
  Summary summary_;
};

}  // namespace

Summary run(const RunOptions& options, std::span<const Executor> executors) {
  return Run(options, executors)();
}

std::vector<Verdict> check_together(std::span<const Program> programs, std::span<const Executor> executors,
                                    std::chrono::seconds timeout) {
  const ChildResult result = run_child(timeout, [&] {
    Json list = Json::array();
    for (const Verdict& verdict : check(programs, executors)) list.push_back(json_of(verdict));
    return dump(list);
  });
  std::vector<Verdict> verdicts;
  if (!result.end.empty()) return verdicts;
  for (const Json& json : Json::parse(result.output)) verdicts.push_back(verdict_of(json));
  return verdicts;
}

Verdict check_alone(const Program& program, std::span<const Executor> executors,
                    std::chrono::seconds timeout) {
  const ChildResult result =
      run_child(timeout, [&] { return dump(json_of(check(std::span(&program, 1), executors)[0])); });
  if (result.end.empty()) return verdict_of(Json::parse(result.output));
  Verdict verdict;
  verdict.failure = Failure{"process", "the process ended by " + result.end};
  return verdict;
}

std::string Summary::text() const {
  std::string text = fmt::format("{} programs, {} discarded ({:.1f} %), {} failed\n", programs, discarded,
                                 programs == 0 ? 0.0 : 100.0 * discarded / programs, failures.size());
  for (const auto& [reason, count] : reasons) text += fmt::format("  discarded {}: {}\n", count, reason);
  text += coverage_text(coverage);
  for (const Report& report : failures) {
    text += fmt::format("\nseed {} fails on {}: {}\nreduced to\n{}\n", report.seed, report.failure.executor,
                        report.failure.message, report.program);
  }
  return text;
}

}  // namespace tegula::fuzz
