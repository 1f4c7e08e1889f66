#include "pullback.h"

/* y = x where the element's word reaches the threshold, times scale; else x times 0, so that NaN and infinity stay visible */
void dropout(int64_t n, int threads, const float *restrict x, float *restrict y, const int64_t *seed, int32_t threshold, float scale) {
    const int64_t pieces = (n + PIECE - 1) / PIECE;
#pragma omp parallel for if (n > GRAIN) num_threads(threads) schedule(static)
    for (int64_t k = 0; k < pieces; k++) {
        const int64_t start = k * PIECE;
        const int32_t count = (int32_t)(n - start < PIECE ? n - start : PIECE), place = (int32_t)(start % BLOCK);
        int32_t keys[2];
        block_keys(*seed, start / BLOCK, keys);
        const float *from = x + start;
        float *to = y + start;
#pragma omp simd
        for (int32_t i = 0; i < count; i++) {
            float kept = from[i] * scale, dropped = from[i] * 0.0f;
            to[i] = word(place + i, keys) >= threshold ? kept : dropped;
        }
    }
}
