// SPDX-License-Identifier: Apache-2.0
// The receiver as a controller of ros2_control: any hardware component with position commands is a rig in real time.
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
  // All parameters are read and judged, and the socket is bound.
  Result on_configure(const State & before) override;
  // An operator's act: the joints are commanded to where they are, and one session may be opened.
  Result on_activate(const State & before) override;
  controller_interface::return_type update(const rclcpp::Time & now, const rclcpp::Duration & period) override;
  // The joints stay at their last command, and the test computer is told that the rig has stopped.
  Result on_deactivate(const State & before) override;
  Result on_cleanup(const State & before) override;
  Result on_error(const State & before) override;

private:
  std::string wrong_types() const;
  bool read_states();
  bool commands_stand() const;
  void log_changes(const Receiver & receiver);

  Settings settings_;
  std::vector<std::string> forces_;  // state interfaces, in the order of the axes
  std::string interlock_;  // state interface, or empty
  std::shared_ptr<Receiver> receiver_;  // the timer, in another thread, may be at it during a clean-up
  Readings read_;
  Joints command_ = {};
  std::int64_t faulty_ = 0;  // updates in a row in which the hardware did not take the command, or showed no state
  std::atomic<bool> disturbed_{false};  // that many that the rig was stopped
  std::atomic<std::uint32_t> uneven_{0};  // updates that came half a period early or late
  rclcpp::TimerBase::SharedPtr timer_;
  std::uint8_t logged_ = RTHS_IDLE;
};

}  // namespace rths_controller
