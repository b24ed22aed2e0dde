// A test double of nvJPEG, in one library with that of the driver. It decodes nothing: files
// are told to it beforehand with their pixels, and it serves those, each byte xored with
// SERVED, so that it shows which pixels it has made; a file is known by all its bytes.
//
// It is strict: contexts must be current, files whole and within the batch that was
// initialised, destinations within one allocation. It allocates through the allocators that
// it is given, some of it on a thread of its own, as nvJPEG does, and counts what is not
// destroyed.

#include "fakecuda.c"

enum {
	NVJPEG_OK = 0, NOT_INIT = 1, INVALID = 2, BAD_JPEG = 3, UNSUPPORTED = 4, ALLOCATOR = 5, NOT_IMPLEMENTED = 9,
};
#define SERVED 0xa5

typedef struct { int (*malloc)(void *, void **, size_t, uintptr_t), (*free)(void *, void *, size_t, uintptr_t); void *ctx; } allocators;
typedef struct { unsigned char *channel[4]; size_t pitch[4]; } image;

static struct known { unsigned char *data, *rgb; size_t size; int width, height, bad; struct known *next; } *known_files;

// fake_jpeg tells the double of a file, whose pixels are RGB; bad: it is not decoded.
void fake_jpeg(const unsigned char *data, size_t size, int width, int height, const unsigned char *rgb, int bad) {
	struct known *k = calloc(1, sizeof *k);
	*k = (struct known){malloc(size), malloc((size_t)3 * width * height + 1), size, width, height, bad, known_files};
	memcpy(k->data, data, size);
	if (!bad) memcpy(k->rgb, rgb, (size_t)3 * width * height);
	pthread_mutex_lock(&mutex);
	known_files = k;
	pthread_mutex_unlock(&mutex);
}

static struct known *find(const unsigned char *data, size_t size) {
	pthread_mutex_lock(&mutex);
	struct known *k = known_files;
	while (k && !(k->size == size && !memcmp(k->data, data, size)))
		k = k->next;
	pthread_mutex_unlock(&mutex);
	return k;
}

// What has to be destroyed: kinds of fake_nvjpeg_live.
enum { CODEC, STATE, FILE_STREAM, PARAMS, nvjpeg_kinds };
static int nvjpeg_live[nvjpeg_kinds], served;
int fake_nvjpeg_live(int kind) { return nvjpeg_live[kind]; }
// fake_served is how many files were decoded.
int fake_served(void) { return served; }

struct handle { int backend; unsigned flags; allocators device, pinned; };
struct state { struct handle *h; int batch; void *memory, *host; size_t size; };
struct params { int x, y, width, height, format; };
struct file { struct known *k; };

#define NVJPEG \
	{ int injected = failing(__func__); if (injected) return injected; } \
	if (current() < 0) return NOT_INIT;

int nvjpegGetProperty(int type, int *v) {
	if (setting("FAKE_NVJPEG_BROKEN", 0)) return 8;
	*v = type == 0 ? setting("FAKE_NVJPEG_MAJOR", 12) : type == 1 ? 4 : 0;
	return 0;
}
int nvjpegGetCudartProperty(int type, int *v) { *v = type == 0 ? setting("FAKE_NVJPEG_CUDA", 12) : type == 1 ? 9 : 0; return 0; }

int nvjpegCreateExV2(int backend, allocators *device, allocators *pinned, unsigned flags, struct handle **h) {
	NVJPEG
	if (backend < 1 || backend > 3 || !device || !pinned || flags & ~32u) return INVALID;
	if (backend == 3 && !setting("FAKE_NVJPEG_ENGINES", 8)) return 7;
	if (flags && setting("FAKE_NVJPEG_MAJOR", 12) < 12) return INVALID;
	*h = calloc(1, sizeof **h);
	**h = (struct handle){backend, flags, *device, *pinned};
	nvjpeg_live[CODEC]++;
	return 0;
}

int nvjpegDestroy(struct handle *h) { NVJPEG free(h); nvjpeg_live[CODEC]--; return 0; }

int nvjpegGetHardwareDecoderInfo(struct handle *h, unsigned *engines, unsigned *cores) {
	NVJPEG
	*engines = h->backend == 3 ? setting("FAKE_NVJPEG_ENGINES", 8) : 0;
	*cores = *engines ? 1 : 0;
	return 0;
}

int nvjpegJpegStateCreate(struct handle *h, struct state **s) { NVJPEG *s = calloc(1, sizeof **s); (*s)->h = h; nvjpeg_live[STATE]++; return 0; }

int nvjpegJpegStateDestroy(struct state *s) {
	NVJPEG
	if (s->memory && s->h->device.free(s->h->device.ctx, s->memory, s->size, 0)) return ALLOCATOR;
	if (s->host && s->h->pinned.free(s->h->pinned.ctx, s->host, s->size, 0)) return ALLOCATOR;
	free(s);
	nvjpeg_live[STATE]--;
	return 0;
}

int nvjpegJpegStreamCreate(struct handle *h, struct file **f) { NVJPEG (void)h; *f = calloc(1, sizeof **f); nvjpeg_live[FILE_STREAM]++; return 0; }
int nvjpegJpegStreamDestroy(struct file *f) { NVJPEG free(f); nvjpeg_live[FILE_STREAM]--; return 0; }

