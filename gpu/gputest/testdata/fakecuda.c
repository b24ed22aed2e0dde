// A test double of NVIDIA's driver library: a shared library with the functions of libcuda
// that shardify calls, on the host's memory. What is asked of a stream is done at once, but
// for copies from pinned memory under FAKE_CUDA_LATE_COPIES, which are done so many
// milliseconds after they are waited for, and events, which are done after FAKE_CUDA_LATE_EVENTS questions.
//
// It is strict where libcuda would crash or go wrong in silence: a call needs its context
// to be current, copies must lie within one allocation, and what is freed must be there.
// It counts what is not freed, in the folder FAKE_CUDA_COUNTS also for other processes, and
// fails on request. It says nothing about real hardware.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int result;
enum {
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
	INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, LAUNCH_FAILED = 719,
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// What is injected: the call of a function, counted from 1, that fails, and how.
static struct { char name[64]; int call, code; } fault;
static int initialised, fault_read;

// Settings: of the environment, or of fake_set.
static struct { char name[64]; int value; } settings[8];

void fake_set(const char *name, int value) {
	for (int i = 0; i < 8; i++)
		if (!settings[i].name[0] || !strcmp(settings[i].name, name)) {
			snprintf(settings[i].name, sizeof settings[i].name, "%s", name);
			settings[i].value = value;
			return;
		}
	abort();
}

static int setting(const char *name, int otherwise) {
	for (int i = 0; i < 8; i++)
		if (!strcmp(settings[i].name, name))
			return settings[i].value;
	const char *v = getenv(name);
	return v ? atoi(v) : otherwise;
}

// fake_fail makes the n-th call from now of a function return a code; n = 0: none.
void fake_fail(const char *name, int n, int code) {
	pthread_mutex_lock(&mutex);
	fault_read = 1;
	snprintf(fault.name, sizeof fault.name, "%s", name);
	fault.call = n, fault.code = code;
	pthread_mutex_unlock(&mutex);
}

// fake_pending is whether the fault is still to come.
int fake_pending(void) { return fault.call > 0; }

// failing says with which code this call is to fail; FAKE_CUDA_FAIL is name:call:code.
static result failing(const char *name) {
	result r = SUCCESS;
	pthread_mutex_lock(&mutex);
	if (!fault_read) {
		const char *v = getenv("FAKE_CUDA_FAIL");
		fault_read = 1;
		if (v && sscanf(v, "%63[^:]:%d:%d", fault.name, &fault.call, &fault.code) != 3)
			abort();
	}
	if (fault.call > 0 && !strcmp(name, fault.name) && --fault.call == 0)
		r = fault.code;
	pthread_mutex_unlock(&mutex);
	return r;
}

// Things: whatever has to be freed.
enum kind { MEMORY, PINNED, REGISTERED, STREAM, EVENT, MODULE, CONTEXT, HANDLE, RANGE, MAPPED, kinds };
// An event has its flags, and when it was recorded, in nanoseconds; 0: never.
struct thing { enum kind kind; uintptr_t at; size_t size; int device, late; unsigned flags; long long ns; struct thing *next; };
static struct thing *things;
static long long live_here[kinds], *live = live_here, bytes[kinds];

// count has how many things there are in a file of the process in FAKE_CUDA_COUNTS.
__attribute__((constructor)) static void count(void) {
	const char *folder = getenv("FAKE_CUDA_COUNTS");
	if (!folder) return;
	char path[4096];
	snprintf(path, sizeof path, "%s/%d", folder, getpid());
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof live_here)) abort();
	live = mmap(0, sizeof live_here, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (live == MAP_FAILED) abort();
	close(fd);
}

static struct thing *add(enum kind kind, uintptr_t at, size_t size, int device) {
	struct thing *t = calloc(1, sizeof *t);
	*t = (struct thing){.kind = kind, .at = at ? at : (uintptr_t)t, .size = size, .device = device};
	pthread_mutex_lock(&mutex);
	t->next = things, things = t;
	live[kind]++, bytes[kind] += size;
	pthread_mutex_unlock(&mutex);
	return t;
}

static int drop(enum kind kind, uintptr_t at, size_t *size) {
	int found = 0;
	pthread_mutex_lock(&mutex);
	for (struct thing **p = &things; *p; p = &(*p)->next)
		if ((*p)->kind == kind && (*p)->at == at) {
			struct thing *t = *p;
			*p = t->next, live[kind]--, bytes[kind] -= t->size, *size = t->size, found = 1;
			free(t);
			break;
		}
	pthread_mutex_unlock(&mutex);
	return found;
}

