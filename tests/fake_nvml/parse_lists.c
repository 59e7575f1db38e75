/* What may stand several times in a section: processes, utilization samples, events. */
#include <stdlib.h>
#include <string.h>

#include "parse.h"

static bool parse_kinds(char *text, unsigned *kinds)
{
    char *kind;
    *kinds = 0;
    while ((kind = strsep(&text, "+")) != NULL) {
        if (strcmp(kind, "compute") == 0)
            *kinds |= COMPUTE;
        else if (strcmp(kind, "graphics") == 0)
            *kinds |= GRAPHICS;
        else if (strcmp(kind, "mps") == 0)
            *kinds |= MPS;
        else
            return false;
    }
    return true;
}

/* Into an unsigned: the file may give any 64-bit number, the record holds 32 bits of it. */
static bool parse_unsigned(const char *text, unsigned *out)
{
    uint64_t number;
    if (!parse_number(text, &number))
        return false;
    *out = (unsigned)number;
    return true;
}

static bool sample_option(struct sample *sample, const char *name, const char *value)
{
    unsigned *field = strcmp(name, "sm") == 0    ? &sample->sm
                      : strcmp(name, "mem") == 0 ? &sample->memory
                      : strcmp(name, "enc") == 0 ? &sample->encoder
                      : strcmp(name, "dec") == 0 ? &sample->decoder
                      : strcmp(name, "jpg") == 0 ? &sample->jpg
                      : strcmp(name, "ofa") == 0 ? &sample->ofa
                                                 : NULL;
    return field != NULL && parse_unsigned(value, field);
}

bool add_process(struct parser *parser, char *text)
{
    struct device *device = section_device(parser);
    struct process process = {.kinds = COMPUTE,
                              .gpu_instance = NVML_NOT_AVAILABLE,
                              .compute_instance = NVML_NOT_AVAILABLE};
    struct sample sample = {0};
    bool sampled = false;
    char *rest = text, *word = next_word(&rest);

    if (word == NULL || !parse_unsigned(word, &process.pid))
        return refuse(parser, "expected a pid, found \"%s\"", word == NULL ? "" : word);
    while ((word = next_word(&rest)) != NULL) {
        char *value = option_value(word);
        bool good = value != NULL;
        if (!good)
            ;
        else if (strcmp(word, "kind") == 0)
            good = parse_kinds(value, &process.kinds);
        else if (strcmp(word, "memory") == 0)
            good = parse_number(value, &process.memory);
        else if (strcmp(word, "protected") == 0)
            good = parse_number(value, &process.protected_memory);
        else if (strcmp(word, "gi") == 0)
            good = parse_unsigned(value, &process.gpu_instance);
        else if (strcmp(word, "ci") == 0)
            good = parse_unsigned(value, &process.compute_instance);
        else if (strcmp(word, "name") == 0)
            good = process.name == NULL && unescape(value) &&
                   (process.name = strdup(value)) != NULL;
        else
            good = sampled = sample_option(&sample, word, value);
        if (!good) {
            free(process.name);
            return refuse(parser,
                          "a process takes kind=compute|graphics|mps, memory, protected, gi, ci, "
                          "name, sm, mem, enc, dec, jpg, ofa; can't use \"%s%s%s\"",
                          word, value == NULL ? "" : "=", value == NULL ? "" : value);
        }
    }
    *(struct process *)append(&device->processes, &device->process_count, sizeof process) =
        process;
    if (sampled) {
        sample.pid = process.pid;
        *(struct sample *)append(&device->samples, &device->sample_count, sizeof sample) = sample;
    }
    return true;
}

bool add_sample(struct parser *parser, char *text)
{
    struct device *device = section_device(parser);
    struct sample sample = {0};
    uint64_t repeat = 1;
    char *rest = text, *word = next_word(&rest);

    if (word == NULL || !parse_unsigned(word, &sample.pid))
        return refuse(parser, "expected a pid, found \"%s\"", word == NULL ? "" : word);
    while ((word = next_word(&rest)) != NULL) {
        char *value = option_value(word), *end;
        bool good = value != NULL;
        if (!good) {
            ;
        } else if (strcmp(word, "age") == 0) {
            double seconds = strtod(value, &end);
            good = end != value && (*end == '\0' || strcmp(end, "s") == 0) && seconds >= 0;
            sample.age = good ? (uint64_t)(seconds * 1e6) : 0;
        } else if (strcmp(word, "time") == 0) {
            sample.absolute = true;
            good = parse_number(value, &sample.time);
        } else if (strcmp(word, "repeat") == 0) {
            good = parse_number(value, &repeat) && repeat >= 1 && repeat <= 10000;
        } else {
            good = sample_option(&sample, word, value);
        }
        if (!good)
            return refuse(parser,
                          "a sample takes sm, mem, enc, dec, jpg, ofa, age=SECONDS, "
                          "time=MICROSECONDS, repeat=N; can't use \"%s%s%s\"",
                          word, value == NULL ? "" : "=", value == NULL ? "" : value);
    }
    while (repeat-- > 0)
        *(struct sample *)append(&device->samples, &device->sample_count, sizeof sample) = sample;
    return true;
}

bool add_event(struct parser *parser, char *text)
{
    struct device *device = section_device(parser);
    struct event event = {.id = device->event_count};
    char *rest = text, *word = next_word(&rest);

    if (word == NULL || !parse_number(word, &event.type))
        return refuse(parser, "expected an event type (xid, sbe, dbe, ... or a number)");
    while ((word = next_word(&rest)) != NULL) {
        char *value = option_value(word);
        bool good = value == NULL ? parse_number(word, &event.data)
                                  : strcmp(word, "id") == 0 && parse_number(value, &event.id);
        if (!good)
            return refuse(parser, "an event is TYPE [DATA] [id=N]; can't use \"%s\"", word);
    }
    *(struct event *)append(&device->events, &device->event_count, sizeof event) = event;
    return true;
}
