/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver under bytes that nobody meant for it: built with sanitizers by `make check`.
 * It is the receiver's test vectors, too: whatever it answers, states and drives goes into one number, which is the same
 * on every processor (`make vectors`; RTHS_VECTORS below). Compiled with RTHS_NO_MAIN, call rths_hostile on the target.
 * Most datagrams are right but for a few bytes, with a right checksum: so they get past the door. Commands run at full
 * velocity to the strokes, jump, stay away, or are nothing at all; a stranger sends, too.
 * SPDX-License-Identifier: Apache-2.0 */
#ifdef RTHS_TRAPS /* glibc: an invalid operation, a division by zero or an overflow ends the process */
#define _GNU_SOURCE
#include <fenv.h>
#endif

#include "rths_target.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 500L /* of 200 ticks, about 212 datagrams each */
#define TICKS 200L
#define OURS 99u
#define RTHS_VECTORS 0xed0fc5413077e61du /* of ROUNDS rounds */

static uint32_t seed = 1u;
static long datagrams = 0, stops = 0;
static uint64_t vectors = 0xcbf29ce484222325u; /* FNV-1a of all that the receiver has done */

static void note(const uint8_t *data, size_t size) {
  size_t i;
  for (i = 0; i < size; i++) vectors = (vectors ^ data[i]) * 0x100000001b3u;
}

static uint32_t draw(void) { /* xorshift */
  seed ^= seed << 13;
  seed ^= seed >> 17;
  seed ^= seed << 5;
  return seed;
}

static double uniform(double low, double high) { return low + (high - low) * (double)draw() / 4294967295.0; }

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

/* Rows of a command: bytes of any kind, or the next point at a velocity that an axis keeps for a while. Reals that a
 * processor may flush to zero are left out, here and in limits: vectors are the same whether it does or not. */
static void rows(const rths_target *t, const double *speed, uint8_t *row) {
  const uint32_t kind = draw() % 16u;
  int i;
  for (i = 0; i < t->config.axes; i++, row += RTHS_COMMAND_ROW) {
    const rths_limits *limit = &t->config.limits[i];
    int byte;
    for (byte = 0; byte < 16; byte++) row[byte] = (uint8_t)draw();
    for (byte = 7; byte < 16; byte += 8) row[byte] |= (uint8_t)((row[byte] & 0x7fu) == 0u ? 0x10u : 0u);
    if (kind == 0) continue;
    put_real(row, kind == 1 ? uniform(-2.0, 2.0) * limit->stroke : t->command[i] + speed[i] * t->dt);
    put_real(row + 8, kind == 2 ? uniform(-9.0, 9.0) * limit->velocity : speed[i]);
  }
}

static size_t datagram(const rths_target *t, const double *speed, uint8_t *data, int kind) {
  const size_t size = RTHS_HEAD + (kind == RTHS_COMMAND ? t->config.axes * (size_t)RTHS_COMMAND_ROW : 0u);
  size_t wrong;
  memset(data, 0, RTHS_MAX_BYTES);
  put32(data, RTHS_MAGIC);
  data[RTHS_AT_VERSION] = RTHS_VERSION;
  data[RTHS_AT_KIND] = (uint8_t)kind;
  data[RTHS_AT_AXES] = t->config.axes;
  put32(data + RTHS_AT_SESSION, 7u);
  put32(data + RTHS_AT_COUNTER, t->counter - (draw() % 8u ? 0u : draw() % 70u));
  put32(data + RTHS_AT_PERIOD, t->config.period_ns);
  data[RTHS_AT_FLAGS] = RTHS_EMULATOR;
  data[RTHS_AT_TRANSPORT] = 1;
  if (kind == RTHS_COMMAND) rows(t, speed, data + RTHS_HEAD);
  for (wrong = draw() % 8u ? 0u : draw() % 4u; wrong; wrong--) {
    const size_t place = draw() % size;
    data[place] = (uint8_t)draw();
  }
  put32(data + size, rths_checksum(data, size));
  return draw() % 32u ? size + RTHS_CHECKSUM : draw() % (RTHS_MAX_BYTES + 1u);
}

