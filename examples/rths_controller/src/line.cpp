// SPDX-License-Identifier: Apache-2.0
#include "rths_controller/line.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace rths_controller
{

Line::Line(const std::string & address, std::uint16_t port)
: socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))
{
  sockaddr_in here = {};
  here.sin_family = AF_INET;
  here.sin_port = htons(port);
  const bool parsed = inet_pton(AF_INET, address.c_str(), &here.sin_addr) == 1;
  if (socket_ < 0 || !parsed || ::bind(socket_, reinterpret_cast<const sockaddr *>(&here), sizeof here) != 0) {
    const std::string reason = parsed ? std::strerror(errno) : "not an IPv4 address";
    if (socket_ >= 0) {
      ::close(socket_);
    }
    throw std::runtime_error("address, port = " + address + ", " + std::to_string(port) + ": " + reason);
  }
}

Line::~Line() {::close(socket_);}

std::ptrdiff_t Line::receive(std::uint8_t * data, std::size_t capacity, std::uint64_t & sender) noexcept
{
  sockaddr_in from = {};
  socklen_t length = sizeof from;
  const ssize_t size = ::recvfrom(socket_, data, capacity, 0, reinterpret_cast<sockaddr *>(&from), &length);
  sender = static_cast<std::uint64_t>(ntohl(from.sin_addr.s_addr)) << 16 | ntohs(from.sin_port);
  return size;
}

void Line::send(const std::uint8_t * data, std::size_t size, std::uint64_t receiver) noexcept
{
  sockaddr_in there = {};
  there.sin_family = AF_INET;
  there.sin_addr.s_addr = htonl(static_cast<std::uint32_t>(receiver >> 16));
  there.sin_port = htons(static_cast<std::uint16_t>(receiver & 0xffffu));
  if (size > 0) {
    (void)::sendto(socket_, data, size, 0, reinterpret_cast<const sockaddr *>(&there), sizeof there);
  }
}

}  // namespace rths_controller
