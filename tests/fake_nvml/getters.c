/* How keys become answers. */
#include <string.h>

#include "getters.h"

nvmlReturn_t value_state(const struct value *value)
{
    if (!value->present)
        return NVML_ERROR_NOT_SUPPORTED;
    return value->error; /* 0 where the value is good */
}

nvmlReturn_t read_number(const struct device *device, enum key key, uint64_t *number)
{
    *number = device->values[key].number;
    return value_state(&device->values[key]);
}

nvmlReturn_t copy_text(const char *text, char *buffer, unsigned length)
{
    if (text == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    if (buffer == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

nvmlReturn_t read_into(const struct device *device, enum key key, void *out, size_t size)
{
    uint64_t number;
    nvmlReturn_t result = read_number(device, key, &number);
    if (result == NVML_SUCCESS)
        memcpy(out, &number, size); /* little-endian, as every machine with these drivers */
    return result;
}

nvmlReturn_t get(enum function function, nvmlDevice_t device, enum key key, void *out, size_t size)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, function, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (out == NULL || key == K_NO_KEY)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    return call_end(&call, read_into(call.device, key, out, size));
}

nvmlReturn_t get_text(enum function function, nvmlDevice_t device, enum key key, char *buffer,
                      unsigned int length)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, function, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    const struct value *value = &call.device->values[key];
    result = value_state(value);
    if (result == NVML_SUCCESS)
        result = copy_text(value->text, buffer, length);
    return call_end(&call, result);
}

enum key key_at(enum key first, unsigned int index, unsigned int count)
{
    return index < count ? first + index : K_NO_KEY;
}

nvmlReturn_t get_pair(enum function function, nvmlDevice_t device, enum key first, enum key second,
                      bool second_defaults_to_first, unsigned int *a, unsigned int *b)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, function, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (a == NULL || b == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (second_defaults_to_first && !call.device->values[second].present)
        second = first;
    result = read_into(call.device, first, a, sizeof *a);
    if (result == NVML_SUCCESS)
        result = read_into(call.device, second, b, sizeof *b);
    return call_end(&call, result);
}
