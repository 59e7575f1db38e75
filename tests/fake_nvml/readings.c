/* What a device does at the moment: use, memory, temperature, power, clocks, fans, field values. */
#include <string.h>

#include "getters.h"

enum { SAMPLING_PERIOD_US = 167000 };

/* ---- Use and memory. ---- */

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    return get_pair(F_nvmlDeviceGetUtilizationRates, device, K_UTILIZATION_GPU,
                    K_UTILIZATION_MEMORY, false, utilization == NULL ? NULL : &utilization->gpu,
                    utilization == NULL ? NULL : &utilization->memory);
}

static nvmlReturn_t engine_utilization(enum function function, nvmlDevice_t device, enum key key,
                                       unsigned int *utilization, unsigned int *period)
{
    nvmlReturn_t result = get(function, device, key, utilization, sizeof *utilization);
    if (result == NVML_SUCCESS && period != NULL)
        *period = SAMPLING_PERIOD_US;
    return result;
}

#define GET_ENGINE(name, key)                                                                      \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *utilization, unsigned int *period)        \
    {                                                                                              \
        return engine_utilization(F_##name, device, K_##key, utilization, period);                 \
    }

GET_ENGINE(nvmlDeviceGetEncoderUtilization, UTILIZATION_ENCODER)
GET_ENGINE(nvmlDeviceGetDecoderUtilization, UTILIZATION_DECODER)
GET_ENGINE(nvmlDeviceGetJpgUtilization, UTILIZATION_JPG)
GET_ENGINE(nvmlDeviceGetOfaUtilization, UTILIZATION_OFA)

struct memory {
    uint64_t total, used, reserved, free;
};

/* total and used must be there; free follows from the others unless it is given. */
static nvmlReturn_t read_memory(const struct device *device, struct memory *memory)
{
    nvmlReturn_t result = read_number(device, K_MEMORY_TOTAL, &memory->total);
    if (result == NVML_SUCCESS)
        result = read_number(device, K_MEMORY_USED, &memory->used);
    read_number(device, K_MEMORY_RESERVED, &memory->reserved);
    if (read_number(device, K_MEMORY_FREE, &memory->free) != NVML_SUCCESS)
        memory->free = memory->total - memory->used - memory->reserved;
    return result;
}

/* The first version counts the driver's reserve as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
    struct call call;
    struct memory memory;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceGetMemoryInfo, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = read_memory(call.device, &memory);
    if (result == NVML_SUCCESS)
        *info = (nvmlMemory_t){.total = memory.total,
                               .free = memory.free,
                               .used = memory.used + memory.reserved};
    return call_end(&call, result);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
    struct call call;
    struct memory memory;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceGetMemoryInfo_v2, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (info->version != NVML_VERSION(nvmlMemory_v2_t, 2))
        return call_end(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    result = read_memory(call.device, &memory);
    if (result == NVML_SUCCESS) {
        info->total = memory.total;
        info->reserved = memory.reserved;
        info->free = memory.free;
        info->used = memory.used;
    }
    return call_end(&call, result);
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *info)
{
    struct call call;
    uint64_t total, used, free;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceGetBAR1MemoryInfo, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = read_number(call.device, K_BAR1_TOTAL, &total);
    if (result == NVML_SUCCESS)
        result = read_number(call.device, K_BAR1_USED, &used);
    if (result == NVML_SUCCESS) {
        if (read_number(call.device, K_BAR1_FREE, &free) != NVML_SUCCESS)
            free = total - used;
        *info = (nvmlBAR1Memory_t){.bar1Total = total, .bar1Free = free, .bar1Used = used};
    }
    return call_end(&call, result);
}

/* ---- Temperature, power, clocks, fans. ---- */

GET_AT(nvmlDeviceGetTemperature, unsigned int, TEMPERATURE, 1)
GET_AT(nvmlDeviceGetTemperatureThreshold, unsigned int, TEMPERATURE_THRESHOLD_SHUTDOWN, 8)

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceGetTemperatureV, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (temperature == NULL || temperature->sensorType != 0)
        result = NVML_ERROR_INVALID_ARGUMENT;
    else if (temperature->version != NVML_VERSION(nvmlTemperature_t, 1))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    else
        result = read_into(call.device, K_TEMPERATURE, &temperature->temperature,
                           sizeof temperature->temperature);
    return call_end(&call, result);
}

