// SPDX-License-Identifier: Apache-2.0
// Receiver as a ros2_control controller, for hardware components with position commands.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <controller_interface/controller_interface.hpp>
#include <rclcpp/timer.hpp>

#include "rths_controller/receiver.hpp"

namespace rths_controller
{

class ReceiverController : public controller_interface::ControllerInterface
{
public:
  using Result = controller_interface::CallbackReturn;
  using State = rclcpp_lifecycle::State;

  controller_interface::InterfaceConfiguration command_interface_configuration() const override;
  controller_interface::InterfaceConfiguration state_interface_configuration() const override;

  Result on_init() override;
  // Read and check all parameters, and bind the socket.
  Result on_configure(const State & before) override;
  // Command the joints to their measured positions, and accept one session. Requires an operator's act.
  Result on_activate(const State & before) override;
  controller_interface::return_type update(const rclcpp::Time & now, const rclcpp::Duration & period) override;
  // Leave the joints at their last command, and notify the test computer that the rig has stopped.
  Result on_deactivate(const State & before) override;
  Result on_cleanup(const State & before) override;
  Result on_error(const State & before) override;

private:
  std::string wrong_types() const;
  bool read_states();
  bool commands_accepted() const;
  void log_changes(const Receiver & receiver);

  Settings settings_;
  std::vector<std::string> forces_;  // state interfaces, in the order of the axes
  std::string interlock_;  // state interface, or empty
  std::shared_ptr<Receiver> receiver_;  // shared with the timer, whose thread may use it during a clean-up
  Readings read_;
  Joints command_ = {};
  std::int64_t faulty_ = 0;  // consecutive updates without an accepted command or without a state
  std::atomic<bool> disturbed_{false};  // faulty_ has reached its limit, and the rig was stopped
  std::atomic<std::uint32_t> uneven_{0};  // updates that were more than half a period early or late
  rclcpp::TimerBase::SharedPtr timer_;
  std::uint8_t logged_ = RTHS_IDLE;
};

}  // namespace rths_controller
