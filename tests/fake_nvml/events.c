/* Event sets: what a scenario's `event` lines say, each told once to each set. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake_nvml.h"

enum { MAX_TOLD = 4096, POLL_MS = 5 };

struct nvmlEventSet_st {
    struct nvmlEventSet_st *next;
    uint64_t types[MAX_GPUS];
    struct {
        int gpu;
        uint64_t id;
    } told[MAX_TOLD];
    size_t told_count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlEventSet_st *sets;

static bool is_set(const struct nvmlEventSet_st *wanted)
{
    for (const struct nvmlEventSet_st *set = sets; set != NULL; set = set->next)
        if (set == wanted)
            return true;
    return false;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    struct call call;
    nvmlReturn_t result = call_begin(&call, F_nvmlEventSetCreate);
    if (result != NVML_SUCCESS)
        return result;
    if (set == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    *set = calloc(1, sizeof **set);
    if (*set == NULL)
        return call_end(&call, NVML_ERROR_MEMORY);
    pthread_mutex_lock(&lock);
    (*set)->next = sets;
    sets = *set;
    pthread_mutex_unlock(&lock);
    return call_end(&call, NVML_SUCCESS);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    struct call call;
    nvmlReturn_t result = call_begin(&call, F_nvmlEventSetFree);
    if (result != NVML_SUCCESS)
        return result;
    result = NVML_ERROR_INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    for (struct nvmlEventSet_st **at = &sets; *at != NULL; at = &(*at)->next) {
        if (*at == set) {
            *at = set->next;
            free(set);
            result = NVML_SUCCESS;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return call_end(&call, result);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set)
{
    struct call call;
    uint64_t supported;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceRegisterEvents, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    result = read_number(call.device, K_EVENT_TYPES_SUPPORTED, &supported);
    if (result == NVML_SUCCESS && (types & ~supported) != 0)
        result = NVML_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    if (result == NVML_SUCCESS && !is_set(set))
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        set->types[call.gpu] |= types;
    pthread_mutex_unlock(&lock);
    return call_end(&call, result);
}

static bool was_told(const struct nvmlEventSet_st *set, int gpu, uint64_t id)
{
    for (size_t i = 0; i < set->told_count; i++)
        if (set->told[i].gpu == gpu && set->told[i].id == id)
            return true;
    return false;
}

/* A set that has a lost GPU among its own says so, each time it has no event to tell. */
static nvmlReturn_t tell_nothing(const struct nvmlEventSet_st *set,
                                 const struct scenario *scenario)
{
    for (int gpu = 0; gpu < scenario->gpu_count; gpu++)
        if (set->types[gpu] != 0 && scenario->gpus[gpu]->lost)
            return NVML_ERROR_GPU_IS_LOST;
    return NVML_ERROR_TIMEOUT;
}

static nvmlReturn_t tell_event(struct nvmlEventSet_st *set, const struct scenario *scenario,
                               nvmlEventData_t *data)
{
    for (int gpu = 0; gpu < scenario->gpu_count; gpu++) {
        const struct device *device = scenario->gpus[gpu];
        for (size_t i = 0; i < device->event_count; i++) {
            const struct event *event = &device->events[i];
            if ((event->type & set->types[gpu]) == 0 || was_told(set, gpu, event->id))
                continue;
            if (set->told_count == MAX_TOLD)
                crash(false, "an event set was told %d events, more than it can remember",
                      MAX_TOLD);
            set->told[set->told_count].gpu = gpu;
            set->told[set->told_count++].id = event->id;
            *data = (nvmlEventData_t){.device = device_handle(gpu, NONE),
                                      .eventType = event->type,
                                      .eventData = event->data,
                                      .gpuInstanceId = NVML_NOT_AVAILABLE,
                                      .computeInstanceId = NVML_NOT_AVAILABLE};
            return NVML_SUCCESS;
        }
    }
    return tell_nothing(set, scenario);
}

static nvmlReturn_t wait_for_event(enum function function, nvmlEventSet_t set,
                                   nvmlEventData_t *data, unsigned int timeout_ms)
{
    struct call call;
    nvmlReturn_t result = call_begin(&call, function);
    if (result != NVML_SUCCESS)
        return result;
    uint64_t until = monotonic_ms() + timeout_ms;
    for (;;) {
        struct scenario *scenario = scenario_acquire();
        pthread_mutex_lock(&lock);
        result = is_set(set) ? tell_event(set, scenario, data) : NVML_ERROR_INVALID_ARGUMENT;
        pthread_mutex_unlock(&lock);
        scenario_release(scenario);
        if (result != NVML_ERROR_TIMEOUT || monotonic_ms() >= until)
            return call_end(&call, result);
        sleep_ms(POLL_MS);
    }
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t *data,
                              unsigned int timeout_ms)
{
    nvmlEventData_t told;
    nvmlReturn_t result = wait_for_event(F_nvmlEventSetWait, set, &told, timeout_ms);
    if (result == NVML_SUCCESS)
        memcpy(data, &told, sizeof *data);
    return result;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                 unsigned int timeout_ms)
{
    return wait_for_event(F_nvmlEventSetWait_v2, set, data, timeout_ms);
}
