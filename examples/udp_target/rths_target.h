/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver of RTHS datagrams on a laboratory's real-time target: see doc/receiver.md and doc/udp.md of
 * rths_nodes.
 *
 * Freestanding C99: no heap, no operating system, no clock, and of a library at most sqrt, which RTHS_FREESTANDING
 * leaves out, too. The target's own code takes datagrams from its socket, samples its sensors once a tick, and drives
 * its servo-controller with what comes back. One object serves one session; a second one takes an operator's act,
 * which is rths_init.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef RTHS_TARGET_H
#define RTHS_TARGET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RTHS_MAX_AXES 8
#define RTHS_MAX_AUXILIARY 8
#define RTHS_QUEUE 64  /* commands that may be under way; transport_samples is smaller */
#define RTHS_MAX_BYTES 768
#define RTHS_MOST_SAMPLES 0x10000000u  /* of a stop */
#define RTHS_LAST_COUNTER 0xf0000000u /* a session ends here, in order, and has come to rest before the counter ends */
/* Bounds of a rths_config; a limit of 1e9 or more is refused, too. */
#define RTHS_MOST_STROKE 10.0         /* m */
#define RTHS_MOST_VELOCITY 100.0      /* m/s */
#define RTHS_MOST_ACCELERATION 10000.0 /* m/s^2 */
#define RTHS_LEAST_PERIOD 10000u      /* ns: 100 kHz */
#define RTHS_MOST_PERIOD 1000000000u  /* ns: 1 Hz */
#define RTHS_MOST_SILENCE 10000000000.0 /* ns: period_ns times watchdog */
#define RTHS_MOST_WATCHDOG 1000000u   /* samples */
#ifndef RTHS_BUILD
#define RTHS_BUILD 0x5254485300000002u /* tells the test computer which code runs here: your own number for yours */
#endif

/* The layout: offsets of the head, bytes. Little-endian; reals are IEEE 754 binary64. */
#define RTHS_MAGIC 0x53485452u /* "RTHS" */
#define RTHS_VERSION 2u
#define RTHS_AT_MAGIC 0
#define RTHS_AT_VERSION 4
#define RTHS_AT_KIND 6
#define RTHS_AT_AXES 7
#define RTHS_AT_SESSION 8
#define RTHS_AT_COUNTER 12
#define RTHS_AT_HEARD 16
#define RTHS_AT_PERIOD 20
#define RTHS_AT_FLAGS 24
#define RTHS_AT_TRANSPORT 26
#define RTHS_AT_AUXILIARY 27
#define RTHS_AT_STATE 28
#define RTHS_AT_REASON 29
#define RTHS_AT_HYDRAULICS 30
#define RTHS_AT_INTERLOCK 31
#define RTHS_HEAD 32
#define RTHS_COMMAND_ROW 24 /* of an axis: command, slope, mode */
#define RTHS_STATE_ROW 32   /* of an axis: displacement, force, command, mode */
#define RTHS_ANSWER_ROW 56  /* of an axis: command, velocity; limits: stroke, velocity, acceleration, force, error */
#define RTHS_ANSWER_END 20  /* behind the axes: bridged, watchdog, persistence, build */
#define RTHS_LOAD_ROW 24    /* of an axis, behind that, where an open asks: limits of commands in N: rate, error, travel */
#define RTHS_CHECKSUM 4

enum { RTHS_OPEN = 1, RTHS_BEGIN = 2, RTHS_COMMAND = 3, RTHS_CLOSE = 4, RTHS_ANSWER = 17, RTHS_STATE = 18 };

/* Flags of both directions. */
#define RTHS_EMULATOR 1u  /* no real actuator is behind this receiver */
#define RTHS_LOCKSTEP 2u  /* the tick waits for its command, where it is asked to: emulators only */
#define RTHS_RAMP 4u      /* the controller runs along the slope within a sample; otherwise it holds the command */
#define RTHS_BRIDGED 8u   /* the last sample was driven without the command that belongs to it */
#define RTHS_LIMITED 16u  /* a command was beyond a limit in the last sample, or is being caught up with */
#define RTHS_SATURATED 32u
#define RTHS_TRIGGER 64u /* of a command, a state: the output is high; of an open, an answer: there is one */
#define RTHS_WARNING 256u /* of a command, a state: the output is on; of an answer: there is one */
#define RTHS_NEWTONS 128u /* of an open: commands in N will come; of an answer: there are limits for them */

