// SPDX-License-Identifier: Apache-2.0
#include "rths_controller/parameters.hpp"

#include <algorithm>

namespace rths_controller
{

namespace
{

using rclcpp::ParameterType;

std::string joined(const std::vector<std::string> & names)
{
  std::string text;
  for (const auto & name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

}  // namespace

Parameters::Parameters(rclcpp_lifecycle::LifecycleNode & node) : node_(node)
{
  required("address", settings.address);
  required("port", settings.port);
  required("emulator", settings.emulator);
  required("bridged", settings.bridged);
  required("watchdog", settings.watchdog);
  required("persistence", settings.persistence);
  required("interlock", interlock);
  const auto joints = declared("joints");
  if (joints.get_type() != ParameterType::PARAMETER_STRING_ARRAY) {
    object(joints, "names of joints");
    return;
  }
  for (const auto & joint : joints.as_string_array()) {
    settings.axes.push_back(axis(joint));
  }
  refuse_unknown();
}

AxisSettings Parameters::axis(const std::string & joint)
{
  const std::string name = "axes." + joint;
  AxisSettings axis;
  std::string force = joint + "/effort";
  axis.joint = joint;
  required(name + ".limits.stroke", axis.limits.stroke, "m");
  required(name + ".limits.velocity", axis.limits.velocity, "m/s");
  required(name + ".limits.acceleration", axis.limits.acceleration, "m/s^2");
  required(name + ".limits.following", axis.limits.following, "m/s^2; .inf disables it");
  required(name + ".limits.force", axis.limits.force, "N; .inf disables it");
  required(name + ".limits.error", axis.limits.error, "m; .inf disables it");
  optional(name + ".group", axis.group);
  optional(name + ".position.scale", axis.position.scale, "m per unit of the interface");
  optional(name + ".position.sign", axis.position.sign);
  optional(name + ".force.scale", axis.force.scale, "N per unit of the interface");
  optional(name + ".force.sign", axis.force.sign);
  const auto interface = declared(name + ".force.interface");
  if (interface.get_type() == ParameterType::PARAMETER_STRING) {
    force = interface.as_string();
  } else if (interface.get_type() != ParameterType::PARAMETER_NOT_SET) {
    object(interface, "the name of a state interface");
  }
  forces.push_back(force);
  return axis;
}

rclcpp::Parameter Parameters::declared(const std::string & name)
{
  names_.push_back(name);
  if (!node_.has_parameter(name)) {
    rcl_interfaces::msg::ParameterDescriptor descriptor;
    descriptor.dynamic_typing = true;  // accepts 1 for a real
    node_.declare_parameter(name, rclcpp::ParameterValue(), descriptor);
  }
  return node_.get_parameter(name);
}

void Parameters::object(const rclcpp::Parameter & parameter, const std::string & bound)
{
  const bool missing = parameter.get_type() == ParameterType::PARAMETER_NOT_SET;
  const std::string value = missing ? ": is missing" : " = " + parameter.value_to_string();
  objections_.push_back(parameter.get_name() + value + ": must be " + bound);
}

void Parameters::required(const std::string & name, double & value, const std::string & unit)
{
  const auto parameter = declared(name);
  if (parameter.get_type() == ParameterType::PARAMETER_DOUBLE) {
    value = parameter.as_double();
  } else if (parameter.get_type() == ParameterType::PARAMETER_INTEGER) {
    value = static_cast<double>(parameter.as_int());
  } else {
    object(parameter, "a number, " + unit);
    value = 1.0;  // avoids a second objection
  }
}

void Parameters::required(const std::string & name, std::int64_t & value)
{
  const auto parameter = declared(name);
  if (parameter.get_type() == ParameterType::PARAMETER_INTEGER) {
    value = parameter.as_int();
  } else {
    object(parameter, "an integer");
  }
}

void Parameters::required(const std::string & name, bool & value)
{
  const auto parameter = declared(name);
  if (parameter.get_type() == ParameterType::PARAMETER_BOOL) {
    value = parameter.as_bool();
  } else {
    object(parameter, "true or false");
  }
}

void Parameters::required(const std::string & name, std::string & value)
{
  const auto parameter = declared(name);
  if (parameter.get_type() == ParameterType::PARAMETER_STRING) {
    value = parameter.as_string();
  } else {
    object(parameter, "a string");
  }
}

void Parameters::optional(const std::string & name, double & value, const std::string & unit)
{
  if (declared(name).get_type() != ParameterType::PARAMETER_NOT_SET) {
    required(name, value, unit);
  }
}

void Parameters::optional(const std::string & name, std::int64_t & value)
{
  if (declared(name).get_type() != ParameterType::PARAMETER_NOT_SET) {
    required(name, value);
  }
}

// A misspelt optional parameter would silently have its default. Only parameters of axes are optional.
void Parameters::refuse_unknown()
{
  for (const auto & entry : node_.get_node_parameters_interface()->get_parameter_overrides()) {
    const std::string & name = entry.first;
    if (name.rfind("axes.", 0) == 0 && std::find(names_.begin(), names_.end(), name) == names_.end()) {
      objections_.push_back(name + ": unknown parameter; must be one of " + joined(names_));
    }
  }
}

}  // namespace rths_controller
