// Expected values are AWS's own: the examples of "Signature Calculations for the Authorization Header"
// (Amazon S3 API Reference) and of the Signature Version 4 test suite.
#include "storage/s3/sigv4.h"

#include <gtest/gtest.h>

#include "storage/s3/payload_hash.h"

namespace tdbg::storage {
namespace {

const Credentials kS3Key = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
const Credentials kSuiteKey = {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string SignatureOf(const std::string& authorization) {
  return authorization.substr(authorization.rfind('=') + 1);
}

std::string OfS3(const std::string& method, const std::string& path, const Pairs& query, Pairs headers,
                 const std::string& payload_hash = kEmpty) {
  headers.insert(headers.end(), {{"Host", "examplebucket.s3.amazonaws.com"},
                                 {"x-amz-content-sha256", payload_hash},
                                 {"x-amz-date", "20130524T000000Z"}});
  return SignatureOf(Authorization({method, path, query, headers, payload_hash, true}, kS3Key,
                                   "20130524T000000Z", "us-east-1", "s3"));
}

std::string OfSuite(const std::string& method, const std::string& path, const Pairs& query, Pairs headers) {
  headers.insert(headers.begin(), {{"Host", "example.amazonaws.com"}, {"X-Amz-Date", "20150830T123600Z"}});
  return SignatureOf(Authorization({method, path, query, headers, kEmpty, false}, kSuiteKey,
                                   "20150830T123600Z", "us-east-1", "service"));
}

TEST(SigV4Test, SignsAsTheExamplesOfS3) {
  EXPECT_EQ(OfS3("GET", "/test.txt", {}, {{"Range", "bytes=0-9"}}),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  const std::string body = "Welcome to Amazon S3.";
  const std::string hash = Sha256Hex(std::as_bytes(std::span(body)));
  EXPECT_EQ(hash, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
  EXPECT_EQ(
      OfS3("PUT", "/test$file.text", {},
           {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}}, hash),
      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  EXPECT_EQ(OfS3("GET", "/", {{"lifecycle", ""}}, {}),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(OfS3("GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}, {}),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(SigV4Test, SignsAsTheTestSuite) {
  EXPECT_EQ(OfSuite("GET", "/", {}, {}), "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  EXPECT_EQ(OfSuite("GET", "/", {{"Param2", "value2"}, {"Param1", "value1"}}, {}),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
  EXPECT_EQ(OfSuite("POST", "/", {}, {}), "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
  EXPECT_EQ(OfSuite("GET", "/example/..", {}, {}), OfSuite("GET", "/", {}, {}));
  EXPECT_EQ(OfSuite("GET", "/./", {}, {}), OfSuite("GET", "/", {}, {}));
}

TEST(SigV4Test, EncodesAsRfc3986AndSortsTheEncoded) {
  EXPECT_EQ(UriEncode("a b@:=/+~é", true), "a%20b%40%3A%3D/%2B~%C3%A9");
  EXPECT_EQ(UriEncode("/", false), "%2F");
  EXPECT_EQ(CanonicalQuery({{"uploads", ""}}), "uploads=");
  EXPECT_EQ(CanonicalQuery({{"b", "2"}, {"a/", "x y"}, {"a", "1"}}), "a=1&a%2F=x%20y&b=2");
}

TEST(SigV4Test, ATokenIsSignedAndOneCharacterLessIsAnotherSignature) {
  SignedRequest request{"GET", "/k", {}, {{"host", "h"}, {"x-amz-security-token", "t"}}, kEmpty, true};
  const std::string with = Authorization(request, kS3Key, "20130524T000000Z", "us-east-1", "s3");
  EXPECT_NE(with.find("SignedHeaders=host;x-amz-security-token"), std::string::npos);
  request.path = "/K";
  EXPECT_NE(Authorization(request, kS3Key, "20130524T000000Z", "us-east-1", "s3"), with);
}

}  // namespace
}  // namespace tdbg::storage
