/* The wall clock of one process, preloaded: the host's, and as many nanoseconds as the file WALL_CLOCK_FILE holds in its
   first eight bytes. Whoever writes there sets the clock. Every other clock, and the kernel, keep the host's time. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static const volatile long long *offset;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("WALL_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        offset = page;
    *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = real(clock, now);
    if (!failed && offset && clock == CLOCK_REALTIME) {
        long long moment = now->tv_sec * 1000000000LL + now->tv_nsec + *offset;
        now->tv_sec = moment / 1000000000LL;
        now->tv_nsec = moment % 1000000000LL;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec moment;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &moment);
    now->tv_sec = moment.tv_sec;
    now->tv_usec = moment.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where)
{
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    if (where)
        *where = moment.tv_sec;
    return moment.tv_sec;
}
