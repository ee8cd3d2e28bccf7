// Trees that are deeper than they should be. README.md beside this file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "rules/judging.h"
#include "rules/kept_values.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"
#include "rules/text_values.h"

namespace tdbg::rules {
namespace {

constexpr int64_t kRawInterval = 10;  // smdebug's for XGBoost

// The columns of XGBoost's table of nodes that say which node leads to which.
struct Table {
  std::optional<TensorValue> id, tree, node, yes, no;
  bool Complete() const { return yes && no && (id || (tree && node)); }
};

// A node by its id, "3-0" or as text "3-0" made of the numbers; children are rows, -1: a leaf.
struct Node {
  std::string id;
  int64_t yes = -1, no = -1;
};

std::string NodeId(double tree, double node) { return fmt::format("{:.0f}-{:.0f}", tree, node); }

Result<std::vector<double>> Numbers(const std::optional<TensorValue>& column) {
  std::vector<double> numbers(ElementCount(*column));
  if (!numbers.empty() && !LoadElements(*column, 0, numbers))
    return InvalidArgument(fmt::format("a column of numbers holds {}", DTypeName(column->dtype)));
  return numbers;
}

// Ids of nodes, whether they were kept as texts or as numbers within their tree.
Result<std::vector<std::string>> Ids(const std::optional<TensorValue>& column,
                                     const std::vector<std::string>& own) {
  if (auto texts = TextElements(*column)) {
    for (std::string& text : *texts) {
      if (text == "nan") text.clear();
    }
    return *std::move(texts);
  }
  TDBG_ASSIGN_OR_RETURN(const std::vector<double> numbers, Numbers(column));
  std::vector<std::string> ids;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool leaf = !std::isfinite(numbers[i]) || numbers[i] < 0 || i >= own.size();
    ids.push_back(leaf ? "" : fmt::format("{}-{:.0f}", own[i].substr(0, own[i].find('-')), numbers[i]));
  }
  return ids;
}

Result<std::vector<Node>> NodesOf(const Table& table) {
  std::vector<std::string> own;
  if (table.id) {
    auto texts = TextElements(*table.id);
    if (!texts)
      return InvalidArgument(fmt::format("ids of nodes are {}, not texts", DTypeName(table.id->dtype)));
    own = *std::move(texts);
  } else {
    TDBG_ASSIGN_OR_RETURN(const std::vector<double> trees, Numbers(table.tree));
    TDBG_ASSIGN_OR_RETURN(const std::vector<double> nodes, Numbers(table.node));
    if (trees.size() != nodes.size()) return InvalidArgument("columns of different length");
    for (size_t i = 0; i < trees.size(); ++i) own.push_back(NodeId(trees[i], nodes[i]));
  }
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> yes, Ids(table.yes, own));
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> no, Ids(table.no, own));
  if (yes.size() != own.size() || no.size() != own.size())
    return InvalidArgument(
        fmt::format("columns of different length: {} ids, {} yes, {} no", own.size(), yes.size(), no.size()));
  std::map<std::string, int64_t> row_of;
  for (size_t i = 0; i < own.size(); ++i) {
    if (!row_of.emplace(own[i], static_cast<int64_t>(i)).second)
      return InvalidArgument("node " + own[i] + " is there twice");
  }
  std::vector<Node> nodes(own.size());
  const auto link = [&](const std::string& id, const std::string& from, int64_t* to) -> Status {
    if (id.empty()) return OkStatus();
    const auto found = row_of.find(id);
    if (found == row_of.end())
      return InvalidArgument("node " + from + " leads to " + id + ", which is not there");
    *to = found->second;
    return OkStatus();
  };
  for (size_t i = 0; i < own.size(); ++i) {
    nodes[i].id = own[i];
    TDBG_RETURN_IF_ERROR(link(yes[i], own[i], &nodes[i].yes));
    TDBG_RETURN_IF_ERROR(link(no[i], own[i], &nodes[i].no));
  }
  return nodes;
}

struct Depth {
  std::string tree;     // number, as text
  int64_t links = 0;    // from the root to the deepest node
  std::string deepest;  // its id
};

