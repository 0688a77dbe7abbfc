/* SPDX-License-Identifier: Apache-2.0 */
/* FMI 2.0 interface (co-simulation) of a model with the functions of model.h. */

#include <stdlib.h>
#include <string.h>

#include "fmi2Functions.h"
#include "model.h"

static const double start_values[VARIABLES] = START;

const char *fmi2GetTypesPlatform(void) { return fmi2TypesPlatform; }
const char *fmi2GetVersion(void) { return fmi2Version; }

fmi2Component fmi2Instantiate(fmi2String name, fmi2Type type, fmi2String token, fmi2String resources,
                              const fmi2CallbackFunctions *callbacks, fmi2Boolean visible, fmi2Boolean logging)
{
    double *v;
    if (type != fmi2CoSimulation || strcmp(token, TOKEN) || !(v = malloc(sizeof start_values)))
        return NULL;
    return memcpy(v, start_values, sizeof start_values);
}

void fmi2FreeInstance(fmi2Component c) { free(c); }

fmi2Status fmi2SetupExperiment(fmi2Component c, fmi2Boolean with_tolerance, fmi2Real tolerance, fmi2Real from,
                               fmi2Boolean with_end, fmi2Real end)
{
    return fmi2OK;
}

fmi2Status fmi2EnterInitializationMode(fmi2Component c) { return fmi2OK; }
fmi2Status fmi2ExitInitializationMode(fmi2Component c) { return model_start(c); }
fmi2Status fmi2Terminate(fmi2Component c) { return fmi2OK; }

fmi2Status fmi2Reset(fmi2Component c)
{
    memcpy(c, start_values, sizeof start_values);
    return fmi2OK;
}

fmi2Status fmi2GetReal(fmi2Component c, const fmi2ValueReference refs[], size_t n, fmi2Real values[])
{
    for (size_t i = 0; i < n; i++) {
        if (refs[i] >= VARIABLES)
            return fmi2Error;
        values[i] = ((double *)c)[refs[i]];
    }
    return fmi2OK;
}

fmi2Status fmi2SetReal(fmi2Component c, const fmi2ValueReference refs[], size_t n, const fmi2Real values[])
{
    for (size_t i = 0; i < n; i++) {
        if (refs[i] >= VARIABLES)
            return fmi2Error;
        ((double *)c)[refs[i]] = values[i];
    }
    return fmi2OK;
}

fmi2Status fmi2DoStep(fmi2Component c, fmi2Real t, fmi2Real h, fmi2Boolean no_state_before)
{
    return model_step(c, t, h);
}

fmi2Status fmi2GetFMUstate(fmi2Component c, fmi2FMUstate *state)
{
    if (!*state && !(*state = malloc(sizeof start_values)))
        return fmi2Error;
    memcpy(*state, c, sizeof start_values);
    return fmi2OK;
}

fmi2Status fmi2SetFMUstate(fmi2Component c, fmi2FMUstate state)
{
    memcpy(c, state, sizeof start_values);
    return fmi2OK;
}

fmi2Status fmi2FreeFMUstate(fmi2Component c, fmi2FMUstate *state)
{
    free(*state);
    *state = NULL;
    return fmi2OK;
}
