/* The names that a scenario file uses: functions, keys, errors, fields. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fake_nvml.h"

const char *const function_symbols[FUNCTION_COUNT] = {
#define FUNCTION(symbol, since) #symbol,
#include "functions.def"
#undef FUNCTION
};

const int function_since[FUNCTION_COUNT] = {
#define FUNCTION(symbol, since) since,
#include "functions.def"
#undef FUNCTION
};

/* Length of a symbol without its version: nvmlX, nvmlX_v2 and nvmlXV are versions of nvmlX. */
static size_t family_length(const char *symbol)
{
    size_t length = strlen(symbol);
    if (strcmp(symbol, "nvmlInitWithFlags") == 0)
        return strlen("nvmlInit");
    if (length > 3 && symbol[length - 3] == '_' && symbol[length - 2] == 'v')
        return length - 3;
    if (symbol[length - 1] == 'V')
        return length - 1;
    return length;
}

bool function_matches(enum function function, const char *pattern)
{
    const char *symbol = function_symbols[function];
    size_t family = family_length(symbol);
    char name[128];

    memcpy(name, symbol, family);
    name[family] = '\0';
    if (fnmatch(pattern, name, 0) == 0)
        return true;
    /* Exactly this version; the first one, which carries no number, is called _v1. */
    strcpy(name, symbol);
    if (symbol[family] == '\0')
        strcat(name, "_v1");
    return fnmatch(pattern, name, 0) == 0;
}

static const struct {
    const char *name;
    bool is_text;
} keys[KEY_COUNT] = {
#define NUMBER false
#define TEXT true
#define KEY(id, name, type) {name, type},
#include "keys.def"
#undef KEY
#undef NUMBER
#undef TEXT
};

int key_by_name(const char *name)
{
    for (int key = 0; key < KEY_COUNT; key++)
        if (strcmp(keys[key].name, name) == 0)
            return key;
    return NONE;
}

bool key_is_text(enum key key)
{
    return keys[key].is_text;
}

static const struct {
    nvmlReturn_t code;
    const char *name, *words;
} errors[] = {
#define ERROR(code, name, words) {code, #name, words},
#include "errors.def"
#undef ERROR
};
enum { ERROR_COUNT = sizeof errors / sizeof *errors };

const char *error_words(nvmlReturn_t code)
{
    for (int i = 0; i < ERROR_COUNT; i++)
        if (errors[i].code == code)
            return errors[i].words;
    return "Unknown Error";
}

bool error_by_name(const char *name, nvmlReturn_t *code)
{
    char *end;
    long number = strtol(name, &end, 10);
    if (end != name && *end == '\0' && number >= 0 && number <= 9999) {
        *code = (nvmlReturn_t)number; /* any number: drivers know codes that we do not */
        return true;
    }
    if (strncmp(name, "NVML_ERROR_", 11) == 0)
        name += 11;
    for (int i = 0; i < ERROR_COUNT; i++) {
        if (strcasecmp(errors[i].name, name) == 0) {
            *code = errors[i].code;
            return true;
        }
    }
    return false;
}

static const struct {
    unsigned id;
    const char *name;
    unsigned type;
    enum key key;
} fields[] = {
#define FIELD(id, name, type, key) {id, #name, NVML_VALUE_TYPE_##type, K_##key},
#include "fields.def"
#undef FIELD
};
enum { FIELD_COUNT = sizeof fields / sizeof *fields };

int field_by_name(const char *name)
{
    char *end;
    long number = strtol(name, &end, 10);
    if (end != name && *end == '\0' && number >= 0 && number < 100000)
        return (int)number;
    for (int i = 0; i < FIELD_COUNT; i++)
        if (strcasecmp(fields[i].name, name) == 0)
            return (int)fields[i].id;
    return NONE;
}

void field_defaults(unsigned id, unsigned *type, enum key *key)
{
    *type = NVML_VALUE_TYPE_ULONGLONG;
    *key = K_NO_KEY;
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (fields[i].id == id) {
            *type = fields[i].type;
            *key = fields[i].key;
        }
    }
}