/* Modes of an axis: of a command, where 0 is displacement, too, and of a state. */
enum { RTHS_NOT_TOLD = 0, RTHS_BY_DISPLACEMENT = 1, RTHS_BY_FORCE = 2, RTHS_HELD = 3 /* takes commands in N at once */ };

/* States. */
enum { RTHS_IDLE = 0, RTHS_WAITING = 1, RTHS_RUNNING = 2, RTHS_BRAKING = 3, RTHS_STOPPED = 4 };

/* Reasons: of a stop, and of an answer that refuses. */
enum {
  RTHS_NONE = 0,
  RTHS_LOST = 1,        /* no command for longer than the watchdog */
  RTHS_CLOSED = 2,      /* the test computer has closed the session */
  RTHS_INTERLOCKED = 3, /* the interlock of the rig is open */
  RTHS_BUSY = 4,        /* another session is open, or was: an operator has to begin a new one */
  RTHS_WRONG_VERSION = 5,
  RTHS_WRONG_AXES = 6,
  RTHS_WRONG_PERIOD = 7,
  RTHS_WRONG_TRANSPORT = 8,
  RTHS_WRONG_AUXILIARY = 9,
  RTHS_WRONG_HOLD = 10,
  RTHS_NO_LOCKSTEP = 11,  /* the tick is the rig's own: it does not wait for commands */
  RTHS_WRONG_EMULATOR = 12, /* the test computer takes a rig for an emulator, or an emulator for a rig */
  RTHS_NO_TRIGGER = 13,     /* there is no digital output for other data acquisition */
  RTHS_OVER_FORCE = 14,     /* a measured force is beyond its limit */
  RTHS_OVER_ERROR = 15,     /* command less measured displacement is beyond its limit */
  RTHS_COUNTED_OUT = 16,    /* the session has lasted as long as its counter goes */
  RTHS_NO_NEWTONS = 17,     /* the controller of no axis takes commands in N */
  RTHS_OVER_LOAD = 18,      /* command less measured force is beyond its limit */
  RTHS_OVER_TRAVEL = 19,    /* a force loop has led its axis further than stiffness and drift explain */
  RTHS_WRONG_MODE = 20,     /* a controller is not in the mode that was commanded */
  RTHS_FROZEN = 21          /* a load cell has shown one number for too long */
};

/* What became of a datagram; also the places of rths_target.counts. */
enum {
  RTHS_TAKEN = 0,
  RTHS_GARBAGE = 1,   /* not of this layout, or its checksum is wrong, or a number is not finite */
  RTHS_FOREIGN = 2,   /* of another session, or from somebody else than who has opened this one */
  RTHS_REPEATED = 3,  /* came before */
  RTHS_LATE = 4,      /* its tick is over; the bridge goes on from it */
  RTHS_EARLY = 5,     /* too far ahead to be of this test */
  RTHS_REFUSED = 6,
  RTHS_RESULTS = 7
};

/* All in the units of the datagrams. INFINITY, written out, switches one of the last three off; 0 is refused. */
typedef struct {
  double stroke;       /* m: largest magnitude of a command */
  double velocity;     /* m/s: largest step of the command, per sample */
  double acceleration; /* m/s^2: of all that the receiver does by itself: braking, bridging, rejoining */
  double following;    /* m/s^2: of commands that come in time; one beyond is approached with acceleration */
  double force;        /* N: largest magnitude of the measured force */
  double error;        /* m: largest magnitude of command less measured displacement */
} rths_limits;

/* Of an axis whose controller closes a force loop; rate 0: it has none, and the rest is not looked at. All in the units
 * of the datagrams, N as of commands. INFINITY, written out, switches error or travel off; 0 is refused. */
typedef struct {
  double rate;      /* N/s: largest change of a command in N, whose largest magnitude is the force of rths_limits */
  double error;     /* N: largest magnitude of command less measured force */
  double travel;    /* m: furthest from where stiffness and drift lead the axis: beyond, the specimen or its cell is lost */
  double stiffness; /* N/m that the loop works against; below 0 where the two count against each other; never 0 */
  double curvature; /* 1/m: a drift u of the axis coupled, from upright, extends this one by curvature u^2 / 2; 0: none */
  double unit;      /* of the measured force, in that of commands in N: 1 where both are N; never 0 */
  uint32_t frozen;  /* samples in a row with the same measured force after which the session is over; 0: not watched */
  uint8_t coupled;  /* place of the axis that drifts */
} rths_load;

