// tdbg serve: SageMaker's API on this machine, for programs that are written for it.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/companion.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/aws_place.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "http/access.h"
#include "service/entry.h"
#include "service/listener.h"
#include "service/local_aws.h"
#include "service/service.h"
#include "service/tender.h"

namespace tdbg::cli {
namespace {

std::string Variable(const char* name, const char* otherwise = "") {
  const char* const value = ::getenv(name);
  return value != nullptr && *value ? value : otherwise;
}

std::string PortPath(const std::string& state) { return base::JoinPath(state, "server.port"); }

// Jobs outlive a server, and what they started has its address: the next one is found there.
Result<std::unique_ptr<service::Listener>> ListenAgain(const service::ListenerOptions& options,
                                                       const std::string& state) {
  const auto last = base::LocalFileSystem().ReadFile(PortPath(state), 16);
  const int64_t port = last.ok() ? base::ParseInt(base::Trim(*last)).value_or(0) : 0;
  if (options.port == 0 && port > 0 && port <= 65535) {
    service::ListenerOptions again = options;
    again.port = static_cast<uint16_t>(port);
    if (auto listener = service::Listener::Listen(std::move(again)); listener.ok()) return listener;
  }
  return service::Listener::Listen(options);
}

class ServeCommand : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string help() const override { return "SageMaker's API on this machine: estimators train here"; }
  bool TakesCommand() const override { return true; }
  void SetCommand(std::vector<std::string> words) override { command_ = std::move(words); }
  void Define(Flags& flags) override {
    flags.AddOption("--port", port_, "of 127.0.0.1; default: the last server's, else any that is free")
        .Between(0, 65535);
    flags
        .AddOption("--host", host_,
                   "an address that others reach, besides 127.0.0.1: with --tls-cert and --tls-key alone")
        .TypeName("ADDRESS");
    flags.AddOption("--tls-port", tls_port_, "of --host; default: any that is free").Between(0, 65535);
    flags.AddOption("--tls-name", tls_name_, "what others call this machine; default: its host name")
        .TypeName("NAME");
    flags.AddOption("--tls-cert", tls_cert_, "with --host: the certificate, in PEM").TypeName("FILE");
    flags.AddOption("--tls-key", tls_key_, "with --host: its private key, in PEM").TypeName("FILE");
    flags.AddOption("--image", images_, "the Python environment that stands for an image; repeatable")
        .TypeName("REPOSITORY[:VERSION]=PYTHON")
        .Repeatable();
    flags
        .AddOption("--package-index", package_index_,
                   "where requirements.txt of a job is installed from: a URL, a folder of wheels, or pip (as "
                   "that is configured); default: it is not installed")
        .TypeName("INDEX");
    flags
        .AddOption(
            "--max-jobs", max_jobs_,
            "jobs that train at the same time; more wait, in the order of their creation; default: as many "
            "as this process may use processors")
        .Between(1, 1'000'000);
    flags.AddOption("--config", config_, "images: REPOSITORY[:VERSION]: PYTHON, in YAML (docs/sagemaker.md)")
        .TypeName("FILE");
    flags.AddOption("--state", state_, "where its jobs are; default: the user's state directory")
        .TypeName("DIR");
    flags.AddFlag("--local-aws", local_aws_,
                  "start moto_server as S3, STS and IAM; what is in it ends with it");
    flags.AddFlag("--json", json_, "the addresses as one JSON document on stdout");
    // For the service itself: a job's process, and the first one inside a job's /opt/ml.
    flags.AddOption("--tend", tend_, "").Hidden();
    flags.AddOption("--enter", enter_, "").Hidden();
    flags.Footer(
        "\nServes until ctrl-C; jobs go on without it. Programs that are to find it: tdbg aws-env -- "
        "COMMAND.");
  }

  Result<int> Run() override {
    if (!enter_.empty()) {
      TDBG_RETURN_IF_ERROR(service::EnterContainer(enter_));
      return kExitRefused;
    }
    if (!command_.empty()) return InvalidArgument("serve: starts no command; tdbg aws-env -- COMMAND does");
    if (!tend_.empty()) return Tend();
    TDBG_RETURN_IF_ERROR(CheckHost());
    return Serve();
  }

