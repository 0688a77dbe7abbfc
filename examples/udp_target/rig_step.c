/* SPDX-License-Identifier: Apache-2.0 */
/* Tick of the receiver as one function, for a Simulink block: see doc/receiver.md. */
#include "rths_target.h"

#define MOST 16 /* datagrams per tick */

static rths_target target; /* initialised by rths_init on an operator's act */

/* in: MOST rows of RTHS_MAX_BYTES. senders: address * 65536 + port. out: MOST answers, then the state, with their sizes and
 * receivers. A size of 0 means no datagram. interlock: as in rths_sensors. For axes without config.load: all commands are
 * displacements. */
void rig_step(const uint8_t *in, const uint16_t *in_sizes, const double *senders, const double *displacement,
              const double *force, uint8_t interlock, uint8_t *out, uint16_t *out_sizes, double *receivers,
              double *command) {
  static rths_sensors measured;
  int i;
  for (i = 0; i < MOST; i++) {
    out_sizes[i] = 0;
    receivers[i] = senders[i];
    if (in_sizes[i] == 0) continue;
    (void)rths_receive(&target, in + RTHS_MAX_BYTES * i, in_sizes[i], (uint64_t)senders[i]);
    out_sizes[i] = (uint16_t)rths_reply(&target, out + RTHS_MAX_BYTES * i, RTHS_MAX_BYTES);
  }
  for (i = 0; i < target.config.axes; i++) {
    measured.displacement[i] = displacement[i];
    measured.force[i] = force[i];
    measured.mode[i] = RTHS_BY_DISPLACEMENT;
  }
  measured.interlock = interlock;
  out_sizes[MOST] = (uint16_t)rths_state(&target, &measured, out + RTHS_MAX_BYTES * MOST, RTHS_MAX_BYTES);
  receivers[MOST] = (double)target.sender;
  rths_drive(&target);
  for (i = 0; i < target.config.axes; i++) command[i] = target.command[i];
}
