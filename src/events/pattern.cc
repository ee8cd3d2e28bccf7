#include "events/pattern.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tdbg::events {

using nlohmann::json;
using plan::ConfigNode;

namespace {

constexpr int kDeepest = 32;  // deepest nesting of patterns, and of lists in an event
const std::vector<std::string> kOperators = {
    "prefix", "suffix", "equals-ignore-case", "anything-but", "exists", "numeric", "wildcard"};
const std::vector<std::string> kTextOperators = {"prefix", "suffix", "equals-ignore-case", "wildcard"};
const std::vector<std::string> kComparisons = {"=", "<", "<=", ">", ">="};

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

// A wildcard's characters; escaped stars are told apart from those that match anything.
struct Glyph {
  char c;
  bool any;
};

bool MatchesWildcard(const std::vector<Glyph>& pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p].any) {
      star = p++;
      from = t;
    } else if (p < pattern.size() && pattern[p].c == text[t]) {
      ++p, ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p].any) ++p;
  return p == pattern.size();
}

// Called with a value that exists and is not a list or object.
using Test = std::function<bool(const json& value)>;

bool IsScalar(const json& value) { return !value.is_structured(); }

Test TextTest(const std::string& name, const ConfigNode& node) {
  const std::string text = node.Text();
  if (!node.ok()) return {};
  const auto of_text = [](std::function<bool(const std::string&)> test) -> Test {
    return [test = std::move(test)](const json& value) {
      return value.is_string() && test(value.get_ref<const std::string&>());
    };
  };
  if (name == "prefix") return of_text([text](const std::string& value) { return value.starts_with(text); });
  if (name == "suffix") return of_text([text](const std::string& value) { return value.ends_with(text); });
  if (name == "equals-ignore-case")
    return of_text([text](const std::string& value) { return EqualIgnoringCase(value, text); });
  std::vector<Glyph> glyphs;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      if (i + 1 == text.size() || (text[i + 1] != '*' && text[i + 1] != '\\')) {
        node.Fail("a backslash is followed by * or by another backslash");
        return {};
      }
      glyphs.push_back({text[++i], false});
    } else {
      glyphs.push_back({text[i], text[i] == '*'});
      if (glyphs.size() > 1 && glyphs.back().any && glyphs[glyphs.size() - 2].any) {
        node.Fail("found ** in a wildcard; one * stands for any text");
        return {};
      }
    }
  }
  return of_text(
      [glyphs = std::move(glyphs)](const std::string& value) { return MatchesWildcard(glyphs, value); });
}

// {"prefix": "x"}, {"prefix": {"equals-ignore-case": "x"}}.
Test AffixTest(const std::string& name, const ConfigNode& node) {
  if (!node.value().is_object()) return TextTest(name, node);
  const std::vector<std::string> accepted = {"equals-ignore-case"};
  if (!node.CheckKeys(accepted)) return {};
  if (node.value().empty()) {
    node.Fail("found {}, expected a text or {\"equals-ignore-case\": TEXT}");
    return {};
  }
  const ConfigNode inner = node.Key("equals-ignore-case");
  const std::string text = inner.Text();
  const bool front = name == "prefix";
  return [text, front](const json& value) {
    if (!value.is_string()) return false;
    const std::string_view whole = value.get_ref<const std::string&>();
    if (whole.size() < text.size()) return false;
    return EqualIgnoringCase(front ? whole.substr(0, text.size()) : whole.substr(whole.size() - text.size()),
                             text);
  };
}

Test Any(std::vector<Test> tests) {
  return [tests = std::move(tests)](const json& value) {
    return std::any_of(tests.begin(), tests.end(), [&](const Test& test) { return test(value); });
  };
}

Test LiteralTest(const ConfigNode& node) {
  return [literal = node.value()](const json& value) { return value == literal; };
}

