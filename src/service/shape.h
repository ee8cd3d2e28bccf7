// What a request may look like, as a table, and whether one does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "service/reply.h"

namespace tdbg::service {

struct Shape;
using ShapePtr = std::shared_ptr<const Shape>;

struct Member {
  const char* name;
  ShapePtr shape;
  bool required = false;
};

struct Shape {
  enum class Kind { kText, kInteger, kNumber, kTruth, kList, kMap, kStructure };
  Kind kind = Kind::kStructure;
  int64_t least = 0, most = -1;  ///< length, value, or number of items; most -1: no bound
  std::vector<std::string> choices = {};
  /// What a text must be besides, and how that is said; null: anything.
  bool (*is)(std::string_view) = nullptr;
  const char* said = "";
  ShapePtr item = nullptr;  ///< of lists and maps
  std::vector<Member> members = {};
};

ShapePtr Text(int64_t least = 0, int64_t most = -1);
ShapePtr TextThat(bool (*is)(std::string_view), const char* said, int64_t least = 0, int64_t most = -1);
ShapePtr OneOf(std::vector<std::string> choices);
ShapePtr Integer(int64_t least, int64_t most);
ShapePtr Number();
ShapePtr Truth();
ShapePtr ListOf(ShapePtr item, int64_t least = 0, int64_t most = -1);
ShapePtr MapOf(ShapePtr item, int64_t most = -1);
ShapePtr Structure(std::vector<Member> members);

/// A request's body. Deeper than anything that a client sends is refused before anybody recurses into it.
/// \error SerializationException
Answer<Json> ParseBody(std::string_view body);
/// The same for any value of JSON; nothing is an empty object.
Answer<Json> ParseValue(std::string_view body);

/// Nothing where `value` is of this shape; else the first member that is not, in the words that AWS uses:
/// "1 validation error detected: Value 'a b' at 'trainingJobName' failed to satisfy constraint: ...". Members
/// that the shape does not name are ignored, null is absent.
std::optional<Refusal> Check(const Json& value, const Shape& shape);

/// The members that the shape names, without nulls, all the way down.
Json Known(const Json& value, const Shape& shape);

}  // namespace tdbg::service
