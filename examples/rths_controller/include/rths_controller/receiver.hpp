// SPDX-License-Identifier: Apache-2.0
// Receiver of rths_nodes with its socket: one call per tick reads and commands the joints. It needs no ROS.
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

enum class Interlock : std::uint8_t { unknown = 0, closed = 1, open = 2 };

// Measurements of a tick, in the units of the interfaces.
struct Readings
{
  Joints position = {}, force = {};
  Interlock interlock = Interlock::unknown;
};

// State of a session, for other threads.
struct Report
{
  std::uint8_t state, reason;
  std::uint32_t samples, bridged, limited;
};

class Receiver
{
public:
  // Throws std::invalid_argument for invalid settings, and std::runtime_error if the socket cannot be bound.
  explicit Receiver(const Settings & settings);

  // Prepare one session that holds the joints at their position; requires an operator's act. Return "" or an error.
  std::string begin(const Joints & position);

  // Run one tick, and write the positions of the next sample to command. Does not wait, lock or allocate.
  void tick(const Readings & read, Joints & command) noexcept;

  // Call after the last tick. Return true if a session was running; the test computer is then notified of the stop.
  bool end() noexcept;

  // May be called at any time from any thread.
  Report report() const noexcept;

private:
  void receive() noexcept;
  void update_report() noexcept;

  const Settings settings_;
  Line line_;
  rths_target target_ = {};
  rths_sensors sensors_ = {};
  std::array<std::uint8_t, RTHS_MAX_BYTES + 1> in_ = {};  // + 1: a longer datagram is truncated, and then refused
  std::array<std::uint8_t, RTHS_MAX_BYTES> out_ = {};
  std::atomic<std::uint8_t> state_{RTHS_IDLE}, reason_{RTHS_NONE};
  std::atomic<std::uint32_t> samples_{0}, bridged_{0}, limited_{0};
};

// Names of RTHS_IDLE etc. and RTHS_NONE etc., as in doc/udp.md of rths_nodes.
const char * state_name(std::uint8_t state) noexcept;
const char * reason_name(std::uint8_t reason) noexcept;

}  // namespace rths_controller
