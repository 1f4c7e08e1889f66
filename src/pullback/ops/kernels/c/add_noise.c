#include "pullback.h"

#define HALF 512
#define MIDDLE 0.50000006f

/* sin(2 pi t) for |t| <= 1/4, Taylor polynomial of degree 13. */
static inline float sin_turns(float t) {
    float a = 6.28318530717958648f * t;
    float s = a * a;
    float p = 1.6059044e-10f;
    p = p * s - 2.5052108e-8f;
    p = p * s + 2.7557319e-6f;
    p = p * s - 1.9841270e-4f;
    p = p * s + 8.3333333e-3f;
    p = p * s - 1.6666667e-1f;
    return p * s * a + a;
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
#pragma omp simd
        for (int32_t i = 0; i < pairs; i++) {
            float t, radius = std * polar(place + i, keys, &t);
            float folded = t > 0.25f ? 0.5f - t : t;
            folded = t < -0.25f ? -0.5f - t : folded;
            to[i] = from[i] + radius * sin_turns(0.25f - fabsf(t));
            to[i + HALF] = from[i + HALF] + radius * sin_turns(folded);
        }
#pragma omp simd
        for (int32_t i = pairs; i < count; i++) {
            float t, radius = std * polar(place + i, keys, &t);
            to[i] = from[i] + radius * sin_turns(0.25f - fabsf(t));
        }
    }
}
