/* SPDX-License-Identifier: Apache-2.0 */
/* See rths_target.h. */
#include "rths_target.h"

#include <float.h>

#if !defined(RTHS_FREESTANDING) && defined(__STDC_HOSTED__) && __STDC_HOSTED__
#include <math.h> /* only sqrt, which is correctly rounded on every platform, and fast */
#define root_of sqrt
#else
#define root_of rths_root
#endif

#define FARTHEST 1e18 /* numbers are clamped to this magnitude: it exceeds every stroke, and no result of it overflows */
#define MOST_STEPS 1e15
#define SIGN 0x8000000000000000u
#define HIDDEN 0x0010000000000000u /* implicit bit of the mantissa */
#define NO_LIMIT 0x7ff0000000000000u /* bits of INFINITY */
#define FIELDS 32 /* exceeds the number of fields, so that one number encodes field and axis */
#define SHARE 0.0625 /* weight of the current value in the level of a sensor; reduces noise to a quarter */
#define ROUNDING (1.0 + 1e-6) /* permits a command at its velocity limit although the period is rounded to ns */

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static uint32_t get16(const uint8_t *at) { return (uint32_t)at[0] | ((uint32_t)at[1] << 8); }

static uint32_t get32(const uint8_t *at) { return get16(at) | (get16(at + 2) << 16); }

static uint64_t bits_of(double value) {
  union {
    double value;
    uint64_t bits;
  } both;
  both.value = value;
  return both.bits;
}

static double real_of(uint64_t bits) {
  union {
    double value;
    uint64_t bits;
  } both;
  both.bits = bits;
  return both.value;
}

static double get_real(const uint8_t *at) {
  return real_of((uint64_t)get32(at) | ((uint64_t)get32(at + 4) << 32));
}

static void put16(uint8_t *at, uint32_t value) {
  at[0] = (uint8_t)(value & 0xffu);
  at[1] = (uint8_t)((value >> 8) & 0xffu);
}

static void put32(uint8_t *at, uint32_t value) {
  put16(at, value & 0xffffu);
  put16(at + 2, value >> 16);
}

static void put64(uint8_t *at, uint64_t value) {
  put32(at, (uint32_t)(value & 0xffffffffu));
  put32(at + 4, (uint32_t)(value >> 32));
}

static void put_real(uint8_t *at, double value) { put64(at, bits_of(value)); }

static void clear(void *object, size_t size) {
  uint8_t *at = (uint8_t *)object;
  size_t i;
  for (i = 0; i < size; i++) at[i] = 0;
}

static int all_zero(const uint8_t *at, int size) {
  int i, found = 1;
  for (i = 0; i < size; i++) found &= at[i] == 0;
  return found;
}

