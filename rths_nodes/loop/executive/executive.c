/* SPDX-License-Identifier: Apache-2.0 */
/* The executive: main program that runs a generated loop in real time, without the Python interpreter.
 *
 * Python (running.py) appends this text to the C text of the loop, builds and starts the program, and shares memory
 * with it: a control block, the arguments of the loop, and a ring of rows, one for each sample. Only the program
 * reads the clock, calls the loop and brakes. Python only reads rows, and may be late, suspended or dead.
 *
 *     executive MEMORY SIGNALS STOPS    file descriptors: the shared memory, a pipe of the parent's signals, and a
 *                                       socket; a datagram stops the test, the datagram T trips it
 */
#include <errno.h>
#include <fenv.h>
#include <float.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef RTHS_LOOP /* for checks of this file alone */
/* cppcheck-suppress unusedStructMember */
typedef union { double real; int64_t integer; bool logical; } number;
void entry(const number *numbers, void *const *arrays, number *results);
#endif

#define LAYOUT 2
#define SECOND INT64_C(1000000000)
#define REST_NS INT64_C(500000)      /* sleep of an overloaded loop, so that other processes can run */
#define AWAKE_NS INT64_C(50000000)   /* longest time without sleep */
#define POLL_NS INT64_C(20000)       /* without a clock: polling interval of the ring */
#define START_NS INT64_C(1000000)    /* polling interval of the go word */
#define STACK 65536                  /* bytes of stack touched before the start */
#define HEAD 5                       /* words of a row before its numbers: sample, kind, steps, lateness, duration */
#define SLIPPED 2                    /* flags of a Measurement, as in core/samples.py */
#define TRIPPED 8

enum { STARTING = 0, READY = 1, RUNNING = 2, ENDED = 3 };
enum { DRIVEN = 1, BROKEN = 2, BRAKED = 3, REFUSED = 4, LAST = 5, FIRST = 6 }; /* kinds of rows */
/* stop words */
enum { NO_STOP = 0, OPERATOR = 1, TRIP = 2, SILENT = 3, FULL = 4, PARENT = 5, RIG = 6, PRESSURE = 7, AT_START = 8, LATE = 9 };
enum { BEGUN = 0, COMMANDED = 1, MEASURED = 2 }; /* halves of a sample with a rig over UDP */
enum { BAD_USE = 64, BAD_MEMORY = 65, BAD_FLOATING = 66, BAD_CLOCK = 67 };      /* exit codes */

/* Offsets count words of 8 bytes from the control block; times are ns of the monotonic clock. */
typedef struct {
    int64_t layout, words, period, spin, priority, lock, silence, samples, bare;
    int64_t slots, slot_words, reserve, ring, at_marks; /* rows; reserve: free rows for a safe stop */
    int64_t numbers, results, asked;                    /* arguments and results; position of asked in numbers */
    int64_t pointers, n_pointers, copies, n_copies, fixed, n_fixed, moves, n_moves;
    int64_t at_stopped, at_made, at_driven, at_stopping, at_resting; /* positions in results */
    int64_t half, felt, terms, report; /* rig over UDP: arguments of the loop, near_terms, near_report */
    int64_t bridge;                    /* rig over UDP: longest bridge, samples */
    /* words that change during the run */
    int64_t state, go, word, trip_at, alive, head, tail;
    int64_t sample, missed, longest, lost, stopped_at, stopped_by, began, ended, no_priority, no_lock;
    int64_t opened, fault; /* rig over UDP: result of its opening; reason why it cannot continue */
} control;

typedef struct { int64_t place, by_sample, by_slot; } pointer; /* words; advance per sample, or per row */
typedef struct { int64_t number, result; } copy;               /* a state for the next sample */
typedef struct { int64_t number; number value; } constant;
typedef struct { int64_t from, to, words; } move;              /* an array of the new state: indices of pointers */

typedef struct {
    control *shared;
    int64_t *words;
    void **arrays;
    int64_t due, tick, late, took, rested, heard, alive; /* took: from the tick to the last Command */
    /* cppcheck-suppress unusedStructMember */
    int64_t far; /* number of consecutive samples that the rig has bridged */
    bool stopping;
} executive;

static control *volatile shared_memory; /* for the signal handler */

