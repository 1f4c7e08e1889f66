#include "pullback.h"

/* y = x where the element's word reaches the threshold, times scale; else x times 0, so that NaN and infinity stay visible */
void dropout(int64_t n, int threads, const float *restrict x, float *restrict y, const int64_t *seed, int32_t threshold, float scale) {
    const int64_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for if (n > GRAIN) num_threads(threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        int32_t keys[2];
        block_keys(*seed, b, keys);
        const float *from = x + b * BLOCK;
        float *to = y + b * BLOCK;
        const int32_t count = (int32_t)(n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK);
#pragma omp simd
        for (int32_t i = 0; i < count; i++) {
            float kept = from[i] * scale, dropped = from[i] * 0.0f;
            to[i] = word(i, keys) >= threshold ? kept : dropped;
        }
    }
}
