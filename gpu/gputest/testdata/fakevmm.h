// Virtual memory management: memory that processes share by file descriptors, which are
// those of memfds here. A mapping is memory of the card once access to it was set.

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct location { int kind, id; };
struct allocation { int kind, handles; struct location at; void *windows; unsigned char flags[8]; };
struct access { struct location at; int flags; };

enum { GRANULARITY = 2 << 20, POSIX = 1 };

// A handle is a file: its size is in the file, its device in its name.
static int is_allocation(const struct allocation *a) {
	return a->kind == 1 && a->handles == POSIX && a->at.kind == 1 && a->at.id >= 0 && a->at.id < DEVICES && !a->windows;
}

result cuMemGetAllocationGranularity(size_t *n, const struct allocation *a, int option) {
	BEGIN
	if (!is_allocation(a) || option < 0 || option > 1) return INVALID_VALUE;
	*n = GRANULARITY;
	return SUCCESS;
}

result cuMemCreate(unsigned long long *handle, size_t n, const struct allocation *a, unsigned long long flags) {
	IN_CONTEXT
	size_t unused, total;
	cuMemGetInfo_v2(&unused, &total);
	if (!is_allocation(a) || flags || !n || n % GRANULARITY || a->at.id != current()) return INVALID_VALUE;
	if (n > unused) return OUT_OF_MEMORY;
	char name[32];
	snprintf(name, sizeof name, "fakecuda-%d", a->at.id);
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, n)) return OUT_OF_MEMORY;
	*handle = add(HANDLE, 0, 0, fd)->at;
	return SUCCESS;
}

static int file_of(unsigned long long handle) {
	int fd = -1;
	pthread_mutex_lock(&mutex);
	for (struct thing *t = things; t; t = t->next)
		if (t->kind == HANDLE && t->at == handle) fd = t->device;
	pthread_mutex_unlock(&mutex);
	return fd;
}

// device_of is the device of a file that is such memory, -1 of any other.
static int device_of(int fd) {
	char path[64], name[64] = {0};
	int device = -1;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (readlink(path, name, sizeof name - 1) < 0 || sscanf(name, "/memfd:fakecuda-%d", &device) != 1) return -1;
	return device;
}

result cuMemRelease(unsigned long long handle) {
	BEGIN
	size_t n;
	int fd = file_of(handle);
	if (!drop(HANDLE, handle, &n)) return INVALID_VALUE;
	close(fd);
	return SUCCESS;
}

result cuMemExportToShareableHandle(int *out, unsigned long long handle, int kind, unsigned long long flags) {
	BEGIN
	int fd = file_of(handle);
	if (fd < 0 || kind != POSIX || flags) return INVALID_VALUE;
	*out = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return *out < 0 ? OUT_OF_MEMORY : SUCCESS;
}

result cuMemImportFromShareableHandle(unsigned long long *handle, void *file, int kind) {
	BEGIN
	int fd = (int)(intptr_t)file;
	if (kind != POSIX || device_of(fd) < 0) return INVALID_VALUE;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0) return OUT_OF_MEMORY;
	*handle = add(HANDLE, 0, 0, fd)->at;
	return SUCCESS;
}

result cuMemAddressReserve(uintptr_t *at, size_t n, size_t align, uintptr_t where, unsigned long long flags) {
	BEGIN
	if (!n || n % GRANULARITY || align || where || flags) return INVALID_VALUE;
	void *p = mmap(0, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) return OUT_OF_MEMORY;
	add(RANGE, *at = (uintptr_t)p, n, -1);
	return SUCCESS;
}

result cuMemAddressFree(uintptr_t at, size_t n) {
	BEGIN
	size_t has;
	if (holds(MAPPED, at, 1) || !drop(RANGE, at, &has)) return INVALID_VALUE;
	if (has != n) abort();
	munmap((void *)at, n);
	return SUCCESS;
}

result cuMemMap(uintptr_t at, size_t n, size_t offset, unsigned long long handle, unsigned long long flags) {
	IN_CONTEXT
	struct stat file;
	int fd = file_of(handle);
	if (fd < 0 || offset || flags || !holds(RANGE, at, n) || holds(MAPPED, at, 1) || fstat(fd, &file) || (size_t)file.st_size != n)
		return INVALID_VALUE;
	if (mmap((void *)at, n, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return OUT_OF_MEMORY;
	add(MAPPED, at, n, device_of(fd));
	return SUCCESS;
}

result cuMemSetAccess(uintptr_t at, size_t n, const struct access *a, size_t count) {
	IN_CONTEXT
	int device = -1;
	pthread_mutex_lock(&mutex);
	for (struct thing *t = things; t; t = t->next)
		if (t->kind == MAPPED && t->at == at && t->size == n) device = t->device;
	pthread_mutex_unlock(&mutex);
	if (device < 0 || count != 1 || a->at.kind != 1 || a->flags != 3) return INVALID_VALUE;
	if (a->at.id != device) return INVALID_DEVICE; // the cards reach no other's memory
	return mprotect((void *)at, n, PROT_READ | PROT_WRITE) ? INVALID_VALUE : SUCCESS;
}

result cuMemUnmap(uintptr_t at, size_t n) {
	IN_CONTEXT
	size_t has;
	do_pending();
	if (!drop(MAPPED, at, &has)) return INVALID_VALUE;
	if (has != n || mmap((void *)at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) abort();
	return SUCCESS;
}
