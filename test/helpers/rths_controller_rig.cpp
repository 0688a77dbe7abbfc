// SPDX-License-Identifier: Apache-2.0
// The receiver of examples/rths_controller without ROS, by functions that a test calls: see test_rths_controller.py.
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>
#include <string>

#include "rths_controller/receiver.hpp"

using rths_controller::Joints;
using rths_controller::Readings;
using rths_controller::Receiver;
using rths_controller::Settings;

static unsigned long taken = 0;  // memory, times

void * operator new(std::size_t size)
{
  ++taken;
  return std::malloc(size);
}
void operator delete(void * at) noexcept {std::free(at);}
void operator delete(void * at, std::size_t) noexcept {std::free(at);}

static Settings settings;
static Receiver * receiver = nullptr;
static std::string words;

static const char * say(const std::string & what) {return (words = what).c_str();}

extern "C" {

unsigned long rig_memory() {return taken;}

void rig_settings(
  const char * address, int port, double rate, int bridged, int watchdog, int persistence, int emulator)
{
  settings = {};
  settings.address = address;
  settings.port = port;
  settings.rate = rate;
  settings.bridged = bridged;
  settings.watchdog = watchdog;
  settings.persistence = persistence;
  settings.emulator = emulator != 0;
}

// limits: stroke, velocity, acceleration, following, force, error
void rig_axis(
  const char * joint, const double * limits, int group, double scale, int sign, double force_scale, int force_sign)
{
  rths_controller::AxisSettings axis;
  axis.joint = joint;
  axis.limits = {limits[0], limits[1], limits[2], limits[3], limits[4], limits[5]};
  axis.group = group;
  axis.position.scale = scale;
  axis.position.sign = sign;
  axis.force.scale = force_scale;
  axis.force.sign = force_sign;
  settings.axes.push_back(axis);
}

const char * rig_objections()
{
  std::ostringstream all;
  for (const auto & each : rths_controller::objections(settings)) {
    all << each << "\n";
  }
  return say(all.str());
}

const char * rig_open()
{
  delete receiver;
  receiver = nullptr;
  try {
    receiver = new Receiver(settings);
  } catch (const std::exception & error) {
    return say(error.what());
  }
  return say("");
}

void rig_close()
{
  delete receiver;
  receiver = nullptr;
}

const char * rig_begin(const double * position)
{
  Joints at = {};
  std::memcpy(at.data(), position, sizeof at);
  return say(receiver->begin(at));
}

void rig_tick(const double * position, const double * force, int interlock, double * command)
{
  Readings read;
  Joints out = {};
  std::memcpy(read.position.data(), position, sizeof read.position);
  std::memcpy(read.force.data(), force, sizeof read.force);
  read.interlock = static_cast<rths_controller::Interlock>(interlock);
  receiver->tick(read, out);
  std::memcpy(command, out.data(), sizeof out);
}

int rig_end() {return receiver->end();}

const char * rig_report()
{
  const auto now = receiver->report();
  return say(
    std::string(rths_controller::state_name(now.state)) + ": " + rths_controller::reason_name(now.reason));
}

const char * rig_reason(int reason) {return rths_controller::reason_name(static_cast<std::uint8_t>(reason));}
}
