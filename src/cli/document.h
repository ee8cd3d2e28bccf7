// Configuration files as JSON values, with the line of each value, so that a mistake can be pointed at.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "plan/config.h"
#include "tdbg/status.h"

namespace tdbg::cli {

struct Document {
  nlohmann::json value;
  std::map<std::string, int> lines;  ///< by JSON pointer
  std::string name;

  /// For messages of the schema. Borrows the document.
  plan::Source source() const;
};

/// YAML 1.2's core schema: true/false, null, integers and floats where unquoted, everything else text.
/// One document; duplicate keys, anchors that expand for ever and non-scalar keys are refused.
/// \error kInvalidArgument  "debug.yaml:12:3: ..."
Result<Document> ParseYaml(const std::string& text, const std::string& name);
/// \error kInvalidArgument  with line and column
Result<Document> ParseJson(const std::string& text, const std::string& name);

/// By suffix: *.json is JSON, everything else YAML. "-" reads standard input, as YAML (of which JSON is a
/// part).
/// \error kNotFound  becomes kInvalidArgument: a configuration that is not there is a usage error
Result<Document> ReadDocument(const std::string& path);

}  // namespace tdbg::cli