Test AnythingButTest(const ConfigNode& node) {
  std::vector<Test> tests;
  const json& value = node.value();
  if (value.is_object()) {
    if (!node.CheckKeys(kTextOperators)) return {};
    if (value.size() != 1) {
      node.Fail("expected one of " + plan::JoinNames(kTextOperators));
      return {};
    }
    const std::string name = value.begin().key();
    const ConfigNode inner = node.Key(name);
    if (inner.value().is_array()) {
      for (size_t i = 0; i < inner.value().size(); ++i) tests.push_back(TextTest(name, inner.Item(i)));
    } else {
      tests.push_back(AffixTest(name, inner));
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      const ConfigNode item = node.Item(i);
      if (!item.value().is_string() && !item.value().is_number()) {
        item.Fail("anything-but takes texts and numbers");
        return {};
      }
      tests.push_back(LiteralTest(item));
    }
  } else if (value.is_string() || value.is_number()) {
    tests.push_back(LiteralTest(node));
  } else {
    node.Fail("anything-but takes a text, a number, a list of them, or {\"prefix\": TEXT} and the like");
    return {};
  }
  if (tests.empty()) node.Fail("found an empty list, expected at least one value");
  return [any = Any(std::move(tests))](const json& found) { return !any(found); };
}

Test NumericTest(const ConfigNode& node) {
  const json& list = node.value();
  const char* const expected = "expected a comparison and a number, once or twice: [\">\", 0, \"<=\", 5]";
  if (!list.is_array() || (list.size() != 2 && list.size() != 4)) {
    node.Fail(expected);
    return {};
  }
  std::vector<Test> tests;
  for (size_t i = 0; i < list.size(); i += 2) {
    const std::string comparison = node.Item(i).Choice(kComparisons);
    const json& bound = list[i + 1];
    if (!bound.is_number()) {
      node.Item(i + 1).Fail(expected);
      return {};
    }
    if (list.size() == 4 && (comparison == "=" || ((comparison[0] == '<') == (i == 0)))) {
      node.Fail("two comparisons are a range: > or >= first, then < or <=");
      return {};
    }
    tests.push_back([comparison, bound](const json& value) {
      if (comparison == "=") return value == bound;
      if (comparison == "<") return value < bound;
      if (comparison == "<=") return value <= bound;
      return comparison == ">" ? value > bound : value >= bound;
    });
  }
  if (list.size() == 4 && list[1] > list[3]) node.Fail("the range is empty: its first number is the larger");
  return [tests = std::move(tests)](const json& value) {
    return value.is_number() &&
           std::all_of(tests.begin(), tests.end(), [&](const Test& test) { return test(value); });
  };
}

}  // namespace

// What a pattern asks of one place in an event: either of its keys, or of its values.
struct Pattern::Node {
  std::vector<std::pair<std::string, std::unique_ptr<Node>>> keys;  // all of them
  std::vector<std::vector<std::unique_ptr<Node>>> alternatives;     // one of each list ($or) must match
  bool leaf = false;
  std::vector<Test> values;              // a leaf's tests: one must hold
  bool absent = false, present = false;  // a leaf has {"exists": false}, {"exists": true}
};

