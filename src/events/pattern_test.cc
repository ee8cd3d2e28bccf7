// What patterns match: documented examples, and random patterns against a second matcher written another way.
#include "events/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tdbg::events {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Result<Pattern> Parse(const std::string& text) {
  const json pattern = json::parse(text);
  plan::Source source;
  source.name = "p.yaml";
  return Pattern::Parse(pattern, source);
}

bool Matches(const std::string& pattern, const std::string& event) {
  const auto parsed = Parse(pattern);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() && parsed->Matches(json::parse(event));
}

struct Case {
  const char* pattern;
  const char* event;
  bool matches;
};

TEST(PatternTest, MatchesAsEventBridgeDocumentsIt) {
  for (const Case& one : std::vector<Case>{
           {R"({"a":["x"]})", R"({"a":"x","b":1})", true},
           {R"({"a":["x"]})", R"({"a":"X"})", false},
           {R"({"a":["x","y"],"b":[1]})", R"({"a":"y","b":1})", true},
           {R"({"a":["x","y"],"b":[1]})", R"({"a":"y"})", false},
           {R"({"a":[1]})", R"({"a":"1"})", false},
           {R"({"a":[1]})", R"({"a":1.0})", true},
           {R"({"a":[true]})", R"({"a":1})", false},
           {R"({"a":[null]})", R"({"a":null})", true},
           {R"({"a":[null]})", R"({})", false},
           {R"({"a":["x"]})", R"({"a":["z","x"]})", true},
           {R"({"a":{"b":["x"]}})", R"({"a":[{"b":"y"},{"b":"x"}]})", true},
           {R"({"a":{"b":["x"],"c":[1]}})", R"({"a":[{"b":"x","c":2},{"b":"y","c":1}]})",
            false},  // of one element
           {R"({"a":{"b":["x"],"c":[1]}})", R"({"a":[{"b":"x","c":2},{"b":"x","c":1}]})", true},
           {R"({"a":[{"prefix":"ab"}]})", R"({"a":"abc"})", true},
           {R"({"a":[{"prefix":"ab"}]})", R"({"a":"Abc"})", false},
           {R"({"a":[{"prefix":{"equals-ignore-case":"AB"}}]})", R"({"a":"abc"})", true},
           {R"({"a":[{"suffix":"bc"}]})", R"({"a":"abc"})", true},
           {R"({"a":[{"suffix":{"equals-ignore-case":"BC"}}]})", R"({"a":"c"})", false},
           {R"({"a":[{"equals-ignore-case":"aBc"}]})", R"({"a":"AbC"})", true},
           {R"({"a":[{"anything-but":"x"}]})", R"({"a":"y"})", true},
           {R"({"a":[{"anything-but":"x"}]})", R"({"a":"x"})", false},
           {R"({"a":[{"anything-but":"x"}]})", R"({})", false},
           {R"({"a":[{"anything-but":["x",1]}]})", R"({"a":1})", false},
           {R"({"a":[{"anything-but":{"prefix":"x"}}]})", R"({"a":"xy"})", false},
           {R"({"a":[{"anything-but":{"suffix":["x","z"]}}]})", R"({"a":"xy"})", true},
           {R"({"a":[{"anything-but":{"wildcard":"*/l/*"}}]})", R"({"a":"a/l/b"})", false},
           {R"({"a":[{"exists":true}]})", R"({"a":null})", true},
           {R"({"a":[{"exists":true}]})", R"({"a":{"b":1}})", false},  // leaves only
           {R"({"a":[{"exists":false}]})", R"({"a":[]})", true},
           {R"({"a":{"b":[{"exists":false}]}})", R"({})", true},
           {R"({"a":{"b":[{"exists":false}]}})", R"({"a":{"b":0}})", false},
           {R"({"a":[{"exists":false},"x"]})", R"({"a":"x"})", true},
           {R"({"a":[{"numeric":[">",0,"<=",5]}]})", R"({"a":5})", true},
           {R"({"a":[{"numeric":[">",0,"<=",5]}]})", R"({"a":5.01})", false},
           {R"({"a":[{"numeric":["=",3.018e2]}]})", R"({"a":301.8})", true},
           {R"({"a":[{"numeric":["<",5]}]})", R"({"a":"1"})", false},
           {R"({"a":[{"wildcard":"a*c*"}]})", R"({"a":"abcabc"})", true},
           {R"({"a":[{"wildcard":"a*c"}]})", R"({"a":"abcab"})", false},
           {R"({"a":[{"wildcard":"a\\*"}]})", R"({"a":"ab"})", false},
           {R"({"a":[{"wildcard":"a\\*\\\\"}]})", R"({"a":"a*\\"})", true},
           {R"({"$or":[{"a":["x"]},{"b":[{"numeric":["<",10]}]}]})", R"({"b":9})", true},
           {R"({"c":["z"],"$or":[{"a":["x"]},{"b":["y"]}]})", R"({"a":"x","c":"q"})", false},
           {R"({"a":{"$or":[{"b":["x"]},{"c":["y"]}]}})", R"({"a":{"c":"y"}})", true},
           {R"({"a":["x"]})", R"([{"a":"x"}])", true},
           {R"({"a":{"b":["x"]}})", R"({"a":"x"})", false},
       }) {
    EXPECT_EQ(Matches(one.pattern, one.event), one.matches) << one.pattern << " of " << one.event;
  }
  EXPECT_TRUE(Pattern().Matches(json::parse("7")));
}

TEST(PatternTest, RefusesWithThePlaceAndWhatIsAccepted) {
  for (const auto& [pattern, said] : std::vector<std::pair<const char*, const char*>>{
           {R"({})", "at least one key"},
           {R"([])", "expected a pattern"},
           {R"({"a":{"b":{}}})", "a.b: found {}"},
           {R"({"a":"x"})", R"(a: found a single value, expected a list of values: ["x"])"},
           {R"({"a":[[1]]})", "a[0]: found a list in a list"},
           {R"({"a":[{}]})", "expected one operator"},
           {R"({"a":[{"prefix":"a","suffix":"b"}]})", "expected one operator"},
           {R"({"a":[{"prefix":1}]})", "a[0].prefix"},
           {R"({"a":[{"prefix":{}}]})", "a[0].prefix"},
           {R"({"a":[{"exists":"yes"}]})", "true or false"},
           {R"({"a":[{"anything-but":[]}]})", "at least one value"},
           {R"({"a":[{"anything-but":[true]}]})", "texts and numbers"},
           {R"({"a":[{"anything-but":{"numeric":["<",1]}}]})", "unknown key \"numeric\""},
           {R"({"a":[{"numeric":[]}]})", "a comparison and a number"},
           {R"({"a":[{"numeric":["!",1]}]})", "unknown value \"!\""},
           {R"({"a":[{"numeric":["<",1,"<",2]}]})", "a range"},
           {R"({"a":[{"numeric":[">",5,"<",2]}]})", "the range is empty"},
           {R"({"a":[{"wildcard":"a**"}]})", "found **"},
           {R"({"a":[{"wildcard":"a\\b"}]})", "a backslash"},
           {R"({"$or":[{"a":[1]}]})", "two or more patterns"},
           {R"({"a":[{"cidr":"10.0.0.0/24"}]})", "Accepted: prefix"},
       }) {
    const auto parsed = Parse(pattern);
    ASSERT_FALSE(parsed.ok()) << pattern;
    EXPECT_THAT(parsed.status().message(), testing::AllOf(HasSubstr("p.yaml"), HasSubstr(said))) << pattern;
  }
  std::string deep = R"(["x"])";
  for (int i = 0; i < 100; ++i) deep = "{\"a\":" + deep + "}";
  EXPECT_THAT(Parse(deep).status().message(), HasSubstr("too deep"));
}

TEST(PatternTest, WildcardsOfAHostileTextTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  const std::string text(100'000, 'a');
  const auto parsed = Parse(json{{"a", {{{"wildcard", pattern + "b"}}}}}.dump());
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(parsed->Matches({{"a", text}}));
}

// ---- The second matcher: all ways of choosing one element of every list, then plain look-ups.

json Resolve(const json& event, std::mt19937& random) {
  if (event.is_array()) return event.empty() ? json() : Resolve(event[random() % event.size()], random);
  if (!event.is_object()) return event;
  json chosen = json::object();
  for (const auto& [key, value] : event.items()) {
    if (value.is_array() && value.empty()) continue;
    chosen[key] = Resolve(value, random);
  }
  return chosen;
}

bool ValueMatches(const json& item, const json* value) {
  const bool there = value != nullptr && !value->is_structured();
  if (!item.is_object()) return there && *value == item;
  const std::string name = item.begin().key();
  const json& argument = item.begin().value();
  if (name == "exists") return argument.get<bool>() == there;
  if (!there) return false;
  if (name == "anything-but") {
    const json list = argument.is_array() ? argument : json::array({argument});
    return std::find(list.begin(), list.end(), *value) == list.end();
  }
  if (name == "numeric") {
    if (!value->is_number()) return false;
    return argument[0] == "<" ? value->get<double>() < argument[1].get<double>()
                              : value->get<double>() >= argument[1].get<double>();
  }
  return value->is_string() && value->get<std::string>().starts_with(argument.get<std::string>());  // prefix
}

bool PlainMatches(const json& pattern, const json* event) {
  for (const auto& [key, asked] : pattern.items()) {
    if (key == "$or") {
      bool any = false;
      for (const json& one : asked) any = any || PlainMatches(one, event);
      if (!any) return false;
      continue;
    }
    const json* value = event && event->is_object() && event->contains(key) ? &(*event)[key] : nullptr;
    bool matched = false;
    if (asked.is_object()) {
      matched = PlainMatches(asked, value);
    } else {
      for (const json& item : asked) matched = matched || ValueMatches(item, value);
    }
    if (!matched) return false;
  }
  return true;
}

json Scalar(std::mt19937& random) {
  static const json kScalars = {"a", "ab", "b", 1, 2, 1.0, true, nullptr};
  return kScalars[random() % kScalars.size()];
}

json RandomEvent(std::mt19937& random, int depth, bool lists) {
  json event = json::object();
  for (const char* key : {"x", "y", "z"}) {
    const auto make = [&] {
      return depth > 0 && random() % 2 ? RandomEvent(random, depth - 1, lists) : Scalar(random);
    };
    const unsigned kind = random() % 4;
    if (kind == 0) continue;
    if (kind == 1 && lists) {
      event[key] = json::array();
      for (unsigned i = 0; i < random() % 3 + 1; ++i) event[key].push_back(make());
    } else {
      event[key] = make();
    }
  }
  return event;
}

json RandomPattern(std::mt19937& random, int depth, bool negations) {
  json pattern = json::object();
  const char* const keys[] = {"x", "y", "z"};
  do {
    const char* const key = keys[random() % 3];
    if (depth > 0 && random() % 3 == 0) {
      pattern[key] = RandomPattern(random, depth - 1, negations);
      continue;
    }
    json& leaf = pattern[key] = json::array();
    for (unsigned i = 0; i < random() % 2 + 1; ++i) {
      switch (random() % (negations ? 6 : 5)) {
        case 0:
          leaf.push_back({{"prefix", "a"}});
          break;
        case 1:
          leaf.push_back({{"numeric", {random() % 2 ? "<" : ">=", 2}}});
          break;
        case 2:
          leaf.push_back({{"anything-but", {"a", 1}}});
          break;
        case 5:
          leaf.push_back({{"exists", random() % 2 == 0}});
          break;
        default:
          leaf.push_back(Scalar(random));
      }
    }
  } while (random() % 2);
  if (depth > 0 && random() % 4 == 0) {
    pattern["$or"] = {RandomPattern(random, 0, negations), RandomPattern(random, 0, negations)};
  }
  return pattern;
}

TEST(PatternTest, AgreesWithASecondMatcher) {
  std::mt19937 random(1);
  int matched = 0, with_lists = 0;
  for (int i = 0; i < 20'000; ++i) {
    const bool lists = i % 2;  // with lists, "exists" would have to look at all elements at once
    const json pattern = RandomPattern(random, 2, !lists);
    const json event = RandomEvent(random, 2, lists);
    const auto parsed = Parse(pattern.dump());
    ASSERT_TRUE(parsed.ok()) << pattern << parsed.status().message();
    const bool got = parsed->Matches(event);
    if (!lists) {
      ASSERT_EQ(got, PlainMatches(pattern, &event)) << pattern << " of " << event;
      matched += got;
      continue;
    }
    // A choice that matches is a match. (That two keys may choose differently in a list of values is why the
    // other direction holds for one key only.)
    for (int tries = 0; tries < 8 && !got; ++tries) {
      const json chosen = Resolve(event, random);
      ASSERT_FALSE(PlainMatches(pattern, &chosen)) << pattern << " of " << event << " chosen " << chosen;
    }
    with_lists += got;
  }
  EXPECT_GT(matched, 500);
  EXPECT_GT(with_lists, 500);
}

}  // namespace
}  // namespace tdbg::events
