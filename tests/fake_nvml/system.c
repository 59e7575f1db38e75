/* Init and shutdown, what belongs to the driver as a whole, and the way to the handles. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_nvml.h"

static atomic_int initialized; /* nvmlInit minus nvmlShutdown */

bool library_is_initialized(void)
{
    return atomic_load(&initialized) > 0;
}

static nvmlReturn_t init(enum function function)
{
    struct call call;
    nvmlReturn_t result = call_begin(&call, function);
    if (result != NVML_SUCCESS)
        return result;
    atomic_fetch_add(&initialized, 1);
    return call_end(&call, NVML_SUCCESS);
}

nvmlReturn_t nvmlInit(void)
{
    return init(F_nvmlInit);
}

nvmlReturn_t nvmlInit_v2(void)
{
    return init(F_nvmlInit_v2);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return init(F_nvmlInitWithFlags);
}

nvmlReturn_t nvmlShutdown(void)
{
    struct call call;
    nvmlReturn_t result = call_begin(&call, F_nvmlShutdown);
    if (result != NVML_SUCCESS)
        return result;
    if (call.scenario->abort_on_shutdown_while_busy && calls_in_flight())
        crash(false, "nvmlShutdown was called while another call was running");
    atomic_fetch_sub(&initialized, 1);
    return call_end(&call, NVML_SUCCESS);
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    count_call(F_nvmlErrorString, NONE);
    return error_words(result);
}

/* ---- System queries. ---- */

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    struct call call;
    nvmlReturn_t result = call_begin(&call, F_nvmlSystemGetDriverVersion);
    if (result != NVML_SUCCESS)
        return result;
    return call_end(&call, copy_text(call.scenario->driver_version, version, length));
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    struct call call;
    nvmlReturn_t result = call_begin(&call, F_nvmlSystemGetNVMLVersion);
    if (result != NVML_SUCCESS)
        return result;
    return call_end(&call, copy_text(call.scenario->nvml_version, version, length));
}