typedef struct {
  uint8_t axes;
  uint8_t inputs;       /* auxiliary channels of a command */
  uint8_t channels;     /* auxiliary channels of a state */
  uint32_t period_ns;   /* of the tick */
  uint32_t bridged;     /* samples for which the slope is continued */
  uint32_t watchdog;    /* samples without a command after which the session is over; more than bridged */
  uint32_t persistence; /* samples in a row beyond force or error after which the session is over; at least 1 */
  uint32_t flags;       /* RTHS_EMULATOR, RTHS_LOCKSTEP, RTHS_RAMP, RTHS_TRIGGER, RTHS_WARNING */
  rths_limits limits[RTHS_MAX_AXES];
  uint8_t group[RTHS_MAX_AXES]; /* axes with the same number move one specimen: they stop in a common time */
  double unit[RTHS_MAX_AXES];   /* of measured displacement, in that of commands: 1 where both are m; never 0 */
  rths_load load[RTHS_MAX_AXES];
  uint32_t switching; /* samples that a controller may take to read another mode back; at least 1 with a force loop */
  double metre[RTHS_MAX_AXES]; /* units of a command in a metre, for the bounds: 0 or 1 where commands are in m */
} rths_config;

typedef struct {
  uint32_t counter; /* 0: the place is empty */
  uint32_t trigger; /* 1: the digital output is to be high */
  uint32_t warning; /* 1: the warning output is to be on */
  double command[RTHS_MAX_AXES], slope[RTHS_MAX_AXES], input[RTHS_MAX_AUXILIARY];
  uint8_t mode[RTHS_MAX_AXES];
} rths_command;

/* What a sensor shows, smoothed twice, so that the level of a ramp is not late. */
typedef struct {
  double once, twice;
} rths_level;

/* A force loop: the state of its axis as the receiver sees it, in the units of commands. */
typedef struct {
  rths_level place, force;
  double drift, from_place, from_force, from_drift; /* from: when the loop took over */
  double shift;        /* added to commands of displacement since the axis was held; 0 until then */
  double shown;        /* the measured force, to see whether it freezes */
  uint32_t seen;       /* samples */
  uint32_t same;       /* samples in a row with the same measured force */
  uint32_t over_force, over_error, over_travel, wrong_mode; /* samples in a row */
  uint8_t own;         /* 1: the session is over because of this loop, so it is held at once */
  uint8_t told;        /* mode that the controller has told last */
} rths_loop;

typedef struct {
  double displacement[RTHS_MAX_AXES], force[RTHS_MAX_AXES], channel[RTHS_MAX_AUXILIARY];
  uint8_t mode[RTHS_MAX_AXES]; /* 0 not told, 1 displacement, 2 force */
  uint8_t hydraulics;          /* 0 not told, 1 off, 2 low, 3 high */
  uint8_t interlock;           /* 0 not told, 1 closed, 2 open: the rig has stopped, the session is over */
  uint8_t saturated;
} rths_sensors;

typedef struct {
  rths_config config;
  double dt;
  uint8_t state, reason, transport, lockstep, asked_reason, reply_due, rejoining;
  uint64_t sender; /* whose session it is: states go there */
  uint32_t session, asked_session, asked_counter, asked_version;
  uint32_t ticks;    /* since rths_init */
  uint32_t counter;  /* of the next state */
  uint32_t driven;   /* state at whose sample the last drive ends */
  uint32_t newest;   /* command that was heard */
  uint32_t missing;  /* samples in a row without their command */
  uint32_t over_force, over_error; /* samples in a row beyond the limit */
  uint32_t moved_flags;
  uint32_t trigger;  /* digital output for other data acquisition: 1 while a test is running */
  rths_command queue[RTHS_QUEUE];
  rths_command base; /* the newest command whose time has come */
  double command[RTHS_MAX_AXES], velocity[RTHS_MAX_AXES], input[RTHS_MAX_AUXILIARY];
  uint32_t counts[RTHS_RESULTS];
  uint32_t bridged, limited; /* samples */
  uint32_t asked_flags;
  uint8_t newtons;             /* 1: this session has commands in N */
  uint8_t mode[RTHS_MAX_AXES]; /* RTHS_BY_FORCE: command and velocity are in N and N/s; RTHS_BY_DISPLACEMENT: m and m/s */
  rths_loop loop[RTHS_MAX_AXES];
  uint32_t warning; /* digital output for a horn or a lamp: 1 before a motion */
} rths_target;