uint32_t rths_checksum(const uint8_t *data, size_t size) {
  static const uint32_t table[16] = {0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
                                     0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
                                     0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
  uint32_t crc = 0xffffffffu;
  size_t i;
  for (i = 0; i < size; i++) {
    crc = table[(crc ^ data[i]) & 15u] ^ (crc >> 4);
    crc = table[(crc ^ ((uint32_t)data[i] >> 4)) & 15u] ^ (crc >> 4);
  }
  return crc ^ 0xffffffffu;
}

static size_t seal(uint8_t *out, size_t size) {
  put32(out + size, rths_checksum(out, size));
  return size + RTHS_CHECKSUM;
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------- */

/* These functions use bits, because they must not raise floating-point exceptions. */
static int finite_real(double value) { return ((bits_of(value) >> 52) & 0x7ffu) != 0x7ffu; }

static double magnitude(double value) { return real_of(bits_of(value) & ~SIGN); }

static double with_sign_of(double value, double other) { return real_of(bits_of(value) | (bits_of(other) & SIGN)); }

/* Square root of a number from 1 to 2^1022, bit by bit, rounded according to IEEE 754. */
double rths_root(double square) {
  const uint64_t bits = bits_of(square);
  const uint32_t exponent = (uint32_t)(bits >> 52) - 1023u; /* even exponents are halved; odd ones leave a bit */
  uint64_t rest = ((bits & (HIDDEN - 1u)) | HIDDEN) << (1u + (exponent & 1u));
  uint64_t root = 0, twice = 0, digit;
  for (digit = HIDDEN << 1; digit != 0u; digit >>= 1) {
    const uint64_t tried = twice + digit;
    if (tried <= rest) {
      twice = tried + digit;
      rest -= tried;
      root += digit;
    }
    rest <<= 1;
  }
  if (rest != 0u) root += root & 1u;
  return real_of((root >> 1) + ((uint64_t)((exponent >> 1) + 1022u) << 52));
}

int rths_self_test(void) {
  static const uint8_t digits[9] = {0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39};
  /* volatile, so that the processor computes instead of the compiler */
  volatile double near_one = 1.0 + 7.450580596923828125e-9, square = 1.0 + 1.490116119384765625e-8; /* 2^-27, 2^-26 */
  volatile double one = 1.0, tiny = 1.1102230246251565404e-16, more = 1.6653345369377348106e-16; /* 2^-53, 1.5 of it */
  const double first = near_one, second = near_one, part = square, whole = one, small = tiny, larger = more;
  int found = 0;
  if (sizeof(double) != 8u || bits_of(whole) != 0x3ff0000000000000u || bits_of(-2.5 * whole) != 0xc004000000000000u)
    found |= RTHS_TEST_REALS;
  /* two products, because a product that is used twice is not contracted */
  if (first * first - part != 0.0 || part - second * second != 0.0) found |= RTHS_TEST_CONTRACTED;
  if ((whole + small) - whole != 0.0 || (-whole - small) + whole != 0.0 || (whole + larger) - whole != DBL_EPSILON)
    found |= RTHS_TEST_ROUNDING;
  if (bits_of(root_of(2.0 * whole)) != 0x3ff6a09e667f3bcdu) found |= RTHS_TEST_ROUNDING;
  if (rths_checksum(digits, sizeof digits) != 0xcbf43926u) found |= RTHS_TEST_CHECKSUM;
  return found;
}

/* ---- motion ----------------------------------------------------------------------------------------------------- */

static double within(double value, double limit) {
  return value > limit ? limit : value < -limit ? -limit : value;
}

/* Return the largest velocity of the next sample from which an axis stops within distance (m), if it then brakes by step
 * (m/s) per sample. All motions of an axis use this function. */
static double brakes_within(double distance, double step, double dt) {
  double way, whole = MOST_STEPS;
  if (!(distance > 0.0)) return 0.0;
  way = distance / dt;
  if (way < step * (MOST_STEPS * MOST_STEPS)) whole = (double)(int64_t)(0.5 * (root_of(1.0 + 8.0 * way / step) - 1.0));
  if (whole > MOST_STEPS) whole = MOST_STEPS;
  return (way + 0.5 * step * whole * (whole + 1.0)) / (whole + 1.0);
}

/* Return 1 if an axis is controlled by displacement. Otherwise command and velocity are a force and its rate. */
static int moves(const rths_target *t, int axis) { return t->mode[axis] != RTHS_BY_FORCE; }

/* Return the samples in which the axes of a group stop together from velocity[axes]: the maximum of the axes. */
static double samples_to_rest(const rths_target *t, uint8_t group, const double *velocity) {
  double most = 0.0;
  int i;
  for (i = 0; i < t->config.axes; i++) {
    double samples;
    if (t->config.group[i] != group || !moves(t, i)) continue;
    samples = magnitude(velocity[i]) / (t->config.limits[i].acceleration * t->dt);
    if (samples > most) most = samples;
  }
  return most;
}

/* Return 1 if a group that moves with velocity[axes] in the next sample can then stop together within its strokes. */
static int can_stop(const rths_target *t, uint8_t group, const double *velocity) {
  const double samples = samples_to_rest(t, group, velocity);
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const double v = magnitude(velocity[i]), stroke = t->config.limits[i].stroke;
    const double room = velocity[i] > 0.0 ? stroke - t->command[i] : stroke + t->command[i];
    if (t->config.group[i] == group && v > 0.0 && v > brakes_within(room, v / samples, t->dt)) return 0;
  }
  return 1;
}

static int leads(const rths_target *t, int axis) { /* 1 for the first axis of its group */
  int i;
  for (i = 0; i < axis; i++)
    if (t->config.group[i] == t->config.group[axis]) return 0;
  return 1;
}

/* Reduce the velocities of a group by the same fraction, for the first sample of its stop. */
static void slower(const rths_target *t, uint8_t group, double *velocity) {
  const double samples = samples_to_rest(t, group, t->velocity);
  int i;
  for (i = 0; i < t->config.axes; i++)
    if (t->config.group[i] == group)
      velocity[i] = samples > 1.0 && moves(t, i) ? t->velocity[i] * (1.0 - 1.0 / samples) : 0.0;
}

/* Reduce velocity[axes] of a group towards that of a stop, as far as necessary to leave room for the stop. A group that
 * stops always has this room. */
static void leave_room(const rths_target *t, uint8_t group, double *velocity) {
  double stopped[RTHS_MAX_AXES] = {0.0}, tried[RTHS_MAX_AXES], low = 0.0, high = 1.0;
  int i, halved;
  if (can_stop(t, group, velocity)) return;
  slower(t, group, stopped);
  for (i = 0; i < t->config.axes; i++) { /* an axis that brakes more than the stop, for its own point, may do so */
    const double least = (velocity[i] > 0.0) == (stopped[i] > 0.0) ? magnitude(velocity[i]) : 0.0;
    if (t->config.group[i] == group && least < magnitude(stopped[i])) stopped[i] = with_sign_of(least, stopped[i]);
  }
  for (halved = 0; halved < 24; halved++) {
    const double share = 0.5 * (low + high);
    for (i = 0; i < t->config.axes; i++)
      if (t->config.group[i] == group) tried[i] = stopped[i] + share * (velocity[i] - stopped[i]);
    if (can_stop(t, group, tried)) low = share;
    else high = share;
  }
  for (i = 0; i < t->config.axes; i++)
    if (t->config.group[i] == group) velocity[i] = stopped[i] + low * (velocity[i] - stopped[i]);
}

/* Move for one sample with velocity[axes]. */
static void go(rths_target *t, const double *velocity) {
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const double before = t->command[i], to = before + velocity[i] * t->dt;
    if (!moves(t, i)) continue;
    t->command[i] = within(to, t->config.limits[i].stroke);
    t->velocity[i] = t->command[i] == to ? velocity[i] : (t->command[i] - before) / t->dt;
  }
}

/* Approach points that move with slope, within all limits. Return 1 if all axes reach their points in this sample. */
static int chase(rths_target *t, const double *point, const double *slope) {
  double wanted[RTHS_MAX_AXES] = {0.0}, velocity[RTHS_MAX_AXES] = {0.0};
  int i, reached = 1;
  for (i = 0; i < t->config.axes; i++) {
    const rths_limits *limit = &t->config.limits[i];
    const double step = limit->acceleration * t->dt, v = t->velocity[i], to = within(point[i], limit->stroke);
    const double along = to == point[i] ? within(slope[i], limit->velocity) : 0.0;
    const double gap = to - along * t->dt - t->command[i];
    const double relative = with_sign_of(brakes_within(magnitude(gap), step, t->dt), gap);
    if (!moves(t, i)) continue;
    wanted[i] = along + relative;
    velocity[i] = within(wanted[i], limit->velocity * ROUNDING);
    velocity[i] = velocity[i] > v + step ? v + step : velocity[i] < v - step ? v - step : velocity[i];
    reached &= magnitude(relative) <= step;
  }
  for (i = 0; i < t->config.axes; i++)
    if (leads(t, i)) leave_room(t, t->config.group[i], velocity);
  go(t, velocity);
  for (i = 0; i < t->config.axes; i++) reached &= !moves(t, i) || t->velocity[i] == wanted[i];
  return reached;
}

