/* SPDX-License-Identifier: Apache-2.0 */
/* Test of the receiver with hostile datagrams. `make check` builds it with sanitizers.
 *
 * It also computes the test vectors of the receiver: one number from all answers, states and commands, which is the same
 * on every processor (`make vectors`; RTHS_VECTORS below). To test a target, compile with RTHS_NO_MAIN and call
 * rths_hostile.
 *
 * Most datagrams are valid except for a few bytes, and have a valid checksum, so that the receiver processes them.
 * Commands reach the strokes at full velocity, jump, are missing, or are random bytes. Some come from another sender. */
#ifdef RTHS_TRAPS /* glibc: an invalid operation, a division by zero or an overflow aborts the process */
#define _GNU_SOURCE
#include <fenv.h>
#endif

#include "rths_target.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 500L /* each of 200 ticks and about 212 datagrams */
#define TICKS 200L
#define OURS 99u
#define LONGEST 512u /* bytes */
#define RTHS_VECTORS 0xabbe13df2afae315u /* after ROUNDS rounds */
#define RTHS_VECTORS_IN_NEWTONS 0x09be77ee46ad2070u /* after ROUNDS rounds with force loops on some axes */

static uint32_t seed = 1u;
static long datagrams = 0, stops = 0;
#define BASIS 0xcbf29ce484222325u
static uint64_t vectors = BASIS; /* FNV-1a hash of all outputs of the receiver */
static int in_newtons = 0;       /* 1: some axes have force loops */

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

static uint8_t requested_mode[RTHS_MAX_AXES]; /* kept for several samples */

/* Change the row of an axis to the requested mode, rarely also that of an axis without a force loop. */
static void press(const rths_target *t, int i, uint8_t *row) {
  if (draw() % 60u == 0u) requested_mode[i] = (uint8_t)(draw() % 3u);
  if (t->config.load[i].rate <= 0.0 && draw() % 256u) return;
  row[16] = requested_mode[i];
  if (row[16] != RTHS_BY_FORCE) return;
  put_real(row, draw() % 64u ? (t->mode[i] == RTHS_BY_FORCE ? t->command[i] + uniform(-1.1, 1.1) * t->config.load[i].rate * t->dt
                                                           : t->loop[i].shown)
                             : uniform(-2.0, 2.0) * fmin(t->config.limits[i].force, 1e300));
}

/* Exclude subnormal reals, which some processors flush to zero: they would change the vectors. */
static void make_normal(uint8_t *real) {
  if ((real[7] & 0x7fu) < 4u) real[7] |= 0x10u;
}

