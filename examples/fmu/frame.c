/* SPDX-License-Identifier: Apache-2.0 */
/* Shear frame of STORIES stories under ground motion, without the part in the laboratory.

   M a + C v + K x + f = -M 1 a_g,  C = alpha M + beta K

   The steps use the explicit Newmark method. The state has the predicted velocity p = v + h/2 a.
   The model can add a sine to the ground acceleration of its input. */

#include <math.h>

#include "model.h"

#ifndef STORIES
#define STORIES 3
#endif

enum {
    GROUND,                           /* inputs */
    FORCE,
    ALPHA = FORCE + STORIES,          /* parameters */
    BETA,
    SINE,                             /* amplitude (m/s^2) and frequency (Hz) of the sine */
    FREQUENCY,
    MASS,
    STIFFNESS = MASS + STORIES,
    X = STIFFNESS + STORIES,          /* outputs */
    V = X + STORIES,
    A = V + STORIES,
    PREDICTED = A + STORIES           /* p, then 1 after the first step */
};

static double stiffness_times(const double *v, const double *x, int i)
{
    double below = v[STIFFNESS + i] * (x[i] - (i ? x[i - 1] : 0.0));
    double above = i + 1 < STORIES ? v[STIFFNESS + i + 1] * (x[i + 1] - x[i]) : 0.0;
    return below - above;
}

/* Solve the tridiagonal equation (M + h/2 C) a = load. Overwrites load. */
static void accelerate(const double *v, double h, double *load, double *a)
{
    double diagonal[STORIES], beta = 0.5 * h * v[BETA];
    for (int i = 0; i < STORIES; i++) {
        diagonal[i] = v[MASS + i] * (1.0 + 0.5 * h * v[ALPHA]) + beta * v[STIFFNESS + i];
        if (i + 1 < STORIES)
            diagonal[i] += beta * v[STIFFNESS + i + 1];
        if (i) {
            double coupling = -beta * v[STIFFNESS + i], factor = coupling / diagonal[i - 1];
            diagonal[i] -= factor * coupling;
            load[i] -= factor * load[i - 1];
        }
    }
    for (int i = STORIES - 1; i >= 0; i--) {
        double above = i + 1 < STORIES ? beta * v[STIFFNESS + i + 1] * a[i + 1] : 0.0;
        a[i] = (load[i] + above) / diagonal[i];
    }
}

int model_start(double *v)
{
    for (int i = 0; i < STORIES; i++)
        v[X + i] = v[V + i] = v[A + i] = v[PREDICTED + i] = 0.0;
    v[PREDICTED + STORIES] = 0.0;
    return 0;
}

int model_step(double *v, double t, double h)
{
    double load[STORIES], a[STORIES];
    double ground = v[GROUND] + v[SINE] * sin(2.0 * 3.14159265358979323846 * v[FREQUENCY] * t);
    int first = v[PREDICTED + STORIES] == 0.0;
    for (int i = 0; i < STORIES; i++) {
        load[i] = -v[MASS + i] * (ground + v[ALPHA] * v[PREDICTED + i]) - v[FORCE + i];
        load[i] -= stiffness_times(v, v + X, i) + v[BETA] * stiffness_times(v, v + PREDICTED, i);
    }
    accelerate(v, first ? 0.0 : h, load, a); /* initially the velocity is zero, not predicted */
    for (int i = 0; i < STORIES; i++) {
        double velocity = first ? 0.0 : v[PREDICTED + i] + 0.5 * h * a[i];
        v[PREDICTED + i] = velocity + 0.5 * h * a[i];
        v[X + i] += h * v[PREDICTED + i];
        v[V + i] = v[PREDICTED + i];
        v[A + i] = a[i];
    }
    v[PREDICTED + STORIES] = 1.0;
    return 0;
}
