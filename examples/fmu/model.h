/* SPDX-License-Identifier: Apache-2.0 */
/* Model of this folder: an array of variables, whose index is the value reference, and two functions.
   The array contains the complete state of the model, so that a copy saves it.
   build.py defines VARIABLES (number of variables), START (their start values) and TOKEN. */

#ifndef MODEL_H
#define MODEL_H

/* Initialise the model, after its parameters have been set. */
int model_start(double *v);

/* Advance by h (s) from the time t (s). Return the FMI status: 0 OK, 2 discard, 3 error. */
int model_step(double *v, double t, double h);

#endif
