/* SPDX-License-Identifier: Apache-2.0 */
/* Near side of a UDP session with a rig: the test computer's end of the protocol in rths_target.h (doc/udp.md).
 *
 * Sends the same bytes as SessionPort and UdpPort of rths_nodes/laboratory/ports, but needs no Python interpreter.
 * Linux, C99: no heap, no recursion, bounded loops. One object is one session; use it in one thread.
 */
#ifndef RTHS_NEAR_H
#define RTHS_NEAR_H

#include <netinet/in.h>
#include <stdint.h>

#include "rths_target.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NEAR_AHEAD 256     /* stored states that arrived before their turn */
#define NEAR_AT_ONCE 256   /* datagrams read in one call: a flood must not block the caller */
#define NEAR_REMEMBERED 1024 /* stored counters of lost states, to recognise late datagrams */
#define NEAR_FURTHEST 100000u /* samples; states further ahead belong to another test */
#define NEAR_PROBES 64     /* exchanges that measure the round trip */
#define NEAR_NEEDED 64     /* bins of samples that a command takes; the last bin includes longer times */
#define NEAR_GOODBYES 3    /* datagrams that end a session */
#define NEAR_AGAIN 20000000u /* ns; repetition interval of an unanswered datagram */
#define NEAR_CHANNELS (RTHS_MAX_AUXILIARY + 1) /* the trigger is the last channel */

/* Flags of a measurement: FLAG_... of core/samples.py. */
#define NEAR_FLAG_BRIDGED 1u
#define NEAR_FLAG_SATURATED 4u

/* Kinds of counted datagrams. */
enum { NEAR_LOST = 0, NEAR_REPEATED = 1, NEAR_REORDERED = 2, NEAR_FOREIGN = 3, NEAR_GARBAGE = 4, NEAR_COUNTS = 5 };

/* Results of near_connect. */
enum {
  NEAR_OPENED = 0,
  NEAR_REFUSED = 1,       /* the answer states a reason or describes other axes; the caller checks it */
  NEAR_NO_ANSWER = 2,
  NEAR_OTHER_VERSION = 3,
  NEAR_INTERRUPTED = 4    /* the stop word was set */
};

/* Reasons why the rig cannot continue. */
enum {
  NEAR_FOLLOWS = 0,
  NEAR_INTERLOCKED = 1, /* the interlock of the rig is open */
  NEAR_RECEIVER = 2,    /* the receiver has stopped the rig: near_report.reason */
  NEAR_SILENT = 3       /* no datagram for silence ns, or in lockstep for longest_wait ns */
};

/* Terms of a session, as the test computer declares them. */
typedef struct {
  uint64_t connect_within, silence, longest_wait; /* ns */
  double dt;                     /* sample period for slopes, s */
  double place[RTHS_MAX_AXES];   /* unit of measured displacements in units of commands */
  double force[RTHS_MAX_AXES];   /* unit of measured forces in units of force commands */
  uint32_t address;              /* IPv4, most significant byte first */
  uint32_t session, period;      /* session number, not 0; sample period, ns */
  uint16_t port, local_port;     /* local_port 0: any */
  uint16_t flags;                /* of the datagram open: RTHS_EMULATOR, LOCKSTEP, RAMP, TRIGGER, NEWTONS */
  uint8_t axes, inputs, channels, transport;
} near_terms;

typedef struct {
  double displacement[RTHS_MAX_AXES], force[RTHS_MAX_AXES], command[RTHS_MAX_AXES], auxiliary[NEAR_CHANNELS];
  uint32_t sample, flags;
  uint8_t mode[RTHS_MAX_AXES], hydraulics, interlock;
} near_measurement;

typedef struct {
  double command[RTHS_MAX_AXES], input[RTHS_MAX_AUXILIARY];
  uint8_t mode[RTHS_MAX_AXES]; /* RTHS_BY_FORCE: N; otherwise m */
  uint8_t trigger, warning;    /* outputs of the rig */
} near_command;

/* State of a session for its owner; copied by near_look. */
typedef struct {
  uint64_t taken, sent; /* times of the last received state and the last sent datagram, ns (monotonic) */
  uint32_t counts[NEAR_COUNTS], bridged, limited;
  uint32_t needed[NEAR_NEEDED], longest; /* samples of transport */
  uint32_t stopped, reason, heartbeat;
  uint32_t other_version, other_sender; /* version and IPv4 address of unusable answers; 0: none */
  uint32_t unsent;                      /* errno of the last failed datagram, or 0 */
  uint32_t lockstep, exchanges, exchanged[NEAR_PROBES]; /* ticks of the rig for each exchange */
  uint32_t answer_size;
  uint8_t answer[RTHS_MAX_BYTES];
} near_report;

typedef struct {
  double displacement[RTHS_MAX_AXES], force[RTHS_MAX_AXES], command[RTHS_MAX_AXES], auxiliary[RTHS_MAX_AUXILIARY];
  uint32_t counter, heard, flags;
  uint8_t state, reason, hydraulics, interlock, mode[RTHS_MAX_AXES], in_newtons[RTHS_MAX_AXES];
} near_state;

typedef struct {
  near_terms terms;
  near_report report;
  struct sockaddr_in far, sender, peer;
  int descriptor;
  uint8_t settled, known, ready, dropped, closed; /* known: there is a state */
  uint32_t sample, number;
  uint64_t heard_at;
  near_state state;              /* state of the sample */
  near_state ahead[NEAR_AHEAD];
  uint16_t order[NEAR_AHEAD];    /* rows of ahead by counter, then free rows */
  uint16_t waiting;              /* rows in use */
  uint32_t missing[NEAR_REMEMBERED], n_missing; /* lost counters, in order */
  double command[RTHS_MAX_AXES]; /* last command */
  uint8_t mode[RTHS_MAX_AXES];
  uint8_t last[RTHS_MAX_BYTES], in[2 * RTHS_MAX_BYTES];
  size_t last_size, in_size;
} near_session;

/* Open the socket. Return 0 or errno; EINVAL for terms that do not fit into a datagram. */
int near_open(near_session *near, const near_terms *terms);

/* Open the session without motion. Return NEAR_OPENED with answer and exchanges in the report, which the caller checks
 * before near_begin. stop may be NULL; the call returns at most 20 ms after *stop becomes nonzero. */
int near_connect(near_session *near, const volatile int64_t *stop);

/* Request state 0. From now on the rig's watchdog expects commands. */
void near_begin(near_session *near);

/* Return 1 if the state of the sample has arrived or is lost, or the rig is silent; never waits. */
int near_ready(near_session *near);

/* Wait for a datagram for at most ns. */
void near_wait(near_session *near, uint64_t ns);

/* Read the measurement of the sample once it is ready. Measured values of a silent rig are NaN. */
void near_read(near_session *near, near_measurement *measured);

/* Begin the next sample, then write its command. */
void near_next(near_session *near);
void near_write(near_session *near, const near_command *command);

/* Stop sending commands, so that the receiver stops the rig. */
void near_drop(near_session *near);

/* End the session: the receiver brakes and holds. */
void near_safe(near_session *near);

/* End the session and close the socket. Repeated calls have no effect. */
void near_close(near_session *near);

size_t near_size(void);
void near_look(const near_session *near, near_report *report);

#ifdef __cplusplus
}
#endif

#endif
