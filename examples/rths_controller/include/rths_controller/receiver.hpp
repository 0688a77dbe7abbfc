// SPDX-License-Identifier: Apache-2.0
// The receiver of rths_nodes around a socket: joints in, joints out, a tick at a time. It needs no ROS.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "rths_controller/line.hpp"
#include "rths_controller/settings.hpp"
#include "rths_target.h"

namespace rths_controller
{

using Joints = std::array<double, RTHS_MAX_AXES>;

enum class Interlock : std::uint8_t { not_told = 0, closed = 1, open = 2 };

// The rig at a tick, in the units of its interfaces.
struct Readings
{
  Joints position = {}, force = {};
  Interlock interlock = Interlock::not_told;
};

// The state of a session for whoever is not the loop.
struct Report
{
  std::uint8_t state, reason;
  std::uint32_t samples, bridged, limited;
};

class Receiver
{
public:
  // Throws std::invalid_argument for settings that have objections, std::runtime_error where there is no such socket.
  explicit Receiver(const Settings & settings);

  // Ready for one session, holding the joints where they are; an operator's act. Empty, or why it cannot be.
  std::string begin(const Joints & position);

  // One tick of the rig; the positions for the coming sample go into command. Nothing waits, locks or takes memory.
  void tick(const Readings & read, Joints & command) noexcept;

  // No tick comes any more. True where a session ran: its test computer is told, at once, that the rig has stopped.
  bool end() noexcept;

  // At any time, from any thread.
  Report report() const noexcept;

private:
  void take() noexcept;
  void tell() noexcept;

  const Settings settings_;
  Line line_;
  rths_target target_ = {};
  rths_sensors sensors_ = {};
  std::array<std::uint8_t, RTHS_MAX_BYTES + 1> in_ = {};  // one more: a longer datagram is cut, and then garbage
  std::array<std::uint8_t, RTHS_MAX_BYTES> out_ = {};
  std::atomic<std::uint8_t> state_{RTHS_IDLE}, reason_{RTHS_NONE};
  std::atomic<std::uint32_t> samples_{0}, bridged_{0}, limited_{0};
};

// Names of RTHS_IDLE..., and of RTHS_NONE..., as they stand in doc/udp.md of rths_nodes.
const char * state_name(std::uint8_t state) noexcept;
const char * reason_name(std::uint8_t reason) noexcept;

}  // namespace rths_controller
