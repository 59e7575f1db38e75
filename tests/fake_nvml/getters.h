/* How keys become answers: most functions are one of these macros. */
#ifndef GETTERS_H
#define GETTERS_H

#include "fake_nvml.h"

/* NVML_SUCCESS, the value's own error, or NVML_ERROR_NOT_SUPPORTED where it is absent. */
nvmlReturn_t value_state(const struct value *value);

/* Reads a key into an integer of `size` bytes; higher bits fall off, as in the real records. */
nvmlReturn_t read_into(const struct device *device, enum key key, void *out, size_t size);

/* The key for an argument: `first` + `index` where there are `count` of them, else K_NO_KEY. */
enum key key_at(enum key first, unsigned int index, unsigned int count);

/* One call that answers one key; K_NO_KEY: an invalid argument. */
nvmlReturn_t get(enum function function, nvmlDevice_t device, enum key key, void *out, size_t size);
nvmlReturn_t get_text(enum function function, nvmlDevice_t device, enum key key, char *buffer,
                      unsigned int length);

/* Two keys, two results. Both must be there, unless the first may stand in for the second. */
nvmlReturn_t get_pair(enum function function, nvmlDevice_t device, enum key first, enum key second,
                      bool second_defaults_to_first, unsigned int *a, unsigned int *b);

#define GET(name, type, key)                                                                       \
    nvmlReturn_t name(nvmlDevice_t device, type *out)                                              \
    {                                                                                              \
        return get(F_##name, device, K_##key, out, sizeof *out);                                   \
    }
#define GET_AT(name, type, first, count)                                                           \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int index, type *out)                          \
    {                                                                                              \
        return get(F_##name, device, key_at(K_##first, index, count), out, sizeof *out);           \
    }
#define GET_TEXT(name, key)                                                                        \
    nvmlReturn_t name(nvmlDevice_t device, char *buffer, unsigned int length)                      \
    {                                                                                              \
        return get_text(F_##name, device, K_##key, buffer, length);                                \
    }
#define GET_PAIR(name, first, second, second_defaults_to_first)                                    \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *a, unsigned int *b)                       \
    {                                                                                              \
        return get_pair(F_##name, device, K_##first, K_##second, second_defaults_to_first, a, b);  \
    }

#endif
