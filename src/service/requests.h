// The requests of each service that is offered, as shapes: docs/sagemaker.md lists the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "service/shape.h"

namespace tdbg::service {

/// Of "SageMaker.CreateTrainingJob" and the like; null: not offered.
ShapePtr RequestShape(const std::string& target);

/// What the shapes of CreateTrainingJob cannot say: what contradicts another member, what is not offered
/// here.
std::optional<Refusal> CheckTrainingJob(const Json& request);

/// 1 to 63 letters, digits and inner hyphens. Such a name is a directory's, too.
bool IsJobName(std::string_view text);
/// s3://BUCKET[/KEY], no component of which leads elsewhere once it is a path.
bool IsS3Uri(std::string_view text);
/// Absolute, below /opt/ml, without "." and "..".
bool IsContainerPath(std::string_view text);

/// A value of HyperParameters as estimators mean it: JSON where it is any, else the text itself.
nlohmann::json HyperParameter(const std::string& value);

}  // namespace tdbg::service
