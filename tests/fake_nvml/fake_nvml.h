/* What the parts of the fake NVML share: the scenario as data, and the frame of every call. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvml_abi.h"

enum { MAX_GPUS = 64, MAX_MIG = 16 };
enum { NONE = -1 };

enum function {
#define FUNCTION(symbol, since) F_##symbol,
#include "functions.def"
#undef FUNCTION
    FUNCTION_COUNT
};

enum key {
#define KEY(id, name, type) K_##id,
#include "keys.def"
#undef KEY
    KEY_COUNT,
    K_NO_KEY
};

/* names.c: names of functions, keys, errors and fields. */
extern const char *const function_symbols[FUNCTION_COUNT];
extern const int function_since[FUNCTION_COUNT];
bool function_matches(enum function function, const char *pattern);
int key_by_name(const char *name); /* NONE where there is no such key */
bool key_is_text(enum key key);
const char *error_words(nvmlReturn_t code);
bool error_by_name(const char *name, nvmlReturn_t *code);
int field_by_name(const char *name); /* NONE where there is no such field */
void field_defaults(unsigned id, unsigned *type, enum key *key);

/* ---- The scenario as data. ---- */

struct value {
    bool present;
    bool inherited; /* from the GPU that this one is like: the file may give it once more */
    nvmlReturn_t error;
    uint64_t number;
    char *text;
};

struct field {
    unsigned id;
    struct value value;
};

enum process_kind { COMPUTE = 1, GRAPHICS = 2, MPS = 4 };

struct process {
    unsigned pid, kinds;
    uint64_t memory, protected_memory;
    unsigned gpu_instance, compute_instance;
    char *name;
};

struct sample {
    unsigned pid, sm, memory, encoder, decoder, jpg, ofa;
    bool absolute;  /* `time` was given; else `age` counts from now */
    uint64_t time, age; /* microseconds */
};

struct event {
    uint64_t id, type, data;
};

struct device {
    bool lost;
    struct value values[KEY_COUNT];
    struct field *fields;
    struct process *processes;
    struct sample *samples;
    struct event *events;
    size_t field_count, process_count, sample_count, event_count;
};

enum rule_kind { FAIL, SLOW, HANG, CRASH };
enum phase { ONCE, SIZE, FILL }; /* a list is called twice: for its size, then to be filled */

struct rule {
    enum rule_kind kind;
    int gpu, mig; /* NONE, NONE: every call; N, NONE: the GPU's own; N, M: the instance's */
    bool functions[FUNCTION_COUNT];
    enum phase phase; /* ONCE: in any */
    uint64_t after, times;
    nvmlReturn_t code;
    uint64_t milliseconds;
    bool forever, segv;
    atomic_ullong seen;
};

enum process_layout { LAYOUT_NORMAL, LAYOUT_535, LAYOUT_V1 };

struct scenario {
    int references;
    unsigned long generation; /* counts the files that were read */
    char *driver_version, *nvml_version;
    int cuda_version;
    int driver_symbols; /* 0: all */
    bool abort_on_shutdown_while_busy, crash_on_bad_handle;
    enum process_layout process_layout;
    int gpu_count;
    struct device *gpus[MAX_GPUS];
    struct device *mig[MAX_GPUS][MAX_MIG];
    struct rule *rules;
    size_t rule_count;
};

/* parse.c: NULL when the text is broken; `message` then says where and what. */
struct scenario *scenario_parse(char *text, char *message, size_t size);
void scenario_free(struct scenario *scenario);

/* values.c: the words of a scenario file. */
bool parse_number(const char *text, uint64_t *number);
bool parse_value(char *text, bool is_text, struct value *value);
bool unescape(char *text);

/* scenario.c: the one in force, re-read when the file changes. */
struct scenario *scenario_acquire(void); /* NULL: none in force */
void scenario_release(struct scenario *scenario);
struct device *scenario_device(const struct scenario *scenario, int gpu, int mig);

/* counts.c */
void count_call(enum function function, int gpu);

/* ---- The frame of every call (call.c). ---- */

struct call {
    enum function function;
    enum phase phase;
    int gpu, mig; /* NONE where the call is about no GPU, or not about an instance */
    bool lookup;  /* asks for the handle of (gpu, mig) instead of using it */
    struct scenario *scenario;
    struct device *device; /* NULL where the call is about no GPU */
};

/*
 * Count the call, do what the scenario says (wait, crash, fail) and resolve the device.
 * Anything but NVML_SUCCESS is the call's answer and leaves nothing to clean up;
 * after NVML_SUCCESS the answer goes through call_end.
 */
nvmlReturn_t call_begin(struct call *call, enum function function);
nvmlReturn_t call_begin_lookup(struct call *call, enum function function, int gpu, int mig);
nvmlReturn_t call_begin_device(struct call *call, enum function function, nvmlDevice_t device,
                               enum phase phase);
nvmlReturn_t call_end(struct call *call, nvmlReturn_t result);
bool calls_in_flight(void); /* other than the one that asks */

nvmlDevice_t device_handle(int gpu, int mig);
bool handle_device(nvmlDevice_t handle, int *gpu, int *mig);

_Noreturn void crash(bool segv, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t monotonic_ms(void);
void sleep_ms(uint64_t milliseconds);
uint64_t wall_clock_us(void);

/* system.c */
bool library_is_initialized(void);

/* getters.c: NVML_SUCCESS, the key's own error, or NVML_ERROR_NOT_SUPPORTED where it is absent. */
nvmlReturn_t read_number(const struct device *device, enum key key, uint64_t *number);
nvmlReturn_t copy_text(const char *text, char *buffer, unsigned length);

#endif
