#include "analyses.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cuda/gpu.hpp"
#include "kernel_files.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

namespace {

double number_of(const std::string& text, const std::string& value) {
  std::size_t end = 0;
  double number = 0;
  try {
    number = std::stod(value, &end);
  } catch (const std::exception&) { end = 0; }
  if (end == 0 || end != value.size())
    throw ArgumentError("--extent " + text + ": '" + value + "' is no number");
  return number;
}

// The target whose plans and programs that machine runs, also where there is none.
Target planned_for(const Machine& own) {
  if (!own.is_gpu) return Target::cpu();
  return own.architecture >= 90 ? Target::emulated_sm90() : Target::emulated();
}

}  // namespace

std::vector<Analysis> analyses_of(const RecordedCalls& recorded, const Machine& machine) {
  std::vector<Analysis> all;
  for (const RecordedCall& call : recorded.calls())
    all.push_back(analyze(lang::Kernel(call.signature->kernel_pointer()), call.values, machine));
  return all;
}

std::vector<Analysis> analyses_of(const Call& call, const Machine& machine) {
  RecordedCalls recorded(RecordedCalls::Mode::nothing_runs);
  call.op.run(call.inputs, call.options, planned_for(machine));
  return analyses_of(recorded, machine);
}

const Machine& machine_of(Target target) {
  if (target.device() != DeviceKind::cuda) return machine("cpu");
  const std::string& gpu = cuda::Gpu::get(0).name();
  for (const Machine& own : machines())
    if (own.is_gpu && gpu.find(own.words.substr(0, own.words.find(' '))) != std::string::npos) return own;
  return machine("h100");
}

void add_extents(cli::Command& command, std::vector<std::string>& extents) {
  command
      .add_option("--extent", extents,
                  "For a file: name=value of a dim or a scalar; separate several by commas")
      ->delimiter(',');
}

std::string names_of_machines() {
  std::vector<std::string> names;
  for (auto& own : machines()) names.push_back(own.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string statement_of_analysis(const std::string& kernel, const std::vector<std::string>& extents,
                                  const Machine& machine) {
  std::vector<std::string> pairs;
  for (auto& text : extents) {
    const auto [name, value] = split_pair("--extent", text);
    pairs.push_back(fmt::format("{{{}, {}}}", literal(name), number_of(text, value)));
  }
  return fmt::format("tegula::analyze({}, {{{}}}, tegula::machine({}))", kernel, fmt::join(pairs, ", "),
                     literal(machine.name));
}

}  // namespace tegula::tool