// holds says whether one thing of a kind has all of these bytes.
static int holds(enum kind kind, uintptr_t at, size_t size) {
	int found = 0;
	pthread_mutex_lock(&mutex);
	for (struct thing *t = things; t && !found; t = t->next)
		found = t->kind == kind && at >= t->at && size <= t->size && at - t->at <= t->size - size;
	pthread_mutex_unlock(&mutex);
	return found;
}

static int handle(enum kind kind, uintptr_t at) { return holds(kind, at, 0); }
static int on_card(uintptr_t at, size_t size) { return holds(MEMORY, at, size) || holds(MAPPED, at, size); }

// Copies that are still to be done, in the order of all streams.
struct copy { void *to; const void *from; size_t size; struct copy *next; };
static struct copy *pending, **pending_end = &pending;

static void do_pending(void) {
	pthread_mutex_lock(&mutex);
	while (pending) {
		struct copy *c = pending;
		memcpy(c->to, c->from, c->size);
		pending = c->next;
		free(c);
	}
	pending_end = &pending;
	pthread_mutex_unlock(&mutex);
}

// fake_live is how many things of a kind there are, fake_bytes how much memory they are.
long long fake_live(int kind) { return live[kind]; }
long long fake_bytes(int kind) { return bytes[kind]; }

// Contexts.
#define DEVICES setting("FAKE_CUDA_DEVICES", 2)
static uintptr_t primary[16];
static int retained[16];
static __thread uintptr_t stack[16];
static __thread int depth;

static int current(void) {
	for (int d = 0; d < 16; d++)
		if (depth && retained[d] && stack[depth - 1] == primary[d])
			return d;
	return -1;
}

#define BEGIN \
	if (!initialised) return NOT_INITIALIZED; \
	{ result injected = failing(__func__); if (injected) return injected; }
#define IN_CONTEXT BEGIN if (current() < 0) return INVALID_CONTEXT;

result cuInit(unsigned flags) {
	if (flags) return INVALID_VALUE;
	if (setting("FAKE_CUDA_INIT", SUCCESS)) return setting("FAKE_CUDA_INIT", SUCCESS);
	if (!DEVICES) return NO_DEVICE;
	initialised = 1;
	return SUCCESS;
}

result cuDriverGetVersion(int *v) { *v = setting("FAKE_CUDA_VERSION", 13000); return failing(__func__); }

result cuGetErrorName(result r, const char **s) {
	switch (r) {
	case INVALID_VALUE: *s = "CUDA_ERROR_INVALID_VALUE"; return SUCCESS;
	case OUT_OF_MEMORY: *s = "CUDA_ERROR_OUT_OF_MEMORY"; return SUCCESS;
	case NO_DEVICE: *s = "CUDA_ERROR_NO_DEVICE"; return SUCCESS;
	case INVALID_CONTEXT: *s = "CUDA_ERROR_INVALID_CONTEXT"; return SUCCESS;
	case 34: *s = "CUDA_ERROR_STUB_LIBRARY"; return SUCCESS;
	case 700: *s = "CUDA_ERROR_ILLEGAL_ADDRESS"; return SUCCESS;
	case 803: *s = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; return SUCCESS;
	case INVALID_IMAGE: *s = "CUDA_ERROR_INVALID_IMAGE"; return SUCCESS;
	case NOT_FOUND: *s = "CUDA_ERROR_NOT_FOUND"; return SUCCESS;
	}
	*s = 0;
	return INVALID_VALUE;
}

result cuGetErrorString(result r, const char **s) {
	if (r == OUT_OF_MEMORY) { *s = "out of memory"; return SUCCESS; }
	*s = 0;
	return INVALID_VALUE;
}

result cuDeviceGetCount(int *n) { BEGIN *n = DEVICES; return SUCCESS; }

result cuDeviceGet(int *device, int ordinal) {
	BEGIN
	if (ordinal < 0 || ordinal >= DEVICES) return INVALID_DEVICE;
	*device = ordinal;
	return SUCCESS;
}

