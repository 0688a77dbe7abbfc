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

constexpr double largest = 1e9;  // of a limit that is not switched off: rths_init's own
constexpr std::int64_t longest = 1000000;  // samples without a command: rths_init's own

using Words = std::vector<std::string>;

template<typename Value>
std::string said(const std::string & name, const Value & value, const std::string & bound)
{
  std::ostringstream words;
  words << name << " = " << value << ": must be " << bound;
  return words.str();
}

void within(Words & found, const std::string & name, std::int64_t value, std::int64_t least, std::int64_t most)
{
  if (value < least || value > most) {
    found.push_back(said(name, value, std::to_string(least) + " to " + std::to_string(most)));
  }
}

void positive(Words & found, const std::string & name, double value, const std::string & unit)
{
  if (!(value > 0.0 && value < largest)) {
    found.push_back(said(name, value, "> 0 and < 1e9 " + unit));
  }
}

void positive_or_off(Words & found, const std::string & name, double value, const std::string & unit)
{
  if (!(value > 0.0)) {
    found.push_back(said(name, value, "> 0 " + unit + ", or .inf, which switches it off"));
  }
}

void judge(Words & found, const std::string & name, const Channel & channel, const std::string & unit)
{
  positive(found, name + ".scale", channel.scale, unit + " for 1 of the interface");
  if (channel.sign != 1 && channel.sign != -1) {
    found.push_back(said(name + ".sign", channel.sign, "1 or -1"));
  }
}

void judge(Words & found, const AxisSettings & axis)
{
  const std::string name = "axes." + axis.joint;
  positive(found, name + ".limits.stroke", axis.limits.stroke, "m");
  positive(found, name + ".limits.velocity", axis.limits.velocity, "m/s");
  positive(found, name + ".limits.acceleration", axis.limits.acceleration, "m/s^2");
  positive_or_off(found, name + ".limits.following", axis.limits.following, "m/s^2");
  positive_or_off(found, name + ".limits.force", axis.limits.force, "N");
  positive_or_off(found, name + ".limits.error", axis.limits.error, "m");
  within(found, name + ".group", axis.group, 0, 255);
  judge(found, name + ".position", axis.position, "m");
  judge(found, name + ".force", axis.force, "N");
}

}  // namespace

Words objections(const Settings & settings)
{
  Words found;
  std::set<std::string> names;
  in_addr parsed;
  if (settings.axes.empty() || settings.axes.size() > RTHS_MAX_AXES) {
    found.push_back(
      said("joints", std::to_string(settings.axes.size()) + " names", "1 to " + std::to_string(RTHS_MAX_AXES)));
  }
  for (const AxisSettings & axis : settings.axes) {
    if (!names.insert(axis.joint).second) {
      found.push_back(said("joints", axis.joint, "there once"));
      return found;
    }
    judge(found, axis);
  }
  if (inet_pton(AF_INET, settings.address.c_str(), &parsed) != 1) {
    found.push_back(said("address", "'" + settings.address + "'", "an IPv4 address of this computer"));
  }
  within(found, "port", settings.port, 1, 65535);
  within(found, "bridged", settings.bridged, 0, longest - 1);
  within(found, "persistence", settings.persistence, 1, longest);
  if (settings.watchdog <= settings.bridged || settings.watchdog > longest) {
    found.push_back(
      said("watchdog", settings.watchdog, "more than bridged and at most " + std::to_string(longest) + " samples"));
  }
  if (!(settings.rate >= 1.0 && settings.rate <= 1e5)) {
    found.push_back(said("update_rate", settings.rate, "1 to 1e5 Hz"));
  }
  return found;
}

rths_config config_of(const Settings & settings)
{
  rths_config config = {};
  config.axes = static_cast<std::uint8_t>(settings.axes.size());
  config.period_ns = static_cast<std::uint32_t>(std::lrint(1e9 / settings.rate));  // as the test computer rounds it
  config.bridged = static_cast<std::uint32_t>(settings.bridged);
  config.watchdog = static_cast<std::uint32_t>(settings.watchdog);
  config.persistence = static_cast<std::uint32_t>(settings.persistence);
  config.flags = settings.emulator ? RTHS_EMULATOR : 0u;
  for (std::size_t i = 0; i < settings.axes.size(); ++i) {
    config.limits[i] = settings.axes[i].limits;
    config.group[i] = static_cast<std::uint8_t>(settings.axes[i].group);
    config.unit[i] = 1.0;  // both in m
  }
  return config;
}

}  // namespace rths_controller