// The depth of each tree, counted from its root, the node that no other leads to. Node ids are not heap
// positions: XGBoost numbers nodes in the order in which it made them, pruned ones left out.
Result<std::vector<Depth>> DepthsOf(const std::vector<Node>& nodes) {
  std::vector<uint8_t> is_child(nodes.size(), 0);
  for (const Node& node : nodes) {
    for (const int64_t child : {node.yes, node.no}) {
      if (child < 0) continue;
      if (std::exchange(is_child[static_cast<size_t>(child)], uint8_t{1}))
        return InvalidArgument("two links lead to node " + nodes[static_cast<size_t>(child)].id);
    }
  }
  std::vector<Depth> depths;
  size_t reached = 0;
  for (size_t root = 0; root < nodes.size(); ++root) {
    if (is_child[root]) continue;
    Depth depth;
    depth.tree = nodes[root].id.substr(0, nodes[root].id.find('-'));
    depth.deepest = nodes[root].id;
    std::vector<std::pair<size_t, int64_t>> open = {{root, 0}};
    while (!open.empty()) {
      const auto [at, links] = open.back();
      open.pop_back();
      ++reached;
      if (links > depth.links) {
        depth.links = links;
        depth.deepest = nodes[at].id;
      }
      for (const int64_t child : {nodes[at].no, nodes[at].yes}) {
        if (child >= 0) open.emplace_back(static_cast<size_t>(child), links + 1);
      }
    }
    depths.push_back(std::move(depth));
  }
  // No node has two parents, so nodes that no root reaches form a cycle.
  if (reached != nodes.size()) return InvalidArgument("nodes lead to each other in a circle");
  return depths;
}

class TreeDepth : public Rule {
 public:
  TreeDepth(Selector trees, int64_t depth) : trees_(std::move(trees)), depth_(depth) {}

  plan::Need Needs() const override {
    plan::Need need = trees_.Need();
    need.raw = true;
    need.raw_schedule.emplace().interval = kRawInterval;
    return need;
  }

  Result<Judged> Invoke(const StepContext& step, std::vector<Finding>* findings) override {
    trees_.Update(step);
    std::map<WorkerIndex, Table> tables;
    const bool readable = ForEachKeptValue(
        step, trees_, [](TensorIndex, WorkerIndex) { return true; },
        [&](TensorIndex tensor, WorkerIndex worker, TensorValue value) {
          const std::string& name = step.tensor(tensor).name;
          const std::string column = name.substr(name.rfind('/') + 1);
          Table& table = tables[worker];
          for (const auto& [text, place] : {std::pair{"ID", &table.id},
                                            {"Tree", &table.tree},
                                            {"Node", &table.node},
                                            {"Yes", &table.yes},
                                            {"No", &table.no}}) {
            if (column == text && !*place) *place = std::move(value);
          }
        });
    bool judged = false;
    for (const auto& [worker, table] : tables) {
      if (!table.Complete()) continue;
      const std::string where = fmt::format("trees at step {}", step.global_step());
      const auto nodes = NodesOf(table);
      if (!nodes.ok()) return nodes.status().Annotate(where);
      const auto depths = DepthsOf(*nodes);
      if (!depths.ok()) return depths.status().Annotate(where);
      trees_seen_ += static_cast<int64_t>(depths->size());
      // Trees of a single leaf say nothing of how deep trees grow here.
      judged |= std::ranges::any_of(*depths, [](const Depth& depth) { return depth.links > 0; });
      for (const Depth& depth : *depths) {
        if (depth.links <= depth_) continue;
        Finding finding;
        finding.global_step = step.global_step();
        finding.worker = step.worker_name(worker);
        finding.measure = "depth";
        finding.value = static_cast<double>(depth.links);
        finding.comparison = ">";
        finding.threshold = static_cast<double>(depth_);
        finding.text = fmt::format("tree {}, down to node {}", depth.tree, depth.deepest);
        findings->push_back(std::move(finding));
      }
    }
    if (!findings->empty()) return Judged::kJudged;
    if (!readable) return Judged::kIncomplete;
    return judged ? Judged::kJudged : Judged::kNotDue;
  }

  std::string WouldHaveNeeded() const override {
    if (trees_seen_ > 0) {
      return fmt::format(
          "a tree with a split; of the {} seen {} a single leaf, so nothing was learnt (gamma, "
          "min_child_weight, or labels that are all the same)",
          base::Counted(static_cast<uint64_t>(trees_seen_), "tree"), trees_seen_ == 1 ? "it is" : "each is");
    }
    return "a table of trees: values of trees/ID (or trees/Tree and trees/Node), trees/Yes and trees/No";
  }

 private:
  Selector trees_;
  int64_t depth_;
  int64_t trees_seen_ = 0;
};

}  // namespace

void RegisterTreeDepth(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "TreeDepth";
  info.snake_name = "tree_depth";
  info.scope = "xgboost";
  info.summary = "A tree is deeper than it should be.";
  info.parameters = {
      NumberParameter("depth", "int", "4", 0, "links from the root", "A deeper tree is a hit."),
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector trees, Selector::Make({"trees"}, {}));
    return MakeRule<TreeDepth>(std::move(trees), parameters.Int("depth"));
  });
}

}  // namespace tdbg::rules