/* Return the commanded position of an axis controlled by displacement. A command in N keeps the axis where it is. After the
 * axis was held, it follows the changes of its commands. */
static double place_of(const rths_target *t, const rths_command *c, int axis) {
  if (c->mode[axis] == RTHS_BY_FORCE) return t->command[axis];
  return t->loop[axis].shift != 0.0 ? c->command[axis] + t->loop[axis].shift : c->command[axis];
}

static double slope_of(const rths_command *c, int axis) { return c->mode[axis] == RTHS_BY_FORCE ? 0.0 : c->slope[axis]; }

/* Move exactly to the commands. Return 0 and change nothing if a command exceeds a limit or prevents a stop. */
static int follow(rths_target *t, const rths_command *c) {
  double velocity[RTHS_MAX_AXES] = {0.0};
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const rths_limits *limit = &t->config.limits[i];
    const double place = place_of(t, c, i);
    if (!moves(t, i)) continue;
    if (magnitude(place) > limit->stroke) return 0;
    velocity[i] = (place - t->command[i]) / t->dt;
    if (magnitude(velocity[i]) > limit->velocity * ROUNDING) return 0;
    if (magnitude(velocity[i] - t->velocity[i]) > limit->following * t->dt * ROUNDING) return 0;
  }
  for (i = 0; i < t->config.axes; i++)
    if (leads(t, i) && !can_stop(t, t->config.group[i], velocity)) return 0;
  for (i = 0; i < t->config.axes; i++) {
    if (!moves(t, i)) continue;
    t->velocity[i] = velocity[i];
    t->command[i] = place_of(t, c, i);
  }
  return 1;
}

static void brake(rths_target *t) {
  double velocity[RTHS_MAX_AXES] = {0.0};
  int i;
  for (i = 0; i < t->config.axes; i++)
    if (leads(t, i)) slower(t, t->config.group[i], velocity);
  go(t, velocity);
}

/* Return 1 if no axis controlled by displacement moves. */
static int still(const rths_target *t) {
  int i;
  for (i = 0; i < t->config.axes; i++)
    if (moves(t, i) && t->velocity[i] != 0.0) return 0;
  return 1;
}

/* ---- force loops of the controller ------------------------------------------------------------------------------- */

static int has_loop(const rths_target *t, int axis) { return t->config.load[axis].rate > 0.0; }

static double level_of(const rths_level *shown) { return 2.0 * shown->once - shown->twice; }

static void smooth(rths_level *shown, double value, int first) {
  shown->once = first ? value : shown->once + SHARE * (value - shown->once);
  shown->twice = first ? value : shown->twice + SHARE * (shown->once - shown->twice);
}

static double largest_load(const rths_target *t, int axis) {
  return within(t->config.limits[axis].force, FARTHEST) * magnitude(t->config.load[axis].unit);
}

/* Control an axis by displacement from its current position, so that the change of mode causes no motion. */
static void hold(rths_target *t, int axis) {
  t->loop[axis].wrong_mode = 0;
  t->mode[axis] = RTHS_BY_DISPLACEMENT;
  t->command[axis] = within(level_of(&t->loop[axis].place), t->config.limits[axis].stroke);
  t->velocity[axis] = 0.0;
}

/* Control an axis by force, from its current force. */
static void load(rths_target *t, int axis) {
  rths_loop *loop = &t->loop[axis];
  loop->from_place = level_of(&loop->place);
  loop->from_force = level_of(&loop->force);
  loop->from_drift = loop->drift;
  loop->over_force = 0;
  loop->over_error = 0;
  loop->over_travel = 0;
  loop->wrong_mode = 0;
  t->mode[axis] = RTHS_BY_FORCE;
  t->command[axis] = within(loop->from_force, largest_load(t, axis));
  t->velocity[axis] = 0.0;
}

/* Change each axis to the mode of its command; a moving axis is first brought to rest. The position and force of an axis
 * whose sensors have not yet delivered numbers are unknown, so that it stays where it is. */
static void change_modes(rths_target *t) {
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const int asked = t->base.mode[i] == RTHS_BY_FORCE, moving = moves(t, i);
    if (has_loop(t, i) && asked && moving && t->velocity[i] == 0.0 && t->loop[i].seen != 0u) load(t, i);
    if (has_loop(t, i) && !asked && !moving) {
      hold(t, i);
      t->loop[i].shift = t->command[i] - t->base.command[i];
    }
  }
}

/* Compute the commands in N of the next sample: towards the last received command, within the rate, once the controller
 * is in force mode. A bridge holds the force, because forces have no slope. */
static void press(rths_target *t) {
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const double before = t->command[i], step = t->config.load[i].rate * t->dt;
    double to;
    if (moves(t, i)) continue;
    to = t->base.mode[i] == RTHS_BY_FORCE ? within(t->base.command[i], largest_load(t, i)) : before;
    if (t->loop[i].told != RTHS_BY_FORCE) to = before;
    if (magnitude(to - before) > step * ROUNDING) to = before + with_sign_of(step, to - before);
    t->command[i] = to;
    t->velocity[i] = (to - before) / t->dt;
    if (to != t->base.command[i]) t->moved_flags |= RTHS_LIMITED;
  }
}