result cuDeviceGetName(char *s, int n, int device) { BEGIN snprintf(s, n, "Fake GPU %c", 'A' + device); return SUCCESS; }
result cuDeviceGetPCIBusId(char *s, int n, int device) { BEGIN snprintf(s, n, "10de:%02x:00.0", 0x1b + device); return SUCCESS; }
result cuDeviceGetUuid(unsigned char *id, int device) { BEGIN for (int i = 0; i < 16; i++) id[i] = 16 * device + i; return SUCCESS; }
result cuDeviceTotalMem_v2(size_t *n, int device) { BEGIN (void)device; *n = (size_t)setting("FAKE_CUDA_MIB", 1024) << 20; return SUCCESS; }

result cuDeviceGetAttribute(int *v, int attribute, int device) {
	BEGIN
	(void)device;
	switch (attribute) {
	case 16: *v = 132; return SUCCESS;
	case 18: *v = 0; return SUCCESS;
	case 20: *v = setting("FAKE_CUDA_MODE", 0); return SUCCESS;
	case 40: *v = 3; return SUCCESS;
	case 102: *v = 1; return SUCCESS;
	case 103: *v = setting("FAKE_CUDA_SHARES", 1); return SUCCESS;
	case 75: *v = setting("FAKE_CUDA_CAPABILITY", 90) / 10; return SUCCESS;
	case 76: *v = setting("FAKE_CUDA_CAPABILITY", 90) % 10; return SUCCESS;
	}
	return INVALID_VALUE;
}

result cuDeviceCanAccessPeer(int *yes, int device, int peer) {
	BEGIN
	if (device == peer || device < 0 || peer < 0 || device >= DEVICES || peer >= DEVICES) return INVALID_DEVICE;
	*yes = setting("FAKE_CUDA_PEERS", 1);
	return SUCCESS;
}

result cuDevicePrimaryCtxRetain(uintptr_t *c, int device) {
	BEGIN
	if (device < 0 || device >= 16) return INVALID_DEVICE;
	pthread_mutex_lock(&mutex);
	if (!primary[device]) primary[device] = 0xc0de0000 + device;
	retained[device]++, live[CONTEXT]++;
	*c = primary[device];
	pthread_mutex_unlock(&mutex);
	return SUCCESS;
}

result cuDevicePrimaryCtxRelease_v2(int device) {
	BEGIN
	if (!retained[device]) return INVALID_CONTEXT;
	pthread_mutex_lock(&mutex);
	retained[device]--, live[CONTEXT]--;
	pthread_mutex_unlock(&mutex);
	return SUCCESS;
}

result cuCtxPushCurrent_v2(uintptr_t c) {
	BEGIN
	if (depth == 16) return INVALID_VALUE;
	stack[depth++] = c;
	if (current() < 0) { depth--; return INVALID_CONTEXT; }
	return SUCCESS;
}

result cuCtxPopCurrent_v2(uintptr_t *c) {
	BEGIN
	if (!depth) return INVALID_CONTEXT;
	*c = stack[--depth];
	return SUCCESS;
}

result cuCtxSynchronize(void) { IN_CONTEXT do_pending(); return SUCCESS; }

result cuMemGetInfo_v2(size_t *unused, size_t *total) {
	IN_CONTEXT
	*total = (size_t)setting("FAKE_CUDA_MIB", 1024) << 20;
	*unused = *total - bytes[MEMORY] - bytes[MAPPED];
	return SUCCESS;
}

result cuMemAlloc_v2(uintptr_t *p, size_t n) {
	IN_CONTEXT
	size_t unused, total;
	cuMemGetInfo_v2(&unused, &total);
	if (!n) return INVALID_VALUE;
	if (n > unused) return OUT_OF_MEMORY;
	*p = (uintptr_t)aligned_alloc(256, (n + 255) / 256 * 256);
	if (!*p) return OUT_OF_MEMORY;
	memset((void *)*p, 0xdb, n); // what is in it is not known
	add(MEMORY, *p, n, current());
	return SUCCESS;
}

result cuMemFree_v2(uintptr_t p) {
	IN_CONTEXT
	size_t n;
	do_pending();
	if (!drop(MEMORY, p, &n)) return INVALID_VALUE;
	memset((void *)p, 0xdb, n);
	free((void *)p);
	return SUCCESS;
}

