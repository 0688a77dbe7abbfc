/* SPDX-License-Identifier: Apache-2.0 */
/* Receiver of RTHS datagrams on a laboratory's real-time target: see doc/receiver.md and doc/udp.md of rths_nodes.
 *
 * Freestanding C99: no heap, no operating system, no clock, and no library except sqrt, which RTHS_FREESTANDING
 * replaces. The target's code reads datagrams from its socket, samples its sensors once per tick, and sends the
 * resulting commands to its servo-controller. One object serves one session; for another session, an operator must
 * cause a call of rths_init.
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
#define RTHS_QUEUE 64  /* commands in transit; transport_samples must be less than half */
#define RTHS_MAX_BYTES 768
#define RTHS_MOST_SAMPLES 0x10000000u /* longest stop */
#define RTHS_LAST_COUNTER 0xf0000000u /* the session ends here, so that the rig rests before the counter overflows */
/* Bounds of a rths_config. Stroke, velocity and acceleration must also be < 1e9 in the units of commands. */
#define RTHS_MOST_STROKE 10.0         /* m */
#define RTHS_MOST_VELOCITY 100.0      /* m/s */
#define RTHS_MOST_ACCELERATION 10000.0 /* m/s^2 */
#define RTHS_LEAST_PERIOD 10000u      /* ns: 100 kHz */
#define RTHS_MOST_PERIOD 1000000000u  /* ns: 1 Hz */
#define RTHS_MOST_SILENCE 10000000000.0 /* ns: period_ns times watchdog */
#define RTHS_MOST_WATCHDOG 1000000u   /* samples */
#ifndef RTHS_BUILD
#define RTHS_BUILD 0x5254485300000002u /* identifies the code to the test computer; use another number for changed code */
#endif

/* Layout of the head: offsets in bytes. Little-endian; reals are IEEE 754 binary64. */
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
#define RTHS_COMMAND_ROW 24 /* per axis: command, slope, mode */
#define RTHS_STATE_ROW 32   /* per axis: displacement, force, command, mode */
#define RTHS_ANSWER_ROW 56  /* per axis: command, velocity; limits: stroke, velocity, acceleration, force, error */
#define RTHS_ANSWER_END 20  /* after the axes: bridged, watchdog, persistence, build */
#define RTHS_LOAD_ROW 24    /* per axis, at the end, for an open with RTHS_NEWTONS: limits: rate, error, travel */
#define RTHS_CHECKSUM 4

enum { RTHS_OPEN = 1, RTHS_BEGIN = 2, RTHS_COMMAND = 3, RTHS_CLOSE = 4, RTHS_ANSWER = 17, RTHS_STATE = 18 };

/* Flags of both directions. */
#define RTHS_EMULATOR 1u  /* the receiver drives no real actuator */
#define RTHS_LOCKSTEP 2u  /* the tick waits for its command, on request of the open; emulators only */
#define RTHS_RAMP 4u      /* the controller follows the slope within a sample; otherwise it holds the command */
#define RTHS_BRIDGED 8u   /* the last sample was driven without its command */
#define RTHS_LIMITED 16u  /* in the last sample, a command exceeded a limit, or the axis had not yet reached it */
#define RTHS_SATURATED 32u
#define RTHS_TRIGGER 64u /* in commands and states: the output is high; in open and answer: the output exists */
#define RTHS_WARNING 256u /* in commands and states: the output is on; in an answer: the output exists */
#define RTHS_NEWTONS 128u /* in an open: the session has commands in N; in an answer: their limits follow */

/* Modes of an axis in commands and states. In commands, 0 also means displacement. */
enum { RTHS_NOT_TOLD = 0, RTHS_BY_DISPLACEMENT = 1, RTHS_BY_FORCE = 2, RTHS_HELD = 3 /* commands in N take effect at once */ };

/* States. */
enum { RTHS_IDLE = 0, RTHS_WAITING = 1, RTHS_RUNNING = 2, RTHS_BRAKING = 3, RTHS_STOPPED = 4 };

/* Reasons of a stop, or of a refusing answer. */
enum {
  RTHS_NONE = 0,
  RTHS_LOST = 1,        /* no command within the watchdog's time */
  RTHS_CLOSED = 2,      /* the test computer has closed the session */
  RTHS_INTERLOCKED = 3, /* the interlock of the rig is open */
  RTHS_BUSY = 4,        /* another session is open, or has ended: an operator must begin a new one */
  RTHS_WRONG_VERSION = 5,
  RTHS_WRONG_AXES = 6,
  RTHS_WRONG_PERIOD = 7,
  RTHS_WRONG_TRANSPORT = 8,
  RTHS_WRONG_AUXILIARY = 9,
  RTHS_WRONG_HOLD = 10,
  RTHS_NO_LOCKSTEP = 11,  /* the rig has its own clock, which does not wait for commands */
  RTHS_WRONG_EMULATOR = 12, /* the test computer expects an emulator and this is a rig, or the reverse */
  RTHS_NO_TRIGGER = 13,     /* no digital output for other data acquisition exists */
  RTHS_OVER_FORCE = 14,     /* a measured force exceeds its limit */
  RTHS_OVER_ERROR = 15,     /* the difference of command and measured displacement exceeds its limit */
  RTHS_COUNTED_OUT = 16,    /* the counter has reached RTHS_LAST_COUNTER */
  RTHS_NO_NEWTONS = 17,     /* no axis accepts commands in N */
  RTHS_OVER_LOAD = 18,      /* the difference of command and measured force exceeds its limit */
  RTHS_OVER_TRAVEL = 19,    /* a force loop has moved its axis further than stiffness and drift explain */
  RTHS_WRONG_MODE = 20,     /* a controller is not in the commanded mode */
  RTHS_FROZEN = 21          /* the value of a load cell has not changed for too long */
};