/* During a stop: hold the axis whose force loop has failed at once, the others once nothing else moves. */
static void release(rths_target *t) {
  const int rest = still(t) || t->reason == RTHS_INTERLOCKED;
  int i;
  for (i = 0; i < t->config.axes; i++) {
    if (moves(t, i)) continue;
    t->velocity[i] = 0.0;
    if (rest || t->loop[i].own) hold(t, i);
  }
}

static void stop(rths_target *t, uint8_t reason) {
  int i;
  if (t->state == RTHS_BRAKING || t->state == RTHS_STOPPED) return;
  t->reason = reason;
  t->trigger = 0;
  t->warning = 0;
  for (i = 0; i < RTHS_QUEUE; i++) t->queue[i].counter = 0; /* discard queued commands */
  t->state = t->state == RTHS_RUNNING ? RTHS_BRAKING : RTHS_STOPPED;
}

static int beyond(double value, double limit) {
  return limit <= DBL_MAX && (!finite_real(value) || magnitude(value) > limit);
}

/* Update the levels of axes with force loops from the sensors. NaN changes no level. */
static void look(rths_target *t, const rths_sensors *measured) {
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const rths_load *limit = &t->config.load[i];
    const double place = measured->displacement[i], force = measured->force[i];
    const double drift = measured->displacement[has_loop(t, i) ? limit->coupled : 0u];
    rths_loop *loop = &t->loop[i];
    if (!has_loop(t, i)) continue;
    loop->told = measured->mode[i];
    loop->same = loop->seen != 0u && bits_of(force) == bits_of(loop->shown) ? loop->same + (loop->same < UINT32_MAX) : 0u;
    loop->shown = force;
    if (finite_real(drift)) loop->drift = t->config.unit[limit->coupled] * within(drift, FARTHEST);
    if (!finite_real(place) || !finite_real(force)) continue;
    smooth(&loop->place, t->config.unit[i] * within(place, FARTHEST), loop->seen == 0u);
    smooth(&loop->force, limit->unit * within(force, FARTHEST), loop->seen == 0u);
    loop->seen = 1u;
  }
}

static uint32_t in_a_row(uint32_t samples, int again) { return again ? samples + 1u : 0u; }

/* Return 1 if the controller of an axis is not in the commanded mode, so that numbers would have the wrong unit. */
static int astray(const rths_target *t, int axis, uint8_t told) {
  return moves(t, axis) ? told == RTHS_BY_FORCE : told != RTHS_BY_FORCE;
}

/* Return the motion of an axis by its force loop that stiffness and drift do not explain. */
static double led_away(const rths_target *t, int axis, double place, double force) {
  const rths_load *limit = &t->config.load[axis];
  const rths_loop *loop = &t->loop[axis];
  const double drifted = 0.5 * limit->curvature * (loop->drift * loop->drift - loop->from_drift * loop->from_drift);
  return place - loop->from_place - drifted - (force - loop->from_force) / limit->stiffness;
}

/* Stop if a force loop has failed, and hold its axis. This also applies during a stop, which keeps the force. */
static void judge_loop(rths_target *t, const rths_sensors *measured, int axis) {
  const rths_load *limit = &t->config.load[axis];
  const int none = !finite_real(measured->displacement[axis]) || !finite_real(measured->force[axis]);
  const double place = none ? 0.0 : t->config.unit[axis] * within(measured->displacement[axis], FARTHEST);
  const double force = none ? 0.0 : limit->unit * within(measured->force[axis], FARTHEST);
  rths_loop *loop = &t->loop[axis];
  uint8_t reason = RTHS_NONE;
  loop->wrong_mode = in_a_row(loop->wrong_mode, astray(t, axis, measured->mode[axis]));
  if (loop->wrong_mode > t->config.switching) reason = RTHS_WRONG_MODE;
  if (!moves(t, axis)) {
    loop->over_error = in_a_row(loop->over_error, none || beyond(t->command[axis] - force, limit->error));
    loop->over_travel = in_a_row(loop->over_travel, none || beyond(led_away(t, axis, place, force), limit->travel));
    if (loop->over_error >= t->config.persistence) reason = RTHS_OVER_LOAD;
    if (loop->over_travel >= t->config.persistence) reason = RTHS_OVER_TRAVEL;
    if (limit->frozen != 0u && loop->same >= limit->frozen) reason = RTHS_FROZEN;
    loop->over_force = in_a_row(loop->over_force, beyond(measured->force[axis], t->config.limits[axis].force));
    if (loop->over_force >= t->config.persistence) reason = RTHS_OVER_FORCE;
  }
  if (reason == RTHS_NONE) return;
  loop->own = 1;
  stop(t, reason);
}

/* Stop if a force or the difference to a command has exceeded its limit for too many consecutive samples. */
static void judge(rths_target *t, const rths_sensors *measured) {
  int i, force = 0, error = 0;
  for (i = 0; i < t->config.axes; i++) {
    const rths_limits *limit = &t->config.limits[i];
    const double shown = measured->displacement[i];
    const int none = !finite_real(shown);
    force |= beyond(measured->force[i], limit->force);
    if (moves(t, i))
      error |= none ? limit->error <= DBL_MAX
                    : beyond(t->command[i] - t->config.unit[i] * within(shown, FARTHEST), limit->error);
  }
  t->over_force = force ? t->over_force + 1u : 0u;
  t->over_error = error ? t->over_error + 1u : 0u;
  if (t->over_force >= t->config.persistence) stop(t, RTHS_OVER_FORCE);
  if (t->over_error >= t->config.persistence) stop(t, RTHS_OVER_ERROR);
}