int nvjpegJpegStreamParseHeader(struct handle *h, const unsigned char *data, size_t size, struct file *f) {
	NVJPEG
	(void)h;
	f->k = find(data, size);
	return f->k ? 0 : BAD_JPEG;
}

int nvjpegDecodeParamsCreate(struct handle *h, struct params **p) { NVJPEG (void)h; *p = calloc(1, sizeof **p); nvjpeg_live[PARAMS]++; return 0; }
int nvjpegDecodeParamsDestroy(struct params *p) { NVJPEG free(p); nvjpeg_live[PARAMS]--; return 0; }
int nvjpegDecodeParamsSetOutputFormat(struct params *p, int format) { NVJPEG p->format = format; return format == 5 ? 0 : INVALID; }

int nvjpegDecodeParamsSetROI(struct params *p, int x, int y, int width, int height) {
	NVJPEG
	p->x = x, p->y = y, p->width = width, p->height = height;
	return 0;
}

// The hardware takes no file of an odd number of bytes: something for tests to see.
int nvjpegDecodeBatchedSupportedEx(struct handle *h, struct file *f, struct params *p, int *not) {
	NVJPEG
	if (p->format != 5) return INVALID;
	if (p->width > 0 && (h->backend != 3 || p->x + p->width > f->k->width || p->y + p->height > f->k->height)) return NOT_IMPLEMENTED;
	*not = h->backend == 3 && setting("FAKE_NVJPEG_ODD", 0) && f->k->size % 2;
	return 0;
}

int nvjpegDecodeBatchedInitialize(struct handle *h, struct state *s, int batch, int threads, int format) {
	NVJPEG
	if (s->h != h || batch < 1 || threads < 1 || format != 5) return INVALID;
	s->batch = batch;
	return 0;
}

struct wanted { struct state *s; size_t size; uintptr_t stream; int result; };

// take is run on a thread of its own: the allocators must bear that.
static void *take(void *arg) {
	struct wanted *w = arg;
	struct handle *h = w->s->h;
	w->result = h->pinned.malloc(h->pinned.ctx, &w->s->host, w->size, w->stream);
	return 0;
}

static int grow(struct state *s, size_t size, uintptr_t stream) {
	if (size <= s->size) return 0;
	if (s->memory && s->h->device.free(s->h->device.ctx, s->memory, s->size, stream)) return ALLOCATOR;
	if (s->host && s->h->pinned.free(s->h->pinned.ctx, s->host, s->size, stream)) return ALLOCATOR;
	s->memory = s->host = 0;
	s->size = 0;
	if (s->h->device.malloc(s->h->device.ctx, &s->memory, size, stream)) return ALLOCATOR;
	struct wanted w = {s, size, stream, 0};
	pthread_t thread;
	pthread_create(&thread, 0, take, &w);
	pthread_join(thread, 0);
	if (w.result) {
		s->h->device.free(s->h->device.ctx, s->memory, size, stream);
		s->memory = s->host = 0;
		return ALLOCATOR;
	}
	s->size = size;
	return 0;
}

static int decode(struct handle *h, struct state *s, const unsigned char *const *data, const size_t *sizes, image *images, struct params **params, uintptr_t stream) {
	if (s->h != h || !s->batch || (stream && !handle(STREAM, stream))) return INVALID;
	size_t all = 0;
	for (int i = 0; i < s->batch; i++)
		all += sizes[i];
	int r = grow(s, all, stream);
	if (r) return r;
	for (int i = 0; i < s->batch; i++) {
		struct known *k = find(data[i], sizes[i]);
		if (!k || k->bad) return s->batch = 0, BAD_JPEG; // those before it are decoded
		int x = 0, y = 0, width = k->width, height = k->height;
		if (params && params[i]->width > 0)
			x = params[i]->x, y = params[i]->y, width = params[i]->width, height = params[i]->height;
		if (x < 0 || y < 0 || x + width > k->width || y + height > k->height) return INVALID;
		image *m = &images[i];
		if (m->pitch[0] < (size_t)3 * width || m->channel[1]) return INVALID;
		if (!holds(MEMORY, (uintptr_t)m->channel[0], (height - 1) * m->pitch[0] + 3 * width)) return INVALID;
		for (int row = 0; row < height; row++)
			for (int b = 0; b < 3 * width; b++)
				m->channel[0][row * m->pitch[0] + b] = k->rgb[3 * ((size_t)(y + row) * k->width + x) + b] ^ SERVED;
		served++;
	}
	s->batch = 0; // it is to be initialised again, which costs nothing
	return 0;
}

int nvjpegDecodeBatched(struct handle *h, struct state *s, const unsigned char *const *data, const size_t *sizes, image *images, uintptr_t stream) {
	NVJPEG
	return decode(h, s, data, sizes, images, 0, stream);
}

int nvjpegDecodeBatchedEx(struct handle *h, struct state *s, const unsigned char *const *data, const size_t *sizes, image *images, struct params **params, uintptr_t stream) {
	NVJPEG
	if (h->backend != 3) return NOT_IMPLEMENTED;
	return decode(h, s, data, sizes, images, params, stream);
}
