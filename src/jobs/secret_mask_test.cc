#include "jobs/secret_mask.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/posix.h"
#include "jobs/log_messages.h"

namespace tdbg::jobs {
namespace {

TEST(SecretMaskTest, IsNoMatterOfHowTheBytesCome) {
  const std::string text = "x secret-one y secret-one-more z secret-tw";
  const std::string expected = "x [redacted] y [redacted] z secret-tw";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    SecretMask mask({"secret-one-more", "secret-one", "secret-two"});
    std::string out = mask.Feed(text.substr(0, cut));
    out += mask.Feed(text.substr(cut));
    out += mask.Flush();
    EXPECT_EQ(out, expected) << cut;
  }
}

TEST(SecretMaskTest, SecretsAreThoseOfNamesAndOfTheCommandLine) {
  const auto secrets = SecretsOf({"python", "x.py", "--token", "abcdefgh", "--password=ijklmnop"},
                                 {{"API_KEY", "qrstuvwx"},
                                  {"MINE", "yzyzyzyz"},
                                  {"A_TOKEN", "1"},
                                  {"PATH", "/usr/bin"},
                                  {"PWD", "/data/trainings"}},
                                 {"MINE"});
  EXPECT_EQ(secrets, (std::vector<std::string>{"abcdefgh", "ijklmnop", "qrstuvwx", "yzyzyzyz"}));
}

TEST(SecretMaskTest, WhereSomethingIsIsNoSecret) {
  const auto secrets = SecretsOf({},
                                 {{"START_PWD", "/usr"},
                                  {"GOOGLE_APPLICATION_CREDENTIALS", "/etc/passwd"},
                                  {"TOKENIZERS_PARALLELISM", "falsefalse"},
                                  {"SSH_AUTH_SOCK", "/tmp/ssh/agent.1"},
                                  {"KEYBOARD_LAYOUT", "german-nodeadkeys"},
                                  {"OLDPWD", "/not/there"},
                                  {"MYSQL_PWD", "/not-a-path"}},
                                 {});
  EXPECT_EQ(secrets, (std::vector<std::string>{"%2Fnot-a-path", "%2fnot-a-path", "/not-a-path"}));
}

std::string Masked(const std::vector<std::string>& secrets, const std::string& text) {
  SecretMask mask(secrets);
  std::string out = mask.Feed(text);
  return out + mask.Flush();
}

TEST(SecretMaskTest, ASecretIsFoundAsOtherProgramsWriteIt) {
  const std::string key =
      "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B/AQEF+AASC==\n-----END PRIVATE KEY-----\n";
  const auto secrets = SecretsOf({"t", "--password", "p\"q\\r s/t+u"}, {{"SIGNING_KEY", key}}, {});
  for (const std::string text : {R"(p\"q\\r s/t+u)", R"(p"q\\r s/t+u)", "p%22q%5Cr%20s%2Ft%2Bu",
                                 "p%22q%5cr%20s%2ft%2bu", "p%22q%5Cr+s%2Ft%2Bu", "p%22q%5Cr%20s/t%2Bu"})
    EXPECT_EQ(Masked(secrets, "<" + text + ">"), "<[redacted]>") << text;
  EXPECT_EQ(Masked(secrets, "  MIIEvQIBADANBgkqhkiG9w0B/AQEF+AASC==\r\n"), "  [redacted]\r\n");
  const std::string escaped = R"(-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B/AQEF+AASC==\n)";
  EXPECT_EQ(Masked(secrets, "x" + escaped + R"(-----END PRIVATE KEY-----\n'y)"), "x[redacted]'y");
}

TEST(SecretMaskTest, SecretsWithinValuesAreSecrets) {
  const auto secrets = SecretsOf(
      {"sh", "-c", "TOKEN=abcdef9 t --secret ghijkl9"},
      {{"DATABASE_URL", "postgres://me:pa55word@h/db"},
       {"ACCOUNT_CREDENTIALS", R"({"type": "service", "private_key": "-KEY-\nMIIEvQIBADANBgkqh\n"})"}},
      {});
  EXPECT_EQ(Masked(secrets, "ghijkl9 abcdef9 me pa55word service"),
            "[redacted] [redacted] me [redacted] service");
  EXPECT_EQ(Masked(secrets, "-KEY-\nMIIEvQIBADANBgkqh\n"), "[redacted]");
  EXPECT_EQ(Masked(secrets, "1: MIIEvQIBADANBgkqh"), "1: [redacted]");
}

TEST(SecretMaskTest, ThousandsOfLongSecretsAllCount) {
  std::vector<std::string> secrets;
  for (int i = 0; i < 3000; ++i) secrets.push_back("s" + std::to_string(i) + std::string(1000, 'x') + "e");
  SecretMask mask(secrets);
  std::string out;
  for (const std::string& secret : secrets) out += mask.Feed(secret + "\n");
  out += mask.Feed(secrets[7].substr(0, 900) + "z");
  out += mask.Flush();
  std::string expected;
  for (size_t i = 0; i < secrets.size(); ++i) expected += "[redacted]\n";
  EXPECT_EQ(out, expected + secrets[7].substr(0, 900) + "z");
}

TEST(LogTaskTest, TakesAnyNumberOfSecrets) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const base::UniqueFd ours(ends[0]), theirs(ends[1]), source(::dup(STDIN_FILENO));
  LogTask task;
  task.run_directory = "/r";
  task.sources.push_back({.read_fd = source.get(), .forward_fd = 1, .stream = 0, .terminal = false});
  for (int i = 0; i < 40; ++i) task.secrets.push_back(std::string(100'000, static_cast<char>('a' + i % 26)));
  task.secrets.emplace_back("\xff\0z", 3);
  ASSERT_EQ(SendTask(ours.get(), task), 0);
  const auto got = ReceiveTask(theirs.get());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->secrets, task.secrets);
  EXPECT_EQ(got->run_directory, "/r");
  ASSERT_EQ(got->sources.size(), 1u);
  EXPECT_TRUE(base::UniqueFd(got->sources[0].read_fd).ok());
}

}  // namespace
}  // namespace tdbg::jobs
