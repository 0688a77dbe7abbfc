/* SPDX-License-Identifier: Apache-2.0
 * Call the entry point of a loop with recorded arguments, and compare all that it writes with the recorded bits. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void entry(const void *numbers, void *const *arrays, void *results);

static FILE *file;

static void *taken(size_t bytes)
{
    void *block = malloc(bytes + 8);
    if (!block || fread(block, 1, bytes, file) != bytes) {
        exit(2);
    }
    return block;
}

static int64_t count(void)
{
    int64_t *one = taken(8), value = *one;
    free(one);
    return value;
}

/* A nan has other bits on another processor. */
static int64_t different(const void *computed, const void *expected, size_t bytes)
{
    int64_t found = 0;
    for (size_t at = 0; at < bytes; at += 8) {
        size_t size = bytes - at < 8 ? bytes - at : 8;
        double one = 0.0, other = 0.0;
        memcpy(&one, (const char *)computed + at, size);
        memcpy(&other, (const char *)expected + at, size);
        found += memcmp(&one, &other, size) != 0 && !(one != one && other != other);
    }
    return found;
}

int main(int arguments, char **names)
{
    int64_t found = 0, calls = 0, numbers = 0;
    if (arguments != 2 || !(file = fopen(names[1], "rb"))) {
        return 2;
    }
    for (int64_t left = count(); left > 0; --left, ++calls) {
        void *given = taken(8 * count()), *arrays[512];
        int64_t n = count(), bytes[512];
        for (int64_t at = 0; at < n; ++at) {
            bytes[at] = count();
            arrays[at] = taken(bytes[at]);
        }
        int64_t size = 8 * count();
        void *results = calloc(size + 8, 1);
        entry(given, arrays, results);
        found += different(results, taken(size), size);
        for (int64_t at = 0; at < n; ++at) {
            found += different(arrays[at], taken(bytes[at]), bytes[at]);
            numbers += bytes[at] / 8;
        }
    }
    printf("calls %d numbers %ld different %ld\n", (int)calls, (long)numbers, (long)found);
    return found != 0;
}