static nvmlReturn_t cuda_version(enum function function, int *version)
{
    struct call call;
    nvmlReturn_t result = call_begin(&call, function);
    if (result != NVML_SUCCESS)
        return result;
    if (version == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (call.scenario->cuda_version == 0)
        return call_end(&call, NVML_ERROR_NOT_SUPPORTED);
    *version = call.scenario->cuda_version;
    return call_end(&call, NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return cuda_version(F_nvmlSystemGetCudaDriverVersion, version);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuda_version(F_nvmlSystemGetCudaDriverVersion_v2, version);
}

/* The name that a `process` line gives, else the first word of the real command line. */
static bool process_name(const struct scenario *scenario, unsigned pid, char *name, size_t size)
{
    for (int gpu = 0; gpu < scenario->gpu_count; gpu++) {
        for (int mig = NONE; mig < MAX_MIG; mig++) {
            const struct device *device = scenario_device(scenario, gpu, mig);
            for (size_t i = 0; device != NULL && i < device->process_count; i++) {
                if (device->processes[i].pid == pid && device->processes[i].name != NULL) {
                    snprintf(name, size, "%s", device->processes[i].name);
                    return true;
                }
            }
        }
    }
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t read = fread(name, 1, size - 1, file);
    fclose(file);
    name[read] = '\0';
    return read > 0;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    struct call call;
    char text[1024];
    nvmlReturn_t result = call_begin(&call, F_nvmlSystemGetProcessName);
    if (result != NVML_SUCCESS)
        return result;
    if (!process_name(call.scenario, pid, text, sizeof text))
        return call_end(&call, NVML_ERROR_NOT_FOUND);
    return call_end(&call, copy_text(text, name, length));
}

/* ---- Count and handles. ---- */

static nvmlReturn_t device_count(enum function function, unsigned int *count)
{
    struct call call;
    nvmlReturn_t result = call_begin(&call, function);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    *count = (unsigned)call.scenario->gpu_count;
    return call_end(&call, NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return device_count(F_nvmlDeviceGetCount, count);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    return device_count(F_nvmlDeviceGetCount_v2, count);
}

/* The answer to a lookup that found (gpu, mig); gpu is NONE where it found nothing. */
static nvmlReturn_t lookup(enum function function, int gpu, int mig, nvmlDevice_t *device)
{
    struct call call;
    nvmlReturn_t result = gpu == NONE ? call_begin(&call, function)
                                      : call_begin_lookup(&call, function, gpu, mig);
    if (result != NVML_SUCCESS)
        return result;
    if (device == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (gpu == NONE)
        return call_end(&call, NVML_ERROR_NOT_FOUND);
    *device = device_handle(gpu, mig);
    return call_end(&call, NVML_SUCCESS);
}

static nvmlReturn_t by_index(enum function function, unsigned int index, nvmlDevice_t *device)
{
    if (index < MAX_GPUS)
        return lookup(function, (int)index, NONE, device);
    nvmlReturn_t result = lookup(function, NONE, NONE, device);
    return result == NVML_ERROR_NOT_FOUND ? NVML_ERROR_INVALID_ARGUMENT : result;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return by_index(F_nvmlDeviceGetHandleByIndex, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    return by_index(F_nvmlDeviceGetHandleByIndex_v2, index, device);
}

/* "0000:17:00.0" and "00000000:17:00.0" are the same place. */
static bool same_text(enum key key, const char *a, const char *b)
{
    if (key != K_PCI_BUS_ID)
        return strcmp(a, b) == 0;
    unsigned x[4] = {0}, y[4] = {0};
    return sscanf(a, "%x:%x:%x.%x", &x[0], &x[1], &x[2], &x[3]) >= 3 &&
           sscanf(b, "%x:%x:%x.%x", &y[0], &y[1], &y[2], &y[3]) >= 3 &&
           memcmp(x, y, sizeof x) == 0;
}

static nvmlReturn_t by_text(enum function function, enum key key, const char *text,
                            nvmlDevice_t *device)
{
    struct scenario *scenario = text == NULL ? NULL : scenario_acquire();
    int found_gpu = NONE, found_mig = NONE;

    for (int gpu = 0; scenario != NULL && gpu < scenario->gpu_count; gpu++) {
        for (int mig = NONE; mig < MAX_MIG; mig++) {
            const struct device *candidate = scenario_device(scenario, gpu, mig);
            const char *own = candidate == NULL ? NULL : candidate->values[key].text;
            if (own != NULL && found_gpu == NONE && same_text(key, own, text)) {
                found_gpu = gpu;
                found_mig = mig;
            }
        }
    }
    if (scenario != NULL)
        scenario_release(scenario);
    return lookup(function, found_gpu, found_mig, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    return by_text(F_nvmlDeviceGetHandleBySerial, K_SERIAL, serial, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    return by_text(F_nvmlDeviceGetHandleByUUID, K_UUID, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return by_text(F_nvmlDeviceGetHandleByPciBusId, K_PCI_BUS_ID, bus_id, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    return by_text(F_nvmlDeviceGetHandleByPciBusId_v2, K_PCI_BUS_ID, bus_id, device);
}

/* ---- MIG: from the GPU to its instances and back. ---- */

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *mig_device)
{
    int gpu, mig;
    if (handle_device(device, &gpu, &mig) && mig == NONE && index < MAX_MIG)
        return lookup(F_nvmlDeviceGetMigDeviceHandleByIndex, gpu, (int)index, mig_device);

    struct call call; /* a bad handle, or an index that no GPU has */
    nvmlReturn_t result =
        call_begin_device(&call, F_nvmlDeviceGetMigDeviceHandleByIndex, device, ONCE);
    return result == NVML_SUCCESS ? call_end(&call, NVML_ERROR_INVALID_ARGUMENT) : result;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device,
                                                          nvmlDevice_t *device)
{
    struct call call;
    nvmlReturn_t result =
        call_begin_device(&call, F_nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig_device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (device == NULL || call.mig == NONE)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    *device = device_handle(call.gpu, NONE);
    return call_end(&call, NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceIsMigDeviceHandle, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (is_mig == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    *is_mig = call.mig != NONE;
    return call_end(&call, NVML_SUCCESS);
}
