// SPDX-License-Identifier: Apache-2.0
#include "rths_controller/parameters.hpp"

#include <algorithm>

namespace rths_controller
{

namespace
{

using rclcpp::ParameterType;

std::string joined(const std::vector<std::string> & words)
{
  std::string all;
  for (const auto & word : words) {
    all += (all.empty() ? "" : ", ") + word;
  }
  return all;
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
  const auto joints = found("joints");
  if (joints.get_type() != ParameterType::PARAMETER_STRING_ARRAY) {
    object(joints, "names of joints");
    return;
  }
  for (const auto & joint : joints.as_string_array()) {
    settings.axes.push_back(axis(joint));
  }
  refuse_others();
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
  required(name + ".limits.following", axis.limits.following, "m/s^2; .inf switches it off");
  required(name + ".limits.force", axis.limits.force, "N; .inf switches it off");
  required(name + ".limits.error", axis.limits.error, "m; .inf switches it off");
  optional(name + ".group", axis.group);
  optional(name + ".position.scale", axis.position.scale, "m for 1 of the interface");
  optional(name + ".position.sign", axis.position.sign);
  optional(name + ".force.scale", axis.force.scale, "N for 1 of the interface");
  optional(name + ".force.sign", axis.force.sign);
  const auto interface = found(name + ".force.interface");
  if (interface.get_type() == ParameterType::PARAMETER_STRING) {
    force = interface.as_string();
  } else if (interface.get_type() != ParameterType::PARAMETER_NOT_SET) {
    object(interface, "the name of a state interface");
  }
  forces.push_back(force);
  return axis;
}

const rclcpp::Parameter Parameters::found(const std::string & name)
{
  known_.push_back(name);
  if (!node_.has_parameter(name)) {
    rcl_interfaces::msg::ParameterDescriptor descriptor;
    descriptor.dynamic_typing = true;  // 1 is a real, too
    node_.declare_parameter(name, rclcpp::ParameterValue(), descriptor);
  }
  return node_.get_parameter(name);
}

void Parameters::object(const rclcpp::Parameter & parameter, const std::string & wanted)
{
  const bool missing = parameter.get_type() == ParameterType::PARAMETER_NOT_SET;
  const std::string found = missing ? ": is missing" : " = " + parameter.value_to_string();
  objections_.push_back(parameter.get_name() + found + ": must be " + wanted);
}

void Parameters::required(const std::string & name, double & value, const std::string & unit)
{
  const auto given = found(name);
  if (given.get_type() == ParameterType::PARAMETER_DOUBLE) {
    value = given.as_double();
  } else if (given.get_type() == ParameterType::PARAMETER_INTEGER) {
    value = static_cast<double>(given.as_int());
  } else {
    object(given, "a number, " + unit);
    value = 1.0;  // one objection is enough
  }
}

void Parameters::required(const std::string & name, std::int64_t & value)
{
  const auto given = found(name);
  if (given.get_type() == ParameterType::PARAMETER_INTEGER) {
    value = given.as_int();
  } else {
    object(given, "a whole number");
  }
}

void Parameters::required(const std::string & name, bool & value)
{
  const auto given = found(name);
  if (given.get_type() == ParameterType::PARAMETER_BOOL) {
    value = given.as_bool();
  } else {
    object(given, "true or false");
  }
}

void Parameters::required(const std::string & name, std::string & value)
{
  const auto given = found(name);
  if (given.get_type() == ParameterType::PARAMETER_STRING) {
    value = given.as_string();
  } else {
    object(given, "a text");
  }
}

void Parameters::optional(const std::string & name, double & value, const std::string & unit)
{
  if (found(name).get_type() != ParameterType::PARAMETER_NOT_SET) {
    required(name, value, unit);
  }
}

void Parameters::optional(const std::string & name, std::int64_t & value)
{
  if (found(name).get_type() != ParameterType::PARAMETER_NOT_SET) {
    required(name, value);
  }
}

// A misspelt optional one would be a silent default. Others than those of the axes are all required.
void Parameters::refuse_others()
{
  for (const auto & given : node_.get_node_parameters_interface()->get_parameter_overrides()) {
    const std::string & name = given.first;
    if (name.rfind("axes.", 0) == 0 && std::find(known_.begin(), known_.end(), name) == known_.end()) {
      objections_.push_back(name + ": is not known; known are " + joined(known_));
    }
  }
}

}  // namespace rths_controller