 private:
  // Split off, in a session of its own: neither a terminal nor the server takes it along.
  Result<int> Tend() const {
    const pid_t child = ::fork();
    if (child < 0) return ErrnoStatus(errno, "fork");
    if (child > 0) return kExitOk;
    (void)::setsid();
    ::signal(SIGPIPE, SIG_IGN);
    TDBG_RETURN_IF_ERROR(service::TendJob(tend_));
    return kExitOk;
  }

  bool Remote() const { return !host_.empty() && host_ != "127.0.0.1" && host_ != "localhost"; }
  Status CheckHost() const {
    if (!Remote()) {
      if (tls_cert_.empty() && tls_key_.empty() && tls_name_.empty() && tls_port_ == 0) return OkStatus();
      return InvalidArgument("serve: --tls-* is for --host ADDRESS; 127.0.0.1 is served without");
    }
    if (tls_cert_.empty() || tls_key_.empty())
      return InvalidArgument(fmt::format(
          "serve: --host {}: whoever may create a training job runs programs on this machine, so elsewhere "
          "than on 127.0.0.1 it is served over TLS alone: give --tls-cert FILE and --tls-key FILE, or use "
          "ssh -L PORT:127.0.0.1:PORT HOST",
          Printable(host_)));
    if (local_aws_)
      return InvalidArgument(
          "serve: --host with --local-aws: moto_server has no TLS and asks nobody who they are, so it stays "
          "on 127.0.0.1; name an S3 that both machines reach with AWS_ENDPOINT_URL_S3");
    return OkStatus();
  }

  Result<service::Images> ReadImages() const {
    service::Images images;
    if (!config_.empty()) {
      TDBG_ASSIGN_OR_RETURN(const Document document, ReadDocument(config_));
      TDBG_ASSIGN_OR_RETURN(images, service::Images::Parse(document.value, document.source()));
    }
    for (const std::string& image : images_) TDBG_RETURN_IF_ERROR(images.Add(image));
    if (!package_index_.empty())
      TDBG_RETURN_IF_ERROR(images.SetPackageIndex(package_index_).Annotate("--package-index"));
    return images;
  }

  Result<int> Serve();

  int port_ = 0, tls_port_ = 0;
  // More trainings than that only take turns, and each holds its memory meanwhile.
  int max_jobs_ = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::string host_, tls_name_, tls_cert_, tls_key_, config_, state_, tend_, enter_, package_index_;
  std::vector<std::string> images_, command_;
  bool local_aws_ = false, json_ = false;
};

Result<int> ServeCommand::Serve() {
  TDBG_ASSIGN_OR_RETURN(const std::string state, ServiceState(state_));
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(base::JoinPath(state, "jobs")));
  // Of two servers on the same jobs each would look after what the other one has just started.
  const auto lock = base::LocalFileSystem().Lock(ServerLockPath(state));
  if (!lock.ok())
    return FailedPrecondition(
        fmt::format("serve: another server has these jobs ({}); end it, or name other ones with "
                    "--state",
                    state));
  service::ServiceOptions options;
  options.directory = state;
  TDBG_ASSIGN_OR_RETURN(options.images, ReadImages());
  if (config_.empty()) options.images.SayWhere("the file of tdbg serve --config");

  service::Endpoints endpoints;
  endpoints.region = Variable("AWS_REGION", Variable("AWS_DEFAULT_REGION", "us-east-1").c_str());
  endpoints.account = "123456789012";
  std::unique_ptr<service::LocalAws> aws;
  if (local_aws_) {
    TDBG_ASSIGN_OR_RETURN(aws, service::LocalAws::Start(0, endpoints.region));
    aws->Tell(&endpoints);
  } else {
    endpoints.s3 = Variable("AWS_ENDPOINT_URL_S3", Variable("AWS_ENDPOINT_URL").c_str());
    endpoints.access_key = Variable("AWS_ACCESS_KEY_ID");
    endpoints.secret_key = Variable("AWS_SECRET_ACCESS_KEY");
    endpoints.session_token = Variable("AWS_SESSION_TOKEN");
    if (endpoints.access_key.empty() || endpoints.secret_key.empty())
      return FailedPrecondition(
          "serve: no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with which jobs reach their bucket and by "
          "which "
          "clients are known; set them (aws configure export-credentials --format env), or give --local-aws");
  }
  options.region = endpoints.region;
  options.account = endpoints.account;