/* Write the rows of a command: random bytes, or the next point at the speed of each axis. */
static void rows(const rths_target *t, const double *speed, uint8_t *row) {
  const uint32_t kind = draw() % 16u;
  int i;
  for (i = 0; i < t->config.axes; i++, row += RTHS_COMMAND_ROW) {
    const rths_limits *limit = &t->config.limits[i];
    int byte;
    for (byte = 0; byte < 16; byte++) row[byte] = (uint8_t)draw();
    make_normal(row);
    make_normal(row + 8);
    if (kind == 0) continue;
    put_real(row, kind == 1 ? uniform(-2.0, 2.0) * limit->stroke : t->command[i] + speed[i] * t->dt);
    put_real(row + 8, kind == 2 ? uniform(-9.0, 9.0) * limit->velocity : speed[i]);
    if (in_newtons) press(t, i, row);
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
  if (in_newtons && draw() % 8u) data[RTHS_AT_FLAGS] |= RTHS_NEWTONS;
  data[RTHS_AT_TRANSPORT] = 1;
  if (kind == RTHS_COMMAND) rows(t, speed, data + RTHS_HEAD);
  for (wrong = draw() % 8u ? 0u : draw() % 4u; wrong; wrong--) {
    const size_t at = draw() % size;
    data[at] = (uint8_t)draw();
    if (at >= RTHS_HEAD && (at - RTHS_HEAD) % RTHS_COMMAND_ROW < 16u) make_normal(data + at - at % 8u);
  }
  put32(data + size, rths_checksum(data, size));
  return draw() % 32u ? size + RTHS_CHECKSUM : draw() % (LONGEST + 1u);
}

/* Set one limit near an end of the range of reals. Most of these limits are refused. */
static void extreme(rths_limits *limit) {
  double *const fields[6] = {&limit->stroke,    &limit->velocity, &limit->acceleration,
                             &limit->following, &limit->force,    &limit->error};
  const uint32_t index = draw() % 6u;
  *fields[index] = draw() % 2u ? 1e-250 : 1.7976931348623157e308;
}

/* Configure a force loop. Rarely one number is near an end of the range of reals. */
static void add_loop(rths_config *config, int i) {
  rths_load *load = &config->load[i];
  double *const fields[6] = {&load->rate,      &load->error,     &load->travel,
                             &load->stiffness, &load->curvature, &load->unit};
  load->rate = uniform(1.0, 100.0);
  load->error = draw() % 2u ? uniform(0.5, 5.0) : (double)INFINITY;
  load->travel = draw() % 2u ? uniform(1e-3, 1e-2) : (double)INFINITY;
  load->stiffness = uniform(-1.0, 1.0) * 1e3;
  load->curvature = draw() % 2u ? 0.8 : 0.0;
  load->unit = draw() % 2u ? 1.0 : -2.0;
  load->frozen = draw() % 4u ? 0u : 60u;
  load->coupled = 0;
  config->limits[i].force = uniform(1.0, 10.0);
  config->switching = 1u + draw() % 8u;
  if (draw() % 64u == 0u) *fields[draw() % 6u] = draw() % 2u ? 1e-250 : 1.7976931348623157e308;
}

/* Initialise a random rig. The acceleration of followed commands is limited or not. */
static int set_up(rths_target *target) {
  rths_config config;
  double position[RTHS_MAX_AXES];
  const int limited = draw() % 2u == 0u;
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
    limit->following = limited ? limit->acceleration : (double)INFINITY;
    limit->force = limit->error = draw() % 2u ? 1.0 : (double)INFINITY;
    config.group[i] = (uint8_t)(draw() % 3u);
    config.unit[i] = 1.0;
    if (in_newtons && draw() % 2u) add_loop(&config, i);
    position[i] = uniform(-0.9, 0.9) * limit->stroke;
  }
  if (draw() % 64u == 0u) config.limits[0].acceleration = 1e-9; /* refused, because the axis would not come to rest */
  if (draw() % 16u == 0u) extreme(&config.limits[0]);
  return rths_init(target, &config, position);
}

static uint8_t mode_before[RTHS_MAX_AXES];
static uint32_t limited_before; /* samples */

/* Return 0 if the motion from the previous command, at the previous velocity, is within the limits, otherwise the index of
 * the exceeded limit in PROBLEMS. */
static int beyond(const rths_target *t, const double *before, const double *velocity) {
  /* RTHS_LIMITED may be due to a force; the motion of the other axes then has the limit following */
  const uint32_t departs = (t->limited != limited_before) | (t->moved_flags & RTHS_BRIDGED);
  const int own = departs != 0 || t->state != RTHS_RUNNING; /* 1: a motion of the receiver itself */
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const rths_limits *limit = &t->config.limits[i];
    const double v = (t->command[i] - before[i]) / t->dt, noise = 1e-12 * limit->stroke / t->dt;
    const double most = own ? limit->acceleration : limit->following;
    if (in_newtons && (t->mode[i] == RTHS_BY_FORCE || mode_before[i] == RTHS_BY_FORCE)) {
      const double most_force = fmin(limit->force, 1e300) * fabs(t->config.load[i].unit), rate = t->config.load[i].rate;
      if (t->mode[i] != RTHS_BY_FORCE) continue; /* held at its position */
      if (!(fabs(t->command[i]) <= most_force)) return 5;
      if (mode_before[i] == RTHS_BY_FORCE && !(fabs(v) <= rate * (1.0 + 2e-6) + 1e-9)) return 6;
      continue;
    }
    if (!(fabs(t->command[i]) <= limit->stroke)) return 1;
    if (!(fabs(v) <= limit->velocity * (1.0 + 1e-6) + noise)) return 2;
    if (!(fabs(v - velocity[i]) <= most * t->dt * (1.0 + 1e-6) + noise)) return 3;
  }
  return 0;
}

