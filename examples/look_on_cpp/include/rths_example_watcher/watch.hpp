// SPDX-License-Identifier: Apache-2.0
// Force check of the watcher. It needs the messages of rths_nodes, and no rclcpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <rths_nodes/msg/live.hpp>
#include <rths_nodes/msg/live_curves.hpp>
#include <rths_nodes/msg/test_state.hpp>

namespace rths_example_watcher
{

class Watch
{
public:
  // most: force at which the test is stopped, N
  explicit Watch(double most) : most_(most) {}

  // Store the names of the curves, such as "story_1/force". Columns that arrive before them are ignored.
  void set_curves(const rths_nodes::msg::LiveCurves & curves) {curves_ = curves.names;}

  // Return a message at the first column whose force exceeds the limit, and nothing at any other call.
  std::optional<std::string> check(const rths_nodes::msg::Live & live)
  {
    const std::size_t width = per_curve * curves_.size();
    for (std::size_t start = 0; width > 0 && start + width <= live.values.size(); start += width) {
      for (std::size_t i = 0; i < curves_.size(); ++i) {
        if (is_force(curves_[i])) {
          const float * column = &live.values[start + per_curve * i];
          largest_ = std::max(largest_, largest_of(column[lowest], column[highest]));
        }
      }
      if (largest_ > most_ && !exceeded_) {
        exceeded_ = true;
        const std::size_t sample = live.first + live.column * (start / width);
        std::ostringstream message;
        message << "sample " << sample << ": force " << largest_ << " N exceeds " << most_ << " N";
        return message.str();
      }
    }
    return std::nullopt;
  }

  // Return true once a test has begun and ended.
  bool ended(const rths_nodes::msg::TestState & test)
  {
    using State = rths_nodes::msg::TestState;
    began_ = began_ || test.state == State::RUNNING;
    return began_ &&
           (test.state == State::FINISHED || test.state == State::HELD || test.state == State::TRIPPED);
  }

  // Largest magnitude of a force so far, N
  double largest() const {return largest_;}

private:
  // A column has the first, lowest, highest and last value of each curve
  static constexpr std::size_t per_curve = 4, lowest = 1, highest = 2;

  static bool is_force(const std::string & name)
  {
    static const std::string suffix = "/force";
    return name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
  }

  // A column without samples has NaN, which counts as 0
  static double largest_of(double low, double high)
  {
    return std::isnan(low) || std::isnan(high) ? 0.0 : std::max(std::fabs(low), std::fabs(high));
  }

  double most_, largest_ = 0.0;
  bool began_ = false, exceeded_ = false;
  std::vector<std::string> curves_;
};

}  // namespace rths_example_watcher
