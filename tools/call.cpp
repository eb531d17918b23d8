#include "call.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "measure/tuned_cache.hpp"
#include "names.hpp"
#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"
#include "tensor_files.hpp"

namespace tegula::tool {

namespace {

using Texts = std::vector<std::string>;

Texts split(const std::string& text, const std::string& separator) {
  Texts fields;
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(separator, begin)) != std::string::npos; begin = at + separator.size())
    fields.push_back(text.substr(begin, at - begin));
  fields.push_back(text.substr(begin));
  return fields;
}

[[noreturn]] void refuse_random(const std::string& whole, const std::string& text, const char* what) {
  throw ArgumentError(fmt::format(
      "--random {}: '{}' is not a valid {}; write EXTENTS[:DTYPE[:LOW..HIGH]], as in 512x64, 512x64:bf16 "
      "or 8x4:i32:0..63",
      whole, text, what));
}

std::int64_t integer(const std::string& whole, const std::string& text, const char* what) {
  std::int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse_random(whole, text, what);
  return value;
}

DType dtype_named(const std::string& whole, const std::string& name) {
  Texts names;
  for (DType type : all_dtypes) {
    if (type.name() == name) return type;
    names.emplace_back(type.name());
  }
  throw ArgumentError(
      fmt::format("--random {}: '{}' is not a dtype; there are {}", whole, name, fmt::join(names, ", ")));
}

const ops::InputInfo* find_input(const ops::Operator& op, const std::string& name) {
  auto found = std::find_if(op.inputs.begin(), op.inputs.end(), [&](auto& i) { return i.name == name; });
  return found == op.inputs.end() ? nullptr : &*found;
}

// An input that is given as `512x64`, `512x64:bf16` or `8x4:i32:0..63`.
struct RandomInput {
  Shape shape;
  DType type = f32;
  std::optional<std::pair<std::int64_t, std::int64_t>> range;  // of integers: both are among them

  Tensor with_values(std::uint64_t seed) const {
    return range ? Tensor::random_integers(shape, type, seed, range->first, range->second + 1)
                 : Tensor::random_normal(shape, type, seed);
  }
  Tensor described() const { return Tensor::adopt(TensorRef(nullptr, type, shape), nullptr); }
};

RandomInput parse_random(const std::string& text, DType fallback) {
  auto fields = split(text, ":");
  RandomInput result;
  for (auto& extent : split(fields[0], "x")) {
    result.shape.push_back(integer(text, extent, "extent"));
    if (result.shape.back() < 0) refuse_random(text, extent, "extent");
  }
  result.type = fields.size() > 1 ? dtype_named(text, fields[1]) : fallback;
  if (fields.size() < 3) {
    if (result.type.is_floating()) return result;
    throw ArgumentError(fmt::format("--random {}: {} numbers need a range; write {}:{}:LOW..HIGH", text,
                                    result.type.name(), fields[0], result.type.name()));
  }
  auto range = split(fields[2], "..");
  if (fields.size() > 3 || range.size() != 2) refuse_random(text, fields.back(), "range");
  result.range.emplace(integer(text, range[0], "integer"), integer(text, range[1], "integer"));
  if (result.range->first > result.range->second)
    throw ArgumentError(fmt::format("--random {}: the range is empty", text));
  return result;
}

// Every input has a seed of its own, by its place, so that one does not depend on which others are given.
std::uint64_t seed_of(const ops::Operator& op, const ops::InputInfo* input) {
  return 1 + static_cast<std::uint64_t>(input - op.inputs.data());
}

