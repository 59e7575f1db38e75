/* The frame of every call: count it, obey the scenario's rules, resolve its device. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "fake_nvml.h"

/* ---- Handles: addresses in a table, valid whatever the scenario becomes. ---- */

struct nvmlDevice_st {
    char unused;
};

static struct nvmlDevice_st handles[MAX_GPUS][1 + MAX_MIG];

nvmlDevice_t device_handle(int gpu, int mig)
{
    return &handles[gpu][1 + mig];
}

bool handle_device(nvmlDevice_t handle, int *gpu, int *mig)
{
    uintptr_t first = (uintptr_t)handles, at = (uintptr_t)handle;
    if (at < first || at >= first + sizeof handles)
        return false;
    *gpu = (int)((at - first) / (1 + MAX_MIG));
    *mig = (int)((at - first) % (1 + MAX_MIG)) - 1;
    return true;
}

/* ---- Time and death. ---- */

uint64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t wall_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Signal handlers don't shorten it: a driver in the kernel does not come back for them either. */
void sleep_ms(uint64_t milliseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(milliseconds / 1000);
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

void crash(bool segv, const char *format, ...)
{
    va_list arguments;
    fputs("fake NVML: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a crash on purpose leaves no core file */
    if (segv)
        raise(SIGSEGV);
    abort();
}

/* ---- Rules. ---- */

static bool rule_applies(const struct rule *rule, const struct call *call)
{
    if (!rule->functions[call->function])
        return false;
    if (rule->phase != ONCE && rule->phase != call->phase)
        return false;
    if (rule->gpu == NONE)
        return true;
    if (rule->gpu != call->gpu)
        return false;
    /* Asking a GPU for an instance is the business of both. */
    return rule->mig == call->mig || (call->lookup && rule->mig == NONE);
}

static const char *about(const struct call *call)
{
    static _Thread_local char text[64];
    if (call->gpu == NONE)
        return "";
    if (call->mig == NONE)
        snprintf(text, sizeof text, " of gpu %d", call->gpu);
    else
        snprintf(text, sizeof text, " of gpu %d mig %d", call->gpu, call->mig);
    return text;
}

static void use_current_scenario(struct call *call)
{
    struct scenario *scenario = scenario_acquire();
    scenario_release(call->scenario);
    call->scenario = scenario;
}

static bool hangs(const struct call *call)
{
    for (size_t i = 0; i < call->scenario->rule_count; i++)
        if (call->scenario->rules[i].kind == HANG && rule_applies(&call->scenario->rules[i], call))
            return true;
    return false;
}

static void hang(struct call *call, bool forever)
{
    unsigned long generation = call->scenario->generation;
    while (forever)
        sleep_ms(1000);
    do {
        sleep_ms(2);
        use_current_scenario(call);
    } while (call->scenario->generation == generation || hangs(call));
}

/* Wait, crash or fail as the rules say. Every rule that fits counts the call, whatever it does. */
static nvmlReturn_t obey(struct call *call)
{
    const struct rule *hanging = NULL, *crashing = NULL, *failing = NULL;
    uint64_t delay = 0;

    for (size_t i = 0; i < call->scenario->rule_count; i++) {
        struct rule *rule = &call->scenario->rules[i];
        if (!rule_applies(rule, call))
            continue;
        uint64_t before = atomic_fetch_add(&rule->seen, 1);
        if (before < rule->after || before - rule->after >= rule->times)
            continue;
        if (rule->kind == SLOW)
            delay += rule->milliseconds;
        else if (rule->kind == HANG && hanging == NULL)
            hanging = rule;
        else if (rule->kind == CRASH && crashing == NULL)
            crashing = rule;
        else if (rule->kind == FAIL && failing == NULL)
            failing = rule;
    }
    nvmlReturn_t code = failing == NULL ? NVML_SUCCESS : failing->code;

    if (delay > 0)
        sleep_ms(delay);
    if (crashing != NULL)
        crash(crashing->segv, "%s%s crashes, as the scenario says",
              function_symbols[call->function], about(call));
    if (hanging != NULL) {
        hang(call, hanging->forever);
        return obey(call); /* the scenario that ended the hang may have other plans */
    }
    if (delay > 0)
        use_current_scenario(call); /* the answer is read after the wait */
    return code;
}

/* ---- Begin and end. ---- */

static atomic_int in_flight;

bool calls_in_flight(void)
{
    return atomic_load(&in_flight) > 1;
}

static bool works_uninitialized(enum function function)
{
    switch (function) {
    case F_nvmlInit:
    case F_nvmlInit_v2:
    case F_nvmlInitWithFlags:
    case F_nvmlSystemGetNVMLVersion:
        return true;
    default:
        return false;
    }
}

static nvmlReturn_t resolve(struct call *call)
{
    if (call->gpu == NONE)
        return NVML_SUCCESS;
    call->device = scenario_device(call->scenario, call->gpu, call->mig);
    const struct device *gpu = scenario_device(call->scenario, call->gpu, NONE);
    if (call->lookup && gpu == NULL)
        return NVML_ERROR_INVALID_ARGUMENT; /* an index out of range */
    if (gpu == NULL || gpu->lost || (call->device != NULL && call->device->lost)) {
        if (call->scenario->crash_on_bad_handle && !call->lookup)
            crash(true, "%s was called with the handle%s, which is lost",
                  function_symbols[call->function], about(call));
        return NVML_ERROR_GPU_IS_LOST;
    }
    return call->device == NULL ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS; /* the instance is gone */
}

static nvmlReturn_t begin(struct call *call)
{
    atomic_fetch_add(&in_flight, 1);
    count_call(call->function, call->gpu);
    call->scenario = scenario_acquire();
    nvmlReturn_t result;
    if (!works_uninitialized(call->function) && !library_is_initialized())
        result = NVML_ERROR_UNINITIALIZED;
    else if (call->scenario == NULL)
        result = NVML_ERROR_DRIVER_NOT_LOADED;
    else if (call->scenario->driver_symbols != 0 &&
             function_since[call->function] > call->scenario->driver_symbols)
        result = NVML_ERROR_FUNCTION_NOT_FOUND;
    else if ((result = obey(call)) == NVML_SUCCESS)
        result = resolve(call);
    return result == NVML_SUCCESS ? result : call_end(call, result);
}

nvmlReturn_t call_begin(struct call *call, enum function function)
{
    *call = (struct call){.function = function, .gpu = NONE, .mig = NONE};
    return begin(call);
}

nvmlReturn_t call_begin_lookup(struct call *call, enum function function, int gpu, int mig)
{
    *call = (struct call){.function = function, .gpu = gpu, .mig = mig, .lookup = true};
    return begin(call);
}

nvmlReturn_t call_begin_device(struct call *call, enum function function, nvmlDevice_t device,
                               enum phase phase)
{
    *call = (struct call){.function = function, .phase = phase, .gpu = NONE, .mig = NONE};
    if (handle_device(device, &call->gpu, &call->mig))
        return begin(call);

    nvmlReturn_t result = begin(call);
    if (result != NVML_SUCCESS)
        return result;
    if (call->scenario->crash_on_bad_handle)
        crash(true, "%s was called with an invalid handle", function_symbols[function]);
    return call_end(call, NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t call_end(struct call *call, nvmlReturn_t result)
{
    if (call->scenario != NULL)
        scenario_release(call->scenario);
    atomic_fetch_sub(&in_flight, 1);
    return result;
}
