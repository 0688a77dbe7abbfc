/* SPDX-License-Identifier: Apache-2.0 */
/* Longest known ticks of the receiver, to count their instructions: `make longest`, `make longest-emulated`.
 *
 * The rig has 8 axes, each in its own group, and all auxiliary channels. The axes move along their slopes towards the ends
 * of their strokes, so that a tick computes the room to stop by bisection, for each group. In every second session, 61
 * commands are late and arrive together. In the other sessions they arrive in time, and successive commands leave no room to stop. */
#include "rths_target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS 24u
#define LATE 62u
#define PERIOD 1e-3 /* s */
#define SPEED 0.45  /* m/s */

static rths_target target;

static void put32(uint8_t *at, uint32_t value) {
  int i;
  for (i = 0; i < 4; i++) at[i] = (uint8_t)((value >> (8 * i)) & 0xffu);
}

static void put_real(uint8_t *at, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put32(at, (uint32_t)(bits & 0xffffffffu));
  put32(at + 4, (uint32_t)(bits >> 32));
}

static int send(int kind, uint32_t counter, const double *start) {
  uint8_t data[RTHS_MAX_BYTES] = {0}, *row = data + RTHS_HEAD;
  size_t size;
  int i;
  put32(data, RTHS_MAGIC);
  data[RTHS_AT_VERSION] = RTHS_VERSION;
  data[RTHS_AT_KIND] = (uint8_t)kind;
  data[RTHS_AT_AXES] = RTHS_MAX_AXES;
  data[RTHS_AT_SESSION] = 7u;
  put32(data + RTHS_AT_COUNTER, counter);
  put32(data + RTHS_AT_PERIOD, target.config.period_ns);
  data[RTHS_AT_TRANSPORT] = 1u;
  data[RTHS_AT_AUXILIARY] = RTHS_MAX_AUXILIARY;
  for (i = 0; kind == RTHS_COMMAND && i < RTHS_MAX_AXES; i++, row += RTHS_COMMAND_ROW) {
    put_real(row, start[i] + SPEED * PERIOD * (double)counter);
    put_real(row + 8, SPEED);
  }
  if (kind == RTHS_COMMAND) row += 8 * RTHS_MAX_AUXILIARY;
  size = (size_t)(row - data);
  put32(row, rths_checksum(data, size));
  return rths_receive(&target, data, size + RTHS_CHECKSUM, 1u);
}

/* A tick without its datagrams, whose instructions are counted. */
size_t counted_tick(const rths_sensors *measured, uint8_t *out);
size_t counted_tick(const rths_sensors *measured, uint8_t *out) {
  const size_t size = rths_state(&target, measured, out, RTHS_MAX_BYTES);
  rths_drive(&target);
  return size;
}

static void tick(void) {
  static size_t (*volatile counted)(const rths_sensors *, uint8_t *) = counted_tick; /* prevents inlining */
  static rths_sensors measured;
  uint8_t out[RTHS_MAX_BYTES];
  memcpy(measured.displacement, target.command, sizeof measured.displacement);
  (void)counted(&measured, out);
}

int main(int argc, char **argv) {
  const uint32_t sessions = argc > 1 ? (uint32_t)atoi(argv[1]) : SESSIONS;
  static rths_config config;
  const rths_limits limits = {0.1, 0.5, 20.0, 1e6, 1e6, 1.0};
  double start[RTHS_MAX_AXES];
  uint8_t out[RTHS_MAX_BYTES];
  uint32_t k, session;
  int i, taken = 0;
  config.axes = RTHS_MAX_AXES;
  config.inputs = config.channels = RTHS_MAX_AUXILIARY;
  config.period_ns = 1000000u;
  config.bridged = 200u;
  config.watchdog = 1000u;
  config.persistence = 3u;
  for (i = 0; i < RTHS_MAX_AXES; i++) {
    config.limits[i] = limits;
    config.group[i] = (uint8_t)i;
    config.unit[i] = 1.0;
  }
  for (session = 0; session < sessions; session++) { /* at the last command, session/4 mm are left: usually too few */
    for (i = 0; i < RTHS_MAX_AXES; i++)
      start[i] = 0.1 - SPEED * PERIOD * LATE - 2.5e-4 * (double)session - 1e-5 * (double)i;
    if (rths_init(&target, &config, start) != 0) return 1;
    taken += send(RTHS_OPEN, 0u, start) == RTHS_TAKEN && rths_reply(&target, out, sizeof out) > 0u;
    taken += send(RTHS_BEGIN, 0u, start) == RTHS_TAKEN;
    tick();
    taken += send(RTHS_COMMAND, 1u, start) == RTHS_TAKEN;
    for (k = 1u; k < LATE; k++) {
      tick();
      if (session % 2u != 0u) taken += send(RTHS_COMMAND, k + 1u, start) == RTHS_TAKEN;
    }
    for (k = 2u; k <= LATE && session % 2u == 0u; k++)
      taken += send(RTHS_COMMAND, k, start) == (k < LATE ? RTHS_LATE : RTHS_TAKEN);
    tick();
  }
  printf("longest: %d datagrams taken, %lu samples bridged in the last session\n", taken, (unsigned long)target.bridged);
  return taken == (int)sessions * (3 + (int)LATE - 1) ? 0 : 1;
}
