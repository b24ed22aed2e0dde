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
	BOTH(DO, cutmix_float32) BOTH(DO, cutmix_float16) BOTH(DO, cutmix_bfloat16) BOTH(DO, cutmix_uint8)

KERNELS(RUN)

#define ROW(NAME, ARGS) {#NAME, run_##NAME},
const struct kernel fake_kernels[] = {KERNELS(ROW) {0, 0}};
#endif