/* Compute the command of the next sample, which ends at the next state. */
static void advance(rths_target *t) {
  const uint32_t next = t->counter;
  double point[RTHS_MAX_AXES], slope[RTHS_MAX_AXES];
  uint32_t due;
  int i, on_time, reached;
  if (next <= t->transport) return; /* no command is due yet: hold */
  due = next - t->transport;
  for (i = 0; i < RTHS_QUEUE; i++) { /* the bridge also continues from late commands */
    const rths_command *c = &t->queue[i];
    if (c->counter > t->base.counter && c->counter <= due) t->base = *c;
  }
  on_time = t->base.counter == due;
  if (on_time) {
    t->missing = 0;
    t->trigger = t->base.trigger;
    t->warning = t->base.warning;
    for (i = 0; i < t->config.inputs; i++) t->input[i] = t->base.input[i];
    change_modes(t);
    press(t);
    if (!t->rejoining) {
      if (follow(t, &t->base)) return;
      t->rejoining = 1;
    }
    t->moved_flags |= RTHS_LIMITED;
    t->limited++;
  } else {
    press(t);
    t->missing++;
    t->bridged++;
    t->rejoining = 1;
    t->moved_flags |= RTHS_BRIDGED;
    if (t->missing > t->config.watchdog) stop(t, RTHS_LOST);
    if (t->missing > t->config.bridged) {
      brake(t);
      return;
    }
  }
  for (i = 0; i < t->config.axes; i++) {
    slope[i] = slope_of(&t->base, i);
    point[i] = place_of(t, &t->base, i) + slope[i] * (double)(due - t->base.counter) * t->dt;
  }
  reached = chase(t, point, slope);
  if (on_time && reached) t->rejoining = 0;
}

/* ---- datagrams -------------------------------------------------------------------------------------------------- */

static int positive(double value) { return finite_real(value) && value > 0.0 && value < 1e9; }

/* Return 1 for a valid limit that may be INFINITY, but not NaN. */
static int positive_or_none(double value) { return bits_of(value) <= NO_LIMIT && value > 0.0; }

/* Return 1 for a number that may be a divisor or a factor. */
static int usable(double value) { return finite_real(value) && magnitude(value) > 1e-9 && magnitude(value) < 1e15; }

/* Return the wrong field of a force loop, or 0 if it is valid or the axis has none. */
static int wrong_load(const rths_config *config, int axis) {
  const rths_load *load_of = &config->load[axis];
  if (bits_of(load_of->rate) == 0u) return 0;
  if (!(load_of->rate > 0.0) || !usable(load_of->rate)) return RTHS_FIELD_LOAD_RATE;
  if (!usable(load_of->stiffness)) return RTHS_FIELD_LOAD_STIFFNESS;
  if (!usable(load_of->unit)) return RTHS_FIELD_LOAD_UNIT;
  if (!positive_or_none(load_of->error)) return RTHS_FIELD_LOAD_ERROR;
  if (!positive_or_none(load_of->travel)) return RTHS_FIELD_LOAD_TRAVEL;
  if (!finite_real(load_of->curvature) || magnitude(load_of->curvature) > 1e9) return RTHS_FIELD_LOAD_CURVATURE;
  if (load_of->coupled >= config->axes) return RTHS_FIELD_LOAD_COUPLED;
  if (config->switching < 1u) return RTHS_FIELD_SWITCHING;
  return config->limits[axis].force <= DBL_MAX ? 0 : RTHS_FIELD_LOAD_FORCE;
}

/* Return the number of samples of a stop from the largest velocity. */
static double samples_of(const rths_limits *limit, double dt) {
  const double most = (double)RTHS_MOST_SAMPLES, velocity = limit->velocity * ROUNDING, step = limit->acceleration * dt;
  double samples, whole;
  if (!(velocity < step * most)) return most;
  samples = velocity / step;
  whole = (double)(uint32_t)samples;
  return whole < samples ? whole + 1.0 : whole;
}

/* Return the wrong field that belongs to no axis, or 0. */
static int wrong_config(const rths_config *config) {
  if (config->axes < 1 || config->axes > RTHS_MAX_AXES) return RTHS_FIELD_AXES;
  if (config->inputs > RTHS_MAX_AUXILIARY) return RTHS_FIELD_INPUTS;
  if (config->channels > RTHS_MAX_AUXILIARY) return RTHS_FIELD_CHANNELS;
  if (config->period_ns < RTHS_LEAST_PERIOD || config->period_ns > RTHS_MOST_PERIOD) return RTHS_FIELD_PERIOD;
  if (config->watchdog <= config->bridged || config->watchdog > RTHS_MOST_WATCHDOG) return RTHS_FIELD_WATCHDOG;
  if ((double)config->period_ns * (double)config->watchdog > RTHS_MOST_SILENCE) return RTHS_FIELD_WATCHDOG;
  if (config->persistence == 0) return RTHS_FIELD_PERSISTENCE;
  if ((config->flags & RTHS_LOCKSTEP) && !(config->flags & RTHS_EMULATOR)) return RTHS_FIELD_FLAGS;
  return 0;
}

/* Return the wrong field of an axis, or 0. */
static int wrong_axis(const rths_config *config, int axis, double position, double dt) {
  const rths_limits *limit = &config->limits[axis];
  const double metre = bits_of(config->metre[axis]) == 0u ? 1.0 : config->metre[axis];
  if (!positive(metre)) return RTHS_FIELD_METRE;
  if (!positive(limit->stroke) || limit->stroke > RTHS_MOST_STROKE * metre) return RTHS_FIELD_STROKE;
  if (!positive(limit->velocity) || limit->velocity > RTHS_MOST_VELOCITY * metre) return RTHS_FIELD_VELOCITY;
  if (!positive(limit->acceleration) || limit->acceleration > RTHS_MOST_ACCELERATION * metre)
    return RTHS_FIELD_ACCELERATION;
  if (!positive_or_none(limit->following)) return RTHS_FIELD_FOLLOWING;
  if (!positive_or_none(limit->force)) return RTHS_FIELD_FORCE;
  if (!positive_or_none(limit->error)) return RTHS_FIELD_ERROR;
  if (!positive(magnitude(config->unit[axis]))) return RTHS_FIELD_UNIT;
  if (!(samples_of(limit, dt) < (double)RTHS_MOST_SAMPLES)) return RTHS_FIELD_STOP;
  if (!finite_real(position) || magnitude(position) > limit->stroke) return RTHS_FIELD_POSITION;
  return wrong_load(config, axis);
}

