#include "tools/cli/cli.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "runtime/call/spelling.hpp"
#include "tegula/error.hpp"

namespace tegula::cli {

namespace {

constexpr std::size_t indent = 28, width = 110;

bool is_help(const std::string& word) { return word == "-h" || word == "--help"; }

// A word of which the next one is no value: options begin with a dash, numbers may.
bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9') && word[1] != '.';
}

std::string unknown(const std::string& kind, const std::string& given,
                    const std::vector<std::string>& names) {
  const std::string hint = spelling_hint(given, names);
  return fmt::format("there is no {} '{}'{} There are: {}", kind, given, hint.empty() ? "." : hint,
                     fmt::join(names, ", "));
}

// A name and what it means, in two columns.
std::string row(const std::string& name, const std::string& doc) {
  std::string text = "  " + name, line;
  if (text.size() + 2 > indent) text += "\n";
  text.resize(std::max(text.size(), text.back() == '\n' ? text.size() + indent : indent), ' ');
  std::istringstream words(doc);
  for (std::string word; words >> word;) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > width)
      text += line + "\n" + std::string(indent, ' '), line.clear();
    line += (line.empty() ? "" : " ") + word;
  }
  return text + line + "\n";
}

}  // namespace

namespace detail {

std::string range_error(const std::string& given, const std::string& low, const std::string& high) {
  return fmt::format("expected a number from {} to {}, given '{}'", low, high, given);
}
std::string choice_error(const std::string& given, const std::vector<std::string>& choices) {
  return fmt::format("expected one of {}, given '{}'", fmt::join(choices, ", "), given);
}

}  // namespace detail

Check IsMember(std::vector<std::string> choices) {
  return [choices = std::move(choices)](const std::string& given) -> std::string {
    const bool is_one = std::find(choices.begin(), choices.end(), given) != choices.end();
    return is_one ? "" : detail::choice_error(given, choices);
  };
}

void Option::take(const std::string& value) {
  if (delimiter_ != 0 && value.find(delimiter_) != std::string::npos) {
    std::istringstream items(value);
    for (std::string item; std::getline(items, item, delimiter_);) take(item);
    return;
  }
  for (const Check& check : checks_)
    if (const std::string wrong = check(value); !wrong.empty())
      throw ArgumentError(fmt::format("{}: {}", name_, wrong));
  if (count_++ == 0 && clear_) clear_();
  if (!set_(value))
    throw ArgumentError(fmt::format("{}: expected {}, given '{}'", name_,
                                    kind_ == "INTEGER" ? "an integer" : "a number", value));
}

std::string Option::label() const {
  return flag_ || is_positional() ? name_ : fmt::format("{} {}{}", name_, kind_, several_ ? " ..." : "");
}

std::string Option::text() const {
  std::string text = doc_;
  if (shows_default_ && !default_.empty()) text += fmt::format(" [{}]", default_);
  if (required_ && !is_positional()) text += " [required]";
  return row(label(), text);
}

Option* Command::add(const std::string& name, const std::string& doc) {
  options_.push_back(std::make_unique<Option>());
  options_.back()->name_ = name, options_.back()->doc_ = doc;
  return options_.back().get();
}

Option* Command::add_flag(const std::string& name, bool& variable, const std::string& doc) {
  Option* option = add(name, doc);
  option->flag_ = true;
  option->set_ = [&variable](const std::string&) { return variable = true; };
  return option;
}

Option* Command::get_option(const std::string& name) { return &named(name); }

Option& Command::named(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& option : options_) {
    if (option->name_ == name) return *option;
    if (!option->hidden_ && !option->is_positional()) names.push_back(option->name_);
  }
  throw ArgumentError(unknown("option of " + name_, name, names));
}

Option& Command::next_argument(const std::string& given) {
  for (const auto& option : options_)
    if (option->is_positional() && (option->several_ || option->count_ == 0)) return *option;
  throw ArgumentError(fmt::format("{}: '{}' was not expected; see {} --help", name_, given, name_));
}

// Where the arguments go on.
std::size_t Command::take_option(const std::vector<std::string>& arguments, std::size_t at) {
  const std::string& word = arguments[at];
  const std::size_t equals = word.find('=');
  Option& option = named(word.substr(0, equals));
  if (option.flag_) {
    if (equals != std::string::npos) throw ArgumentError(option.name_ + " takes no value");
    option.take("");
    return at + 1;
  }
  if (equals != std::string::npos) {
    option.take(word.substr(equals + 1));
    return at + 1;
  }
  if (++at == arguments.size() || is_option(arguments[at]))
    throw ArgumentError(fmt::format("{} needs a value; one that begins with a dash is written {}=VALUE",
                                    option.name_, option.name_));
  do option.take(arguments[at++]);
  while (option.several_ && at < arguments.size() && !is_option(arguments[at]));
  return at;
}

void Command::finish() {
  for (const auto& option : options_) {
    const char* given = option->variable_ ? std::getenv(option->variable_) : nullptr;
    if (option->count_ == 0 && given != nullptr && *given != 0) option->take(given);
    if (option->required_ && option->count_ == 0)
      throw ArgumentError(fmt::format("{}: {} is required; see {} --help", name_, option->name_, name_));
  }
}

void Command::run(const std::vector<std::string>& arguments) {
  if (std::any_of(arguments.begin(), arguments.end(), is_help)) {
    fmt::print("{}", help());
    return;
  }
  for (std::size_t at = 0; at < arguments.size();) {
    if (is_option(arguments[at]))
      at = take_option(arguments, at);
    else
      next_argument(arguments[at]).take(arguments[at]), ++at;
  }
  finish();
  if (callback_) callback_();
}

std::string Command::help() const {
  std::string usage = fmt::format("{}\nUsage: {} [OPTIONS]", doc_, name_), places, options;
  for (const auto& option : options_) {
    if (option->hidden_) continue;
    if (option->is_positional())
      usage += option->required_ ? " " + option->name_ : " [" + option->name_ + "]";
    (option->is_positional() ? places : options) += option->text();
  }
  options += row("-h, --help", "Print this");
  std::string text = usage + "\n";
  if (!places.empty()) text += "\nArguments:\n" + places;
  text += "\nOptions:\n" + options;
  return footer_.empty() ? text : text + "\n" + footer_ + "\n";
}

Command* App::add_subcommand(const std::string& name, const std::string& doc) {
  commands_.push_back(std::make_unique<Command>(name_ + " " + name, doc));
  return commands_.back().get();
}

std::string App::help() const {
  std::string text = fmt::format("{}\nUsage: {} COMMAND …\n\nCommands:\n", doc_, name_);
  for (const auto& command : commands_) text += row(command->name().substr(name_.size() + 1), command->doc());
  text += "\nOptions:\n" + row("-h, --help", "Print this, or the help of a command");
  if (!version_.empty()) text += row("--version", "Print the version");
  return footer_.empty() ? text : text + "\n" + footer_ + "\n";
}

void App::run(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments.empty()) throw ArgumentError(fmt::format("a command is needed; see {} --help", name_));
  const std::string& first = arguments.front();
  if (is_help(first)) return fmt::print("{}", help());
  if (first == "--version" && !version_.empty()) return fmt::print("{}\n", version_);
  std::vector<std::string> names;
  for (const auto& command : commands_) {
    names.push_back(command->name().substr(name_.size() + 1));
    if (names.back() == first) return command->run({arguments.begin() + 1, arguments.end()});
  }
  throw ArgumentError(unknown("command", first, names));
}

}  // namespace tegula::cli
