/* SPDX-License-Identifier: Apache-2.0 */
/* See near.h. This file includes the receiver, because the receiver's byte functions are static. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll */
#endif
#include "near.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "rths_target.c"

#define NEAR_SECOND 1000000000u
#define NEAR_PROBING NEAR_SECOND /* ns for all exchanges, at least NEAR_LEAST_PROBES */
#define NEAR_LEAST_PROBES 3
#define NEAR_NOT_A_NUMBER 0x7ff8000000000000u

enum { NEAR_EMPTY, NEAR_USELESS, NEAR_OURS }; /* results of near_received */

static uint64_t near_now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * NEAR_SECOND + (uint64_t)now.tv_nsec;
}

/* ---- datagrams -------------------------------------------------------------------------------------------------- */

static size_t near_written(const near_session *n, uint8_t *out, int kind, uint32_t counter, uint32_t flags,
                           size_t rows) {
  clear(out, RTHS_HEAD);
  put32(out + RTHS_AT_MAGIC, RTHS_MAGIC);
  put16(out + RTHS_AT_VERSION, RTHS_VERSION);
  out[RTHS_AT_KIND] = (uint8_t)kind;
  out[RTHS_AT_AXES] = n->terms.axes;
  put32(out + RTHS_AT_SESSION, n->terms.session);
  put32(out + RTHS_AT_COUNTER, counter);
  put32(out + RTHS_AT_HEARD, n->sample > 0u ? n->sample - 1u : 0u);
  put32(out + RTHS_AT_PERIOD, n->terms.period);
  put16(out + RTHS_AT_FLAGS, flags);
  out[RTHS_AT_TRANSPORT] = n->terms.transport;
  out[RTHS_AT_AUXILIARY] = n->terms.inputs;
  return seal(out, RTHS_HEAD + rows);
}

/* Send a datagram; a failure counts as a datagram lost in transit. */
static void near_transmit(near_session *n, const uint8_t *data, size_t size) {
  if (sendto(n->descriptor, data, size, 0, (const struct sockaddr *)&n->far, sizeof n->far) < 0)
    n->report.unsent = (uint32_t)errno;
}

/* Complete the datagram whose rows are already in n->last, and send it. */
static void near_post(near_session *n, int kind, uint32_t counter, uint32_t flags, size_t rows) {
  n->last_size = near_written(n, n->last, kind, counter, flags, rows);
  near_transmit(n, n->last, n->last_size);
  n->report.sent = n->heard_at = near_now_ns();
}

static int near_same_sender(const struct sockaddr_in *one, const struct sockaddr_in *other) {
  return one->sin_addr.s_addr == other->sin_addr.s_addr && one->sin_port == other->sin_port;
}

