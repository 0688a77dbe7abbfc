// SPDX-License-Identifier: Apache-2.0
// Settings of a receiver, from the parameters of its node.
#pragma once

#include <string>
#include <vector>

#include <rclcpp_lifecycle/lifecycle_node.hpp>

#include "rths_controller/settings.hpp"

namespace rths_controller
{

class Parameters
{
public:
  // Read all parameters. objections() lists missing and misspelt parameters, and those of a wrong type.
  explicit Parameters(rclcpp_lifecycle::LifecycleNode & node);

  const std::vector<std::string> & objections() const {return objections_;}

  Settings settings;  // without the rate
  std::vector<std::string> forces;  // state interfaces, in the order of the axes
  std::string interlock;

private:
  rclcpp::Parameter declared(const std::string & name);
  void required(const std::string & name, double & value, const std::string & unit);
  void required(const std::string & name, std::int64_t & value);
  void required(const std::string & name, bool & value);
  void required(const std::string & name, std::string & value);
  void optional(const std::string & name, double & value, const std::string & unit);
  void optional(const std::string & name, std::int64_t & value);
  void refuse_unknown();
  void object(const rclcpp::Parameter & parameter, const std::string & bound);
  AxisSettings axis(const std::string & joint);

  rclcpp_lifecycle::LifecycleNode & node_;
  std::vector<std::string> names_, objections_;
};

}  // namespace rths_controller
