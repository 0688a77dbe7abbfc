/* SPDX-License-Identifier: Apache-2.0 */
/* Client of the integrator `remote` of rths_nodes, for finite element programs; see doc/hybrid_client.md.
 *
 * The library needs only C99 and POSIX sockets. A program connects once. In each step it sets a trial response, gets the
 * force that the rig measures at this response, and commits. Every function returns 0 (connect: a client > 0) or one of
 * the errors below; rths_client_words returns the text of an error. No call waits longer than the specified time. After
 * any failure except RTHS_CLIENT_ORDER, each later call returns the same error, until the client is closed.
 *
 * Call all functions of the library from one thread at a time. */
#ifndef RTHS_CLIENT_H
#define RTHS_CLIENT_H

#define RTHS_CLIENT_PROTOCOL 1 /* version used by the element genericClient of OpenSees 3 */
#define RTHS_CLIENT_MOST 8     /* largest number of simultaneous clients */
#define RTHS_CLIENT_DOF 64     /* largest number of degrees of freedom of a client */

enum {
  RTHS_CLIENT_OK = 0,
  RTHS_CLIENT_ARGUMENT = -1, /* invalid argument; an invalid number in a trial response closes the connection */
  RTHS_CLIENT_NOBODY = -2,   /* no server at this address */
  RTHS_CLIENT_TIMEOUT = -3,  /* no answer, or request not received, within the specified time */
  RTHS_CLIENT_CLOSED = -4,   /* the laboratory has ended or stopped the test; its terminal prints the reason */
  RTHS_CLIENT_BROKEN = -5,   /* the connection is lost */
  RTHS_CLIENT_ORDER = -6,    /* no trial response was set; nothing was sent */
  RTHS_CLIENT_GARBAGE = -7,  /* received bytes are not a valid answer */
  RTHS_CLIENT_UNKNOWN = -8,  /* no such client is connected */
  RTHS_CLIENT_FULL = -9      /* RTHS_CLIENT_MOST clients are connected */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Connect a client with n degrees of freedom, in the order of the axes, and return its number (> 0). address: numeric, IPv4
 * or IPv6. Connecting is retried for connect_within s; answer_within s limits each later wait. The first force is
 * available once the rig has started, which may depend on an operator. */
int rths_client_connect(const char *address, int port, int n, double connect_within, double answer_within);

/* Set a trial response: displacement[n] (m), velocity[n] (m/s), acceleration[n] (m/s^2), and the model's time (s). The rig
 * moves when the force is requested. The integrator `remote` does not use velocity and acceleration. All magnitudes must be
 * at most 1e6. */
int rths_client_trial(int client, const double *displacement, const double *velocity, const double *acceleration,
                      double time);

/* Wait until the rig has reached the trial response, and get the measured force[n], N. */
int rths_client_force(int client, double *force);

/* End the step with the last trial response. */
int rths_client_commit(int client);

/* Get a matrix that the scenario declares for the tested part: n x n, column by column, in N/m, N s/m or kg. */
int rths_client_stiffness(int client, double *matrix);
int rths_client_damping(int client, double *matrix);
int rths_client_mass(int client, double *matrix);

/* Close the connection, and notify the laboratory unless the connection has failed. */
int rths_client_close(int client);

/* Return the text of a result; defined for every number. */
const char *rths_client_words(int result);

#ifdef __cplusplus
}
#endif
#endif