int rths_init(rths_target *target, const rths_config *config, const double *position) {
  int i, field;
  clear(target, sizeof *target);
  if (rths_self_test() != 0) return -2;
  field = wrong_config(config);
  if (field != 0) return -field;
  target->dt = 1e-9 * (double)config->period_ns;
  for (i = 0; i < config->axes; i++) {
    field = wrong_axis(config, i, position[i], target->dt);
    if (field != 0) return -(field + FIELDS * i);
    target->mode[i] = RTHS_BY_DISPLACEMENT;
    target->base.mode[i] = RTHS_BY_DISPLACEMENT;
    target->command[i] = position[i];
    target->base.command[i] = position[i];
  }
  target->config = *config;
  return 0;
}

static const struct {
  const char *name, *bound;
} FIELD_TEXTS[RTHS_FIELD_END] = {
    {"", ""},
    {"", ""},
    {"self-test", "0: compile with -ffp-contract=off and without -ffast-math"},
    {"axes", "1 to 8"},
    {"inputs", "0 to 8"},
    {"channels", "0 to 8"},
    {"period_ns", "10 000 to 1 000 000 000 ns"},
    {"watchdog", "more than bridged, at most 1 000 000 samples and 10 s"},
    {"persistence", "at least 1 sample"},
    {"flags", "RTHS_LOCKSTEP only with RTHS_EMULATOR"},
    {"metre[]", "> 0, or 0 if commands are in m"},
    {"limits[].stroke", "> 0 and at most 10 m"},
    {"limits[].velocity", "> 0 and at most 100 m/s"},
    {"limits[].acceleration", "> 0 and at most 10 000 m/s^2"},
    {"limits[].following", "> 0, or INFINITY"},
    {"limits[].force", "> 0, or INFINITY"},
    {"limits[].error", "> 0, or INFINITY"},
    {"unit[]", "other than 0"},
    {"limits[].velocity", "less than acceleration times 2^28 samples, to come to rest"},
    {"position[]", "within stroke"},
    {"load[].rate", "0 for no force loop, or > 0 and finite"},
    {"load[].stiffness", "finite and other than 0"},
    {"load[].unit", "finite and other than 0"},
    {"load[].error", "> 0, or INFINITY"},
    {"load[].travel", "> 0, or INFINITY"},
    {"load[].curvature", "finite"},
    {"load[].coupled", "the index of an axis"},
    {"switching", "at least 1 sample with a force loop"},
    {"limits[].force", "finite with a force loop"},
};

static int field_of(int result) {
  const int field = result < 0 ? -result % FIELDS : 0;
  return field < RTHS_FIELD_END ? field : 0;
}

const char *rths_field(int result) { return FIELD_TEXTS[field_of(result)].name; }

const char *rths_bound(int result) { return FIELD_TEXTS[field_of(result)].bound; }

int rths_axis(int result) {
  const int field = field_of(result);
  return field < RTHS_FIELD_METRE || field == RTHS_FIELD_SWITCHING ? -1 : -result / FIELDS;
}

static int counted(rths_target *t, int result) {
  t->counts[result]++;
  return result;
}

static int takes_newtons(const rths_config *config) {
  int i, found = 0;
  for (i = 0; i < config->axes; i++) found |= config->load[i].rate > 0.0;
  return found;
}

static uint8_t objection(const rths_target *t, const uint8_t *data) {
  const rths_config *config = &t->config;
  const uint32_t flags = get16(data + RTHS_AT_FLAGS), differ = flags ^ config->flags;
  const uint32_t transport = data[RTHS_AT_TRANSPORT];
  if (data[RTHS_AT_AXES] != config->axes) return RTHS_WRONG_AXES;
  if (get32(data + RTHS_AT_PERIOD) != config->period_ns) return RTHS_WRONG_PERIOD;
  if (data[RTHS_AT_AUXILIARY] != config->inputs) return RTHS_WRONG_AUXILIARY;
  if (differ & RTHS_RAMP) return RTHS_WRONG_HOLD;
  if (differ & RTHS_EMULATOR) return RTHS_WRONG_EMULATOR;
  if (flags & ~config->flags & RTHS_LOCKSTEP) return RTHS_NO_LOCKSTEP;
  if (flags & ~config->flags & RTHS_TRIGGER) return RTHS_NO_TRIGGER;
  if ((flags & RTHS_NEWTONS) && !takes_newtons(config)) return RTHS_NO_NEWTONS;
  if (transport >= RTHS_QUEUE / 2 || (transport == 0 && !(flags & RTHS_LOCKSTEP))) return RTHS_WRONG_TRANSPORT;
  return RTHS_NONE;
}

/* Request an answer with the reason of a refusal, or RTHS_NONE. */
static int answered(rths_target *t, const uint8_t *data, uint8_t reason) {
  t->asked_version = get16(data + RTHS_AT_VERSION);
  t->asked_session = get32(data + RTHS_AT_SESSION);
  t->asked_counter = get32(data + RTHS_AT_COUNTER);
  t->asked_flags = get16(data + RTHS_AT_FLAGS);
  t->asked_reason = reason;
  t->reply_due = 1;
  return counted(t, reason == RTHS_NONE ? RTHS_TAKEN : RTHS_REFUSED);
}

