#include "storage/s3/xml.h"

#include <expat.h>
#include <time.h>

#include <memory>

#include "base/text.h"

namespace tdbg::storage {
namespace {

constexpr size_t kMaxDepth = 16;

struct Parsing {
  XML_Parser parser = nullptr;
  XmlNode root;
  std::vector<XmlNode*> open;
  const char* refused = nullptr;

  void Refuse(const char* why) {
    refused = why;
    XML_StopParser(parser, XML_FALSE);
  }
};

void Begin(void* user, const XML_Char* name, const XML_Char**) {
  auto& parsing = *static_cast<Parsing*>(user);
  if (parsing.open.size() >= kMaxDepth) return parsing.Refuse("nested too deep");
  std::string_view local = name;
  if (const size_t colon = local.rfind(':'); colon != std::string_view::npos) local.remove_prefix(colon + 1);
  XmlNode* node = &parsing.root;
  if (!parsing.open.empty()) node = &parsing.open.back()->children.emplace_back();
  node->name = local;
  parsing.open.push_back(node);
}

void End(void* user, const XML_Char*) { static_cast<Parsing*>(user)->open.pop_back(); }

void Text(void* user, const XML_Char* text, int bytes) {
  auto& parsing = *static_cast<Parsing*>(user);
  if (!parsing.open.empty()) parsing.open.back()->text.append(text, static_cast<size_t>(bytes));
}

// A document type declaration: no answer of S3 has one, and it could define entities that expand without
// limit.
void Doctype(void* user, const XML_Char*, const XML_Char*, const XML_Char*, int) {
  static_cast<Parsing*>(user)->Refuse("a document type declaration");
}

Result<std::string> UrlDecoded(std::string_view text) {
  std::string decoded;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {  // a blank, as some servers encode it; a plus comes as %2B
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      const int high = i + 2 < text.size() ? digit(text[i + 1]) : -1;
      const int low = high >= 0 ? digit(text[i + 2]) : -1;
      if (low < 0) return DataLoss("a key is badly encoded");
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return decoded;
}

}  // namespace

const XmlNode* XmlNode::Find(std::string_view child) const {
  for (const XmlNode& node : children) {
    if (node.name == child) return &node;
  }
  return nullptr;
}

std::string XmlNode::TextOf(std::string_view child) const {
  const XmlNode* const node = Find(child);
  return node == nullptr ? "" : node->text;
}

Result<XmlNode> ParseXml(std::string_view text) {
  Parsing parsing;
  const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(XML_ParserCreate(nullptr),
                                                                            XML_ParserFree);
  if (!parser) return Unavailable("no memory to read an answer");
  parsing.parser = parser.get();
  XML_SetUserData(parser.get(), &parsing);
  XML_SetElementHandler(parser.get(), Begin, End);
  XML_SetCharacterDataHandler(parser.get(), Text);
  XML_SetStartDoctypeDeclHandler(parser.get(), Doctype);
  if (text.size() > (1u << 28)) return DataLoss("the answer is too long");
  const XML_Status status = XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), XML_TRUE);
  if (status != XML_STATUS_OK) {
    return DataLoss(std::string("the answer is no XML of ours: ") +
                    (parsing.refused ? parsing.refused : XML_ErrorString(XML_GetErrorCode(parser.get()))));
  }
  return std::move(parsing.root);
}

int64_t ParseIsoTime(std::string_view text) {
  tm parts = {};
  const std::string whole(text);
  if (::strptime(whole.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return 0;
  const time_t seconds = ::timegm(&parts);
  constexpr int64_t kLast = 253402300800;  // of the year 9999
  return seconds < 0 || seconds > kLast ? 0 : std::min<int64_t>(seconds, 9'223'372'036) * 1'000'000'000;
}

Result<ListPage> ParseListPage(std::string_view text) {
  TDBG_ASSIGN_OR_RETURN(const XmlNode root, ParseXml(text));
  if (root.name != "ListBucketResult") return DataLoss("the answer is no list of objects: " + root.name);
  const bool encoded = root.TextOf("EncodingType") == "url";
  ListPage page;
  for (const XmlNode& node : root.children) {
    if (node.name == "CommonPrefixes") {
      page.prefixes.push_back(node.TextOf("Prefix"));
      if (encoded) {
        TDBG_ASSIGN_OR_RETURN(page.prefixes.back(), UrlDecoded(page.prefixes.back()));
      }
    }
    if (node.name != "Contents") continue;
    ObjectInfo object;
    object.key = node.TextOf("Key");
    if (encoded) {
      TDBG_ASSIGN_OR_RETURN(object.key, UrlDecoded(object.key));
    }
    const auto bytes = base::ParseInt(node.TextOf("Size"));
    if (object.key.empty() || !bytes || *bytes < 0)
      return DataLoss("an object in the list has no key or no size");
    object.bytes = static_cast<uint64_t>(*bytes);
    object.etag = node.TextOf("ETag");
    object.modified_wall_nanos = ParseIsoTime(node.TextOf("LastModified"));
    page.objects.push_back(std::move(object));
  }
  if (root.TextOf("IsTruncated") == "true") {
    page.next = root.TextOf("NextContinuationToken");
    if (page.next.empty()) return DataLoss("the list goes on and does not say where");
  }
  return page;
}

}  // namespace tdbg::storage