/* One of the limits near an end of the reals: most are refused. */
static void extreme(rths_limits *limit) {
  double *const fields[6] = {&limit->stroke,    &limit->velocity, &limit->acceleration,
                             &limit->following, &limit->force,    &limit->error};
  const uint32_t which = draw() % 6u;
  *fields[which] = draw() % 2u ? 1e-250 : 1.7976931348623157e308;
}

/* Any rig: of each axis limits, group and place; followed commands are limited in acceleration, or not. */
static int set_up(rths_target *target) {
  rths_config config;
  double position[RTHS_MAX_AXES];
  const int bent = draw() % 2u == 0u;
  int i;
  memset(&config, 0, sizeof config);
  config.axes = (uint8_t)(1u + draw() % RTHS_MAX_AXES);
  config.period_ns = draw() % 2u ? 976562u : 250000u;
  config.bridged = 10u;
  config.watchdog = 50u;
  config.persistence = 1u + draw() % 3u;
  config.flags = RTHS_EMULATOR | RTHS_TRIGGER;
  for (i = 0; i < config.axes; i++) {
    rths_limits *limit = &config.limits[i];
    limit->stroke = uniform(0.01, 0.12);
    limit->velocity = uniform(0.1, 0.8);
    limit->acceleration = uniform(1.0, 20.0);
    limit->following = bent ? limit->acceleration : (double)INFINITY;
    limit->force = limit->error = draw() % 2u ? 1.0 : (double)INFINITY;
    config.group[i] = (uint8_t)(draw() % 3u);
    config.unit[i] = 1.0;
    position[i] = uniform(-0.9, 0.9) * limit->stroke;
  }
  if (draw() % 64u == 0u) config.limits[0].acceleration = 1e-9; /* would not come to rest: refused */
  if (draw() % 16u == 0u) extreme(&config.limits[0]);
  return rths_init(target, &config, position);
}

/* 0 where the sample from before, with velocity, to what is commanded now is within what is stated. */
static int beyond(const rths_target *t, const double *before, const double *velocity) {
  const int own = t->moved_flags != 0 || t->state != RTHS_RUNNING;
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const rths_limits *limit = &t->config.limits[i];
    const double v = (t->command[i] - before[i]) / t->dt, noise = 1e-12 * limit->stroke / t->dt;
    const double most = own ? limit->acceleration : limit->following;
    if (!(fabs(t->command[i]) <= limit->stroke)) return 1;
    if (!(fabs(v) <= limit->velocity * (1.0 + 1e-6) + noise)) return 2;
    if (!(fabs(v - velocity[i]) <= most * t->dt * (1.0 + 1e-6) + noise)) return 3;
  }
  return 0;
}

/* 0 where all axes of a group are slower by the same share. */
static int askew(const rths_target *t, const double *before, const double *velocity) {
  int i, j;
  for (i = 0; i < t->config.axes; i++)
    for (j = 0; j < i; j++) {
      const double a = (t->command[i] - before[i]) / t->dt * velocity[j];
      const double b = (t->command[j] - before[j]) / t->dt * velocity[i];
      if (t->config.group[i] == t->config.group[j] && fabs(a - b) > 1e-9) return 4;
    }
  return 0;
}

/* What the receiver drives, into the vectors. */
static void note_drive(const rths_target *t) {
  uint8_t real[8];
  int i;
  for (i = 0; i < t->config.axes; i++) {
    put_real(real, t->command[i]);
    note(real, sizeof real);
    put_real(real, t->velocity[i]);
    note(real, sizeof real);
  }
}

