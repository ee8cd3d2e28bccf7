// Where the service's state is, and what its clients' environment holds.
#pragma once

#include <map>
#include <string>

#include "service/local_aws.h"
#include "tdbg/status.h"

namespace tdbg::cli {

/// The directory of --state, else "service" in the user's state directory. \error kFailedPrecondition  no
/// home
Result<std::string> ServiceState(const std::string& given);
/// server.json in it: there while a server runs.
std::string EndpointsPath(const std::string& state);
/// server.lock in it: held for as long as a server lives; one that was killed leaves server.json behind.
std::string ServerLockPath(const std::string& state);

/// \param sdk_configuration  a file for the SageMaker SDK; empty: none
std::map<std::string, std::string> ClientEnvironment(const service::Endpoints& endpoints,
                                                     const std::string& sdk_configuration);

}  // namespace tdbg::cli
