/* The receiver under bytes that nobody meant for it: built with sanitizers by `make check`.
 * Most datagrams are right but for a few bytes, with a right checksum: so they get past the door.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rths_target.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint32_t seed = 1u;

static uint32_t draw(void) { /* xorshift */
  seed ^= seed << 13;
  seed ^= seed >> 17;
  seed ^= seed << 5;
  return seed;
}

static void put32(uint8_t *at, uint32_t value) {
  int i;
  for (i = 0; i < 4; i++) at[i] = (uint8_t)((value >> (8 * i)) & 0xffu);
}

static size_t datagram(const rths_target *t, uint8_t *data, int kind) {
  const size_t size = RTHS_HEAD + (kind == RTHS_COMMAND ? t->config.axes * (size_t)RTHS_COMMAND_ROW : 0u);
  size_t i, wrong;
  memset(data, 0, RTHS_MAX_BYTES);
  put32(data, RTHS_MAGIC);
  data[RTHS_AT_VERSION] = RTHS_VERSION;
  data[RTHS_AT_KIND] = (uint8_t)kind;
  data[RTHS_AT_AXES] = t->config.axes;
  put32(data + RTHS_AT_SESSION, 7u);
  put32(data + RTHS_AT_COUNTER, t->counter - draw() % 5u);
  put32(data + RTHS_AT_PERIOD, t->config.period_ns);
  data[RTHS_AT_FLAGS] = RTHS_EMULATOR;
  data[RTHS_AT_TRANSPORT] = 1;
  for (i = RTHS_HEAD; i < size; i++) data[i] = (uint8_t)draw();
  for (wrong = draw() % 4u; wrong; wrong--) data[draw() % size] = (uint8_t)draw();
  put32(data + size, rths_checksum(data, size));
  return draw() % 16u ? size + RTHS_CHECKSUM : draw() % (RTHS_MAX_BYTES + 1u);
}

int main(void) {
  rths_config config;
  rths_sensors measured;
  rths_target target;
  uint8_t data[RTHS_MAX_BYTES], out[RTHS_MAX_BYTES];
  double position[RTHS_MAX_AXES] = {0.0}, before[RTHS_MAX_AXES];
  long round, i, axis;
  memset(&config, 0, sizeof config);
  memset(&measured, 0, sizeof measured);
  config.period_ns = 976562u;
  config.bridged = 10u;
  config.watchdog = 50u;
  config.flags = RTHS_EMULATOR | RTHS_TRIGGER;
  for (round = 0; round < 200; round++) {
    config.axes = (uint8_t)(1u + draw() % RTHS_MAX_AXES);
    for (i = 0; i < config.axes; i++) config.limits[i] = (rths_limits){0.1, 0.5, 10.0};
    if (rths_init(&target, &config, position)) return 1;
    for (i = 0; i < 200; i++) {
      int more;
      for (more = (int)(draw() % 4u); more; more--) {
        static const int kinds[8] = {RTHS_OPEN, RTHS_BEGIN, RTHS_COMMAND, RTHS_COMMAND,
                                     RTHS_COMMAND, RTHS_COMMAND, RTHS_CLOSE, RTHS_STATE};
        const size_t size = datagram(&target, data, kinds[draw() % (i < 100 ? 6u : 8u)]);
        rths_receive(&target, data, size);
        rths_reply(&target, out, sizeof out);
      }
      memcpy(before, target.command, sizeof before);
      rths_state(&target, &measured, out, sizeof out);
      rths_drive(&target);
      for (axis = 0; axis < config.axes; axis++) {
        const double step = fabs(target.command[axis] - before[axis]);
        if (!(step <= 0.5 * target.dt * (1.0 + 1e-6)) || !(fabs(target.command[axis]) <= 0.1)) {
          printf("round %ld, tick %ld, axis %ld: %g after %g\n", round, i, axis, target.command[axis], before[axis]);
          return 1;
        }
      }
    }
  }
  puts("hostile: nothing undefined, no step beyond a limit");
  return 0;
}