/* Results of rths_receive; indices of rths_target.counts. */
enum {
  RTHS_TAKEN = 0,
  RTHS_GARBAGE = 1,   /* another layout, a wrong checksum, or a number that is not finite */
  RTHS_FOREIGN = 2,   /* another session, or another sender than the one that opened this session */
  RTHS_REPEATED = 3,  /* received before */
  RTHS_LATE = 4,      /* its tick has passed; the bridge continues from it */
  RTHS_EARLY = 5,     /* too far ahead; belongs to another test */
  RTHS_REFUSED = 6,
  RTHS_RESULTS = 7
};

/* Limits in the units of the datagrams. INFINITY disables any of the last three; 0 is refused. */
typedef struct {
  double stroke;       /* m: largest magnitude of a command */
  double velocity;     /* m/s: largest velocity between the commands of two samples */
  double acceleration; /* m/s^2: of motions of the receiver itself: braking, bridging, rejoining */
  double following;    /* m/s^2: of commands in time; beyond it, the axis approaches the command with acceleration */
  double force;        /* N: largest magnitude of the measured force */
  double error;        /* m: largest magnitude of the difference of command and measured displacement */
} rths_limits;

/* Limits of an axis whose controller closes a force loop, in the units of the datagrams, N as in commands. If rate is 0,
 * the axis has no force loop, and the other fields are ignored. INFINITY disables error or travel; 0 is refused. */
typedef struct {
  double rate;      /* N/s: largest rate of commands in N; rths_limits.force bounds their magnitude */
  double error;     /* N: largest magnitude of the difference of command and measured force */
  double travel;    /* m: largest distance from the position that stiffness and drift explain; beyond it, specimen or load cell has failed */
  double stiffness; /* N/m: stiffness that the loop loads; < 0 if force and displacement have opposite signs; not 0 */
  double curvature; /* 1/m: a drift u of the axis coupled, from upright, extends this axis by curvature u^2 / 2; 0: no coupling */
  double unit;      /* unit of the measured force, in the unit of commands in N: 1 if both are N; not 0 */
  uint32_t frozen;  /* consecutive samples with the same measured force that end the session; 0: not checked */
  uint8_t coupled;  /* index of the drifting axis */
} rths_load;

typedef struct {
  uint8_t axes;
  uint8_t inputs;       /* auxiliary channels of a command */
  uint8_t channels;     /* auxiliary channels of a state */
  uint32_t period_ns;   /* period of the tick */
  uint32_t bridged;     /* samples without a command in which the slope is continued */
  uint32_t watchdog;    /* samples without a command that end the session; more than bridged */
  uint32_t persistence; /* consecutive samples beyond force or error that end the session; at least 1 */
  uint32_t flags;       /* RTHS_EMULATOR, RTHS_LOCKSTEP, RTHS_RAMP, RTHS_TRIGGER, RTHS_WARNING */
  rths_limits limits[RTHS_MAX_AXES];
  uint8_t group[RTHS_MAX_AXES]; /* axes with the same number move one specimen, and stop in the same time */
  double unit[RTHS_MAX_AXES];   /* unit of measured displacement, in the unit of commands: 1 if both are m; not 0 */
  rths_load load[RTHS_MAX_AXES];
  uint32_t switching; /* samples in which a controller must report a new mode; at least 1 with a force loop */
  double metre[RTHS_MAX_AXES]; /* units of a command per metre, for the bounds: 0 or 1 if commands are in m */
} rths_config;

typedef struct {
  uint32_t counter; /* 0: the entry is empty */
  uint32_t trigger; /* 1: the digital output must be high */
  uint32_t warning; /* 1: the warning output must be on */
  double command[RTHS_MAX_AXES], slope[RTHS_MAX_AXES], input[RTHS_MAX_AUXILIARY];
  uint8_t mode[RTHS_MAX_AXES];
} rths_command;

/* Value of a sensor, smoothed twice, so that the level does not lag during a ramp. */
typedef struct {
  double once, twice;
} rths_level;

