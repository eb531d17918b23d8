#include "time_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "codegen/cuda_program.hpp"
#include "cuda/assembler_notes.hpp"
#include "cuda/compile.hpp"
#include "cuda/timing.hpp"
#include "device_data.hpp"

namespace programs {
namespace {

using Json = nlohmann::json;
constexpr int rounds = 10, checked = 8;
constexpr double hopeless_ms = 2000;  // of one call, beyond which fewer follow

// A hash of the name, so that all forms are given the same numbers.
std::uint32_t seed_of(const std::string& name) {
  std::uint32_t seed = 2166136261U;
  for (const char letter : name) seed = (seed ^ static_cast<unsigned char>(letter)) * 16777619U;
  return seed;
}

// The arguments of a call, in memory of the device.
class DeviceCall {
 public:
  explicit DeviceCall(const TimedCase& own) {
    for (const TimedArgument& argument : own.timing.arguments()) {
      const auto& value = argument.value;
      if (const auto* random = std::get_if<Random>(&value))
        add(argument.name, random_on_device(*random, seed_of(argument.name)));
      if (const auto* data = std::get_if<Data>(&value)) add(argument.name, data->to(tegula::Device::cuda()));
      if (const auto* number = std::get_if<double>(&value)) arguments_.push_back({argument.name, *number});
      if (const auto* number = std::get_if<int>(&value)) arguments_.push_back({argument.name, *number});
      if (const auto* result = std::get_if<Result>(&value)) {
        add(argument.name, unwritten_on_device(*result));
        results_.emplace_back(argument.name, *result);
      }
    }
  }
  std::span<const tegula::NamedArgument> arguments() const { return arguments_; }
  const std::vector<std::pair<std::string, Result>>& results() const { return results_; }
  const Data& tensor(const std::string& name) const { return tensors_.at(name); }

  Numbers part(const std::string& name, const std::vector<std::int64_t>& at) const {
    Data own = tensor(name);
    for (const std::int64_t index : at) own = own.select(0, index);
    return Numbers(own.to(tegula::Device::cpu()));
  }

 private:
  void add(const std::string& name, Data data) {
    arguments_.push_back({name, data});
    tensors_.emplace(name, std::move(data));
  }
  std::vector<tegula::NamedArgument> arguments_;
  std::map<std::string, Data> tensors_;
  std::vector<std::pair<std::string, Result>> results_;
};

double mean_magnitude(const std::vector<double>& values) {
  double sum = 0, count = 0;
  for (const double x : values)
    if (std::isfinite(x)) sum += std::abs(x), ++count;
  return count > 0 ? sum / count : 0;
}

// The largest error of some elements by the formula, relative to their magnitude or the mean one.
double error_of(const Check& check, const DeviceCall& call, const Sample& sample) {
  const Shape& shape = call.tensor(check.result).shape();
  const double mean = mean_magnitude(sample.values);
  const auto part = [&](const std::string& name, const std::vector<std::int64_t>& at) {
    return call.part(name, at);
  };
  double worst = 0;
  const std::size_t count = sample.values.size(), stride = std::max<std::size_t>(1, count / checked);
  for (std::size_t i = stride / 2; i < count; i += stride) {
    std::vector<std::int64_t> at(shape.size());
    std::int64_t place = static_cast<std::int64_t>(i) * sample.step;
    for (std::size_t d = shape.size(); d-- > 0; place /= shape[d]) at[d] = place % shape[d];
    const double exact = check.exact(part, at), got = sample.values[i];
    if (exact == got) continue;
    const double error = std::abs(got - exact) / std::max(std::abs(exact), mean);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

// After the first call, before others repeat it.
Json findings_of(const TimedCase& own, const DeviceCall& call) {
  Json found{{"samples", Json::object()}, {"mean", Json::object()}};
  for (const auto& [name, result] : call.results()) {
    const Oddities odd = oddities(call.tensor(name));
    const Sample sample = sample_of(call.tensor(name));
    found["samples"][name] = sample.values;
    found["mean"][name] = mean_magnitude(sample.values);
    if (odd.nan > 0) found["nan"][name] = odd.nan;
    if (odd.infinite > 0) found["infinite"][name] = odd.infinite;
    if (result.whole && odd.nan + odd.infinite > 0) found["wrong"] = name + " is not finite";
    if (own.timing.check && own.timing.check->result == name) {
      found["error"] = error_of(*own.timing.check, call, sample);
      if (!(found["error"].get<double>() <= own.timing.check->tolerance)) found["wrong"] = name;
    }
  }
  return found;
}

Json milliseconds(const std::function<void()>& body, int count) {
  std::vector<double> times = tegula::cuda::milliseconds_of(tegula::Stream::of_default(), count, body);
  std::ranges::sort(times);
  return {{"ms", times[times.size() / 2]}, {"least_ms", times.front()}, {"most_ms", times.back()}};
}

}  // namespace

Json compiled(const TimedCase& own) {
  const Kernel kernel = own.form.kernel();
  const auto program = tegula::codegen::print_cuda(tegula::Signature(kernel.ir(), tegula::DeviceKind::cuda),
                                                   tegula::passes::CudaTarget{});
  const auto code = tegula::cuda::compile_code(tegula::cuda::nvrtc(), program.text,
                                               tegula::cuda::device_headers(), 90, tegula::kernel_cache());
  Json result{{"grids", Json::array()}, {"notes", tegula::passes::format(program.notes)}};
  const auto resources = tegula::cuda::read_resources(code.log);
  for (const auto& grid : program.kernels) {
    Json line{{"threads", grid.threads}, {"shared_bytes", grid.shared_bytes}, {"way", grid.way}};
    for (const auto& used : resources) {
      if (used.function != grid.function) continue;
      line["registers"] = used.registers;
      line["spill_bytes"] = used.spill_store_bytes + used.spill_load_bytes;
    }
    result["grids"].push_back(line);
  }
  for (const std::string& remark : tegula::cuda::assembler_notes(code.log, *kernel.ir(), program))
    result["notes"].push_back(remark);
  return result;
}

Json timed(const TimedCase& own) {
  const tegula::Function function = tegula::compile(own.form.kernel(), tegula::Target::cuda());
  const DeviceCall call(own);
  const auto body = [&] { function.call(call.arguments()); };
  body();
  tegula::synchronize();
  Json result = findings_of(own, call);
  const double first = milliseconds(body, 1)["ms"];
  result.update(milliseconds(body, first > hopeless_ms ? 1 : rounds));
  return result;
}

Json timed_copy() {
  constexpr std::int64_t elements = std::int64_t{1} << 29;
  const Data from = random_on_device({{elements}, bf16}, 1);
  const Data to = Data::empty({elements}, bf16, tegula::Device::cuda());
  return milliseconds([&] { tegula::copy_elements(from, to); }, rounds);
}

}  // namespace programs
