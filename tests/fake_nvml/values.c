/* The values of a scenario file: numbers with units and words, texts with escapes. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_nvml.h"

static const struct {
    const char *name;
    double factor;
} units[] = {
    {"", 1},      {"B", 1},        {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},      {"mW", 1},       {"W", 1000},        {"mJ", 1},
    {"J", 1000},  {"kJ", 1000000}, {"MHz", 1},      {"GHz", 1000},      {"C", 1},
    {"%", 1},     {"KB/s", 1},     {"MB/s", 1024},
};

static const struct {
    const char *name;
    uint64_t number;
} words[] = {
    {"off", 0},
    {"no", 0},
    {"on", 1},
    {"yes", 1},
    {"not_available", UINT64_MAX},
    /* clocks_event_reasons */
    {"gpu_idle", 0x1},
    {"applications_clocks_setting", 0x2},
    {"sw_power_cap", 0x4},
    {"hw_slowdown", 0x8},
    {"sync_boost", 0x10},
    {"sw_thermal_slowdown", 0x20},
    {"hw_thermal_slowdown", 0x40},
    {"hw_power_brake_slowdown", 0x80},
    {"display_clock_setting", 0x100},
    /* event types */
    {"sbe", 0x1},
    {"dbe", 0x2},
    {"pstate", 0x4},
    {"xid", 0x8},
    {"clock", 0x10},
};

static bool parse_term(const char *term, uint64_t *number)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i].name, term) == 0) {
            *number = words[i].number;
            return true;
        }
    }
    const char *digits = term + (*term == '-');
    if (*digits < '0' || *digits > '9')
        return false;

    char *end;
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
        *number = strtoull(term, &end, 16);
        return *end == '\0';
    }
    /* Whole numbers stay exact; only a fraction goes through floating point. */
    bool negative = *term == '-';
    unsigned long long whole = strtoull(digits, &end, 10);
    double fraction = 0;
    if (*end == '.') {
        char *after = end;
        fraction = strtod(after, &end);
        if (end == after || end == after + 1)
            return false;
    }
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(units[i].name, end) == 0) {
            if (fraction != 0 && units[i].factor == 1)
                return false; /* "power_usage = 71.5" was meant in another unit */
            uint64_t value = whole * (uint64_t)units[i].factor;
            value += (uint64_t)llround(fraction * units[i].factor);
            *number = negative ? -value : value;
            return true;
        }
    }
    return false;
}

/* A number, a word, or several of them joined by "+": "71.5W", "0x8", "sw_power_cap+sync_boost". */
bool parse_number(const char *text, uint64_t *number)
{
    char copy[512], *rest = copy, *term;

    if (strlen(text) >= sizeof copy || *text == '\0')
        return false;
    strcpy(copy, text);
    *number = 0;
    while ((term = strsep(&rest, "+")) != NULL) {
        uint64_t one;
        if (!parse_term(term, &one))
            return false;
        *number += one;
    }
    return true;
}

static int hex_digit(char c)
{
    if (!isxdigit((unsigned char)c))
        return NONE;
    return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* Replace \xNN, \\, \n and \t in place. False where an escape is broken or would be a NUL. */
bool unescape(char *text)
{
    char *to = text;
    for (char *from = text; *from != '\0'; from++) {
        if (*from != '\\') {
            *to++ = *from;
            continue;
        }
        from++;
        if (*from == '\\') {
            *to++ = '\\';
        } else if (*from == 'n') {
            *to++ = '\n';
        } else if (*from == 't') {
            *to++ = '\t';
        } else if (*from == 'x') {
            int high = hex_digit(from[1]);
            int low = high == NONE ? NONE : hex_digit(from[2]);
            if (low == NONE || (high == 0 && low == 0))
                return false;
            *to++ = (char)(high * 16 + low);
            from += 2;
        } else {
            return false;
        }
    }
    *to = '\0';
    return true;
}

/* `absent`, or `error CODE`, or a number, or a text. */
bool parse_value(char *text, bool is_text, struct value *value)
{
    *value = (struct value){.present = strcmp(text, "absent") != 0};
    if (!value->present)
        return true;
    if (strncmp(text, "error ", 6) == 0)
        return error_by_name(text + 6, &value->error) && value->error != NVML_SUCCESS;
    if (!is_text)
        return parse_number(text, &value->number);
    if (!unescape(text))
        return false;
    value->text = strdup(text);
    return value->text != NULL;
}
