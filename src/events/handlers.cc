#include "events/handlers.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "actions/actions.h"
#include "base/file.h"
#include "base/redact.h"
#include "base/text.h"

namespace tdbg::events {
namespace {

using plan::ConfigNode;

constexpr size_t kMostHandlers = 100;  // each is a thread, and some a process
const std::vector<std::string> kTargets = {"python", "exec", "webhook", "log"};
const std::vector<std::string> kKeys = {
    "name",    "pattern",    "python",        "exec",         "webhook",
    "log",     "format",     "limit_seconds", "limit_memory", "limit_start_seconds",
    "retries", "environment"};
const std::vector<std::string> kFormats = {"event", "slack"};

std::string Absolute(const std::string& path, const std::string& folder) {
  return path.starts_with("/") ? path : base::JoinPath(folder, path);
}

void TakeTarget(const ConfigNode& node, const std::string& kind, const std::string& folder,
                Handler* handler) {
  const ConfigNode target = node.Key(kind);
  handler->target = target.Text();
  if (!node.ok()) return;
  if (base::Trim(handler->target).empty()) return target.Fail("found nothing, expected a text");
  if (kind == "python") {
    handler->kind = HandlerKind::kPython;
    const PythonTarget python = SplitTarget(handler->target);
    if (python.file.empty() || python.function.empty()) {
      return target.Fail(
          fmt::format("found \"{}\", expected FILE:FUNCTION, as handler.py:lambda_handler", handler->target));
    }
    const std::string file = Absolute(python.file, folder);
    if (const auto text = base::LocalFileSystem().ReadFile(file); !text.ok())
      return target.Fail(text.status().message());
    handler->target = file + ":" + python.function;
  } else if (kind == "exec") {
    handler->kind = HandlerKind::kExec;
  } else if (kind == "webhook") {
    handler->kind = HandlerKind::kWebhook;
    if (const auto action = actions::MakeWebhook(handler->target); !action.ok())
      return target.Fail("found a text that is no http:// or https:// URL");
  } else {
    handler->kind = HandlerKind::kLog;
    handler->target = Absolute(handler->target, folder);
  }
}

Handler ParseHandler(const ConfigNode& node, const std::string& folder) {
  Handler handler;
  handler.where = node.Where();
  if (!node.CheckKeys(kKeys)) return handler;
  std::vector<std::string> kinds;
  for (const std::string& kind : kTargets) {
    if (node.value().contains(kind)) kinds.push_back(kind);
  }
  if (kinds.size() != 1) {
    node.Fail(fmt::format("found {}, expected exactly one of {}",
                          kinds.empty() ? "no target" : plan::JoinNames(kinds), plan::JoinNames(kTargets)));
    return handler;
  }
  TakeTarget(node, kinds.front(), folder, &handler);
  node.At("name", [&](const ConfigNode& child) {
    handler.name = child.Text();
    if (!base::IsValidName(handler.name))
      child.Fail("found no name: letters that can be printed are accepted");
  });
  node.At("pattern", [&](const ConfigNode& child) { handler.pattern = Pattern::Parse(child); });
  node.At("limit_seconds", [&](const ConfigNode& child) { handler.limit_seconds = child.Int(1); });
  node.At("limit_start_seconds",
          [&](const ConfigNode& child) { handler.limit_start_seconds = child.Int(1); });
  node.At("limit_memory", [&](const ConfigNode& child) { handler.limit_memory = child.Bytes(); });
  node.At("retries", [&](const ConfigNode& child) {
    handler.retries = child.Int(0);
    if (handler.retries > 10) child.Fail("found more than 10, expected an integer from 0 to 10");
  });
  node.At("environment", [&](const ConfigNode& child) {
    if (!child.value().is_object()) return child.Fail("expected an object of variables: {NAME: VALUE}");
    for (const auto& [name, unused] : child.value().items())
      handler.environment[name] = child.Key(name).ScalarText();
  });
  node.At("format", [&](const ConfigNode& child) {
    if (handler.kind != HandlerKind::kWebhook) return child.Fail("only a webhook has a format");
    handler.slack = child.Choice(kFormats) == "slack";
  });
  if (handler.name.empty() && node.ok())
    handler.name =
        handler.kind == HandlerKind::kPython ? SplitTarget(handler.target).function : kinds.front();
  return handler;
}

}  // namespace

PythonTarget SplitTarget(const std::string& target) {
  const size_t colon = target.rfind(':');
  if (colon == std::string::npos) return {target, ""};
  return {target.substr(0, colon), target.substr(colon + 1)};
}

Result<std::vector<Handler>> ParseHandlers(const nlohmann::json& document, const plan::Source& source,
                                           const std::string& folder) {
  Status status;
  const ConfigNode root(document, source, &status);
  std::vector<Handler> handlers;
  const auto take = [&](const ConfigNode& list) {
    if (!list.value().is_array()) return list.Fail("expected a list of handlers");
    if (list.value().size() > kMostHandlers)
      return list.Fail(fmt::format("found {}, expected at most {}", list.value().size(), kMostHandlers));
    for (size_t i = 0; i < list.value().size() && list.ok(); ++i)
      handlers.push_back(ParseHandler(list.Item(i), folder));
  };
  if (document.is_array()) {
    take(root);
  } else if (root.CheckKeys(std::vector<std::string>{"handlers"})) {
    if (!document.contains("handlers")) root.Fail("expected the key handlers, with a list");
    root.At("handlers", take);
  }
  if (!status.ok()) return status;
  TDBG_RETURN_IF_ERROR(CheckNames(handlers));
  return handlers;
}

Status CheckNames(const std::vector<Handler>& handlers) {
  std::set<std::string> names;
  for (const Handler& handler : handlers) {
    if (names.insert(handler.name).second) continue;
    return InvalidArgument(
        fmt::format("{}: a second handler is called {}; give one of them another name: NAME", handler.where,
                    handler.name));
  }
  return OkStatus();
}

std::string Describe(const Handler& handler) {
  switch (handler.kind) {
    case HandlerKind::kPython:
      return "python " + handler.target;
    case HandlerKind::kExec:
      return "exec " + base::RedactText("exec:" + handler.target).substr(5);
    case HandlerKind::kWebhook: {
      const auto action = actions::MakeWebhook(handler.target);
      return "webhook " + (action.ok() ? (*action)->target() : std::string());
    }
    case HandlerKind::kLog:
      return "log " + handler.target;
  }
  return {};
}

}  // namespace tdbg::events