/* Read one datagram into n->in. Return NEAR_OURS, NEAR_EMPTY, or NEAR_USELESS for an unusable datagram. */
static int near_received(near_session *n) {
  socklen_t length = sizeof n->sender;
  const ssize_t got = recvfrom(n->descriptor, n->in, sizeof n->in, 0, (struct sockaddr *)&n->sender, &length);
  const size_t size = got < 0 ? 0u : (size_t)got;
  int stranger, whole, mine;
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? NEAR_EMPTY : NEAR_USELESS; /* error of an earlier send */
  stranger = n->settled ? !near_same_sender(&n->sender, &n->peer) : n->sender.sin_addr.s_addr != n->far.sin_addr.s_addr;
  whole = size >= RTHS_HEAD + RTHS_CHECKSUM && size <= RTHS_MAX_BYTES && get32(n->in + RTHS_AT_MAGIC) == RTHS_MAGIC &&
          get32(n->in + size - RTHS_CHECKSUM) == rths_checksum(n->in, size - RTHS_CHECKSUM);
  mine = whole && get32(n->in + RTHS_AT_SESSION) == n->terms.session;
  if (!whole || get16(n->in + RTHS_AT_VERSION) != RTHS_VERSION) {
    n->report.counts[stranger ? NEAR_FOREIGN : NEAR_GARBAGE]++;
    if (mine && !stranger) n->report.other_version = get16(n->in + RTHS_AT_VERSION);
    return NEAR_USELESS;
  }
  n->in_size = size;
  if (mine && !stranger) return NEAR_OURS;
  n->report.counts[NEAR_FOREIGN]++;
  if (mine) n->report.other_sender = ntohl(n->sender.sin_addr.s_addr);
  return NEAR_USELESS;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

int near_open(near_session *n, const near_terms *terms) {
  struct sockaddr_in ours;
  int i, failed;
  clear(n, sizeof *n);
  n->descriptor = -1;
  n->closed = 1;
  if (terms->axes == 0u || terms->axes > RTHS_MAX_AXES || terms->inputs > RTHS_MAX_AUXILIARY || terms->session == 0u ||
      terms->channels > RTHS_MAX_AUXILIARY || terms->transport >= RTHS_QUEUE / 2 || !positive(terms->dt))
    return EINVAL;
  n->terms = *terms;
  for (i = 0; i < NEAR_AHEAD; i++) n->order[i] = (uint16_t)i;
  for (i = 0; i < RTHS_MAX_AXES; i++) n->mode[i] = RTHS_BY_DISPLACEMENT;
  n->far.sin_family = AF_INET;
  n->far.sin_addr.s_addr = htonl(terms->address);
  n->far.sin_port = htons(terms->port);
  clear(&ours, sizeof ours);
  ours.sin_family = AF_INET;
  ours.sin_port = htons(terms->local_port);
  n->descriptor = socket(AF_INET, SOCK_DGRAM, 0);
  if (n->descriptor >= 0 && fcntl(n->descriptor, F_SETFL, O_NONBLOCK) == 0 &&
      bind(n->descriptor, (const struct sockaddr *)&ours, sizeof ours) == 0)
    return 0;
  failed = errno;
  near_close(n);
  return failed;
}

static void near_await(const near_session *n, uint64_t ns) {
  struct pollfd entry;
  struct timespec longest;
  entry.fd = n->descriptor;
  entry.events = POLLIN;
  entry.revents = 0;
  longest.tv_sec = (time_t)(ns / NEAR_SECOND);
  longest.tv_nsec = (long)(ns % NEAR_SECOND);
  (void)ppoll(&entry, 1, &longest, NULL);
}

/* Repeat the datagram RTHS_OPEN until n->in contains its answer. */
static int near_ask(near_session *n, const volatile int64_t *stop) {
  const uint64_t end = near_now_ns() + n->terms.connect_within;
  const uint32_t flags = n->terms.flags & ~(n->report.lockstep ? 0u : RTHS_LOCKSTEP);
  uint8_t out[RTHS_HEAD + RTHS_CHECKSUM];
  uint64_t now = 0, until = 0;
  const size_t size = near_written(n, out, RTHS_OPEN, ++n->number, flags, 0);
  while ((now = near_now_ns()) < end) {
    int i, got = NEAR_OURS;
    if (now >= until) {
      near_transmit(n, out, size);
      until = now + NEAR_AGAIN + 2u * (uint64_t)n->terms.period;
      if (until > end) until = end;
    }
    if (stop != NULL && *stop != 0) return NEAR_INTERRUPTED;
    near_await(n, until - now < NEAR_AGAIN ? until - now : NEAR_AGAIN);
    for (i = 0; i < NEAR_AT_ONCE && (got = near_received(n)) != NEAR_EMPTY; i++) {
      if (got != NEAR_OURS || n->in[RTHS_AT_KIND] != RTHS_ANSWER || get32(n->in + RTHS_AT_HEARD) != n->number) continue;
      n->peer = n->sender;
      n->settled = 1;
      return NEAR_OPENED;
    }
    if (n->report.other_version != 0u) return NEAR_OTHER_VERSION;
  }
  return NEAR_NO_ANSWER;
}

/* Return 1 if the answer in the report fits these axes. Store its active commands. */
static int near_agreed(near_session *n) {
  const uint8_t *answer = n->report.answer, *row = answer + RTHS_HEAD;
  const size_t loaded = get16(answer + RTHS_AT_FLAGS) & RTHS_NEWTONS ? RTHS_LOAD_ROW : 0u;
  const size_t size = RTHS_HEAD + n->terms.axes * (RTHS_ANSWER_ROW + loaded) + RTHS_ANSWER_END + RTHS_CHECKSUM;
  int i;
  if (answer[RTHS_AT_REASON] != RTHS_NONE || answer[RTHS_AT_AXES] != n->terms.axes || n->report.answer_size != size)
    return 0;
  for (i = 0; i < n->terms.axes; i++) n->command[i] = get_real(row + RTHS_ANSWER_ROW * i);
  return 1;
}

static void near_keep_answer(near_session *n) {
  size_t i;
  for (i = 0; i < n->in_size; i++) n->report.answer[i] = n->in[i];
  n->report.answer_size = (uint32_t)n->in_size;
}

int near_connect(near_session *n, const volatile int64_t *stop) {
  near_report *report = &n->report;
  uint64_t end;
  uint32_t ticks;
  int result;
  report->lockstep = (n->terms.flags & RTHS_LOCKSTEP) != 0u;
  result = near_ask(n, stop);
  if (result == NEAR_OPENED && n->in[RTHS_AT_REASON] == RTHS_NO_LOCKSTEP && n->terms.transport > 1u) {
    report->lockstep = 0;
    result = near_ask(n, stop);
  }
  if (result != NEAR_OPENED) return result;
  near_keep_answer(n);
  if (!near_agreed(n)) return NEAR_REFUSED;
  n->closed = 0;
  ticks = get32(n->in + RTHS_AT_COUNTER);
  end = near_now_ns() + NEAR_PROBING;
  while (!report->lockstep && report->exchanges < NEAR_PROBES &&
         (report->exchanges < NEAR_LEAST_PROBES || near_now_ns() < end)) {
    uint32_t counter;
    result = near_ask(n, stop);
    if (result != NEAR_OPENED) return result;
    counter = get32(n->in + RTHS_AT_COUNTER);
    report->exchanged[report->exchanges++] = counter > ticks ? counter - ticks : 1u;
    ticks = counter;
  }
  return NEAR_OPENED;
}

void near_begin(near_session *n) { near_post(n, RTHS_BEGIN, 0, 0, 0); }

/* ---- states ----------------------------------------------------------------------------------------------------- */

static void near_lose(near_session *n, uint32_t counter) {
  n->report.counts[NEAR_LOST]++;
  if (n->n_missing == NEAR_REMEMBERED) {
    uint32_t i;
    for (i = 1; i < n->n_missing; i++) n->missing[i - 1u] = n->missing[i];
    n->n_missing--;
  }
  n->missing[n->n_missing++] = counter;
}

/* Count a late state: reordered if it was counted as lost, otherwise repeated. */
static void near_too_late(near_session *n, uint32_t counter) {
  uint32_t i = n->n_missing;
  while (i > 0u && n->missing[i - 1u] > counter) i--;
  if (i == 0u || n->missing[i - 1u] != counter) {
    n->report.counts[NEAR_REPEATED]++;
    return;
  }
  for (; i < n->n_missing; i++) n->missing[i - 1u] = n->missing[i];
  n->n_missing--;
  n->report.counts[NEAR_LOST]--;
  n->report.counts[NEAR_REORDERED]++;
}

static void near_read_state(const near_session *n, near_state *state) {
  const uint8_t *row = n->in + RTHS_HEAD;
  int i;
  state->counter = get32(n->in + RTHS_AT_COUNTER);
  state->heard = get32(n->in + RTHS_AT_HEARD);
  state->flags = get16(n->in + RTHS_AT_FLAGS);
  state->state = n->in[RTHS_AT_STATE];
  state->reason = n->in[RTHS_AT_REASON];
  state->hydraulics = n->in[RTHS_AT_HYDRAULICS];
  state->interlock = n->in[RTHS_AT_INTERLOCK];
  for (i = 0; i < n->terms.axes; i++, row += RTHS_STATE_ROW) {
    state->displacement[i] = get_real(row);
    state->force[i] = get_real(row + 8);
    state->command[i] = get_real(row + 16);
    state->mode[i] = row[24];
    state->in_newtons[i] = row[25];
  }
  for (i = 0; i < n->terms.channels; i++) state->auxiliary[i] = get_real(row + 8 * i);
}

/* Store the state in n->in until its turn. */
static void near_take(near_session *n) {
  const uint32_t counter = get32(n->in + RTHS_AT_COUNTER);
  const size_t rows = (size_t)n->terms.axes * RTHS_STATE_ROW + (size_t)n->terms.channels * 8u;
  uint32_t place = n->waiting, i;
  uint16_t row;
  if (n->in[RTHS_AT_KIND] != RTHS_STATE) return; /* a late answer */
  n->heard_at = near_now_ns();
  if (counter < n->sample) near_too_late(n, counter);
  if (counter < n->sample || counter - n->sample >= NEAR_FURTHEST) return;
  if (n->in[RTHS_AT_AXES] != n->terms.axes || n->in[RTHS_AT_AUXILIARY] != n->terms.channels ||
      n->in_size != RTHS_HEAD + rows + RTHS_CHECKSUM) {
    n->report.counts[NEAR_GARBAGE]++;
    return;
  }
  while (place > 0u && n->ahead[n->order[place - 1u]].counter > counter) place--;
  if (place > 0u && n->ahead[n->order[place - 1u]].counter == counter) {
    near_too_late(n, counter);
    return;
  }
  if (place == NEAR_AHEAD) return; /* lost: no free row */
  if (n->waiting == NEAR_AHEAD) n->waiting--;
  row = n->order[n->waiting];
  for (i = n->waiting; i > place; i--) n->order[i] = n->order[i - 1u];
  n->order[place] = row;
  n->waiting++;
  near_read_state(n, &n->ahead[row]);
}

static void near_take_first(near_session *n) {
  const uint16_t row = n->order[0];
  uint32_t i;
  n->state = n->ahead[row];
  n->waiting--;
  for (i = 0; i < n->waiting; i++) n->order[i] = n->order[i + 1u];
  n->order[n->waiting] = row;
}

static void near_hear(near_session *n) {
  const near_state *state = &n->state;
  const int64_t needed = (int64_t)state->counter + 1 - (int64_t)state->heard;
  near_report *report = &n->report;
  if (!report->lockstep) {
    report->needed[needed < 0 ? 0 : needed < NEAR_NEEDED ? needed : NEAR_NEEDED - 1]++;
    if (needed > (int64_t)report->longest) report->longest = (uint32_t)needed;
  }
  if (report->stopped != NEAR_FOLLOWS) return;
  if (state->interlock == 2u) report->stopped = NEAR_INTERLOCKED;
  else if (state->state >= RTHS_BRAKING && !n->closed) {
    report->stopped = NEAR_RECEIVER;
    report->reason = state->reason;
  }
}

/* Replace the lost state of the sample by interpolation between its neighbours. */
static void near_fill(near_session *n) {
  const near_state *after = &n->ahead[n->order[0]], before = n->known ? n->state : *after;
  const double span = (double)((int64_t)after->counter - (int64_t)before.counter);
  const double share = (double)((int64_t)n->sample - (int64_t)before.counter) / (span < 1.0 ? 1.0 : span);
  near_state *state = &n->state;
  int i;
  near_lose(n, n->sample);
  clear(state, sizeof *state);
  state->counter = n->sample;
  state->flags = RTHS_BRIDGED | (before.flags & RTHS_TRIGGER);
  state->hydraulics = before.hydraulics;
  state->interlock = before.interlock;
  for (i = 0; i < n->terms.axes; i++) {
    const double command = before.in_newtons[i] == after->in_newtons[i] ? before.command[i] : after->command[i];
    state->displacement[i] = before.displacement[i] + share * (after->displacement[i] - before.displacement[i]);
    state->force[i] = before.force[i] + share * (after->force[i] - before.force[i]);
    state->command[i] = command + share * (after->command[i] - command);
    state->mode[i] = before.mode[i];
    state->in_newtons[i] = after->in_newtons[i];
  }
  for (i = 0; i < n->terms.channels; i++)
    state->auxiliary[i] = before.auxiliary[i] + share * (after->auxiliary[i] - before.auxiliary[i]);
}

/* Without a new state: repeat the last datagram if the rig may wait for it, and detect a silent rig. */
static void near_look_at_clock(near_session *n) {
  const uint64_t now = near_now_ns();
  if ((n->report.lockstep || n->sample == 0u) && now - n->report.sent > NEAR_AGAIN) {
    n->report.sent = now;
    near_transmit(n, n->last, n->last_size);
  }
  if (now - n->heard_at > (n->report.lockstep ? n->terms.longest_wait : n->terms.silence))
    n->report.stopped = NEAR_SILENT;
}

int near_ready(near_session *n) {
  int i, got = NEAR_EMPTY;
  if (n->ready || n->report.stopped == NEAR_SILENT) return 1;
  for (i = 0; i < NEAR_AT_ONCE && (got = near_received(n)) != NEAR_EMPTY; i++)
    if (got == NEAR_OURS) near_take(n);
  if (n->waiting == 0u) {
    near_look_at_clock(n);
    return n->report.stopped == NEAR_SILENT;
  }
  n->report.taken = n->heard_at;
  if (n->ahead[n->order[0]].counter == n->sample) {
    near_take_first(n);
    near_hear(n);
  } else {
    near_fill(n);
  }
  n->known = n->ready = 1;
  return 1;
}

void near_wait(near_session *n, uint64_t ns) {
  if (!n->ready && n->report.stopped != NEAR_SILENT && n->waiting == 0u) near_await(n, ns);
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

/* Return the active command of an axis in the unit of its mode. */
static double near_reading(const near_session *n, int axis) {
  const near_state *state = &n->state;
  const int forced = state->mode[axis] == RTHS_BY_FORCE;
  if (forced == (state->in_newtons[axis] > 0u)) return state->command[axis];
  return forced ? state->force[axis] * n->terms.force[axis] : state->displacement[axis] * n->terms.place[axis];
}

/* Return the last command, or the active command if the receiver changed it, in the unit of the state's mode. */
static double near_applied(const near_session *n, int axis) {
  const near_state *state = &n->state;
  const int changed = (state->flags & (RTHS_BRIDGED | RTHS_LIMITED)) != 0u || state->state >= RTHS_BRAKING;
  const int same = (n->mode[axis] == RTHS_BY_FORCE) == (state->mode[axis] == RTHS_BY_FORCE);
  return n->terms.transport == 0u || changed || !same ? near_reading(n, axis) : n->command[axis];
}

static void near_read_silence(const near_session *n, near_measurement *measured) {
  int i;
  for (i = 0; i < n->terms.axes; i++) {
    measured->displacement[i] = measured->force[i] = real_of(NEAR_NOT_A_NUMBER);
    measured->command[i] = n->mode[i] == RTHS_BY_FORCE ? real_of(NEAR_NOT_A_NUMBER) : n->command[i];
  }
  for (i = 0; i < NEAR_CHANNELS; i++) measured->auxiliary[i] = real_of(NEAR_NOT_A_NUMBER);
  measured->flags = NEAR_FLAG_BRIDGED;
}

void near_read(near_session *n, near_measurement *measured) {
  const near_state *state = &n->state;
  int i;
  clear(measured, sizeof *measured);
  measured->sample = n->sample;
  if (n->report.stopped == NEAR_SILENT || !n->ready) {
    near_read_silence(n, measured);
    return;
  }
  if (state->flags & RTHS_SATURATED) measured->flags |= NEAR_FLAG_SATURATED;
  if (state->flags & RTHS_BRIDGED) measured->flags |= NEAR_FLAG_BRIDGED;
  n->report.bridged += (state->flags & RTHS_BRIDGED) != 0u;
  n->report.limited += (state->flags & RTHS_LIMITED) != 0u;
  for (i = 0; i < n->terms.channels; i++) measured->auxiliary[i] = state->auxiliary[i];
  if (n->terms.flags & RTHS_TRIGGER) measured->auxiliary[n->terms.channels] = state->flags & RTHS_TRIGGER ? 1.0 : 0.0;
  for (i = 0; i < n->terms.axes; i++) {
    if (n->sample == 0u) {
      n->command[i] = state->command[i];
      n->mode[i] = RTHS_BY_DISPLACEMENT;
    }
    measured->displacement[i] = state->displacement[i];
    measured->force[i] = state->force[i];
    measured->command[i] = near_applied(n, i);
    measured->mode[i] = state->mode[i];
  }
  measured->hydraulics = state->hydraulics;
  measured->interlock = state->interlock;
}

void near_next(near_session *n) {
  n->sample++;
  n->ready = 0;
}

void near_write(near_session *n, const near_command *command) {
  uint8_t *row = n->last + RTHS_HEAD;
  uint32_t flags = command->warning ? RTHS_WARNING : 0u;
  int i;
  if (command->trigger && (n->terms.flags & RTHS_TRIGGER)) flags |= RTHS_TRIGGER;
  for (i = 0; i < n->terms.axes; i++, row += RTHS_COMMAND_ROW) {
    const uint8_t mode = command->mode[i] == RTHS_BY_FORCE ? RTHS_BY_FORCE : RTHS_BY_DISPLACEMENT;
    clear(row, RTHS_COMMAND_ROW);
    put_real(row, command->command[i]);
    put_real(row + 8, mode == n->mode[i] ? (command->command[i] - n->command[i]) / n->terms.dt : 0.0);
    row[16] = mode;
    n->command[i] = command->command[i];
    n->mode[i] = mode;
  }
  for (i = 0; i < n->terms.inputs; i++, row += 8) put_real(row, command->input[i]);
  if (n->dropped) {
    n->heard_at = near_now_ns();
    return;
  }
  near_post(n, RTHS_COMMAND, n->sample, flags, (size_t)(row - n->last) - RTHS_HEAD);
  n->report.heartbeat = n->sample;
}

/* ---- end -------------------------------------------------------------------------------------------------------- */

void near_drop(near_session *n) {
  if (n->report.lockstep) near_safe(n); /* otherwise the rig would wait for commands */
  n->dropped = 1;
}

void near_safe(near_session *n) {
  uint8_t out[RTHS_HEAD + RTHS_CHECKSUM];
  int i;
  if (n->closed) return;
  n->closed = 1;
  for (i = 0; i < (n->dropped ? 0 : NEAR_GOODBYES); i++)
    near_transmit(n, out, near_written(n, out, RTHS_CLOSE, n->sample, 0, 0));
}

void near_close(near_session *n) {
  near_safe(n);
  if (n->descriptor >= 0) (void)close(n->descriptor);
  n->descriptor = -1;
}

size_t near_size(void) { return sizeof(near_session); }

void near_look(const near_session *n, near_report *report) { *report = n->report; }
