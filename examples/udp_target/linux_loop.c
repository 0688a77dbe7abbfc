/* SPDX-License-Identifier: Apache-2.0 */
/* The loop around the receiver on Linux, as it is for PREEMPT_RT: one axis, one thread under SCHED_FIFO, absolute times.
 *   linux_loop PORT RATE_HZ STROKE_M VELOCITY_M_S ACCELERATION_M_S2 FORCE_N STIFFNESS_N_M
 * What is yours stands first: here it is a spring that goes where it is commanded, and says that it is an emulator.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "rths_target.h"

#include <arpa/inet.h>
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
static double stiffness, place;

/* ---- yours ------------------------------------------------------------------------------------------------------ */

#define YOUR_FLAGS (RTHS_EMULATOR | RTHS_LOCKSTEP) /* 0 at a rig */

static void your_sensors(rths_sensors *measured) {
  measured->displacement[0] = place;
  measured->force[0] = stiffness * place;
}

static void your_controller(const double *command, const double *velocity) {
  (void)velocity;
  place = command[0];
}

/* ---- the socket ------------------------------------------------------------------------------------------------- */

static int socket_at(long port) {
  const int found = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in here;
  memset(&here, 0, sizeof here);
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK); /* yours: the address of the cable to the test computer */
  here.sin_port = htons((uint16_t)port);
  return found < 0 || bind(found, (const struct sockaddr *)&here, sizeof here) ? -1 : found;
}

static void send_to(int line, const uint8_t *data, size_t size, uint64_t whom) {
  struct sockaddr_in there;
  memset(&there, 0, sizeof there);
  there.sin_family = AF_INET;
  there.sin_addr.s_addr = htonl((uint32_t)(whom >> 16));
  there.sin_port = htons((uint16_t)(whom & 0xffffu));
  if (size) (void)sendto(line, data, size, 0, (const struct sockaddr *)&there, sizeof there); /* one lost is bridged */
}

/* All that has come, and its answers; it does not wait. */
static void take(int line) {
  uint8_t in[RTHS_MAX_BYTES + 1], out[RTHS_MAX_BYTES]; /* one byte more: a longer datagram is cut, and then garbage */
  struct sockaddr_in from;
  socklen_t length = sizeof from;
  ssize_t size;
  while ((size = recvfrom(line, in, sizeof in, MSG_DONTWAIT, (struct sockaddr *)&from, &length)) >= 0) {
    const uint64_t sender = ((uint64_t)ntohl(from.sin_addr.s_addr) << 16) | ntohs(from.sin_port);
    (void)rths_receive(&target, in, (size_t)size, sender);
    send_to(line, out, rths_reply(&target, out, sizeof out), sender);
    length = sizeof from;
  }
}

/* In lockstep, which only an emulator grants: until the command is here that answers the state, 2 s at most. */
static void await(int line) {
  struct pollfd look = {line, POLLIN, 0};
  do take(line);
  while (target.state == RTHS_RUNNING && target.newest < target.counter && poll(&look, 1, 2000) > 0);
}

/* ---- the loop --------------------------------------------------------------------------------------------------- */

static void tick(int line) {
  static rths_sensors measured;
  uint8_t out[RTHS_MAX_BYTES];
  size_t size;
  take(line);
  your_sensors(&measured);
  size = rths_state(&target, &measured, out, sizeof out);
  send_to(line, out, size, target.sender);
  if (target.lockstep && size) await(line);
  rths_drive(&target);
  your_controller(target.command, target.velocity);
}

int main(int count, char **words) {
  static const struct sched_param priority = {.sched_priority = 80};
  static rths_config config;
  struct timespec next;
  double position[1] = {0.0}; /* the command that is active in your controller */
  int line, refused;
  if (count != 8) return 2;
  config.axes = 1;
  config.period_ns = (uint32_t)lrint(1e9 / atof(words[2])); /* 1024 Hz: 976562, halves to even */
  config.bridged = 10;
  config.watchdog = 100;
  config.persistence = 5;
  config.flags = YOUR_FLAGS;
  config.limits[0].stroke = config.limits[0].error = atof(words[3]);
  config.limits[0].velocity = atof(words[4]);
  config.limits[0].acceleration = atof(words[5]);
  config.limits[0].following = INFINITY;
  config.limits[0].force = atof(words[6]);
  config.unit[0] = 1.0;
  stiffness = atof(words[7]);
  refused = rths_init(&target, &config, position); /* by an operator's act */
  if (refused != 0) {
    fprintf(stderr, "%s: must be %s\n", rths_field(refused), rths_bound(refused));
    return 3;
  }
  line = socket_at(atol(words[1]));
  if (line < 0) return 4;
  if (sched_setscheduler(0, SCHED_FIFO, &priority) || mlockall(MCL_CURRENT | MCL_FUTURE))
    fprintf(stderr, "no right to real time here: the tick will be late now and then\n");
  printf("ready\n");
  fflush(stdout);
  (void)clock_gettime(CLOCK_MONOTONIC, &next);
  while (!rths_at_rest(&target)) {
    next.tv_nsec += (long)config.period_ns;
    while (next.tv_nsec >= 1000000000L) {
      next.tv_nsec -= 1000000000L;
      next.tv_sec++;
    }
    if (!target.lockstep) (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    tick(line);
  }
  printf("reason %d, %lu samples, %lu bridged\n", target.reason, (unsigned long)target.counter,
         (unsigned long)target.bridged);
  return 0;
}
