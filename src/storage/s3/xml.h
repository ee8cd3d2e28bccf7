// Parses the XML that S3 and STS answer with, by expat. Servers are not trusted: depth, size and declarations
// are limited.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/object_store.h"
#include "tdbg/status.h"

namespace tdbg::storage {

struct XmlNode {
  std::string name;  ///< without namespace
  std::string text;  ///< of this node, without its children's
  std::vector<XmlNode> children;

  const XmlNode* Find(std::string_view child) const;
  std::string TextOf(std::string_view child) const;  ///< empty if there is no such child
};

/// \error kDataLoss  not XML, a document type declaration, or nested deeper than 16
Result<XmlNode> ParseXml(std::string_view text);

struct ListPage {
  std::vector<ObjectInfo> objects;
  std::vector<std::string> prefixes;  ///< what a delimiter made one of, with the delimiter
  std::string next;                   ///< continuation token; empty: the list is complete
};
/// Parses the answer to ListObjectsV2 with encoding-type=url. \error kDataLoss
Result<ListPage> ParseListPage(std::string_view text);

/// "2026-11-23T23:00:00.000Z" in nanoseconds since the epoch; 0 if it is not a time.
int64_t ParseIsoTime(std::string_view text);

}  // namespace tdbg::storage
