/* SPDX-License-Identifier: Apache-2.0 */
/* FMI 3.0 interface (co-simulation) of a model with the functions of model.h. */

#include <stdlib.h>
#include <string.h>

#include "fmi3Functions.h"
#include "model.h"

static const double start_values[VARIABLES] = START;

const char *fmi3GetVersion(void) { return fmi3Version; }

fmi3Instance fmi3InstantiateCoSimulation(
    fmi3String name, fmi3String token, fmi3String resources, fmi3Boolean visible, fmi3Boolean logging,
    fmi3Boolean events, fmi3Boolean early, const fmi3ValueReference needed[], size_t n_needed,
    fmi3InstanceEnvironment environment, fmi3LogMessageCallback log, fmi3IntermediateUpdateCallback update)
{
    double *v;
    if (strcmp(token, TOKEN) || !(v = malloc(sizeof start_values)))
        return NULL;
    return memcpy(v, start_values, sizeof start_values);
}

void fmi3FreeInstance(fmi3Instance c) { free(c); }

fmi3Status fmi3EnterInitializationMode(fmi3Instance c, fmi3Boolean with_tolerance, fmi3Float64 tolerance,
                                       fmi3Float64 from, fmi3Boolean with_end, fmi3Float64 end)
{
    return fmi3OK;
}

fmi3Status fmi3ExitInitializationMode(fmi3Instance c) { return (fmi3Status)model_start(c); }
fmi3Status fmi3Terminate(fmi3Instance c) { return fmi3OK; }

fmi3Status fmi3Reset(fmi3Instance c)
{
    memcpy(c, start_values, sizeof start_values);
    return fmi3OK;
}

fmi3Status fmi3GetFloat64(fmi3Instance c, const fmi3ValueReference refs[], size_t n, fmi3Float64 values[],
                          size_t n_values)
{
    for (size_t i = 0; i < n; i++) {
        if (refs[i] >= VARIABLES || n != n_values)
            return fmi3Error;
        values[i] = ((double *)c)[refs[i]];
    }
    return fmi3OK;
}

fmi3Status fmi3SetFloat64(fmi3Instance c, const fmi3ValueReference refs[], size_t n, const fmi3Float64 values[],
                          size_t n_values)
{
    for (size_t i = 0; i < n; i++) {
        if (refs[i] >= VARIABLES || n != n_values)
            return fmi3Error;
        ((double *)c)[refs[i]] = values[i];
    }
    return fmi3OK;
}

fmi3Status fmi3DoStep(fmi3Instance c, fmi3Float64 t, fmi3Float64 h, fmi3Boolean no_state_before,
                      fmi3Boolean *event, fmi3Boolean *terminate, fmi3Boolean *early, fmi3Float64 *last)
{
    *event = *terminate = *early = fmi3False;
    *last = t + h;
#ifdef EARLY_AT
    *early = t >= EARLY_AT;
#endif
    return (fmi3Status)model_step(c, t, h);
}

fmi3Status fmi3GetFMUState(fmi3Instance c, fmi3FMUState *state)
{
    if (!*state && !(*state = malloc(sizeof start_values)))
        return fmi3Error;
    memcpy(*state, c, sizeof start_values);
    return fmi3OK;
}

fmi3Status fmi3SetFMUState(fmi3Instance c, fmi3FMUState state)
{
    memcpy(c, state, sizeof start_values);
    return fmi3OK;
}

fmi3Status fmi3FreeFMUState(fmi3Instance c, fmi3FMUState *state)
{
    free(*state);
    *state = NULL;
    return fmi3OK;
}
