// bench_programs: the programs of tests/programs at sizes of practice on a GPU, one line a case.
//
//   bench_programs [--filter WORD]… [--json FILE] [--beside FILE] [--limit S] [--deadline S] [--list |
//   --compile]
//
// --filter: cases whose name has one of the words. --json: all that was found. --beside: an earlier such
// file, whose times stand beside these. --limit: seconds of a case; --deadline: of all, after which no case
// begins.
// --list: only names. --compile: only what the compilers say, which needs NVRTC and no GPU.
// Exit status 1 if a case failed or its results are wrong.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "children.hpp"
#include "time_case.hpp"

namespace programs {
namespace {

using Json = nlohmann::json;

struct Options {
  std::vector<std::string> filters;
  std::string json, beside;
  double limit_s = 20, deadline_s = 600;
  bool list = false, compile = false;
};

[[noreturn]] void explain() {
  std::fputs(
      "usage: bench_programs [--filter WORD]... [--json FILE] [--beside FILE] [--limit S] [--deadline S] "
      "[--list | --compile]\n",
      stderr);
  std::exit(2);
}

Options options_of(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto value = [&]() -> std::string {
      if (++i == count) explain();
      return words[i];
    };
    if (word == "--filter")
      options.filters.push_back(value());
    else if (word == "--json")
      options.json = value();
    else if (word == "--beside")
      options.beside = value();
    else if (word == "--limit")
      options.limit_s = std::atof(value().c_str());
    else if (word == "--deadline")
      options.deadline_s = std::atof(value().c_str());
    else if (word == "--list")
      options.list = true;
    else if (word == "--compile")
      options.compile = true;
    else
      explain();
  }
  return options;
}

std::vector<TimedCase> chosen_cases(const Options& options) {
  std::vector<TimedCase> cases;
  for (TimedCase& own : timed_cases()) {
    const std::string name = own.name();
    const auto has = [&](const std::string& word) { return name.find(word) != std::string::npos; };
    if (options.filters.empty() || std::ranges::any_of(options.filters, has)) cases.push_back(std::move(own));
  }
  return cases;
}

// What was found about all cases so far.
class Findings {
 public:
  Findings(const Options& options, const std::vector<TimedCase>& cases)
      : options_(options), cases_(cases), rows_(cases.size()) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Timing& timing = cases[i].timing;
      rows_[i] = {{"name", cases[i].name()},
                  {"program", timing.program},
                  {"form", cases[i].form.name},
                  {"shape", timing.shape}};
    }
    if (options.beside.empty()) return;
    std::ifstream file(options.beside);
    for (const Json& row : Json::parse(file).at("cases"))
      if (row.contains("ms")) before_[row["name"].get<std::string>()] = row["ms"];
  }

  void copied(const Json& result) {
    if (result.contains("ms"))
      copy_rate_ = 2 * double(std::int64_t{1} << 30) / result["ms"].get<double>() / 1e9;
    std::printf("driver's copy of 1 GiB: %s\n",
                copy_rate_ > 0 ? fmt::format("{:.2f} TB/s", copy_rate_).c_str() : result.dump().c_str());
  }
  void compiled(int item, const Json& result) { rows_[item].update(result); }
  void timed(int item, const Json& result) {
    Json& row = rows_[item];
    row.update(result);
    if (row.contains("samples")) compare(item);
    if (row.contains("ms")) rate(item);
    print(row);
  }
  void print(const Json& row) const {
    std::printf("%s\n", line_of(row).c_str());
    std::fflush(stdout);
  }
  const std::vector<Json>& rows() const { return rows_; }

  bool write() {
    Json all{{"copy_tb_per_s", copy_rate_}, {"cases", Json::array()}};
    for (Json row : rows_) {
      row.erase("samples");
      all["cases"].push_back(row);
    }
    return options_.json.empty() || static_cast<bool>((std::ofstream(options_.json) << all.dump(1)).flush());
  }
  bool all_right() const {
    return std::ranges::none_of(
        rows_, [](const Json& row) { return row.contains("failure") || row.contains("wrong"); });
  }

 private:
  // With the first form that was given the same.
  void compare(int item) {
    Json& row = rows_[item];
    if (!cases_[item].timing.forms_agree) return;
    for (int first = 0; first < item; ++first) {
      const Json& other = rows_[first];
      if (other["program"] != row["program"] || other["shape"] != row["shape"] || !other.contains("samples"))
        continue;
      for (const auto& [name, samples] : row["samples"].items()) {
        if (!other["samples"].contains(name) || other["samples"][name].size() != samples.size()) continue;
        const double difference = difference_of(samples, other["samples"][name]);
        row["difference"] = std::max(row.value("difference", 0.0), difference);
        if (!(difference < 0.1))
          row["wrong"] = fmt::format("{} is not that of '{}'", name, other["form"].get<std::string>());
      }
      return;
    }
  }
  // The largest, relative to the own magnitude or the mean one.
  static double difference_of(const Json& a, const Json& b) {
    double worst = 0, mean = 0;
    std::vector<std::pair<double, double>> both;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].is_null() || b[i].is_null()) {
        if (a[i] != b[i]) return INFINITY;
        continue;
      }
      both.emplace_back(a[i].get<double>(), b[i].get<double>());
      mean += std::abs(both.back().second) / static_cast<double>(a.size());
    }
    for (const auto& [x, y] : both) {
      if (x != y) worst = std::max(worst, std::abs(x - y) / std::max({std::abs(y), mean, 1e-30}));
    }
    return worst;
  }
  void rate(int item) {
    Json& row = rows_[item];
    const Timing& timing = cases_[item].timing;
    const bool bytes = timing.unit == Timing::Unit::bytes;
    row["rate"] = timing.work / row["ms"].get<double>() / 1e9;
    row["unit"] = bytes ? "TB/s" : "TFLOPS";
    if (bytes && copy_rate_ > 0) row["of_copy"] = row["rate"].get<double>() / copy_rate_;
    if (const auto before = before_.find(row["name"].get<std::string>()); before != before_.end())
      row["before_ms"] = before->second;
  }
  // The grid with the most threads × registers, followed by what spills.
  static std::string grids_of(const Json& row) {
    std::string text;
    for (const Json& grid : row.value("grids", Json::array())) {
      text += fmt::format("{}{}x{}", text.empty() ? "" : " + ", grid["threads"].get<int>(),
                          grid.value("registers", 0));
      if (const int spilled = grid.value("spill_bytes", 0)) text += fmt::format(" spills {}", spilled);
    }
    return text;
  }
  std::string line_of(const Json& row) const {
    std::string text = row["name"].get<std::string>() + " | ";
    if (row.contains("failure")) text += "FAILED: " + row["failure"].get<std::string>();
    if (row.contains("ms")) {
      text += fmt::format("{:.4f} ms | {:.4g} {}", row["ms"].get<double>(), row["rate"].get<double>(),
                          row["unit"].get<std::string>());
      if (row.contains("of_copy")) text += fmt::format(", {:.2f} of copy", row["of_copy"].get<double>());
      if (row.contains("before_ms"))
        text += fmt::format(" | before {:.4f} ms, x {:.2f}", row["before_ms"].get<double>(),
                            row["before_ms"].get<double>() / row["ms"].get<double>());
    }
    text += " | " + grids_of(row);
    if (row.contains("error"))
      text += fmt::format(" | error {:.1e}", row["error"].is_null() ? NAN : row["error"].get<double>());
    if (row.contains("difference"))
      text += fmt::format(" | forms differ {:.1e}",
                          row["difference"].is_null() ? INFINITY : row["difference"].get<double>());
    if (row.contains("wrong")) text += " | WRONG: " + row["wrong"].get<std::string>();
    return text;
  }

  const Options& options_;
  const std::vector<TimedCase>& cases_;
  std::vector<Json> rows_;
  std::map<std::string, double> before_;
  double copy_rate_ = 0;
};

