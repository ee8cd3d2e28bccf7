#include "service/functions.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "events/change.h"
#include "service/helpers.h"
#include "service/shape.h"

namespace tdbg::service {
namespace {

constexpr std::string_view kFunctions = "/2015-03-31/functions";
// Lambda's default of 3 s is less than importing boto3 may take on a busy machine.
constexpr int64_t kLeastTimeout = 60;

bool IsFunctionName(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

// "module.function", the module maybe in folders: the file below the code, and the function.
std::pair<std::string, std::string> SplitHandler(const std::string& handler) {
  const size_t dot = handler.rfind('.');
  if (dot == std::string::npos) return {"", handler};
  return {handler.substr(0, dot) + ".py", handler.substr(dot + 1)};
}

// Of "arn:aws:lambda:REGION:ACCOUNT:function:NAME:$LATEST", of parts of that, or of NAME. Of versions there
// is the latest.
std::string NameOf(std::string arn) {
  for (const auto& [code, character] : {std::pair("%3A", ":"), std::pair("%24", "$")}) {
    for (size_t at; (at = arn.find(code)) != std::string::npos;) arn.replace(at, 3, character);
  }
  constexpr std::string_view kLatest = ":$LATEST";
  if (arn.ends_with(kLatest)) arn.resize(arn.size() - kLatest.size());
  return arn.substr(arn.rfind(':') + 1);
}

Refusal BadParameter(std::string message) { return {"InvalidParameterValueException", std::move(message)}; }
Refusal Failed(const Status& status) { return {"InternalFailure", status.message()}; }

bool IsPython(const Json& function) {
  return function["Runtime"].get_ref<const std::string&>().starts_with("python");
}

// Whether the code has the file that the handler names.
Status CheckHandler(const std::string& handler, const std::string& code) {
  const std::string file = SplitHandler(handler).first;
  if (!file.empty() && file.find("..") == std::string::npos && file.front() != '/' &&
      base::LocalFileSystem().Exists(base::JoinPath(code, file)))
    return OkStatus();
  return InvalidArgument(
      fmt::format("handler: found '{}', expected MODULE.FUNCTION of a module that the code holds", handler));
}

const ShapePtr& FunctionShape() {
  static const auto* const shape = new ShapePtr(Structure({
      {"FunctionName", Text(1, 140)},
      {"Runtime", Text()},
      {"Role", Text()},
      {"Handler", Text(0, 128)},
      {"Timeout", Integer(1, 900)},
      {"MemorySize", Integer(128, 32768)},
      {"Description", Text(0, 256)},
      {"Environment", Structure({{"Variables", MapOf(Text())}})},
      {"Code", Structure({{"ZipFile", Text()}, {"S3Bucket", Text(3, 63)}, {"S3Key", Text(1, 1024)}})},
      {"ZipFile", Text()},
      {"S3Bucket", Text(3, 63)},
      {"S3Key", Text(1, 1024)},
  }));
  return *shape;
}

std::string Base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL writes a NUL behind it
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

Answer<Response> Returned(const Invoked& invoked, bool with_log) {
  Response response(invoked.payload);
  response.headers.emplace_back("X-Amz-Executed-Version", "$LATEST");
  if (invoked.failed) response.headers.emplace_back("X-Amz-Function-Error", "Unhandled");
  if (with_log) response.headers.emplace_back("X-Amz-Log-Result", Base64(invoked.output));
  return response;
}

}  // namespace

std::string Functions::Directory(const std::string& name) const {
  return base::JoinPath(directory_, "functions/" + name);
}

Json Functions::Read(const std::string& name) const {
  if (!IsFunctionName(name)) return Json();
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(Directory(name), "function.json"));
  const Json function = text.ok() ? Json::parse(*text, nullptr, false) : Json();
  return function.is_object() ? function : Json();
}

events::Handler Functions::HandlerOf(const Json& function) const {
  const std::string name = function.at("FunctionName");
  const auto [file, call] = SplitHandler(function.at("Handler"));
  events::Handler handler;
  handler.name = name;
  handler.target = fmt::format("{}/code/{}:{}", Directory(name), file, call);
  handler.limit_seconds = std::max(kLeastTimeout, function.value("Timeout", kLeastTimeout));
  const Json variables = function.value("Variables", Json::object());
  for (const auto& [variable, value] : variables.items())
    handler.environment[variable] = value.get<std::string>();
  handler.environment["AWS_LAMBDA_FUNCTION_NAME"] = name;
  return handler;
}

std::optional<events::Handler> Functions::Find(const std::string& arn) const {
  const Json function = Read(NameOf(arn));
  if (function.is_null()) return std::nullopt;
  return HandlerOf(function);
}

Json Functions::Configuration(const Json& function) const {
  const std::string name = function.at("FunctionName");
  return {{"FunctionName", name},
          {"FunctionArn", fmt::format("arn:aws:lambda:{}:{}:function:{}", region_, account_, name)},
          {"Runtime", function.value("Runtime", "python3")},
          {"Role", function.value("Role", "")},
          {"Handler", function.at("Handler")},
          {"Description", function.value("Description", "")},
          {"Timeout", function.value("Timeout", 3)},
          {"MemorySize", function.value("MemorySize", 128)},
          {"Environment", {{"Variables", function.value("Variables", Json::object())}}},
          {"Version", "$LATEST"},
          {"State", "Active"},
          {"LastUpdateStatus", "Successful"}};
}

Refusal Functions::NoSuch(const std::string& name) const {
  return {"ResourceNotFoundException",
          fmt::format("Function not found: arn:aws:lambda:{}:{}:function:{}", region_, account_, name)};
}

Answer<Json> Functions::List() const {
  Json list = Json::array();
  const auto entries = base::LocalFileSystem().List(base::JoinPath(directory_, "functions"));
  for (const base::DirEntry& entry : entries.ok() ? *entries : std::vector<base::DirEntry>()) {
    if (const Json function = Read(entry.name); !function.is_null()) list.push_back(Configuration(function));
  }
  return Json{{"Functions", list}};
}

Answer<Json> Functions::Create(const Json& request, const std::string& name) {
  if (!Read(name).is_null()) return Refusal{"ResourceConflictException", "Function already exist: " + name};
  Json function = {{"FunctionName", name},
                   {"Handler", request.value("Handler", "")},
                   {"Runtime", request.value("Runtime", "")},
                   {"Role", request.value("Role", "")}};
  if (!IsPython(function))
    return BadParameter("runtime: functions in Python alone are offered by this service");
  for (const char* const member : {"Timeout", "MemorySize", "Description"}) {
    if (request.contains(member)) function[member] = request[member];
  }
  function["Variables"] = request.value("/Environment/Variables"_json_pointer, Json::object());
  return PutCode(request.value("Code", Json::object()), function);
}

Answer<Json> Functions::Configure(const Json& request, Json function) {
  for (const char* const member : {"Handler", "Runtime", "Role", "Timeout", "MemorySize", "Description"}) {
    if (request.contains(member)) function[member] = request[member];
  }
  if (request.contains("Environment"))
    function["Variables"] = request["Environment"].value("Variables", Json::object());
  if (!IsPython(function))
    return BadParameter("runtime: functions in Python alone are offered by this service");
  const std::string directory = Directory(function["FunctionName"]);
  if (const Status has = CheckHandler(function["Handler"], base::JoinPath(directory, "code")); !has.ok())
    return BadParameter(has.message());
  if (const Status kept = base::LocalFileSystem().WriteFileAtomic(base::JoinPath(directory, "function.json"),
                                                                  function.dump(2));
      !kept.ok())
    return Failed(kept);
  if (const Status told = changed_(); !told.ok()) return Failed(told);
  return Configuration(function);
}

Answer<Json> Functions::PutCode(const Json& code, const Json& function) {
  const std::string directory = Directory(function["FunctionName"]);
  const std::string fresh = base::JoinPath(directory_, "functions/." + events::NewUuid());
  const std::string unpacked = base::JoinPath(fresh, "code");
  std::error_code ignored;
  Status status = base::LocalFileSystem().CreateDirectories(unpacked);
  std::string archive = base::JoinPath(fresh, "code.zip");
  if (code.contains("ZipFile")) {
    if (status.ok())
      status =
          base::LocalFileSystem().WriteFileAtomic(archive, code["ZipFile"].get_ref<const std::string&>());
  } else if (code.contains("S3Bucket") && code.contains("S3Key")) {
    const std::string key = code["S3Key"];
    const std::string at = base::JoinPath(fresh, "fetched");
    if (status.ok())
      status = Fetch("s3://" + code["S3Bucket"].get<std::string>() + "/" + key, at, [] { return false; });
    archive = base::JoinPath(at, base::BaseName(key));
  } else {
    status = InvalidArgument("code: zipFile, or s3Bucket and s3Key");
  }
  if (status.ok()) status = UnpackZip(archive, unpacked);
  if (status.ok()) status = CheckHandler(function["Handler"], unpacked);
  if (status.ok())
    status =
        base::LocalFileSystem().WriteFileAtomic(base::JoinPath(fresh, "function.json"), function.dump(2));
  if (status.ok()) {
    std::filesystem::remove_all(directory, ignored);
    std::error_code error;
    std::filesystem::rename(fresh, directory, error);
    if (error) status = Unavailable("cannot keep the function: " + error.message());
  }
  std::filesystem::remove_all(fresh, ignored);
  if (status.code() == Code::kInvalidArgument || status.code() == Code::kNotFound)
    return BadParameter(status.message());
  if (!status.ok()) return BadParameter("code: " + status.message());
  if (const Status told = changed_(); !told.ok()) return Failed(told);
  return Configuration(function);
}

Answer<Json> Functions::Delete(const std::string& name) {
  std::error_code error;
  std::filesystem::remove_all(Directory(name), error);
  if (const Status told = changed_(); !told.ok()) return Failed(told);
  return Json::object();
}

Answer<Json> Functions::Change(const FunctionCall& call, const Json& request, const std::string& name,
                               const std::string& verb) {
  const Json function = Read(name);
  if (function.is_null()) return NoSuch(name);
  const bool get = call.method == "GET", put = call.method == "PUT";
  if (verb.empty() && get) return Json{{"Configuration", Configuration(function)}, {"Code", Json::object()}};
  if (verb.empty() && call.method == "DELETE") return Delete(name);
  if (verb == "configuration" && get) return Configuration(function);
  if (verb == "configuration" && put) return Configure(request, function);
  if (verb == "code" && put) return PutCode(request, function);
  // Who may call is not asked here: whoever knows the service's key.
  if (verb == "policy" && call.method == "POST") return Json{{"Statement", "{}"}};
  if (verb.starts_with("policy/") && call.method == "DELETE") return Json::object();
  return Refusal{"UnknownOperationException",
                 "this call of Lambda is not offered by this service (docs/sagemaker.md)"};
}

void Functions::Invoke(const FunctionCall& call, const std::string& name,
                       std::function<void(const Answer<Response>&)> done) {
  auto function = Find(name);
  if (!function) return done(NoSuch(name));
  const bool aside = call.invocation_type == "Event";
  if (!aside && !call.invocation_type.empty() && call.invocation_type != "RequestResponse" &&
      call.invocation_type != "DryRun")
    return done(BadParameter("invocationType: accepted: RequestResponse, Event, DryRun"));
  Answer<Json> payload = ParseValue(call.body);
  if (!payload.ok()) return done(Refusal{"InvalidRequestContentException", payload.refusal().message});
  if (call.invocation_type == "DryRun") return done(Response(Json(), 204));
  const bool with_log = call.log_type == "Tail";
  const auto told = [done, aside, with_log](const Invoked& invoked) {
    if (!aside) done(Returned(invoked, with_log));
  };
  if (!invocations_.Start(*std::move(function), *payload, events::NewUuid(), told))
    return done(Refusal{"TooManyRequestsException", "Rate Exceeded: too many functions are running"});
  if (aside) done(Response(Json(), 202));
}

void Functions::Handle(const FunctionCall& call, std::function<void(const Answer<Response>&)> done) {
  std::string_view path = call.path.substr(0, call.path.find('?'));
  path.remove_prefix(std::min(path.size(), kFunctions.size()));
  while (path.ends_with('/')) path.remove_suffix(1);
  std::string name = path.empty() ? "" : std::string(path.substr(1));
  const size_t slash = name.find('/');
  const std::string verb = slash == std::string::npos ? "" : name.substr(slash + 1);
  const bool invoke = verb == "invocations" && call.method == "POST";
  Json request = Json::object();
  if (!invoke && call.method != "GET" && call.method != "DELETE") {
    Answer<Json> parsed = ParseBody(call.body);
    if (!parsed.ok()) return done(parsed.refusal());
    if (const auto bad = Check(*parsed, *FunctionShape())) return done(*bad);
    request = Known(*parsed, *FunctionShape());
  }
  if (path.empty() && call.method == "GET") return done(AsResponse(List()));
  name = NameOf(path.empty() ? request.value("FunctionName", "") : name.substr(0, slash));
  if (!IsFunctionName(name))
    return done(BadParameter("functionName: found '" + base::ToValidUtf8(name.substr(0, 100)) +
                             "', expected letters, digits, '-', '_'"));
  if (path.empty() && call.method == "POST") return done(AsResponse(Create(request, name)));
  if (invoke) return Invoke(call, name, std::move(done));
  done(AsResponse(Change(call, request, name, verb)));
}

}  // namespace tdbg::service
