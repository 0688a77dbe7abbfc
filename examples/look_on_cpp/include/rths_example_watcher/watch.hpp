// SPDX-License-Identifier: Apache-2.0
// The judgement of the watcher: messages of rths_nodes in, words out. It needs no rclcpp.
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
  // `most`: force at which the test is to be stopped, N
  explicit Watch(double most) : most_(most) {}

  // Names of the curves, "story_1/force"; before them no column can be read.
  void named(const rths_nodes::msg::LiveCurves & told) {curves_ = told.names;}

  // The first column with a force that is too large, in words; once, and then never again.
  std::optional<std::string> drawn(const rths_nodes::msg::Live & live)
  {
    const std::size_t width = per_curve * curves_.size();
    for (std::size_t start = 0; width > 0 && start + width <= live.values.size(); start += width) {
      for (std::size_t place = 0; place < curves_.size(); ++place) {
        if (is_force(curves_[place])) {
          const float * column = &live.values[start + per_curve * place];
          largest_ = std::max(largest_, largest_of(column[lowest], column[highest]));
        }
      }
      if (largest_ > most_ && !asked_) {
        asked_ = true;
        const std::size_t sample = live.first + live.column * (start / width);
        std::ostringstream words;
        words << "sample " << sample << ": " << largest_ << " N: more than " << most_ << " N";
        return words.str();
      }
    }
    return std::nullopt;
  }

  // True once the test that has begun is over.
  bool over(const rths_nodes::msg::TestState & test)
  {
    using State = rths_nodes::msg::TestState;
    began_ = began_ || test.state == State::RUNNING;
    return began_ &&
           (test.state == State::FINISHED || test.state == State::HELD || test.state == State::TRIPPED);
  }

  // Largest force so far, N
  double largest() const {return largest_;}

private:
  // Of each curve in each column: first, lowest, highest and last value
  static constexpr std::size_t per_curve = 4, lowest = 1, highest = 2;

  static bool is_force(const std::string & name)
  {
    static const std::string end = "/force";
    return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
  }

  // nan, where no sample of the column is known, is no force
  static double largest_of(double low, double high)
  {
    return std::isnan(low) || std::isnan(high) ? 0.0 : std::max(std::fabs(low), std::fabs(high));
  }

  double most_, largest_ = 0.0;
  bool began_ = false, asked_ = false;
  std::vector<std::string> curves_;
};

}  // namespace rths_example_watcher