/* The datagrams before tick i. */
static void send(rths_target *target, const double *speed, long i) {
  static const int kinds[64] = {RTHS_OPEN, RTHS_BEGIN, RTHS_CLOSE, RTHS_STATE};
  uint8_t data[RTHS_MAX_BYTES], out[RTHS_MAX_BYTES];
  int more;
  for (more = i < 2 ? 8 : (int)(draw() % 3u); more; more--) {
    const uint32_t drawn = i < 2 ? draw() % 2u : draw() % (i < 100 ? 16u : 64u);
    const int kind = i >= 100 || drawn < 2u ? kinds[drawn] : 0;
    const size_t size = datagram(target, speed, data, kind ? kind : RTHS_COMMAND);
    const uint8_t result = (uint8_t)rths_receive(target, data, size, draw() % 16u ? OURS : draw());
    note(&result, 1);
    note(out, rths_reply(target, out, sizeof out));
    datagrams++;
  }
}

/* New speeds for some axes, and what the sensors of a rig show that is where it is led. */
static void move(const rths_target *target, double *speed, rths_sensors *measured) {
  int axis;
  for (axis = 0; axis < target->config.axes; axis++) {
    const rths_limits *limit = &target->config.limits[axis];
    if (draw() % 40u == 0u) speed[axis] = uniform(-1.0, 1.0) * limit->velocity;
    if (draw() % 80u == 0u) speed[axis] = (draw() % 2u ? 0.98 : -0.98) * limit->velocity;
    measured->displacement[axis] = target->command[axis];
  }
  if (draw() % 512u == 0u) measured->displacement[0] = draw() % 2u ? (double)NAN : 1.7976931348623157e308;
  measured->force[0] = draw() % 512u ? 0.0 : draw() % 2u ? 2.0 : (double)NAN;
}

/* 0, or what is wrong in some tick of these rounds. */
int rths_hostile(long rounds) {
  rths_sensors measured;
  static rths_target target; /* 14 kB: the stack of a target may be smaller */
  uint8_t out[RTHS_MAX_BYTES];
  double before[RTHS_MAX_AXES], velocity[RTHS_MAX_AXES] = {0.0}, speed[RTHS_MAX_AXES] = {0.0};
  long round, i;
  int axis;
  for (round = 0; round < rounds; round++) {
    if (set_up(&target)) continue;
    memset(&measured, 0, sizeof measured);
    for (axis = 0; axis < target.config.axes; axis++) velocity[axis] = 0.0;
    for (i = 0; i < TICKS; i++) {
      const uint8_t was = target.state;
      int wrong;
      move(&target, speed, &measured);
      send(&target, speed, i);
      memcpy(before, target.command, sizeof before);
      note(out, rths_state(&target, &measured, out, sizeof out));
      rths_drive(&target);
      note_drive(&target);
      wrong = beyond(&target, before, velocity);
      if (!wrong && target.state >= RTHS_BRAKING) wrong = askew(&target, before, velocity);
      if (wrong) return wrong;
      for (axis = 0; axis < target.config.axes; axis++) velocity[axis] = (target.command[axis] - before[axis]) / target.dt;
      stops += was == RTHS_RUNNING && target.state >= RTHS_BRAKING;
    }
  }
  return 0;
}

#ifndef RTHS_NO_MAIN
int main(int count, char **words) {
  static const char *const what[] = {"", "stroke", "velocity", "acceleration", "off the common line"};
  const long rounds = count > 1 ? atol(words[1]) : ROUNDS;
  int tested, wrong;
#ifdef RTHS_TRAPS
  feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
#endif
  tested = rths_self_test();
  wrong = rths_hostile(rounds);
  if (tested) printf("hostile: the self-test finds %d: see rths_target.h\n", tested);
  if (wrong) printf("hostile: after %ld datagrams: %s\n", datagrams, what[wrong]);
  if (tested || wrong) return 1;
  printf("hostile: %ld datagrams, %ld stops: nothing beyond a limit\n", datagrams, stops);
  printf("vectors: %08lx%08lx\n", (unsigned long)(vectors >> 32), (unsigned long)(vectors & 0xffffffffu));
  if (rounds == ROUNDS && vectors != RTHS_VECTORS) {
    printf("vectors: not those of this version of the receiver\n");
    return 1;
  }
  return 0;
}
#endif
