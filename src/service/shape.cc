#include "service/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"

namespace tdbg::service {
namespace {

constexpr size_t kDeepest = 32;
constexpr size_t kMostShown = 128;

// As AWS spells a place: "debugRuleConfigurations.1.member.ruleConfigurationName".
std::string Below(const std::string& path, std::string name) {
  if (!name.empty() && name[0] >= 'A' && name[0] <= 'Z') name[0] = static_cast<char>(name[0] + 32);
  return path.empty() ? name : path + "." + name;
}

std::string Shown(const Json& value) {
  std::string text = value.is_string() ? value.get<std::string>()
                                       : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  text = base::ToValidUtf8(text);
  if (text.size() > kMostShown) text = base::ToValidUtf8(text.substr(0, kMostShown)) + "...";
  return text;
}

Refusal Constraint(const Json& value, const std::string& path, const std::string& constraint) {
  return Invalid(fmt::format("1 validation error detected: Value {} at '{}' failed to satisfy constraint: {}",
                             value.is_null() ? "null" : "'" + Shown(value) + "'", path, constraint));
}

const char* NameOf(Shape::Kind kind) {
  switch (kind) {
    case Shape::Kind::kText:
      return "a string";
    case Shape::Kind::kInteger:
      return "an integer";
    case Shape::Kind::kNumber:
      return "a number";
    case Shape::Kind::kTruth:
      return "true or false";
    case Shape::Kind::kList:
      return "a list";
    case Shape::Kind::kMap:
    case Shape::Kind::kStructure:
      return "an object";
  }
  return "";
}

bool IsKind(const Json& value, Shape::Kind kind) {
  switch (kind) {
    case Shape::Kind::kText:
      return value.is_string();
    case Shape::Kind::kInteger:
      return value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
    case Shape::Kind::kNumber:
      return value.is_number();
    case Shape::Kind::kTruth:
      return value.is_boolean();
    case Shape::Kind::kList:
      return value.is_array();
    case Shape::Kind::kMap:
    case Shape::Kind::kStructure:
      return value.is_object();
  }
  return false;
}

std::optional<Refusal> Bounds(const Json& value, int64_t given, const Shape& shape, const std::string& path,
                              const char* what) {
  if (given < shape.least)
    return Constraint(value, path,
                      fmt::format("Member must have {} greater than or equal to {}", what, shape.least));
  if (shape.most >= 0 && given > shape.most)
    return Constraint(value, path,
                      fmt::format("Member must have {} less than or equal to {}", what, shape.most));
  return std::nullopt;
}

std::optional<Refusal> CheckAt(const Json& value, const Shape& shape, const std::string& path) {
  if (!IsKind(value, shape.kind))
    return Refusal{"SerializationException",
                   fmt::format("{} at '{}' can not be converted: {} is expected", Shown(value),
                               path.empty() ? "the request" : path, NameOf(shape.kind))};
  switch (shape.kind) {
    case Shape::Kind::kText: {
      const std::string& text = value.get_ref<const std::string&>();
      if (const auto bad = Bounds(value, static_cast<int64_t>(text.size()), shape, path, "length"))
        return bad;
      if (text.find('\0') != std::string::npos)
        return Constraint(value, path, "Member must not hold a NUL character");
      if (!shape.choices.empty() && std::ranges::find(shape.choices, text) == shape.choices.end())
        return Constraint(
            value, path,
            fmt::format("Member must satisfy enum value set: [{}]", fmt::join(shape.choices, ", ")));
      if (shape.is != nullptr && !shape.is(text))
        return Constraint(value, path, std::string("Member must ") + shape.said);
      return std::nullopt;
    }
    case Shape::Kind::kInteger:
      return Bounds(value, value.get<int64_t>(), shape, path, "value");
    case Shape::Kind::kNumber:
    case Shape::Kind::kTruth:
      return std::nullopt;
    case Shape::Kind::kList:
    case Shape::Kind::kMap: {
      if (const auto bad = Bounds(value, static_cast<int64_t>(value.size()), shape, path, "length"))
        return bad;
      if (!shape.item) return std::nullopt;
      size_t index = 0;
      for (const auto& [key, item] : value.items()) {
        ++index;
        if (key.find('\0') != std::string::npos)
          return Constraint(key, path, "Keys must not hold a NUL character");
        const std::string at = shape.kind == Shape::Kind::kList ? fmt::format("{}.{}.member", path, index)
                                                                : path + "." + Shown(key);
        if (item.is_null()) return Constraint(item, at, "Member must not be null");
        if (auto bad = CheckAt(item, *shape.item, at)) return bad;
      }
      return std::nullopt;
    }
    case Shape::Kind::kStructure:
      for (const Member& member : shape.members) {
        const auto it = value.find(member.name);
        const std::string at = Below(path, member.name);
        if (it == value.end() || it->is_null()) {
          if (member.required) return Constraint(Json(), at, "Member must not be null");
          continue;
        }
        if (auto bad = CheckAt(*it, *member.shape, at)) return bad;
      }
      return std::nullopt;
  }
  return std::nullopt;
}

ShapePtr Make(Shape shape) { return std::make_shared<const Shape>(std::move(shape)); }

}  // namespace

ShapePtr Text(int64_t least, int64_t most) {
  return Make({.kind = Shape::Kind::kText, .least = least, .most = most});
}
ShapePtr TextThat(bool (*is)(std::string_view), const char* said, int64_t least, int64_t most) {
  return Make({.kind = Shape::Kind::kText, .least = least, .most = most, .is = is, .said = said});
}
ShapePtr OneOf(std::vector<std::string> choices) {
  return Make({.kind = Shape::Kind::kText, .choices = std::move(choices)});
}
ShapePtr Integer(int64_t least, int64_t most) {
  return Make({.kind = Shape::Kind::kInteger, .least = least, .most = most});
}
ShapePtr Number() { return Make({.kind = Shape::Kind::kNumber}); }
ShapePtr Truth() { return Make({.kind = Shape::Kind::kTruth}); }
ShapePtr ListOf(ShapePtr item, int64_t least, int64_t most) {
  return Make({.kind = Shape::Kind::kList, .least = least, .most = most, .item = std::move(item)});
}
ShapePtr MapOf(ShapePtr item, int64_t most) {
  return Make({.kind = Shape::Kind::kMap, .most = most, .item = std::move(item)});
}
ShapePtr Structure(std::vector<Member> members) {
  return Make({.kind = Shape::Kind::kStructure, .members = std::move(members)});
}

Answer<Json> ParseValue(std::string_view body) {
  size_t depth = 0;
  bool quoted = false, escaped = false;
  for (const char c : body) {
    if (quoted) {
      quoted = escaped || c != '"';
      escaped = !escaped && c == '\\';
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && depth > 0) --depth;
    if (depth > kDeepest)
      return Refusal{"SerializationException",
                     fmt::format("the request is nested more than {} levels deep", kDeepest)};
  }
  if (base::Trim(body).empty()) return Json::object();
  Json value = Json::parse(body, nullptr, false);
  if (value.is_discarded()) return Refusal{"SerializationException", "the request is no JSON"};
  return value;
}

Answer<Json> ParseBody(std::string_view body) {
  Answer<Json> value = ParseValue(body);
  if (value.ok() && !value->is_object())
    return Refusal{"SerializationException", "the request is no JSON object: " + Shown(*value)};
  return value;
}

std::optional<Refusal> Check(const Json& value, const Shape& shape) { return CheckAt(value, shape, ""); }

Json Known(const Json& value, const Shape& shape) {
  if (shape.kind == Shape::Kind::kStructure && !shape.members.empty() && value.is_object()) {
    Json known = Json::object();
    for (const Member& member : shape.members) {
      const auto it = value.find(member.name);
      if (it != value.end() && !it->is_null()) known[member.name] = Known(*it, *member.shape);
    }
    return known;
  }
  if ((shape.kind == Shape::Kind::kList || shape.kind == Shape::Kind::kMap) && shape.item) {
    Json known = shape.kind == Shape::Kind::kList ? Json::array() : Json::object();
    for (const auto& [key, item] : value.items()) {
      if (shape.kind == Shape::Kind::kList)
        known.push_back(Known(item, *shape.item));
      else
        known[key] = Known(item, *shape.item);
    }
    return known;
  }
  return value;
}

}  // namespace tdbg::service
