// SPDX-License-Identifier: Apache-2.0
// The settings of a receiver behind ros2_control, and what is wrong with them. It needs no ROS.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rths_target.h"

namespace rths_controller
{

// A coordinate of an interface in that of the datagrams: SI = sign * scale * interface.
struct Channel
{
  double scale = 1.0;  // m, or N, for 1 of the interface
  std::int64_t sign = 1;  // -1: the interface counts against the axis

  double gain() const {return static_cast<double>(sign) * scale;}
};

struct AxisSettings
{
  std::string joint;
  rths_limits limits = {};  // m, m/s, m/s^2, N: of the rig. 0, as here, is refused
  std::int64_t group = 0;  // axes with the same number move one specimen: they stop in a common time
  Channel position;  // of the joint's position: command and state have one coordinate
  Channel force;
};

struct Settings
{
  std::vector<AxisSettings> axes;
  double rate = 0.0;  // Hz, of the updates
  std::string address;  // IPv4, of this computer's cable to the test computer
  std::int64_t port = 0;
  std::int64_t bridged = 0, watchdog = 0, persistence = 0;  // samples
  bool emulator = false;  // no real actuator is behind the joints
};

// Each thing that is wrong, with its parameter, value, unit and bound; none where the settings may be used.
std::vector<std::string> objections(const Settings & settings);

// The same for the receiver. Settings with objections give a config that rths_init refuses, or worse.
rths_config config_of(const Settings & settings);

}  // namespace rths_controller
