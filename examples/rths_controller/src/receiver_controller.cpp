// SPDX-License-Identifier: Apache-2.0
#include "rths_controller/receiver_controller.hpp"

#include <chrono>
#include <cmath>
#include <exception>
#include <optional>

#include <pluginlib/class_list_macros.hpp>
#include <rclcpp/logging.hpp>

#include "rths_controller/parameters.hpp"

namespace rths_controller
{

namespace
{

using controller_interface::interface_configuration_type;
using controller_interface::return_type;
using hardware_interface::HandleDataType;

const std::string position = "/position";

std::optional<double> value_of(const hardware_interface::LoanedStateInterface & interface)
{
  if (interface.get_data_type() == HandleDataType::BOOL) {
    const auto value = interface.get_optional<bool>();
    return value.has_value() ? std::optional<double>(*value) : std::nullopt;
  }
  return interface.get_optional();
}

}  // namespace

controller_interface::InterfaceConfiguration ReceiverController::command_interface_configuration() const
{
  std::vector<std::string> names;
  for (const auto & axis : settings_.axes) {
    names.push_back(axis.joint + position);
  }
  return {interface_configuration_type::INDIVIDUAL, names};
}

// Positions, forces, then the interlock: read_states() depends on this order.
controller_interface::InterfaceConfiguration ReceiverController::state_interface_configuration() const
{
  auto names = command_interface_configuration().names;
  names.insert(names.end(), forces_.begin(), forces_.end());
  if (!interlock_.empty()) {
    names.push_back(interlock_);
  }
  return {interface_configuration_type::INDIVIDUAL, names};
}

ReceiverController::Result ReceiverController::on_init() {return Result::SUCCESS;}

ReceiverController::Result ReceiverController::on_configure(const State &)
{
  Parameters parameters(*get_node());
  auto messages = parameters.objections();
  settings_ = parameters.settings;
  settings_.rate = get_update_rate();
  forces_ = parameters.forces;
  interlock_ = parameters.interlock;
  if (messages.empty()) {
    messages = objections(settings_);
  }
  if (is_async()) {
    messages.push_back("is_async = true: must be false, because each tick belongs to one read and one write of the hardware");
  }
  if (messages.empty()) {
    try {
      receiver_ = std::make_shared<Receiver>(settings_);
    } catch (const std::exception & error) {
      messages.push_back(error.what());
    }
  }
  for (const auto & message : messages) {
    RCLCPP_ERROR(get_node()->get_logger(), "%s", message.c_str());
  }
  if (!messages.empty()) {
    return Result::FAILURE;
  }
  timer_ = get_node()->create_wall_timer(
    std::chrono::milliseconds(100), [this, receiver = receiver_]() {log_changes(*receiver);});
  RCLCPP_INFO(
    get_node()->get_logger(), "listening at %s, port %d, for %zu axes at %g Hz%s", settings_.address.c_str(),
    static_cast<int>(settings_.port), settings_.axes.size(), settings_.rate,
    settings_.emulator ? ": emulator, these joints move no real actuator" : "");
  return Result::SUCCESS;
}

ReceiverController::Result ReceiverController::on_activate(const State &)
{
  read_ = {};
  faulty_ = 0;
  disturbed_ = false;
  uneven_ = 0;
  std::string problem = wrong_types();
  if (problem.empty() && !read_states()) {
    problem = "a state interface cannot be read";
  }
  if (problem.empty()) {
    problem = receiver_->begin(read_.position);
  }
  if (!problem.empty()) {
    RCLCPP_ERROR(get_node()->get_logger(), "%s", problem.c_str());
    return Result::FAILURE;
  }
  command_ = read_.position;
  for (std::size_t i = 0; i < settings_.axes.size(); ++i) {
    if (!command_interfaces_[i].set_value(command_[i])) {
      RCLCPP_ERROR(get_node()->get_logger(), "%s does not accept a command", settings_.axes[i].joint.c_str());
      return Result::FAILURE;
    }
  }
  return Result::SUCCESS;
}

// Reading an interface as a wrong type throws, which must not happen in update().
std::string ReceiverController::wrong_types() const
{
  for (const auto & interface : command_interfaces_) {
    if (interface.get_data_type() != HandleDataType::DOUBLE) {
      return interface.get_name() + " has type " + interface.get_data_type().to_string() + ": must be double";
    }
  }
  for (std::size_t i = 0; i < state_interfaces_.size(); ++i) {
    const auto type = state_interfaces_[i].get_data_type();
    const bool may_be_bool = i == 2 * settings_.axes.size();  // the interlock
    if (type != HandleDataType::DOUBLE && !(may_be_bool && type == HandleDataType::BOOL)) {
      return state_interfaces_[i].get_name() + " has type " + type.to_string() + ": must be double" +
             (may_be_bool ? " or bool" : "");
    }
  }
  return "";
}

bool ReceiverController::read_states()
{
  const std::size_t axes = settings_.axes.size();
  bool all = true;
  for (std::size_t i = 0; i < state_interfaces_.size(); ++i) {
    const auto value = value_of(state_interfaces_[i]);
    if (!value.has_value()) {
      all = false;  // locked by another thread: keep the last value
    } else if (i < axes) {
      read_.position[i] = *value;
    } else if (i < 2 * axes) {
      read_.force[i - axes] = *value;
    } else {
      read_.interlock = *value > 0.5 ? Interlock::closed : Interlock::open;  // NaN: open
    }
  }
  return all;
}

// A limiter of ros2_control or another program may have changed the commands since the last update.
bool ReceiverController::commands_accepted() const
{
  bool all = true;
  for (std::size_t i = 0; i < settings_.axes.size(); ++i) {
    const auto value = command_interfaces_[i].get_optional();
    all = all && value.has_value() && *value == command_[i];
  }
  return all;
}

return_type ReceiverController::update(const rclcpp::Time &, const rclcpp::Duration & period)
{
  if (std::abs(period.seconds() * settings_.rate - 1.0) > 0.5) {
    uneven_.fetch_add(1, std::memory_order_relaxed);
  }
  const bool accepted = commands_accepted();
  const bool readable = read_states();
  faulty_ = accepted && readable ? 0 : faulty_ + 1;
  if (faulty_ >= settings_.persistence) {
    disturbed_ = true;
  }
  if (disturbed_) {
    read_.interlock = Interlock::open;
  }
  receiver_->tick(read_, command_);
  for (std::size_t i = 0; i < settings_.axes.size(); ++i) {
    (void)command_interfaces_[i].set_value(command_[i]);  // checked by commands_accepted() in the next update
  }
  return return_type::OK;
}

ReceiverController::Result ReceiverController::on_deactivate(const State &)
{
  if (receiver_->end()) {
    RCLCPP_ERROR(
      get_node()->get_logger(), "deactivated during a session: the joints have stopped at their last command, without a ramp");
  }
  return Result::SUCCESS;
}

ReceiverController::Result ReceiverController::on_cleanup(const State &)
{
  timer_.reset();
  receiver_.reset();
  return Result::SUCCESS;
}

ReceiverController::Result ReceiverController::on_error(const State & before)
{
  if (receiver_) {
    (void)receiver_->end();
  }
  return on_cleanup(before);
}

// Called outside the loop, because logging locks and allocates.
void ReceiverController::log_changes(const Receiver & receiver)
{
  const Report now = receiver.report();
  if (now.state == logged_) {
    return;
  }
  logged_ = now.state;
  if (now.state != RTHS_BRAKING && now.state != RTHS_STOPPED) {
    RCLCPP_INFO(get_node()->get_logger(), "%s", state_name(now.state));
    return;
  }
  RCLCPP_WARN(
    get_node()->get_logger(), "%s: %s%s; %u samples, %u bridged, %u limited, %u updates uneven", state_name(now.state),
    reason_name(now.reason),
    disturbed_ ? ", because the hardware did not accept the commands unchanged, or a state could not be read" : "", now.samples,
    now.bridged, now.limited, uneven_.load());
}

}  // namespace rths_controller

PLUGINLIB_EXPORT_CLASS(rths_controller::ReceiverController, controller_interface::ControllerInterface)