result cuMemHostAlloc(void **p, size_t n, unsigned flags) {
	IN_CONTEXT
	if (flags != 1 || !n) return INVALID_VALUE;
	if (bytes[PINNED] + n > (size_t)setting("FAKE_CUDA_PINNED_MIB", 1024) << 20) return OUT_OF_MEMORY;
	*p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
	if (!*p) return OUT_OF_MEMORY;
	memset(*p, 0xdb, n);
	add(PINNED, (uintptr_t)*p, n, current());
	return SUCCESS;
}

result cuMemFreeHost(void *p) {
	IN_CONTEXT
	size_t n;
	if (!drop(PINNED, (uintptr_t)p, &n)) return INVALID_VALUE;
	memset(p, 0xdb, n);
	free(p);
	return SUCCESS;
}

result cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
	IN_CONTEXT
	if (flags != 1 || !n || holds(REGISTERED, (uintptr_t)p, 1)) return INVALID_VALUE;
	add(REGISTERED, (uintptr_t)p, n, current());
	return SUCCESS;
}

result cuMemHostUnregister(void *p) {
	IN_CONTEXT
	size_t n;
	return drop(REGISTERED, (uintptr_t)p, &n) ? SUCCESS : INVALID_VALUE;
}

#define STREAM_OF(s) if (s > 2 && !handle(STREAM, s)) return INVALID_HANDLE;

result cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t n, uintptr_t s) {
	IN_CONTEXT STREAM_OF(s)
	if (!on_card(to, n)) return INVALID_VALUE;
	if (setting("FAKE_CUDA_LATE_COPIES", 0) && (holds(PINNED, (uintptr_t)from, n) || holds(REGISTERED, (uintptr_t)from, n))) {
		struct copy *c = malloc(sizeof *c);
		*c = (struct copy){(void *)to, from, n, 0};
		pthread_mutex_lock(&mutex);
		*pending_end = c, pending_end = &c->next;
		pthread_mutex_unlock(&mutex);
		return SUCCESS;
	}
	do_pending();
	memcpy((void *)to, from, n);
	return SUCCESS;
}

result cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t n, uintptr_t s) {
	IN_CONTEXT STREAM_OF(s)
	if (!on_card(from, n)) return INVALID_VALUE;
	do_pending();
	memcpy(to, (void *)from, n);
	return SUCCESS;
}

result cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t n, uintptr_t s) {
	IN_CONTEXT STREAM_OF(s)
	if (!on_card(from, n) || !on_card(to, n)) return INVALID_VALUE;
	do_pending();
	memmove((void *)to, (void *)from, n);
	return SUCCESS;
}

result cuMemsetD8Async(uintptr_t to, unsigned char b, size_t n, uintptr_t s) {
	IN_CONTEXT STREAM_OF(s)
	if (!on_card(to, n)) return INVALID_VALUE;
	do_pending();
	memset((void *)to, b, n);
	return SUCCESS;
}

result cuStreamCreate(uintptr_t *s, unsigned flags) {
	IN_CONTEXT
	if (flags > 1) return INVALID_VALUE;
	*s = add(STREAM, 0, 0, current())->at;
	return SUCCESS;
}

result cuStreamDestroy_v2(uintptr_t s) { IN_CONTEXT size_t n; return drop(STREAM, s, &n) ? SUCCESS : INVALID_HANDLE; }
result cuStreamSynchronize(uintptr_t s) { IN_CONTEXT STREAM_OF(s) do_pending(); return SUCCESS; }

#define EVENT_OF(e) if (!handle(EVENT, e)) return INVALID_HANDLE;

result cuStreamWaitEvent(uintptr_t s, uintptr_t e, unsigned flags) {
	IN_CONTEXT STREAM_OF(s) EVENT_OF(e)
	return flags ? INVALID_VALUE : SUCCESS;
}

result cuEventCreate(uintptr_t *e, unsigned flags) {
	IN_CONTEXT
	if (flags > 3) return INVALID_VALUE;
	struct thing *t = add(EVENT, 0, 0, current());
	t->flags = flags;
	*e = t->at;
	return SUCCESS;
}

result cuEventDestroy_v2(uintptr_t e) { IN_CONTEXT size_t n; return drop(EVENT, e, &n) ? SUCCESS : INVALID_HANDLE; }

