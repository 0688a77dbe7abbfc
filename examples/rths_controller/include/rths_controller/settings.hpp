// SPDX-License-Identifier: Apache-2.0
// Settings of a receiver in ros2_control, and their validation. It needs no ROS.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rths_target.h"

namespace rths_controller
{

// Conversion of a value of an interface to SI units: sign * scale * value.
struct Channel
{
  double scale = 1.0;  // m or N per unit of the interface
  std::int64_t sign = 1;  // -1: interface and axis have opposite directions

  double gain() const {return static_cast<double>(sign) * scale;}
};

struct AxisSettings
{
  std::string joint;
  rths_limits limits = {};  // of the rig, in m, m/s, m/s^2, N; the initial 0 is refused
  std::int64_t group = 0;  // axes with the same number move one specimen, and stop in the same time
  Channel position;  // command and state
  Channel force;
};

struct Settings
{
  std::vector<AxisSettings> axes;
  double rate = 0.0;  // of the updates, Hz
  std::string address;  // IPv4 address of this computer's interface to the test computer
  std::int64_t port = 0;
  std::int64_t bridged = 0, watchdog = 0, persistence = 0;  // samples
  bool emulator = false;  // true: the joints move no real actuator
};

// Return a message for each invalid setting, with parameter, value, unit and bound.
std::vector<std::string> objections(const Settings & settings);

// Return the message for a negative result of rths_init.
std::string message_of(const Settings & settings, int result);

// Return the settings as rths_config. They must have no objections.
rths_config config_of(const Settings & settings);

}  // namespace rths_controller
