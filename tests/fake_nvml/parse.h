/* What the parts of the parser share: the place in the file, and words. */
#ifndef PARSE_H
#define PARSE_H

#include "fake_nvml.h"

struct parser {
    struct scenario *scenario;
    int gpu, mig; /* the section at hand; NONE, NONE: driver */
    int line;
    char *message;
    size_t message_size;
};

/* Notes where and what, and returns false. */
bool refuse(struct parser *parser, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Room for one more element, zeroed, at the end of an array; `array` points to its pointer. */
void *append(void *array, size_t *count, size_t size);

struct device *section_device(const struct parser *parser);

char *strip(char *text);
char *next_word(char **rest);   /* blank-separated, cut in place; NULL at the end */
char *option_value(char *word); /* splits "name=value" in place; NULL where there is no "=" */

/* parse_rules.c */
bool add_rule(struct parser *parser, enum rule_kind kind, char *text);
bool add_missing(struct parser *parser, char *text);

/* parse_lists.c */
bool add_process(struct parser *parser, char *text);
bool add_sample(struct parser *parser, char *text);
bool add_event(struct parser *parser, char *text);

#endif
