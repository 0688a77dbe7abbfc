/* SPDX-License-Identifier: Apache-2.0 */
/* Specimen of one axis: an elastic, perfectly plastic brace in parallel with a dashpot. */

#include <math.h>

#include "model.h"

enum { DISPLACEMENT, VELOCITY, STIFFNESS, YIELD_FORCE, DAMPING, FORCE, SLIP };

int model_start(double *v)
{
    v[FORCE] = v[SLIP] = 0.0;
    return 0;
}

int model_step(double *v, double t, double h)
{
    double brace = v[STIFFNESS] * (v[DISPLACEMENT] - v[SLIP]);
    if (fabs(brace) > v[YIELD_FORCE]) {
        brace = copysign(v[YIELD_FORCE], brace);
        v[SLIP] = v[DISPLACEMENT] - brace / v[STIFFNESS];
    }
    v[FORCE] = brace + v[DAMPING] * v[VELOCITY];
    return 0;
}
