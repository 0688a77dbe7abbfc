// SPDX-License-Identifier: Apache-2.0
// A UDP socket that nothing waits for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rths_controller
{

class Line
{
public:
  // Throws std::runtime_error where the address and port cannot be had.
  Line(const std::string & address, std::uint16_t port);
  ~Line();
  Line(const Line &) = delete;
  Line & operator=(const Line &) = delete;

  // Bytes of the next datagram, and whose it is; -1 where none waits, or the network tells an error.
  std::ptrdiff_t receive(std::uint8_t * data, std::size_t capacity, std::uint64_t & sender) noexcept;

  // A datagram of 0 bytes is not sent; one that is lost here is bridged as one that is lost on the way.
  void send(const std::uint8_t * data, std::size_t size, std::uint64_t whom) noexcept;

private:
  int socket_;
};

}  // namespace rths_controller