double seconds() {
  static const auto begin = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Compiles everything, as many at a time as there are processors; fills the cache from which calls take it.
void compile_all(const Options& options, const std::vector<TimedCase>& cases, Findings& findings) {
  std::map<std::string, int> first;  // a form has one machine code for all its sizes
  std::vector<std::vector<int>> lists;
  std::map<int, std::vector<int>> same;
  for (int i = 0; i < static_cast<int>(cases.size()); ++i) {
    const auto [place, is_new] = first.try_emplace(cases[i].timing.program + "/" + cases[i].form.name, i);
    if (is_new) lists.push_back({i});
    same[place->second].push_back(i);
  }
  in_children(lists, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
              {[&](int i) { return compiled(cases[i]); },
               [&](int i, const Json& result) {
                 for (const int other : same[i]) findings.compiled(other, result);
                 if (options.compile) findings.print(findings.rows()[i]);
               },
               60});
  std::fprintf(stderr, "bench_programs: compiled after %.0f s\n", seconds());
}

void time_all(const Options& options, const std::vector<TimedCase>& cases, Findings& findings) {
  std::vector<int> items{-1};
  for (int i = 0; i < static_cast<int>(cases.size()); ++i) {
    if (findings.rows()[i].contains("failure"))
      findings.print(findings.rows()[i]);
    else
      items.push_back(i);
  }
  in_children({items}, 1,
              {[&](int i) {
                 if (i < 0) return timed_copy();
                 if (seconds() > options.deadline_s) return Json{{"failure", "no time was left"}};
                 return timed(cases[i]);
               },
               [&](int i, const Json& result) {
                 if (i < 0)
                   findings.copied(result);
                 else
                   findings.timed(i, result);
               },
               options.limit_s});
  std::fprintf(stderr, "bench_programs: done after %.0f s\n", seconds());
}

}  // namespace
}  // namespace programs

int main(int argc, char** argv) {
  using namespace programs;
  seconds();
  const Options options = options_of(argc, argv);
  const std::vector<TimedCase> cases = chosen_cases(options);
  if (options.list) {
    for (const TimedCase& own : cases) std::printf("%s\n", own.name().c_str());
    return 0;
  }
  Findings findings(options, cases);
  compile_all(options, cases, findings);
  if (!options.compile) time_all(options, cases, findings);
  const bool written = findings.write();
  if (!written) std::fprintf(stderr, "bench_programs: cannot write %s\n", options.json.c_str());
  return written && findings.all_right() ? 0 : 1;
}
