/* The scenario in force: read again when the file changes, kept when the new one is broken. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fake_nvml.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *path; /* what FAKE_NVML_SCENARIO said at the first call */
static struct scenario *current;
static unsigned long generation;
static bool looked;      /* at the file, at least once */
static struct stat seen; /* the file as it was then, good or broken; zeroed: not there */

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t size = 0;

    if (file == NULL)
        return NULL;
    if (getdelim(&text, &size, '\0', file) < 0) { /* empty: a driver without GPUs */
        free(text);
        text = ferror(file) ? NULL : strdup("");
    }
    fclose(file);
    return text;
}

static void drop(struct scenario *scenario)
{
    if (scenario != NULL && --scenario->references == 0)
        scenario_free(scenario);
}

static void complain(const char *what)
{
    fprintf(stderr, "fake NVML: %s:%s; %s\n", path, what,
            current == NULL ? "no scenario is in force" : "the last good scenario stays in force");
}

static void load_if_changed(void)
{
    struct stat now;
    char message[512];

    if (stat(path, &now) != 0)
        memset(&now, 0, sizeof now);
    if (looked && same_file(&now, &seen))
        return;
    looked = true;
    seen = now;
    char *text = read_file(path);
    if (text == NULL) {
        snprintf(message, sizeof message, " can't be read: %s", strerror(errno));
        complain(message);
        return;
    }
    struct scenario *loaded = scenario_parse(text, message, sizeof message);
    free(text);
    if (loaded == NULL) {
        complain(message);
        return;
    }
    loaded->references = 1;
    loaded->generation = ++generation;
    drop(current);
    current = loaded;
}

struct scenario *scenario_acquire(void)
{
    pthread_mutex_lock(&lock);
    if (path == NULL && getenv("FAKE_NVML_SCENARIO") != NULL)
        path = strdup(getenv("FAKE_NVML_SCENARIO"));
    if (path != NULL)
        load_if_changed();
    struct scenario *scenario = current;
    if (scenario != NULL)
        scenario->references++;
    pthread_mutex_unlock(&lock);
    return scenario;
}

void scenario_release(struct scenario *scenario)
{
    pthread_mutex_lock(&lock);
    drop(scenario);
    pthread_mutex_unlock(&lock);
}

struct device *scenario_device(const struct scenario *scenario, int gpu, int mig)
{
    if (gpu < 0 || gpu >= MAX_GPUS || mig >= MAX_MIG)
        return NULL;
    return mig == NONE ? scenario->gpus[gpu] : scenario->mig[gpu][mig];
}