/* State of an axis with a force loop, in the units of commands. */
typedef struct {
  rths_level place, force;
  double drift, from_place, from_force, from_drift; /* from: values when the loop took over */
  double shift;        /* added to displacement commands once the axis has been held; 0 before */
  double shown;        /* last measured force, to detect a frozen load cell */
  uint32_t seen;       /* 1: the levels have their first value */
  uint32_t same;       /* consecutive samples with the same measured force */
  uint32_t over_force, over_error, over_travel, wrong_mode; /* consecutive samples */
  uint8_t own;         /* 1: this loop has ended the session, so the axis is held at once */
  uint8_t told;        /* mode that the controller reported last */
} rths_loop;

typedef struct {
  double displacement[RTHS_MAX_AXES], force[RTHS_MAX_AXES], channel[RTHS_MAX_AUXILIARY];
  uint8_t mode[RTHS_MAX_AXES]; /* 0 unknown, 1 displacement, 2 force */
  uint8_t hydraulics;          /* 0 unknown, 1 off, 2 low, 3 high */
  uint8_t interlock;           /* 0 unknown, 1 closed, 2 open: the rig has stopped, and the session ends */
  uint8_t saturated;
} rths_sensors;

typedef struct {
  rths_config config;
  double dt;
  uint8_t state, reason, transport, lockstep, asked_reason, reply_due, rejoining;
  uint64_t sender; /* sender of the open; receives the states */
  uint32_t session, asked_session, asked_counter, asked_version;
  uint32_t ticks;    /* since rths_init */
  uint32_t counter;  /* counter of the next state */
  uint32_t driven;   /* sample at which the last rths_drive ends */
  uint32_t newest;   /* newest received command */
  uint32_t missing;  /* consecutive samples without their command */
  uint32_t over_force, over_error; /* consecutive samples beyond the limit */
  uint32_t moved_flags;
  uint32_t trigger;  /* digital output for other data acquisition: 1 while a test is running */
  rths_command queue[RTHS_QUEUE];
  rths_command base; /* newest command that is due */
  double command[RTHS_MAX_AXES], velocity[RTHS_MAX_AXES], input[RTHS_MAX_AUXILIARY];
  uint32_t counts[RTHS_RESULTS];
  uint32_t bridged, limited; /* samples */
  uint32_t asked_flags;
  uint8_t newtons;             /* 1: this session has commands in N */
  uint8_t mode[RTHS_MAX_AXES]; /* RTHS_BY_FORCE: command and velocity are in N and N/s; RTHS_BY_DISPLACEMENT: m and m/s */
  rths_loop loop[RTHS_MAX_AXES];
  uint32_t warning; /* digital output for a horn or a lamp: 1 before a motion */
} rths_target;

/* Test whether this build computes as the tested one: 0, or a sum of these values. */
#define RTHS_TEST_REALS 1      /* double is not IEEE 754 binary64 */
#define RTHS_TEST_CONTRACTED 2 /* product and sum are rounded once: compile with -ffp-contract=off */
#define RTHS_TEST_ROUNDING 4   /* results are not rounded to the nearest double: x87, -ffast-math */
#define RTHS_TEST_CHECKSUM 8   /* the compiler is faulty */
int rths_self_test(void);

/* Fields that rths_init checks, in this order. New fields are added at the end. */
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

/* Prepare a session that holds position[axes] (m). Return 0, or a negative number if nothing may be driven: -2 if the
 * self-test fails, otherwise -(field + 32 * axis) of the first wrong field, for the three functions below. */
int rths_init(rths_target *target, const rths_config *config, const double *position);

/* Return the name of the field of a result of rths_init, e.g. "limits[].stroke", its bound as text, and the index of its
 * axis, or -1 if the field belongs to no axis. The texts are constant, and empty for the result 0. */
const char *rths_field(int result);
const char *rths_bound(int result);
int rths_axis(int result);

/* Process one received datagram; return RTHS_TAKEN etc. sender is your number for the address and port of the datagram.
 * Only the sender that opened the session is accepted: target->sender. */
int rths_receive(rths_target *target, const uint8_t *data, size_t size, uint64_t sender);

/* Write the answer for the sender of the last datagram to out. Return its size in bytes, or 0 if no answer is due. */
size_t rths_reply(rths_target *target, uint8_t *out, size_t capacity);

/* A tick consists of rths_state and rths_drive. First, write the state for target->sender to out. Return its size in
 * bytes, or 0 before the test. (An emulator in lockstep sends the state, and waits for its command.) */
size_t rths_state(rths_target *target, const rths_sensors *measured, uint8_t *out, size_t capacity);

/* Then write the command of the next sample to target->command, target->velocity, target->mode and target->input. */
void rths_drive(rths_target *target);

/* Return the number of samples from the last received command after which the rig is at rest at the latest. */
uint32_t rths_rest_samples(const rths_target *target);

/* Return 1 if the session has ended and nothing moves. */
int rths_at_rest(const rths_target *target);

uint32_t rths_checksum(const uint8_t *data, size_t size);

/* Square root of a number from 1 to 2^1022 without a library; identical to sqrt. */
double rths_root(double square);

#ifdef __cplusplus
}
#endif

#endif
