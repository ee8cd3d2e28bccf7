// The flags and words that a command takes, each bound to a member of it. CLI11 reads them, which only
// flags.cc knows: its header takes a processor four seconds in every file that includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tdbg/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tdbg::cli {

/// What is said of one flag or word. A handle: copies speak of the same one, which lives as long as its
/// Flags.
class Flag {
 public:
  /// What stands for its value in the help text, instead of the value's type.
  Flag TypeName(const std::string& name) const;
  Flag Required() const;
  /// So many words make up its value. Only of a vector.
  Flag Words(int least, int most) const;
  /// Each takes one value, so that it can never swallow what follows; for more it is given again. Of a
  /// vector.
  Flag Repeatable() const;
  /// In no help text.
  Flag Hidden() const;
  /// \param complaint  what is wrong with a value that was given; nothing: it is right
  Flag Check(std::function<std::string(const std::string&)> complaint) const;
  /// Check of a range, which the help text names.
  Flag Between(int least, int most) const;
  /// Check of a set of words, which the help text names.
  Flag OneOf(std::vector<std::string> words) const;
  /// Giving both is an error.
  Flag Excludes(Flag other) const;

 private:
  friend class Flags;
  explicit Flag(CLI::Option* option) : option_(option) {}
  CLI::Option* option_;
};

/// Of one command. What is added is borrowed and must outlive it; a value that is not given stays as it was.
class Flags {
 public:
  /// Of `tdbg NAME`; `help` says in a line what that does.
  Flags(const std::string& name, const std::string& help);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  /// "--name", "-n,--name" or, without dashes, a word that is known by its place.
  Flag AddOption(const std::string& name, std::string& value, const std::string& help);
  Flag AddOption(const std::string& name, std::optional<std::string>& value, const std::string& help);
  Flag AddOption(const std::string& name, std::vector<std::string>& value, const std::string& help);
  Flag AddOption(const std::string& name, int& value, const std::string& help);
  Flag AddOption(const std::string& name, int64_t& value, const std::string& help);
  Flag AddOption(const std::string& name, std::optional<int64_t>& value, const std::string& help);
  Flag AddOption(const std::string& name, double& value, const std::string& help);
  /// One without a value.
  Flag AddFlag(const std::string& name, bool& value, const std::string& help = {});
  /// What the help text ends with.
  void Footer(const std::string& text);

  /// Fills in what was bound.
  /// \param takes_command  the words may have been meant as a command, which belongs behind "--"
  /// \return whether help was asked for instead
  /// \error kInvalidArgument  "run: unknown flag '--rul'; did you mean '--rule'?": one line, for people
  Result<bool> Parse(const std::vector<std::string>& words, bool takes_command);
  std::string Help() const;

 private:
  std::unique_ptr<CLI::App> app_;
};

/// For Flag::Check: a whole number that is at least this, and that 64 bits hold (CLI11 itself takes the
/// nearest that they do).
std::function<std::string(const std::string&)> IntegerFrom(int64_t at_least);
/// A finite number, at least 0.
std::function<std::string(const std::string&)> FiniteFrom0();

/// --attempt N of a command that reads a run; `attempt` stays as it is (-1: all of them) where it is not
/// given.
void AddAttempt(Flags& flags, int64_t& attempt);

}  // namespace tdbg::cli
