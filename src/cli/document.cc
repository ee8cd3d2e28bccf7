#include "cli/document.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <memory>
#include <set>

#include "base/file.h"
#include "base/text.h"

namespace tdbg::cli {
namespace {

// Aliases make a tree of exponential size out of a few lines ("billion laughs"); no configuration needs this.
constexpr int kMaxValues = 100'000;
constexpr int kDeepest = 64;
constexpr char kTooMuch[] = "too many or too deeply nested values";

class Converter {
 public:
  explicit Converter(Document* document) : document_(document) {}

  Status Convert(const YAML::Node& node, const std::string& pointer, int depth, nlohmann::json* out) {
    if (++values_ > kMaxValues || depth > kDeepest) return Fail(node, kTooMuch);
    if (node.Mark().line >= 0) document_->lines[pointer] = node.Mark().line + 1;
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        *out = nullptr;
        return OkStatus();
      case YAML::NodeType::Scalar:
        *out = Scalar(node);
        return OkStatus();
      case YAML::NodeType::Sequence: {
        *out = nlohmann::json::array();
        size_t i = 0;
        for (const YAML::Node& item : node) {
          nlohmann::json value;
          TDBG_RETURN_IF_ERROR(Convert(item, fmt::format("{}/{}", pointer, i++), depth + 1, &value));
          out->push_back(std::move(value));
        }
        return OkStatus();
      }
      case YAML::NodeType::Map:
        return ConvertMap(node, pointer, depth, out);
    }
    return OkStatus();
  }

 private:
  Status ConvertMap(const YAML::Node& node, const std::string& pointer, int depth, nlohmann::json* out) {
    *out = nlohmann::json::object();
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return Fail(entry.first, "a key must be a single word or text");
      const std::string key = entry.first.Scalar();
      if (out->contains(key))
        return Fail(entry.first, "the key \"" + key + "\" is there twice; merge the two");
      const std::string child = pointer + base::JsonPointerStep(key);
      nlohmann::json value;
      TDBG_RETURN_IF_ERROR(Convert(entry.second, child, depth + 1, &value));
      // The key's line, not that of a value that starts below it, because the key may be what is misspelt.
      if (entry.first.Mark().line >= 0) document_->lines[child] = entry.first.Mark().line + 1;
      (*out)[key] = std::move(value);
    }
    return OkStatus();
  }

  static nlohmann::json Scalar(const YAML::Node& node) {
    const std::string& text = node.Scalar();
    if (node.Tag() == "!") return text;  // quoted
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
    if (text == "true" || text == "True" || text == "TRUE") return true;
    if (text == "false" || text == "False" || text == "FALSE") return false;
    if (const auto integer = base::ParseInt(text)) return *integer;
    const bool numeric = text.find_first_not_of("0123456789+-.eE") == std::string::npos;
    if (numeric) {
      if (const auto number = base::ParseDouble(text)) return *number;
    }
    return text;  // .inf and .nan stay text: a rule's parameters are text anyway, and JSON has neither
  }

  Status Fail(const YAML::Node& node, const std::string& what) const {
    return InvalidArgument(
        fmt::format("{}:{}:{}: {}", document_->name, node.Mark().line + 1, node.Mark().column + 1, what));
  }

  Document* document_;
  int values_ = 0;
};

// Reads to the end of the file; of a pipe that is when its writer closes it.
std::string ReadStream(FILE* stream) {
  std::string text;
  char bytes[4096];
  while (const size_t got = ::fread(bytes, 1, sizeof(bytes), stream)) text.append(bytes, got);
  return text;
}

// Named on the command line, it may be a pipe (`--config <(generate)`), which is waited for.
bool IsPipe(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode));
}

}  // namespace

plan::Source Document::source() const {
  plan::Source source;
  source.name = name;
  source.line_of = [this](const std::string& pointer) {
    const auto line = lines.find(pointer);
    return line == lines.end() ? 0 : line->second;
  };
  return source;
}

Result<Document> ParseYaml(const std::string& text, const std::string& name) {
  Document document;
  document.name = name;
  try {
    // yaml-cpp notices a quotation mark that is never closed only if no line break follows. With the line
    // break at the end of the file it takes the rest of the file for the value.
    YAML::LoadAll(text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      return InvalidArgument(name + ": holds more than one YAML document; keep the first or merge them");
    }
    if (documents.empty()) return document;
    TDBG_RETURN_IF_ERROR(Converter(&document).Convert(documents[0], "", 0, &document.value));
  } catch (const YAML::Exception& error) {
    const std::string what = error.msg == YAML::ErrorMsg::EOF_IN_SCALAR
                                 ? "a quotation mark is opened and never closed"
                                 : error.msg;
    const bool placed = error.mark.line >= 0;
    return InvalidArgument(placed ? fmt::format("{}:{}:{}: not valid YAML: {}", name, error.mark.line + 1,
                                                error.mark.column + 1, what)
                                  : fmt::format("{}: not valid YAML: {}", name, what));
  }
  return document;
}

Result<Document> ParseJson(const std::string& text, const std::string& name) {
  Document document;
  document.name = name;
  // nlohmann silently keeps the last of two equal keys, but the user meant both.
  std::vector<std::set<std::string>> keys;
  std::string twice;
  bool too_deep = false;
  const auto watch_keys = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    // Nodes that are nested too deeply are left out while parsing, because walking and writing the tree is
    // recursive.
    if (depth > kDeepest) {
      too_deep = true;
      return false;
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end && !keys.empty()) keys.pop_back();
    if (event == Event::key && !keys.empty()) {
      const std::string key = parsed.get<std::string>();
      if (!keys.back().insert(key).second && twice.empty()) twice = key;
    }
    return true;
  };
  try {
    document.value = nlohmann::json::parse(text, watch_keys);
  } catch (const nlohmann::json::parse_error& error) {
    std::string what =
        error.what();  // "[json.exception.parse_error.101] parse error at line 3, column 5: ..."
    if (const size_t bracket = what.find("] "); bracket != std::string::npos) what.erase(0, bracket + 2);
    return InvalidArgument(fmt::format("{}: not valid JSON: {}", name, what));
  }
  if (too_deep) return InvalidArgument(fmt::format("{}: {}", name, kTooMuch));
  if (!twice.empty())
    return InvalidArgument(fmt::format("{}: the key \"{}\" is there twice; merge the two", name, twice));
  // JSON is also YAML, and the YAML parser knows lines. If the two disagree, a message only lacks its line.
  if (auto as_yaml = ParseYaml(text, name); as_yaml.ok()) document.lines = std::move(as_yaml->lines);
  return document;
}

Result<Document> ReadDocument(const std::string& path) {
  if (path == "-") return ParseYaml(ReadStream(stdin), "standard input");
  if (IsPipe(path)) {
    const std::unique_ptr<FILE, int (*)(FILE*)> stream(::fopen(path.c_str(), "re"),
                                                       [](FILE* opened) { return ::fclose(opened); });
    if (!stream) return InvalidArgument("--config: " + ErrnoStatus(errno, "cannot open " + path).message());
    return ParseYaml(ReadStream(stream.get()), path);
  }
  const auto text = base::LocalFileSystem().ReadFile(path);
  if (!text.ok()) return InvalidArgument("--config: " + text.status().message());
  return path.ends_with(".json") ? ParseJson(*text, path) : ParseYaml(*text, path);
}

}  // namespace tdbg::cli