void read_inputs(const CallTexts& texts, const ops::Operator& op, Values values, ops::Tensors& inputs) {
  ops::Tensors given;
  auto add = [&](const std::string& option, const std::string& name, const auto& make) {
    auto* input = find_input(op, name);
    if (!input) {
      Texts names;
      for (auto& each : op.inputs) names.push_back(each.name);
      throw ArgumentError(fmt::format("{}: {}", option, unknown_name("input of " + op.name, name, names)));
    }
    if (given.count(name)) throw ArgumentError(fmt::format("{} {}: the input is given twice", option, name));
    given.emplace(name, make(*input));
  };
  for (auto& text : texts.inputs) {
    auto [name, path] = split_pair("--input", text);
    add("--input", name, [&, path = path, name = name](auto&) { return read_tensor(path, name); });
  }
  for (auto& text : texts.random) {
    auto [name, spec] = split_pair("--random", text);
    add("--random", name, [&, spec = spec](auto& input) {
      const RandomInput random = parse_random(spec, input.dtypes.front());
      return values == Values::made ? random.with_values(seed_of(op, &input)) : random.described();
    });
  }
  for (auto& [name, tensor] : given) inputs.insert_or_assign(name, tensor);
}

void read_options(const CallTexts& texts, ops::OptionTexts& options) {
  ops::OptionTexts given;
  for (auto& text : texts.options) {
    auto [name, value] = split_pair("--option", text);
    if (!given.emplace(name, value).second) throw ArgumentError("--option " + name + " is given twice");
  }
  for (auto& [name, value] : given) options[name] = value;
}

const ops::Case& example_named(const ops::Operator& op, const std::string& name) {
  if (auto* found = find_example(op, name)) return *found;
  Texts names;
  for (auto* cases : {&op.check_cases, &op.bench_cases})
    for (auto& each : *cases) names.push_back(each.name);
  throw ArgumentError("--case: " + unknown_name("example of " + op.name, name, names));
}

}  // namespace

void add_target_option(cli::Command& command, std::string& target) {
  command
      .add_option("--target", target, "auto, interpreter, cpu, cuda, cuda_sm80, emulated or emulated_sm90")
      ->check(cli::IsMember({"auto", "interpreter", "cpu", "cuda", "cuda_sm80", "emulated", "emulated_sm90"}))
      ->capture_default_str();
}

void add_inputs(cli::Command& command, CallTexts& texts) {
  command.add_option("operator", texts.op, "Name of the operator; see `tegula list`")->required();
  command.add_option("--case", texts.example, "An example of the operator; see `tegula list OPERATOR`");
  command.add_option(
      "--input", texts.inputs,
      "name=file.npy or name=file.safetensors[:tensor]; without a tensor, the one of the input's name");
  command.add_option("--random", texts.random,
                     "name=EXTENTS[:DTYPE[:LOW..HIGH]]: random numbers, such as q=1x4096x8x64:bf16 (normal) "
                     "or counts=1x2x8:i32:1..4 (integers)");
  command.add_option("--option", texts.options, "name=value; see `tegula list OPERATOR`");
}

void add_call_options(cli::Command& command, CallTexts& texts) {
  add_inputs(command, texts);
  add_target_option(command, texts.target);
}

Target target_named(const std::string& name) {
  if (name == "auto") return environment_target().value_or(Target::automatic());
  return Target::named(name).value_or(Target::automatic());
}

void expect_device(Target target) {
  if (target.device() == DeviceKind::cuda) measure::device_words(target, Device::cuda());
}

std::pair<std::string, std::string> split_pair(const std::string& option, const std::string& text) {
  auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw ArgumentError(option + " " + text + ": write it as name=value");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

const ops::Case* find_example(const ops::Operator& op, const std::string& name) {
  for (auto* cases : {&op.check_cases, &op.bench_cases})
    for (auto& each : *cases)
      if (each.name == name) return &each;
  return nullptr;
}

Call resolve(const CallTexts& texts, Values values) {
  auto& op = operator_named(texts.op);
  ops::Tensors inputs;
  ops::OptionTexts options;
  if (!texts.example.empty()) {
    auto& example = example_named(op, texts.example);
    inputs = values == Values::made ? example.inputs(1) : example.described();
    options = example.options;
  }
  read_inputs(texts, op, values, inputs);
  read_options(texts, options);
  ops::check_inputs(op, inputs);
  auto name = texts.example.empty() ? "given" : texts.example;
  return {op, name, std::move(inputs), ops::Options::parse(op, options), target_named(texts.target)};
}

}  // namespace tegula::tool
