/* A scenario file's text as data: sections `driver`, `gpu N`, `mig N` of `key = value` lines. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

/* ---- Places and words. ---- */

bool refuse(struct parser *parser, const char *format, ...)
{
    int length = snprintf(parser->message, parser->message_size, "%d: ", parser->line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(parser->message + length, parser->message_size - (size_t)length, format, arguments);
    va_end(arguments);
    return false;
}

void *append(void *array, size_t *count, size_t size)
{
    void *elements; /* copied, since the caller's pointer is of another type */
    memcpy(&elements, array, sizeof elements);
    char *grown = realloc(elements, (*count + 1) * size);
    if (grown == NULL)
        crash(false, "out of memory");
    memcpy(array, &grown, sizeof grown);
    char *added = grown + *count * size;
    memset(added, 0, size);
    *count += 1;
    return added;
}

char *strip(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return text;
}

char *next_word(char **rest)
{
    char *word = *rest;
    while (isspace((unsigned char)*word))
        word++;
    if (*word == '\0')
        return NULL;
    char *end = word;
    while (*end != '\0' && !isspace((unsigned char)*end))
        end++;
    *rest = *end == '\0' ? end : end + 1;
    *end = '\0';
    return word;
}

char *option_value(char *word)
{
    char *equals = strchr(word, '=');
    if (equals == NULL)
        return NULL;
    *equals = '\0';
    return equals + 1;
}

struct device *section_device(const struct parser *parser)
{
    return scenario_device(parser->scenario, parser->gpu, parser->mig);
}

/* ---- Sections and their keys. ---- */

/* A copy of what another GPU is (its keys and fields), not of what happens on it. */
static void inherit(struct device *device, const struct device *model)
{
    for (int key = 0; key < KEY_COUNT; key++) {
        device->values[key] = model->values[key];
        device->values[key].inherited = true;
        if (model->values[key].text != NULL)
            device->values[key].text = strdup(model->values[key].text);
    }
    for (size_t i = 0; i < model->field_count; i++)
        *(struct field *)append(&device->fields, &device->field_count, sizeof(struct field)) =
            model->fields[i];
}

/* A whole number in [0, limit) and nothing behind it; NONE else. */
static int parse_index(const char *text, int limit)
{
    char *end;
    long number = strtol(text, &end, 10);
    return isdigit((unsigned char)*text) && *end == '\0' && number < limit ? (int)number : NONE;
}

static struct device *new_device(void)
{
    struct device *device = calloc(1, sizeof *device);
    if (device == NULL)
        crash(false, "out of memory");
    return device;
}

static bool open_gpu(struct parser *parser, int index, const char *like, const char *model)
{
    struct scenario *scenario = parser->scenario;
    int model_index = like == NULL ? NONE : parse_index(model == NULL ? "" : model, index);

    if (index != scenario->gpu_count)
        return refuse(parser, "GPUs are numbered 0, 1, 2, ... up to %d: expected gpu %d",
                      MAX_GPUS - 1, scenario->gpu_count);
    if (like != NULL && (strcmp(like, "like") != 0 || model_index == NONE))
        return refuse(parser, "expected \"gpu %d\" or \"gpu %d like N\" with an earlier GPU N",
                      index, index);
    scenario->gpu_count++;
    parser->gpu = index;
    parser->mig = NONE;
    scenario->gpus[index] = new_device();
    if (model_index != NONE)
        inherit(scenario->gpus[index], scenario->gpus[model_index]);
    return true;
}

static bool open_mig(struct parser *parser, int index)
{
    if (parser->gpu == NONE)
        return refuse(parser, "a mig section stands below the \"gpu N\" that it belongs to");
    struct device **slot = &parser->scenario->mig[parser->gpu][index];
    if (*slot != NULL)
        return refuse(parser, "gpu %d has a mig %d already", parser->gpu, index);
    parser->mig = index;
    *slot = new_device();
    return true;
}

static bool open_section(struct parser *parser, char *text)
{
    char *rest = text;
    const char *kind = next_word(&rest), *number = next_word(&rest);
    const char *like = next_word(&rest), *model = next_word(&rest);
    bool is_gpu = strcmp(kind, "gpu") == 0, is_mig = strcmp(kind, "mig") == 0;

    if (strcmp(kind, "driver") == 0 && number == NULL) {
        parser->gpu = parser->mig = NONE;
        return true;
    }
    int index = number == NULL ? NONE : parse_index(number, is_gpu ? MAX_GPUS : MAX_MIG);
    if (is_gpu && index != NONE && next_word(&rest) == NULL)
        return open_gpu(parser, index, like, model);
    if (is_mig && index != NONE && like == NULL)
        return open_mig(parser, index);
    return refuse(parser,
                  "expected \"key = value\", \"driver\", \"gpu N\" (N below %d), "
                  "\"gpu N like M\" or \"mig N\" (N below %d)",
                  MAX_GPUS, MAX_MIG);
}

static bool parse_flag(struct parser *parser, const char *key, const char *text, bool *flag)
{
    uint64_t number;
    if (!parse_number(text, &number) || number > 1)
        return refuse(parser, "%s is yes or no, found \"%s\"", key, text);
    *flag = number == 1;
    return true;
}

static bool set_driver_text(struct parser *parser, char **slot, char *text)
{
    if (!unescape(text))
        return refuse(parser, "broken escape; known are \\xNN (not \\x00), \\n, \\t and \\\\");
    free(*slot);
    *slot = strdup(text);
    return true;
}

static bool set_driver_key(struct parser *parser, const char *key, char *text)
{
    struct scenario *scenario = parser->scenario;
    uint64_t number;

    if (strcmp(key, "driver_version") == 0)
        return set_driver_text(parser, &scenario->driver_version, text);
    if (strcmp(key, "nvml_version") == 0)
        return set_driver_text(parser, &scenario->nvml_version, text);
    if (strcmp(key, "cuda_version") == 0) {
        if (!parse_number(text, &number))
            return refuse(parser, "cuda_version is a number like 12040 (12.4), found \"%s\"", text);
        scenario->cuda_version = (int)number;
        return true;
    }
    if (strcmp(key, "driver_symbols") == 0) {
        if (strcmp(text, "all") == 0)
            number = 0;
        else if (!parse_number(text, &number) || number == 0)
            return refuse(parser, "driver_symbols is a series like 470, or all; found \"%s\"",
                          text);
        scenario->driver_symbols = (int)number;
        return true;
    }
    if (strcmp(key, "missing") == 0)
        return add_missing(parser, text);
    if (strcmp(key, "process_layout") == 0) {
        if (strcmp(text, "normal") == 0)
            scenario->process_layout = LAYOUT_NORMAL;
        else if (strcmp(text, "535") == 0)
            scenario->process_layout = LAYOUT_535;
        else if (strcmp(text, "v1") == 0)
            scenario->process_layout = LAYOUT_V1;
        else
            return refuse(parser, "process_layout is normal, 535 or v1, found \"%s\"", text);
        return true;
    }
    if (strcmp(key, "abort_on_shutdown_while_busy") == 0)
        return parse_flag(parser, key, text, &scenario->abort_on_shutdown_while_busy);
    if (strcmp(key, "crash_on_bad_handle") == 0)
        return parse_flag(parser, key, text, &scenario->crash_on_bad_handle);
    return refuse(parser, "unknown key \"%s\" in the driver section", key);
}

static bool set_field(struct parser *parser, const char *name, char *text)
{
    struct device *device = section_device(parser);
    int id = field_by_name(name);
    if (id == NONE)
        return refuse(parser, "unknown field \"%s\": give a name of fields.def or a number", name);
    struct field *field = append(&device->fields, &device->field_count, sizeof *field);
    field->id = (unsigned)id;
    if (!parse_value(text, false, &field->value))
        return refuse(parser, "field.%s: \"%s\" is no number, \"error CODE\" or \"absent\"", name,
                      text);
    return true;
}

static bool set_device_key(struct parser *parser, const char *name, char *text)
{
    struct device *device = section_device(parser);

    if (strcmp(name, "lost") == 0)
        return parse_flag(parser, name, text, &device->lost);
    if (strcmp(name, "process") == 0)
        return add_process(parser, text);
    if (strcmp(name, "sample") == 0)
        return add_sample(parser, text);
    if (strcmp(name, "event") == 0)
        return add_event(parser, text);
    if (strncmp(name, "field.", 6) == 0)
        return set_field(parser, name + 6, text);

    int key = key_by_name(name);
    if (key == NONE)
        return refuse(parser, "unknown key \"%s\" in a %s section", name,
                      parser->mig == NONE ? "gpu" : "mig");
    struct value *value = &device->values[key];
    if (value->present && !value->inherited)
        return refuse(parser, "%s is given twice", name);
    free(value->text);
    if (!parse_value(text, key_is_text(key), value))
        return refuse(parser, "%s: can't use \"%s\": expected %s, \"error CODE\" or \"absent\"",
                      name, text,
                      key_is_text(key) ? "a text (escapes: \\xNN, \\n, \\t, \\\\)"
                                       : "a number (12, 0x1f, 71.5W, 80GiB, on, off)");
    return true;
}

static bool parse_line(struct parser *parser, char *line)
{
    /* A comment begins the line or follows a blank. */
    for (char *c = line; *c != '\0'; c++) {
        if (*c == '#' && (c == line || isspace((unsigned char)c[-1]))) {
            *c = '\0';
            break;
        }
    }
    line = strip(line);
    if (*line == '\0')
        return true;

    char *equals = strchr(line, '=');
    if (equals == NULL)
        return open_section(parser, line);
    *equals = '\0';
    char *key = strip(line), *text = strip(equals + 1);
    if (*text == '\0')
        return refuse(parser, "%s has no value; leave the line out where it is unknown", key);

    static const char *const rules[] = {[FAIL] = "fail", [SLOW] = "slow", [HANG] = "hang",
                                        [CRASH] = "crash"};
    for (int kind = FAIL; kind <= CRASH; kind++)
        if (strcmp(key, rules[kind]) == 0)
            return add_rule(parser, kind, text);
    return parser->gpu == NONE ? set_driver_key(parser, key, text)
                               : set_device_key(parser, key, text);
}

struct scenario *scenario_parse(char *text, char *message, size_t size)
{
    struct parser parser = {.scenario = calloc(1, sizeof(struct scenario)),
                            .gpu = NONE,
                            .mig = NONE,
                            .message = message,
                            .message_size = size};
    char *line;

    if (parser.scenario == NULL)
        crash(false, "out of memory");
    while ((line = strsep(&text, "\n")) != NULL) {
        parser.line++;
        if (!parse_line(&parser, line)) {
            scenario_free(parser.scenario);
            return NULL;
        }
    }
    return parser.scenario;
}

static void device_free(struct device *device)
{
    if (device == NULL)
        return;
    for (int key = 0; key < KEY_COUNT; key++)
        free(device->values[key].text);
    for (size_t i = 0; i < device->process_count; i++)
        free(device->processes[i].name);
    free(device->fields);
    free(device->processes);
    free(device->samples);
    free(device->events);
    free(device);
}

void scenario_free(struct scenario *scenario)
{
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        device_free(scenario->gpus[gpu]);
        for (int mig = 0; mig < MAX_MIG; mig++)
            device_free(scenario->mig[gpu][mig]);
    }
    free(scenario->rules);
    free(scenario->driver_version);
    free(scenario->nvml_version);
    free(scenario);
}
