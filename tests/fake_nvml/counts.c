/*
 * How often each function was called for each GPU, in the file that FAKE_NVML_CALLS names.
 *
 * The file is mapped and shared, so counting is one atomic addition, all processes with the same
 * file add up, and a reader sees the counts of a process that hangs or crashed.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_nvml.h"

enum { NAME_SIZE = 64, SLOTS = MAX_GPUS + 1 }; /* slot 0: calls about no GPU; N + 1: gpu N */

struct counts {
    char magic[8];
    uint32_t functions, slots;
    char names[FUNCTION_COUNT][NAME_SIZE];
    _Alignas(8) atomic_ullong calls[FUNCTION_COUNT][SLOTS];
};

static struct counts *counts;

static void open_counts(void)
{
    const char *path = getenv("FAKE_NVML_CALLS");
    if (path == NULL || *path == '\0')
        return;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct stat status;
    void *map = MAP_FAILED;

    if (file >= 0 && fstat(file, &status) == 0 &&
        (status.st_size == 0 || status.st_size == sizeof(struct counts)) &&
        ftruncate(file, sizeof(struct counts)) == 0)
        map = mmap(NULL, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (map == MAP_FAILED) {
        fprintf(stderr, "fake NVML: calls can't be counted in %s (not writable, or another file)\n",
                path);
        return;
    }
    counts = map;
    /* Several processes may do this at once: they write the same bytes. */
    for (int function = 0; function < FUNCTION_COUNT; function++)
        strncpy(counts->names[function], function_symbols[function], NAME_SIZE - 1);
    counts->functions = FUNCTION_COUNT;
    counts->slots = SLOTS;
    memcpy(counts->magic, "FNVMLC1", 8);
}

void count_call(enum function function, int gpu)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_counts);
    if (counts != NULL)
        atomic_fetch_add_explicit(&counts->calls[function][gpu + 1], 1, memory_order_relaxed);
}
