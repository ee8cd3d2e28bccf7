#include "storage/s3/xml.h"

#include <gtest/gtest.h>

namespace tdbg::storage {
namespace {

TEST(XmlTest, AListOfObjects) {
  const auto page = ParseListPage(
      R"(<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
      <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>
      <Contents><Key>a/w%401+b%2B</Key><Size>7</Size><ETag>&quot;e&quot;</ETag>
      <LastModified>2026-11-23T23:00:00.000Z</LastModified></Contents></ListBucketResult>)");
  ASSERT_TRUE(page.ok()) << page.status().message();
  ASSERT_EQ(page->objects.size(), 1u);
  EXPECT_EQ(page->objects[0].key, "a/w@1 b+");
  EXPECT_EQ(page->objects[0].bytes, 7u);
  EXPECT_EQ(page->objects[0].etag, "\"e\"");
  EXPECT_EQ(page->objects[0].modified_wall_nanos, 1795474800000000000);
  EXPECT_EQ(page->next, "t&1");
}

TEST(XmlTest, WhatIsCutOffOrMadeUpIsRefused) {
  const std::string whole =
      "<ListBucketResult><Contents><Key>k</Key><Size>1</Size></Contents></ListBucketResult>";
  EXPECT_TRUE(ParseListPage(whole).ok());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(ParseListPage(whole.substr(0, bytes)).ok()) << bytes;
  EXPECT_FALSE(ParseListPage("<Error><Code>SlowDown</Code></Error>").ok());
  EXPECT_FALSE(ParseListPage("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>").ok());
  for (const char* const size : {"-1", "x", "", "99999999999999999999"}) {
    EXPECT_FALSE(ParseListPage(std::string("<ListBucketResult><Contents><Key>k</Key><Size>") + size +
                               "</Size></Contents></ListBucketResult>")
                     .ok());
  }
}

TEST(XmlTest, NoEntityExpandsAndNothingNestsForEver) {
  const auto bomb = ParseXml(R"(<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>)");
  ASSERT_FALSE(bomb.ok());
  EXPECT_NE(bomb.status().message().find("document type"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_FALSE(ParseXml(deep).ok());
}

}  // namespace
}  // namespace tdbg::storage