/* What this build, on this processor, computes otherwise than the tested one: 0, or a sum of these. */
#define RTHS_TEST_REALS 1      /* double is not IEEE 754 binary64 */
#define RTHS_TEST_CONTRACTED 2 /* a product and a sum in one rounding: -ffp-contract=off */
#define RTHS_TEST_ROUNDING 4   /* not rounded to the nearest double after each operation: x87, -ffast-math */
#define RTHS_TEST_CHECKSUM 8   /* the compiler is broken */
int rths_self_test(void);

/* Fields that rths_init checks, in its order. New ones are added at the end. */
enum {
  RTHS_FIELD_AXES = 3,
  RTHS_FIELD_INPUTS,
  RTHS_FIELD_CHANNELS,
  RTHS_FIELD_PERIOD,
  RTHS_FIELD_WATCHDOG,
  RTHS_FIELD_PERSISTENCE,
  RTHS_FIELD_FLAGS,
  RTHS_FIELD_METRE,
  RTHS_FIELD_STROKE,
  RTHS_FIELD_VELOCITY,
  RTHS_FIELD_ACCELERATION,
  RTHS_FIELD_FOLLOWING,
  RTHS_FIELD_FORCE,
  RTHS_FIELD_ERROR,
  RTHS_FIELD_UNIT,
  RTHS_FIELD_STOP,
  RTHS_FIELD_POSITION,
  RTHS_FIELD_LOAD_RATE,
  RTHS_FIELD_LOAD_STIFFNESS,
  RTHS_FIELD_LOAD_UNIT,
  RTHS_FIELD_LOAD_ERROR,
  RTHS_FIELD_LOAD_TRAVEL,
  RTHS_FIELD_LOAD_CURVATURE,
  RTHS_FIELD_LOAD_COUPLED,
  RTHS_FIELD_SWITCHING,
  RTHS_FIELD_LOAD_FORCE,
  RTHS_FIELD_END
};

/* Ready for a session, holding position[axes] (m). 0; below 0 where nothing may be driven: -2 where the self-test finds
 * something, else -(field + 32 * axis) of the first field that is wrong, for the three functions below. */
int rths_init(rths_target *target, const rths_config *config, const double *position);

/* Name of the field that a result of rths_init stands for, "limits[].stroke", and its bound in words: texts that are
 * never freed, empty for 0. The place of its axis; -1 where the field belongs to no axis. */
const char *rths_field(int result);
const char *rths_bound(int result);
int rths_axis(int result);

/* Take one datagram as it came from the socket; what became of it (RTHS_TAKEN...). sender is a number of yours for the
 * address and port it came from. Who has opened the session is its only sender: target->sender. */
int rths_receive(rths_target *target, const uint8_t *data, size_t size, uint64_t sender);

/* The answer to the datagram that was taken last, to where that one came from; its bytes, 0 where none is due. */
size_t rths_reply(rths_target *target, uint8_t *out, size_t capacity);

/* A tick is these two, one after the other. First the state for target->sender, into out; its bytes, 0 before the
 * test. (An emulator in lockstep sends it, and waits for its command, before it goes on.) */
size_t rths_state(rths_target *target, const rths_sensors *measured, uint8_t *out, size_t capacity);

/* Then the command of the coming sample, into target->command, target->velocity, target->mode and target->input. */
void rths_drive(rths_target *target);

/* Samples after which the rig stands still at the latest, from the last command that came. */
uint32_t rths_rest_samples(const rths_target *target);

/* 1 where the session is over and nothing moves. */
int rths_at_rest(const rths_target *target);

uint32_t rths_checksum(const uint8_t *data, size_t size);

/* The square root of a number from 1 to 2^1022, where there is no library: the same bits as sqrt. */
double rths_root(double square);

#ifdef __cplusplus
}
#endif

#endif