GET(nvmlDeviceGetPowerUsage, unsigned int, POWER_USAGE)
GET(nvmlDeviceGetEnforcedPowerLimit, unsigned int, POWER_LIMIT_ENFORCED)
GET(nvmlDeviceGetPowerManagementMode, unsigned int, POWER_MANAGEMENT_MODE)
GET(nvmlDeviceGetPowerManagementLimit, unsigned int, POWER_LIMIT)
GET_PAIR(nvmlDeviceGetPowerManagementLimitConstraints, POWER_LIMIT_MIN, POWER_LIMIT_MAX, false)
GET(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, POWER_LIMIT_DEFAULT)
GET(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, TOTAL_ENERGY)
GET_AT(nvmlDeviceGetClockInfo, unsigned int, CLOCK_GRAPHICS, 4)
GET_AT(nvmlDeviceGetMaxClockInfo, unsigned int, MAX_CLOCK_GRAPHICS, 4)
GET_AT(nvmlDeviceGetApplicationsClock, unsigned int, APPLICATION_CLOCK_GRAPHICS, 4)
GET_AT(nvmlDeviceGetDefaultApplicationsClock, unsigned int, DEFAULT_CLOCK_GRAPHICS, 4)
GET_AT(nvmlDeviceGetMaxCustomerBoostClock, unsigned int, BOOST_CLOCK_GRAPHICS, 4)

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int type, unsigned int id,
                                unsigned int *clock)
{
    static const enum key first[] = {K_CLOCK_GRAPHICS, K_APPLICATION_CLOCK_GRAPHICS,
                                     K_DEFAULT_CLOCK_GRAPHICS, K_BOOST_CLOCK_GRAPHICS};
    enum key key = id < 4 ? key_at(first[id], type, 4) : K_NO_KEY;
    return get(F_nvmlDeviceGetClock, device, key, clock, sizeof *clock);
}

GET(nvmlDeviceGetFanSpeed, unsigned int, FAN_SPEED)
GET(nvmlDeviceGetNumFans, unsigned int, FANS)
GET_AT(nvmlDeviceGetFanSpeed_v2, unsigned int, FAN_SPEED_0, 4)
GET(nvmlDeviceGetPerformanceState, unsigned int, PERFORMANCE_STATE)
GET(nvmlDeviceGetPowerState, unsigned int, PERFORMANCE_STATE)
GET(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, CLOCKS_EVENT_REASONS)
GET(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, CLOCKS_EVENT_REASONS)
GET(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, CLOCKS_EVENT_REASONS_SUPPORTED)
GET(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long,
    CLOCKS_EVENT_REASONS_SUPPORTED)

/* ---- Field values: each with its own result. ---- */

static void read_field(const struct device *device, nvmlFieldValue_t *out)
{
    const struct value *value = NULL;
    enum key key;

    field_defaults(out->fieldId, &out->valueType, &key);
    for (size_t i = 0; i < device->field_count; i++)
        if (device->fields[i].id == out->fieldId)
            value = &device->fields[i].value;
    if (value == NULL && key != K_NO_KEY)
        value = &device->values[key];

    out->timestamp = (long long)wall_clock_us();
    out->latencyUsec = 0;
    out->nvmlReturn = value == NULL || out->scopeId != 0 ? NVML_ERROR_NOT_SUPPORTED
                                                         : value_state(value);
    memset(&out->value, 0, sizeof out->value);
    if (out->nvmlReturn == NVML_SUCCESS)
        out->value.ullVal = value->number; /* the narrower types are its low bytes */
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceGetFieldValues, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (values == NULL || count <= 0)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++)
        read_field(call.device, &values[i]);
    return call_end(&call, NVML_SUCCESS);
}