/* Return 0 if all axes of a group have slowed down by the same fraction, and no axis at rest is controlled by force. */
static int askew(const rths_target *t, const double *before, const double *velocity) {
  int i, j;
  for (i = 0; i < t->config.axes; i++)
    if (t->state == RTHS_STOPPED && t->mode[i] == RTHS_BY_FORCE) return 7;
  for (i = 0; i < t->config.axes; i++)
    for (j = 0; j < i; j++) {
      const double a = (t->command[i] - before[i]) / t->dt * velocity[j];
      const double b = (t->command[j] - before[j]) / t->dt * velocity[i];
      if (mode_before[i] == RTHS_BY_FORCE || mode_before[j] == RTHS_BY_FORCE) continue;
      if (t->mode[i] == RTHS_BY_FORCE || t->mode[j] == RTHS_BY_FORCE) continue;
      if (t->config.group[i] == t->config.group[j] && fabs(a - b) > 1e-9) return 4;
    }
  return 0;
}

/* Add the commands of the receiver to the vectors. */
static void note_drive(const rths_target *t) {
  uint8_t real[8];
  int i;
  for (i = 0; i < t->config.axes; i++) {
    put_real(real, t->command[i]);
    note(real, sizeof real);
    put_real(real, t->velocity[i]);
    note(real, sizeof real);
    if (in_newtons) note(&t->mode[i], 1);
  }
}

/* Send the datagrams before tick i. */
static void send(rths_target *target, const double *speed, long i) {
  static const int kinds[64] = {RTHS_OPEN, RTHS_BEGIN, RTHS_CLOSE, RTHS_STATE};
  uint8_t data[RTHS_MAX_BYTES], out[RTHS_MAX_BYTES];
  int count;
  for (count = i < 2 ? 8 : (int)(draw() % 3u); count; count--) {
    const uint32_t drawn = i < 2 ? draw() % 2u : draw() % (i < 100 ? 16u : 64u);
    const int kind = i >= 100 || drawn < 2u ? kinds[drawn] : 0;
    const size_t size = datagram(target, speed, data, kind ? kind : RTHS_COMMAND);
    const uint8_t result = (uint8_t)rths_receive(target, data, size, draw() % 16u ? OURS : draw());
    note(&result, 1);
    note(out, rths_reply(target, out, sizeof out));
    datagrams++;
  }
}

/* Simulate a force loop, which moves its axis to follow its command. Rarely it departs from it for one sample. */
static void follow_force(const rths_target *t, int axis, rths_sensors *measured) {
  const rths_load *load = &t->config.load[axis];
  const double before = measured->force[axis], now = draw() % 300u ? t->command[axis] / load->unit : uniform(-9.0, 9.0);
  measured->force[axis] = now;
  measured->displacement[axis] += load->unit * (now - before) / load->stiffness;
}

/* Simulate the mode that a controller reports: usually the commanded mode. */
static void report_mode(const rths_target *t, int axis, rths_sensors *measured) {
  if (draw() % 4u) measured->mode[axis] = t->mode[axis];
  if (draw() % 900u == 0u) measured->mode[axis] = (uint8_t)draw();
}

/* Change the speeds of some axes, and simulate the sensors of a rig that follows its commands. */
static void move(const rths_target *target, double *speed, rths_sensors *measured) {
  int axis;
  for (axis = 0; axis < target->config.axes; axis++) {
    const rths_limits *limit = &target->config.limits[axis];
    if (draw() % 40u == 0u) speed[axis] = uniform(-1.0, 1.0) * limit->velocity;
    if (draw() % 80u == 0u) speed[axis] = (draw() % 2u ? 0.98 : -0.98) * limit->velocity;
    if (in_newtons && target->mode[axis] == RTHS_BY_FORCE) follow_force(target, axis, measured);
    else measured->displacement[axis] = target->command[axis];
    if (in_newtons) report_mode(target, axis, measured);
  }
  if (draw() % 512u == 0u) measured->displacement[0] = draw() % 2u ? (double)NAN : 1.7976931348623157e308;
  if (target->config.load[0].rate > 0.0) return;
  measured->force[0] = draw() % 512u ? 0.0 : draw() % 2u ? 2.0 : (double)NAN;
}