static int opened(rths_target *t, const uint8_t *data, uint32_t session, uint64_t sender) {
  uint8_t reason = RTHS_BUSY;
  if (t->state == RTHS_WAITING && session == t->session && sender == t->sender) return answered(t, data, RTHS_NONE);
  if (t->reason == RTHS_INTERLOCKED) reason = RTHS_INTERLOCKED;
  else if (t->state == RTHS_IDLE && session != 0) reason = objection(t, data);
  if (reason != RTHS_NONE) return answered(t, data, reason);
  t->session = session;
  t->sender = sender;
  t->transport = data[RTHS_AT_TRANSPORT];
  t->lockstep = (get16(data + RTHS_AT_FLAGS) & RTHS_LOCKSTEP) != 0;
  t->newtons = (get16(data + RTHS_AT_FLAGS) & RTHS_NEWTONS) != 0;
  t->state = RTHS_WAITING;
  return answered(t, data, RTHS_NONE);
}

static int commanded(rths_target *t, const uint8_t *data, size_t size) {
  const uint32_t counter = get32(data + RTHS_AT_COUNTER);
  const uint8_t *row = data + RTHS_HEAD;
  rths_command c;
  int i, late;
  if (data[RTHS_AT_AXES] != t->config.axes || data[RTHS_AT_AUXILIARY] != t->config.inputs) return counted(t, RTHS_GARBAGE);
  if (size != RTHS_HEAD + (size_t)t->config.axes * RTHS_COMMAND_ROW + (size_t)t->config.inputs * 8 + RTHS_CHECKSUM)
    return counted(t, RTHS_GARBAGE);
  if (t->state != RTHS_RUNNING) return counted(t, RTHS_LATE);
  clear(&c, sizeof c);
  c.counter = counter;
  c.trigger = (get16(data + RTHS_AT_FLAGS) & t->config.flags & RTHS_TRIGGER) != 0;
  c.warning = (get16(data + RTHS_AT_FLAGS) & t->config.flags & RTHS_WARNING) != 0;
  for (i = 0; i < t->config.axes; i++, row += RTHS_COMMAND_ROW) {
    c.command[i] = get_real(row);
    c.slope[i] = get_real(row + 8);
    if (!finite_real(c.command[i]) || !finite_real(c.slope[i])) return counted(t, RTHS_GARBAGE);
    if (row[16] > RTHS_BY_FORCE || !all_zero(row + 17, 7)) return counted(t, RTHS_GARBAGE);
    if (row[16] == RTHS_BY_FORCE && !(t->newtons && has_loop(t, i))) return counted(t, RTHS_GARBAGE);
    c.mode[i] = row[16];
    c.command[i] = within(c.command[i], FARTHEST);
    c.slope[i] = within(c.slope[i], FARTHEST);
  }
  for (i = 0; i < t->config.inputs; i++, row += 8) {
    c.input[i] = get_real(row);
    if (!finite_real(c.input[i])) return counted(t, RTHS_GARBAGE);
  }
  if (counter == 0 || counter > t->counter) return counted(t, RTHS_EARLY);
  if (counter <= t->base.counter) return counted(t, counter == t->base.counter ? RTHS_REPEATED : RTHS_LATE);
  if (t->queue[counter % RTHS_QUEUE].counter == counter) return counted(t, RTHS_REPEATED);
  if (t->queue[counter % RTHS_QUEUE].counter > counter) return counted(t, RTHS_LATE); /* a newer command is queued there */
  late = counter + t->transport <= t->driven;
  t->queue[counter % RTHS_QUEUE] = c;
  if (counter > t->newest) t->newest = counter;
  return counted(t, late ? RTHS_LATE : RTHS_TAKEN);
}

int rths_receive(rths_target *t, const uint8_t *data, size_t size, uint64_t sender) {
  uint32_t session;
  int kind;
  if (size < RTHS_HEAD + RTHS_CHECKSUM || size > RTHS_MAX_BYTES) return counted(t, RTHS_GARBAGE);
  if (get32(data + RTHS_AT_MAGIC) != RTHS_MAGIC) return counted(t, RTHS_GARBAGE);
  if (get32(data + size - RTHS_CHECKSUM) != rths_checksum(data, size - RTHS_CHECKSUM)) return counted(t, RTHS_GARBAGE);
  session = get32(data + RTHS_AT_SESSION);
  kind = data[RTHS_AT_KIND];
  if (kind != RTHS_COMMAND && size != RTHS_HEAD + RTHS_CHECKSUM) return counted(t, RTHS_GARBAGE);
  if (get16(data + RTHS_AT_VERSION) != RTHS_VERSION)
    return kind == RTHS_OPEN ? answered(t, data, RTHS_WRONG_VERSION) : counted(t, RTHS_GARBAGE);
  if (kind == RTHS_OPEN) return opened(t, data, session, sender);
  if (session != t->session || sender != t->sender || t->state == RTHS_IDLE) return counted(t, RTHS_FOREIGN);
  if (kind == RTHS_COMMAND) return commanded(t, data, size);
  if (kind == RTHS_CLOSE) {
    stop(t, RTHS_CLOSED);
    return counted(t, RTHS_TAKEN);
  }
  if (kind != RTHS_BEGIN) return counted(t, RTHS_GARBAGE);
  if (t->state != RTHS_WAITING) return counted(t, RTHS_REPEATED);
  t->state = RTHS_RUNNING;
  return counted(t, RTHS_TAKEN);
}

