// SPDX-License-Identifier: Apache-2.0
#include "rths_controller/receiver.hpp"

#include <cmath>
#include <sstream>
#include <stdexcept>

namespace rths_controller
{

namespace
{

constexpr int most_per_tick = 16;  // datagrams; bounds the duration of a tick, the others stay in the queue
constexpr int most_stale = 4096;  // datagrams that are discarded before a session

const Settings & checked(const Settings & settings)
{
  const auto messages = objections(settings);
  if (!messages.empty()) {
    throw std::invalid_argument(messages.front());
  }
  return settings;
}

}  // namespace

Receiver::Receiver(const Settings & settings)
: settings_(checked(settings)), line_(settings.address, static_cast<std::uint16_t>(settings.port))
{
}

std::string Receiver::begin(const Joints & position)
{
  const rths_config config = config_of(settings_);
  Joints start = {};
  std::uint64_t sender;
  for (std::size_t i = 0; i < settings_.axes.size(); ++i) {
    const AxisSettings & axis = settings_.axes[i];
    start[i] = axis.position.gain() * position[i];
    if (!(std::abs(start[i]) <= axis.limits.stroke)) {
      std::ostringstream message;
      message << axis.joint << ": position = " << start[i] << " m: its magnitude must be <= " << axis.limits.stroke << " m (stroke)";
      return message.str();
    }
  }
  const int result = rths_init(&target_, &config, start.data());
  if (result != 0) {
    return message_of(settings_, result);
  }
  for (int i = 0; i < most_stale && line_.receive(in_.data(), in_.size(), sender) >= 0; ++i) {
  }
  sensors_ = {};
  update_report();
  return "";
}

void Receiver::receive() noexcept
{
  std::uint64_t sender = 0;
  for (int i = 0; i < most_per_tick; ++i) {
    const std::ptrdiff_t size = line_.receive(in_.data(), in_.size(), sender);
    if (size < 0) {
      return;
    }
    (void)rths_receive(&target_, in_.data(), static_cast<std::size_t>(size), sender);
    line_.send(out_.data(), rths_reply(&target_, out_.data(), out_.size()), sender);
  }
}

void Receiver::tick(const Readings & read, Joints & command) noexcept
{
  receive();
  for (std::size_t i = 0; i < settings_.axes.size(); ++i) {
    sensors_.displacement[i] = settings_.axes[i].position.gain() * read.position[i];
    sensors_.force[i] = settings_.axes[i].force.gain() * read.force[i];
    sensors_.mode[i] = RTHS_BY_DISPLACEMENT;  // the position interface is claimed
  }
  sensors_.interlock = static_cast<std::uint8_t>(read.interlock);
  line_.send(out_.data(), rths_state(&target_, &sensors_, out_.data(), out_.size()), target_.sender);
  rths_drive(&target_);
  for (std::size_t i = 0; i < settings_.axes.size(); ++i) {
    command[i] = target_.command[i] / settings_.axes[i].position.gain();
  }
  update_report();
}

bool Receiver::end() noexcept
{
  if (target_.state != RTHS_RUNNING && target_.state != RTHS_BRAKING) {
    return false;
  }
  sensors_.interlock = static_cast<std::uint8_t>(Interlock::open);
  line_.send(out_.data(), rths_state(&target_, &sensors_, out_.data(), out_.size()), target_.sender);
  update_report();
  return true;
}

void Receiver::update_report() noexcept
{
  state_ = target_.state;
  reason_ = target_.reason;
  samples_ = target_.counter;
  bridged_ = target_.bridged;
  limited_ = target_.limited;
}

Report Receiver::report() const noexcept {return {state_, reason_, samples_, bridged_, limited_};}

const char * state_name(std::uint8_t state) noexcept
{
  static const char * const names[] = {"idle", "waiting", "running", "braking", "stopped"};
  return state < sizeof names / sizeof *names ? names[state] : "unknown";
}

const char * reason_name(std::uint8_t reason) noexcept
{
  switch (reason) {
    case RTHS_NONE: return "no reason reported";
    case RTHS_LOST: return "no command came in time";
    case RTHS_CLOSED: return "the session was closed";
    case RTHS_INTERLOCKED: return "the interlock of the rig is open";
    case RTHS_OVER_FORCE: return "a measured force exceeds the limit of the receiver";
    case RTHS_OVER_ERROR: return "the difference of command and measured displacement exceeds the limit of the receiver";
    case RTHS_COUNTED_OUT: return "the session has reached the end of its counter";
    default: return "unknown";
  }
}

}  // namespace rths_controller
