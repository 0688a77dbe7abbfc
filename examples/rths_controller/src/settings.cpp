// SPDX-License-Identifier: Apache-2.0
#include "rths_controller/settings.hpp"

#include <arpa/inet.h>

#include <cmath>
#include <set>
#include <sstream>

namespace rths_controller
{

namespace
{

constexpr std::int64_t longest = RTHS_MOST_WATCHDOG;  // samples without a command

using Messages = std::vector<std::string>;

template<typename Value>
std::string message(const std::string & name, const Value & value, const std::string & bound)
{
  std::ostringstream text;
  text << name << " = " << value << ": must be " << bound;
  return text.str();
}

void within(Messages & messages, const std::string & name, std::int64_t value, std::int64_t low, std::int64_t high)
{
  if (value < low || value > high) {
    messages.push_back(message(name, value, std::to_string(low) + " to " + std::to_string(high)));
  }
}

void positive(Messages & messages, const std::string & name, double value, double most, const std::string & unit)
{
  if (!(value > 0.0 && value <= most)) {
    std::ostringstream bound;
    bound << "> 0 and <= " << most << " " << unit;
    messages.push_back(message(name, value, bound.str()));
  }
}

void positive_or_off(Messages & messages, const std::string & name, double value, const std::string & unit)
{
  if (!(value > 0.0)) {
    messages.push_back(message(name, value, "> 0 " + unit + ", or .inf, which disables it"));
  }
}

void check(Messages & messages, const std::string & name, const Channel & channel, const std::string & unit)
{
  positive(messages, name + ".scale", channel.scale, 1e9, unit + " per unit of the interface");
  if (channel.sign != 1 && channel.sign != -1) {
    messages.push_back(message(name + ".sign", channel.sign, "1 or -1"));
  }
}

void check(Messages & messages, const AxisSettings & axis)
{
  const std::string name = "axes." + axis.joint;
  positive(messages, name + ".limits.stroke", axis.limits.stroke, RTHS_MOST_STROKE, "m");
  positive(messages, name + ".limits.velocity", axis.limits.velocity, RTHS_MOST_VELOCITY, "m/s");
  positive(messages, name + ".limits.acceleration", axis.limits.acceleration, RTHS_MOST_ACCELERATION, "m/s^2");
  positive_or_off(messages, name + ".limits.following", axis.limits.following, "m/s^2");
  positive_or_off(messages, name + ".limits.force", axis.limits.force, "N");
  positive_or_off(messages, name + ".limits.error", axis.limits.error, "m");
  within(messages, name + ".group", axis.group, 0, 255);
  check(messages, name + ".position", axis.position, "m");
  check(messages, name + ".force", axis.force, "N");
}

}  // namespace

Messages objections(const Settings & settings)
{
  Messages messages;
  std::set<std::string> names;
  in_addr parsed;
  if (settings.axes.empty() || settings.axes.size() > RTHS_MAX_AXES) {
    messages.push_back(
      message("joints", std::to_string(settings.axes.size()) + " names", "1 to " + std::to_string(RTHS_MAX_AXES)));
  }
  for (const AxisSettings & axis : settings.axes) {
    if (!names.insert(axis.joint).second) {
      messages.push_back(message("joints", axis.joint, "unique"));
      return messages;
    }
    check(messages, axis);
  }
  if (inet_pton(AF_INET, settings.address.c_str(), &parsed) != 1) {
    messages.push_back(message("address", "'" + settings.address + "'", "an IPv4 address of this computer"));
  }
  within(messages, "port", settings.port, 1, 65535);
  within(messages, "bridged", settings.bridged, 0, longest - 1);
  within(messages, "persistence", settings.persistence, 1, longest);
  if (settings.watchdog <= settings.bridged || settings.watchdog > longest) {
    messages.push_back(
      message("watchdog", settings.watchdog, "more than bridged and at most " + std::to_string(longest) + " samples"));
  }
  if (!(settings.rate >= 1.0 && settings.rate <= 1e5)) {
    messages.push_back(message("update_rate", settings.rate, "1 to 1e5 Hz"));
  }
  if (messages.empty()) {  // the receiver has more bounds, such as the silence of 10 s
    const rths_config config = config_of(settings);
    const std::vector<double> at_zero(RTHS_MAX_AXES, 0.0);
    rths_target receiver;
    const int result = rths_init(&receiver, &config, at_zero.data());
    if (result != 0) {
      messages.push_back(message_of(settings, result));
    }
  }
  return messages;
}

std::string message_of(const Settings & settings, int result)
{
  if (result == -2) {
    return "the arithmetic of this build is wrong, rths_self_test() = " + std::to_string(rths_self_test()) +
           ": compile rths_target.c with -ffp-contract=off and without -ffast-math";
  }
  const int axis = rths_axis(result);
  const std::string joint = axis < 0 ? "" : settings.axes[static_cast<std::size_t>(axis)].joint + ": ";
  return joint + rths_field(result) + ": must be " + rths_bound(result);
}

rths_config config_of(const Settings & settings)
{
  rths_config config = {};
  config.axes = static_cast<std::uint8_t>(settings.axes.size());
  config.period_ns = static_cast<std::uint32_t>(std::lrint(1e9 / settings.rate));  // rounded as by the test computer
  config.bridged = static_cast<std::uint32_t>(settings.bridged);
  config.watchdog = static_cast<std::uint32_t>(settings.watchdog);
  config.persistence = static_cast<std::uint32_t>(settings.persistence);
  config.flags = settings.emulator ? RTHS_EMULATOR : 0u;
  for (std::size_t i = 0; i < settings.axes.size(); ++i) {
    config.limits[i] = settings.axes[i].limits;
    config.group[i] = static_cast<std::uint8_t>(settings.axes[i].group);
    config.unit[i] = 1.0;  // commands and measurements in m
  }
  return config;
}

}  // namespace rths_controller
