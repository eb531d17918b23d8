// The command line of a program: commands, options, flags and arguments by place, with help for each.
//
//   cli::App app("greet", "Greets people.");
//   auto* hello = app.add_subcommand("hello", "Greets one");
//   hello->add_option("name", name, "Whom")->required();
//   hello->add_option("--times", times, "How often")->check(cli::Range(1, 9))->capture_default_str();
//   hello->callback([&] { greet(name, times); });
//   app.run(argc, argv);
//
// `--times 3` and `--times=3` are the same. An option whose variable is a vector takes one value or several,
// and may be given more than once. What is wrong with a command line is an ArgumentError.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tegula::cli {

// What is wrong with a value, in words; empty if nothing is.
using Check = std::function<std::string(const std::string&)>;

namespace detail {

template <class T>
concept Numeric = std::integral<T> || std::floating_point<T>;

template <Numeric T>
bool parse(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}
inline bool parse(const std::string& text, std::string& value) { return value = text, true; }
inline bool parse(const std::string& text, std::vector<std::string>& value) {
  return value.push_back(text), true;
}

template <class T>
constexpr const char* kind_of = std::integral<T>         ? "INTEGER"
                                : std::floating_point<T> ? "NUMBER"
                                                         : "TEXT";

std::string range_error(const std::string& given, const std::string& low, const std::string& high);
std::string choice_error(const std::string& given, const std::vector<std::string>& choices);

}  // namespace detail

// A number from low to high.
template <detail::Numeric T>
Check Range(T low, T high) {
  return [low, high](const std::string& given) {
    T value{};
    const bool inside = detail::parse(given, value) && value >= low && value <= high;
    return inside ? "" : detail::range_error(given, fmt::format("{}", low), fmt::format("{}", high));
  };
}
// One of these words.
Check IsMember(std::vector<std::string> choices);

class Option {
 public:
  Option* required(bool is_required = true) { return required_ = is_required, this; }
  Option* check(Check check) { return checks_.push_back(std::move(check)), this; }
  // Each value is divided into several.
  Option* delimiter(char delimiter) { return delimiter_ = delimiter, this; }
  // Help shows what the variable held when the option was added.
  Option* capture_default_str() { return shows_default_ = true, this; }
  Option* hidden() { return hidden_ = true, this; }
  // The variable of the environment that stands for the option.
  Option* environment(const char* variable) { return variable_ = variable, this; }
  // How many values were given.
  std::size_t count() const { return count_; }

 private:
  friend class Command;
  void take(const std::string& value);
  bool is_positional() const { return name_.front() != '-'; }
  std::string label() const;
  std::string text() const;

  std::string name_, doc_, kind_, default_;
  std::function<bool(const std::string&)> set_;
  std::function<void()> clear_;
  std::vector<Check> checks_;
  const char* variable_ = nullptr;
  bool required_ = false, flag_ = false, several_ = false, shows_default_ = false, hidden_ = false;
  char delimiter_ = 0;
  std::size_t count_ = 0;
};

class Command {
 public:
  Command(std::string name, std::string doc) : name_(std::move(name)), doc_(std::move(doc)) {}

  // `--name` is an option, a name without dashes an argument by its place.
  template <class T>
  Option* add_option(const std::string& name, T& variable, const std::string& doc) {
    Option* option = add(name, doc);
    option->kind_ = detail::kind_of<T>;
    option->set_ = [&variable](const std::string& text) { return detail::parse(text, variable); };
    if constexpr (std::same_as<T, std::vector<std::string>>)
      option->several_ = true, option->default_ = fmt::format("{}", fmt::join(variable, ",")),
      option->clear_ = [&variable] { variable.clear(); };
    else
      option->default_ = fmt::format("{}", variable);
    return option;
  }
  Option* add_flag(const std::string& name, bool& variable, const std::string& doc);
  Option* get_option(const std::string& name);
  // Text below the help.
  void footer(std::string text) { footer_ = std::move(text); }
  void callback(std::function<void()> callback) { callback_ = std::move(callback); }
  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }
  std::string help() const;
  // Sets the variables and runs the callback; writes the help instead where that is asked for.
  void run(const std::vector<std::string>& arguments);

 private:
  Option* add(const std::string& name, const std::string& doc);
  Option& named(const std::string& name);
  Option& next_argument(const std::string& given);
  std::size_t take_option(const std::vector<std::string>& arguments, std::size_t at);
  void finish();

  std::string name_, doc_, footer_;
  std::vector<std::unique_ptr<Option>> options_;
  std::function<void()> callback_;
};

// A program of several commands.
class App {
 public:
  App(std::string name, std::string doc) : name_(std::move(name)), doc_(std::move(doc)) {}
  Command* add_subcommand(const std::string& name, const std::string& doc);
  void version(std::string text) { version_ = std::move(text); }
  void footer(std::string text) { footer_ = std::move(text); }
  std::string help() const;
  void run(int argc, char** argv);

 private:
  std::string name_, doc_, version_, footer_;
  std::vector<std::unique_ptr<Command>> commands_;
};

}  // namespace tegula::cli
