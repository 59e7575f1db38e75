/* Rules: the fail, slow, hang, crash and missing lines of a scenario file. */
#include <stdio.h>
#include <string.h>

#include "parse.h"

static bool rule_option(struct parser *parser, struct rule *rule, char *word)
{
    if (rule->kind == HANG && strcmp(word, "forever") == 0)
        return rule->forever = true;
    if (rule->kind == CRASH && strcmp(word, "segv") == 0)
        return rule->segv = true;

    const char *value = option_value(word);
    bool good = value != NULL;
    if (!good)
        ;
    else if (strcmp(word, "times") == 0)
        good = parse_number(value, &rule->times);
    else if (strcmp(word, "after") == 0)
        good = parse_number(value, &rule->after);
    else if (strcmp(word, "on") == 0 && strcmp(value, "size") == 0)
        rule->phase = SIZE;
    else if (strcmp(word, "on") == 0 && strcmp(value, "fill") == 0)
        rule->phase = FILL;
    else
        good = false;
    if (!good)
        return refuse(parser, "expected times=N, after=N or on=size|fill, found \"%s%s%s\"", word,
                      value == NULL ? "" : "=", value == NULL ? "" : value);
    return true;
}

/* The word that `fail` and `slow` need after the function: an error, milliseconds. */
static bool rule_argument(struct parser *parser, struct rule *rule, char *word)
{
    if (rule->kind == FAIL) {
        if (error_by_name(word, &rule->code) && rule->code != NVML_SUCCESS)
            return true;
        return refuse(parser, "expected an error code or name after the function, found \"%s\"",
                      word);
    }
    size_t length = strlen(word);
    if (length > 2 && strcmp(word + length - 2, "ms") == 0)
        word[length - 2] = '\0';
    if (parse_number(word, &rule->milliseconds))
        return true;
    return refuse(parser, "expected milliseconds after the function, found \"%s\"", word);
}

bool add_rule(struct parser *parser, enum rule_kind kind, char *text)
{
    struct scenario *scenario = parser->scenario;
    char *rest = text, *word;
    const char *pattern = next_word(&rest);
    bool any = false;

    if (pattern == NULL)
        return refuse(parser, "expected a function name");
    struct rule *rule = append(&scenario->rules, &scenario->rule_count, sizeof *rule);
    rule->kind = kind;
    rule->gpu = parser->gpu;
    rule->mig = parser->mig;
    rule->times = UINT64_MAX;
    for (int function = 0; function < FUNCTION_COUNT; function++) {
        rule->functions[function] = function_matches(function, pattern);
        any = any || rule->functions[function];
    }
    if (!any)
        return refuse(parser, "\"%s\" matches no function that the library has", pattern);
    if (kind == FAIL || kind == SLOW) {
        char nothing[] = "";
        word = next_word(&rest);
        if (!rule_argument(parser, rule, word == NULL ? nothing : word))
            return false;
    }
    while ((word = next_word(&rest)) != NULL)
        if (!rule_option(parser, rule, word))
            return false;
    return true;
}

bool add_missing(struct parser *parser, char *text)
{
    char *name;
    while ((name = strsep(&text, ",")) != NULL) {
        char rule[160];
        name = strip(name);
        if (*name == '\0')
            continue;
        snprintf(rule, sizeof rule, "%s FUNCTION_NOT_FOUND", name);
        if (!add_rule(parser, FAIL, rule))
            return false;
    }
    return true;
}