  service::Service* answering = nullptr;
  service::ListenerOptions listen;
  listen.port = static_cast<uint16_t>(port_);
  listen.access_keys = {endpoints.access_key};
  if (Remote())
    listen.tls = service::TlsOptions{host_, static_cast<uint16_t>(tls_port_), tls_cert_, tls_key_,
                                     http::RandomToken()};
  listen.handle = [&answering](const service::Request& request, service::Done done) {
    if (request.target.empty()) {
      answering->HandleLambda(
          {request.method, request.path, request.body, request.invocation_type, request.log_type},
          std::move(done));
    } else {
      done(service::AsResponse(answering->Handle(request.target, request.body)));
    }
  };
  service::Listener* listening = nullptr;
  listen.look = [&] {
    answering->TendOrphans();
    if (aws && !aws->Lives()) {
      Tell("tdbg: moto_server has ended, and what was in it is gone\n");
      listening->Stop();
    }
  };
  const std::string token = listen.tls ? listen.tls->token : "";
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<service::Listener> listener, ListenAgain(listen, state));
  listening = listener.get();
  (void)base::LocalFileSystem().WriteFileAtomic(PortPath(state), std::to_string(listener->port()) + "\n");
  endpoints.service = fmt::format("http://127.0.0.1:{}", listener->port());
  if (Remote())
    endpoints.remote = fmt::format("https://{}:{}/{}", tls_name_.empty() ? base::HostName() : tls_name_,
                                   listener->tls_port(), token);
  endpoints.pid = ::getpid();
  options.endpoint = endpoints.service;
  options.max_jobs = static_cast<size_t>(max_jobs_);
  // Jobs and what they start have the server's environment.
  for (const auto& [name, value] : ClientEnvironment(endpoints, "")) ::setenv(name.c_str(), value.c_str(), 1);
  options.tend = [index = options.images.package_index()](const std::string& job) -> Status {
    const base::UniqueFd log =
        base::OpenPlainFile(base::JoinPath(job, "tender.log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    base::SpawnOptions spawn;
    spawn.argv = {base::SelfExecutable(), "serve", "--tend", job};
    spawn.output_fd = log.get();
    spawn.pipe_stdin = true;
    spawn.set_env = {{service::kPackageIndexVariable, index}};
    TDBG_ASSIGN_OR_RETURN(base::Child child, base::Child::Spawn(spawn));
    (void)child.Wait(-1);
    return OkStatus();
  };
  service::Service service(std::move(options));
  answering = &service;
  TDBG_RETURN_IF_ERROR(service::WriteEndpoints(EndpointsPath(state), endpoints));
  if (json_)
    PrintJson({{"address", endpoints.service},
               {"s3", endpoints.s3},
               {"state", state},
               {"pid", endpoints.pid},
               {"remote", endpoints.remote}});
  else
    Print("{}\n", endpoints.service);
  TDBG_RETURN_IF_ERROR(FlushOut());
  if (!json_) {
    if (aws) Tell("tdbg: S3, STS and IAM: moto_server at {}; what is in it ends with it\n", endpoints.s3);
    if (Remote())
      Tell("tdbg: {} port {}: over TLS, for who has the address that `tdbg aws-env --remote` prints\n", host_,
           listener->tls_port());
    Tell("tdbg: serving until ctrl-C; elsewhere: tdbg aws-env -- python your_program.py\n");
  }
  listener->Serve();
  (void)base::LocalFileSystem().Remove(EndpointsPath(state));
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace tdbg::cli
