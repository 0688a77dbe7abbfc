// SPDX-License-Identifier: Apache-2.0
// Non-blocking UDP socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rths_controller
{

class Line
{
public:
  // Throws std::runtime_error if the socket cannot be bound to the address and port.
  Line(const std::string & address, std::uint16_t port);
  ~Line();
  Line(const Line &) = delete;
  Line & operator=(const Line &) = delete;

  // Receive a datagram. Return its size in bytes, or -1 if none is queued or the network reports an error.
  std::ptrdiff_t receive(std::uint8_t * data, std::size_t capacity, std::uint64_t & sender) noexcept;

  // Send a datagram, unless its size is 0. Errors are ignored, like the loss of a datagram on the network.
  void send(const std::uint8_t * data, std::size_t size, std::uint64_t receiver) noexcept;

private:
  int socket_;
};

}  // namespace rths_controller
