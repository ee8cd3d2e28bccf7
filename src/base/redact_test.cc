#include "base/redact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tdbg::base {
namespace {

using testing::ElementsAre;

TEST(RedactTest, NamesOfSecrets) {
  for (const char* name : {"--token",
                           "token",
                           "HF_TOKEN",
                           "WANDB_API_KEY",
                           "--api-key",
                           "apiKey",
                           "wandb.api_key",
                           "PASSWORD",
                           "db_password",
                           "client-secret",
                           "AWS_SECRET_ACCESS_KEY",
                           "--credentials",
                           "Authorization",
                           "github_access_token",
                           "--auth_token",
                           "private-key",
                           "MYSQL_PWD",
                           "SLACK_WEBHOOK_URL",
                           "TDBG_SMS_WEBHOOK",
                           "--pwd",
                           "--hub_token"}) {
    EXPECT_TRUE(NamesASecret(name)) << name;
  }
}

TEST(RedactTest, NamesOfWhatATrainingSaysAllDay) {
  for (const char* name : {"--max_tokens",
                           "--max-new-tokens",
                           "--tokenizer",
                           "tokenizer_name",
                           "--pad_token",
                           "eos-token",
                           "--token_dim",
                           "num_tokens",
                           "--token-file",
                           "--key_size",
                           "query_key_norm",
                           "keypoints",
                           "--secret-name",
                           "author",
                           "monkey",
                           "--passes",
                           "--bypass",
                           "",
                           "-",
                           "--authors",
                           "PWD",
                           "webhook",
                           "BASE_URL",
                           "TOKENIZERS_PARALLELISM",
                           "KEYBOARD_LAYOUT",
                           "SSH_AUTH_SOCK",
                           "OLDPWD",
                           "tokens_per_step"}) {
    EXPECT_FALSE(NamesASecret(name)) << name;
  }
}

TEST(RedactTest, ACommandLosesItsSecretsOnly) {
  EXPECT_THAT(
      RedactCommand({"env", "WANDB_API_KEY=abc def", "python", "train.py", "--token", "tok-1", "--lr=0.1",
                     "--password=x y", "--max_tokens", "512", "--api-key", "--verbose", "--pad_token",
                     "[PAD]", "+wandb.api_key=zzz9", "--use_auth_token", "True", "--hub_token", "$HF_TOKEN"}),
      ElementsAre("env", "WANDB_API_KEY=[redacted]", "python", "train.py", "--token", "[redacted]",
                  "--lr=0.1", "--password=[redacted]", "--max_tokens", "512", "--api-key", "--verbose",
                  "--pad_token", "[PAD]", "+wandb.api_key=[redacted]", "--use_auth_token", "True",
                  "--hub_token", "$HF_TOKEN"));
  EXPECT_THAT(RedactCommand({"bash", "-c", "TOKEN=abc9 python t.py --secret s3cr --n 3"}),
              ElementsAre("bash", "-c", "TOKEN=[redacted] python t.py --secret [redacted] --n 3"));
}

TEST(RedactTest, UrlsLoseTheirCredentials) {
  EXPECT_EQ(RedactText("https://me:pw@host:8080/a/b?x=1&token=abc&y=2#z"),
            "https://me:[redacted]@host:8080/a/b?x=1&token=[redacted]&y=2#z");
  EXPECT_EQ(RedactText("clone https://ghtoken@github.com/a/b.git and git+ssh://git@github.com/a"),
            "clone https://[redacted]@github.com/a/b.git and git+ssh://git@github.com/a");
  EXPECT_EQ(RedactText("postgres://u:p@h/db?sslmode=on"), "postgres://u:[redacted]@h/db?sslmode=on");
  EXPECT_EQ(RedactText("https://s3/x?X-Amz-Signature=ab12&X-Amz-Date=3"),
            "https://s3/x?X-Amz-Signature=[redacted]&X-Amz-Date=3");
  EXPECT_EQ(RedactText("https://hooks.slack.com/services/T0/B0/xyz"), "https://hooks.slack.com/[redacted]");
  EXPECT_EQ(RedactText("http://127.0.0.1:80/hooks/mine"), "http://127.0.0.1:80/hooks/mine");
}

TEST(RedactTest, AHooksPathMayBeTheSecret) {
  EXPECT_EQ(RedactText("webhook:https://h.example/hook/3fA9c0d17b2e4a55"),
            "webhook:https://h.example/[redacted]");
  EXPECT_EQ(RedactText("webhook: https://h.example/hook/3fA9c0d17b2e4a55"),
            "webhook: https://h.example/[redacted]");
  EXPECT_EQ(RedactText("all_zero:on_issue=exec:curl https://h.example/ping/3fA9-c0d1-7b2e-4a55 -s"),
            "all_zero:on_issue=exec:curl https://h.example/[redacted] -s");
  EXPECT_EQ(RedactText("exec:u=https://h.example/ping/3fA9c0d17b2e4a55;curl $u"),
            "exec:u=https://h.example/[redacted];curl $u");
  EXPECT_EQ(RedactText("exec:curl https://h.example/ping/3fA9c0d17b2e4a55&"),
            "exec:curl https://h.example/[redacted]");
  EXPECT_EQ(RedactText("webhook:http://127.0.0.1:80/hooks/mine"), "webhook:http://127.0.0.1:80/hooks/mine");
  EXPECT_EQ(RedactText("webhook:https://u:p@h.example/hook"), "webhook:https://u:[redacted]@h.example/hook");
  EXPECT_EQ(RedactText("https://h.example/data/3fA9c0d17b2e4a55"), "https://h.example/data/3fA9c0d17b2e4a55");
}

TEST(RedactTest, TellsEachSecretThatItTookByItself) {
  std::vector<std::string> taken;
  RedactText("curl -H 'X-Api-Key: first-one' https://me:second1@h/x?sig=third11 $TOKEN", &taken);
  EXPECT_THAT(taken, ElementsAre("first-one", "second1", "third11"));
  taken.clear();
  RedactCommand({"sh", "-c", "TOKEN=abcdef9 t --secret ghijkl9", "--password", "mnopqr9", "--api-key=stuvwx9",
                 "--token", "$T"},
                &taken);
  EXPECT_THAT(taken, ElementsAre("abcdef9", "ghijkl9", "mnopqr9", "stuvwx9"));
}

TEST(RedactTest, KeysOfWellKnownShapes) {
  EXPECT_EQ(RedactText("a AKIAABCDEFGHIJKLMNO1 b"), "a [redacted] b");
  EXPECT_EQ(RedactText("x=ghp_0123456789abcdefghijABCDEF;"), "x=[redacted];");
  EXPECT_EQ(RedactText("hf_0123456789abcdefghijABCDEF"), "[redacted]");
  EXPECT_EQ(RedactText("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefgh12345678"), "[redacted]");
  EXPECT_EQ(RedactText("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- end"),
            "[redacted] end");
  EXPECT_EQ(RedactText("sk-learn-pipelines-of-mine hf_model task-sk-1"),
            "sk-learn-pipelines-of-mine hf_model task-sk-1");
}

TEST(RedactTest, ShellCommandsStayUsableWhereTheyNameAVariable) {
  EXPECT_EQ(RedactText("curl -H \"Authorization: Bearer abc123\" $URL"),
            "curl -H \"Authorization: Bearer [redacted]\" $URL");
  for (const char* text :
       {"curl -H \"Authorization: Bearer $TOKEN\" https://h/x", "tool --token $T --out x.json",
        "mail -s 'loss is nan' me@example.com", "echo token", "std::token::x", "password: $PW"}) {
    EXPECT_EQ(RedactText(text), text);
  }
  EXPECT_EQ(RedactText("{\"api_key\": \"abc\", \"lr\": 0.1}"), "{\"api_key\": \"[redacted]\", \"lr\": 0.1}");
}

TEST(RedactTest, OnceIsEnough) {
  for (const char* text : {"--token abc --x 1", "https://u:p@h/x?token=1a", "TOKEN=a9",
                           "Authorization: Basic dXNlcg==", "ghp_0123456789abcdefghij"}) {
    const std::string once = RedactText(text);
    EXPECT_NE(once, text);
    EXPECT_EQ(RedactText(once), once);
  }
}

}  // namespace
}  // namespace tdbg::base
