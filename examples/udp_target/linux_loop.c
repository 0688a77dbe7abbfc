/* SPDX-License-Identifier: Apache-2.0 */
/* Loop around the receiver for Linux with PREEMPT_RT: one axis, one thread under SCHED_FIFO, absolute times.
 *
 *   linux_loop PORT RATE_HZ STROKE_M VELOCITY_M_S ACCELERATION_M_S2 FORCE_N STIFFNESS_N_M
 *
 * Replace the first section by your code. Here it emulates a spring that follows its command. */
#define _GNU_SOURCE
#include "rths_target.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

static rths_target target;
static double stiffness, position;

/* ---- your code -------------------------------------------------------------------------------------------------- */

#define YOUR_FLAGS (RTHS_EMULATOR | RTHS_LOCKSTEP) /* 0 on a rig */

static void your_sensors(rths_sensors *measured) {
  measured->displacement[0] = position;
  measured->force[0] = stiffness * position;
}

static void your_controller(const double *command, const double *velocity) {
  (void)velocity;
  position = command[0];
}

/* ---- the socket ------------------------------------------------------------------------------------------------- */

static int bound_socket(long port) {
  const int line = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in here;
  if (port < 1 || port > 65535) errno = EINVAL;
  if (line < 0 || port < 1 || port > 65535) return -1;
  memset(&here, 0, sizeof here);
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK); /* replace by the interface to the test computer */
  here.sin_port = htons((uint16_t)port);
  return bind(line, (const struct sockaddr *)&here, sizeof here) ? -1 : line;
}

static void send_to(int line, const uint8_t *data, size_t size, uint64_t receiver) {
  struct sockaddr_in there;
  memset(&there, 0, sizeof there);
  there.sin_family = AF_INET;
  there.sin_addr.s_addr = htonl((uint32_t)(receiver >> 16));
  there.sin_port = htons((uint16_t)(receiver & 0xffffu));
  if (size) (void)sendto(line, data, size, 0, (const struct sockaddr *)&there, sizeof there); /* a lost state is bridged */
}

/* Process and answer received datagrams, without waiting; at most RTHS_QUEUE, because a flood must not delay the tick. */
static void receive(int line) {
  uint8_t in[RTHS_MAX_BYTES + 1], out[RTHS_MAX_BYTES]; /* + 1: a longer datagram is truncated, and then refused */
  struct sockaddr_in from;
  socklen_t length = sizeof from;
  ssize_t size;
  int i;
  for (i = 0; i < RTHS_QUEUE; i++) {
    size = recvfrom(line, in, sizeof in, MSG_DONTWAIT, (struct sockaddr *)&from, &length);
    if (size < 0) return;
    const uint64_t sender = ((uint64_t)ntohl(from.sin_addr.s_addr) << 16) | ntohs(from.sin_port);
    (void)rths_receive(&target, in, (size_t)size, sender);
    send_to(line, out, rths_reply(&target, out, sizeof out), sender);
    length = sizeof from;
  }
}

/* In lockstep (emulators only): wait for the command that answers the state, each time at most 2 s. */
static void await_command(int line) {
  struct pollfd event = {line, POLLIN, 0};
  do receive(line);
  while (target.state == RTHS_RUNNING && target.newest < target.counter && poll(&event, 1, 2000) > 0);
}

/* ---- the loop --------------------------------------------------------------------------------------------------- */

/* Wait for the next tick. After a stall, missed ticks are not repeated: in quick succession, their commands would move
 * the axis faster than its limit. */
static void wait_tick(struct timespec *next, long period) {
  struct timespec now;
  next->tv_nsec += period;
  while (next->tv_nsec >= 1000000000L) {
    next->tv_nsec -= 1000000000L;
    next->tv_sec++;
  }
  (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, next, NULL);
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  if ((int64_t)(now.tv_sec - next->tv_sec) * 1000000000 + (now.tv_nsec - next->tv_nsec) >= period) *next = now;
}

static void tick(int line) {
  static rths_sensors measured;
  uint8_t out[RTHS_MAX_BYTES];
  size_t size;
  receive(line);
  your_sensors(&measured);
  size = rths_state(&target, &measured, out, sizeof out);
  send_to(line, out, size, target.sender);
  if (target.lockstep && size) await_command(line);
  rths_drive(&target);
  your_controller(target.command, target.velocity);
}

int main(int argc, char **argv) {
  static const struct sched_param priority = {.sched_priority = 80};
  static rths_config config;
  struct timespec next;
  const double active[1] = {0.0}; /* the active command of your controller */
  int line, result;
  if (argc != 8) {
    fprintf(stderr, "usage: linux_loop PORT RATE_HZ STROKE_M VELOCITY_M_S ACCELERATION_M_S2 FORCE_N STIFFNESS_N_M\n");
    return 2;
  }
  config.axes = 1;
  config.period_ns = (uint32_t)lrint(1e9 / atof(argv[2])); /* 1024 Hz: 976562, rounded half to even */
  config.bridged = 10;
  config.watchdog = 100;
  config.persistence = 5;
  config.flags = YOUR_FLAGS;
  config.limits[0].stroke = config.limits[0].error = atof(argv[3]);
  config.limits[0].velocity = atof(argv[4]);
  config.limits[0].acceleration = atof(argv[5]);
  config.limits[0].following = INFINITY;
  config.limits[0].force = atof(argv[6]);
  config.unit[0] = 1.0;
  stiffness = atof(argv[7]);
  result = rths_init(&target, &config, active); /* on a rig: only on an operator's act */
  if (result != 0) {
    fprintf(stderr, "%s: must be %s\n", rths_field(result), rths_bound(result));
    return 3;
  }
  line = bound_socket(atol(argv[1]));
  if (line < 0) {
    fprintf(stderr, "port %s: %s\n", argv[1], strerror(errno));
    return 4;
  }
  if (sched_setscheduler(0, SCHED_FIFO, &priority) || mlockall(MCL_CURRENT | MCL_FUTURE))
    fprintf(stderr, "real-time scheduling or memory locking is not permitted: some ticks will be late\n");
  printf("ready\n");
  fflush(stdout);
  (void)clock_gettime(CLOCK_MONOTONIC, &next);
  while (!rths_at_rest(&target)) {
    if (!target.lockstep) wait_tick(&next, (long)config.period_ns);
    tick(line);
  }
  printf("reason %d, %lu samples, %lu bridged\n", target.reason, (unsigned long)target.counter,
         (unsigned long)target.bridged);
  return 0;
}
