// The kernels, in C for two compilers: clang makes PTX of them (make kernels, which the
// repository has as kernels.ptx), and any C compiler a library of the host in which
// they are run thread by thread, for the tests. Arithmetic is IEEE's in both, operation by
// operation as it is written: -ffp-contract=off, and fma where it says so.
//
// A kernel takes one struct by value, whose fields Go has in the same order and sizes.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __NVPTX__
#define KERNEL __attribute__((nvptx_kernel)) void
#define GLOBAL __attribute__((address_space(1)))
#define THREAD __nvvm_read_ptx_sreg_tid_x()
#define BLOCK __nvvm_read_ptx_sreg_ctaid_x()
#define BLOCK_Y __nvvm_read_ptx_sreg_ctaid_y()
#define BLOCKS_Y __nvvm_read_ptx_sreg_nctaid_y()
#define THREADS __nvvm_read_ptx_sreg_ntid_x()
#else
#include <stdlib.h>
// The thread that is run now: fake_kernels sets it.
static _Thread_local struct { u32 thread, block, block_y, blocks_y, threads, backwards; } now;
#define KERNEL static void
#define GLOBAL
#define THREAD now.thread
#define BLOCK now.block
#define BLOCK_Y now.block_y
#define BLOCKS_Y now.blocks_y
#define THREADS now.threads
#endif

// Threads of a block that share memory work in steps, EACH_THREAD { … } SYNC; each: on the
// host a step is a loop over them, forwards or backwards, which shows where one reads what
// another of the same step writes. TILE is memory that they share; PRIVATE is a thread's own
// that outlives a step, and MINE it.
#define BLOCK_THREADS 256
#ifdef __NVPTX__
#define SHARED __attribute__((address_space(3)))
#define TILE(T, NAME, N) static SHARED __attribute__((loader_uninitialized)) T NAME[N]
#define PRIVATE(T, NAME, N) T NAME[1][N]
#define MINE(NAME) NAME[0]
#define EACH_THREAD
#define SYNC __syncthreads()
#define LOWER(P, V) __atomic_fetch_min(P, V, __ATOMIC_RELAXED)
#define RAISE(P, V) __atomic_fetch_max(P, V, __ATOMIC_RELAXED)
#else
#define SHARED
#define TILE(T, NAME, N) static _Thread_local T NAME[N]
#define PRIVATE(T, NAME, N) T NAME[BLOCK_THREADS][N]
#define MINE(NAME) NAME[THREAD]
#define EACH_THREAD \
	for (u32 turn = 0; now.thread = now.backwards ? now.threads - 1 - turn : turn, turn < now.threads; turn++)
#define SYNC
#define LOWER(P, V) (*(P) = *(P) < (V) ? *(P) : (V))
#define RAISE(P, V) (*(P) = *(P) > (V) ? *(P) : (V))
#endif

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("nounroll")
#else
#define UNROLL
#define ROLLED
#endif
#define INLINE static inline __attribute__((always_inline))

// Vectors of so many bytes, at multiples of as many.
typedef u32 v8 __attribute__((vector_size(8)));
typedef u32 v16 __attribute__((vector_size(16)));

// Rounding to 16 bits, ties to even.
INLINE u32 bits(float f) {
	u32 b;
	__builtin_memcpy(&b, &f, 4);
	return b;
}