static int64_t get(const int64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

static void set(int64_t *word, int64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + (int64_t)t.tv_nsec;
}

static void sleep_until(int64_t time)
{
    const struct timespec t = {(time_t)(time / SECOND), (long)(time % SECOND)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

/* Set the stop word, unless it is already set. */
static void ask_to_stop(control *shared, int64_t reason)
{
    int64_t none = NO_STOP;
    __atomic_compare_exchange_n(&shared->word, &none, reason, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static void on_signal(int number)
{
    (void)number;
    if (shared_memory)
        ask_to_stop(shared_memory, OPERATOR);
}

static bool stops(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT || number == SIGXCPU;
}

/* Receive stop requests. The C handler of the parent writes its signals to the pipe, even while the interpreter is
 * busy. Other processes send datagrams. The pipe is at its end once the parent has ended. */
static void *listen_for_stops(void *argument)
{
    const int *files = argument;
    struct pollfd waiting[2] = {{files[0], POLLIN, 0}, {files[1], POLLIN, 0}};
    unsigned char signal_number;
    for (;;) {
        if (poll(waiting, 2, -1) < 0)
            continue;
        if (waiting[1].revents && recv(files[1], &signal_number, 1, MSG_DONTWAIT) >= 0)
            ask_to_stop(shared_memory, signal_number == 'T' ? TRIP : OPERATOR);
        if (!waiting[0].revents)
            continue;
        const ssize_t got = read(files[0], &signal_number, 1);
        if (got == 1 && stops(signal_number))
            ask_to_stop(shared_memory, OPERATOR);
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
    }
    ask_to_stop(shared_memory, PARENT);
    return NULL;
}

static int set_up_floating(void)
{
    volatile double smallest = DBL_MIN, third = 3.0;
    if (fesetenv(FE_DFL_ENV) != 0 || fegetround() != FE_TONEAREST)
        return BAD_FLOATING;
    return smallest / 2.0 > 0.0 && 1.0 / third * third == 1.0 ? 0 : BAD_FLOATING; /* subnormals must not become 0 */
}

/* Signals stop the test and never end this process, whose parent may be suspended or dead. */
static void set_up_signals(void)
{
    static const int stopping[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU}, ignored[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; ++i)
        sigaction(stopping[i], &action, NULL);
    action.sa_handler = SIG_IGN;
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; ++i)
        sigaction(ignored[i], &action, NULL);
}

static void set_up_scheduling(control *shared)
{
    const struct sched_param priority = {.sched_priority = (int)shared->priority};
    volatile unsigned char stack[STACK];
    if (shared->priority > 0 && sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
        shared->no_priority = errno;
    if (shared->lock && mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        shared->no_lock = errno;
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (size_t at = 0; at < STACK; at += 1024)
        stack[at] = 0;
    (void)stack[0];
}

/* Read the data of the next call, so that the caches contain the data at the tick. */
static void warm(const executive *e)
{
    const control *shared = e->shared;
    volatile int64_t word;
    for (int64_t at = shared->numbers; at < shared->ring; at += 8)
        word = e->words[at];
    for (int64_t i = 0; i < shared->n_pointers; ++i)
        word = *(const volatile unsigned char *)e->arrays[i];
    (void)word;
}

/* Wait for the next tick; a late tick slips the schedule by whole periods. Return the number of missed periods. */
static int64_t wait_tick(executive *e)
{
    control *shared = e->shared;
    const int64_t period = shared->period;
    int64_t time = now();
    if (e->due - shared->spin > time) {
        sleep_until(e->due - shared->spin);
        warm(e);
        e->rested = time = now();
    } else if (time - e->rested > AWAKE_NS) {
        sleep_until(time + REST_NS);
        e->rested = time = now();
    }
    while (time < e->due)
        time = now();
    e->tick = e->due;
    e->late = time - e->due;
    const int64_t slipped = e->late / period;
    e->due += (1 + slipped) * period;
    shared->missed += slipped;
    if (slipped > shared->longest)
        shared->longest = slipped;
    return slipped;
}

static int64_t free_rows(control *shared) { return shared->slots - (shared->head - get(&shared->tail)); }

/* Without a clock: wait until the ring has room for the rows of a sample. */
static void wait_for_room(executive *e)
{
    while (free_rows(e->shared) < 2 && get(&e->shared->word) != PARENT) {
        const int64_t time = now();
        sleep_until(time + POLL_NS);
    }
    e->tick = now();
    e->late = 0;
}

/* Request a stop if the reader no longer reads the rows. */
static void look_at_reader(executive *e)
{
    control *shared = e->shared;
    const int64_t alive = get(&shared->alive);
    if (free_rows(shared) < shared->reserve)
        ask_to_stop(shared, FULL);
    if (alive != e->alive) {
        e->alive = alive;
        e->heard = e->tick;
    } else if (e->tick - e->heard > shared->silence) {
        ask_to_stop(shared, SILENT);
    }
}

/* Return the stop word, or TRIP if the monitor's trip is due, or NO_STOP. */
static int64_t stop_due(control *shared, int64_t sample)
{
    const int64_t word = get(&shared->word);
    return word != NO_STOP ? word : sample >= get(&shared->trip_at) ? TRIP : NO_STOP;
}

/* Return the next free row or, if the ring is full, the spare row after it, which is never published. */
static int64_t *next_row(control *shared, int64_t *words)
{
    const int64_t slot = free_rows(shared) > 0 ? shared->head % shared->slots : shared->slots;
    return words + shared->ring + slot * shared->slot_words;
}

static void publish(executive *e, int64_t *row, int64_t sample, int64_t kind, int64_t made)
{
    control *shared = e->shared;
    const int64_t head[HEAD] = {sample, kind, made, e->late, e->took};
    memcpy(row, head, sizeof head);
    if (row == e->words + shared->ring + shared->slots * shared->slot_words)
        ++shared->lost;
    else
        set(&shared->head, shared->head + 1);
}

/* Prepare the arguments of the call for a sample. Return the row to which the call writes its numbers. */
static int64_t *prepare(executive *e, int64_t sample)
{
    control *shared = e->shared;
    int64_t *words = e->words, *row = next_row(shared, words);
    number *numbers = (number *)(void *)(words + shared->numbers);
    const pointer *pointers = (const pointer *)(const void *)(words + shared->pointers);
    memset(row, 0, sizeof *row * (size_t)shared->slot_words);
    numbers[0].integer = sample;
    numbers[1].integer = sample + 1;
    for (int64_t i = 0; i < shared->n_pointers; ++i) {
        const pointer *p = pointers + i;
        e->arrays[i] = p->by_slot ? row + p->place : words + p->place + p->by_sample * sample;
    }
    return row;
}

/* Call the loop for the prepared sample, and prepare its states for the next sample. */
static const number *step(executive *e, int64_t asked)
{
    control *shared = e->shared;
    int64_t *words = e->words;
    number *numbers = (number *)(void *)(words + shared->numbers), *results = (number *)(void *)(words + shared->results);
    const copy *copies = (const copy *)(const void *)(words + shared->copies);
    const constant *fixed = (const constant *)(const void *)(words + shared->fixed);
    const move *moves = (const move *)(const void *)(words + shared->moves);
    numbers[shared->asked].integer = asked;
    entry(numbers, e->arrays, results);
    e->took = now() - e->tick;
    for (int64_t i = 0; i < shared->n_copies; ++i)
        numbers[copies[i].number] = results[copies[i].result];
    for (int64_t i = 0; i < shared->n_fixed; ++i)
        numbers[fixed[i].number] = fixed[i].value;
    for (int64_t i = 0; i < shared->n_moves; ++i)
        memmove(e->arrays[moves[i].to], e->arrays[moves[i].from], sizeof(double) * (size_t)moves[i].words);
    return results;
}

static void begin_stop(executive *e, int64_t sample, int64_t by)
{
    e->stopping = true;
    e->shared->stopped_at = sample;
    e->shared->stopped_by = by;
}

#ifdef RTHS_NEAR_H
static near_session session;

/* Open the session; the caller checks the answer before the test begins. */
static void open_session(control *shared)
{
    int64_t *words = (int64_t *)(void *)shared;
    near_report *report = (near_report *)(void *)(words + shared->report);
    shared->opened = -near_open(&session, (const near_terms *)(const void *)(words + shared->terms));
    if (shared->opened == 0)
        shared->opened = near_connect(&session, &shared->word);
    near_look(&session, report);
}

/* Receive the next Measurement of the rig. Return the reason why the rig cannot continue, or NO_STOP. */
static int64_t take_measured(executive *e)
{
    const int64_t spin = e->shared->spin, n = session.terms.axes;
    double *felt = (double *)(void *)(e->words + e->shared->felt);
    near_measurement m;
    while (!near_ready(&session)) { /* ends at the latest when the rig counts as silent */
        const int64_t left = e->due - spin - now();
        near_wait(&session, left > 0 ? (uint64_t)left : left > -2 * spin ? 0 : (uint64_t)START_NS);
    }
    near_read(&session, &m);
    for (int64_t i = 0; i < n; ++i) {
        felt[i] = m.displacement[i];
        felt[n + i] = m.force[i];
        felt[2 * n + i] = m.command[i];
    }
    felt[3 * n] = m.flags;
    e->tick = (int64_t)session.report.taken;
    e->late = e->due && e->tick > e->due ? e->tick - e->due : 0;
    e->due = e->tick + e->shared->period;
    e->far = (m.flags & NEAR_FLAG_BRIDGED) != 0u ? e->far + 1 : 0;
    if (session.report.stopped != NEAR_FOLLOWS)
        return RIG;
    return m.hydraulics == 1 ? PRESSURE : e->far > e->shared->bridge ? LATE : NO_STOP;
}

static void send_command(executive *e, const int64_t *row)
{
    const double *commands = (const double *)(const void *)(row + HEAD + session.terms.axes);
    near_command command;
    memset(&command, 0, sizeof command);
    memcpy(command.command, commands, sizeof *commands * session.terms.axes);
    near_next(&session);
    near_write(&session, &command);
    e->took = (int64_t)session.report.sent - e->tick;
}

/* Call the loop with a Measurement; the next call computes a Command. */
static const number *step_measured(executive *e, int64_t asked, int64_t half)
{
    number *numbers = (number *)(void *)(e->words + e->shared->numbers);
    const int64_t took = e->took;
    numbers[e->shared->half].integer = half;
    const number *results = step(e, asked);
    numbers[e->shared->half].integer = COMMANDED;
    e->took = took;
    return results;
}

/* Send the Command of the row, and call the loop with the next Measurement. */
static const number *exchange(executive *e, const int64_t *row, int64_t *fault)
{
    send_command(e, row);
    *fault = take_measured(e);
    if (*fault != NO_STOP && !e->stopping)
        e->shared->fault = session.report.stopped * 256 + session.report.reason;
    return step_measured(e, *fault != NO_STOP ? 3 : 0, MEASURED);
}

/* Begin with Measurement 0. Return false if its commands, at which the rig is held, are not finite. */
static bool begin_session(executive *e)
{
    control *shared = e->shared;
    const double *held = (const double *)(const void *)(e->words + shared->felt) + 2 * session.terms.axes;
    int64_t *row = prepare(e, 0);
    bool finite = true;
    near_begin(&session);
    const int64_t fault = take_measured(e);
    e->far = 0;
    for (int64_t i = 0; i < session.terms.axes; ++i)
        finite = finite && finite_real(held[i]);
    const number *results = step_measured(e, fault != NO_STOP ? 3 : 0, BEGUN);
    shared->fault = session.report.stopped * 256 + session.report.reason;
    if (results[shared->at_stopped].integer >= 0)
        ask_to_stop(shared, fault != NO_STOP ? fault : AT_START);
    publish(e, row, 0, FIRST, 0);
    return finite;
}

static void end_session(const control *shared)
{
    int64_t *words = (int64_t *)(uintptr_t)shared;
    near_close(&session);
    near_look(&session, (near_report *)(void *)(words + shared->report));
}
#endif

/* Run sample k, from Measurement k to Measurement k + 1, with a prepared row. Return false at the end. */
static bool run_sample(executive *e, int64_t *row, int64_t sample, int64_t slipped)
{
    control *shared = e->shared;
    int64_t fault = NO_STOP;
    const int64_t due = e->stopping ? NO_STOP : stop_due(shared, sample + 1);
    const number *results = step(e, due != NO_STOP);
    if (!e->stopping && !results[shared->at_driven].integer) {
        if (results[shared->at_stopped].integer < 0) { /* the last sample has been run */
            publish(e, row, sample, LAST, 0);
            return false;
        }
        publish(e, row, sample + 1, REFUSED, results[shared->at_made].integer);
        begin_stop(e, sample + 1, due);
        row = prepare(e, sample);
        results = step(e, 2);
    }
    const int64_t made = results[shared->at_made].integer;
    const bool braked = results[shared->at_stopping].integer != 0 && results[shared->at_stopped].integer < 0;
    if (braked && !e->stopping)
        begin_stop(e, sample + 1, due);
#ifdef RTHS_NEAR_H
    if (shared->terms)
        results = exchange(e, row, &fault);
#endif
    const bool broken = !e->stopping && results[shared->at_stopped].integer >= 0;
    if (broken)
        begin_stop(e, sample + 1, fault);
    row[shared->at_marks + 1] |= (slipped ? SLIPPED : 0) | (broken ? TRIPPED : 0);
    publish(e, row, sample + 1, broken ? BROKEN : braked ? BRAKED : DRIVEN, made);
    set(&shared->sample, sample + 1);
    return !(e->stopping && results[shared->at_resting].logical);
}

/* Run the same ticks and rows without the loop, to measure the delays of the computer itself. */
static bool run_bare(executive *e, int64_t *row, int64_t sample)
{
    e->took = now() - e->tick;
    publish(e, row, sample + 1, DRIVEN, 0);
    set(&e->shared->sample, sample + 1);
    return sample + 1 < e->shared->samples && stop_due(e->shared, sample + 1) == NO_STOP;
}

static void run(executive *e)
{
    control *shared = e->shared;
    shared->began = e->rested = e->heard = now();
    e->due = shared->began + shared->period;
    set(&shared->state, RUNNING);
    bool going = true;
#ifdef RTHS_NEAR_H
    if (shared->terms)
        going = begin_session(e);
#endif
    for (int64_t sample = 0; going; ++sample) {
        int64_t slipped = 0;
        if (!shared->period)
            wait_for_room(e);
        int64_t *row = prepare(e, sample);
        if (shared->period && (sample < shared->samples || e->stopping)) {
            if (!shared->terms)
                slipped = wait_tick(e);
            if (!e->stopping)
                look_at_reader(e);
        }
        going = shared->bare ? run_bare(e, row, sample) : run_sample(e, row, sample, slipped);
    }
#ifdef RTHS_NEAR_H
    if (shared->terms)
        end_session(shared);
#endif
    shared->ended = now();
    set(&shared->state, ENDED);
}

static int number_of(const char *text)
{
    char *end;
    const long value = strtol(text, &end, 10);
    return *text && !*end && value >= 0 && value < 1 << 20 ? (int)value : -1;
}

int main(int argc, char **argv)
{
    static executive e;
    static int files[2];
    struct stat file;
    struct timespec resolution;
    pthread_t listener;
    const int memory = argc == 4 ? number_of(argv[1]) : -1;
    for (int i = 0; i < 2; ++i)
        files[i] = argc == 4 ? number_of(argv[2 + i]) : -1;
    if (memory < 0 || files[0] < 0 || files[1] < 0 || fstat(memory, &file) != 0 || file.st_size < (off_t)sizeof(control))
        return BAD_USE;
    void *mapped = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (mapped == MAP_FAILED)
        return BAD_MEMORY;
    e.shared = mapped;
    e.words = mapped;
    if (e.shared->layout != LAYOUT || e.shared->words * 8 != (int64_t)file.st_size || e.shared->slots < 4)
        return BAD_MEMORY;
    e.arrays = calloc((size_t)e.shared->n_pointers + 1, sizeof *e.arrays);
    if (!e.arrays)
        return BAD_MEMORY;
    if (set_up_floating() != 0)
        return BAD_FLOATING;
    if (clock_getres(CLOCK_MONOTONIC, &resolution) != 0)
        return BAD_CLOCK;
    shared_memory = e.shared;
    set_up_signals();
    set_up_scheduling(e.shared);
    if (pthread_create(&listener, NULL, listen_for_stops, files) != 0)
        return BAD_MEMORY;
#ifdef RTHS_NEAR_H
    if (e.shared->terms)
        open_session(e.shared);
#endif
    set(&e.shared->state, READY);
    while (!get(&e.shared->go)) {
        if (get(&e.shared->word) != NO_STOP) {
#ifdef RTHS_NEAR_H
            near_close(&session);
#endif
            return 0; /* the rig has not moved */
        }
        sleep_until(now() + START_NS);
    }
    run(&e);
    return 0;
}
