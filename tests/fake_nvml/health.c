/* How a device is set and how well it is: modes, memory errors. */
#include "getters.h"

/* ---- Modes. ---- */

GET(nvmlDeviceGetComputeMode, unsigned int, COMPUTE_MODE)
GET(nvmlDeviceGetPersistenceMode, unsigned int, PERSISTENCE_MODE)
GET(nvmlDeviceGetDisplayMode, unsigned int, DISPLAY_MODE)
GET(nvmlDeviceGetDisplayActive, unsigned int, DISPLAY_ACTIVE)
GET(nvmlDeviceGetVirtualizationMode, unsigned int, VIRTUALIZATION_MODE)
GET(nvmlDeviceGetAccountingMode, unsigned int, ACCOUNTING_MODE)
GET(nvmlDeviceGetSupportedEventTypes, unsigned long long, EVENT_TYPES_SUPPORTED)
GET_PAIR(nvmlDeviceGetDriverModel, DRIVER_MODEL, DRIVER_MODEL_PENDING, true)
GET_PAIR(nvmlDeviceGetDriverModel_v2, DRIVER_MODEL, DRIVER_MODEL_PENDING, true)

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlGpmQueryDeviceSupport, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (support == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    else if (support->version != 1)
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    else
        result = read_into(call.device, K_GPM_SUPPORTED, &support->isSupportedDevice,
                           sizeof support->isSupportedDevice);
    return call_end(&call, result);
}

/* No scenario has a fabric; the rules still reach these two. */
static nvmlReturn_t not_supported(enum function function, nvmlDevice_t device)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, function, device, ONCE);
    return result == NVML_SUCCESS ? call_end(&call, NVML_ERROR_NOT_SUPPORTED) : result;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, void *info)
{
    (void)info;
    return not_supported(F_nvmlDeviceGetGpuFabricInfo, device);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, void *info)
{
    (void)info;
    return not_supported(F_nvmlDeviceGetGpuFabricInfoV, device);
}

/* ---- Memory errors. ---- */

GET_PAIR(nvmlDeviceGetEccMode, ECC_MODE, ECC_MODE_PENDING, true)

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int error,
                                         unsigned int counter, unsigned long long *count)
{
    enum key key = K_NO_KEY;
    if (error < 2 && counter < 2)
        key = K_ECC_VOLATILE_CORRECTED + counter * 2 + error;
    return get(F_nvmlDeviceGetTotalEccErrors, device, key, count, sizeof *count);
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int error,
                                             unsigned int counter, unsigned int location,
                                             unsigned long long *count)
{
    enum key key = K_NO_KEY;
    if (error < 2 && counter < 2)
        key = key_at(K_ECC_VOLATILE_CORRECTED_L1 + (counter * 2 + error) * 8, location, 8);
    return get(F_nvmlDeviceGetMemoryErrorCounter, device, key, count, sizeof *count);
}

static nvmlReturn_t retired_pages(enum function function, nvmlDevice_t device, unsigned int cause,
                                  unsigned int *count, unsigned long long *addresses,
                                  unsigned long long *times)
{
    struct call call;
    uint64_t pages;
    nvmlReturn_t result =
        call_begin_device(&call, function, device, addresses == NULL ? SIZE : FILL);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL || cause > 1)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = read_number(call.device, K_RETIRED_PAGES_CORRECTED + cause, &pages);
    if (result != NVML_SUCCESS)
        return call_end(&call, result);
    bool fits = pages == 0 || (addresses != NULL && *count >= pages);
    *count = (unsigned)pages;
    if (!fits)
        return call_end(&call, NVML_ERROR_INSUFFICIENT_SIZE);
    for (uint64_t i = 0; i < pages; i++) {
        addresses[i] = 0x1000 * (i + 1);
        if (times != NULL)
            times[i] = 1700000000000000 + i;
    }
    return call_end(&call, NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause,
                                       unsigned int *count, unsigned long long *addresses)
{
    return retired_pages(F_nvmlDeviceGetRetiredPages, device, cause, count, addresses, NULL);
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned int cause,
                                          unsigned int *count, unsigned long long *addresses,
                                          unsigned long long *times)
{
    return retired_pages(F_nvmlDeviceGetRetiredPages_v2, device, cause, count, addresses, times);
}

GET(nvmlDeviceGetRetiredPagesPendingStatus, unsigned int, RETIRED_PAGES_PENDING)

/* Several keys in a row into several unsigned ints; the first that fails is the answer. */
static nvmlReturn_t get_row(enum function function, nvmlDevice_t device, enum key first, int count,
                            unsigned int *const outs[])
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, function, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    for (int i = 0; i < count && result == NVML_SUCCESS; i++)
        result = outs[i] == NULL ? NVML_ERROR_INVALID_ARGUMENT
                                 : read_into(call.device, first + i, outs[i], sizeof *outs[i]);
    return call_end(&call, result);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
                                       unsigned int *uncorrected, unsigned int *pending,
                                       unsigned int *failure)
{
    unsigned int *outs[] = {corrected, uncorrected, pending, failure};
    return get_row(F_nvmlDeviceGetRemappedRows, device, K_REMAPPED_ROWS_CORRECTED, 4, outs);
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                               nvmlRowRemapperHistogramValues_t *values)
{
    unsigned int *first = (unsigned int *)values; /* five of them in the keys' order */
    unsigned int *outs[5];
    for (int i = 0; i < 5; i++)
        outs[i] = first == NULL ? NULL : first + i;
    return get_row(F_nvmlDeviceGetRowRemapperHistogram, device, K_ROW_REMAPPER_MAX, 5, outs);
}
