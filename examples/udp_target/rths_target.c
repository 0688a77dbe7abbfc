/* See rths_target.h. SPDX-License-Identifier: Apache-2.0 */
#include "rths_target.h"

#include <math.h>
#include <string.h>

#define ROUNDING (1.0 + 1e-6) /* a command at its velocity limit is within it: the period is rounded to ns */

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static uint32_t get16(const uint8_t *at) { return (uint32_t)at[0] | ((uint32_t)at[1] << 8); }

static uint32_t get32(const uint8_t *at) { return get16(at) | (get16(at + 2) << 16); }

static double get_real(const uint8_t *at) {
  const uint64_t bits = (uint64_t)get32(at) | ((uint64_t)get32(at + 4) << 32);
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void put16(uint8_t *at, uint32_t value) {
  at[0] = (uint8_t)(value & 0xffu);
  at[1] = (uint8_t)((value >> 8) & 0xffu);
}

static void put32(uint8_t *at, uint32_t value) {
  put16(at, value & 0xffffu);
  put16(at + 2, value >> 16);
}

static void put_real(uint8_t *at, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put32(at, (uint32_t)(bits & 0xffffffffu));
  put32(at + 4, (uint32_t)(bits >> 32));
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

/* ---- motion ----------------------------------------------------------------------------------------------------- */

static double within(double value, double limit) {
  return value > limit ? limit : value < -limit ? -limit : value;
}

/* The velocity from which an axis stops within distance (>= 0), braking by step (m/s) each sample of dt. */
static double brakes_within(double distance, double step, double dt) {
  return sqrt(0.25 * step * step + 2.0 * step / dt * distance) - 0.5 * step;
}

/* Move one axis, from velocity to wanted velocity within its limits; never beyond the stroke. */
static void move(rths_target *t, int axis, double wanted) {
  const rths_limits *limit = &t->config.limits[axis];
  const double step = limit->acceleration * t->dt, before = t->command[axis];
  double v = t->velocity[axis], room, to;
  wanted = within(wanted, limit->velocity);
  room = wanted > 0.0 ? limit->stroke - before : limit->stroke + before;
  wanted = within(wanted, brakes_within(room > 0.0 ? room : 0.0, step, t->dt));
  v = wanted > v + step ? v + step : wanted < v - step ? v - step : wanted;
  to = within(before + v * t->dt, limit->stroke);
  t->velocity[axis] = (to - before) / t->dt;
  t->command[axis] = to;
}

/* Towards a point that moves with slope and is to be reached at this sample; 1 where it is. */
static int chase(rths_target *t, int axis, double point, double slope) {
  const rths_limits *limit = &t->config.limits[axis];
  const double step = limit->acceleration * t->dt, most = limit->velocity * ROUNDING;
  const double before = t->command[axis], close = step * ROUNDING;
  double needed, gap, relative;
  point = within(point, limit->stroke);
  slope = within(slope, limit->velocity);
  needed = (point - before) / t->dt;
  if (fabs(needed) <= most && fabs(needed - t->velocity[axis]) <= close && fabs(needed - slope) <= close) {
    t->velocity[axis] = within(needed, limit->velocity);
    t->command[axis] = point;
    return 1;
  }
  gap = point - slope * t->dt - before;
  relative = brakes_within(fabs(gap), step, t->dt);
  move(t, axis, slope + (gap < 0.0 ? -relative : relative));
  return 0;
}

/* Exactly to the commands; 0, and nothing is changed, where one is beyond a limit. */
static int follow(rths_target *t, const rths_command *c) {
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const rths_limits *limit = &t->config.limits[i];
    if (fabs(c->command[i]) > limit->stroke) return 0;
    if (fabs(c->command[i] - t->command[i]) > limit->velocity * t->dt * ROUNDING) return 0;
  }
  for (i = 0; i < t->config.axes; i++) {
    t->velocity[i] = within((c->command[i] - t->command[i]) / t->dt, t->config.limits[i].velocity);
    t->command[i] = c->command[i];
  }
  return 1;
}

static void brake(rths_target *t) {
  int i;
  for (i = 0; i < t->config.axes; i++) move(t, i, 0.0);
}

static int still(const rths_target *t) {
  int i;
  for (i = 0; i < t->config.axes; i++)
    if (t->velocity[i] != 0.0) return 0;
  return 1;
}

static void stop(rths_target *t, uint8_t reason) {
  if (t->state == RTHS_BRAKING || t->state == RTHS_STOPPED) return;
  t->reason = reason;
  t->trigger = 0;
  t->state = t->state == RTHS_RUNNING ? RTHS_BRAKING : RTHS_STOPPED;
}

/* The command of the coming sample, which ends at the next state. */
static void advance(rths_target *t) {
  const uint32_t next = t->counter;
  uint32_t due;
  int i, on_time, reached = 1;
  if (next <= t->transport) return; /* nothing is due yet: hold */
  due = next - t->transport;
  for (i = 0; i < RTHS_QUEUE; i++) { /* a late one is not sent, but the bridge goes on from it */
    const rths_command *c = &t->queue[i];
    if (c->counter > t->base.counter && c->counter <= due) t->base = *c;
  }
  on_time = t->base.counter == due;
  if (on_time) {
    t->missing = 0;
    t->trigger = t->base.trigger;
    for (i = 0; i < t->config.inputs; i++) t->input[i] = t->base.input[i];
    if (!t->rejoining) {
      if (follow(t, &t->base)) return;
      t->rejoining = 1;
    }
    t->moved_flags = RTHS_LIMITED;
    t->limited++;
  } else {
    t->missing++;
    t->bridged++;
    t->rejoining = 1;
    t->moved_flags = RTHS_BRIDGED;
    if (t->missing > t->config.watchdog) stop(t, RTHS_LOST);
    if (t->missing > t->config.bridged) {
      brake(t);
      return;
    }
  }
  for (i = 0; i < t->config.axes; i++) {
    const double ahead = (double)(due - t->base.counter) * t->dt;
    const double slope = within(t->base.slope[i], t->config.limits[i].velocity);
    reached &= chase(t, i, t->base.command[i] + slope * ahead, slope);
  }
  if (on_time && reached) t->rejoining = 0;
}

/* ---- datagrams -------------------------------------------------------------------------------------------------- */

static int positive(double value) { return value > 0.0 && value < 1e9; }

int rths_init(rths_target *target, const rths_config *config, const double *position) {
  int i;
  memset(target, 0, sizeof *target);
  if (config->axes < 1 || config->axes > RTHS_MAX_AXES) return -1;
  if (config->inputs > RTHS_MAX_AUXILIARY || config->channels > RTHS_MAX_AUXILIARY) return -1;
  if (config->period_ns == 0 || config->watchdog <= config->bridged || config->watchdog > 1000000u) return -1;
  if ((config->flags & RTHS_LOCKSTEP) && !(config->flags & RTHS_EMULATOR)) return -1;
  for (i = 0; i < config->axes; i++) {
    const rths_limits *limit = &config->limits[i];
    if (!positive(limit->stroke) || !positive(limit->velocity) || !positive(limit->acceleration)) return -1;
    if (!(fabs(position[i]) <= limit->stroke)) return -1;
    target->command[i] = target->base.command[i] = position[i];
  }
  target->config = *config;
  target->dt = 1e-9 * (double)config->period_ns;
  return 0;
}

static int counted(rths_target *t, int result) {
  t->counts[result]++;
  return result;
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
  if (transport >= RTHS_QUEUE / 2 || (transport == 0 && !(flags & RTHS_LOCKSTEP))) return RTHS_WRONG_TRANSPORT;
  return RTHS_NONE;
}

static int opened(rths_target *t, const uint8_t *data, uint32_t session) {
  t->asked_session = session;
  t->asked_counter = get32(data + RTHS_AT_COUNTER);
  t->reply_due = 1;
  if (t->state == RTHS_WAITING && session == t->session) {
    t->asked_reason = RTHS_NONE;
    return counted(t, RTHS_TAKEN);
  }
  t->asked_reason = t->state == RTHS_IDLE ? objection(t, data) : RTHS_BUSY;
  if (t->reason == RTHS_INTERLOCKED) t->asked_reason = RTHS_INTERLOCKED;
  if (session == 0) t->asked_reason = RTHS_BUSY;
  if (t->asked_reason != RTHS_NONE) return counted(t, RTHS_REFUSED);
  t->session = session;
  t->transport = data[RTHS_AT_TRANSPORT];
  t->lockstep = (get16(data + RTHS_AT_FLAGS) & RTHS_LOCKSTEP) != 0;
  t->state = RTHS_WAITING;
  return counted(t, RTHS_TAKEN);
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
  memset(&c, 0, sizeof c);
  c.counter = counter;
  c.trigger = (get16(data + RTHS_AT_FLAGS) & t->config.flags & RTHS_TRIGGER) != 0;
  for (i = 0; i < t->config.axes; i++, row += RTHS_COMMAND_ROW) {
    c.command[i] = get_real(row);
    c.slope[i] = get_real(row + 8);
    if (!isfinite(c.command[i]) || !isfinite(c.slope[i])) return counted(t, RTHS_GARBAGE);
  }
  for (i = 0; i < t->config.inputs; i++, row += 8) {
    c.input[i] = get_real(row);
    if (!isfinite(c.input[i])) return counted(t, RTHS_GARBAGE);
  }
  if (counter == 0 || counter > t->counter) return counted(t, RTHS_EARLY);
  if (counter <= t->base.counter) return counted(t, counter == t->base.counter ? RTHS_REPEATED : RTHS_LATE);
  if (t->queue[counter % RTHS_QUEUE].counter == counter) return counted(t, RTHS_REPEATED);
  late = counter + t->transport <= t->driven;
  t->queue[counter % RTHS_QUEUE] = c;
  if (counter > t->newest) t->newest = counter;
  return counted(t, late ? RTHS_LATE : RTHS_TAKEN);
}

int rths_receive(rths_target *t, const uint8_t *data, size_t size) {
  uint32_t session;
  int kind;
  if (size < RTHS_HEAD + RTHS_CHECKSUM || size > RTHS_MAX_BYTES) return counted(t, RTHS_GARBAGE);
  if (get32(data + RTHS_AT_MAGIC) != RTHS_MAGIC) return counted(t, RTHS_GARBAGE);
  if (get32(data + size - RTHS_CHECKSUM) != rths_checksum(data, size - RTHS_CHECKSUM)) return counted(t, RTHS_GARBAGE);
  session = get32(data + RTHS_AT_SESSION);
  kind = data[RTHS_AT_KIND];
  if (get16(data + RTHS_AT_VERSION) != RTHS_VERSION) {
    if (kind != RTHS_OPEN) return counted(t, RTHS_GARBAGE);
    t->asked_session = session;
    t->asked_counter = get32(data + RTHS_AT_COUNTER);
    t->asked_reason = RTHS_WRONG_VERSION;
    t->reply_due = 1;
    return counted(t, RTHS_REFUSED);
  }
  if (kind == RTHS_OPEN) return opened(t, data, session);
  if (session != t->session || t->state == RTHS_IDLE) return counted(t, RTHS_FOREIGN);
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
  memset(out, 0, RTHS_HEAD);
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
  out[RTHS_AT_REASON] = t->asked_reason;
  for (i = 0; i < t->config.axes; i++, row += RTHS_COMMAND_ROW) {
    put_real(row, t->command[i]);
    put_real(row + 8, t->velocity[i]);
  }
  return seal(out, (size_t)(row - out));
}

size_t rths_state(rths_target *t, const rths_sensors *measured, uint8_t *out, size_t capacity) {
  uint8_t *row;
  int i;
  t->ticks++;
  if (measured->interlock == 2) stop(t, RTHS_INTERLOCKED);
  if (t->state == RTHS_IDLE || t->state == RTHS_WAITING || capacity < RTHS_MAX_BYTES) return 0;
  row = out + RTHS_HEAD;
  head(t, out, RTHS_STATE, t->session, t->counter++);
  put16(out + RTHS_AT_FLAGS, (t->config.flags & ~RTHS_TRIGGER) | t->moved_flags | (t->trigger ? RTHS_TRIGGER : 0u) |
                                 (measured->saturated ? RTHS_SATURATED : 0u));
  out[RTHS_AT_HYDRAULICS] = measured->hydraulics;
  out[RTHS_AT_INTERLOCK] = measured->interlock;
  for (i = 0; i < t->config.axes; i++, row += RTHS_STATE_ROW) {
    put_real(row, measured->displacement[i]);
    put_real(row + 8, measured->force[i]);
    put_real(row + 16, t->command[i]);
    memset(row + 24, 0, 8);
    row[24] = measured->mode[i];
  }
  for (i = 0; i < t->config.channels; i++, row += 8) put_real(row, measured->channel[i]);
  return seal(out, (size_t)(row - out));
}

void rths_drive(rths_target *t) {
  if (t->state == RTHS_IDLE || t->state == RTHS_WAITING) return;
  t->moved_flags = 0;
  if (t->state == RTHS_RUNNING) advance(t);
  else {
    t->moved_flags = RTHS_BRIDGED;
    brake(t);
  }
  t->driven = t->counter;
  if (t->state == RTHS_BRAKING && still(t)) t->state = RTHS_STOPPED;
}

uint32_t rths_rest_samples(const rths_target *t) {
  double most = 0.0;
  int i;
  for (i = 0; i < t->config.axes; i++) {
    const rths_limits *limit = &t->config.limits[i];
    const double samples = ceil(limit->velocity / (limit->acceleration * t->dt));
    if (samples > most) most = samples;
  }
  return t->transport + t->config.bridged + (most < 1e6 ? (uint32_t)most : 1000000u) + 1u;
}

int rths_at_rest(const rths_target *t) { return t->state == RTHS_STOPPED; }
