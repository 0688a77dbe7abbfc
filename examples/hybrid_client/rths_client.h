/* SPDX-License-Identifier: Apache-2.0 */
/* Any finite element program drives a rig: the client of the integrator `remote` of rths_nodes, see doc/hybrid_client.md.
 *
 * C99 and the sockets of POSIX, nothing else. A program connects once, and in each of its steps sets a trial response,
 * gets the force that the rig measures there, and commits. Every function gives a result: 0 (connect: a client > 0), or
 * one of the errors below, which rths_client_words says in words. No call waits longer than it was told to. A conversation
 * that has failed once stays failed: each later call gives the same error, until it is closed.
 *
 * Calls of one client come from one thread at a time; so do connect and close of all.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RTHS_CLIENT_H
#define RTHS_CLIENT_H

#define RTHS_CLIENT_PROTOCOL 1 /* that of the element genericClient of OpenSees 3, with the sizes of the greeting below */
#define RTHS_CLIENT_MOST 8     /* conversations at a time */
#define RTHS_CLIENT_DOF 64     /* degrees of freedom of one */

enum {
  RTHS_CLIENT_OK = 0,
  RTHS_CLIENT_ARGUMENT = -1, /* a number that makes no sense; a trial response that is none ends the conversation */
  RTHS_CLIENT_NOBODY = -2,   /* nobody listens there */
  RTHS_CLIENT_TIMEOUT = -3,  /* no answer, or nobody takes what is sent, in the time that was stated */
  RTHS_CLIENT_CLOSED = -4,   /* the laboratory has ended the test, or has stopped: its terminal says why */
  RTHS_CLIENT_BROKEN = -5,   /* the connection is lost */
  RTHS_CLIENT_ORDER = -6,    /* no trial response was set; nothing was sent */
  RTHS_CLIENT_GARBAGE = -7,  /* what came is no answer */
  RTHS_CLIENT_UNKNOWN = -8,  /* no such client is connected */
  RTHS_CLIENT_FULL = -9      /* RTHS_CLIENT_MOST are */
};

#ifdef __cplusplus
extern "C" {
#endif

/* A client > 0 of n degrees of freedom, in the order of the axes. address: in numbers (IPv4 or IPv6). For connect_within s it
 * tries again where nobody listens yet; answer_within s bounds each later wait. The first force comes when the rig
 * begins: where an operator has to arm it, that takes as long as he does. */
int rths_client_connect(const char *address, int port, int n, double connect_within, double answer_within);

/* A trial response of n numbers each, m, m/s, m/s^2, at the time of the program's model, s. The rig goes to it when its
 * force is asked for. velocity and acceleration are not used by the integrator `remote`, but must be numbers. */
int rths_client_trial(int client, const double *displacement, const double *velocity, const double *acceleration,
                      double time);

/* force[n], N: measured at the trial response. It waits until the rig is there. */
int rths_client_force(int client, double *force);

/* The step ends with the last trial response. */
int rths_client_commit(int client);

/* What the scenario declares of the part under test, n x n, N/m, N s/m, kg, column by column. */
int rths_client_stiffness(int client, double *matrix);
int rths_client_damping(int client, double *matrix);
int rths_client_mass(int client, double *matrix);

/* Leave: say so, where the conversation has not failed, and be no client any more. */
int rths_client_close(int client);

/* A result in words; of every number. */
const char *rths_client_words(int result);

#ifdef __cplusplus
}
#endif
#endif