static void head(const rths_target *t, uint8_t *out, int kind, uint32_t session, uint32_t counter) {
  clear(out, RTHS_HEAD);
  put32(out + RTHS_AT_MAGIC, RTHS_MAGIC);
  put16(out + RTHS_AT_VERSION, RTHS_VERSION);
  out[RTHS_AT_KIND] = (uint8_t)kind;
  out[RTHS_AT_AXES] = t->config.axes;
  put32(out + RTHS_AT_SESSION, session);
  put32(out + RTHS_AT_COUNTER, counter);
  put32(out + RTHS_AT_HEARD, kind == RTHS_ANSWER ? t->asked_counter : t->newest);
  put32(out + RTHS_AT_PERIOD, t->config.period_ns);
  put16(out + RTHS_AT_FLAGS, t->config.flags & 0xffffu);
  out[RTHS_AT_TRANSPORT] = t->transport;
  out[RTHS_AT_AUXILIARY] = t->config.channels;
  out[RTHS_AT_STATE] = t->state;
  out[RTHS_AT_REASON] = t->reason;
}

size_t rths_reply(rths_target *t, uint8_t *out, size_t capacity) {
  uint8_t *row;
  int i;
  if (!t->reply_due || capacity < RTHS_MAX_BYTES) return 0;
  t->reply_due = 0;
  row = out + RTHS_HEAD;
  head(t, out, RTHS_ANSWER, t->asked_session, t->ticks);
  put16(out + RTHS_AT_VERSION, t->asked_version); /* all versions have the same head, so the sender can read it */
  out[RTHS_AT_REASON] = t->asked_reason;
  if (t->asked_reason == RTHS_WRONG_VERSION) return seal(out, RTHS_HEAD);
  for (i = 0; i < t->config.axes; i++, row += RTHS_ANSWER_ROW) {
    const rths_limits *limit = &t->config.limits[i];
    put_real(row, t->command[i]);
    put_real(row + 8, t->velocity[i]);
    put_real(row + 16, limit->stroke);
    put_real(row + 24, limit->velocity);
    put_real(row + 32, limit->acceleration);
    put_real(row + 40, limit->force);
    put_real(row + 48, limit->error);
  }
  put32(row, t->config.bridged);
  put32(row + 4, t->config.watchdog);
  put32(row + 8, t->config.persistence);
  put64(row + 12, RTHS_BUILD);
  row += RTHS_ANSWER_END;
  if ((t->asked_flags & RTHS_NEWTONS) && takes_newtons(&t->config)) {
    put16(out + RTHS_AT_FLAGS, (t->config.flags & 0xffffu) | RTHS_NEWTONS);
    for (i = 0; i < t->config.axes; i++, row += RTHS_LOAD_ROW) {
      put_real(row, t->config.load[i].rate);
      put_real(row + 8, t->config.load[i].error);
      put_real(row + 16, t->config.load[i].travel);
    }
  }
  return seal(out, (size_t)(row - out));
}

size_t rths_state(rths_target *t, const rths_sensors *measured, uint8_t *out, size_t capacity) {
  uint8_t *row;
  int i;
  t->ticks++;
  look(t, measured);
  if (measured->interlock == 2) stop(t, RTHS_INTERLOCKED);
  for (i = 0; i < t->config.axes; i++)
    if (t->newtons && has_loop(t, i) && (t->state == RTHS_RUNNING || t->state == RTHS_BRAKING)) judge_loop(t, measured, i);
  if (t->state == RTHS_RUNNING) judge(t, measured);
  if (t->counter >= RTHS_LAST_COUNTER) stop(t, RTHS_COUNTED_OUT);
  if (t->state == RTHS_IDLE || t->state == RTHS_WAITING || capacity < RTHS_MAX_BYTES) return 0;
  row = out + RTHS_HEAD;
  head(t, out, RTHS_STATE, t->session, t->counter);
  if (t->counter != UINT32_MAX) t->counter++; /* months after the end of the session */
  put16(out + RTHS_AT_FLAGS, (t->config.flags & ~(RTHS_TRIGGER | RTHS_WARNING)) | t->moved_flags |
                                 (t->trigger ? RTHS_TRIGGER : 0u) | (t->warning ? RTHS_WARNING : 0u) |
                                 (measured->saturated ? RTHS_SATURATED : 0u));
  out[RTHS_AT_HYDRAULICS] = measured->hydraulics;
  out[RTHS_AT_INTERLOCK] = measured->interlock;
  for (i = 0; i < t->config.axes; i++, row += RTHS_STATE_ROW) {
    put_real(row, measured->displacement[i]);
    put_real(row + 8, measured->force[i]);
    put_real(row + 16, t->command[i]);
    clear(row + 24, 8);
    row[24] = measured->mode[i];
    if (t->newtons && has_loop(t, i)) {
      if (t->state == RTHS_RUNNING && measured->mode[i] == RTHS_BY_DISPLACEMENT) row[24] = RTHS_HELD;
      row[25] = !moves(t, i);
    }
  }
  for (i = 0; i < t->config.channels; i++, row += 8) put_real(row, measured->channel[i]);
  return seal(out, (size_t)(row - out));
}

static int all_held(const rths_target *t) {
  int i;
  for (i = 0; i < t->config.axes; i++)
    if (!moves(t, i)) return 0;
  return 1;
}

void rths_drive(rths_target *t) {
  if (t->state == RTHS_IDLE || t->state == RTHS_WAITING) return;
  t->moved_flags = 0;
  if (t->state == RTHS_RUNNING) advance(t);
  else {
    t->moved_flags = RTHS_BRIDGED;
    brake(t);
    release(t);
  }
  t->driven = t->counter;
  if (t->state == RTHS_BRAKING && still(t) && all_held(t)) t->state = RTHS_STOPPED;
}

uint32_t rths_rest_samples(const rths_target *t) {
  double most = 0.0;
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const double samples = samples_of(&t->config.limits[i], t->dt);
    if (samples > most) most = samples;
  }
  return t->transport + t->config.bridged + (uint32_t)most + 1u; /* a force is held in the sample in which the others stop */
}

int rths_at_rest(const rths_target *t) { return t->state == RTHS_STOPPED; }
