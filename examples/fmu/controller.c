/* SPDX-License-Identifier: Apache-2.0 */
/* A compensator of one axis: the target, led by a delay, and the integral of the error.

   u = r + delay v + gain * integral of (r before - y) */

#include "model.h"

enum { TARGET, VELOCITY, MEASURED, DELAY, GAIN, COMMAND, INTEGRAL, BEFORE };

int model_start(double *v)
{
    v[COMMAND] = v[INTEGRAL] = v[BEFORE] = 0.0;
    return 0;
}

int model_step(double *v, double t, double h)
{
    v[INTEGRAL] += h * (v[BEFORE] - v[MEASURED]); /* what was measured is that of the sample before */
    v[BEFORE] = v[TARGET];
    v[COMMAND] = v[TARGET] + v[DELAY] * v[VELOCITY] + v[GAIN] * v[INTEGRAL];
    return 0;
}
