// SPDX-License-Identifier: Apache-2.0
// Node that monitors a test, and stops it if a force exceeds the parameter `most` (N).
//
//   ros2 run rths_example_watcher watcher --ros-args -r __ns:=/rths -p most:=2e5
//
// No node of the test depends on it. The service actuator/stop brings the rig to rest with the deceleration of the
// scenario. For conditions that must stop the rig within a sample, use limits of the scenario.

#include <limits>
#include <memory>

#include <rclcpp/rclcpp.hpp>
#include <std_srvs/srv/trigger.hpp>

#include "rths_example_watcher/watch.hpp"

namespace rths_example_watcher
{

using rths_nodes::msg::Live;
using rths_nodes::msg::LiveCurves;
using rths_nodes::msg::TestState;
using std_srvs::srv::Trigger;

class Watcher : public rclcpp::Node
{
public:
  Watcher() : Node("watcher"),
    watch_(declare_parameter("most", std::numeric_limits<double>::infinity()))
  {
    const auto latched = rclcpp::QoS(1).transient_local();
    const auto lossy = rclcpp::QoS(20).best_effort();
    stop_ = create_client<Trigger>("actuator/stop");
    curves_ = create_subscription<LiveCurves>(
      "live_curves", latched, [this](const LiveCurves & curves) {watch_.set_curves(curves);});
    live_ = create_subscription<Live>("live", lossy, [this](const Live & live) {check(live);});
    state_ = create_subscription<TestState>(
      "test_state", latched, [this](const TestState & test) {follow(test);});
  }

private:
  void check(const Live & live)
  {
    if (const auto message = watch_.check(live)) {
      RCLCPP_WARN(get_logger(), "%s: stopping the test", message->c_str());
      stop_->async_send_request(std::make_shared<Trigger::Request>());
    }
  }

  void follow(const TestState & test)
  {
    if (watch_.ended(test)) {
      RCLCPP_INFO(
        get_logger(), "ended after %u samples: %s; largest force %.4g N", test.sample, test.reason.c_str(),
        watch_.largest());
      rclcpp::shutdown();
    }
  }

  Watch watch_;
  rclcpp::Client<Trigger>::SharedPtr stop_;
  rclcpp::Subscription<LiveCurves>::SharedPtr curves_;
  rclcpp::Subscription<Live>::SharedPtr live_;
  rclcpp::Subscription<TestState>::SharedPtr state_;
};

}  // namespace rths_example_watcher

int main(int argc, char ** argv)
{
  rclcpp::init(argc, argv);
  rclcpp::spin(std::make_shared<rths_example_watcher::Watcher>());
  rclcpp::shutdown();
  return 0;
}
