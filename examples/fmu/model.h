/* SPDX-License-Identifier: Apache-2.0 */
/* A model of this folder: an array of variables, of which the value reference is the index, and two functions.
   All that the model remembers stands in the array, so that its state is saved by a copy.
   build.py defines VARIABLES (how many), START (their start values) and TOKEN. */

#ifndef MODEL_H
#define MODEL_H

/* Parameters are set: come to the start. */
int model_start(double *v);

/* Go on by h (s) from the time t (s); the status of FMI: 0 OK, 2 discard, 3 error. */
int model_step(double *v, double t, double h);

#endif