INLINE u16 to_bfloat16(float f) {
	u32 b = bits(f);
	return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

INLINE u16 to_float16(float f) {
#ifdef __NVPTX__
	_Float16 h = (_Float16)f;
	u16 half;
	__builtin_memcpy(&half, &h, 2);
	return half;
#else
	u32 b = bits(f);
	u16 sign = b >> 16 & 0x8000;
	int e = (int)(b >> 23 & 0xff) - 127 + 15;
	if (e >= 31)
		return sign | 0x7c00;
	if (e <= 0) // as a multiple of 2^-24
		return sign | (u16)__builtin_nearbyint(__builtin_fabs((double)f) * (1 << 24));
	u32 m = (u32)e << 23 | (b & 0x7fffff);
	return sign | (m + 0xfff + (m >> 13 & 1)) >> 13;
#endif
}

// normalize: bytes, channels last, become floats of either layout, as imaging/tensor makes
// them; and batches are blended under MixUp and CutMix on the way.
struct normalize {
	const u8 GLOBAL *src; // [n][height*width][3]
	void GLOBAL *dst;
	u32 n, plane;         // images; pixels of each
	u32 width;
	float own, other;     // MixUp's weights of an image and of the one before it
	u32 x0, y0, x1, y1;   // CutMix's part, of the image before
	float mean[3], std[3], inverse[3]; // inverse: of std
};

// unit is (v/255 - mean) / std, of which each operation is rounded to float32.
//
// The quotient comes of the inverse by two corrections: after the first it is off by less
// than a unit in the last place, and then the second rounds it as a division does
// (Markstein, "Computation of elementary functions on the IBM RISC System/6000
// processor", 1990, theorem 7.1). That holds where nothing over- or underflows, which
// Go's side sees to.
INLINE float unit(const struct normalize *a, u32 v, int c) {
	float centered = (float)v * (float)(1. / 255) - a->mean[c];
	float q = centered * a->inverse[c];
	q = __builtin_fmaf(__builtin_fmaf(-q, a->std[c], centered), a->inverse[c], q);
	return __builtin_fmaf(__builtin_fmaf(-q, a->std[c], centered), a->inverse[c], q);
}

// cut says whether CutMix takes a pixel from the image before.
INLINE int cut(const struct normalize *a, u32 pixel) {
	u32 y = pixel / a->width, x = pixel % a->width;
	return x >= a->x0 && x < a->x1 && y >= a->y0 && y < a->y1;
}

// mixed is a float of an image, whose byte is v, and of the one before, whose byte is w.
INLINE float mixed(const struct normalize *a, u32 v, u32 w, int c) {
	return unit(a, w, c) * a->other + unit(a, v, c) * a->own;
}

// Each thread makes N pixels of each image, as many as 16 bytes of a channel hold, with
// loads of 3*N bytes and stores of 16; where planes are no multiple of that, one by one.
#define NORMALIZE(NAME, T, N, LOAD, PLANAR, BLEND, CONVERT) \
	KERNEL NAME(struct normalize a) { \
		u32 first = (BLOCK * THREADS + THREAD) * N; \
		if (first >= a.plane) \
			return; \
		for (u32 i = BLOCK_Y; i < a.n; i += BLOCKS_Y) { \
			const u8 GLOBAL *own = a.src + (u64)i * a.plane * 3; \
			const u8 GLOBAL *before = a.src + (u64)(i ? i - 1 : a.n - 1) * a.plane * 3; \
			T GLOBAL *dst = (T GLOBAL *)a.dst + (u64)i * a.plane * 3; \
			if (a.plane % N) { \
				ROLLED for (u32 k = first; k < a.plane && k < first + N; k++) \
					for (int c = 0; c < 3; c++) { \
						u64 at = 3 * (u64)k + c; \
						u32 w = BLEND ? before[at] : 0, v = BLEND == CUT && cut(&a, k) ? w : own[at]; \
						(void)w; \
						dst[PLANAR ? (u64)c * a.plane + k : at] = CONVERT; \
					} \
				continue; \
			} \
			union { u8 b[3 * N]; LOAD v[3]; } p, q = {{0}}; \
			union { T t[3 * N]; v16 v[3]; } out; \
			UNROLL for (int k = 0; k < 3; k++) \
				p.v[k] = ((const LOAD GLOBAL *)(own + 3 * (u64)first))[k]; \
			if (BLEND) \
				UNROLL for (int k = 0; k < 3; k++) \
					q.v[k] = ((const LOAD GLOBAL *)(before + 3 * (u64)first))[k]; \
			UNROLL for (int k = 0; k < N; k++) { \
				int other = BLEND == CUT && cut(&a, first + k); \
				UNROLL for (int c = 0; c < 3; c++) { \
					u32 w = q.b[3 * k + c], v = other ? w : p.b[3 * k + c]; \
					(void)w; \
					out.t[PLANAR ? c * N + k : 3 * k + c] = CONVERT; \
				} \
			} \
			UNROLL for (int c = 0; c < 3; c++) \
				*(v16 GLOBAL *)(dst + (PLANAR ? (u64)c * a.plane + first : 3 * (u64)first + c * N)) = out.v[c]; \
		} \
	}

enum { NONE, MIX, CUT };

#define LAYOUTS(PREFIX, T, N, LOAD, BLEND, CONVERT) \
	NORMALIZE(PREFIX##_nchw, T, N, LOAD, 1, BLEND, CONVERT) \
	NORMALIZE(PREFIX##_nhwc, T, N, LOAD, 0, BLEND, CONVERT)

LAYOUTS(normalize_float32, float, 4, u32, NONE, unit(&a, v, c))
LAYOUTS(normalize_float16, u16, 8, v8, NONE, to_float16(unit(&a, v, c)))
LAYOUTS(normalize_bfloat16, u16, 8, v8, NONE, to_bfloat16(unit(&a, v, c)))
LAYOUTS(normalize_uint8, u8, 16, v16, NONE, (u8)v)
LAYOUTS(mixup_float32, float, 4, u32, MIX, mixed(&a, v, w, c))
LAYOUTS(mixup_float16, u16, 8, v8, MIX, to_float16(mixed(&a, v, w, c)))
LAYOUTS(mixup_bfloat16, u16, 8, v8, MIX, to_bfloat16(mixed(&a, v, w, c)))
LAYOUTS(cutmix_float32, float, 4, u32, CUT, unit(&a, v, c))
LAYOUTS(cutmix_float16, u16, 8, v8, CUT, to_float16(unit(&a, v, c)))
LAYOUTS(cutmix_bfloat16, u16, 8, v8, CUT, to_bfloat16(unit(&a, v, c)))
LAYOUTS(cutmix_uint8, u8, 16, v16, CUT, (u8)v)

// augment: bytes, channels last, to such of the same size: each pixel is sampled where the
// image's map leads, and goes through the image's operations on colours, as in
// imaging/augment, whose bytes these are.
struct op { u32 kind; float value; };

enum { BRIGHTNESS = 1, CONTRAST, SATURATION, HUE, GRAYSCALE, INVERT, POSTERIZE, SOLARIZE, SHARPNESS, AUTO_CONTRAST, EQUALIZE };
enum { FILL, EDGE, REFLECT };

// How a map finds its pixels: the four round a place, or the nearest one, whose place Pillow
// finds in one of three ways.
enum { SMOOTH = 1, ALONG, FIXED, ADDED };

struct sample {
	union { double matrix[6]; long long fixed[6]; }; // from the result to the source
	u64 noise;        // the key of what is erased with noise
	u32 warp;         // how to sample by the matrix; 0: not at all
	u32 border;
	u32 flip_x, flip_y;     // of the source
	u32 mirror_x, mirror_y; // of the result
	u32 fill;         // red in the lowest byte
	u32 erase, noisy; // the colour of [x0, x1) x [y0, y1); whether it is noise instead
	u32 x0, y0, x1, y1;
	u32 ops, needs;   // how many; which of them needs all of the image first, or ops
	u32 blur[2];      // weights of half a kernel, across and down; 0: no blur, else that is all
	struct op op[8];  // SHARPNESS is the first, where nothing is warped
};

enum { NOISE_BITS = 12, BLUR_MOST = 32 };

// statistics are what an operation needs to know of all of an image.
struct statistics {
	u64 sum; // of luma
	u32 count[3 * 256];
	u8 table[3 * 256]; // what becomes of each level
};

struct augment {
	const u8 GLOBAL *src;
	u8 GLOBAL *dst;
	const struct sample GLOBAL *samples;
	struct statistics GLOBAL *statistics;
	const float GLOBAL *weights; // of blurs: [n][2][BLUR_MOST]
	const u8 GLOBAL *levels;     // of noise: [3][1 << NOISE_BITS]
	u32 n, height, width;
};

struct pixel { u32 c[3]; };

INLINE struct pixel at(const struct augment *a, const struct sample GLOBAL *s, const u8 GLOBAL *image, int x, int y) {
	if (s->flip_x)
		x = a->width - 1 - x;
	if (s->flip_y)
		y = a->height - 1 - y;
	const u8 GLOBAL *p = image + 3 * ((u64)y * a->width + x);
	return (struct pixel){{p[0], p[1], p[2]}};
}

INLINE int clamp(int i, int n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

// fold is where a place beside an image shows it: mirrored, without its edge twice.
INLINE int fold(int i, int n) {
	if (n == 1)
		return 0;
	int period = 2 * (n - 1);
	i %= period;
	i = i < 0 ? i + period : i;
	return i < n ? i : period - i;
}

INLINE double floor_of(double v) {
	double whole = (double)(int)v;
	return whole > v ? whole - 1 : whole;
}

INLINE u32 between(u32 p, u32 q, u32 r, u32 t, double dx, double dy) {
	double above = (double)p + (double)((int)q - (int)p) * dx;
	double below = (double)r + (double)((int)t - (int)r) * dx;
	return (u32)(int)(above + (below - above) * dy);
}

// within is where a pixel beside an image shows it, or -1.
INLINE int within(u32 border, int i, int n) {
	if (i >= 0 && i < n)
		return i;
	return border == FILL ? -1 : border == REFLECT ? fold(i, n) : clamp(i, n);
}

// pixel_of is the pixel in which a place lies.
INLINE int pixel_of(u32 border, double v, int n) {
	const double far = 1e9;
	return v >= 0 && v < n ? (int)v : v > -far && v < far ? within(border, (int)floor_of(v), n) : -1;
}

// added is start after so many additions of a step, each of which rounds.
INLINE double added(double start, double step, u32 times) {
	if (step == 1 && start > -1e9 && start < 1e9 && start * 2 == floor_of(start * 2))
		return start + times;
	ROLLED for (; times; times--)
		start += step;
	return start;
}

INLINE struct pixel filled(u32 c) { return (struct pixel){{c & 255, c >> 8 & 255, c >> 16 & 255}}; }

// nearest is the pixel in which a place lies.
INLINE struct pixel nearest(const struct augment *a, const struct sample GLOBAL *s, const u8 GLOBAL *image, u32 ix, u32 iy) {
	int width = a->width, height = a->height, x, y;
	if (s->warp == FIXED) {
		long long u = s->fixed[2] + s->fixed[1] * iy + s->fixed[0] * ix, v = s->fixed[5] + s->fixed[4] * iy + s->fixed[3] * ix;
		x = within(s->border, (int)(u >> 16), width), y = within(s->border, (int)(v >> 16), height);
	} else {
		const double GLOBAL *m = s->matrix;
		int along = s->warp == ALONG;
		double u = along ? m[2] + m[0] * 0.5 : added(m[2] + m[1] * 0.5 + m[0] * 0.5, m[1], iy);
		double v = along ? m[5] + m[4] * 0.5 : added(m[5] + m[4] * 0.5 + m[3] * 0.5, m[4], iy);
		x = pixel_of(s->border, added(u, m[0], ix), width);
		y = pixel_of(s->border, along ? added(v, m[4], iy) : added(v, m[3], ix), height);
	}
	if (x < 0 || y < 0)
		return filled(s->fill);
	return at(a, s, image, x, y);
}

// blend is Pillow's Image.blend of two samples.
INLINE u32 blend(u32 a, u32 b, float alpha) {
	float v = (float)a + alpha * (float)((int)b - (int)a);
	return v <= 0 ? 0 : v >= 255 ? 255 : (u32)v;
}

// sharpened blends a pixel with what it is smoothed to (Pillow's ImageFilter.SMOOTH), but
// for the outermost ones.
INLINE struct pixel sharpened(const struct augment *a, const struct sample GLOBAL *s, const u8 GLOBAL *image, u32 ix, u32 iy) {
	struct pixel p = at(a, s, image, ix, iy);
	if (!ix || !iy || ix + 1 >= a->width || iy + 1 >= a->height)
		return p;
	struct pixel sum = {{4 * p.c[0], 4 * p.c[1], 4 * p.c[2]}};
	UNROLL for (int k = 0; k < 9; k++) {
		struct pixel q = at(a, s, image, ix + k % 3 - 1, iy + k / 3 - 1);
		UNROLL for (int c = 0; c < 3; c++)
			sum.c[c] += q.c[c];
	}
	float value = s->op[0].value;
	UNROLL for (int c = 0; c < 3; c++)
		p.c[c] = blend((2 * sum.c[c] + 13) / 26, p.c[c], value);
	return p;
}

// sampled weighs the four pixels round a place, as Pillow's transform with BILINEAR.
INLINE struct pixel sampled(const struct augment *a, const struct sample GLOBAL *s, const u8 GLOBAL *image, u32 ix, u32 iy) {
	if (s->ops && s->op[0].kind == SHARPNESS)
		return sharpened(a, s, image, ix, iy);
	if (!s->warp)
		return at(a, s, image, ix, iy);
	if (s->warp != SMOOTH)
		return nearest(a, s, image, ix, iy);
	double u = ix + 0.5, v = iy + 0.5, w = a->width, h = a->height;
	double x = s->matrix[0] * u + s->matrix[1] * v + s->matrix[2];
	double y = s->matrix[3] * u + s->matrix[4] * v + s->matrix[5];
	const double far = 1e9;
	if (s->border == FILL ? !(x >= 0 && x < w && y >= 0 && y < h) : !(x > -far && x < far && y > -far && y < far))
		return filled(s->fill);
	x -= 0.5, y -= 0.5;
	double left = floor_of(x), top = floor_of(y);
	double dx = x - left, dy = y - top;
	int x0 = (int)left, y0 = (int)top, x1 = x0 + 1, y1 = y0 + 1, width = a->width, height = a->height;
	if (s->border == REFLECT)
		x0 = fold(x0, width), x1 = fold(x1, width), y0 = fold(y0, height), y1 = fold(y1, height);
	else
		x0 = clamp(x0, width), x1 = clamp(x1, width), y0 = clamp(y0, height), y1 = clamp(y1, height);
	struct pixel p = at(a, s, image, x0, y0), q = at(a, s, image, x1, y0), r = at(a, s, image, x0, y1), t = at(a, s, image, x1, y1);
	UNROLL for (int c = 0; c < 3; c++)
		p.c[c] = between(p.c[c], q.c[c], r.c[c], t.c[c], dx, dy);
	return p;
}

INLINE u32 luma(struct pixel p) { return (p.c[0] * 19595 + p.c[1] * 38470 + p.c[2] * 7471 + 0x8000) >> 16; }

INLINE double fraction(double v) { return v - (double)(int)v; }

// hue turns the hue of Pillow's mode HSV.
INLINE struct pixel turned(struct pixel p, u32 shift) {
	u32 r = p.c[0], g = p.c[1], b = p.c[2];
	u32 most = r > g ? r : g, least = r < g ? r : g;
	most = most > b ? most : b, least = least < b ? least : b;
	if (most == least) // there is no hue
		return (struct pixel){{most, most, most}};
	float span = (float)(most - least);
	float rc = (float)(most - r) / span, gc = (float)(most - g) / span, bc = (float)(most - b) / span;
	float turn = most == r ? bc - gc : most == g ? (float)(2 + (double)rc - (double)bc) : (float)(4 + (double)gc - (double)rc);
	turn = (float)fraction((double)turn / 6 + 1);
	u32 h = ((u32)((double)turn * 255) + shift) & 255, s = (u32)((double)(span / (float)most) * 255), v = most;
	if (!s)
		return (struct pixel){{v, v, v}};
	double circle = (double)h * 6 / 255;
	float f = (float)fraction(circle), fs = (float)((double)s / 255);
	u32 sextant = (u32)circle % 6, low = (2 * v * (255 - s) + 255) / 510;
	double part = sextant & 1 ? (double)(fs * f) : (double)fs * (1 - (double)f);
	u32 q = (u32)((double)v * (1 - part) + 0.5) & 255;
	switch (sextant) {
	case 0: return (struct pixel){{v, q, low}};
	case 1: return (struct pixel){{q, v, low}};
	case 2: return (struct pixel){{low, v, q}};
	case 3: return (struct pixel){{low, q, v}};
	case 4: return (struct pixel){{q, low, v}};
	}
	return (struct pixel){{v, low, q}};
}

// shaded is a pixel after the first operations.
INLINE struct pixel shaded(const struct sample GLOBAL *s, struct pixel p, u32 ops, u32 mean, const u8 GLOBAL *table) {
	ROLLED for (u32 i = 0; i < ops; i++) {
		float value = s->op[i].value;
		u32 kind = s->op[i].kind, gray = luma(p), whole = (u32)value;
		if (kind == HUE) {
			p = turned(p, whole);
			continue;
		}
		UNROLL for (int c = 0; c < 3; c++) {
			u32 v = p.c[c];
			switch (kind) {
			case BRIGHTNESS: v = blend(0, v, value); break;
			case CONTRAST: v = blend(mean, v, value); break;
			case SATURATION: v = blend(gray, v, value); break;
			case GRAYSCALE: v = gray; break;
			case INVERT: v = 255 - v; break;
			case POSTERIZE: v &= whole; break;
			case SOLARIZE: v = v >= whole ? 255 - v : v; break;
			case AUTO_CONTRAST: case EQUALIZE: v = table[256 * c + v]; break;
			}
			p.c[c] = v;
		}
	}
	return p;
}

// Each block of augment_statistics looks at 4096 pixels of an image as the operation that
// needs to know of all finds them: it adds up their grey, or counts their levels.
enum { LOOKS = 16 };

TILE(u32, counts, 3 * 256);
TILE(u64, total, 1);

KERNEL augment_statistics(struct augment a) {
	u32 plane = a.width * a.height;
	ROLLED for (u32 i = BLOCK_Y; i < a.n; i += BLOCKS_Y) {
		const struct sample GLOBAL *s = a.samples + i;
		struct statistics GLOBAL *out = a.statistics + i;
		if (s->needs == s->ops)
			continue;
		int grey = s->op[s->needs].kind == CONTRAST;
		EACH_THREAD {
			UNROLL for (u32 c = 0; c < 3; c++)
				counts[256 * c + THREAD] = 0;
			if (THREAD == 0)
				total[0] = 0;
		}
		SYNC;
		EACH_THREAD {
			u32 sum = 0;
			ROLLED for (u32 j = 0; j < LOOKS; j++) {
				u32 k = (BLOCK * LOOKS + j) * THREADS + THREAD;
				if (k >= plane)
					break;
				struct pixel p = shaded(s, sampled(&a, s, a.src + (u64)i * plane * 3, k % a.width, k / a.width), s->needs, 0, 0);
				if (grey) {
					sum += luma(p);
				} else {
					UNROLL for (u32 c = 0; c < 3; c++)
						__atomic_fetch_add(&counts[256 * c + p.c[c]], 1, __ATOMIC_RELAXED);
				}
			}
			if (grey)
				__atomic_fetch_add(&total[0], (u64)sum, __ATOMIC_RELAXED);
		}
		SYNC;
		EACH_THREAD {
			UNROLL for (u32 c = 0; c < 3; c++)
				if (!grey && counts[256 * c + THREAD])
					__atomic_fetch_add(&out->count[256 * c + THREAD], counts[256 * c + THREAD], __ATOMIC_RELAXED);
			if (grey && THREAD == 0)
				__atomic_fetch_add(&out->sum, total[0], __ATOMIC_RELAXED);
		}
		SYNC;
	}
}

// Each thread of augment_tables works out what becomes of a level of a channel, of which
// there is a block for each.
KERNEL augment_tables(struct augment a) {
	u32 v = THREAD, c = BLOCK, plane = a.width * a.height;
	ROLLED for (u32 i = BLOCK_Y; i < a.n; i += BLOCKS_Y) {
		const struct sample GLOBAL *s = a.samples + i;
		struct statistics GLOBAL *out = a.statistics + i;
		const u32 GLOBAL *count = out->count + 256 * c;
		if (s->needs == s->ops || s->op[s->needs].kind == CONTRAST)
			continue;
		u32 before = 0, first = 256, last = 0;
		ROLLED for (u32 k = 0; k < 256; k++) {
			u32 n = count[k];
			before += k < v ? n : 0;
			if (n)
				first = first < k ? first : k, last = k;
		}
		u32 to = v;
		if (s->op[s->needs].kind == AUTO_CONTRAST) {
			double low = first, scale = 1;
			if (last > first)
				scale = 255 / (double)(last - first);
			else
				low = 0;
			int level = (int)((double)v * scale + -low * scale);
			to = level < 0 ? 0 : level > 255 ? 255 : level;
		} else {
			u32 step = (plane - count[last]) / 255;
			if (step)
				to = (step / 2 + before) / step, to = to > 255 ? 255 : to;
		}
		out->table[256 * c + v] = to;
	}
}

// philox is a word of the numbers of imaging/augment's Rand: Philox4x64-10 (Salmon, Moraes,
// Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
INLINE u64 philox(u64 key, u64 use, u64 number) {
	u64 x0 = number / 4, x1 = 0, x2 = use, x3 = 0, k0 = key, k1 = 0;
	ROLLED for (int round = 0; round < 10; round++) {
		unsigned __int128 p = (unsigned __int128)0xd2e7470ee14c6c93 * x0, q = (unsigned __int128)0xca5a826395121157 * x2;
		x0 = (u64)(q >> 64) ^ x1 ^ k0, x1 = (u64)q;
		x2 = (u64)(p >> 64) ^ x3 ^ k1, x3 = (u64)p;
		k0 += 0x9e3779b97f4a7c15, k1 += 0xbb67ae8584caa73b;
	}
	switch (number % 4) {
	case 0: return x0;
	case 1: return x1;
	case 2: return x2;
	}
	return x3;
}

// noise is a pixel of what is erased with noise.
INLINE struct pixel noise(const struct augment *a, const struct sample GLOBAL *s, u32 x, u32 y) {
	const u32 each = 64 / NOISE_BITS;
	struct pixel p;
	ROLLED for (u32 c = 0; c < 3; c++) {
		u64 k = 3 * ((u64)(y - s->y0) * (s->x1 - s->x0) + (x - s->x0)) + c;
		u64 bits = philox(s->noise, 2, k / each) >> (u32)(k % each) * NOISE_BITS;
		u32 level = a->levels[c << NOISE_BITS | (u32)(bits & ((1 << NOISE_BITS) - 1))];
		p.c[0] = c == 0 ? level : p.c[0], p.c[1] = c == 1 ? level : p.c[1], p.c[2] = c == 2 ? level : p.c[2];
	}
	return p;
}

// Each thread of augment makes a pixel of each image; a block writes its pixels together.
TILE(u32, shown, 3 * BLOCK_THREADS / 4);

KERNEL augment(struct augment a) {
	u32 plane = a.width * a.height, first = BLOCK * THREADS;
	ROLLED for (u32 i = BLOCK_Y; i < a.n; i += BLOCKS_Y) {
		const struct sample GLOBAL *s = a.samples + i;
		if (s->blur[0])
			continue;
		EACH_THREAD {
			u32 k = first + THREAD;
			if (k < plane) {
				u32 x = k % a.width, y = k / a.width;
				x = s->mirror_x ? a.width - 1 - x : x, y = s->mirror_y ? a.height - 1 - y : y;
				struct pixel p;
				if (x >= s->x0 && x < s->x1 && y >= s->y0 && y < s->y1) {
					p = s->noisy ? noise(&a, s, x, y) : filled(s->erase);
				} else {
					u32 mean = 0;
					if (s->needs < s->ops && s->op[s->needs].kind == CONTRAST)
						mean = (u32)((double)a.statistics[i].sum / (double)plane + 0.5);
					p = shaded(s, sampled(&a, s, a.src + (u64)i * plane * 3, x, y), s->ops, mean, a.statistics[i].table);
				}
				u8 SHARED *out = (u8 SHARED *)shown + 3 * THREAD;
				UNROLL for (int c = 0; c < 3; c++)
					out[c] = p.c[c];
			}
		}
		SYNC;
		EACH_THREAD {
			u32 rest = plane - first, count = 3 * (rest < BLOCK_THREADS ? rest : BLOCK_THREADS);
			u8 GLOBAL *out = a.dst + 3 * ((u64)i * plane + first);
			if (plane % 4)
				ROLLED for (u32 k = THREAD; k < count; k += THREADS)
					out[k] = ((u8 SHARED *)shown)[k];
			else
				ROLLED for (u32 k = THREAD; k < count / 4; k += THREADS)
					((u32 GLOBAL *)out)[k] = shown[k];
		}
		SYNC;
	}
}

// augment_blur convolves the images that have a blur, a tile of BLUR_WIDTH x BLUR_HEIGHT
// pixels a block: down the columns into shared memory, then across.
enum { BLUR_WIDTH = 32, BLUR_HEIGHT = 8, BLUR_LINE = 3 * (BLUR_WIDTH + 2 * BLUR_MOST) };

TILE(float, columns_of, BLUR_LINE * BLUR_HEIGHT);

KERNEL augment_blur(struct augment a) {
	u32 tiles = (a.width + BLUR_WIDTH - 1) / BLUR_WIDTH;
	u32 x0 = BLOCK % tiles * BLUR_WIDTH, y0 = BLOCK / tiles * BLUR_HEIGHT;
	u32 wide = a.width - x0 < BLUR_WIDTH ? a.width - x0 : BLUR_WIDTH, high = a.height - y0 < BLUR_HEIGHT ? a.height - y0 : BLUR_HEIGHT;
	ROLLED for (u32 i = BLOCK_Y; i < a.n; i += BLOCKS_Y) {
		const struct sample GLOBAL *s = a.samples + i;
		if (!s->blur[0])
			continue;
		u32 across = s->blur[0], down = s->blur[1], side = across - 1, line = 3 * (wide + 2 * side);
		const float GLOBAL *weights = a.weights + (u64)i * 2 * BLUR_MOST;
		const u8 GLOBAL *src = a.src + 3 * (u64)i * a.width * a.height;
		EACH_THREAD {
			ROLLED for (u32 k = THREAD; k < high * line; k += THREADS) {
				int y = y0 + k / line;
				u32 b = k % line, c = b % 3;
				const u8 GLOBAL *column = src + 3 * fold((int)(x0 + b / 3) - (int)side, a.width) + c;
				float sum = (float)column[3 * (u64)y * a.width] * weights[BLUR_MOST];
				ROLLED for (int j = 1; j < (int)down; j++) {
					u32 above = column[3 * (u64)fold(y - j, a.height) * a.width], below = column[3 * (u64)fold(y + j, a.height) * a.width];
					sum += weights[BLUR_MOST + j] * (float)(int)(above + below);
				}
				columns_of[k] = sum;
			}
		}
		SYNC;
		EACH_THREAD {
			ROLLED for (u32 k = THREAD; k < high * 3 * wide; k += THREADS) {
				u32 y = k / (3 * wide), b = k % (3 * wide);
				const float SHARED *middle = columns_of + y * line + 3 * side + b;
				float sum = middle[0] * weights[0];
				ROLLED for (int j = 1; j < (int)across; j++)
					sum += weights[j] * (middle[-3 * j] + middle[3 * j]);
				sum = sum < 0 ? 0 : sum > 255 ? 255 : sum;
				// Adding and taking away 2^23 rounds half to even.
				sum = (sum + 0x1p23f) - 0x1p23f;
				a.dst[3 * (((u64)i * a.height + y0 + y) * a.width + x0) + b] = (u8)(u32)sum;
			}
		}
		SYNC;
	}
}

// resize: parts of images of any sizes become images of one size, as imaging/resize (and
// so Pillow) scales them, byte for byte: in two passes, each of which rounds to bytes, of
// which the first is kept in shared memory, as far as a tile of the result needs it.
enum { BILINEAR, BOX, BICUBIC, LANCZOS };
enum { CONSTANT, EDGES, REFLECTED, SYMMETRIC };
enum { PRECISION = 22, HALF = 1 << (PRECISION - 1) };

// axis is how one axis of an image is scaled.
struct axis {
	double from, scale, support, step; // resize.Axis
	int GLOBAL *table; // of the n samples of the result, side by side: first[n], count[n], weights[][n]
	u32 source, size;  // samples there are; to how many the part is scaled
	int window;        // which of those the result begins with
	u32 scales, flip;
};

struct resizing {
	struct axis axis[2]; // across, down
	const u8 GLOBAL *src; // of the part that is looked at
	const u8 GLOBAL *begin, *end; // of the whole image
	u32 pitch, filter, padding, fill;
	u32 across_first;
};

struct resize {
	const struct resizing GLOBAL *each;
	u8 GLOBAL *dst; // [n][height][width][3]
	u32 n, width, height;
};

// sine is sin for small arguments as Go's math.Sin and so imaging/resize computes it, by the
// polynomials of Moshier's Cephes library.
INLINE double sine(double x) {
	double whole = x < 0 ? -x : x;
	u64 octant = (u64)(whole * (4 / 3.14159265358979323846));
	octant += octant & 1;
	double y = (double)octant;
	octant &= 7;
	double z = ((whole - y * 7.85398125648498535156e-1) - y * 3.77489470793079817668e-8) - y * 2.69515142907905952645e-15;
	int minus = (x < 0) != (octant > 3);
	octant &= 3;
	double s = z * z;
	if (octant == 1 || octant == 2)
		y = 1.0 - 0.5 * s + s * s * ((((((-1.13585365213876817300e-11 * s) + 2.08757008419747316778e-9) * s + -2.75573141792967388112e-7) * s + 2.48015872888517045348e-5) * s + -1.38888888888730564116e-3) * s + 4.16666666666665929218e-2);
	else
		y = z + z * s * ((((((1.58962301576546568060e-10 * s) + -2.50507477628578072866e-8) * s + 2.75573136857213245223e-6) * s + -1.98412698295895385996e-4) * s + 8.33333333332211858878e-3) * s + -1.66666666666666307295e-1);
	return minus ? -y : y;
}

INLINE double sinc(double x) {
	if (x == 0)
		return 1;
	x *= 3.14159265358979323846;
	return sine(x) / x;
}

// weight is a filter's, before the weights of a sample are divided by their sum.
INLINE double weight(u32 filter, double x) {
	double far = x < 0 ? -x : x;
	switch (filter) {
	case BILINEAR:
		return 1 - far > 0 ? 1 - far : 0;
	case BOX:
		return x > -0.5 && x <= 0.5;
	case BICUBIC:
		return far < 1 ? (1.5 * far - 2.5) * far * far + 1 : far < 2 ? (((far - 5) * far + 8) * far - 4) * -0.5 : 0;
	}
	return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

// padded is which of n samples stands for number i, or -1 for the colour of the padding.
INLINE int padded(u32 mode, int i, int n) {
	if (i >= 0 && i < n)
		return i;
	switch (mode) {
	case EDGES:
		return clamp(i, n);
	case REFLECTED:
		return fold(i, n);
	case SYMMETRIC:
		i %= 2 * n;
		i = i < 0 ? i + 2 * n : i;
		return i < n ? i : 2 * n - 1 - i;
	}
	return -1;
}

// Each thread of resize_weights makes the weights of a column or a row of each result.
KERNEL resize_weights(struct resize a) {
	u32 k = BLOCK * THREADS + THREAD, down = k >= a.width, n = down ? a.height : a.width;
	if (k >= a.width + a.height)
		return;
	if (down)
		k -= a.width;
	ROLLED for (u32 i = BLOCK_Y; i < a.n; i += BLOCKS_Y) {
		const struct axis GLOBAL *z = a.each[i].axis + down;
		int source = z->source;
		int GLOBAL *table = z->table + k;
		int at = padded(a.each[i].padding, z->window + (int)(z->flip ? n - 1 - k : k), z->size);
		if (at < 0 || !z->scales) {
			table[0] = at, table[n] = at >= 0;
			table[2 * n] = 1 << PRECISION;
			continue;
		}
		u32 filter = a.each[i].filter;
		double support = z->support, step = z->step, center = z->from + ((double)at + 0.5) * z->scale;
		int first = (int)(center - support + 0.5), end = (int)(center + support + 0.5);
		first = first < 0 ? 0 : first, end = end > source ? source : end;
		if (end <= first) // only where rounding takes the centre to the very end
			first = source - 1, end = source;
		double sum = 0;
		ROLLED for (int j = first; j < end; j++)
			sum += weight(filter, ((double)j - center + 0.5) * step);
		table[0] = first, table[n] = end - first;
		ROLLED for (int j = first; j < end; j++) {
			double w = weight(filter, ((double)j - center + 0.5) * step);
			if (sum != 0)
				w /= sum;
			w *= 1 << PRECISION;
			table[(u64)(2 + j - first) * n] = (int)(w < 0 ? w - 0.5 : w + 0.5);
		}
	}
}

// clipped is the byte of a sum of weighted ones.
INLINE u8 clipped(u32 sum) {
	int v = (int)sum >> PRECISION;
	return v < 0 ? 0 : v > 255 ? 255 : v;
}

// word is four bytes of an image, of which those beyond it are 0.
INLINE u32 word(const struct resizing GLOBAL *z, const u8 GLOBAL *p) {
	if (p >= z->begin && p + 4 <= z->end)
		return *(const u32 GLOBAL *)p;
	u32 v = 0;
	ROLLED for (int k = 0; k < 4; k++)
		if (p + k >= z->begin && p + k < z->end)
			v |= (u32)p[k] << 8 * k;
	return v;
}

// A block makes TILE_WIDTH x TILE_HEIGHT pixels of each image.
enum {
	TILE_WIDTH = 32, TILE_HEIGHT = 16, // a column of threads has every eighth row
	TILE_EACH = TILE_WIDTH * TILE_HEIGHT / BLOCK_THREADS,
	LINES = 32,           // rows of the first pass that are kept at once; so many bytes they have:
	LINE = 3 * TILE_WIDTH,
	STAGE = 12 << 10,     // bytes of rows of the source, for the first pass
	LEAST_STAGED = 8,     // rows; fewer are not worth it
	STRIP = LINES * LINE / TILE_HEIGHT / 3, // columns of the first pass that are kept where that goes down
	FAR_AWAY = 1 << 30,
};

TILE(u32, stage, STAGE / 4);
TILE(u32, lines, LINES * LINE / 4);
TILE(int, bounds, 4);

KERNEL resize(struct resize a) {
	u32 tiles = (a.width + TILE_WIDTH - 1) / TILE_WIDTH;
	u32 x0 = BLOCK % tiles * TILE_WIDTH, y0 = BLOCK / tiles * TILE_HEIGHT;
	u32 wide = a.width - x0 < TILE_WIDTH ? a.width - x0 : TILE_WIDTH, high = a.height - y0 < TILE_HEIGHT ? a.height - y0 : TILE_HEIGHT;
	u8 SHARED *line = (u8 SHARED *)lines;
	ROLLED for (u32 i = BLOCK_Y; i < a.n; i += BLOCKS_Y) {
		const struct resizing GLOBAL *z = a.each + i;
		const int GLOBAL *columns = z->axis[0].table + x0;
		const int GLOBAL *rows = z->axis[1].table + y0;
		PRIVATE(u32, sum, 3 * TILE_EACH);
		EACH_THREAD {
			if (THREAD < 4)
				bounds[THREAD] = THREAD & 1 ? 0 : FAR_AWAY;
			UNROLL for (int k = 0; k < 3 * TILE_EACH; k++)
				MINE(sum)[k] = HALF;
		}
		SYNC;
		EACH_THREAD {
			u32 down = THREAD >= TILE_WIDTH, k = down ? THREAD - TILE_WIDTH : THREAD;
			if (k < (down ? high : wide)) {
				const int GLOBAL *table = (down ? rows : columns) + k;
				int count = table[down ? a.height : a.width];
				if (count > 0) {
					LOWER(&bounds[2 * down], table[0]);
					RAISE(&bounds[2 * down + 1], table[0] + count);
				}
			}
		}
		SYNC;
		int left = bounds[0], right = bounds[1], top = bounds[2], bottom = bounds[3];
		if (left >= right || top >= bottom) {
			// It is all padding.
		} else if (z->across_first) {
			u32 pitch = (3 * (u32)(right - left) + 6) & ~3u, most = STAGE / pitch, staged = most >= LEAST_STAGED;
			if (!staged || most > LINES)
				most = LINES;
			ROLLED for (int from = top; from < bottom; from += most) {
				int to = from + (int)most < bottom ? from + (int)most : bottom;
				const u8 GLOBAL *source = z->src + (u64)from * z->pitch + 3 * (u64)left;
				if (staged) {
					EACH_THREAD {
						ROLLED for (u32 r = THREAD / 32; (int)r < to - from; r += THREADS / 32) {
							const u8 GLOBAL *row = source + (u64)r * z->pitch;
							row -= (u64)row & 3;
							ROLLED for (u32 k = THREAD % 32; k < pitch / 4; k += 32)
								stage[r * (pitch / 4) + k] = word(z, row + 4 * k);
						}
					}
					SYNC;
				}
				EACH_THREAD {
					u32 x = THREAD % TILE_WIDTH;
					if (x < wide) {
						int first = columns[x], count = columns[x + a.width];
						ROLLED for (u32 r = THREAD / TILE_WIDTH; (int)r < to - from; r += THREADS / TILE_WIDTH) {
							const u8 GLOBAL *row = source + (u64)r * z->pitch;
							const u8 *p = staged ? (const u8 *)stage + r * pitch + ((u64)row & 3) : (const u8 *)row;
							p += 3 * (first - left);
							u32 red = HALF, green = HALF, blue = HALF;
							ROLLED for (int j = 0; j < count; j++) {
								u32 w = columns[x + (u64)(2 + j) * a.width];
								red += w * p[0], green += w * p[1], blue += w * p[2];
								p += 3;
							}
							u8 SHARED *out = line + r * LINE + 3 * x;
							out[0] = clipped(red), out[1] = clipped(green), out[2] = clipped(blue);
						}
					}
				}
				SYNC;
				EACH_THREAD {
					u32 x = THREAD % TILE_WIDTH;
					UNROLL for (u32 k = 0; k < TILE_EACH; k++) {
						u32 y = THREAD / TILE_WIDTH + k * (BLOCK_THREADS / TILE_WIDTH);
						if (x < wide && y < high) {
							int first = rows[y], end = first + rows[y + a.height];
							end = end < to ? end : to;
							ROLLED for (int r = first > from ? first : from; r < end; r++) {
								u32 w = rows[y + (u64)(2 + r - first) * a.height];
								const u8 SHARED *p = line + (r - from) * LINE + 3 * x;
								UNROLL for (u32 c = 0; c < 3; c++)
									MINE(sum)[3 * k + c] += w * p[c];
							}
						}
					}
				}
				SYNC;
			}
		} else {
			ROLLED for (int from = left; from < right; from += STRIP) {
				int to = from + STRIP < right ? from + STRIP : right;
				EACH_THREAD {
					ROLLED for (u32 k = THREAD; k < high * 3 * STRIP; k += THREADS) {
						u32 y = k / (3 * STRIP), b = k % (3 * STRIP), total = HALF;
						if ((int)b < 3 * (to - from)) {
							int first = rows[y], count = rows[y + a.height];
							const u8 GLOBAL *p = z->src + (u64)first * z->pitch + 3 * (u64)from + b;
							ROLLED for (int j = 0; j < count; j++, p += z->pitch)
								total += (u32)rows[y + (u64)(2 + j) * a.height] * *p;
							line[k] = clipped(total);
						}
					}
				}
				SYNC;
				EACH_THREAD {
					u32 x = THREAD % TILE_WIDTH;
					UNROLL for (u32 k = 0; k < TILE_EACH; k++) {
						u32 y = THREAD / TILE_WIDTH + k * (BLOCK_THREADS / TILE_WIDTH);
						if (x < wide && y < high) {
							int first = columns[x], end = first + columns[x + a.width];
							end = end < to ? end : to;
							ROLLED for (int j = first > from ? first : from; j < end; j++) {
								u32 w = columns[x + (u64)(2 + j - first) * a.width];
								const u8 SHARED *p = line + 3 * (y * STRIP + (u32)(j - from));
								UNROLL for (u32 c = 0; c < 3; c++)
									MINE(sum)[3 * k + c] += w * p[c];
							}
						}
					}
				}
				SYNC;
			}
		}
		EACH_THREAD {
			u32 x = THREAD % TILE_WIDTH;
			UNROLL for (u32 k = 0; k < TILE_EACH; k++) {
				u32 y = THREAD / TILE_WIDTH + k * (BLOCK_THREADS / TILE_WIDTH);
				if (x < wide && y < high) {
					int shows = columns[x + a.width] > 0 && rows[y + a.height] > 0;
					UNROLL for (u32 c = 0; c < 3; c++)
						line[y * LINE + 3 * x + c] = shows ? clipped(MINE(sum)[3 * k + c]) : z->fill >> 8 * c & 255;
				}
			}
		}
		SYNC;
		EACH_THREAD {
			u8 GLOBAL *out = a.dst + 3 * (((u64)i * a.height + y0) * a.width + x0);
			if (a.width % 4) {
				ROLLED for (u32 k = THREAD; k < high * LINE; k += THREADS)
					if (k % LINE < 3 * wide)
						out[3 * (u64)(k / LINE) * a.width + k % LINE] = line[k];
			} else {
				ROLLED for (u32 k = THREAD; k < high * (LINE / 4); k += THREADS)
					if (4 * (k % (LINE / 4)) < 3 * wide)
						*(u32 GLOBAL *)(out + 3 * (u64)(k / (LINE / 4)) * a.width + 4 * (k % (LINE / 4))) = lines[k];
			}
		}
		SYNC;
	}
}

#ifndef __NVPTX__
// Kernels of the host, for the test double of the driver: run does a grid, thread by thread.
struct kernel { const char *name; void (*run)(const void *args, const u32 *blocks, const u32 *threads); };

#define RUN(NAME, ARGS) \
	static void run_##NAME(const void *args, const u32 *blocks, const u32 *threads) { \
		now.threads = threads[0], now.blocks_y = blocks[1]; \
		for (now.block_y = 0; now.block_y < blocks[1]; now.block_y++) \
			for (now.block = 0; now.block < blocks[0]; now.block++) \
				for (now.thread = 0; now.thread < threads[0]; now.thread++) \
					NAME(*(const struct ARGS *)args); \
	}

// Of those whose threads work in steps: block by block.
#define RUN_BLOCKS(NAME, ARGS) \
	static void run_##NAME(const void *args, const u32 *blocks, const u32 *threads) { \
		if (threads[0] != BLOCK_THREADS) \
			abort(); \
		const char *v = getenv("FAKE_CUDA_BACKWARDS"); \
		now.backwards = v && v[0] == '1'; \
		now.threads = threads[0], now.blocks_y = blocks[1]; \
		for (now.block_y = 0; now.block_y < blocks[1]; now.block_y++) \
			for (now.block = 0; now.block < blocks[0]; now.block++) \
				NAME(*(const struct ARGS *)args); \
	}

#define BOTH(DO, PREFIX) DO(PREFIX##_nchw, normalize) DO(PREFIX##_nhwc, normalize)
#define KERNELS(DO) \
	BOTH(DO, normalize_float32) BOTH(DO, normalize_float16) BOTH(DO, normalize_bfloat16) BOTH(DO, normalize_uint8) \
	BOTH(DO, mixup_float32) BOTH(DO, mixup_float16) BOTH(DO, mixup_bfloat16) \
	BOTH(DO, cutmix_float32) BOTH(DO, cutmix_float16) BOTH(DO, cutmix_bfloat16) BOTH(DO, cutmix_uint8) \
	DO(augment_tables, augment) \
	DO(resize_weights, resize)
#define BLOCK_KERNELS(DO) DO(augment, augment) DO(augment_statistics, augment) DO(augment_blur, augment) DO(resize, resize)

KERNELS(RUN)
BLOCK_KERNELS(RUN_BLOCKS)

#define ROW(NAME, ARGS) {#NAME, run_##NAME},
const struct kernel fake_kernels[] = {KERNELS(ROW) BLOCK_KERNELS(ROW) {0, 0}};
#endif