namespace {

using Node = Pattern::Node;

std::unique_ptr<Node> ParseObject(const ConfigNode& node, int depth);

void ParseOperator(const ConfigNode& item, Node* leaf) {
  if (!item.CheckKeys(kOperators)) return;
  if (item.value().size() != 1)
    return item.Fail("expected one operator; accepted: " + plan::JoinNames(kOperators));
  const std::string name = item.value().begin().key();
  const ConfigNode argument = item.Key(name);
  if (name == "exists") {
    if (!argument.value().is_boolean()) return argument.Fail("expected true or false");
    (argument.value().get<bool>() ? leaf->present : leaf->absent) = true;
  } else if (name == "anything-but") {
    leaf->values.push_back(AnythingButTest(argument));
  } else if (name == "numeric") {
    leaf->values.push_back(NumericTest(argument));
  } else if (name == "prefix" || name == "suffix") {
    leaf->values.push_back(AffixTest(name, argument));
  } else {
    leaf->values.push_back(TextTest(name, argument));
  }
}

std::unique_ptr<Node> ParseLeaf(const ConfigNode& node) {
  auto leaf = std::make_unique<Node>();
  leaf->leaf = true;
  if (node.value().empty()) node.Fail("found an empty list, expected at least one value");
  for (size_t i = 0; i < node.value().size() && node.ok(); ++i) {
    const ConfigNode item = node.Item(i);
    if (item.value().is_object()) {
      ParseOperator(item, leaf.get());
    } else if (item.value().is_array()) {
      item.Fail("found a list in a list, expected a value or an operator");
    } else {
      leaf->values.push_back(LiteralTest(item));
    }
  }
  return leaf;
}

std::unique_ptr<Node> ParseValue(const ConfigNode& node, int depth) {
  if (node.value().is_array()) return ParseLeaf(node);
  if (node.value().is_object()) return ParseObject(node, depth + 1);
  node.Fail("found a single value, expected a list of values: [" + node.value().dump() + "]");
  return nullptr;
}

std::unique_ptr<Node> ParseObject(const ConfigNode& node, int depth) {
  if (!node.value().is_object()) {
    node.Fail("expected a pattern: an object whose values are lists, as {\"source\": [\"aws.sagemaker\"]}");
    return nullptr;
  }
  if (depth > kDeepest) {
    node.Fail("the pattern is too deep; accepted are " + std::to_string(kDeepest) + " levels");
    return nullptr;
  }
  if (node.value().empty()) node.Fail("found {}, expected at least one key");
  auto object = std::make_unique<Node>();
  for (const auto& [key, unused] : node.value().items()) {
    const ConfigNode child = node.Key(key);
    if (key != "$or") {
      object->keys.emplace_back(key, ParseValue(child, depth));
    } else if (!child.value().is_array() || child.value().size() < 2) {
      child.Fail("expected a list of two or more patterns");
    } else {
      auto& any = object->alternatives.emplace_back();
      for (size_t i = 0; i < child.value().size(); ++i) any.push_back(ParseObject(child.Item(i), depth + 1));
    }
    if (!node.ok()) return nullptr;
  }
  return object;
}

// Calls f for each value at a place, those in lists included; true as soon as f returns true.
template <typename F>
bool AnyElement(const json* value, int depth, const F& f) {
  if (value == nullptr || !value->is_array()) return value != nullptr && f(*value);
  if (depth > kDeepest) return false;
  return std::any_of(value->begin(), value->end(),
                     [&](const json& item) { return AnyElement(&item, depth + 1, f); });
}

bool MatchesLeaf(const Node& leaf, const json* value) {
  bool there = false;
  const bool matched = AnyElement(value, 0, [&](const json& scalar) {
    if (!IsScalar(scalar)) return false;
    there = true;
    return leaf.present || std::any_of(leaf.values.begin(), leaf.values.end(),
                                       [&](const Test& test) { return test(scalar); });
  });
  return matched || (leaf.absent && !there);
}

bool MatchesNode(const Node& node, const json* value);

bool MatchesObject(const Node& node, const json* object) {
  for (const auto& [key, child] : node.keys) {
    const json* value = nullptr;
    if (object != nullptr) {
      const auto found = object->find(key);
      if (found != object->end()) value = &*found;
    }
    if (!MatchesNode(*child, value)) return false;
  }
  return std::all_of(node.alternatives.begin(), node.alternatives.end(), [&](const auto& any) {
    return std::any_of(any.begin(), any.end(), [&](const auto& one) { return MatchesObject(*one, object); });
  });
}

bool MatchesNode(const Node& node, const json* value) {
  if (node.leaf) return MatchesLeaf(node, value);
  bool there = false;
  const bool matched = AnyElement(value, 0, [&](const json& item) {
    if (!item.is_object()) return false;
    there = true;
    return MatchesObject(node, &item);
  });
  return matched || (!there && MatchesObject(node, nullptr));
}

}  // namespace

Pattern::Pattern() = default;
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

Pattern Pattern::Parse(const ConfigNode& node) {
  Pattern pattern;
  pattern.root_ = ParseObject(node, 0);
  return pattern;
}

Result<Pattern> Pattern::Parse(const json& pattern, const plan::Source& source) {
  Status status;
  Pattern parsed = Parse(ConfigNode(pattern, source, &status));
  if (!status.ok()) return status;
  return parsed;
}

bool Pattern::Matches(const json& event) const { return root_ == nullptr || MatchesNode(*root_, &event); }

}  // namespace tdbg::events