/* Run the rounds. Return 0, or the index in PROBLEMS of the first problem. */
int rths_hostile(long rounds) {
  rths_sensors measured;
  static rths_target target; /* 16 kB, which may exceed the stack of a target */
  uint8_t out[RTHS_MAX_BYTES];
  double before[RTHS_MAX_AXES], velocity[RTHS_MAX_AXES] = {0.0}, speed[RTHS_MAX_AXES] = {0.0};
  long round, i;
  int axis;
  for (round = 0; round < rounds; round++) {
    if (set_up(&target)) continue;
    memset(&measured, 0, sizeof measured);
    memset(requested_mode, 0, sizeof requested_mode);
    for (axis = 0; axis < target.config.axes; axis++) velocity[axis] = 0.0;
    for (i = 0; i < TICKS; i++) {
      const uint8_t state_before = target.state;
      int problem;
      move(&target, speed, &measured);
      send(&target, speed, i);
      memcpy(before, target.command, sizeof before);
      memcpy(mode_before, target.mode, sizeof mode_before);
      limited_before = target.limited;
      note(out, rths_state(&target, &measured, out, sizeof out));
      rths_drive(&target);
      note_drive(&target);
      problem = beyond(&target, before, velocity);
      if (!problem && target.state >= RTHS_BRAKING) problem = askew(&target, before, velocity);
      if (problem) return problem;
      for (axis = 0; axis < target.config.axes; axis++)
        velocity[axis] = mode_before[axis] == target.mode[axis] ? (target.command[axis] - before[axis]) / target.dt
                                                        : target.velocity[axis];
      stops += state_before == RTHS_RUNNING && target.state >= RTHS_BRAKING;
    }
  }
  return 0;
}

/* Run the rounds for a receiver with force loops. The vectors start again. */
int rths_hostile_in_newtons(long rounds) {
  in_newtons = 1;
  seed = 1u;
  vectors = BASIS;
  return rths_hostile(rounds);
}

#ifndef RTHS_NO_MAIN
/* Print the vectors. Return 0 if they are as expected, or if their expected value is unknown. */
static int differ(const char *name, long rounds, uint64_t expected) {
  printf("%s: %08lx%08lx\n", name, (unsigned long)(vectors >> 32), (unsigned long)(vectors & 0xffffffffu));
  if (rounds != ROUNDS || vectors == expected) return 0;
  printf("%s: not the vectors of this version of the receiver\n", name);
  return 1;
}

static const char *const PROBLEMS[] = {"",
                                       "stroke exceeded",
                                       "velocity exceeded",
                                       "acceleration exceeded",
                                       "axes of a group do not stop together",
                                       "force exceeded",
                                       "force rate exceeded",
                                       "controlled by force at rest"};

int main(int argc, char **argv) {
  const long rounds = argc > 1 ? atol(argv[1]) : ROUNDS;
  int self_test, problem, other;
#ifdef RTHS_TRAPS
  feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
#endif
  self_test = rths_self_test();
  problem = rths_hostile(rounds);
  other = differ("vectors", rounds, RTHS_VECTORS);
  if (!problem) {
    problem = rths_hostile_in_newtons(rounds);
    other |= differ("in newtons", rounds, RTHS_VECTORS_IN_NEWTONS);
  }
  if (self_test) printf("hostile: rths_self_test() = %d: see rths_target.h\n", self_test);
  if (problem) printf("hostile: after %ld datagrams: %s\n", datagrams, PROBLEMS[problem]);
  if (self_test || problem) return 1;
  printf("hostile: %ld datagrams, %ld stops, no limit exceeded\n", datagrams, stops);
  return other;
}
#endif
