/* SPDX-License-Identifier: Apache-2.0 */
/* Compensator of one axis: delay compensation by the target velocity, and integral action on the error.

   u = r + delay v + gain * integral of (r of the previous sample - y) */

#include "model.h"

enum { TARGET, VELOCITY, MEASURED, DELAY, GAIN, COMMAND, INTEGRAL, BEFORE };

int model_start(double *v)
{
    v[COMMAND] = v[INTEGRAL] = v[BEFORE] = 0.0;
    return 0;
}

int model_step(double *v, double t, double h)
{
    v[INTEGRAL] += h * (v[BEFORE] - v[MEASURED]); /* the measurement belongs to the previous sample */
    v[BEFORE] = v[TARGET];
    v[COMMAND] = v[TARGET] + v[DELAY] * v[VELOCITY] + v[GAIN] * v[INTEGRAL];
    return 0;
}
