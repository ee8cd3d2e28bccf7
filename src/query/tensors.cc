#include "query/tensors.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/stable_sort.h"
#include "query/run.h"

namespace tdbg::query {
namespace {

bool IsIn(const TensorInfo& info, std::string_view collection) {
  return std::ranges::find(info.collections, collection) != info.collections.end();
}

struct Node {
  std::string name;  // the part of the name below its parent
  std::map<std::string, std::unique_ptr<Node>, std::less<>> children;
  std::vector<TensorIndex> tensors;
  uint32_t first = ~0u;

  Node& Child(std::string_view part) {
    auto& child = children[std::string(part)];
    if (!child) {
      child = std::make_unique<Node>();
      child->name = part;
    }
    return *child;
  }
};

// "Net_layer1.0" -> "Net", "layer1", "0": adaptors join a module's path with '_'; users also write '.' and
// '/'. If a part had a '_' of its own, the resulting chain of only children is joined again.
std::vector<std::string_view> PathOf(std::string_view module) {
  std::vector<std::string_view> path;
  while (!module.empty()) {
    const size_t end = module.find_first_of("_./");
    if (end != 0) path.push_back(module.substr(0, end));
    module.remove_prefix(end == std::string_view::npos ? module.size() : end + 1);
  }
  // Limits the depth: a name may be 10 kB of dots.
  if (path.size() > 32) path.resize(32);
  return path;
}

void Flatten(const TrialAccess& access, Node& node, int64_t parent, Json* nodes, Json* tensors) {
  std::string name = node.name;
  Node* at = &node;
  while (parent >= -1 && at->tensors.empty() && at->children.size() == 1 && !at->name.empty()) {
    at = at->children.begin()->second.get();
    name += "_" + at->name;
  }
  const int64_t index = static_cast<int64_t>(nodes->size());
  nodes->push_back({{"name", name}, {"parent", parent}});
  std::ranges::sort(at->tensors, {}, [&](TensorIndex t) { return access.tensor(t).order; });
  for (const TensorIndex t : at->tensors) {
    const TensorInfo& info = access.tensor(t);
    tensors->push_back({{"id", t},
                        {"name", info.name},
                        {"leaf", PartsOfName(info.name).leaf},
                        {"node", index},
                        {"kind", info.kind},
                        {"module_kind", info.module_kind},
                        {"collections", info.collections},
                        {"dtype", DTypeName(info.dtype)},
                        {"shape", info.shape}});
  }
  std::vector<Node*> children;
  for (auto& [part, child] : at->children) children.push_back(child.get());
  base::StableSort(&children, [](const Node* a, const Node* b) { return a->first < b->first; });
  for (Node* child : children) Flatten(access, *child, index, nodes, tensors);
}

}  // namespace

NameParts PartsOfName(std::string_view name) {
  std::string_view rest = name;
  std::string prefix;
  for (const std::string_view kind : {"gradient/", "update/", "optimizer/"}) {
    if (rest.starts_with(kind)) {
      prefix = std::string(kind.substr(0, kind.size() - 1)) + " of ";
      rest.remove_prefix(kind.size());
      break;
    }
  }
  const size_t dot = rest.rfind('.');
  if (dot != std::string_view::npos && dot > 0)
    return {std::string(rest.substr(0, dot)), prefix + std::string(rest.substr(dot + 1))};
  for (const std::string_view mark : {"_output", "_input"}) {
    const size_t at = rest.rfind(mark);
    if (at != std::string_view::npos && at > 0)
      return {std::string(rest.substr(0, at)), prefix + std::string(rest.substr(at + 1))};
  }
  const size_t slash = rest.rfind('/');
  if (slash != std::string_view::npos && slash > 0)
    return {std::string(rest.substr(0, slash)), prefix + std::string(rest.substr(slash + 1))};
  return {"", prefix + std::string(rest)};
}

Json TreeOf(const TrialAccess& access) {
  Node root;
  Json others = Json::array();
  for (TensorIndex t = 0; t < access.tensor_count(); ++t) {
    const TensorInfo& info = access.tensor(t);
    // Plain numbers have no statistics, and a derived statistic is read with its tensor.
    if (info.kind == kStatisticKind) continue;
    if (IsIn(info, "context") || info.name.starts_with("context/")) {
      others.push_back({{"id", t}, {"name", info.name}, {"collections", info.collections}});
      continue;
    }
    Node* node = &root;
    node->first = std::min(node->first, info.order);
    const std::string module = PartsOfName(info.name).module;
    for (const std::string_view part : PathOf(module)) {
      node = &node->Child(part);
      node->first = std::min(node->first, info.order);
    }
    node->tensors.push_back(t);
  }
  Json nodes = Json::array(), tensors = Json::array();
  Flatten(access, root, -1, &nodes, &tensors);
  return {{"nodes", std::move(nodes)}, {"tensors", std::move(tensors)}, {"series", std::move(others)}};
}

Result<Answer> Run::Tensors(const Question& question) {
  TDBG_RETURN_IF_ERROR(question.CheckKeys({}));
  return JsonAnswer(TreeOf(TrialAccess(*trial_)));
}

}  // namespace tdbg::query
