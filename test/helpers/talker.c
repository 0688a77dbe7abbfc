/* SPDX-License-Identifier: Apache-2.0 */
/* A program that uses examples/hybrid_client/rths_client.c: talker PORT N STEPS DT WITHIN
 * It prints the forces that it gets, and at the first failure its number, twice: a failure stays. */
#include "rths_client.h"

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
  double x[RTHS_CLIENT_DOF] = {0.0}, still[RTHS_CLIENT_DOF] = {0.0}, force[RTHS_CLIENT_DOF];
  static double matrix[RTHS_CLIENT_DOF * RTHS_CLIENT_DOF];
  int client, n, step, result, i;
  if (count != 6) return 2;
  n = atoi(words[2]);
  client = rths_client_connect("127.0.0.1", atoi(words[1]), n, 20.0, atof(words[5]));
  if (client <= 0) {
    printf("%d %s\n", client, rths_client_words(client));
    return 1;
  }
  result = rths_client_stiffness(client, matrix);
  for (step = 1; step <= atoi(words[3]) && result == RTHS_CLIENT_OK; step++) {
    for (i = 0; i < n; i++) x[i] = 1e-5 * step * step * (i + 1);
    result = rths_client_trial(client, x, still, still, atof(words[4]) * step);
    if (result == RTHS_CLIENT_OK) result = rths_client_force(client, force);
    if (result == RTHS_CLIENT_OK)
      for (i = 0; i < n; i++) printf(i < n - 1 ? "%.17g " : "%.17g\n", force[i]);
    if (result == RTHS_CLIENT_OK) result = rths_client_commit(client);
  }
  if (result != RTHS_CLIENT_OK) {
    printf("%d %s\n", result, rths_client_words(result));
    if (rths_client_trial(client, x, still, still, 0.0) != result || rths_client_force(client, force) != result ||
        rths_client_commit(client) != result || rths_client_mass(client, matrix) != result)
      return 3;
  }
  return rths_client_close(client) == RTHS_CLIENT_OK && rths_client_close(client) == RTHS_CLIENT_UNKNOWN ? 0 : 4;
}
