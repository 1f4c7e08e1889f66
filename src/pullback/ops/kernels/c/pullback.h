/* What the kernels share. Every kernel takes contiguous float32 arrays and runs on `threads` OpenMP threads.
   No fast-math: NaN and infinity go through as in torch, and the library changes no floating-point mode of the process. */
#include <math.h>
#include <stdint.h>

#define GRAIN 32768
#define DO_PRAGMA(text) _Pragma(#text)
#define PARALLEL(n) DO_PRAGMA(omp parallel for simd if (parallel : (n) > GRAIN) num_threads(threads) schedule(static))

typedef union {
    float f;
    int32_t i;
} bits32;

static inline float power_of_two(int32_t n) {
    bits32 u;
    u.i = (int32_t)((uint32_t)(n + 127) << 23);
    return u.f;
}

/* exp(x) within 1.5 units in the last place; 0 where the result would be subnormal, infinity where it would overflow.
   x = n ln 2 + r with |r| <= ln(2) / 2, n by the addend that leaves no bits for fractions; Taylor polynomial of degree 7 in r. */
static inline float exp_(float x) {
    float clamped = x > 88.72283f ? 88.72283f : x;
    clamped = clamped < -87.33654f ? -87.33654f : clamped;
    float shifted = clamped * 1.44269504088896341f + 12582912.0f;
    bits32 u;
    u.f = shifted;
    int32_t n = u.i - 0x4B400000;
    float whole = shifted - 12582912.0f;
    float r = clamped - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    float p = 1.9841270e-4f;
    p = p * r + 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666668e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    int32_t half = n >> 1; /* 2^n in two steps, since 2^128 is no float */
    float y = p * power_of_two(half) * power_of_two(n - half);
    y = x < -87.33654f ? 0.0f : y;
    return x > 88.72283f ? INFINITY : y;
}

/* exp(x) for |x| <= 88, within 1 unit in the last place: the polynomial has the least relative error of its degree. */
static inline float exp_inside(float x) {
    float shifted = x * 1.44269504088896341f + 12582912.0f;
    bits32 u;
    u.f = shifted;
    float whole = shifted - 12582912.0f;
    float r = x - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    float p = 1.381459879e-3f;
    p = p * r + 8.368716575e-3f;
    p = p * r + 4.166838899e-2f;
    p = p * r + 1.666652113e-1f;
    p = p * r + 0.49999994f;
    p = p * r * r + r + 1.0f;
    return p * power_of_two(u.i - 0x4B400000);
}

static inline float inside(float x) {
    float low = x < -87.0f ? -87.0f : x;
    return low > 87.0f ? 87.0f : low;
}

/* exp(x) for sums: 0 below -87, infinity above 87. */
static inline float exp_87(float x) {
    float e = exp_inside(inside(x));
    e = x < -87.0f ? 0.0f : e;
    return x > 87.0f ? INFINITY : e;
}

/* a sigmoid(x) */
static inline float times_sigmoid(float a, float x) {
    float e = exp_inside(inside(-x));
    return a / (1.0f + (x < -87.0f ? INFINITY : e));
}

/* s = sigmoid(x), and 1 - s without cancellation. */
static inline float sigmoid_(float x, float *rest) {
    float e = exp_inside(inside(-x));
    float s = 1.0f / (1.0f + e);
    *rest = x > 87.0f ? 0.0f : e * s;
    return x < -87.0f ? 0.0f : s;
}

/* Random words: see streams.py, which says what they are. Shifts of negative numbers are arithmetic, sums and products wrap. */
#define BLOCK 131072
#define PIECE 4096 /* of a block: what a thread takes at once */

static inline void block_keys(int64_t seed, int64_t block, int32_t keys[2]) {
    uint64_t z = (uint64_t)seed + (uint64_t)(block + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    keys[0] = (int32_t)(uint32_t)z;
    keys[1] = (int32_t)(uint32_t)(z >> 32);
}

static inline int32_t word(int32_t index, const int32_t keys[2]) {
    uint32_t h = (uint32_t)index * 0x9E3779B1u + (uint32_t)keys[0];
    h ^= (uint32_t)((int32_t)h >> 16);
    h = (h * 0x21F0AAADu) ^ (uint32_t)keys[1];
    h ^= (uint32_t)((int32_t)h >> 15);
    return (int32_t)(h * 0xD35A2D97u);
}
