// tdbg aws-env: what a program needs in order to find the service.
#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/companion.h"
#include "base/file.h"
#include "cli/aws_place.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"

namespace tdbg::cli {
namespace {

class AwsEnvCommand : public Command {
 public:
  std::string name() const override { return "aws-env"; }
  std::string help() const override {
    return "run a program against tdbg serve, or print the variables it needs";
  }
  bool TakesCommand() const override { return true; }
  void SetCommand(std::vector<std::string> words) override { command_ = std::move(words); }
  void Define(Flags& flags) override {
    flags.AddOption("--state", state_, "that of tdbg serve").TypeName("DIR");
    flags.AddFlag("--remote", remote_, "for another machine: the address of tdbg serve --host, a secret");
    flags.AddFlag("--json", json_, "the variables as one JSON document on stdout");
    flags.Footer(
        "\nusage: tdbg aws-env [--state DIR] [-- COMMAND [ARGUMENTS]]\nexamples: tdbg aws-env -- python "
        "train_with_estimator.py; eval \"$(tdbg aws-env)\"");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::string state, ServiceState(state_));
    auto endpoints = service::ReadEndpoints(EndpointsPath(state));
    // One that was killed leaves its addresses behind.
    const bool serves = base::LocalFileSystem().IsLocked(ServerLockPath(state));
    if (endpoints.status().code() == Code::kNotFound || (endpoints.ok() && !serves))
      return FailedPrecondition(
          fmt::format("aws-env: no server is running ({}); start one: tdbg serve --local-aws", state));
    if (!endpoints.ok()) return endpoints.status();
    if (remote_ && endpoints->remote.empty())
      return FailedPrecondition(
          "aws-env: --remote: this server listens on 127.0.0.1 alone; start it with --host, --tls-cert and "
          "--tls-key");
    if (remote_) endpoints->service = endpoints->remote;
    const std::string configuration = base::JoinPath(state, "sagemaker-sdk.yaml");
    TDBG_RETURN_IF_ERROR(
        base::LocalFileSystem().WriteFileAtomic(configuration, SdkConfiguration(*endpoints)));
    auto environment = ClientEnvironment(*endpoints, configuration);
    if (remote_) environment.erase("SAGEMAKER_USER_CONFIG_OVERRIDE");  // a file of this machine
    if (!endpoints->s3.empty() && !remote_) {
      // SDKs name STS by its public address, which no variable changes.
      const std::string folder = base::JoinPath(base::FindPythonHome(), "tdbg/awsclient");
      const char* const before = ::getenv("PYTHONPATH");
      environment["PYTHONPATH"] = before != nullptr && *before ? folder + ":" + before : folder;
    }
    if (command_.empty()) return Show(environment);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> words;
    for (std::string& word : command_) words.push_back(word.data());
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
    const int error = errno;
    Tell("tdbg: {}\n", ErrnoStatus(error, "cannot start " + Printable(command_[0])).message());
    return error == ENOENT ? kExitNoCommand : kExitNotExecutable;
  }

 private:
  // Without it SDKs ask STS for an account only to make up a bucket's name, and send what they count to AWS.
  static std::string SdkConfiguration(const service::Endpoints& endpoints) {
    return fmt::format(
        "SchemaVersion: '1.0'\nSageMaker:\n  PythonSDK:\n    Modules:\n      TelemetryOptOut: true\n      "
        "Session:\n        "
        "DefaultS3Bucket: sagemaker-{}-{}\n  TrainingJob:\n    RoleArn: "
        "arn:aws:iam::{}:role/tdbg-service-role\n",
        endpoints.region, endpoints.account, endpoints.account);
  }

  Result<int> Show(const std::map<std::string, std::string>& environment) const {
    Json variables = Json::object();
    for (const auto& [name, value] : environment) {
      variables[name] = value;
      if (!json_) Print("export {}={}\n", name, ShellWord(value));
    }
    if (json_) PrintJson({{"environment", variables}});
    return kExitOk;
  }

  std::string state_;
  bool json_ = false, remote_ = false;
  std::vector<std::string> command_;
};

}  // namespace

std::unique_ptr<Command> MakeAwsEnvCommand() { return std::make_unique<AwsEnvCommand>(); }

}  // namespace tdbg::cli