// late sets how often an event is not done yet when it is asked, or asks it.
static int late(uintptr_t e, int n) {
	int left = 0;
	pthread_mutex_lock(&mutex);
	for (struct thing *t = things; t; t = t->next)
		if (t->kind == EVENT && t->at == e) {
			if (n >= 0) t->late = n;
			// A smaller setting than there was is good for those that are recorded, too.
			if (t->late > setting("FAKE_CUDA_LATE_EVENTS", 0)) t->late = setting("FAKE_CUDA_LATE_EVENTS", 0);
			left = t->late;
			if (n < 0 && left > 0) t->late--;
		}
	pthread_mutex_unlock(&mutex);
	return left;
}

// An event's handle is its thing.
result cuEventRecord(uintptr_t e, uintptr_t s) {
	IN_CONTEXT STREAM_OF(s) EVENT_OF(e)
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	((struct thing *)e)->ns = now.tv_sec * 1000000000ll + now.tv_nsec;
	late(e, setting("FAKE_CUDA_LATE_EVENTS", 0));
	return SUCCESS;
}

result cuEventQuery(uintptr_t e) { IN_CONTEXT EVENT_OF(e) if (late(e, -1)) return NOT_READY; do_pending(); return SUCCESS; }
result cuEventSynchronize(uintptr_t e) { IN_CONTEXT EVENT_OF(e) late(e, 0); if (pending) usleep(1000 * setting("FAKE_CUDA_LATE_COPIES", 0)); do_pending(); return SUCCESS; }

result cuEventElapsedTime(float *ms, uintptr_t from, uintptr_t to) {
	IN_CONTEXT EVENT_OF(from) EVENT_OF(to)
	const struct thing *a = (struct thing *)from, *b = (struct thing *)to;
	const unsigned untimed = 2;
	if ((a->flags | b->flags) & untimed || !a->ns || !b->ns) return INVALID_HANDLE;
	*ms = (b->ns - a->ns) / 1e6;
	return SUCCESS;
}

// Modules. Where the kernels were compiled with this file, those of the host are run,
// thread by thread; of the code itself only the names of its kernels are read.
struct kernel { const char *name; void (*run)(const void *args, const unsigned *blocks, const unsigned *threads); };

#ifdef FAKE_KERNELS
extern const struct kernel fake_kernels[];
#else
static const struct kernel fake_kernels[] = {{0, 0}};
#endif

result cuModuleLoadDataEx(uintptr_t *m, const char *image, unsigned n, const int *options, void **values) {
	IN_CONTEXT
	if (strncmp(image, "//", 2) && strncmp(image, ".version", 8)) {
		for (unsigned i = 0; i < n; i++)
			if (options[i] == 5) // CU_JIT_ERROR_LOG_BUFFER, whose size comes next
				snprintf(values[i], (size_t)values[i + 1], "ptxas fatal: no PTX\n");
		return INVALID_IMAGE;
	}
	*m = add(MODULE, (uintptr_t)strdup(image), 0, current())->at;
	return SUCCESS;
}

result cuModuleUnload(uintptr_t m) {
	IN_CONTEXT
	size_t n;
	if (!drop(MODULE, m, &n)) return INVALID_HANDLE;
	free((void *)m);
	return SUCCESS;
}

result cuModuleGetFunction(uintptr_t *f, uintptr_t m, const char *name) {
	IN_CONTEXT
	if (!handle(MODULE, m)) return INVALID_HANDLE;
	char entry[128];
	snprintf(entry, sizeof entry, ".entry %s(", name);
	if (!strstr((const char *)m, entry)) return NOT_FOUND;
	for (const struct kernel *k = fake_kernels; k->name; k++)
		if (!strcmp(k->name, name)) { *f = (uintptr_t)k; return SUCCESS; }
	return NOT_FOUND;
}

result cuFuncGetAttribute(int *v, int attribute, uintptr_t f) {
	IN_CONTEXT
	(void)f;
	*v = attribute == 4 ? 32 : 0;
	return SUCCESS;
}

result cuLaunchKernel(uintptr_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		unsigned shared, uintptr_t s, void **params, void **extra) {
	IN_CONTEXT STREAM_OF(s)
	unsigned blocks[3] = {gx, gy, gz}, threads[3] = {bx, by, bz};
	if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || !bx || !by || !bz || bx * by * bz > 1024 || shared || extra)
		return INVALID_VALUE;
	do_pending();
	((const struct kernel *)f)->run(params[0], blocks, threads);
	return SUCCESS;
}

#include "fakevmm.h"
