/* Process lists in all their record layouts, and the samples of what each process uses. */
#include <stdlib.h>
#include <string.h>

#include "fake_nvml.h"

/* ---- Lists. ---- */

typedef nvmlProcessDetail_v1_t record_t; /* the widest; the other layouts are cut from it */

static size_t add_records(const struct device *device, unsigned kind, unsigned gpu_instance,
                          unsigned compute_instance, record_t *records)
{
    size_t count = 0;
    for (size_t i = 0; device != NULL && i < device->process_count; i++) {
        const struct process *process = &device->processes[i];
        if ((process->kinds & kind) == 0)
            continue;
        record_t *record = &records[count++];
        memset(record, 0, sizeof *record); /* its padding reaches the caller, too */
        record->pid = process->pid;
        record->usedGpuMemory = process->memory;
        record->gpuInstanceId = process->gpu_instance;
        record->computeInstanceId = process->compute_instance;
        record->usedGpuCcProtectedMemory = process->protected_memory;
        if (record->gpuInstanceId == NVML_NOT_AVAILABLE)
            record->gpuInstanceId = gpu_instance;
        if (record->computeInstanceId == NVML_NOT_AVAILABLE)
            record->computeInstanceId = compute_instance;
    }
    return count;
}

static unsigned instance_id(const struct device *device, enum key key)
{
    uint64_t number;
    return read_number(device, key, &number) == NVML_SUCCESS ? (unsigned)number
                                                             : NVML_NOT_AVAILABLE;
}

/* The records of a call's device; of a GPU also those of its instances, as drivers tell root. */
static record_t *collect_records(const struct call *call, unsigned kind, size_t *count)
{
    const struct device *devices[1 + MAX_MIG] = {call->device};
    size_t room = call->device->process_count;

    for (int mig = 0; call->mig == NONE && mig < MAX_MIG; mig++) {
        devices[1 + mig] = scenario_device(call->scenario, call->gpu, mig);
        room += devices[1 + mig] == NULL ? 0 : devices[1 + mig]->process_count;
    }
    record_t *records = calloc(room + 1, sizeof *records);
    if (records == NULL)
        crash(false, "out of memory");
    *count = 0;
    for (int i = 0; i < 1 + MAX_MIG; i++) {
        const struct device *device = devices[i];
        if (device == NULL)
            continue;
        bool instance = i > 0 || call->mig != NONE;
        *count += add_records(
            device, kind, instance ? instance_id(device, K_GPU_INSTANCE_ID) : NVML_NOT_AVAILABLE,
            instance ? instance_id(device, K_COMPUTE_INSTANCE_ID) : NVML_NOT_AVAILABLE,
            records + *count);
    }
    return records;
}

/*
 * Writes records of `written` bytes each where the caller expects `expected` bytes each: with
 * drivers that changed the layout silently the two differ. Never past the caller's array.
 */
static void write_records(const record_t *records, size_t count, size_t written, size_t expected,
                          size_t capacity, char *out)
{
    size_t room = capacity * expected;
    for (size_t i = 0; i < count && i * written < room; i++) {
        size_t left = room - i * written;
        memcpy(out + i * written, &records[i], left < written ? left : written);
    }
}

/* The v1 and v2 records are the first 16 and 24 bytes of the widest. */
_Static_assert(offsetof(record_t, gpuInstanceId) == sizeof(nvmlProcessInfo_v1_t), "v1 is a prefix");
_Static_assert(offsetof(record_t, usedGpuCcProtectedMemory) == sizeof(nvmlProcessInfo_v2_t),
               "v2 is a prefix");

static nvmlReturn_t processes(enum function function, unsigned kind, int version,
                              nvmlDevice_t device, unsigned int *count, void *infos)
{
    struct call call;
    size_t found, expected, written;
    nvmlReturn_t result = call_begin_device(&call, function, device, infos == NULL ? SIZE : FILL);
    if (result == NVML_ERROR_INSUFFICIENT_SIZE && count != NULL)
        *count += 1; /* a rule's doing: the list has grown past what the caller brought */
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);

    expected = version == 1 ? sizeof(nvmlProcessInfo_v1_t) : sizeof(nvmlProcessInfo_v2_t);
    written = expected;
    if (version == 3 && call.scenario->process_layout == LAYOUT_535)
        written = sizeof(nvmlProcessDetail_v1_t);
    if (version == 3 && call.scenario->process_layout == LAYOUT_V1)
        written = sizeof(nvmlProcessInfo_v1_t);

    record_t *records = collect_records(&call, kind, &found);
    size_t capacity = *count;
    *count = (unsigned)found;
    if (found > 0 && (infos == NULL || capacity < found))
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    else if (found > 0)
        write_records(records, found, written, expected, capacity, infos);
    free(records);
    return call_end(&call, result);
}

