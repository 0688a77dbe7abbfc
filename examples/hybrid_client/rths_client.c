/* SPDX-License-Identifier: Apache-2.0 */
/* See rths_client.h. */
#define _POSIX_C_SOURCE 200809L
#include "rths_client.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LONGEST (RTHS_CLIENT_DOF * RTHS_CLIENT_DOF) /* doubles per vector: an n x n matrix, or action, trial and time */
#define GREETING 44                                 /* bytes: eleven int32 */
#define FARTHEST 1e6                                /* m, m/s, m/s^2, s: the server refuses larger magnitudes */
#define LONGEST_WAIT 1e6                            /* s */
#define RETRY_PERIOD 0.02                           /* s between two attempts to connect */

enum { TRIAL = 3, COMMIT = 5, FORCE = 10, STIFFNESS = 12, DAMPING = 14, MASS = 15, DIE = 99 };

typedef struct {
  int used, line, n, tried, failed;
  size_t length;  /* doubles per vector */
  double timeout; /* s */
} connection;

static connection table[RTHS_CLIENT_MOST];
static uint8_t bytes[8 * LONGEST]; /* current vector; shared, because calls do not overlap */

/* ---- time and bytes --------------------------------------------------------------------------------------------- */

static double now(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void put32(uint8_t *at, int value) {
  const uint32_t bits = (uint32_t)value;
  int i;
  for (i = 0; i < 4; i++) at[i] = (uint8_t)((bits >> (8 * i)) & 0xffu);
}

static void put_real(uint8_t *at, double value) {
  uint64_t bits;
  int i;
  memcpy(&bits, &value, sizeof bits);
  for (i = 0; i < 8; i++) at[i] = (uint8_t)((bits >> (8 * i)) & 0xffu);
}

static double get_real(const uint8_t *at) {
  uint64_t bits = 0;
  double value;
  int i;
  for (i = 0; i < 8; i++) bits |= (uint64_t)at[i] << (8 * i);
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* ---- socket ----------------------------------------------------------------------------------------------------- */

/* Store a failure. Later vectors could be misread. */
static int fails(connection *c, int result) {
  c->failed = result;
  return result;
}

static int error_of_socket(void) { return errno == ECONNRESET || errno == EPIPE ? RTHS_CLIENT_CLOSED : RTHS_CLIENT_BROKEN; }

/* Wait until the socket is ready for events, or the time until. */
static int wait_for(int line, short events, double until) {
  struct pollfd event;
  event.fd = line;
  event.events = events;
  for (;;) {
    const double left = until - now();
    const int ready = left > 0.0 ? poll(&event, 1, left > 1e3 ? 1000000 : 1 + (int)(1e3 * left)) : 0;
    if (ready > 0) return RTHS_CLIENT_OK;
    if (ready < 0 && errno != EINTR) return RTHS_CLIENT_BROKEN;
    if (!(now() < until)) return RTHS_CLIENT_TIMEOUT;
  }
}

static int send_all(connection *c, const uint8_t *data, size_t size) {
  const double until = now() + c->timeout;
  uint8_t extra;
  /* no answer is expected, so received bytes are invalid */
  const ssize_t received = recv(c->line, &extra, 1, MSG_PEEK | MSG_DONTWAIT);
  if (received == 0) return fails(c, RTHS_CLIENT_CLOSED);
  if (received > 0) return fails(c, RTHS_CLIENT_GARBAGE);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return fails(c, error_of_socket());
  while (size > 0u) {
    const ssize_t sent = send(c->line, data, size, MSG_NOSIGNAL);
    if (sent > 0) {
      data += sent;
      size -= (size_t)sent;
    } else if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      return fails(c, error_of_socket());
    } else {
      const int result = wait_for(c->line, POLLOUT, until);
      if (result != RTHS_CLIENT_OK) return fails(c, result);
    }
  }
  return RTHS_CLIENT_OK;
}

static int receive_all(connection *c, uint8_t *data, size_t size) {
  const double until = now() + c->timeout;
  while (size > 0u) {
    const ssize_t received = recv(c->line, data, size, MSG_DONTWAIT);
    if (received == 0) return fails(c, RTHS_CLIENT_CLOSED);
    if (received > 0) {
      data += received;
      size -= (size_t)received;
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      return fails(c, error_of_socket());
    } else {
      const int result = wait_for(c->line, POLLIN, until);
      if (result != RTHS_CLIENT_OK) return fails(c, result);
    }
  }
  return RTHS_CLIENT_OK;
}

/* Return 1 if the socket is connected to itself. If no server listens at the requested port, the kernel may assign this
 * port to the socket. */
static int with_itself(int line) {
  struct sockaddr_storage here, there;
  socklen_t size = sizeof here, peer_size = sizeof there;
  memset(&here, 0, sizeof here);
  memset(&there, 0, sizeof there);
  if (getsockname(line, (struct sockaddr *)&here, &size) != 0) return 1;
  if (getpeername(line, (struct sockaddr *)&there, &peer_size) != 0) return 1;
  return size == peer_size && memcmp(&here, &there, size) == 0;
}

/* Try once to connect. Return the socket, or an error. */
static int attempt(const struct addrinfo *server, double until) {
  const int line = socket(server->ai_family, SOCK_STREAM, 0), on = 1;
  int error = 0, result = RTHS_CLIENT_NOBODY;
  socklen_t size = sizeof error;
  if (line < 0) return RTHS_CLIENT_BROKEN;
  (void)fcntl(line, F_SETFD, FD_CLOEXEC);
  if (fcntl(line, F_SETFL, O_NONBLOCK) == 0) {
    (void)setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* send requests without delay */
    if (connect(line, server->ai_addr, server->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS && (wait_for(line, POLLOUT, until) != RTHS_CLIENT_OK ||
                                 getsockopt(line, SOL_SOCKET, SO_ERROR, &error, &size) != 0))
      error = ETIMEDOUT;
    if (error == 0 && !with_itself(line)) return line;
  } else {
    result = RTHS_CLIENT_BROKEN;
  }
  (void)close(line);
  return result;
}

/* Connect, with retries until the timeout. Return the socket, or an error. */
static int connected(const char *address, int port, double within) {
  const double until = now() + within;
  struct addrinfo hints, *server = NULL;
  char service[8];
  int line;
  memset(&hints, 0, sizeof hints);
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV; /* a name lookup could exceed the timeout */
  (void)snprintf(service, sizeof service, "%d", port);
  if (getaddrinfo(address, service, &hints, &server) != 0) return RTHS_CLIENT_ARGUMENT;
  for (;;) {
    const struct timespec pause = {0, (long)(1e9 * RETRY_PERIOD)};
    line = attempt(server, until);
    if (line >= 0 || line == RTHS_CLIENT_BROKEN || !(now() + RETRY_PERIOD < until)) break;
    (void)nanosleep(&pause, NULL);
  }
  freeaddrinfo(server);
  return line;
}

/* ---- connection ------------------------------------------------------------------------------------------------- */

static connection *connection_of(int client) {
  if (client < 1 || client > RTHS_CLIENT_MOST || !table[client - 1].used) return NULL;
  return &table[client - 1];
}

int rths_client_connect(const char *address, int port, int n, double connect_within, double answer_within) {
  /* lengths sent (displacement, velocity, acceleration, force, time), then lengths received */
  const int sizes[10] = {n, n, n, 0, 1, 0, 0, 0, n, 0};
  connection *c = NULL;
  int i, client = 0;
  if (address == NULL || port < 1 || port > 65535 || n < 1 || n > RTHS_CLIENT_DOF) return RTHS_CLIENT_ARGUMENT;
  if (!(connect_within >= 0.0 && connect_within <= LONGEST_WAIT)) return RTHS_CLIENT_ARGUMENT;
  if (!(answer_within > 0.0 && answer_within <= LONGEST_WAIT)) return RTHS_CLIENT_ARGUMENT;
  for (i = RTHS_CLIENT_MOST; i >= 1; i--)
    if (!table[i - 1].used) client = i;
  if (client == 0) return RTHS_CLIENT_FULL;
  c = &table[client - 1];
  memset(c, 0, sizeof *c);
  c->line = connected(address, port, connect_within);
  if (c->line < 0) return c->line;
  c->used = 1;
  c->n = n;
  c->length = (size_t)(3 * n + 2 > n * n ? 3 * n + 2 : n * n);
  c->timeout = answer_within;
  for (i = 0; i < 10; i++) put32(bytes + 4 * i, sizes[i]);
  put32(bytes + 40, (int)c->length);
  i = send_all(c, bytes, GREETING);
  if (i == RTHS_CLIENT_OK) return client;
  (void)rths_client_close(client);
  return i;
}

static int request(connection *c, int action) {
  if (c->failed) return c->failed;
  put_real(bytes, (double)action);
  return send_all(c, bytes, 8u * c->length);
}

/* Write values. Return 0 if one is invalid. */
static int put_all(uint8_t *at, const double *values, int count) {
  int i, valid = values != NULL;
  for (i = 0; valid && i < count; i++) {
    valid = fabs(values[i]) <= FARTHEST; /* 0 for NaN */
    put_real(at + 8 * i, values[i]);
  }
  return valid;
}

int rths_client_trial(int client, const double *displacement, const double *velocity, const double *acceleration,
                      double time) {
  connection *c = connection_of(client);
  int result, n;
  if (c == NULL) return RTHS_CLIENT_UNKNOWN;
  if (c->failed) return c->failed;
  n = c->n;
  memset(bytes, 0, 8u * c->length);
  if (!put_all(bytes + 8, displacement, n) || !put_all(bytes + 8 * (n + 1), velocity, n) ||
      !put_all(bytes + 8 * (2 * n + 1), acceleration, n) || !put_all(bytes + 8 * (3 * n + 1), &time, 1)) {
    (void)shutdown(c->line, SHUT_RDWR); /* the rig stops at once, instead of waiting for a faulty program */
    return fails(c, RTHS_CLIENT_ARGUMENT);
  }
  result = request(c, TRIAL);
  if (result == RTHS_CLIENT_OK) c->tried = 1;
  return result;
}

static int ask(int client, int action, double *values, int matrix) {
  connection *c = connection_of(client);
  int result, i, count;
  if (c == NULL) return RTHS_CLIENT_UNKNOWN;
  if (values == NULL) return RTHS_CLIENT_ARGUMENT;
  memset(bytes, 0, 8u * c->length);
  result = request(c, action);
  if (result == RTHS_CLIENT_OK) result = receive_all(c, bytes, 8u * c->length);
  if (result != RTHS_CLIENT_OK) return result;
  count = matrix ? c->n * c->n : c->n;
  for (i = 0; i < count; i++)
    if (!isfinite(get_real(bytes + 8 * i))) return fails(c, RTHS_CLIENT_GARBAGE);
  for (i = 0; i < count; i++) values[i] = get_real(bytes + 8 * i);
  return RTHS_CLIENT_OK;
}

int rths_client_force(int client, double *force) {
  const connection *c = connection_of(client);
  if (c != NULL && !c->failed && !c->tried) return RTHS_CLIENT_ORDER;
  return ask(client, FORCE, force, 0);
}

int rths_client_stiffness(int client, double *matrix) { return ask(client, STIFFNESS, matrix, 1); }

int rths_client_damping(int client, double *matrix) { return ask(client, DAMPING, matrix, 1); }

int rths_client_mass(int client, double *matrix) { return ask(client, MASS, matrix, 1); }

int rths_client_commit(int client) {
  connection *c = connection_of(client);
  if (c == NULL) return RTHS_CLIENT_UNKNOWN;
  if (c->failed) return c->failed;
  if (!c->tried) return RTHS_CLIENT_ORDER;
  memset(bytes, 0, 8u * c->length);
  return request(c, COMMIT);
}

int rths_client_close(int client) {
  connection *c = connection_of(client);
  if (c == NULL) return RTHS_CLIENT_UNKNOWN;
  memset(bytes, 0, 8u * c->length);
  (void)request(c, DIE);
  (void)close(c->line);
  memset(c, 0, sizeof *c);
  return RTHS_CLIENT_OK;
}

const char *rths_client_words(int result) {
  static const char *const texts[] = {"success",
                                      "invalid argument",
                                      "no server at this address",
                                      "timeout",
                                      "the laboratory has ended or stopped the test; its terminal prints the reason",
                                      "the connection is lost",
                                      "no trial response was set",
                                      "received bytes that are not a valid answer",
                                      "no such client is connected",
                                      "too many clients are connected"};
  if (result > 0) return "connected";
  return result < RTHS_CLIENT_FULL ? "unknown result" : texts[-result];
}
