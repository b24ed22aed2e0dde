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
// The thread that is run now: fake_kernels sets it.
static _Thread_local struct { u32 thread, block, block_y, blocks_y, threads; } now;
#define KERNEL static void
#define GLOBAL
#define THREAD now.thread
#define BLOCK now.block
#define BLOCK_Y now.block_y
#define BLOCKS_Y now.blocks_y
#define THREADS now.threads
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

enum { BRIGHTNESS = 1, CONTRAST, SATURATION, HUE, GRAYSCALE, INVERT, POSTERIZE, SOLARIZE };
enum { FILL, EDGE, REFLECT };

struct sample {
	double matrix[6]; // from the result to the source
	u32 warp;         // whether to sample by it
	u32 border;
	u32 flip_x, flip_y;
	u32 fill;         // red in the lowest byte
	u32 erase;        // the colour of [x0, x1) x [y0, y1)
	u32 x0, y0, x1, y1;
	u32 ops, contrast; // how many; which of them is the contrast, or ops
	struct op op[8];
};

struct augment {
	const u8 GLOBAL *src;
	u8 GLOBAL *dst;
	const struct sample GLOBAL *samples;
	u64 GLOBAL *sums; // of luma, for the contrast
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

// sampled weighs the four pixels round a place, as Pillow's transform with BILINEAR.
INLINE struct pixel sampled(const struct augment *a, const struct sample GLOBAL *s, const u8 GLOBAL *image, u32 ix, u32 iy) {
	if (!s->warp)
		return at(a, s, image, ix, iy);
	double u = ix + 0.5, v = iy + 0.5, w = a->width, h = a->height;
	double x = s->matrix[0] * u + s->matrix[1] * v + s->matrix[2];
	double y = s->matrix[3] * u + s->matrix[4] * v + s->matrix[5];
	const double far = 1e9;
	if (s->border == FILL ? !(x >= 0 && x < w && y >= 0 && y < h) : !(x > -far && x < far && y > -far && y < far))
		return (struct pixel){{s->fill & 255, s->fill >> 8 & 255, s->fill >> 16 & 255}};
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

// blend is Pillow's Image.blend of two samples.
INLINE u32 blend(u32 a, u32 b, float alpha) {
	float v = (float)a + alpha * (float)((int)b - (int)a);
	return v <= 0 ? 0 : v >= 255 ? 255 : (u32)v;
}

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
INLINE struct pixel shaded(const struct sample GLOBAL *s, struct pixel p, u32 ops, u32 mean) {
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
			}
			p.c[c] = v;
		}
	}
	return p;
}

// Each thread of augment_luma adds up the grey of 16 pixels as the contrast finds them.
KERNEL augment_luma(struct augment a) {
	u32 plane = a.width * a.height, first = (BLOCK * THREADS + THREAD) * 16;
	ROLLED for (u32 i = BLOCK_Y; i < a.n; i += BLOCKS_Y) {
		const struct sample GLOBAL *s = a.samples + i;
		if (s->contrast == s->ops || first >= plane)
			continue;
		u64 sum = 0;
		ROLLED for (u32 k = first; k < plane && k < first + 16; k++)
			sum += luma(shaded(s, sampled(&a, s, a.src + (u64)i * plane * 3, k % a.width, k / a.width), s->contrast, 0));
		__atomic_fetch_add(a.sums + i, sum, __ATOMIC_RELAXED);
	}
}

// Each thread of augment makes a pixel of each image.
KERNEL augment(struct augment a) {
	u32 plane = a.width * a.height, k = BLOCK * THREADS + THREAD;
	if (k >= plane)
		return;
	u32 x = k % a.width, y = k / a.width;
	ROLLED for (u32 i = BLOCK_Y; i < a.n; i += BLOCKS_Y) {
		const struct sample GLOBAL *s = a.samples + i;
		struct pixel p;
		if (x >= s->x0 && x < s->x1 && y >= s->y0 && y < s->y1) {
			p = (struct pixel){{s->erase & 255, s->erase >> 8 & 255, s->erase >> 16 & 255}};
		} else {
			u32 mean = s->contrast == s->ops ? 0 : (u32)((double)a.sums[i] / (double)plane + 0.5);
			p = shaded(s, sampled(&a, s, a.src + (u64)i * plane * 3, x, y), s->ops, mean);
		}
		u8 GLOBAL *out = a.dst + 3 * ((u64)i * plane + k);
		UNROLL for (int c = 0; c < 3; c++)
			out[c] = p.c[c];
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

#define BOTH(DO, PREFIX) DO(PREFIX##_nchw, normalize) DO(PREFIX##_nhwc, normalize)
#define KERNELS(DO) \
	BOTH(DO, normalize_float32) BOTH(DO, normalize_float16) BOTH(DO, normalize_bfloat16) BOTH(DO, normalize_uint8) \
	BOTH(DO, mixup_float32) BOTH(DO, mixup_float16) BOTH(DO, mixup_bfloat16) \
	BOTH(DO, cutmix_float32) BOTH(DO, cutmix_float16) BOTH(DO, cutmix_bfloat16) BOTH(DO, cutmix_uint8) \
	DO(augment_luma, augment) DO(augment, augment)

KERNELS(RUN)

#define ROW(NAME, ARGS) {#NAME, run_##NAME},
const struct kernel fake_kernels[] = {KERNELS(ROW) {0, 0}};
#endif