#define PROCESSES(name, kind, version)                                                             \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, void *infos)                       \
    {                                                                                              \
        return processes(F_##name, kind, version, device, count, infos);                           \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, COMPUTE, 1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, 2)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, 3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, 1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, 2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, 3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, MPS, 1)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, 2)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, 3)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *list)
{
    static const unsigned kinds[] = {COMPUTE, GRAPHICS, MPS};
    struct call call;
    size_t found;
    nvmlReturn_t result =
        call_begin_device(&call, F_nvmlDeviceGetRunningProcessDetailList, device,
                          list == NULL || list->procArray == NULL ? SIZE : FILL);
    if (result != NVML_SUCCESS)
        return result;
    if (list == NULL || list->mode > 2)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (list->version != NVML_VERSION(nvmlProcessDetailList_t, 1))
        return call_end(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);

    record_t *records = collect_records(&call, kinds[list->mode], &found);
    size_t capacity = list->numProcArrayEntries;
    list->numProcArrayEntries = (unsigned)found;
    if (found > 0 && (list->procArray == NULL || capacity < found))
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    else if (found > 0)
        memcpy(list->procArray, records, found * sizeof *records);
    free(records);
    return call_end(&call, result);
}

/* ---- Utilization samples. ---- */

/* When a sample was taken; true where the caller has not seen it. Time 0 is never old. */
static bool sample_is_new(const struct sample *sample, uint64_t now, uint64_t last_seen,
                          uint64_t *time)
{
    *time = sample->absolute ? sample->time : now - sample->age;
    return *time == 0 || *time > last_seen;
}

static unsigned count_samples(const struct device *device, uint64_t now, uint64_t last_seen)
{
    unsigned count = 0;
    uint64_t time;
    for (size_t i = 0; i < device->sample_count; i++)
        count += sample_is_new(&device->samples[i], now, last_seen, &time);
    return count;
}

/* The answer before any sample is written: none, too little room, or go ahead. */
static nvmlReturn_t samples_fit(unsigned found, bool has_array, unsigned capacity)
{
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    return has_array && capacity >= found ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long last_seen)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceGetProcessUtilization, device,
                                            samples == NULL ? SIZE : FILL);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);

    uint64_t now = wall_clock_us(), time;
    unsigned found = count_samples(call.device, now, last_seen), filled = 0;
    result = samples_fit(found, samples != NULL, *count);
    *count = found;
    for (size_t i = 0; result == NVML_SUCCESS && i < call.device->sample_count; i++) {
        const struct sample *sample = &call.device->samples[i];
        if (sample_is_new(sample, now, last_seen, &time))
            samples[filled++] = (nvmlProcessUtilizationSample_t){.pid = sample->pid,
                                                                 .timeStamp = time,
                                                                 .smUtil = sample->sm,
                                                                 .memUtil = sample->memory,
                                                                 .encUtil = sample->encoder,
                                                                 .decUtil = sample->decoder};
    }
    return call_end(&call, result);
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info)
{
    struct call call;
    nvmlReturn_t result =
        call_begin_device(&call, F_nvmlDeviceGetProcessesUtilizationInfo, device,
                          info == NULL || info->procUtilArray == NULL ? SIZE : FILL);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (info->version != NVML_VERSION(nvmlProcessesUtilizationInfo_t, 1))
        return call_end(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);

    uint64_t now = wall_clock_us(), time;
    unsigned found = count_samples(call.device, now, info->lastSeenTimeStamp), filled = 0;
    result = samples_fit(found, info->procUtilArray != NULL, info->processSamplesCount);
    info->processSamplesCount = found;
    for (size_t i = 0; result == NVML_SUCCESS && i < call.device->sample_count; i++) {
        const struct sample *sample = &call.device->samples[i];
        if (sample_is_new(sample, now, info->lastSeenTimeStamp, &time))
            info->procUtilArray[filled++] =
                (nvmlProcessUtilizationInfo_t){.timeStamp = time,
                                               .pid = sample->pid,
                                               .smUtil = sample->sm,
                                               .memUtil = sample->memory,
                                               .encUtil = sample->encoder,
                                               .decUtil = sample->decoder,
                                               .jpgUtil = sample->jpg,
                                               .ofaUtil = sample->ofa};
    }
    return call_end(&call, result);
}
