#include "pullback.h"

#define HALF 512
#define MIDDLE 0.50000006f

/* sin(2 pi t) for |t| <= 1/4 within 2 units in the last place: the polynomial has the least relative error of its degree. */
static inline float sin_turns(float t) {
    float s = t * t;
    float p = 3.971092797e+1f;
    p = p * s - 7.657499360e+1f;
    p = p * s + 8.160223131e+1f;
    p = p * s - 4.134167748e+1f;
    p = p * s + 6.283185274f;
    return p * t;
}

/* log(x) for normal x > 0 within 2 units in the last place: x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and the polynomial in f of least
   relative error. */
static inline float log_(float x) {
    bits32 u;
    u.f = x;
    int32_t e = (u.i - 0x3F3504F3) >> 23;
    u.i -= (int32_t)((uint32_t)e << 23);
    float f = u.f - 1.0f;
    float p = -1.008238093e-1f;
    p = p * f + 1.618050181e-1f;
    p = p * f - 1.724322424e-1f;
    p = p * f + 1.990688309e-1f;
    p = p * f - 2.497122854e-1f;
    p = p * f + 3.333471491e-1f;
    p = p * f - 5.000032344e-1f;
    p = p * f * f + f;
    return (float)e * 0.693147180559945f + p;
}

/* The radius and the angle, in turns, of the pair at `place`. */
static inline float polar(int32_t place, const int32_t keys[2], float *turns) {
    *turns = (float)word(place + HALF, keys) * 2.3283064e-10f;
    return sqrtf(-2.0f * log_((float)word(place, keys) * 2.3283064e-10f + MIDDLE));
}

/* y = x + std n with n normal by Box and Muller: places i and i + HALF of two halves share the radius that word i gives and the angle that the other
   gives. */
void add_noise(int64_t n, int threads, const float *restrict x, float *restrict y, const int64_t *seed, float std) {
    const int64_t groups = (n + 2 * HALF - 1) / (2 * HALF);
#pragma omp parallel for if (n > GRAIN) num_threads(threads) schedule(static)
    for (int64_t k = 0; k < groups; k++) {
        const int64_t start = k * 2 * HALF, left = n - start;
        const int32_t count = (int32_t)(left < HALF ? left : HALF), place = (int32_t)(start % BLOCK);
        const int32_t pairs = (int32_t)(left < HALF ? 0 : left < 2 * HALF ? left - HALF : HALF);
        int32_t keys[2];
        block_keys(*seed, start / BLOCK, keys);
        const float *from = x + start;
        float *to = y + start;
        for (int32_t i = 0; i < 2 * HALF; i += 16) __builtin_prefetch(from + 2 * HALF + i); /* the next group: a fifth of the time of large tensors */
#pragma omp simd
        for (int32_t i = 0; i < pairs; i++) {
            float t, radius = std * polar(place + i, keys, &t);
            float quarter = 0.25f - fabsf(t); /* cos(2 pi t) = sin(2 pi quarter), and |sin(2 pi t)| = sin(2 pi (1/4 - |quarter|)) */
            to[i] = from[i] + radius * sin_turns(quarter);
            to[i + HALF] = from[i + HALF] + radius * copysignf(sin_turns(0.25f - fabsf(quarter)), t);
        }
#pragma omp simd
        for (int32_t i = pairs; i < count; i++) {
            float t, radius = std * polar(place + i, keys, &t);
            to[i] = from[i] + radius * sin_turns(0.25f - fabsf(t));
        }
    }
}
