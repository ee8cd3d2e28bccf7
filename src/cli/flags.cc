#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "base/text.h"
#include "cli/terminal.h"

namespace tdbg::cli {
namespace {

constexpr size_t kOptionsColumn = 34;

// CLI11 leaves a description on one line, whatever its length: broken here, behind the options' column.
std::string WithoutWideLines(const std::string& help) {
  std::string text;
  for (size_t begin = 0; begin < help.size();) {
    const size_t end = std::min(help.find('\n', begin), help.size());
    const std::string line = help.substr(begin, end - begin);
    begin = end + 1;
    size_t column = 0;
    if (line.size() > kOptionsColumn && line[kOptionsColumn - 1] == ' ') column = kOptionsColumn;
    text += line.substr(0, column) + Wrapped(line.substr(column), static_cast<int>(column)) + "\n";
  }
  return text;
}

// CLI11 counts the words of an argument that takes several: NAME(0x).
class UsageFormatter : public CLI::Formatter {
 public:
  std::string make_option_usage(const CLI::Option* option) const override {
    if (option->get_expected_max() <= 1) return Formatter::make_option_usage(option);
    const std::string words = make_option_name(option, true) + "...";
    return option->get_required() ? words : "[" + words + "]";
  }
};

std::vector<std::string> NamesOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string Describe(const CLI::ParseError& error, const CLI::App& app, bool takes_command) {
  const std::string who = app.get_name() + ": ";
  const std::string help = fmt::format("`tdbg {} --help` shows what is accepted", app.get_name());
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
    for (const std::string& word : app.remaining()) {
      if (!word.starts_with("-")) continue;
      const std::string flag = word.substr(0, word.find('='));
      const auto nearest = base::Nearest(flag, NamesOf(app));
      return fmt::format("{}unknown flag '{}'; {}", who, flag,
                         nearest ? "did you mean '" + *nearest + "'?" : help);
    }
    const std::vector<std::string> rest = app.remaining();
    const std::string word = rest.empty() ? "" : rest.front();
    if (takes_command) {
      return fmt::format(
          "{}found '{}' where a flag was expected; put -- in front of the command: tdbg {} -- {} ...", who,
          word, app.get_name(), word);
    }
    return fmt::format("{}found '{}', one argument too many; {}", who, word, help);
  }
  std::string what = error.what();
  if (const size_t line = what.find('\n'); line != std::string::npos) what.resize(line);
  return fmt::format("{}{}; {}", who, what, help);
}

}  // namespace

Flag Flag::TypeName(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

Flag Flag::Required() const {
  option_->required();
  return *this;
}

Flag Flag::Words(int least, int most) const {
  option_->expected(least, most);
  return *this;
}

Flag Flag::Repeatable() const {
  option_->allow_extra_args(false);
  return *this;
}

Flag Flag::Hidden() const {
  option_->group("");
  return *this;
}

Flag Flag::Check(std::function<std::string(const std::string&)> complaint) const {
  option_->check(complaint);
  return *this;
}

Flag Flag::Between(int least, int most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}

Flag Flag::OneOf(std::vector<std::string> words) const {
  option_->check(CLI::IsMember(std::move(words)));
  return *this;
}

Flag Flag::Excludes(Flag other) const {
  option_->excludes(other.option_);
  return *this;
}

Flags::Flags(const std::string& name, const std::string& help)
    : app_(std::make_unique<CLI::App>(help, name)) {
  app_->formatter(std::make_shared<UsageFormatter>());
  app_->get_formatter()->column_width(kOptionsColumn);
}

Flags::~Flags() = default;

Flag Flags::AddOption(const std::string& name, std::string& value, const std::string& help) {
  return Flag(app_->add_option(name, value, help));
}

Flag Flags::AddOption(const std::string& name, std::optional<std::string>& value, const std::string& help) {
  return Flag(app_->add_option(name, value, help));
}

Flag Flags::AddOption(const std::string& name, std::vector<std::string>& value, const std::string& help) {
  return Flag(app_->add_option(name, value, help));
}

Flag Flags::AddOption(const std::string& name, int& value, const std::string& help) {
  return Flag(app_->add_option(name, value, help));
}

Flag Flags::AddOption(const std::string& name, int64_t& value, const std::string& help) {
  return Flag(app_->add_option(name, value, help));
}

Flag Flags::AddOption(const std::string& name, std::optional<int64_t>& value, const std::string& help) {
  return Flag(app_->add_option(name, value, help));
}

Flag Flags::AddOption(const std::string& name, double& value, const std::string& help) {
  return Flag(app_->add_option(name, value, help));
}

Flag Flags::AddFlag(const std::string& name, bool& value, const std::string& help) {
  return Flag(app_->add_flag(name, value, help));
}

void Flags::Footer(const std::string& text) { app_->footer(text); }

Result<bool> Flags::Parse(const std::vector<std::string>& words, bool takes_command) {
  try {
    // CLI11 takes them last one first.
    app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return true;
  } catch (const CLI::ParseError& error) {
    return InvalidArgument(Describe(error, *app_, takes_command));
  }
  return false;
}

std::string Flags::Help() const { return WithoutWideLines(app_->help()); }

std::function<std::string(const std::string&)> IntegerFrom(int64_t at_least) {
  return [at_least](const std::string& text) {
    const auto number = base::ParseInt(text);
    if (number && *number >= at_least) return std::string();
    return fmt::format("found '{}', expected an integer of at least {}{}", text, at_least,
                       number ? "" : " that 64 bits hold");
  };
}

std::function<std::string(const std::string&)> FiniteFrom0() {
  return [](const std::string& text) {
    const auto number = base::ParseDouble(text);
    if (number && std::isfinite(*number) && *number >= 0) return std::string();
    return fmt::format("found '{}', expected a number of at least 0", text);
  };
}

void AddAttempt(Flags& flags, int64_t& attempt) {
  flags.AddOption("--attempt", attempt, "of this attempt; default: all, the latest wins")
      .TypeName("N")
      .Check(IntegerFrom(0));
}

}  // namespace tdbg::cli
